"""Clusters and plans in a few words, for the tests of the checker's rules."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kai_solver.check import check_plan
from kai_solver.domain import (
    Bind,
    Device,
    Eviction,
    Gang,
    GpuRequest,
    Node,
    Plan,
    Pod,
    PodStatus,
    Queue,
    Snapshot,
    flat_gang,
)
from kai_solver.units import ResourceSchema

GIB = 2**30
FREE = (-1, -1, -1)


def node(name: str, gpus: int = 2, **fields: Any) -> Node:
    allocatable = (64_000, 512 * GIB, gpus * 1000, fields.pop("slots", 110))
    return Node(name, allocatable, gpus=gpus, gpu_memory_mib=80_000, **fields)


def gang(name: str, size: int = 1, *, on: Sequence[str] = (), gpus: int = 1, queue: str = "a", **fields: Any) -> Gang:
    """``size`` pods of ``gpus`` whole GPUs; the first run on the nodes ``on``, on devices nobody knows."""
    root = fields.pop("root", None) or flat_gang(fields.pop("least", size))
    extra = fields.pop("pod", {})
    pods = [
        Pod("ns", f"{name}-{i}", (1000, GIB, 0, 1), GpuRequest(gpus), order=(0, float(i), ""), **extra)
        for i in range(size)
    ]
    pods = [replace(pod, status=PodStatus.RUNNING, node=on[i]) if i < len(on) else pod for i, pod in enumerate(pods)]
    return Gang("ns", name, queue, root, tuple(pods), **fields)


def snapshot(nodes: Sequence[Node], gangs: Sequence[Gang], **fields: Any) -> Snapshot:
    """Queues, unless given: ``a`` and ``b``, both free."""
    queues = fields.pop("queues", (Queue("a", quota=FREE), Queue("b", quota=FREE)))
    return Snapshot(1000.0, ResourceSchema(), tuple(nodes), tuple(queues), tuple(gangs), **fields)


def bind(name: str, index: int, target: str, *devices: int, **fields: Any) -> Bind:
    given = tuple(Device(device, 1000) for device in devices)
    return Bind(f"ns/{name}-{index}", f"ns/{name}", target, given, **fields)


def evict(name: str, index: int, source: str, *helps: str, reason: Any = "preempt") -> Eviction:
    return Eviction(f"ns/{name}-{index}", f"ns/{name}", source, reason, tuple(f"ns/{one}" for one in helps))


def plan(*binds: Bind, **fields: Any) -> Plan:
    """Admits the gangs of ``binds``, unless it says whom."""
    admitted = tuple(dict.fromkeys((entry.gang, entry.action) for entry in binds))
    return replace(Plan(binds=binds, admitted=admitted), **fields)


def broken(snapshot: Snapshot, plan: Plan) -> list[str]:
    """The rules that the plan breaks."""
    return [violation.rule for violation in check_plan(snapshot, plan)]
