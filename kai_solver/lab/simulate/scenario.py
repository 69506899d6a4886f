"""What is replayed: a cluster, jobs with their times, and outages. Times are seconds from the begin of the scenario."""

from collections.abc import Iterator
from dataclasses import dataclass

from kai_solver.domain import Gang, Notice, Pod, PodSet, Snapshot, SubGroup
from kai_solver.units import MILLI

EPOCH_S = 1_700_000_000.0
"""Epoch seconds of a scenario's begin: what snapshots show as the moment."""


@dataclass(frozen=True, slots=True)
class Job:
    """A gang with its times.

    Attributes
    ----------
    gang
        As it arrives: all pods pending, ``created_s`` in epoch seconds.
    runtime_s
        Work, as seconds at full strength.
    checkpoint_s
        Work is saved each time so much of it is done; None: never.
    restart_s
        From a second start on, seconds that it holds its GPUs before it works.
    workload
        Name of the workload that it belongs to.
    """

    gang: Gang
    arrival_s: float
    runtime_s: float
    checkpoint_s: float | None = None
    restart_s: float = 0.0
    workload: str = ""

    @property
    def key(self) -> str:
        """``namespace/name`` of its gang."""
        return self.gang.key

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs at full strength; a request by memory counts whole devices."""
        return sum(pod_milli(pod) for pod in self.gang.pods)


def pod_milli(pod: Pod) -> int:
    """Thousandths of GPUs that a pod asks for."""
    return pod.gpu.devices * (pod.gpu.milli or MILLI)


@dataclass(frozen=True, slots=True)
class Outage:
    """A node is lost at ``at_s`` and back at ``until_s``."""

    node: str
    at_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """A replay's input.

    Attributes
    ----------
    cluster
        Nodes, queues, topologies and policy; without gangs.
    jobs
        By arrival.
    duration_s
        Where it ends; None: when nothing more can happen.
    releasing_s
        How long an evicted or moved pod holds its place.
    """

    name: str
    cluster: Snapshot
    jobs: tuple[Job, ...] = ()
    outages: tuple[Outage, ...] = ()
    period_s: float = 1.0
    duration_s: float | None = None
    releasing_s: float = 5.0
    gpu_hour_price: float = 2.0
    seed: int = 0
    notices: tuple[Notice, ...] = ()

    def sizes(self) -> dict[int, float]:
        """Share of the pods with GPUs that ask for so many thousandths: what fragmentation is measured by."""
        counts: dict[int, int] = {}
        for milli in self._pod_sizes():
            counts[milli] = counts.get(milli, 0) + 1
        total = sum(counts.values())
        return {milli: count / total for milli, count in sorted(counts.items())}

    def _pod_sizes(self) -> Iterator[int]:
        for job in self.jobs:
            for pod in job.gang.pods:
                if pod.gpu.devices:
                    yield pod_milli(pod)


def satisfied(node: SubGroup | PodSet, counts: dict[str, int]) -> bool:
    """Whether pods by podset are enough for the tree: a podset its minimum, a group as many children as it needs."""
    if isinstance(node, PodSet):
        return counts.get(node.name, 0) >= node.min_member
    return sum(satisfied(child, counts) for child in node.children) >= node.needed
