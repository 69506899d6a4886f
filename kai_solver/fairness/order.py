"""Which queue, and which gang in it, is served first (docs/kai-behaviour.md#order; KAI: ``queue_order.go``).

Called thousands of times a cycle: all but ``keys_ahead`` is plain Python numbers, no numpy scalars.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.fairness.tree import QueueTree
from kai_solver.units import MILLI, UNLIMITED

Amounts = Sequence[int]
"""(cpu milli, memory bytes, gpu milli)."""
Table = Sequence[Amounts]
"""Amounts per queue."""

QueueKey = tuple[bool, bool, int, bool, float, float]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

NOTHING = (0, 0, 0)
_PRIORITIES = 1 << 40
"""More than there are priorities of queues (32 bits with sign)."""
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
        The next part of its best gang: what is left of the minimum, or one surplus pod.
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


class QueueOrder:
    """The same order with all that does not change within a cycle made ready: equal to the functions of this module."""

    def __init__(self, tree: QueueTree, share: Table, allocatable: Table, total: Amounts) -> None:
        self._prepared = [_prepared(tree, share, allocatable, total, queue) for queue in range(tree.size)]
        equals = _Equals(tree, allocatable)
        self._ties = [Tie(equals, queue) for queue in range(tree.size)]

    def key(self, queue: int, allocated: Amounts, job: Amounts) -> QueueKey:
        """Rules 1 to 6, as `queue_key`."""
        fair, quota, closed, bound, priority = self._prepared[queue]
        cpu, memory, gpu = allocated
        with_cpu, with_memory, with_gpu = cpu + job[0], memory + job[1], gpu + job[2]
        return (
            fair[0] < cpu and fair[1] < memory and fair[2] < gpu,
            with_cpu > quota[0] or with_memory > quota[1] or with_gpu > quota[2],
            priority,
            closed is not None
            and any(c and amount > 0 for c, amount in zip(closed, (with_cpu, with_memory, with_gpu), strict=True)),
            _largest(bound, with_cpu, with_memory, with_gpu),
            _largest(bound, cpu, memory, gpu),
        )

    def keys_ahead(self, queue: int, allocated: Amounts, jobs: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Keys of ``queue`` as it is served one after the other of ``jobs`` (n, 3), each before it is.

        Three arrays (n,) that order as the keys do, and that never fall: a queue that is served holds more.
        """
        fair, quota, closed, bound, priority = self._prepared[queue]
        then = np.cumsum(jobs, axis=0) + np.array(allocated, dtype=np.int64)
        now = then - jobs
        over = (np.array(fair) < now).all(axis=1)
        rich = (then > np.array(quota)).any(axis=1)
        unentitled = ((then > 0) & np.array(closed or (False,) * 3)).any(axis=1)
        flags = ((over * 2 + rich) * _PRIORITIES + priority + _PRIORITIES // 2) * 2 + unentitled
        return flags.astype(np.int64), _largest_ahead(bound, then), _largest_ahead(bound, now)

    def flags(self, queue: int, allocated: Amounts) -> tuple[bool, bool, int, bool]:
        """The first rules of the key of ``queue``: they stay as they are while it loses."""
        over, rich, priority, unentitled, _, _ = self.key(queue, allocated, NOTHING)
        return over, rich, priority, unentitled

    def shares_behind(self, queues: IntArray, left: IntArray) -> FloatArray:
        """(n,) what orders ``queues`` (n,) of equal `flags` that hold ``left`` (n, 3): it never rises as they lose."""
        bounds = np.array([bound for _, _, _, bound, _ in self._prepared], dtype=np.float64)
        return _largest_ahead(bounds[queues], left)

    def tie(self, queue: int) -> "Tie":
        """What decides between queues of equal keys: compares smaller where ``queue`` is served first."""
        return self._ties[queue]


class _Equals:
    """The order of queues whose keys are the same."""

    def __init__(self, tree: QueueTree, allocatable: Table) -> None:
        self._tree = tree
        self._allocatable = allocatable
        self._before: dict[tuple[int, int], bool] = {}

    def goes_before(self, one: int, other: int) -> bool:
        """Rules 7 and 8 and the UID, of two queues whose keys are the same."""
        found = self._before.get((one, other))
        if found is None:
            found = self._before[one, other] = (
                compare_queues(self._tree, self._allocatable, one, _NO_KEY, other, _NO_KEY) < 0
            )
        return found


class Tie:
    """One queue in heaps of (key, tie)."""

    __slots__ = ("_equals", "queue")

    def __init__(self, equals: _Equals, queue: int) -> None:
        self._equals = equals
        self.queue = queue

    def __lt__(self, other: "Tie") -> bool:
        return self._equals.goes_before(self.queue, other.queue)


_NO_KEY: QueueKey = (False, False, 0, False, 0.0, 0.0)
_Prepared = tuple[Amounts, Sequence[float], tuple[bool, ...] | None, tuple[float, ...], int]


def _prepared(tree: QueueTree, share: Table, allocatable: Table, total: Amounts, queue: int) -> _Prepared:
    """Fair share, quota without end where unlimited, what it has no share of, by what its use is divided, priority."""
    bound = allocatable[queue]
    quota = tuple(math.inf if amount == UNLIMITED else amount for amount in tree.quotas[queue])
    closed = tuple(amount == 0 for amount in bound)
    divisors = tuple(all_ if amount == UNLIMITED else amount for amount, all_ in zip(bound, total, strict=True))
    return share[queue], quota, closed if any(closed) else None, divisors, -tree.priority[queue]


def _largest(bound: Sequence[float], cpu: int, memory: int, gpu: int) -> float:
    """`dominant_share` by prepared divisors."""
    of_cpu, of_memory, of_gpu = bound
    if of_cpu and of_memory and of_gpu:
        return max(cpu / of_cpu, memory / of_memory, gpu / of_gpu, 0.0)
    amounts = (cpu, memory, gpu)
    parts = [a / b if b else a * scale for a, b, scale in zip(amounts, bound, _WITHOUT_SHARE, strict=True)]
    return max(*parts, 0.0)


def _largest_ahead(bounds: Sequence[float] | FloatArray, amounts: IntArray) -> FloatArray:
    """``_largest`` of every row of ``amounts`` (n, 3); ``bounds``: (3,) of all rows, or (n, 3)."""
    divisors = np.asarray(bounds, dtype=np.float64)
    shares = np.where(
        divisors != 0, amounts / np.where(divisors == 0, 1.0, divisors), amounts * np.array(_WITHOUT_SHARE)
    )
    largest: FloatArray = np.maximum(shares.max(axis=1, initial=0.0), 0.0)
    return largest


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
