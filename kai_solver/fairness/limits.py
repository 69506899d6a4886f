"""Hard caps of queues: limits for all work, quotas for non-preemptible work (docs/kai-behaviour.md#limits, #quota)."""

from collections.abc import Iterable, Sequence

from kai_solver.domain import Blocker
from kai_solver.fairness.order import Amounts, Table
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
    found = _first_excess(tree, tree.limits, allocated, leaf, request)
    return found and _blocker("queue-limit", tree, tree.limits, allocated, request, *found)


def over_quota(tree: QueueTree, allocated_non_preemptible: Table, leaf: int, request: Amounts) -> Blocker | None:
    """What keeps a non-preemptible ``request`` from ``leaf`` by a quota of it or an ancestor; None where all hold."""
    found = _first_excess(tree, tree.quotas, allocated_non_preemptible, leaf, request)
    return found and _blocker("queue-quota", tree, tree.quotas, allocated_non_preemptible, request, *found)


def capping_queue(tree: QueueTree, caps: Sequence[Triple], used: Table, leaf: int, request: Amounts) -> int | None:
    """The first queue from ``leaf`` up whose cap ``request`` would pass; None where none."""
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
    for queue in tree.path[leaf]:
        for resource in asked:
            cap, held = caps[queue][resource], used[queue][resource]
            if cap != UNLIMITED and held > cap:
                return queue
    return None


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
    for queue in tree.path[leaf]:
        cap, held = caps[queue], used[queue]
        for resource in (GPU, CPU, MEMORY):
            asked = request[resource]
            if asked > 0 and cap[resource] != UNLIMITED and cap[resource] < held[resource] + asked:
                return queue, resource
    return None


def _blocker(
    kind: str,
    tree: QueueTree,
    caps: Sequence[Triple],
    used: Table,
    request: Amounts,
    queue: int,
    resource: int,
) -> Blocker:
    name = QUEUE_RESOURCES[resource]
    have = f"{format_amount(name, caps[queue][resource])}, of which {format_amount(name, used[queue][resource])} in use"
    short = used[queue][resource] + request[resource] - caps[queue][resource]
    need = format_amount(name, request[resource])
    return Blocker(kind, tree.title(queue), need, have, resource=name, short=short)
