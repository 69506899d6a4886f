"""The first plan of a cycle: what the climb has after a short while, complete and checked, kept while it goes on."""

from collections.abc import Iterable
from dataclasses import replace

from kai_solver.domain import Action
from kai_solver.planstate.outcome import Outcome
from kai_solver.reasons.refusals import BUDGET_ENDED

FIRST_S = 0.1
"""Seconds after which a cycle that still climbs makes its first plan."""

SOON = 0.125
"""Part of the budget in which a climb has to end so that the first plan is made at its end, where chains follow for
gangs that wait: 1,000 loaded nodes climb in 0.06 to 0.2 s, and chains and stages go on until 1.7 s. The plan costs as
much as the climb, so after longer ones it would take too much of their time (2026-11-29)."""

WORTH_S = 0.15
"""A first plan costs about as much as assembling and checking the last one: it is made where the climb, at the pace at
which it has admitted gangs so far, goes on for longer than that (4,000 jobs on 500 empty nodes: 0.1 s, 2026-11-22)."""

FEW, FEW_S = 10, 0.3
"""A plan for less than one in so many of the gangs that wait comes so late: nothing may be known of the pace yet.
Before the first of 4,000 equal reclaims a plan that did nothing took a seventh of the cycle (500 nodes, 2026-11-28)."""


def is_worth_it(outcome: Outcome, run_s: float) -> bool:
    """Whether there is enough to plan, and so much of the climb still to come that a plan of it is worth its time."""
    if not outcome.admissions or (run_s < FEW_S and FEW * len(outcome.admissions) < len(outcome.waiting)):
        return False
    return run_s * len(outcome.waiting) >= WORTH_S * len(outcome.admissions)


def as_if_ended(outcome: Outcome, actions: Iterable[Action]) -> Outcome:
    """``outcome`` as if time had ended here: gangs that an action has not answered are unknown. Shares its state."""
    asked = [action for action in actions if action is not Action.STALE]
    late = dict.fromkeys(asked, BUDGET_ENDED)
    refusals = outcome.refusals | {gang: late | outcome.refusals.get(gang, {}) for gang in outcome.waiting}
    return replace(outcome, refusals=refusals, asked=dict(outcome.asked), stopped=True)
