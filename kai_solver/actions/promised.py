"""Nodes that earlier cycles promised. They are assigned before anything else is placed.

Otherwise the victims' queue would take back reclaimed nodes, and moved pods would not reach their new places.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.caps import over_capacity
from kai_solver.actions.context import Context
from kai_solver.domain import Action
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Admission

BoolArray = NDArray[np.bool_]


def keep_promises(context: Context, candidates: Sequence[int]) -> None:
    """Serve the gangs among ``candidates`` with a node from an earlier cycle for all of their next pods.

    Gangs of higher priority in the same queue, which may be newer, come first. If some pods miss their nodes, because
    others took GPUs there that they could have shared, the largest pods come first.
    """
    kept = {gang for gang in candidates if _is_promised(context, gang)}
    if not kept:
        return
    gangs, state = context.problem.gangs, context.state
    lowest: dict[int, int] = {}
    for index in kept:
        gang = gangs[index]
        lowest[gang.queue] = min(lowest.get(gang.queue, gang.gang.priority), gang.gang.priority)
    above = {i for i in candidates if gangs[i].gang.priority > lowest.get(gangs[i].queue, gangs[i].gang.priority)}
    mark = state.mark()
    served, missed = _serve(context, kept, _in_turn(context, kept | above))
    if missed:
        steps = state.journal[mark:]
        state.rollback(mark)
        others, still = _serve(context, kept, _largest_first(context, kept, above - kept))
        if still < missed:
            served = others
        else:
            state.rollback(mark)
            state.replay(steps)
    for chunk in served:
        context.outcome.admit(Admission(chunk, Action.ALLOCATE))


def _serve(context: Context, kept: set[int], chunks: Iterator[AllocationUnit]) -> tuple[list[AllocationUnit], int]:
    """Place ``chunks``, one after the other; those that found places, and how many pods missed their nodes."""
    served: list[AllocationUnit] = []
    missed = 0
    for chunk in chunks:
        if over_capacity(context.state, chunk) is not None:
            continue
        nodes = _promised_nodes(context, chunk)
        if nodes is not None and context.fits_free(chunk, nodes):
            served.append(chunk)
            continue
        missed += len(chunk.pods) if chunk.gang in kept else 0
        if context.fits_free(chunk):
            served.append(chunk)
    return served, missed


def _in_turn(context: Context, gangs: set[int]) -> Iterator[AllocationUnit]:
    """Requests of ``gangs``, in queue order; a gang has another turn if it was promised more."""
    turns = context.turns(sorted(gangs))
    while (turn := turns.pop()) is not None:
        yield turn.chunk
        if turn.chunk.pods[0] in context.state.places and _is_promised(context, turn.gang):
            turns.again(turn.gang)


def _largest_first(context: Context, kept: set[int], above: set[int]) -> Iterator[AllocationUnit]:
    """Requests of the gangs ``above``, in queue order, then of those ``kept``, the largest pods first."""
    yield from _in_turn(context, above)
    pods, charges = context.problem.gangs, context.problem.charges

    def size(gang: int) -> tuple[int, ...]:
        return max(tuple(reversed(charges[pod])) for pod in pods[gang].pending)

    for gang in sorted(kept, key=lambda gang: (size(gang), -gang), reverse=True):
        while _is_promised(context, gang):
            chunk = context.allocation_units[gang].next()
            if chunk is None:
                break
            yield chunk
            if chunk.pods[0] not in context.state.places:
                break


def _promised_nodes(context: Context, chunk: AllocationUnit) -> BoolArray | None:
    """(N,) nodes that the pods of ``chunk`` were promised; None where some have no such node.

    Without this mask the tightest domain of a topology would come before the promised one.
    """
    index, pods = context.problem.node_index, context.problem.pods
    nodes = {index.get(pods[pod].nominated_node, -1) for pod in chunk.pods}
    if -1 in nodes:
        return None
    found = np.zeros(len(context.problem.nodes), dtype=np.bool_)
    found[sorted(nodes)] = True
    return found


def _is_promised(context: Context, gang: int) -> bool:
    """True if all of the next pods have a node from an earlier cycle."""
    gang_units, pods = context.allocation_units[gang], context.problem.pods
    lone = gang_units.lone
    if lone is not None and not (lone.pending and pods[lone.pending[0]].nominated_node):
        return False
    if not any(pods[leaf.pending[0]].nominated_node for leaf in gang_units.shape.leaves if leaf.pending):
        return False
    chunk = gang_units.next()
    return chunk is not None and all(pods[pod].nominated_node for pod in chunk.pods)
