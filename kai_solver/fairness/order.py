"""Which queue, and which gang in it, is served first (reference 3.2; KAI: ``queue_order.go``).

Called thousands of times a cycle: everything here is plain Python numbers, no numpy scalars.
"""

from collections.abc import Sequence

from kai_solver.fairness.tree import QueueTree
from kai_solver.units import MILLI, UNLIMITED

Amounts = Sequence[int]
"""(cpu milli, memory bytes, gpu milli)."""
Table = Sequence[Amounts]
"""Amounts per queue."""

QueueKey = tuple[bool, bool, int, bool, float, float]

NOTHING = (0, 0, 0)
_WITHOUT_SHARE = (1000.0, 1000.0, 1000.0 / MILLI)
"""KAI counts a use without any share a thousandfold, in its own units (millicores, bytes, whole GPUs)."""


def queue_key(
    tree: QueueTree,
    share: Table,
    allocatable: Table,
    total: Amounts,
    queue: int,
    allocated: Amounts,
    job: Amounts,
    victims: Amounts = NOTHING,
) -> QueueKey:
    """Rules 1 to 6 of the queue order as a key: smaller is served first.

    Parameters
    ----------
    allocated
        What the queue (of any level) holds now.
    job
        The next chunk of its best gang: what is left of the minimum, or one surplus pod.
    victims
        What victims already picked from the queue would give back; counted in the dominant shares alone.
    """
    fair, quota, bound = share[queue], tree.quotas[queue], allocatable[queue]
    cpu, memory, gpu = allocated
    with_cpu, with_memory, with_gpu = cpu + job[0], memory + job[1], gpu + job[2]
    over = fair[0] < cpu and fair[1] < memory and fair[2] < gpu
    starved = (
        (with_cpu <= quota[0] or quota[0] == UNLIMITED)
        and (with_memory <= quota[1] or quota[1] == UNLIMITED)
        and (with_gpu <= quota[2] or quota[2] == UNLIMITED)
    )
    unentitled = (
        (bound[0] == 0 and with_cpu > 0) or (bound[1] == 0 and with_memory > 0) or (bound[2] == 0 and with_gpu > 0)
    )
    left = (cpu - victims[0], memory - victims[1], gpu - victims[2])
    after = (left[0] + job[0], left[1] + job[1], left[2] + job[2])
    dominant = dominant_share(bound, total, after)
    return (over, not starved, -tree.priority[queue], unentitled, dominant, dominant_share(bound, total, left))


def dominant_share(allocatable: Amounts, total: Amounts, amounts: Amounts) -> float:
    """Largest share of ``allocatable`` that ``amounts`` take; an unlimited one is measured against ``total``."""
    largest = 0.0
    for resource in range(3):
        amount = amounts[resource]
        if amount:
            bound = allocatable[resource]
            if bound == UNLIMITED:
                bound = total[resource]
            part = amount / bound if bound else amount * _WITHOUT_SHARE[resource]
            if part > largest:
                largest = part
    return largest


def compare_queues(
    tree: QueueTree, allocatable: Table, first: int, first_key: QueueKey, second: int, second_key: QueueKey
) -> int:
    """-1 where ``first`` is served before ``second``, +1 after, 0 for the same queue: rules 1 to 8, then the UID.

    For victims, reverse the arguments.
    """
    if first_key != second_key:
        return -1 if first_key < second_key else 1
    one, other = allocatable[first], allocatable[second]
    weaker, stronger = _within(one, other), _within(other, one)
    if weaker != stronger:
        return -1 if weaker else 1
    one_age, other_age = _age(tree, first), _age(tree, second)
    return (one_age > other_age) - (one_age < other_age)


def _within(inner: Amounts, outer: Amounts) -> bool:
    return all(o == UNLIMITED or (i != UNLIMITED and i <= o) for i, o in zip(inner, outer, strict=True))


def _age(tree: QueueTree, queue: int) -> tuple[float, str, str]:
    return (tree.created[queue], tree.queues[queue].uid, tree.names[queue])


def gang_order_key(priority: int, active: int, minimum: int, created_s: float, uid: str) -> tuple[int, int, float, str]:
    """Job order inside a queue: smaller is served first, larger is the first victim.

    Higher priority; then gangs below their minimum, at it, above it; then age; then UID.

    Parameters
    ----------
    active, minimum
        Active pods of the gang and its minimum, over all pod sets.
    """
    elastic = (active > minimum) - (active < minimum)
    return (-priority, elastic, created_s, uid)
