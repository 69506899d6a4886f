"""The last look at the victims, pod by pod: who could stay after all stays.

Search and stages move units: surplus one by one, a core whole. But a minimum is held by whoever stays, so where surplus
pods keep their places the pods of the core need not all go.
"""

from collections.abc import Iterator

from kai_solver.greedy.caps import within_limits
from kai_solver.greedy.chunks import Chunker
from kai_solver.greedy.outcome import Outcome
from kai_solver.greedy.placing import Placer
from kai_solver.greedy.state import State
from kai_solver.reduction import GangShape, Leaf, TreeNode


def spare(outcome: Outcome) -> None:
    """Let evicted pods stay that are in nobody's way and leave their gang whole; stale gangs go as they are."""
    state = outcome.state
    placer = Placer(state)
    stale = set(outcome.stale)
    gone: dict[int, list[int]] = {}
    for pod in sorted(state.gone - state.places.keys()):
        gone.setdefault(state.problem.pod_gang[pod], []).append(pod)
    for gang, pods in gone.items():
        if gang not in stale:
            _spare_gang(state, placer, state.problem.gangs[gang], pods)


def _spare_gang(state: State, placer: Placer, gang: GangShape, pods: list[int]) -> None:
    mark = state.mark()
    home = [pod for pod in sorted(pods, key=lambda p: state.problem.pods[p].order) if _comes_home(state, gang, pod)]
    is_whole = _is_whole(Chunker(gang, state.gangs[gang.index]), gang.root)
    if home and not (is_whole and placer.keeps_domains(gang, gang.root)):
        state.rollback(mark)


def _comes_home(state: State, gang: GangShape, pod: int) -> bool:
    mark = state.mark()
    if state.returns_home([pod]) and within_limits(state, gang.queue):
        return True
    state.rollback(mark)
    return False


def _is_whole(chunker: Chunker, root: TreeNode | Leaf) -> bool:
    """True where the gang has its minimum and no part of it is left with a piece of its own."""
    return chunker.is_satisfied(root) and all(chunker.is_satisfied(part) for part in _running_parts(chunker, root))


def _running_parts(chunker: Chunker, node: TreeNode | Leaf) -> Iterator[TreeNode | Leaf]:
    for child in () if isinstance(node, Leaf) else node.children:
        if chunker.has_active(child):
            yield child
            yield from _running_parts(chunker, child)
