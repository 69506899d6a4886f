"""What of a pod the kubelet's Topology Manager aligns: its units, by the scope of the node.

Source: docs/kai-behaviour.md#numa.

Devices are aligned for every pod; CPU, memory and huge pages only for pods of QoS class Guaranteed, and of CPU only
what is exclusive: a whole number of cores by one container.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kai_solver.domain import Container, Pod
from kai_solver.problem import Shape
from kai_solver.problem.charges import BEYOND
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS, ResourceSchema, Vector

NAME = "numa"
"""The rule, and its family of rows in the model."""

_HUGE_PAGES = "hugepages-"


@dataclass(frozen=True, slots=True)
class Alignment:
    """Requests that each need zones of their own.

    Attributes
    ----------
    pod
        Scope ``pod``: all of it is one request.
    containers
        Scope ``container``: each of those that run together.
    init
        Scope ``container``: each of those that have ended before; they only have to fit.
    """

    pod: Vector
    containers: tuple[Vector, ...]
    init: tuple[Vector, ...] = ()

    def units(self, *, by_container: bool) -> tuple[Vector, ...]:
        """Requests that are held together."""
        return self.containers if by_container else (self.pod,)


def alignment_of(pod: Pod, schema: ResourceSchema) -> Alignment | None:
    """What of ``pod`` is aligned; None where nothing can be."""
    kept = _kept(pod, schema)
    containers = pod.containers or (Container(_whole_request(pod)),)
    parts = [(c.role, _exclusive(c.request, kept)) for c in containers]
    if not any(any(part) for _, part in parts):
        return None
    together = tuple(part for role, part in parts if role != "init" and any(part))
    before = tuple(part for role, part in parts if role == "init" and any(part))
    return Alignment(_effective(parts, schema.size), together, before)


def alignment_in(shape: Shape) -> Alignment | None:
    """What of the pods of ``shape`` is aligned."""
    found = shape.trait(NAME)
    return found if isinstance(found, Alignment) else None


def _whole_request(pod: Pod) -> Vector:
    milli = pod.gpu.devices * MILLI if pod.gpu.is_whole else 0
    return (*pod.request[:GPU], milli, *pod.request[GPU + 1 :])


def _kept(pod: Pod, schema: ResourceSchema) -> tuple[bool, ...]:
    """Resources that the kubelet aligns for a pod of this class. Shares of a GPU are no device of the kubelet's."""
    gated = {CPU, MEMORY, *(r for r, name in enumerate(schema.names) if name.startswith(_HUGE_PAGES))}
    return tuple(r != PODS and (pod.guaranteed or r not in gated) for r in range(schema.size))


def _exclusive(request: Vector, kept: tuple[bool, ...]) -> Vector:
    """What of a container's request is aligned; of resources that claims add, at the end, it has none."""
    cut = [min(amount, BEYOND) if keep else 0 for amount, keep in zip(request, kept, strict=False)]
    cut += [0] * (len(kept) - len(request))
    if cut[CPU] % MILLI:
        cut[CPU] = 0
    return tuple(cut)


def _effective(parts: Sequence[tuple[str, Vector]], size: int) -> Vector:
    """A pod's request as Kubernetes reckons it: what runs together, or what starts before, whichever is more."""
    running, sidecars, peak = [0] * size, [0] * size, [0] * size
    for role, part in parts:
        if role == "app":
            running = [a + b for a, b in zip(running, part, strict=True)]
        else:
            beside = [a + b for a, b in zip(sidecars, part, strict=True)]
            sidecars = beside if role == "sidecar" else sidecars
            peak = [max(a, b) for a, b in zip(peak, beside, strict=True)]
    return tuple(max(a + b, c) for a, b, c in zip(running, sidecars, peak, strict=True))
