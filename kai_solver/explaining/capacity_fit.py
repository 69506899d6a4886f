"""One pod against the capacity of one node."""

import numpy as np

from kai_solver.domain import GpuRequest
from kai_solver.problem import Problem, Shape
from kai_solver.problem.rules import RuleFacts
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS, format_amount
from kai_solver.units.shares import WHOLE

Lack = tuple[str, str]
"""One reason on one node: KAI's words, Kubernetes' words."""

_KAI = {CPU: "CPU cores", MEMORY: "memory", PODS: "Pods"}
_KUBERNETES = {CPU: "Insufficient cpu", MEMORY: "Insufficient memory", PODS: "Too many pods"}
_KAI_GPU = "node(s) didn't have enough resources: GPUs"


def lacks(after: Problem, shape: Shape, node: int) -> list[Lack]:
    """What the node has too little of for one pod of the shape."""
    short = _short_resources(after, shape, node)
    if _device_slots(after, shape.gpu, node) >= 1:
        if short:
            return [_words(after, resource) for resource in short]
        refusing = _refusing(after, shape, node)
        return [refusing.lack(after, shape, node)] if refusing is not None else []
    gpus = [r for r in short if after.snapshot.schema.names[r] in after.policy.gpu_resources]
    lack_gpu = _KAI_GPU, f"Insufficient {_gpu_name(after, shape)}"
    return [lack_gpu, *(_words(after, resource) for resource in short if resource not in gpus)]


def _refusing(after: Problem, shape: Shape, node: int) -> RuleFacts | None:
    """The first optional rule by which the node has no room for a pod; None where there is none."""
    return next((rule for rule in after.rules if not rule.room(after, shape, node, 1)), None)


def _gpu_name(after: Problem, shape: Shape) -> str:
    """The name under which the shape asks for GPUs, where the cluster has several."""
    asked = after.snapshot.schema.mapping(shape.request)
    return next((name for name in after.policy.gpu_resources if name in asked), after.policy.gpu_resources[0])


def _short_resources(after: Problem, shape: Shape, node: int) -> list[int]:
    free = after.capacity[:, node] - after.held[:, node]
    return [r for r, amount in enumerate(shape.request) if r != GPU and amount and amount > free[r]]


def _words(after: Problem, resource: int) -> Lack:
    name = after.snapshot.schema.names[resource]
    kai = f"node(s) didn't have enough resources: {_KAI.get(resource, name)}"
    return kai, _KUBERNETES.get(resource, f"Insufficient {name}")


def room(after: Problem, shape: Shape, node: int) -> int:
    """Pods of the shape that the node can take."""
    free = after.capacity[:, node] - after.held[:, node]
    slots = [int(free[r] // amount) for r, amount in enumerate(shape.request) if r != GPU and amount]
    slots += [_device_slots(after, shape.gpu, node)] if shape.gpu.devices else []
    most = max(0, min(slots, default=0))
    for rule in after.rules:
        most = rule.room(after, shape, node, most)
    return most


def room_when_empty(after: Problem, shape: Shape, node: int) -> int:
    """Pods of the shape that the node could take if nothing ran on it, for its capacity."""
    slots = [int(after.capacity[r, node] // amount) for r, amount in enumerate(shape.request) if r != GPU and amount]
    if shape.gpu.devices:
        parts = max(shape.gpu.parts_on(after.nodes[node].gpu_memory_mib), 1)
        gpus = int(after.gpus[node])
        fits = parts <= WHOLE and gpus >= shape.gpu.devices
        slots.append(gpus * (WHOLE // parts) // shape.gpu.devices if fits else 0)
    return max(0, min(slots, default=0))


def _device_slots(after: Problem, gpu: GpuRequest, node: int) -> int:
    """Pods that the node's devices can take; 1 for a pod without GPUs.

    Pods with shares of several devices each: as many as the devices' shares allow together, which is exact for one
    pod (distinct devices) and may be too many for more.
    """
    if not gpu.devices:
        return 1
    parts = max(gpu.parts_on(after.nodes[node].gpu_memory_mib), 1)
    shares = np.maximum(after.device_free[node], 0) // parts
    if parts > WHOLE or int((shares > 0).sum()) < gpu.devices:
        return 0
    return int(shares.sum()) // gpu.devices


def shortage(after: Problem, shape: Shape, node: int) -> tuple[int, str]:
    """(missing GPU milli, words): how far the node is from taking one pod."""
    missing, parts = 0, []
    if _device_slots(after, shape.gpu, node) < 1:
        milli = shape.gpu.milli_on(after.nodes[node].gpu_memory_mib)
        have = int((after.device_free[node] >= shape.gpu.parts_on(after.nodes[node].gpu_memory_mib)).sum())
        missing = (shape.gpu.devices - have) * milli
        free_share = "free" if milli >= MILLI else f"with {milli / MILLI:g} free"
        parts.append(f"has {have} of {shape.gpu.devices} GPUs {free_share}")
    free = after.capacity[:, node] - after.held[:, node]
    for resource in _short_resources(after, shape, node):
        name = after.snapshot.schema.names[resource]
        have_words = format_amount(name, max(0, int(free[resource])))
        parts.append(f"has {have_words} of {format_amount(name, shape.request[resource])}")
    if not parts:
        refusing = _refusing(after, shape, node)
        parts.append(refusing.shortage(after, shape, node) if refusing is not None else "")
    return missing, f"{after.nodes[node].name} {' and '.join(parts).replace(' and has ', ' and ')}"


def request_words(after: Problem, shape: Shape) -> str:
    """What one pod of the shape asks for."""
    gpu = shape.gpu
    parts = []
    text = next(filter(None, (rule.request_text(shape) for rule in after.rules)), "")
    if text:
        parts.append(text)
    elif gpu.is_whole:
        parts.append(format_amount("gpu", gpu.devices * MILLI))
    elif gpu.memory_mib:
        parts.append(f"{gpu.memory_mib} MiB of GPU memory on {gpu.devices} device(s)")
    elif gpu.devices:
        parts.append(f"{gpu.milli / MILLI:g} of a GPU on {gpu.devices} device(s)")
    named = after.snapshot.schema.mapping(shape.request)
    parts += [format_amount(name, amount) for name, amount in named.items() if name != "pods"]
    return ", ".join(parts) or "any size"
