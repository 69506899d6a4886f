"""Amounts that cases assert: what was requested, what was granted, what a node has left."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from kai_solver.domain import Node, Pod, PodStatus
from kai_solver.lab.conformance.casefile import Expectation
from kai_solver.lab.conformance.outcome import Outcome
from kai_solver.units import CPU, MEMORY, MILLI

TOLERANCE = 1e-3
"""Of GPU sums: requests are kept in thousandths."""

_STAYS = frozenset({"Binding", "Bound", "Running", "StuckInReleasing"})


def request_differences(
    name: str, pods: tuple[Pod, ...], expected: Expectation, outcome: Outcome, *, claims: bool
) -> Iterator[str]:
    """What the pods ask for and what they were granted, against a case; sums over ``pods``.

    ``claims``: the job asks for GPUs by resource claims, which tables do not count in ``gpus_required``.
    """
    asked = sum(gpus_required(pod) for pod in pods)
    if expected.gpus_required is not None and not claims and abs(asked - expected.gpus_required) > TOLERANCE:
        yield f"{name} requests {asked:g} GPUs, expected {expected.gpus_required:g}"
    nodes = {node.name: node for node in outcome.before.nodes}
    granted = sum(_gpus_granted(pod, nodes.get(outcome.states[pod.key].node)) for pod in pods)
    if expected.gpus_accepted and abs(granted - expected.gpus_accepted) > TOLERANCE:
        yield f"{name} was granted {granted:g} GPUs, expected {expected.gpus_accepted:g}"
    cpu, memory = sum(pod.request[CPU] for pod in pods), sum(pod.request[MEMORY] for pod in pods)
    if expected.cpu_milli_required and cpu != expected.cpu_milli_required:
        yield f"{name} requests {cpu} CPU milli, expected {expected.cpu_milli_required:g}"
    if expected.memory_required and memory != expected.memory_required:
        yield f"{name} requests {memory} bytes, expected {expected.memory_required:g}"


def gpus_required(pod: Pod) -> float:
    """GPUs that a pod asks for by number; a request by GPU memory counts nothing."""
    return 0.0 if pod.gpu.memory_mib else pod.gpu.devices * pod.gpu.milli / MILLI


def _gpus_granted(pod: Pod, node: Node | None) -> float:
    if node is None or not pod.gpu.devices:
        return 0.0
    return pod.gpu.devices * pod.gpu.milli_on(node.gpu_memory_mib) / MILLI


def gpus_left(outcome: Outcome, pods: Mapping[str, Pod], node: str) -> tuple[int, int]:
    """(idle, releasing) devices of ``node`` in the outcome.

    As KAI counts: a device is idle when no pod holds it, and releasing when all pods that hold it leave and it is
    promised to none.
    """
    count = next(n.gpus for n in outcome.before.nodes if n.name == node)
    uses: dict[int, set[str]] = defaultdict(set)
    for key, state in outcome.states.items():
        pod = pods[key]
        if state.node == node:
            for device in state.devices:
                uses[device].add(_use(state.status))
        if pod.node == node and state.node != node and outcome.single_session and pod.status.holds_resources:
            for device in pod.devices:
                uses[device].add("leaves")
    for pod in outcome.before.foreign:
        for device in pod.devices if pod.node == node else ():
            uses[device].add("stays")
    return count - len(uses), sum(use == {"leaves"} for use in uses.values())


def _use(status: str) -> str:
    if status == PodStatus.RELEASING.value:
        return "leaves"
    return "stays" if status in _STAYS else "promised"
