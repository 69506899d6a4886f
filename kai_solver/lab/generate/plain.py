"""Instances a and b of ``instances/bench`` at any size, and a quiet cluster."""

from kai_solver.domain import Gang, Node, Queue, Snapshot
from kai_solver.instances_io.bench_schema import EmptyDoc, QuietDoc, ReclaimDoc
from kai_solver.lab.generate.parts import NODE_GPUS, NOW_S, gang, node, queue
from kai_solver.units import ResourceSchema

_TOP = queue("default", 0, -1)


def empty_snapshot(doc: EmptyDoc) -> Snapshot:
    """One-GPU jobs for all GPUs of an empty cluster; four queues with a quarter of them each."""
    jobs = doc.nodes * NODE_GPUS
    queues = [_TOP, *(queue(f"queue-{i}", 1 + i, jobs // 4, parent=_TOP.name) for i in range(4))]
    gangs = [gang(f"p{i:05}", f"queue-{i % 4}", 1, 1, age_s=60.0 * (jobs - i)) for i in range(jobs)]
    return _snapshot(f"empty-{doc.nodes}", _nodes(doc.nodes), queues, gangs)


def reclaim_snapshot(doc: ReclaimDoc) -> Snapshot:
    """Every node is half full of one-GPU jobs of a queue that may hold a fifth of the cluster.

    The other queue's gangs of 4 x 8 GPUs must have whole nodes: work is evicted down to that fifth, the rest is moved.
    """
    total = doc.nodes * NODE_GPUS
    queues = [
        _TOP,
        queue("queue-a", 1, total // 5, parent=_TOP.name),
        queue("queue-b", 2, total - total // 5, parent=_TOP.name),
    ]
    jobs = doc.nodes * NODE_GPUS // 2
    nodes = _nodes(doc.nodes)
    gangs = [
        gang(f"a{i:05}", "queue-a", 1, 1, nodes=[nodes[i // 4].name], age_s=7200.0 + jobs - i, running_s=3600.0)
        for i in range(jobs)
    ]
    gangs += [gang(f"b{i:04}", "queue-b", 4, NODE_GPUS, age_s=60.0 * (doc.gangs - i)) for i in range(doc.gangs)]
    return _snapshot(f"reclaim-{doc.nodes}-{doc.gangs}", nodes, queues, gangs)


def quiet_snapshot(doc: QuietDoc) -> Snapshot:
    """Whole-node jobs on some nodes, two queues within their quota, and a gang that fits."""
    total = doc.nodes * doc.node_gpus
    nodes = tuple(node(f"node{i:04}", doc.node_gpus) for i in range(doc.nodes))
    queues = [_TOP, *(queue(f"queue-{name}", 1 + i, total // 2, parent=_TOP.name) for i, name in enumerate("ab"))]
    running = round(doc.used * doc.nodes)
    gangs = [
        gang(f"r{i:04}", "queue-a", 1, doc.node_gpus, nodes=[nodes[i].name], age_s=3600.0 + i, running_s=3600.0)
        for i in range(running)
    ]
    gangs.append(gang("gang", "queue-b", doc.pods, doc.node_gpus, age_s=1.0))
    return _snapshot(f"quiet-{doc.nodes}", nodes, queues, gangs)


def _nodes(count: int) -> tuple[Node, ...]:
    return tuple(node(f"node{i:04}") for i in range(count))


def _snapshot(name: str, nodes: tuple[Node, ...], queues: list[Queue], gangs: list[Gang]) -> Snapshot:
    return Snapshot(NOW_S, ResourceSchema(), nodes, tuple(queues), tuple(gangs), name=name)
