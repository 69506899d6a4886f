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
    served, missed = _serve(context, kept, _in_order(context, kept | above))
    if missed:
        steps = state.steps_since(mark)
        state.rollback(mark)
        others, still = _serve(context, kept, _largest_first(context, kept, above - kept))
        if still < missed:
            served = others
        else:
            state.rollback(mark)
            state.replay(steps)
    for allocation_unit in served:
        context.outcome.admit(Admission(allocation_unit, Action.ALLOCATE))


def _serve(
    context: Context, kept: set[int], allocation_units: Iterator[AllocationUnit]
) -> tuple[list[AllocationUnit], int]:
    """Place ``allocation_units`` one by one; those that found places, and how many pods missed their nodes."""
    served: list[AllocationUnit] = []
    missed = 0
    for allocation_unit in allocation_units:
        if over_capacity(context.state, allocation_unit) is not None:
            continue
        nodes = _promised_nodes(context, allocation_unit)
        if nodes is not None and context.fits_free(allocation_unit, nodes):
            served.append(allocation_unit)
            continue
        missed += len(allocation_unit.pods) if allocation_unit.gang in kept else 0
        if context.fits_free(allocation_unit):
            served.append(allocation_unit)
    return served, missed


def _in_order(context: Context, gangs: set[int]) -> Iterator[AllocationUnit]:
    """Requests of ``gangs``, in queue order; a gang comes again if it was promised more."""
    gang_order = context.gang_order(sorted(gangs))
    while (next_gang := gang_order.pop()) is not None:
        yield next_gang.allocation_unit
        if next_gang.allocation_unit.pods[0] in context.state.places and _is_promised(context, next_gang.gang):
            gang_order.again(next_gang.gang)


def _largest_first(context: Context, kept: set[int], above: set[int]) -> Iterator[AllocationUnit]:
    """Requests of the gangs ``above``, in queue order, then of those ``kept``, the largest pods first."""
    yield from _in_order(context, above)
    pods, charges = context.problem.gangs, context.problem.charges

    def size(gang: int) -> tuple[int, ...]:
        return max(tuple(reversed(charges[pod])) for pod in pods[gang].pending)

    for gang in sorted(kept, key=lambda gang: (size(gang), -gang), reverse=True):
        while _is_promised(context, gang):
            allocation_unit = context.gang_units[gang].next()
            if allocation_unit is None:
                break
            yield allocation_unit
            if allocation_unit.pods[0] not in context.state.places:
                break


def _promised_nodes(context: Context, allocation_unit: AllocationUnit) -> BoolArray | None:
    """(N,) nodes that the pods of ``allocation_unit`` were promised; None where some have no such node.

    Without this mask the tightest domain of a topology would come before the promised one.
    """
    index, pods = context.problem.node_index, context.problem.pods
    nodes = {index.get(pods[pod].nominated_node, -1) for pod in allocation_unit.pods}
    if -1 in nodes:
        return None
    found = np.zeros(len(context.problem.nodes), dtype=np.bool_)
    found[sorted(nodes)] = True
    return found


def _is_promised(context: Context, gang: int) -> bool:
    """True if all of the next pods have a node from an earlier cycle."""
    units_of_gang, pods = context.gang_units[gang], context.problem.pods
    lone = units_of_gang.lone
    if lone is not None and not (lone.pending and pods[lone.pending[0]].nominated_node):
        return False
    if not any(pods[leaf.pending[0]].nominated_node for leaf in units_of_gang.shape.leaves if leaf.pending):
        return False
    allocation_unit = units_of_gang.next()
    return allocation_unit is not None and all(pods[pod].nominated_node for pod in allocation_unit.pods)
