"""Rules ``gang``, ``subgroup``, ``readiness`` and ``nomination``: all or nothing, down the tree."""

from collections.abc import Iterable, Iterator, Mapping

from kai_solver.check.scene import Change, Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import Gang, Pod, PodSet, PodStatus, SubGroup

Counts = Mapping[str, int]
"""Pods by podset; podsets without any may be missing."""


def satisfied(tree: SubGroup | PodSet, counts: Counts) -> bool:
    """True where enough children have enough pods (minMember, minSubGroup; docs/kai-behaviour.md#subgroups)."""
    if isinstance(tree, PodSet):
        return counts.get(tree.name, 0) >= tree.min_member
    return sum(satisfied(child, counts) for child in tree.children) >= tree.needed


def members(tree: SubGroup | PodSet, counts: Counts) -> int:
    """Pods below ``tree``."""
    if isinstance(tree, PodSet):
        return counts.get(tree.name, 0)
    return sum(members(child, counts) for child in tree.children)


def unfinished(tree: SubGroup | PodSet, counts: Counts, touched: Counts) -> SubGroup | PodSet | None:
    """First part of the tree, from the root down, that ``touched`` pods belong to and that lacks its minimum."""
    if not members(tree, touched):
        return None
    if not satisfied(tree, counts):
        return tree
    if isinstance(tree, SubGroup):
        for child in tree.children:
            if (part := unfinished(child, counts, touched)) is not None:
                return part
    return None


def by_podset(scene: Scene, keys: Iterable[str]) -> dict[str, int]:
    """Number of the pods ``keys`` in each podset."""
    return count(scene.pods[key] for key in keys)


def count(pods: Iterable[Pod]) -> dict[str, int]:
    """Number of pods in each podset."""
    counts: dict[str, int] = {}
    for pod in pods:
        counts[pod.podset] = counts.get(pod.podset, 0) + 1
    return counts


def together(left: Counts, right: Counts) -> Counts:
    """Sum by podset."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in (*left, *right)} if left else right


def judge_gangs(scene: Scene) -> Iterator[Violation]:
    """Each gang that gets pods ends with its minimum; and starts with it, or waits as a whole."""
    for change in scene.changes.values():
        if change.binds and not _is_whole(scene, change):
            yield from _gated(scene, change)
            yield from _judge_minimum(scene, change)


def _is_whole(scene: Scene, change: Change) -> bool:
    """True where the gang has one podset, and its new pods alone are its minimum and start together: all is well."""
    root, binds, pods = change.gang.root, change.binds, scene.pods
    if len(root.children) != 1 or not isinstance(podset := root.children[0], PodSet):
        return False
    if len(binds) < podset.min_member:
        return False
    name, nominated = podset.name, binds[0].nominated
    for bind in binds:
        pod = pods[bind.pod]
        if bind.nominated is not nominated or pod.podset != name or pod.status is PodStatus.GATED:
            return False
    return True


def _gated(scene: Scene, change: Change) -> Iterator[Violation]:
    known = {podset.name for podset in change.gang.root.podsets()}
    for bind in change.binds:
        pod = scene.pods[bind.pod]
        if pod.status is PodStatus.GATED:
            yield Violation("readiness", bind.pod, f"pod {bind.pod}: bound though it is gated")
        if pod.podset not in known:
            text = f"pod {bind.pod}: its gang has no podset {pod.podset!r}"
            yield Violation("subgroup", bind.pod, text)


def _judge_minimum(scene: Scene, change: Change) -> Iterator[Violation]:
    gang = change.gang
    kept = by_podset(scene, change.before.keys() - change.lost) if change.before else {}
    come = by_podset(scene, (bind.pod for bind in change.binds))
    after = together(kept, come)
    part = unfinished(gang.root, after, come)
    if part is not None:
        yield _say_unfinished(gang, part, after)
        return
    # KAI: ShouldPipelineJob (actions/common/allocate.go, docs/kai-behaviour.md#allocate).
    if not any(bind.nominated for bind in change.binds):
        return
    start = by_podset(scene, (bind.pod for bind in change.binds if not bind.nominated))
    part = unfinished(gang.root, together(kept, start), start)
    if part is not None:
        text = f"gang {gang.key}: some pods of its first minimum start now while others wait{_within(part)}"
        yield Violation("nomination", gang.key, text)


def _say_unfinished(gang: Gang, part: SubGroup | PodSet, after: Counts) -> Violation:
    alive = count(pod for pod in gang.pods if pod.status.is_alive and pod.status is not PodStatus.GATED)
    if not satisfied(gang.root, alive):
        text = f"gang {gang.key}: too few pods exist and are not gated ({sum(alive.values())})"
        return Violation("readiness", gang.key, text)
    rule = "gang" if part is gang.root else "subgroup"
    return Violation(rule, gang.key, f"gang {gang.key}: {_shortage(part, after)}{_within(part)}")


def _shortage(part: SubGroup | PodSet, counts: Counts) -> str:
    if isinstance(part, PodSet):
        return f"{counts.get(part.name, 0)} of at least {part.min_member} pods would run"
    whole = sum(satisfied(child, counts) for child in part.children)
    return f"{whole} of at least {part.needed} subgroups would have their minimum"


def _within(part: SubGroup | PodSet) -> str:
    return f", in subgroup {part.name}" if part.name else ""
