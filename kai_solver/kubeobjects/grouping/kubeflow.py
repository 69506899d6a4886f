"""Training jobs of Kubeflow: PyTorchJob, TFJob, MPIJob, XGBoostJob, JAXJob (docs/kai-behaviour.md#kinds)."""

from collections.abc import Sequence

from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.model import Group, Member, Part, named_after
from kai_solver.kubeobjects.grouping.read import natural, sizes
from kai_solver.kubeobjects.grouping.segments import plan_segments, segment_of, segments
from kai_solver.kubeobjects.owners import Owner
from kai_solver.kubeobjects.raw import Raw

_GROUP = "kubeflow.org"
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
        """Pods whose top owner is one of the kinds."""
        top = member.top
        return named_after(top.name, top.uid, top.kind) if top and top.is_a(_GROUP, *REPLICA_SPECS) else None

    def group(self, members: Sequence[Member]) -> Group:
        """From the owner where it is there, else by the pods that are."""
        owner = members[0].top
        if owner is None:
            return Group(min_member=len(members))
        counts = replicas(owner) or sizes(_type(member) for member in members)
        waits = owner.kind == "MPIJob" and owner.raw.text("spec.launcherCreationPolicy") == _WAITS
        if waits and not any(_is_launcher(member) for member in members):
            counts.pop("launcher", None)
        needed = _needed(owner, counts)
        if owner.kind == "PyTorchJob" and set(counts) <= {"master", "worker"}:
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
    count = counts.get("worker", 0)
    plan = plan_segments(workers or members, _template(owner, "worker"), count, None) if count else None
    podsets = {}
    for member in members:
        index = natural(member.pod.labels.get(REPLICA_INDEX, "")) or 0
        is_master = _type(member) == "master" or not count
        podsets[member.pod.key] = "master" if is_master else segment_of(plan, "worker", index)
    master = (Part("master", min_member=masters),) if masters else ()
    parts = segments(plan, "worker", count, max(needed - masters, 0)) if "worker" in counts else ()
    return Group(parts=(*master, *parts), podsets=podsets)


def _template(owner: Owner, replica_type: str) -> Raw:
    """The pod template of one type of replicas; empty where the job is not there."""
    specs = owner.raw.get("spec").fields(REPLICA_SPECS[owner.kind])
    return next((spec.get("template") for name, spec in specs if name.lower() == replica_type), Raw(None))


def _is_launcher(member: Member) -> bool:
    """Whether it is the launcher of an MPIJob, and there to stay."""
    labels = member.pod.labels
    is_one = labels.get(names.JOB_ROLE) == "launcher" or labels.get(names.REPLICA_TYPE, "").lower() == "launcher"
    return is_one and not member.pod.raw.get("metadata.deletionTimestamp")


def _type(member: Member) -> str:
    """Replica type of a pod, ``worker`` where it has no label."""
    return (member.pod.labels.get(names.REPLICA_TYPE) or "worker").lower()
