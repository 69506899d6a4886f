"""The runs of one cycle: the first, and those after an unexpected error."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from kai_solver.domain import Action, Plan, Snapshot, SolverModel
from kai_solver.engine.isolating import Extent, Isolation
from kai_solver.engine.progress import OnSlow
from kai_solver.errors.barrier import in_words
from kai_solver.problem import Memo
from kai_solver.search.child import SolverChild

AGAIN = 0.5
"""Extra time, as a part of the budget, for deciding again after an unexpected error."""


class Run(Protocol):
    """One run from the snapshot to a checked plan."""

    model: SolverModel
    clock: Callable[[], float]
    start_s: float
    deadline_s: float

    def plan(self, child: SolverChild | None, memo: Memo | None) -> Plan:
        """The plan; may raise anything."""
        ...

    def report(self, error: str) -> None:
        """Report a fault."""
        ...

    def tell_slow(self, on_slow: OnSlow) -> None:
        """Report gangs whose turns took more than their share."""
        ...


def decided(
    run_of: Callable[[Snapshot, float], Run],
    snapshot: Snapshot,
    budget_s: float,
    child: SolverChild | None,
    memo: Memo | None,
    on_slow: OnSlow | None,
) -> Plan:
    """The plan of the first run, or of further runs that leave out what makes it fail.

    Further runs have half of the budget more: after a late unexpected error the other gangs must still have turns.
    """
    first = run_of(snapshot, budget_s)
    last, errors = first, list[Exception]()
    search = first.model.search

    def attempt(found: Snapshot, extent: Extent) -> Plan:
        nonlocal last
        if not errors:
            return first.plan(child, memo)
        last = run_of(found, max(first.deadline_s - first.clock(), AGAIN * budget_s))
        if extent is Extent.FREE_ROOM:
            last.model = replace(last.model, actions=tuple(a for a in last.model.actions if a is Action.ALLOCATE))
        return last.plan(child if extent is Extent.FULL else None, None)

    def may_search() -> bool:
        return search.deterministic or first.clock() < first.deadline_s + AGAIN * budget_s

    def report(error: Exception) -> None:
        errors.append(error)
        first.report(f"an unexpected error: {in_words(error)}")
        if memo is not None:
            memo.clear()

    plan = Isolation(attempt, may_search, report).decide(snapshot)
    if on_slow is not None:
        last.tell_slow(on_slow)
    if not errors:
        return plan
    return replace(plan, timing_s={**plan.timing_s, "decide": first.clock() - first.start_s})
