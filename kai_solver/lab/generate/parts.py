"""Nodes, pods and gangs as the generators make them."""

from collections.abc import Sequence

from kai_solver.domain import (
    NO_GPU,
    Gang,
    Node,
    Pod,
    PodStatus,
    Queue,
    QueueVector,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
    gpus_asked,
)
from kai_solver.units import MILLI, UNLIMITED

NOW_S = 1_700_000_000.0
NODE_GPUS = 8
RACK, BLOCK, HOST = "topology.kubernetes.io/rack", "topology.kubernetes.io/block", "kubernetes.io/hostname"
FABRIC = Topology("fabric", (TopologyLevel(BLOCK), TopologyLevel(RACK), TopologyLevel(HOST)))
IN_ONE_RACK = TopologyConstraint("fabric", required=RACK)
NAMESPACE = "default"
_CORES, _MEMORY, _PODS = 128, 2**40, 110
_GIB = 2**30


def node(name: str, gpus: int = NODE_GPUS, labels: dict[str, str] | None = None) -> Node:
    """A node with 128 cores, 1 TiB and room for 110 pods."""
    return Node(name, (_CORES * MILLI, _MEMORY, gpus * MILLI, _PODS), gpus, 80 * 1024, {HOST: name} | (labels or {}))


def queue(name: str, number: int, quota: int, *, parent: str = "", weight: float = 1.0, limit: int = -1) -> Queue:
    """A queue with a quota (and limit) of GPUs; CPU and memory are unlimited. Smaller numbers are older."""
    return Queue(
        name,
        parent,
        created_s=NOW_S - 1e6 + number,
        quota=_gpus_only(quota),
        limit=_gpus_only(limit),
        weight=(1.0, 1.0, weight),
    )


def _gpus_only(gpus: int) -> QueueVector:
    return (UNLIMITED, UNLIMITED, gpus * MILLI if gpus >= 0 else UNLIMITED)


def gang(
    name: str,
    of_queue: str,
    pods: int,
    gpus: int,
    *,
    nodes: Sequence[str] = (),
    age_s: float,
    running_s: float = 0.0,
    priority: int = 50,
    bound: bool = False,
) -> Gang:
    """A gang, all or nothing, of ``pods`` pods with ``gpus`` GPUs each; it runs on ``nodes`` where they are given."""
    cores, memory = (8 * gpus, 64 * _GIB * gpus) if gpus else (2, 8 * _GIB)
    request = (cores * MILLI, memory, 0, 1)
    asked = gpus_asked(gpus) if gpus else NO_GPU
    status = PodStatus.RUNNING if nodes else PodStatus.PENDING
    places = nodes or [""] * pods
    names = [f"{name}-{i:03}" for i in range(pods)]
    return Gang(
        NAMESPACE,
        name,
        of_queue,
        flat_gang(pods, IN_ONE_RACK if bound else None),
        tuple(
            Pod(NAMESPACE, pod, request, asked, status, node=place, order=(0, 0.0, pod))
            for pod, place in zip(names, places, strict=True)
        ),
        priority=priority,
        preemptible=priority < 100,
        created_s=NOW_S - age_s,
        last_start_s=NOW_S - running_s if nodes else None,
    )
