"""Nodes that earlier cycles promised. They are assigned before anything else is placed.

Otherwise the victims' queue would take back reclaimed nodes, and moved pods would not reach their new places.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Rung
from kai_solver.greedy.caps import over_capacity
from kai_solver.greedy.chunks import Chunk
from kai_solver.greedy.course import Course
from kai_solver.greedy.outcome import Admission

BoolArray = NDArray[np.bool_]


def keep_promises(course: Course, candidates: Sequence[int]) -> None:
    """Serve the gangs among ``candidates`` with a node from an earlier cycle for all of their next pods.

    Gangs of higher priority in the same queue, which may be newer, come first. If some pods miss their nodes, because
    others took GPUs there that they could have shared, the largest pods come first.
    """
    kept = {gang for gang in candidates if _is_promised(course, gang)}
    if not kept:
        return
    gangs, state = course.problem.gangs, course.state
    lowest: dict[int, int] = {}
    for index in kept:
        gang = gangs[index]
        lowest[gang.queue] = min(lowest.get(gang.queue, gang.gang.priority), gang.gang.priority)
    above = {i for i in candidates if gangs[i].gang.priority > lowest.get(gangs[i].queue, gangs[i].gang.priority)}
    mark = state.mark()
    served, missed = _serve(course, kept, _in_turn(course, kept | above))
    if missed:
        steps = state.journal[mark:]
        state.rollback(mark)
        others, still = _serve(course, kept, _largest_first(course, kept, above - kept))
        if still < missed:
            served = others
        else:
            state.rollback(mark)
            state.replay(steps)
    for chunk in served:
        course.outcome.admit(Admission(chunk, Rung.ALLOCATE))


def _serve(course: Course, kept: set[int], chunks: Iterator[Chunk]) -> tuple[list[Chunk], int]:
    """Place ``chunks``, one after the other; those that found places, and how many pods missed their nodes."""
    served: list[Chunk] = []
    missed = 0
    for chunk in chunks:
        if over_capacity(course.state, chunk) is not None:
            continue
        nodes = _promised_nodes(course, chunk)
        if nodes is not None and course.fits_free(chunk, nodes):
            served.append(chunk)
            continue
        missed += len(chunk.pods) if chunk.gang in kept else 0
        if course.fits_free(chunk):
            served.append(chunk)
    return served, missed


def _in_turn(course: Course, gangs: set[int]) -> Iterator[Chunk]:
    """Requests of ``gangs``, in queue order; a gang has another turn if it was promised more."""
    turns = course.turns(sorted(gangs))
    while (turn := turns.pop()) is not None:
        yield turn.chunk
        if turn.chunk.pods[0] in course.state.places and _is_promised(course, turn.gang):
            turns.again(turn.gang)


def _largest_first(course: Course, kept: set[int], above: set[int]) -> Iterator[Chunk]:
    """Requests of the gangs ``above``, in queue order, then of those ``kept``, the largest pods first."""
    yield from _in_turn(course, above)
    pods, charges = course.problem.gangs, course.problem.charges

    def size(gang: int) -> tuple[int, ...]:
        return max(tuple(reversed(charges[pod])) for pod in pods[gang].pending)

    for gang in sorted(kept, key=lambda gang: (size(gang), -gang), reverse=True):
        while _is_promised(course, gang):
            chunk = course.chunkers[gang].next()
            if chunk is None:
                break
            yield chunk
            if chunk.pods[0] not in course.state.places:
                break


def _promised_nodes(course: Course, chunk: Chunk) -> BoolArray | None:
    """(N,) nodes that the pods of ``chunk`` were promised; None where some have no such node.

    Without this mask the tightest domain of a topology would come before the promised one.
    """
    index, pods = course.problem.node_index, course.problem.pods
    nodes = {index.get(pods[pod].nominated_node, -1) for pod in chunk.pods}
    if -1 in nodes:
        return None
    found = np.zeros(len(course.problem.nodes), dtype=np.bool_)
    found[sorted(nodes)] = True
    return found


def _is_promised(course: Course, gang: int) -> bool:
    """True if all of the next pods have a node from an earlier cycle."""
    chunker, pods = course.chunkers[gang], course.problem.pods
    lone = chunker.lone
    if lone is not None and not (lone.pending and pods[lone.pending[0]].nominated_node):
        return False
    if not any(pods[leaf.pending[0]].nominated_node for leaf in chunker.shape.leaves if leaf.pending):
        return False
    chunk = chunker.next()
    return chunk is not None and all(pods[pod].nominated_node for pod in chunk.pods)
