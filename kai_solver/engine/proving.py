"""Proofs for the gangs that wait, once all else is decided."""

from collections.abc import Callable, Collection, Iterable

from kai_solver.domain import Action
from kai_solver.errors.barrier import barrier
from kai_solver.planstate.outcome import Outcome
from kai_solver.search.open_questions import OpenQuestions
from kai_solver.search.oracle import SolverActions
from kai_solver.search.waiting_together import WaitingTogether

PART_OF_ACTIONS = 0.25
"""Without a solver, proofs of what the board left open take at most this part of what the actions took. With 0.5 they
took a fifth of the cycle, and proved it of 4 gangs in place of 1 of 181 that wait on 5,000 loaded nodes, and of 87 in
place of 32 of 872 on 20,000 (2026-11-29)."""
EACH = 0.75
"""Part of the time in which gangs are asked for one by one, before those that are left are counted together."""


def has_unknown(outcome: Outcome, states: Collection[str] = ("unknown",)) -> bool:
    """True where some action left it open whether it can run a gang that waits: its proof has one of ``states``."""
    gangs = outcome.state.gangs
    return any(
        any(gangs[gang].pending) and any(refusal.proof.state in states for refusal in by_action.values())
        for gang, by_action in outcome.refusals.items()
    )


def prove(
    outcome: Outcome,
    actions: Iterable[Action],
    left_s: Callable[[], float],
    oracle: SolverActions,
    states: Collection[str] = ("unknown",),
) -> None:
    """Ask of the final state what was left open for gangs that wait; an error leaves that as it is.

    ``left_s``: seconds that are left. ``oracle``: asks bounds. ``states``: of proofs that leave it open.
    """
    end_s = (1 - EACH) * left_s()
    with barrier("deciding", "proofs of the final state"):
        questions = OpenQuestions(outcome, actions, oracle, states=states)
        questions.run(lambda: left_s() < end_s, beside="plan")
        WaitingTogether(questions).run(left_s)
