"""The runs of one cycle: the first, and those after an unexpected error."""

from collections.abc import Callable
from dataclasses import replace

from kai_solver.domain import Plan, Snapshot
from kai_solver.engine.isolating import Extent, Isolation
from kai_solver.engine.progress import OnSlow
from kai_solver.engine.run import Run
from kai_solver.errors.barrier import in_words
from kai_solver.problem import Memo
from kai_solver.search.child import SolverChild

AGAIN = 0.5
"""Extra time, as a part of the budget, for deciding again after an unexpected error."""


def decided(
    run_of: Callable[[Snapshot, float, bool], Run],
    snapshot: Snapshot,
    budget_s: float,
    child: SolverChild | None,
    memo: Memo | None,
    on_slow: OnSlow | None,
) -> Plan:
    """The plan of the first run, or of further runs that leave out what makes it fail.

    ``run_of``: a run for a snapshot and so many seconds, which may do no more than allocate where the flag is set.
    Further runs have half of the budget more: after a late unexpected error the other gangs must still have turns.
    """
    first = run_of(snapshot, budget_s, False)
    last, errors = first, list[Exception]()
    time = first.time

    def attempt(found: Snapshot, extent: Extent) -> Plan:
        nonlocal last
        if not errors:
            return first.plan(child, memo)
        last = run_of(found, max(time.deadline_s - time.clock(), AGAIN * budget_s), extent is Extent.FREE_ROOM)
        return last.plan(child if extent is Extent.FULL else None, None)

    def may_search() -> bool:
        return time.is_exact or time.clock() < time.deadline_s + AGAIN * budget_s

    def report(error: Exception) -> None:
        errors.append(error)
        first.faults.report(f"an unexpected error: {in_words(error)}")
        if memo is not None:
            memo.clear()

    plan = Isolation(attempt, may_search, report).decide(snapshot)
    if on_slow is not None:
        last.tell_slow(on_slow)
    if not errors:
        return plan
    return replace(plan, timing_s={**plan.timing_s, "decide": time.elapsed_s})
