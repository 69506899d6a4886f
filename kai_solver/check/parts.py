"""What a pod takes of a GPU, and what its queue pays for it, by the checker's own count.

Devices are counted in MiB, as KAI does (docs/kai-behaviour.md#fractions), and in thousandths of these, so that
fractions are whole numbers: a device of M MiB has 1000 M, a fraction of f thousandths takes f M, a request of m MiB
takes 1000 m. Queues pay for a request by memory in hundredths of a GPU, rounded up. A device without stated memory has
100 MiB.
"""

from kai_solver.domain import GpuRequest, Node
from kai_solver.units import MILLI

MOST_DEVICES = 1024
"""More devices than any node has."""


def devices_of(request: GpuRequest) -> int:
    """Devices that ``request`` asks for, no more than are ever of interest: an annotation may name any number."""
    return min(request.devices, MOST_DEVICES)


def memory_of(node: Node | None) -> int:
    """MiB of one device of ``node``."""
    return (node.gpu_memory_mib if node is not None else 0) or 100


def device_of(node: Node) -> int:
    """A whole device of ``node``, thousandths of MiB."""
    return MILLI * memory_of(node)


def share_on(node: Node, request: GpuRequest) -> int:
    """What ``request`` takes of each of its devices on ``node``, thousandths of MiB."""
    return request.memory_mib * MILLI if request.memory_mib else request.milli * memory_of(node)


def charged_on(node: Node | None, request: GpuRequest) -> int:
    """What a queue pays for each of its devices on ``node``, thousandths of a GPU."""
    if not request.memory_mib:
        return request.milli
    memory = memory_of(node)
    return (100 * request.memory_mib + memory - 1) // memory * (MILLI // 100)
