"""Judges the end of a run with its own eyes: from the trace's nodes and requests, pod by pod, in plain arithmetic."""

from collections import defaultdict

from kai_solver.errors import InternalError
from kai_solver.lab.experiments.record import Record
from kai_solver.lab.experiments.trace import Shape, Trace
from kai_solver.units import MILLI


def verify(trace: Trace, record: Record) -> None:
    """Check that every pod that runs has room where it is.

    Raises
    ------
    InternalError
        A node or a GPU is over its capacity, or a pod is where it may not be.
    """
    cpu: dict[int, int] = defaultdict(int)
    memory: dict[int, int] = defaultdict(int)
    gpu: dict[tuple[int, int], int] = defaultdict(int)
    for event, (node, devices) in enumerate(zip(record.node.tolist(), record.devices, strict=True)):
        if node < 0:
            continue
        shape = trace.shapes[int(trace.arrivals[event])]
        _check_place(trace, event, shape, node, devices)
        cpu[node] += shape.cpu_milli
        memory[node] += shape.memory_mib
        for device in devices:
            gpu[node, device] += shape.gpu_milli
    over = [f"CPU of node {node}" for node, used in cpu.items() if used > trace.cpu[node]]
    over += [f"memory of node {node}" for node, used in memory.items() if used > trace.memory[node]]
    over += [f"GPU {device} of node {node}" for (node, device), used in gpu.items() if used > MILLI]
    if over:
        raise InternalError(f"more is placed than fits: {', '.join(over[:3])} ({len(over)} in all)")


def _check_place(trace: Trace, event: int, shape: Shape, node: int, devices: tuple[int, ...]) -> None:
    if len(devices) != shape.gpus or len(set(devices)) != len(devices):
        raise InternalError(f"arrival {event} asks for {shape.gpus} GPUs and has {devices}")
    if any(not 0 <= device < trace.gpus[node] for device in devices):
        raise InternalError(f"arrival {event} has GPUs {devices} of a node with {trace.gpus[node]}")
    if shape.models and trace.models[trace.model[node]] not in shape.models:
        raise InternalError(f"arrival {event} may not run on GPU model {trace.models[trace.model[node]]}")
