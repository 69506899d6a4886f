"""For how long chains are searched: the time that choosing victims and asking CP-SAT take is left to those."""

from kai_solver.domain import Action
from kai_solver.engine.chains import CHAINS_SHARE, LEAST_CHAINS
from kai_solver.engine.cycle_time import CycleTime
from kai_solver.engine.known import Known
from kai_solver.engine.prices import PRICING_BUILDS
from kai_solver.planstate.outcome import Outcome

SHORT_CHAINS_S = 0.2
"""Seconds of chains below which prices are asked for after them. Else those of what was admitted before hold up those
of what is admitted now: with both, victims on a real twin of 1,000 nodes began 0.3 s later in a cycle of 2 s, and had
no time (2026-11-28)."""

CHOOSING_S, MOST_FOR_VICTIMS = 2e-4, 0.9
"""Seconds a variable of the whole model to choose victims and places again, which chains leave for that, and the most
part of the time that is left: on 1,000 and 2,000 loaded nodes that halves the work which chains leave; on openb, with
180,000 variables, there is no time for it anyway (2026-11-23)."""

HURRIED = 0.25
"""Part of these seconds in which victims and places are mostly chosen, too. Chains have the least of the time then.
With 0.6, three clusters of 2,000 loaded nodes had gaps above 100% at 2 s; with 0.45 at most 0.6% (2026-11-28). The
choice has become faster since: 0.8 s with 14,000 variables, on real twins of 2,000 nodes (2026-11-30)."""

ASKING_S, MOST_FOR_QUESTIONS = 3e-4, 0.6
"""Seconds a node that one question to CP-SAT takes, which chains leave for that, and the most part of their time: 0.3 s
on 1,000 loaded nodes (2026-11-23). None where there is no time for victims: a question's model is as large."""


class ChainTime:
    """The time that chains have after the greedy has decided an outcome."""

    def __init__(self, time: CycleTime, known: Known) -> None:
        self._time = time
        self._known = known

    def are_long(self, outcome: Outcome) -> bool:
        """Whether prices that are asked for before chains are found by their end; else they wait for what chains do."""
        beside_s = self.search_s(outcome, self.left_s(outcome)) - PRICING_BUILDS * self._time.build_s
        return self._time.is_exact or beside_s >= SHORT_CHAINS_S

    def left_s(self, outcome: Outcome) -> float:
        """Seconds until the plan has to be made, or the least that chains have where the greedy came to its end."""
        left_s = self._time.left_s
        return left_s if outcome.stopped else max(left_s, LEAST_CHAINS * self._time.budget_s)

    def search_s(self, outcome: Outcome, left_s: float) -> float:
        """Seconds of ``left_s`` in which chains are searched."""
        kept_s = self._for_victims_s(outcome, left_s)
        seconds = min(CHAINS_SHARE * left_s, left_s - kept_s)
        if kept_s and seconds > SHORT_CHAINS_S:  # In less they admit gangs by moves, which comes before questions.
            most = min(MOST_FOR_QUESTIONS * seconds, seconds - SHORT_CHAINS_S)
            seconds -= min(self._time.here_s(_for_questions_s(outcome)), most)
        return seconds

    def _for_victims_s(self, outcome: Outcome, left_s: float) -> float:
        """Seconds of ``left_s`` that choosing victims and places again takes; 0 where it has no time anyway."""
        seconds, most = CHOOSING_S * self._known.variables(outcome), MOST_FOR_VICTIMS * left_s
        return min(self._time.here_s(seconds), most) if HURRIED * seconds < most else 0.0


def _for_questions_s(outcome: Outcome) -> float:
    """Seconds that questions about gangs take which an action left open; chains answer for consolidation."""
    asked = 0
    for refusals in outcome.refusals.values():
        others = (r for action, r in refusals.items() if action not in (Action.ALLOCATE, Action.CONSOLIDATION))
        asked += any(refusal.proof.state == "unknown" for refusal in others)
    return asked * ASKING_S * len(outcome.state.problem.nodes)
