"""LeaderWorkerSets: one gang per group of leader and workers (docs/kai-behaviour.md#kinds, #segments)."""

from collections.abc import Sequence

from kai_solver.errors import InputError
from kai_solver.kubeobjects.grouping.model import Group, Member, Part, named_after
from kai_solver.kubeobjects.grouping.read import natural, positive
from kai_solver.kubeobjects.grouping.segments import SIZE as SEGMENT_SIZE
from kai_solver.kubeobjects.grouping.segments import SegmentPlan, plan_segments
from kai_solver.kubeobjects.owners import Owner
from kai_solver.kubeobjects.raw import Raw

_GROUP = "leaderworkerset.x-k8s.io"
NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
SIZE = "leaderworkerset.sigs.k8s.io/size"
LEADER, WORKERS = "leader", "workers"
_AWAITS_LEADER = "LeaderReady"
_TEMPLATE = "spec.leaderWorkerTemplate"
_LEADER_APART = "LeaderExcluded"


class LeaderWorkerSetGrouper:
    """The leader and all its workers, or the leader first where the set says so."""

    name = "leaderworkerset"
    priority = 850

    def claim(self, member: Member) -> str | None:
        """Pods with the set's labels."""
        labels = member.pod.labels
        if not labels.get(NAME) or not (member.is_of(_GROUP, "LeaderWorkerSet") or member.is_known_by_labels):
            return None
        owner = member.owner_of_kind("LeaderWorkerSet")
        name = named_after(labels[NAME], owner.uid if owner else "", "LeaderWorkerSet")
        return f"{name}-group-{labels.get(GROUP_INDEX, '0')}"

    def group(self, members: Sequence[Member]) -> Group:
        """Leader and workers as parts, workers perhaps in segments.

        Raises
        ------
        InputError
            The segments that are asked for are impossible.
        """
        owner = members[0].owner_of_kind("LeaderWorkerSet")
        raw = owner.raw if owner else Raw(None)
        size = raw.count(f"{_TEMPLATE}.size", 1) if raw else positive(members[0].stated(SIZE)) or len(members)
        if size < 2:
            return Group(parts=(Part(LEADER, min_member=size),), podsets={m.pod.key: LEADER for m in members})
        waits = raw.text("spec.startupPolicy") == _AWAITS_LEADER
        leader_runs = any(member.pod.status.is_active for member in members if _index(member) == 0)
        plan = _segment_plan(members, owner, size)
        if plan is not None:
            return _segmented(members, raw, size, plan, needs_workers=not waits or leader_runs)
        needed = 0 if waits and not leader_runs else size - 1
        podsets = {m.pod.key: WORKERS if _index(m) else LEADER for m in members}
        return Group(parts=(Part(LEADER, min_member=1), Part(WORKERS, min_member=needed)), podsets=podsets)


def _segment_plan(members: Sequence[Member], owner: Owner | None, size: int) -> SegmentPlan | None:
    """Segments by the set's own policy, else by its annotation, else by that of the worker template."""
    if owner is None:
        return plan_segments(members, Raw(None), size, None)
    stated = owner.raw.get(f"{_TEMPLATE}.subGroupPolicy.subGroupSize")
    annotated = owner.annotations.get(SEGMENT_SIZE)
    own = stated.count() if stated else natural(annotated) if annotated else None
    if annotated and own is None:
        raise InputError(f"{annotated!r} is not a number", field=SEGMENT_SIZE, cure="Write a number above 1")
    return plan_segments(members, owner.raw.get(f"{_TEMPLATE}.workerTemplate"), size, own)


def _segmented(members: Sequence[Member], raw: Raw, size: int, plan: SegmentPlan, *, needs_workers: bool) -> Group:
    """Segments of all pods; the leader is in the first, or apart where the set's policy says so.

    Where the workers alone fill whole segments, the leader is an extra pod of the first one.
    """
    extra = (size - 1) % plan.size == 0
    apart = raw.text(f"{_TEMPLATE}.subGroupPolicy.subGroupPolicyType") == _LEADER_APART
    if apart and not extra:
        problem = f"{_LEADER_APART} with {size - 1} workers in segments of {plan.size}"
        field = f"{_TEMPLATE}.subGroupPolicy.subGroupSize"
        raise InputError(problem, field=field, cure="Give a size that divides the number of workers")
    workers = [_workers(index, size, plan.size, extra=extra) for index in range(-(-(size - extra) // plan.size))]
    needed = [count if needs_workers else 0 for count in workers]
    rest = tuple(plan.part(f"segment-{index}", count) for index, count in enumerate(needed) if index)
    if apart:
        parts = (Part(LEADER, min_member=1), plan.part("segment-0", needed[0]), *rest)
    else:
        leader = Part(LEADER, min_member=1, parent="segment-0")
        first = Part(WORKERS, min_member=needed[0], parent="segment-0")
        parts = (plan.part("segment-0", None), leader, first, *rest)
    in_first = "segment-0" if apart else WORKERS
    podsets = {m.pod.key: _leaf(_index(m), plan.size, in_first, extra=extra) for m in members}
    return Group(parts=parts, podsets=podsets)


def _workers(segment: int, size: int, segment_size: int, *, extra: bool) -> int:
    """Workers of one segment; without an ``extra`` leader, the leader has a place of the first."""
    if extra:
        return segment_size
    return min(segment_size, size - segment * segment_size) - (segment == 0)


def _leaf(index: int, segment_size: int, in_first: str, *, extra: bool) -> str:
    if index == 0:
        return LEADER
    segment = (index - extra) // segment_size
    return f"segment-{segment}" if segment else in_first


def _index(member: Member) -> int:
    return natural(member.pod.labels.get(WORKER_INDEX, "")) or 0
