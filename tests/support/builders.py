"""Nodes, pods, gangs, queues and clusters in a few words, for all tests of what is decided.

CPU in milli-cores, memory in bytes, GPUs in whole devices. Fields beyond those named go to the domain's objects as they
are; a field that is named by a test replaces what a builder would fill in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kai_solver.domain import (
    Constraints,
    Gang,
    GpuRequest,
    Node,
    Pod,
    PodStatus,
    Queue,
    Requirement,
    Snapshot,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
)
from kai_solver.units import MILLI, UNLIMITED, ResourceSchema

GIB = 2**30
NOW_S = 1000.0
FREE = (UNLIMITED, UNLIMITED, UNLIMITED)
RACK = TopologyConstraint("dc", "rack")
RACKS = Topology("dc", (TopologyLevel("rack"),))
"""Nodes with the label ``rack``; `RACK` keeps a gang in one."""


def a_node(
    name: str,
    gpus: int = 4,
    *,
    cpu: int = 64_000,
    memory: int = 512 * GIB,
    slots: int = 110,
    gpu_memory_mib: int = 80_000,
    rack: str = "",
    **more: Any,
) -> Node:
    """A node; ``slots`` are pods that fit."""
    if rack:
        more["labels"] = {"rack": rack, **more.get("labels", {})}
    allocatable = (cpu, memory, gpus * MILLI, slots)
    return Node(name, allocatable, **{"gpus": gpus, "gpu_memory_mib": gpu_memory_mib, **more})


def a_pod(
    name: str,
    gpus: int | GpuRequest = 1,
    on: str = "",
    *,
    milli: int = MILLI,
    cpu: int = 100,
    memory: int = GIB,
    order: int = 0,
    **more: Any,
) -> Pod:
    """A pod; it runs where a node ``on`` is named. ``milli``: of each of its GPUs."""
    gpu = gpus if isinstance(gpus, GpuRequest) else GpuRequest(gpus, milli)
    filled: dict[str, Any] = {
        "gpu": gpu,
        "status": PodStatus.RUNNING if on else PodStatus.PENDING,
        "node": on,
        "order": (0, float(order), name),
    }
    return Pod("ns", name, (cpu, memory, 0, 1), **(filled | more))


def a_gang(
    name: str,
    *parts: Pod | int | GpuRequest,
    pods: int = 1,
    gpus: int | GpuRequest = 1,
    on: str | Sequence[str] = "",
    queue: str = "q",
    need: int | None = None,
    root: SubGroup | None = None,
    each: Mapping[str, Any] | None = None,
    **more: Any,
) -> Gang:
    """A gang of the pods ``parts``, or of a pod for each number of GPUs there; without any, of equal ``pods``.

    Parameters
    ----------
    on
        Nodes on which they run, in order (``"n0 n0 n1"``); those beyond wait. One name is for all.
    need
        How many must run; all where None.
    root
        The tree of podsets; pods without one go to its leaves in order, the rest to the last one.
    each
        Fields of every pod, as of `pod`.
    """
    homes = on.split() if isinstance(on, str) else list(on)
    stated = parts or (gpus,) * pods
    if isinstance(on, str) and len(homes) == 1:
        homes *= len(stated)
    homes += [""] * (len(stated) - len(homes))
    tree = root or flat_gang(len(stated) if need is None else need)
    leaves = [leaf.name for leaf in tree.podsets()]
    made = tuple(
        part
        if isinstance(part, Pod)
        else a_pod(
            f"{name}-{i}",
            part,
            homes[i],
            **{"order": i, "podset": leaves[min(i, len(leaves) - 1)], **(each or {})},
        )
        for i, part in enumerate(stated)
    )
    runs = any(each.status.is_active and each.node for each in made)
    return Gang("ns", name, queue, tree, made, **{"last_start_s": 0.0 if runs else None, **more})


def a_queue(
    name: str,
    quota: float = UNLIMITED,
    limit: float = UNLIMITED,
    *,
    parent: str = "",
    weight: float | None = None,
    **more: Any,
) -> Queue:
    """A queue; quota, limit and weight are of GPUs, of all else there is no end."""
    if weight is not None:
        more["weight"] = (1.0, 1.0, weight)
    return Queue(name, parent, **{"quota": _of_gpus(quota), "limit": _of_gpus(limit), **more})


def _of_gpus(gpus: float) -> tuple[int, int, int]:
    return (UNLIMITED, UNLIMITED, UNLIMITED if gpus == UNLIMITED else round(gpus * MILLI))


def a_cluster(
    nodes: Sequence[Node], gangs: Sequence[Gang] = (), queues: Sequence[Queue] | None = None, **more: Any
) -> Snapshot:
    """A cluster; without ``queues``, the gangs' queues have no quota and no limit. Nodes with racks have a topology."""
    if queues is None:
        queues = [a_queue(name) for name in dict.fromkeys(gang.queue for gang in gangs)] or [a_queue("q")]
    filled: dict[str, Any] = {"now_s": NOW_S, "schema": ResourceSchema()}
    if any("rack" in node.labels for node in nodes):
        filled["topologies"] = (RACKS,)
    stated = {"nodes": tuple(nodes), "queues": tuple(queues), "gangs": tuple(gangs)}
    return Snapshot(**(filled | stated | more))


def labelled(gang: Gang, **labels: str) -> Gang:
    """The gang with labels on each of its pods."""
    return replace(gang, pods=tuple(replace(pod, labels={**pod.labels, **labels}) for pod in gang.pods))


def only_on(label: str, *values: str) -> Constraints:
    """Node affinity: the label must have one of these values."""
    return Constraints(node_terms=(((Requirement(label, "In", values),),),))


def told_apart(snapshot: Snapshot) -> Snapshot:
    """The same cluster in which no two waiting gangs are identical: each allows all nodes in words of its own."""
    nodes = [replace(node, labels={**node.labels, "any": "yes"}) for node in snapshot.nodes]

    def apart(gang: Gang, word: str) -> Gang:
        if any(pod.node for pod in gang.pods):
            return gang
        return replace(gang, pods=tuple(replace(pod, constraints=only_on("any", "yes", word)) for pod in gang.pods))

    return replace(snapshot, nodes=tuple(nodes), gangs=tuple(apart(gang, gang.name) for gang in snapshot.gangs))
