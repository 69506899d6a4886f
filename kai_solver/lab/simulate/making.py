"""Gangs of jobs: names, pods, and what the workload says of all its jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kai_solver.domain import (
    NO_CONSTRAINTS,
    NO_GPU,
    Constraints,
    Gang,
    Pod,
    Snapshot,
    TopologyConstraint,
    flat_gang,
    gpus_asked,
)
from kai_solver.instances_io.native_schema import TopologyConstraintDoc
from kai_solver.instances_io.scenario_schema import JobDefaultsDoc
from kai_solver.lab.simulate.scenario import EPOCH_S, Job

NAMESPACE = "sim"


@dataclass(frozen=True, slots=True)
class PodSize:
    """What one pod asks for: devices, thousandths of each, CPU in thousandths, memory in bytes."""

    devices: int
    milli: int
    cpu_milli: int
    memory_bytes: int
    constraints: Constraints = NO_CONSTRAINTS
    labels: Mapping[str, str] = field(default_factory=dict)


class JobMaker:
    """Makes the jobs of one cluster."""

    def __init__(self, cluster: Snapshot) -> None:
        self._schema = cluster.schema
        self._policy = cluster.policy

    def job(
        self,
        doc: JobDefaultsDoc,
        name: str,
        arrival_s: float,
        runtime_s: float,
        sizes: Sequence[PodSize],
        *,
        queue: str,
        min_member: int,
        topology: TopologyConstraintDoc | None = None,
    ) -> Job:
        """One job; ``sizes`` are its pods'."""
        preemptible = doc.preemptible
        if preemptible is None:
            preemptible = doc.priority < self._policy.non_preemptible_priority
        created_s = EPOCH_S + arrival_s
        gang = Gang(
            namespace=NAMESPACE,
            name=name,
            queue=queue,
            root=flat_gang(min_member, _topology(topology)),
            pods=tuple(self._pod(f"{name}-{i}", size, i) for i, size in enumerate(sizes)),
            priority=doc.priority,
            preemptible=preemptible,
            created_s=created_s,
            preemption_delay_s=doc.preemption_delay,
        )
        return Job(gang, arrival_s, runtime_s, doc.checkpoint, doc.restart, doc.name)

    def _pod(self, name: str, size: PodSize, order: int) -> Pod:
        amounts = {"cpu": size.cpu_milli, "memory": size.memory_bytes, "pods": 1}
        return Pod(
            namespace=NAMESPACE,
            name=name,
            request=self._schema.vector(amounts),
            gpu=gpus_asked(size.devices, size.milli) if size.devices else NO_GPU,
            constraints=size.constraints,
            labels=size.labels,
            order=(0, float(order), name),
        )


def _topology(doc: TopologyConstraintDoc | None) -> TopologyConstraint | None:
    return None if doc is None else TopologyConstraint(doc.topology, doc.required or "", doc.preferred or "")
