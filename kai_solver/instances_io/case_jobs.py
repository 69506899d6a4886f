"""Jobs and tasks of a behaviour case as gangs and pods."""

from dataclasses import dataclass, field

from kai_solver.domain import (
    NO_CONSTRAINTS,
    NO_GPU,
    Constraints,
    Gang,
    GpuRequest,
    Notice,
    Pod,
    PodAffinityTerm,
    PodSet,
    PodStatus,
    Requirement,
    SubGroup,
    TopologyConstraint,
    flat_gang,
    gpus_asked,
)
from kai_solver.domain.object_limits import bounded
from kai_solver.instances_io.case_claims import CaseClaims
from kai_solver.instances_io.case_schema import (
    InstanceDoc,
    JobDoc,
    PodSetDoc,
    RequestDoc,
    SubGroupDoc,
    TaskDoc,
    TopologyConstraintDoc,
)
from kai_solver.instances_io.case_zones import CaseZones
from kai_solver.units import MILLI, PODS, ResourceSchema, Vector, mig_slices

NAMESPACE = "default"
"""Namespace of jobs that name none."""

_STATES = {status.value: status for status in PodStatus} | {
    "Pipelined": PodStatus.PENDING,
    "Allocated": PodStatus.BOUND,
}


@dataclass(slots=True)
class JobReader:
    """Reads jobs one by one and remembers by which names the file calls them.

    Parameters
    ----------
    affinity_on
        Whether pod (anti-)affinity is enforced in this case.
    """

    schema: ResourceSchema
    now_s: float
    claims: CaseClaims
    zones: CaseZones
    affinity_on: bool
    gang_keys: dict[str, str] = field(default_factory=dict)
    pod_keys: dict[str, str] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    _interned: dict[Constraints, Constraints] = field(default_factory=dict)
    _vectors: dict[tuple[float, float, tuple[tuple[str, int], ...]], Vector] = field(default_factory=dict)

    def gang(self, job: JobDoc, instance: InstanceDoc) -> Gang:
        """The gang of ``job``."""
        namespace = job.namespace or NAMESPACE
        gang = Gang(
            namespace=namespace,
            name=job.name,
            queue=job.queue,
            root=_tree(job.subgroup_tree) if job.subgroup_tree else flat_gang(_min_member(job)),
            pods=tuple(self._pod(task, job, namespace, instance) for task in job.tasks),
            priority=job.priority,
            preemptible=job.priority < 100 if not job.preemptibility else job.preemptibility == "preemptible",
            created_s=self.now_s - 60 * job.age_minutes,
            last_start_s=_ago(self.now_s, job.last_start_minutes_ago, 60),
            stale_since_s=_ago(self.now_s, job.stale_for_s, 1),
            preemption_delay_s=job.preemption_delay_s,
            staleness_grace_s=job.staleness_grace_period_s,
            uid=job.name,
        )
        self.gang_keys[job.name] = gang.key
        return gang

    def _pod(self, task: TaskDoc, job: JobDoc, namespace: str, instance: InstanceDoc) -> Pod:
        status = _STATES.get(task.state)
        if status is None:
            self.notices.append(Notice("set-aside", f"pod {task.id}", f"unknown state {task.state!r}: takes no part"))
            status = PodStatus.FAILED
        placed = status.holds_resources
        pod = Pod(
            namespace=namespace,
            name=task.id,
            request=self._request(job, task),
            gpu=_gpu_request(job.task_request, task),
            status=status,
            podset=task.subgroup or "default",
            node=task.node if placed else "",
            gpu_groups=tuple(task.gpu_groups) if placed or task.state == "Pipelined" else (),
            nominated_node=task.node if task.state == "Pipelined" else "",
            quota_gpu_milli=sum(mig_slices(name) * MILLI * count for name, count in task.mig.items()),
            constraints=self._constraints(task, instance, pending=not placed),
            labels=task.pod_labels,
            order=(-task.priority, 0.0, task.id),
            guaranteed=job.qos_class == "Guaranteed",
            zones=self.zones.shares(task.annotations, task.id) if placed else (),
            claims=self.claims.keys(task, job, namespace),
        )
        self.pod_keys[task.id] = pod.key
        return pod

    def _request(self, job: JobDoc, task: TaskDoc) -> Vector:
        asked = job.task_request
        cpu, memory = (0.0, 0.0) if job.best_effort else (asked.cpu_cores, asked.memory_bytes)
        key = (cpu, memory, tuple(task.mig.items()))
        if key not in self._vectors:
            amounts = {"cpu": round(cpu * MILLI), "memory": round(memory), self.schema.names[PODS]: 1}
            self._vectors[key] = self.schema.vector(amounts | task.mig)
        return self._vectors[key]

    def _constraints(self, task: TaskDoc, instance: InstanceDoc, *, pending: bool) -> Constraints:
        terms = [((requirement,),) for requirement in _node_requirements(task, instance)]
        constraints = Constraints(
            node_terms=tuple(terms),
            affinity=self._same_labels(task, task.pod_affinity_topology_key),
            anti_affinity=self._same_labels(task, task.pod_anti_affinity_topology_key),
            blocked=_blocked(task) if pending else (),
        )
        constraints = bounded(constraints)
        return NO_CONSTRAINTS if constraints == NO_CONSTRAINTS else self._interned.setdefault(constraints, constraints)

    def _same_labels(self, task: TaskDoc, topology_key: str) -> tuple[PodAffinityTerm, ...]:
        if not topology_key or not self.affinity_on:
            return ()
        selector = tuple(Requirement(key, "In", (value,)) for key, value in task.pod_labels.items())
        return (PodAffinityTerm(selector, topology_key),)


def _ago(now_s: float, amount: float | None, seconds: float) -> float | None:
    return None if amount is None else now_s - seconds * amount


def _min_member(job: JobDoc) -> int:
    return len(job.tasks) if job.min_available is None else job.min_available


def _gpu_request(asked: RequestDoc, task: TaskDoc) -> GpuRequest:
    gpus = asked.gpus if task.gpus is None else task.gpus
    if asked.gpu_memory_mib and task.gpus is None:
        return gpus_asked(asked.gpu_devices, 0, asked.gpu_memory_mib)
    if 0 < gpus < 1:
        return gpus_asked(asked.gpu_devices, round(gpus * MILLI))
    return gpus_asked(int(gpus)) if gpus else NO_GPU


def _node_requirements(task: TaskDoc, instance: InstanceDoc) -> list[Requirement]:
    """Requirements that must all hold; MIG pods keep off nodes with legacy MIG pods, as in KAI."""
    found = [Requirement("kai.scheduler/type", "In", tuple(task.allowed_nodes))] if task.allowed_nodes else []
    if task.mig and task.state in ("Pending", "Gated"):
        legacy = {t.node for job in instance.jobs for t in job.tasks if t.legacy_mig and t.node}
        if legacy:
            found.append(Requirement("metadata.name", "NotIn", tuple(sorted(legacy))))
    return found


def _blocked(task: TaskDoc) -> tuple[str, ...]:
    """Why no node can take the task: the format has no volumes, so every claim named is missing."""
    missing = [f'VolumeBinding: persistentvolumeclaim "{name}" not found' for name in task.persistent_volume_claims]
    legacy = ["Legacy MIG jobs cannot be scheduled"] if task.legacy_mig else []
    return (*missing, *legacy)


def _constraint(document: TopologyConstraintDoc | None) -> TopologyConstraint | None:
    if document is None:
        return None
    return TopologyConstraint(document.topology, document.required_level, document.preferred_level)


def _leaf(document: PodSetDoc) -> PodSet:
    return PodSet(document.name, document.min_available, _constraint(document.topology_constraint))


def _tree(document: SubGroupDoc) -> SubGroup:
    children = tuple(_tree(child) for child in document.subgroups) + tuple(_leaf(leaf) for leaf in document.pod_sets)
    return SubGroup(document.name, children, document.min_subgroups, _constraint(document.topology_constraint))
