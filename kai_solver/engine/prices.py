"""The linear programme of a cycle: asked for while other steps go on, and once more of what is admitted last."""

from collections.abc import Callable, Mapping

from kai_solver.domain import SolverModel
from kai_solver.engine.counted import bounds_by_count
from kai_solver.engine.cycle_time import CycleTime
from kai_solver.engine.known import Known, disturbs
from kai_solver.engine.progress import FaultReporter
from kai_solver.planstate.outcome import Outcome
from kai_solver.search.child import SolverChild
from kai_solver.search.pricing import Priced, Pricing
from kai_solver.search.refine import Refined, is_unproven

RIGHTS_BUILDS = 1.5
"""Seconds to find out what may be changed, for each second that the problem takes to build: 0.3 s on 5,000 loaded nodes
(CPU, 2026-11-29)."""

PRICING_BUILDS = 2.0
"""Seconds to write the linear programme down, for each second that the problem took to build: 0.22 s against 0.14 on
openb, 0.45 against 0.23 on loaded-5000 (CPU, 2026-11-23)."""


class Prices:
    """Prices of what a cycle admits."""

    def __init__(self, model: SolverModel, time: CycleTime, known: Known, faults: FaultReporter) -> None:
        self._model = model
        self._time = time
        self._known = known
        self._faults = faults
        self._pricing: Pricing | None = None

    def begin(self, outcome: Outcome, child: SolverChild, part: float = 1.0) -> None:
        """Ask for the prices of what is admitted now, if a ``part`` of the time is enough to write them down."""
        self._pricing = self._ask(outcome, child, part)

    def renew(self, outcome: Outcome, child: SolverChild, has_time: Callable[[], bool]) -> None:
        """Ask again if something else is admitted now, unless the earlier prices still hold and there is no time."""
        if self._pricing is not None and self._pricing.is_of(outcome):
            return
        before = self.of(outcome)
        if before is None or has_time():
            self._pricing = self._ask(outcome, child) or before

    def of(self, outcome: Outcome) -> Pricing | None:
        """The prices that were asked for, where they say something of what is admitted now."""
        pricing = self._pricing
        return pricing if pricing is not None and pricing.covers(outcome, self._known.rights(outcome)) else None

    def found(self, pricing: Pricing) -> Priced | None:
        """The answer; None where it does not come in time."""
        return pricing.priced(self._time.prices_until_s)

    def bounds(self, outcome: Outcome, child: SolverChild | None, refined: Refined | None) -> Mapping[str, int]:
        """Bounds of the stages of ``outcome``, by sums and by the linear programme; none where all of it is proven.

        None either where what may be changed is not known, and to find that out would end the cycle too late.
        """
        if child is None or not disturbs(outcome) or (refined is not None and not is_unproven(refined.stages)):
            return {}
        time, known = self._time, self._known
        if not known.has_rights(outcome) and not time.keeps_promise(RIGHTS_BUILDS * time.build_s):
            return {}
        rights, values = known.rights(outcome), known.measured(outcome)
        found = [bounds_by_count(outcome, rights, values) or {}]
        found += [refined.bounds_at(values, outcome.admitted)] if refined is not None else []
        before, later = self._pricing, None
        if before is not None and before.covers(outcome, rights):
            found.append(before.bounds(values, time.prices_until_s))
        if before is None or not before.is_of(outcome):
            later = self._ask(outcome, child)
        if later is not None:
            found.append(later.bounds(values, time.prices_until_s))
        for error in [error for pricing in (before, later) if pricing is not None for error in pricing.errors]:
            self._faults.report(error)
        time.phase("prices")
        return {name: max(one.get(name, 0) for one in found) for one in found for name in one}

    def _ask(self, outcome: Outcome, child: SolverChild, part: float = 1.0) -> Pricing | None:
        """None where nothing leaves for what is admitted, or there is no time."""
        time = self._time
        is_asked = disturbs(outcome) and bool(self._model.disrupting)
        has_time = time.is_exact or part * time.left_s >= PRICING_BUILDS * time.build_s
        if not is_asked or time.should_stop() or not has_time:
            return None
        pricing = Pricing(child, by_gpus=self._model.evicts_by_gpus, should_stop=time.should_stop)
        pricing.begin(outcome, self._known.rights(outcome), self._known.measured(outcome), time.prices_until_s)
        time.phase("prices")
        return pricing
