"""Chunks that fit the same places (KAI: scheduling signatures)."""

from kai_solver.greedy.chunks import Chunk, Part
from kai_solver.greedy.state import State

Signature = tuple[object, ...]


def signature(state: State, chunk: Chunk) -> Signature:
    """Chunks of one signature fit the same places: what failed once fails for all while capacity only shrinks."""
    gang = state.problem.gangs[chunk.gang]
    crowded = gang.placement.is_rule and state.crowds.is_anybody(gang.family)
    if state.has_pod_rules or chunk.root.anchors or crowded:
        return (chunk.gang, chunk.pods)
    return (gang.placement, _of_part(state.problem.pod_shape, chunk.root))


def _of_part(shapes: list[int], part: Part) -> Signature:
    inner = tuple(_of_part(shapes, child) for child in part.parts)
    return (part.topology, tuple(shapes[pod] for pod in part.pods), inner)
