"""What the pods of a queue cost it."""

from collections.abc import Iterable

from kai_solver.domain import Pod
from kai_solver.units import CPU, MEMORY

BEYOND = 1 << 50
"""More of anything than a node has (1 PiB, 10^12 cores): larger requests are cut to it: sums stay in 64 bits."""

Charge = tuple[int, int, int]
"""What a queue pays: cpu milli, memory bytes, GPU milli."""


def charge(pod: Pod, gpu_memory_mib: int) -> Charge:
    """What the pod's queue pays on a node whose devices have ``gpu_memory_mib``.

    Source: docs/kai-behaviour.md#fair-share, #fractions.
    """
    gpu = pod.gpu
    milli = gpu.devices * gpu.milli_on(gpu_memory_mib) if gpu.devices else 0
    return (min(pod.request[CPU], BEYOND), min(pod.request[MEMORY], BEYOND), milli + pod.quota_gpu_milli)


def sum_of(charges: Iterable[Charge]) -> Charge:
    """What all together cost."""
    cpu = memory = gpu = 0
    for one in charges:
        cpu, memory, gpu = cpu + one[0], memory + one[1], gpu + one[2]
    return (cpu, memory, gpu)
