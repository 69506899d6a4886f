"""Rule ``units``: a gang yields surplus pods one by one, optional subgroups whole, its core whole."""

from collections.abc import Iterator

from kai_solver.check.gangs import Counts, by_podset, members, satisfied
from kai_solver.check.scene import Change, Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import FOR_NO_GANG, PodSet, SubGroup

Part = SubGroup | PodSet


def broken_unit(tree: Part, counts: Counts, lost: Counts) -> Part | None:
    """First part of the tree that lost pods, keeps some, and no longer has its minimum."""
    if not members(tree, lost) or not members(tree, counts):
        return None
    if not satisfied(tree, counts):
        return tree
    if isinstance(tree, SubGroup):
        for child in tree.children:
            if (part := broken_unit(child, counts, lost)) is not None:
                return part
    return None


def remainder(scene: Scene, change: Change) -> Counts:
    """Pods by podset that run after the plan: moved ones, and those by which the gang may have got its minimum."""
    return by_podset(scene, (change.before.keys() - change.lost) | {bind.pod for bind in change.binds})


def judge_units(scene: Scene) -> Iterator[Violation]:
    """Every gang that loses pods keeps its minimum or loses all, and so does every subgroup that loses pods."""
    for change in scene.changes.values():
        # What is evicted for no gang is judged elsewhere (`stale`, `stop`).
        if not change.evictions or not any(eviction.reason not in FOR_NO_GANG for eviction in change.evictions):
            continue
        if not change.binds and len(change.evictions) == len(change.before):
            continue
        gang = change.gang
        counts = remainder(scene, change)
        part = broken_unit(gang.root, counts, by_podset(scene, change.lost))
        if part is not None:
            what = f"subgroup {part.name}" if part.name and part is not gang.root else "it"
            text = f"gang {gang.key}: {members(part, counts)} pods would stay though {what} has no minimum left"
            yield Violation("units", gang.key, text)
