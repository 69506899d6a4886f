"""Hard caps of queues: limits for all work, quotas for non-preemptible work (docs/kai-behaviour.md#limits, #quota)."""

from collections.abc import Iterable, Sequence

from kai_solver.domain import Blocker
from kai_solver.fairness.order import NOTHING, Amounts, Table
from kai_solver.fairness.tree import QueueTree, Triple
from kai_solver.units import (
    CORES,
    CPU,
    GB,
    GPU,
    MEMORY,
    MILLI,
    QUEUE_RESOURCES,
    UNLIMITED,
    format_amount,
    go_float,
    humanized,
)


def over_limit(tree: QueueTree, allocated: Table, leaf: int, request: Amounts) -> Blocker | None:
    """What keeps ``request`` from ``leaf`` by a limit of it or an ancestor; None where all hold.

    Only requested resources count: a queue already over its CPU limit may still take GPUs.
    """
    return _excess("queue-limit", tree, tree.limits, allocated, leaf, request)


def over_quota(tree: QueueTree, allocated_non_preemptible: Table, leaf: int, request: Amounts) -> Blocker | None:
    """What keeps a non-preemptible ``request`` from ``leaf`` by a quota of it or an ancestor; None where all hold."""
    return _excess("queue-quota", tree, tree.quotas, allocated_non_preemptible, leaf, request)


def _excess(
    kind: str, tree: QueueTree, caps: Sequence[Triple], used: Table, leaf: int, request: Amounts
) -> Blocker | None:
    found = _first_excess(tree, caps, used, leaf, request)
    if found is None:
        return None
    queue, resource = found
    return cap_blocker(kind, tree.title(queue), resource, request, caps[queue], used[queue])


def capping_queue(tree: QueueTree, caps: Sequence[Triple], used: Table, leaf: int, request: Amounts) -> int | None:
    """The first queue from ``leaf`` up whose cap ``request`` would exceed; None where none is exceeded."""
    found = _first_excess(tree, caps, used, leaf, request)
    return None if found is None else found[0]


def exceeded(
    tree: QueueTree,
    caps: Sequence[Triple],
    used: Table,
    leaf: int,
    resources: Iterable[int] = (CPU, MEMORY, GPU),
) -> int | None:
    """The first queue from ``leaf`` up that holds more than its cap of one of ``resources``; None where none does."""
    asked = tuple(resources)
    return next((queue for queue in tree.path[leaf] if first_over(caps[queue], used[queue], NOTHING, asked) >= 0), None)


def first_over(caps: Amounts, held: Amounts, request: Amounts, resources: Iterable[int]) -> int:
    """The first of ``resources`` in which ``held`` and ``request`` together exceed ``caps``; -1 where none does.

    A cap of -1 is unlimited and never exceeded.
    """
    for resource in resources:
        if held[resource] + request[resource] > caps[resource] != UNLIMITED:
            return resource
    return -1


def over_limit_message(tree: QueueTree, allocated: Table, leaf: int, request: Amounts) -> str:
    """KAI's sentence for ``over_limit`` (``api/unschedule_info.go``); empty where no limit blocks."""
    found = _first_excess(tree, tree.limits, allocated, leaf, request)
    if found is None:
        return ""
    queue, resource = found
    unit, noun = _UNIT[resource], _NOUN[resource]
    limit, used, asked = (
        humanized(a[resource], _SCALE[resource]) for a in (tree.limits[queue], allocated[queue], request)
    )
    return (
        f"{tree.title(queue)} quota has reached the allowable limit of {noun}. Limit is {limit} {unit}, "
        f"currently {used} {unit} allocated and workload requested {asked} {unit}"
    )


def over_quota_message(
    tree: QueueTree, allocated_non_preemptible: Table, leaf: int, request: Amounts, gpus: float | None = None
) -> str:
    """KAI's sentence for ``over_quota``; empty where no quota blocks.

    ``gpus``: the GPUs requested, summed pod by pod as floats, since KAI writes that sum with all its decimals.
    """
    found = _first_excess(tree, tree.quotas, allocated_non_preemptible, leaf, request)
    if found is None:
        return ""
    queue, resource = found
    unit = _UNIT[resource]
    held = allocated_non_preemptible[queue]
    quota, used, asked = (humanized(a[resource], _SCALE[resource]) for a in (tree.quotas[queue], held, request))
    asked = go_float(gpus) if resource == GPU and gpus is not None else asked
    return (
        f"Non-preemptible workload is over quota. Workload requested {asked} {_ASKED[resource]}, "
        f"but {tree.title(queue)} quota is {quota} {unit}, while {used} {unit} are already allocated for "
        "non-preemptible pods. Use a preemptible workload to go over quota."
    )


_NOUN = {CPU: "CPU cores", MEMORY: "memory", GPU: "GPUs"}
_UNIT = {CPU: "cores", MEMORY: "GB", GPU: "GPUs"}
_ASKED = {CPU: "CPU cores", MEMORY: "GB memory", GPU: "GPUs"}
_SCALE = {CPU: CORES, MEMORY: GB, GPU: MILLI}


def _first_excess(
    tree: QueueTree, caps: Sequence[Triple], used: Table, leaf: int, request: Amounts
) -> tuple[int, int] | None:
    """The lowest (queue, resource) whose cap the request would break, GPUs looked at first."""
    asked = [resource for resource in (GPU, CPU, MEMORY) if request[resource] > 0]
    for queue in tree.path[leaf]:
        resource = first_over(caps[queue], used[queue], request, asked)
        if resource >= 0:
            return queue, resource
    return None


def cap_blocker(kind: str, name: str, resource: int, request: Amounts, caps: Amounts, held: Amounts) -> Blocker:
    """What blocks where ``held`` and ``request`` together exceed ``caps`` of the queue ``name``."""
    label = QUEUE_RESOURCES[resource]
    have = f"{format_amount(label, caps[resource])}, with {format_amount(label, held[resource])} in use"
    short = held[resource] + request[resource] - caps[resource]
    return Blocker(kind, name, format_amount(label, request[resource]), have, resource=label, short=short)
