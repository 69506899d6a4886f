"""Whether a gang's tree can be used."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kai_solver.domain import Pod, PodSet, SubGroup

_DEEPEST = 32


def mended_tree(root: SubGroup) -> SubGroup:
    """``root`` with negative minimums read as 0, as KAI does; the same object where there are none.

    Source: docs/kai-behaviour.md#subgroups.
    """
    if depth(root) > _DEEPEST or all(minimum >= 0 for minimum in _minimums(root)):
        return root
    return _mended(root)


def tree_problem(root: SubGroup, pods: Iterable[Pod]) -> str:
    """Why the tree cannot be used; empty where it can."""
    if len(root.children) == 1 and isinstance(root.children[0], PodSet):
        return _lost(pods, {root.children[0].name})
    if depth(root) > _DEEPEST:
        return f"its subgroups are nested deeper than {_DEEPEST} levels, or in a loop"
    leaves = {leaf.name for leaf in root.podsets()}
    repeated = [name for name, times in Counter(_names(root)).items() if times > 1]
    if repeated:
        return f"the subgroup {repeated[0]!r} occurs twice"
    if not leaves:
        return "it has no subgroup that could hold pods"
    return _lost(pods, leaves)


def _lost(pods: Iterable[Pod], leaves: set[str]) -> str:
    lost = sorted({pod.podset for pod in pods} - leaves)
    return f"the subgroup {lost[0]!r} of its pods does not exist" if lost else ""


def depth(root: SubGroup) -> int:
    """Levels of the tree, counted no further than needed to refuse it."""
    level, found = [root], 0
    while level and found <= _DEEPEST:
        found += 1
        level = [child for group in level for child in group.children if isinstance(child, SubGroup)]
    return found


def _minimums(group: SubGroup) -> Iterator[int]:
    yield group.min_subgroups or 0
    for child in group.children:
        if isinstance(child, PodSet):
            yield child.min_member
        else:
            yield from _minimums(child)


def _names(group: SubGroup) -> Iterator[str]:
    for child in group.children:
        yield child.name
        if isinstance(child, SubGroup):
            yield from _names(child)


def _mended(group: SubGroup) -> SubGroup:
    children = tuple(
        replace(child, min_member=max(child.min_member, 0)) if isinstance(child, PodSet) else _mended(child)
        for child in group.children
    )
    fewest = group.min_subgroups
    return replace(group, children=children, min_subgroups=None if fewest is None else max(fewest, 0))
