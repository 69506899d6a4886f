"""Training jobs of Kubeflow: PyTorchJob, TFJob, MPIJob, XGBoostJob, JAXJob (reference 1.7)."""

from collections.abc import Sequence

from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.model import Group, Member, Part, named_after
from kai_solver.kubeobjects.grouping.read import natural, sizes
from kai_solver.kubeobjects.grouping.segments import plan_segments, segment_of, segments
from kai_solver.kubeobjects.owners import Owner
from kai_solver.kubeobjects.raw import Raw

REPLICA_SPECS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
"""Where each kind lists its replicas by type."""

REPLICA_INDEX = "training.kubeflow.org/replica-index"
_WAITS = "WaitForWorkersReady"


class KubeflowGrouper:
    """The whole job at once, or as many as its scheduling policy says."""

    name = "kubeflow"
    priority = 700

    def claim(self, member: Member) -> str | None:
        """Pods owned by one of the kinds."""
        owner = member.owner_of_kind(*REPLICA_SPECS)
        return named_after(owner.name, owner.uid, owner.kind) if owner else None

    def group(self, members: Sequence[Member]) -> Group:
        """From the owner where it is there, else by the pods that are."""
        owner = members[0].owner_of_kind(*REPLICA_SPECS)
        if owner is None:
            return Group(min_member=len(members))
        counts = replicas(owner) or sizes(_type(member) for member in members)
        if owner.kind == "MPIJob" and owner.raw.text("spec.launcherCreationPolicy") == _WAITS:
            counts.pop("launcher", None)
        needed = _needed(owner, counts)
        if owner.kind == "PyTorchJob" and "worker" in counts and set(counts) <= {"master", "worker"}:
            return _pytorch(members, owner, counts, needed)
        return Group(min_member=needed)


def replicas(owner: Owner) -> dict[str, int]:
    """Replicas by lower-case type, as the job states them; empty where the job is not there."""
    specs = owner.raw.get("spec").fields(REPLICA_SPECS[owner.kind])
    return {name.lower(): spec.count("replicas", 1) for name, spec in specs}


def _needed(owner: Owner, counts: dict[str, int]) -> int:
    stated = owner.raw.get("spec.runPolicy.schedulingPolicy.minAvailable")
    elastic = owner.raw.get("spec.elasticPolicy.minReplicas")
    if stated:
        return stated.count()
    if owner.kind == "PyTorchJob" and elastic:
        return elastic.count()
    return sum(counts.values())


def _pytorch(members: Sequence[Member], owner: Owner, counts: dict[str, int], needed: int) -> Group:
    """Master and workers as parts of their own; workers perhaps in segments."""
    masters = counts.get("master", 0)
    workers = [member for member in members if _type(member) == "worker"]
    plan = plan_segments(workers or members, _template(owner, "worker"), counts["worker"], None)
    if plan is None and not masters:
        return Group(min_member=needed)
    podsets = {}
    for member in members:
        index = natural(member.pod.labels.get(REPLICA_INDEX, "")) or 0
        podsets[member.pod.key] = "master" if _type(member) == "master" else segment_of(plan, "worker", index)
    master = (Part("master", min_member=masters),) if masters else ()
    parts = segments(plan, "worker", counts["worker"], max(needed - masters, 0))
    return Group(parts=(*master, *parts), podsets=podsets)


def _template(owner: Owner, replica_type: str) -> Raw:
    """The pod template of one type of replicas; empty where the job is not there."""
    specs = owner.raw.get("spec").fields(REPLICA_SPECS[owner.kind])
    return next((spec.get("template") for name, spec in specs if name.lower() == replica_type), Raw(None))


def _type(member: Member) -> str:
    """Replica type of a pod, ``worker`` where it has no label."""
    return (member.pod.labels.get(names.REPLICA_TYPE) or "worker").lower()
