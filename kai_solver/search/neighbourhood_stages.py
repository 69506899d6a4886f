"""The stages by neighbourhoods: what leaves and moves on a few nodes is chosen again, all else stays, repeatedly.

For clusters whose whole joint model takes too long. The best plan is the state itself; what is found is judged as the
stages' own solutions are, and only what is less disruptive, stage by stage, is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from kai_solver.actions.reclaim_replay import reclaims_hold
from kai_solver.domain import Action, Stage
from kai_solver.fairness import QueueSurplus
from kai_solver.model.build import Formulation, formulate
from kai_solver.model.decode import Decision, expand
from kai_solver.model.joint import Joint
from kai_solver.model.rows import Ints
from kai_solver.model.spec import Var
from kai_solver.model.stages import DISRUPTING, EVICTED
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.charges import Charge
from kai_solver.search.apply import apply
from kai_solver.search.attribution import attribute
from kai_solver.search.disturbed import Disturbed
from kai_solver.search.exchange import disturbed_elsewhere, exchanged
from kai_solver.search.neighbourhood import Census, LocalModelInput, Neighbourhood
from kai_solver.search.neighbourhood_choice import Chooser
from kai_solver.search.refine import main_values
from kai_solver.search.rights import Rights
from kai_solver.search.session import StageObjective
from kai_solver.search.solver_client import SolverClient

WORK_S, COUNTS_S = 0.3, 0.15
"""Longest time of a neighbourhood for the work that is evicted, and for what is counted after it.

Alone, the work of a neighbourhood of 20 to 40 nodes (60 to 600 variables) is proven in 0.02 to 0.2 s (2026-11-22)."""
LEAST_S = 0.02
"""Deterministic seconds that a neighbourhood costs beside the solver's: without them a search of many would not end."""
FRUITLESS = 100
"""Neighbourhoods without success, one after the other, after which the search ends."""
NO_UNITS: frozenset[int] = frozenset()

OnBetter = Callable[[int, int], None]
"""Told (neighbourhoods asked, of these with success)."""


def is_unproven(stages: Sequence[Stage]) -> bool:
    """True if neighbourhoods could make a stage better: one of evictions or moves, not of places that are left."""
    return not stages or any(not s.optimal and s.name.startswith(DISRUPTING) for s in stages)


class LocalStages:
    """Improves one outcome, neighbourhood by neighbourhood."""

    def __init__(
        self,
        solver_client: SolverClient,
        outcome: Outcome,
        pool: VictimPool,
        rights: Rights,
        leaving: frozenset[int] | None = None,
    ) -> None:
        """``leaving``: units that would leave if nodes did not count, where that is known."""
        self.solver_client = solver_client
        self.outcome = outcome
        self.pool = pool
        self.rights = rights
        self.tried = self.improved = 0
        self.chooser = Chooser(outcome, pool, rights, solver_client.seed, leaving)
        self._may_go = np.zeros(len(pool.units), dtype=np.bool_)
        self._may_go[list(rights.movable)] = True
        self._longest_s = 0.0

    def run(self, on_better: OnBetter | None = None) -> bool:
        """Search until the time ends, or nothing helps any more; True where the outcome got better."""
        census, fruitless = Census(self.outcome, self._may_go), 0
        while not self._is_late() and fruitless < FRUITLESS:
            nodes = self.chooser.choose()
            if nodes is None:
                break
            start_s = self.solver_client.budget.clock()
            self.tried += 1
            better = self._improve(census.on(nodes))
            if self.solver_client.budget.deterministic:
                self.solver_client.budget.spent_s += LEAST_S
            self._longest_s = max(self._longest_s, self.solver_client.budget.clock() - start_s)
            fruitless = 0 if better else fruitless + 1
            if better:
                self.improved += 1
                census = Census(self.outcome, self._may_go)
                if on_better is not None:
                    on_better(self.tried, self.improved)
        return self.improved > 0

    def _is_late(self) -> bool:
        """True where another neighbourhood might not end in time; a deterministic search does not look at the clock."""
        budget = self.solver_client.budget
        return self.solver_client.is_out_of_time or (not budget.deterministic and budget.left_s < self._longest_s)

    def _improve(self, hood: Neighbourhood) -> bool:
        """Choose again on ``hood``; True where that is better and could be put into effect."""
        if not any(self.pool.is_disturbed(unit) for unit in hood.units):
            self.chooser.learn(success=False, proven=True)
            return False
        model_input = LocalModelInput(self.outcome, hood)
        joint = self._joint(model_input, hood)
        form = formulate(joint, self.solver_client.model.families, self.solver_client.model.disrupting)
        if not self.chooser.last.is_wide:
            self._keep_by_queue(form, hood)
        values, proven = self._less(form)
        done = values is not None and self._apply(model_input, joint, expand(form.variables, values))
        self.chooser.learn(success=done, proven=proven)
        return done

    def _less(self, form: Formulation) -> tuple[Ints | None, bool]:
        """A less disruptive solution, or None; and whether the least work (or GPUs) was proven.

        First the work alone: the counts after it take most of the time and are seldom what is gained.
        """
        hint = self.solver_client.complete(form, main_values(self.outcome, form))
        if hint is None:
            return None, True
        stages = [StageObjective(o.name, o.terms, o.constant, o.weight, 0.0, o.least) for o in form.objectives]
        work = [stage for stage in stages if stage.name.startswith(EVICTED)]
        first = self.solver_client.minimize(form, work, hint, seconds=WORK_S)
        best = hint if first.values is None else first.values
        reached = {stage.name: stage.value_of(best) for stage in work}
        second = self.solver_client.minimize(form, stages, best, known=reached, seconds=COUNTS_S)
        better = second.values if second.improved else first.values if first.improved else None
        return better, all(stage.optimal for stage in first.stages)

    def _joint(self, model_input: LocalModelInput, hood: Neighbourhood) -> Joint:
        by_action, policy = self.rights.by_action, model_input.problem.policy
        return model_input.join(
            [(a.allocation_unit, a.action) for a in model_input.chosen],
            hood.units,
            by_action.get(Action.RECLAIM, NO_UNITS),
            by_action.get(Action.PREEMPT, NO_UNITS),
            [self._left_to_take(surplus, hood) for surplus in self.rights.surplus],
            may_move=policy.consolidating_reclaim or any(a.action is Action.CONSOLIDATION for a in model_input.chosen),
        )

    # -- what queues may lose --------------------------------------------------------------------------------------

    def _left_to_take(self, surplus: QueueSurplus, hood: Neighbourhood) -> QueueSurplus:
        """What is left of a queue's surplus beside the victims elsewhere, but never less than what is taken here."""
        theirs = {unit for unit in self._reclaimed() if self._queue_of(unit) in surplus.leaves}
        here, elsewhere = self._charge(theirs & hood.units), self._charge(theirs - hood.units)
        left = [max(a - e, h) for a, e, h in zip(surplus.amounts, elsewhere, here, strict=True)]
        return replace(surplus, amounts=(left[0], left[1], left[2]))

    def _keep_by_queue(self, form: Formulation, hood: Neighbourhood) -> None:
        """No queue loses more by reclaim on ``hood`` than now; reclaims that were allowed mostly still are."""
        outs: dict[int, list[tuple[Charge, Var]]] = {}
        for group in form.variables.classes:
            outs.setdefault(group.first.queue, []).append((group.first.charge, group.out_reclaim))
        for unit in form.variables.units:
            outs.setdefault(unit.mover.queue, []).append((unit.mover.charge, unit.out_reclaim))
        here = self._reclaimed() & hood.units
        for queue, parts in outs.items():
            most = self._charge({unit for unit in here if self._queue_of(unit) == queue})
            for resource in range(3):
                terms = [(charge[resource], var) for charge, var in parts if charge[resource]]
                step = gcd(*(amount for amount, _ in terms))
                terms = [(amount // step, var) for amount, var in terms]
                if terms:
                    form.spec.add_le(terms, most[resource] // step, family="entitlement")

    def _charge(self, units: set[int]) -> Charge:
        rows = [self.pool.units[unit].charge for unit in units]
        return (sum(row[0] for row in rows), sum(row[1] for row in rows), sum(row[2] for row in rows))

    def _queue_of(self, unit: int) -> int:
        return self.outcome.state.problem.gangs[self.pool.units[unit].gang].queue

    def _reclaimed(self) -> set[int]:
        reclaims = (a for a in self.outcome.admissions if a.action is Action.RECLAIM)
        return {unit for a in reclaims for unit in a.units if self.pool.has_left(unit)}

    # -- effect ----------------------------------------------------------------------------------------------------

    def _apply(self, model_input: LocalModelInput, joint: Joint, decision: Decision) -> bool:
        """Put the decision into effect with all that stays as it is elsewhere; False, and nothing, where it cannot."""
        outcome, state, hood = self.outcome, self.outcome.state, model_input.hood
        mark, admissions, before = state.mark(), outcome.admissions, Disturbed.of(state)
        elsewhere = disturbed_elsewhere(outcome, self.pool, hood.units)
        if not apply(state, self.pool, joint, decision, [(a.allocation_unit, a.action) for a in model_input.chosen]):
            return False
        if Disturbed.of(state).is_more_than(before):
            state.rollback(mark)
            return False
        outcome.replace_admissions(exchanged(outcome, self.pool, decision, hood.units, self.rights.takers))
        if reclaims_hold(outcome):
            return True
        outcome.replace_admissions(admissions)
        beside = model_input.join([], frozenset(elsewhere.units), NO_UNITS, NO_UNITS, (), may_move=True)
        whole = replace(joint, movers=(*joint.movers, *beside.movers))
        if attribute(outcome, whole, elsewhere.beside(decision), self.rights.takers):
            return True
        state.rollback(mark)
        outcome.replace_admissions(admissions)
        return False
