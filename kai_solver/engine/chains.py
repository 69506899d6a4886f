"""The step of a cycle after the actions, on large clusters: ejection chains.

Gangs that wait come in by moves and swaps, in policy order; then evicted work comes back, or less work leaves in its
place. What the search finds is put into effect as far as all rules allow it (`kai_solver.chains.effect`), and the
stages of the plan are never worse by it.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from kai_solver import compiled
from kai_solver.actions.caps import over_capacity
from kai_solver.actions.consolidate import still_asking
from kai_solver.actions.gang_order import GangOrder
from kai_solver.chains.attribute import Charging
from kai_solver.chains.course import Course, searched
from kai_solver.chains.describe import MovePrices, describe
from kai_solver.chains.effect import Effect, Effecting
from kai_solver.domain import Action, SolverModel
from kai_solver.engine.stages import measured_stages
from kai_solver.planstate.allocation_units import AllocationUnit, GangUnitsOf
from kai_solver.planstate.eviction_units import move_lost
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import Problem
from kai_solver.reasons.refusals import NO_CHAIN
from kai_solver.search.rights import Rights, rights_of
from kai_solver.units import UNLIMITED

CHAINS_SHARE = 0.8
"""Part of the time left, without what the plan and its check take, until which the search goes on."""
LEAST_CHAINS = 0.15
"""Part of the budget that chains have at least where the greedy came to its end, also past the budget's: openb at 2 s
on a noisy machine, where the greedy takes 1.1 to 1.5 s and chains that have no time leave 200 gangs waiting that 0.3 s
of moves admit (2026-11-23). Where the time has stopped the greedy, chains that come late would break the promise."""
LEAST_BUILDS = 1.0
"""Time that is left at least, as a multiple of what the problem took to build: arrays and effect cost about as much."""
MOVED_WORK = 0.4
"""Part of what moves lose that counts beside evicted work, which is the stage before. The urgent gangs of openb after
0.9 s (2026-11-28): evicted work 197,500 and 588 moves with a half, 209,000 and 523 with all of it; the sums are the
same. With 0.3, 0.4 and 0.5 beside steps that may cost more 191,100, 191,000 and 196,200."""
NO_RIGHTS = Rights(frozenset(), {}, (), ())


def is_for_chains(problem: Problem, model: SolverModel) -> bool:
    """True where ``model`` asks for chains, and the cluster is large: small ones CP-SAT decides as a whole."""
    is_asked = model.search.chains > 0 and model.admission == "rank" and bool(model.disrupting)
    return is_asked and compiled.is_wanted(len(problem.nodes)) and problem.outlook is None


def without_moves(actions: Iterable[Action]) -> tuple[Action, ...]:
    """The actions without consolidation, which chains do better: openb, 0.9 of 1.6 s of CPU, and none is admitted."""
    return tuple(action for action in actions if action is not Action.CONSOLIDATION)


def after_moves(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Of actions with consolidation, those that evict and come after it."""
    later = actions[actions.index(Action.CONSOLIDATION) + 1 :]
    return tuple(action for action in later if action in (Action.RECLAIM, Action.PREEMPT))


def refuse_moves(outcome: Outcome, actions: Sequence[Action]) -> None:
    """Note for gangs that still wait that no chain made room, where consolidation has not asked for them itself.

    Their refusals are in the order of ``actions`` then.
    """
    for gang in outcome.waiting if Action.CONSOLIDATION in actions else ():
        by_action = outcome.refusals.get(gang)
        if not by_action:
            continue
        every = dict(by_action)
        if Action.CONSOLIDATION not in every:
            refusals = list(every.values())
            is_one = all(refusal is refusals[0] for refusal in refusals)
            every[Action.CONSOLIDATION] = refusals[0] if is_one else NO_CHAIN
        outcome.refusals[gang] = {action: every[action] for action in actions if action in every}


class Chains:
    """Improves one outcome by ejection chains."""

    def __init__(self, outcome: Outcome, model: SolverModel) -> None:
        self.outcome, self.model = outcome, model
        self.state, self.problem = outcome.state, outcome.state.problem
        limits = [n for n in (self.problem.policy.max_consolidation_gangs, model.moves.per_gang) if n != UNLIMITED]
        self.per_gang = min(limits) if limits else UNLIMITED
        self.may_consolidate = Action.CONSOLIDATION in model.actions and self.per_gang != 0

    def run(
        self,
        course: Course,
        seed: int,
        rights_for: Callable[[Outcome], Rights] = rights_of,
        is_late: Callable[[], bool] = lambda: False,
    ) -> Effect | None:
        """Search, and put into effect what was found; None where there is nothing to search.

        ``rights_for``: what may be disturbed for the admissions of an outcome. ``is_late``: whether there is no time to
        put parts of it into effect, if all of it cannot be.
        """
        turns, pool = self._turns(), self._pool()
        if pool is None or not pool.units:
            return None
        has_evicted = bool(pool.have_left().any())
        rights = rights_for(self.outcome) if has_evicted else NO_RIGHTS
        moves = self.model.moves
        lost = (MOVED_WORK * move_lost(self.problem, unit, moves) for unit in pool.units)
        loss = np.array([round(one) for one in lost], dtype=np.int64)
        prices = MovePrices(loss, moves.per_cycle, self.per_gang)
        description = describe(self.outcome, pool, rights, prices, turns, may_evict=has_evicted)
        if description is None:
            return None
        result = searched(description.problem, course, seed)
        charging = Charging(rights.takers, self.may_consolidate, self.per_gang)
        judge = Judge(self.outcome, self.model)
        return Effecting(self.outcome, pool, description, charging, judge, is_late).run(result)

    def _pool(self) -> VictimPool | None:
        if self.outcome.pool is None and self.may_consolidate:
            self.outcome.pool = VictimPool.of_running(self.state)
        return self.outcome.pool

    def _turns(self) -> list[AllocationUnit]:
        """What gangs wait for that may have others moved, in policy order."""
        if not self.may_consolidate:
            return []
        units = GangUnitsOf(self.state)
        order = GangOrder(self.state, units, still_asking(self.outcome, units))
        asked = (found.allocation_unit for found in iter(order.pop, None))
        return [unit for unit in asked if over_capacity(self.state, unit) is None]


class Judge:
    """Whether an outcome is no worse than the best so far: gangs that wait, then each stage in order.

    No work may leave for a gang that comes in: the stages of what is evicted, in their order, may not be worse either.
    """

    def __init__(self, outcome: Outcome, model: SolverModel) -> None:
        self.model = model
        self.best = self._measured(outcome)

    def __call__(self, outcome: Outcome) -> bool:
        """True, and others are compared with ``outcome`` from now on; or False."""
        now = self._measured(outcome)
        (waits, evicted, _), (waits_before, evicted_before, _) = now, self.best
        if evicted > evicted_before or waits > waits_before or now > self.best:
            return False
        self.best = now
        return True

    def _measured(self, outcome: Outcome) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Admissions (negative); evicted work by priority from the highest, gangs, pods; moves, nodes opened."""
        by_gpus = self.model.evicts_by_gpus
        stages = {s.name: int(s.value) for s in measured_stages(outcome, by_gpus=by_gpus, moves=self.model.moves)}
        strata = sorted(set(outcome.state.problem.gang_columns.priority.tolist()), reverse=True)
        name = "evicted-gpus" if by_gpus else "evicted-work"
        evicted = [stages.get(f"{name}/{priority}", 0) for priority in strata]
        evicted += [stages["gangs-broken"], stages["evicted-pods"]]
        last = stages["moved-pods"], stages.get("moved-work", 0), stages["nodes-opened"]
        return -len(outcome.admissions), tuple(evicted), last
