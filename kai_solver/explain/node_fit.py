"""Pods against every node as a plan leaves it: how many nodes fail for which reason."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from kai_solver.domain import GpuRequest
from kai_solver.explain.explanation import NodeReason, PodFit
from kai_solver.reduction import GangShape, Problem, Shape
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS, format_amount

Lack = tuple[str, str]
"""One reason on one node: KAI's words, Kubernetes' words."""

_KAI = {CPU: "CPU cores", MEMORY: "memory", PODS: "Pods"}
_KUBERNETES = {CPU: "Insufficient cpu", MEMORY: "Insufficient memory", PODS: "Too many pods"}
LACK_GPU = ("node(s) didn't have enough resources: GPUs", "Insufficient nvidia.com/gpu")
CORDONED = ("node(s) were unschedulable", "node(s) were unschedulable")


def gang_fits(after: Problem, gang: GangShape) -> tuple[PodFit, ...]:
    """One entry for each kind of waiting pod of ``gang``.

    Parameters
    ----------
    after
        The problem of the cluster as the plan leaves it.
    """
    by_shape: dict[int, list[int]] = {}
    for pod in gang.pending:
        by_shape.setdefault(after.pod_shape[pod], []).append(pod)
    first = set(required_pods(gang))
    return tuple(_fit(after, shape, pods, len(first & set(pods))) for shape, pods in by_shape.items())


def required_pods(gang: GangShape) -> tuple[int, ...]:
    """The waiting pods that the gang needs to start; one of its surplus where it has what it needs."""
    missing = [pod for leaf in gang.leaves for pod in leaf.pending[: max(0, leaf.min_member - len(leaf.active))]]
    return tuple(missing) or gang.pending[:1]


def _fit(after: Problem, shape_index: int, pods: list[int], required: int) -> PodFit:
    shape = after.shapes.shapes[shape_index]
    counts: Counter[Lack] = Counter()
    room = fitting = 0
    nearest: tuple[int, str] | None = None
    for node in range(len(after.nodes)):
        refusal = _refusal(after, shape, node)
        lacks = [refusal] if refusal else _lacks(after, shape, node)
        counts.update(lacks)
        if not lacks:
            fitting += 1
            room += _room(after, shape, node)
        elif not refusal:
            short = _shortage(after, shape, node)
            nearest = min(nearest, short) if nearest else short
    reasons = tuple(NodeReason(n, kai, kubernetes) for (kai, kubernetes), n in sorted(counts.items(), key=_by_count))
    keys = tuple(after.pods[pod].key for pod in pods)
    words = request_words(after, shape)
    close = nearest[1] if nearest and room < max(required, 1) else ""
    return PodFit(keys, words, len(pods), required, room, len(after.nodes), fitting, reasons, close)


def _by_count(item: tuple[Lack, int]) -> tuple[int, Lack]:
    return -item[1], item[0]


def _refusal(after: Problem, shape: Shape, node: int) -> Lack | None:
    """Why the node's own properties do not admit the shape; None where they do."""
    if shape.constraints.blocked:
        return shape.constraints.blocked[0], shape.constraints.blocked[0]
    if not after.nodes[node].schedulable:
        return CORDONED
    why = after.predicates.reason(shape.constraints, node)
    return (why, why) if why else None


def _lacks(after: Problem, shape: Shape, node: int) -> list[Lack]:
    lacks = [_words(after, resource) for resource in _short_resources(after, shape, node)]
    return ([LACK_GPU] if _device_slots(after, shape.gpu, node) < 1 else []) + lacks


def _short_resources(after: Problem, shape: Shape, node: int) -> list[int]:
    free = after.capacity[:, node] - after.held[:, node]
    return [r for r, amount in enumerate(shape.request) if r != GPU and amount and amount > free[r]]


def _words(after: Problem, resource: int) -> Lack:
    name = after.snapshot.schema.names[resource]
    kai = f"node(s) didn't have enough resources: {_KAI.get(resource, name)}"
    return kai, _KUBERNETES.get(resource, f"Insufficient {name}")


def _room(after: Problem, shape: Shape, node: int) -> int:
    """Pods of the shape that the node can take."""
    free = after.capacity[:, node] - after.held[:, node]
    slots = [int(free[r] // amount) for r, amount in enumerate(shape.request) if r != GPU and amount]
    slots += [_device_slots(after, shape.gpu, node)] if shape.gpu.devices else []
    return max(0, min(slots, default=0))


def _device_slots(after: Problem, gpu: GpuRequest, node: int) -> int:
    """Pods that the node's devices can take; 1 for a pod without GPUs.

    Pods with shares of several devices each: as many as the devices' shares allow together, which is exact for one
    pod (distinct devices) and may be too many for more.
    """
    if not gpu.devices:
        return 1
    milli = gpu.milli_on(after.nodes[node].gpu_memory_mib)
    shares = np.maximum(after.device_free[node], 0) // milli
    if milli > MILLI or int((shares > 0).sum()) < gpu.devices:
        return 0
    return int(shares.sum()) // gpu.devices


def _shortage(after: Problem, shape: Shape, node: int) -> tuple[int, str]:
    """(missing GPU milli, words): how far the node is from taking one pod."""
    missing, parts = 0, []
    if _device_slots(after, shape.gpu, node) < 1:
        milli = shape.gpu.milli_on(after.nodes[node].gpu_memory_mib)
        have = int((after.device_free[node] >= milli).sum())
        missing = (shape.gpu.devices - have) * milli
        parts.append(f"has {have} of {shape.gpu.devices} devices with {milli / MILLI:g} free")
    free = after.capacity[:, node] - after.held[:, node]
    for resource in _short_resources(after, shape, node):
        name = after.snapshot.schema.names[resource]
        have_words = format_amount(name, max(0, int(free[resource])))
        parts.append(f"has {have_words} of {format_amount(name, shape.request[resource])}")
    return missing, f"{after.nodes[node].name} {' and '.join(parts)}"


def request_words(after: Problem, shape: Shape) -> str:
    """What one pod of the shape asks for."""
    gpu = shape.gpu
    parts = []
    if gpu.is_whole:
        parts.append(f"{gpu.devices} GPUs")
    elif gpu.memory_mib:
        parts.append(f"{gpu.memory_mib} MiB of GPU memory on {gpu.devices} device(s)")
    elif gpu.devices:
        parts.append(f"{gpu.milli / MILLI:g} of a GPU on {gpu.devices} device(s)")
    named = after.snapshot.schema.mapping(shape.request)
    parts += [format_amount(name, amount) for name, amount in named.items() if name != "pods"]
    return ", ".join(parts) or "nothing"


def kai_text(fits: Iterable[PodFit]) -> str:
    """KAI's message for pods without room (reference 1.13)."""
    parts = []
    for fit in fits:
        why = " ".join(f"{_counted(reason.nodes, reason.kai)}." for reason in fit.reasons)
        if 0 < fit.room < fit.required:
            parts.append(
                f"Resources were found for {fit.room} pods while {fit.required} are required for gang scheduling. "
                f"Additional pods cannot be scheduled due to: {why}"
            )
        elif fit.room < fit.required:
            parts.append(f"no nodes with enough resources were found: {why}")
    return "\n".join(parts)


def kubernetes_text(fits: Iterable[PodFit]) -> str:
    """The message as kube-scheduler writes it."""
    texts = []
    for fit in fits:
        if fit.room < fit.required:
            why = ", ".join(f"{reason.nodes} {reason.kubernetes}" for reason in fit.reasons)
            texts.append(f"{fit.fitting_nodes}/{fit.nodes} nodes are available: {why}.")
    return "\n".join(texts)


def _counted(nodes: int, text: str) -> str:
    return f"{nodes} {text}" if text.startswith("node(s)") else f"{nodes} node(s): {text}"
