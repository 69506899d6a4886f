"""What can never run, told before the replay: else empty tables look like a fault of the policies."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kai_solver.domain import Node, Notice, Pod
from kai_solver.lab.simulate.scenario import Job
from kai_solver.units import CPU, GPU, MEMORY, MILLI, QUEUE_RESOURCES, format_amount

RESOURCES = (GPU, CPU, MEMORY)


def hopeless(nodes: Sequence[Node], jobs: Sequence[Job], duration_s: float | None) -> Iterator[Notice]:
    """Notices about a scenario in which nothing, or not everything, can happen."""
    if not jobs:
        yield Notice("warning", "workloads", "no job arrives: the tables have no jobs")
    elif not nodes:
        yield Notice("warning", "cluster", "has no nodes: no job can run")
    else:
        yield from _too_large(nodes, jobs)
    late = sum(job.arrival_s >= duration_s for job in jobs) if duration_s is not None else 0
    if late:
        yield Notice("warning", "workloads", f"{late} of {len(jobs)} jobs arrive at the end or later, and never run")


def _too_large(nodes: Sequence[Node], jobs: Sequence[Job]) -> Iterator[Notice]:
    largest = [max(node.allocatable[resource] for node in nodes) for resource in range(len(QUEUE_RESOURCES))]
    total = [sum(node.allocatable[resource] for node in nodes) for resource in range(len(QUEUE_RESOURCES))]
    of_workload = Counter(job.workload for job in jobs)
    refused: dict[str, Counter[str]] = {}
    for job in jobs:
        reason = _reason(job, largest, total)
        if reason:
            refused.setdefault(job.workload, Counter())[reason] += 1
    for workload, reasons in refused.items():
        reason, _ = reasons.most_common(1)[0]
        count = f"{reasons.total()} of {of_workload[workload]} jobs can never run"
        yield Notice("warning", f"workload {workload}", f"{count}: {reason}")


def _reason(job: Job, largest: Sequence[int], total: Sequence[int]) -> str:
    """Why not even the smallest pods that are its minimum can run on empty nodes: too large a pod, or too many."""
    root, pods = job.gang.root, job.gang.pods
    least = 1 if root.min_subgroups is not None else sum(podset.min_member for podset in root.podsets())
    for resource in RESOURCES:
        asked = sorted(_asked(pod, resource) for pod in pods)[: max(1, least)]
        if asked and asked[-1] > largest[resource]:
            need, have = _said(resource, asked[-1]), _said(resource, largest[resource])
            return f"a pod asks for {need}, the largest node has {have}"
        if sum(asked) > total[resource]:
            need, have = _said(resource, sum(asked)), _said(resource, total[resource])
            return f"a gang asks for {need} at once, the cluster has {have}"
    return ""


def _asked(pod: Pod, resource: int) -> int:
    """Amount in base units; a request by GPU memory counts nothing, as devices differ."""
    if resource != GPU:
        return pod.request[resource]
    return 0 if pod.gpu.memory_mib else pod.gpu.devices * (pod.gpu.milli if pod.gpu.is_shared else MILLI)


def _said(resource: int, amount: int) -> str:
    return format_amount(QUEUE_RESOURCES[resource], amount)
