"""LeaderWorkerSets: one gang per group of leader and workers (reference 1.7)."""

from collections.abc import Sequence

from kai_solver.kubeobjects.grouping.model import Group, Member, Part, named_after
from kai_solver.kubeobjects.grouping.read import natural, positive
from kai_solver.kubeobjects.grouping.segments import segment_of, segments

NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
SIZE = "leaderworkerset.sigs.k8s.io/size"
_AWAITS_LEADER = "LeaderReady"


class LeaderWorkerSetGrouper:
    """The leader and all its workers, or the leader first where the set says so."""

    name = "leaderworkerset"
    priority = 850

    def claim(self, member: Member) -> str | None:
        """Pods with the set's labels."""
        labels = member.pod.labels
        if not labels.get(NAME):
            return None
        owner = member.owner_of_kind("LeaderWorkerSet")
        name = named_after(labels[NAME], owner.uid if owner else "", "LeaderWorkerSet")
        return f"{name}-group-{labels.get(GROUP_INDEX, '0')}"

    def group(self, members: Sequence[Member]) -> Group:
        """Leader and workers as parts."""
        owner = members[0].owner_of_kind("LeaderWorkerSet")
        stated = owner.raw.count("spec.leaderWorkerTemplate.size", 1) if owner and owner.raw else None
        size = stated or positive(members[0].stated(SIZE)) or len(members)
        waits = owner is not None and owner.raw.text("spec.startupPolicy") == _AWAITS_LEADER
        leader_runs = any(member.pod.status.is_active for member in members if _is_leader(member))
        workers = 0 if waits and not leader_runs else size - 1
        if size < 2:
            return Group(min_member=size)
        parts, segment = segments(members, "workers", size - 1, workers)
        podsets = {m.pod.key: "leader" if _is_leader(m) else _worker_part(m, segment) for m in members}
        return Group(parts=(Part("leader", min_member=1), *parts), podsets=podsets)


def _index(member: Member) -> int:
    return natural(member.pod.labels.get(WORKER_INDEX, "")) or 0


def _is_leader(member: Member) -> bool:
    return _index(member) == 0


def _worker_part(member: Member, segment: int) -> str:
    """Worker 1 is the first of the first segment."""
    return segment_of("workers", _index(member) - 1, segment)
