"""Rules ``limit`` and ``quota``: what the queue of a gang and all its ancestors may hold.

Source: docs/kai-behaviour.md#limits, #quota.
"""

from collections.abc import Iterator, Mapping

from kai_solver.check.accounts import RESOURCES, Amount, Bills, Ledger, QueueTree, book_sums
from kai_solver.check.violation import Violation
from kai_solver.domain import Queue
from kai_solver.units import QUEUE_RESOURCES, UNLIMITED, format_amount


def exceeds(cap: Amount, before: Amount, after: Amount, asked: Amount) -> list[int]:
    """Resources above ``cap`` of which the plan adds some: what was above it before may stay, and nothing joins it.

    ``asked``: what the arriving pods pay.
    """
    return [r for r in RESOURCES if cap[r] != UNLIMITED and after[r] > (cap[r] if asked[r] else max(cap[r], before[r]))]


def judge_allowances(tree: QueueTree, before: Ledger, after: Ledger, bills: Bills) -> Iterator[Violation]:
    """No queue on the way of a gang that gets pods holds more than its limit, or non-preemptible than its quota."""
    asked = Ledger(tree)
    book_sums(asked, bills.bound)
    for name in _queues(tree, {leaf for leaf, _, _ in bills.bound}):
        queue = tree.queues[name]
        yield from _say("limit", queue, queue.limit, before.allocated, after.allocated, asked.allocated)
    for name in _queues(tree, {leaf for leaf, preemptible, _ in bills.bound if not preemptible}):
        queue = tree.queues[name]
        yield from _say("quota", queue, queue.quota, before.fixed, after.fixed, asked.fixed)


def _queues(tree: QueueTree, leaves: set[str]) -> list[str]:
    return list(dict.fromkeys(queue for leaf in sorted(leaves) for queue in tree.paths[leaf]))


def _say(
    rule: str,
    queue: Queue,
    cap: Amount,
    before: Mapping[str, Amount],
    after: Mapping[str, Amount],
    asked: Mapping[str, Amount],
) -> Iterator[Violation]:
    what = "its limit is" if rule == "limit" else "for non-preemptible pods its quota is"
    for r in exceeds(cap, before[queue.name], after[queue.name], asked[queue.name]):
        resource = QUEUE_RESOURCES[r]
        held = format_amount(resource, after[queue.name][r])
        text = f"queue {queue.title}: {held} would be allocated, {what} {format_amount(resource, cap[r])}"
        yield Violation(rule, queue.name, text)
