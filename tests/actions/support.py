"""Small clusters for tests of who leaves: nodes of GPUs, queues with a quota of GPUs, gangs of equal pods."""

from collections.abc import Sequence

from kai_solver.domain import Gang, GpuRequest, Node, Pod, PodStatus, Queue, QueueVector, Snapshot, flat_gang
from kai_solver.units import MILLI, UNLIMITED, ResourceSchema

GIB = 2**30


def a_node(name: str, gpus: int) -> Node:
    return Node(name, (64_000, 512 * GIB, gpus * MILLI, 110), gpus=gpus, gpu_memory_mib=100)


def a_queue(name: str, gpus: int, parent: str = "", *, weight: float = 1.0, priority: int = 100) -> Queue:
    quota: QueueVector = (UNLIMITED, UNLIMITED, gpus * MILLI)
    return Queue(name, parent, priority=priority, quota=quota, weight=(1.0, 1.0, weight))


def a_pod(name: str, number: int = 0, *, gpus: int = 1, node: str = "") -> Pod:
    """Pod ``number`` of a gang called ``name``; it runs where a node is given."""
    status = PodStatus.RUNNING if node else PodStatus.PENDING
    order = (0, float(number), "")
    return Pod("ns", f"{name}-{number}", (100, GIB, 0, 1), GpuRequest(gpus), status, node=node, order=order)


def a_gang(
    name: str,
    queue: str,
    pods: int = 1,
    *,
    gpus: int = 1,
    node: str = "",
    need: int = 1,
    born: float = 0.0,
    priority: int = 50,
) -> Gang:
    made = tuple(a_pod(name, i, gpus=gpus, node=node) for i in range(pods))
    start_s = 0.0 if node else None
    return Gang("ns", name, queue, flat_gang(need), made, priority=priority, created_s=born, last_start_s=start_s)


def a_snapshot(nodes: Sequence[Node], queues: Sequence[Queue], gangs: Sequence[Gang]) -> Snapshot:
    return Snapshot(1000.0, ResourceSchema(), tuple(nodes), tuple(queues), tuple(gangs))
