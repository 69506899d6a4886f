"""Proofs for the gangs that wait, once all else is decided."""

from collections.abc import Callable, Iterable

from kai_solver.domain import Action
from kai_solver.errors.barrier import barrier
from kai_solver.planstate.outcome import Outcome
from kai_solver.search.proving import FinalProofs
from kai_solver.search.waiting_together import WaitingTogether

LEAST_PART = 0.025
"""Part of the budget that proofs of the final state have although all of it is spent: a class of gangs takes 2 to 10 ms
of CPU time on 1,000 to 5,000 loaded nodes (2026-11-23), and without a proof a gang's users learn nothing."""


def prove(outcome: Outcome, actions: Iterable[Action], left_s: Callable[[], float]) -> None:
    """Ask of the final state what was left open for gangs that wait; an error leaves that as it is.

    ``left_s``: seconds that are left. Half of them are for each gang by itself, the rest for all that are still open.
    """
    end_s = left_s() / 2
    with barrier("deciding", "proofs of the final state"):
        final = FinalProofs(outcome, actions)
        final.run(lambda: left_s() < end_s)
        WaitingTogether(final).run(left_s)
