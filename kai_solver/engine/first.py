"""The first plan of a cycle: what the climb has after a short while, complete and checked, kept while it goes on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kai_solver.domain import Action, Plan
from kai_solver.engine.cycle_time import CycleTime
from kai_solver.errors.barrier import barrier
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


@dataclass(slots=True)
class FirstPlan:
    """The first plan of a run; made once, at most.

    Attributes
    ----------
    make
        The plan of an outcome; None where the checker refuses it.
    is_wanted
        False in a deterministic cycle. Neither where kernels take the turns and no solver follows: on 5,000 loaded
        nodes all turns have been taken 0.8 s later, and it took 0.3 s of 2.4 s (2026-11-27).
    """

    time: CycleTime
    make: Callable[[Outcome], Plan | None]
    is_wanted: bool
    plan: Plan | None = None
    made_s: float = 0.0
    """Seconds from the start of the cycle to the plan."""

    def keep(self, outcome: Outcome, *, at_end: bool = False) -> None:
        """Make it of what was decided by now, once that has taken a while; no gang is between two steps.

        ``at_end``: the actions have ended, soon, and the solver goes on for gangs that wait. Past half of the budget
        the plan itself is near.
        """
        time = self.time
        is_time = time.elapsed_s <= SOON * time.budget_s if at_end else FIRST_S <= time.elapsed_s <= time.budget_s / 2
        if not self.is_wanted or not is_time or not (at_end or is_worth_it(outcome, time.phase_s)):
            return
        self.is_wanted = False
        time.phase("greedy")
        with barrier("deciding", "the first plan"):
            self.plan = self.make(outcome)
            self.made_s = time.elapsed_s


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
