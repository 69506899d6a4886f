"""Requests that the largest node of the pool could not serve even if it were empty (KAI: ``MaxNodePoolResources``)."""

from kai_solver.problem import Problem, Shape
from kai_solver.reasons.node_reasons import is_mig
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS, humanized
from kai_solver.units.go_text import CORES, GB

NODE_POOL = "default"
"""KAI's name for a node pool that has none."""


def beyond_largest(problem: Problem, shape: Shape, pod: str) -> str:
    """KAI's sentence where no node has as much of one resource as one pod asks for; empty where one has.

    ``pod`` is the name to put in. Requests by GPU memory are not looked at here, as in KAI.
    """
    found = _first_beyond(problem, shape)
    if found is None:
        return ""
    name, most, unit = found
    head = f"The pod {pod} requires {request_words(problem, shape)}. "
    if most == "0":
        return f"{head}No node in the {NODE_POOL} node-pool has {name} resources"
    return (
        f"{head}Max {name} resources available in a single node in the {NODE_POOL} node-pool is topped at {most}{unit}"
    )


def short_of_largest(problem: Problem, shape: Shape) -> tuple[str, int]:
    """The first resource of which no node has enough for one pod, and how much more one would have to have."""
    names, gpu = problem.snapshot.schema.names, shape.gpu
    if gpu.devices and not gpu.memory_mib:
        short = gpu.devices * gpu.milli - int(problem.gpus.max(initial=0)) * MILLI
        if short > 0:
            return names[GPU], short
    for resource, amount in enumerate(shape.request):
        short = amount - int(problem.capacity[resource].max(initial=0))
        if resource != GPU and short > 0:
            return names[resource], short
    return "", 0


def not_met(pod: str, predicate: str, text: str) -> str:
    """KAI's text for a condition that is asked once for a pod, before any node."""
    return f"Scheduling conditions were not met for pod {pod}:\n{predicate}: {text}.\n"


def _first_beyond(problem: Problem, shape: Shape) -> tuple[str, str, str] | None:
    """(name, most that a node has, its unit) of the first resource of which no node has enough."""
    gpu = shape.gpu
    most = int(problem.gpus.max(initial=0)) * MILLI
    if gpu.devices and not gpu.memory_mib and gpu.devices * gpu.milli > most:
        return "GPU", humanized(most, MILLI), ""
    for resource, (name, scale, unit) in _NAMED.items():
        have = int(problem.capacity[resource].max(initial=0))
        if shape.request[resource] > have:
            return name, humanized(have, scale), unit
    for resource, amount in enumerate(shape.request):
        if resource > PODS and amount > int(problem.capacity[resource].max(initial=0)):
            return problem.snapshot.schema.names[resource], "0", ""
    return None


_NAMED = {CPU: ("CPU", CORES, " cores"), MEMORY: ("memory", GB, " GB")}


def request_words(problem: Problem, shape: Shape) -> str:
    """What a pod asks for as KAI prints it: ``GPU: 1, CPU: 1 (cores), memory: 1 (GB), pods: 1``."""
    gpu = shape.gpu
    names = problem.snapshot.schema.names
    extended = {names[r]: amount for r, amount in enumerate(shape.request) if amount and r > PODS}
    slices = sum(_slices(name) * amount for name, amount in extended.items())
    milli = gpu.devices * gpu.milli + slices * MILLI
    words = [amounts_text((shape.request[CPU], shape.request[MEMORY], milli)), f"pods: {shape.request[PODS]}"]
    words += [f"{'mig ' if is_mig(name) else ''}{name}: {amount}" for name, amount in extended.items()]
    return ", ".join(words)


def _slices(name: str) -> int:
    """GPUs that KAI counts for one instance of a MIG profile."""
    size = name.partition("mig-")[2].partition("g.")[0]
    return int(size) if is_mig(name) and size.isdecimal() else 0


def amounts_text(amounts: tuple[int, int, int]) -> str:
    """(cpu milli, memory bytes, gpu milli) as KAI prints requirements: ``GPU: 1, CPU: 2 (cores), memory: 3 (GB)``."""
    cpu, memory, gpu = amounts
    return f"GPU: {humanized(gpu, MILLI)}, CPU: {humanized(cpu, CORES)} (cores), memory: {humanized(memory, GB)} (GB)"
