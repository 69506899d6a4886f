"""One run from a snapshot to a plan that the checker has passed."""

from dataclasses import dataclass, field, replace
from functools import cache

from kai_solver import compiled
from kai_solver.bounds import Bounds
from kai_solver.bounds.outlook import outlook_of
from kai_solver.check import WASTE, Violation
from kai_solver.domain import Plan, Snapshot, SolverModel
from kai_solver.engine.cycle_time import CycleTime
from kai_solver.engine.decided import Decided
from kai_solver.engine.deciding import Decider
from kai_solver.engine.first import FirstPlan, as_if_ended
from kai_solver.engine.plan_maker import PlanMaker
from kai_solver.engine.progress import FaultReporter, OnSlow
from kai_solver.engine.retreat import NO_GANGS, RETREATS, blame, refused, retreat_note
from kai_solver.placement.placing import wait_for_company
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import Memo, Problem, build_problem
from kai_solver.search.child import SolverChild


@dataclass(slots=True)
class Run:
    """One run.

    Attributes
    ----------
    model
        Without the actions that the snapshot's policy disables.
    explain
        False: what blocks is not needed, so smallest sets of it are not searched.
    may_use_board
        False: all gangs have their turns one by one.
    """

    snapshot: Snapshot
    model: SolverModel
    time: CycleTime
    seed: int
    explain: bool
    may_use_board: bool
    faults: FaultReporter
    _decider: Decider | None = field(init=False, default=None)

    def plan(self, child: SolverChild | None, memo: Memo | None) -> Plan:
        """Decide, assemble, check; fall back where the check refuses."""
        if child is not None:
            child.take_phases()
        problem = self._problem(memo)
        self.time.built(len(problem.pods))
        maker = PlanMaker(self.snapshot, self.model, self.time, self.seed, self.explain, child)
        by_solver = child is not None and self.model.search.enabled
        self._decider = decider = self._decider_of(problem, maker, by_solver=by_solver)
        plan, violations = _try(decider, maker, child if by_solver else None, NO_GANGS)
        notes: list[str] = []
        left_out: frozenset[str] = NO_GANGS
        for attempt in range(RETREATS):
            if not violations:
                break
            blamed = blame(problem, plan, violations) if attempt or not by_solver else NO_GANGS
            left_out |= blamed
            notes.append(retreat_note(violations, blamed))
            self.faults.report(notes[-1])
            self.time.begin_again()
            plan, violations = _try(decider, maker, None, left_out)
        first = decider.first
        if violations:
            plan = refused(plan, violations, first.plan)
            self.faults.report(plan.notes[-1])
        timing = self.time.spent_s | (child.take_phases() if child is not None else {})
        timing["decide"] = self.time.elapsed_s
        timing["first-plan"] = first.made_s if first.plan is not None else timing["decide"]
        return replace(plan, timing_s=timing, notes=(*notes, *plan.notes))

    def tell_slow(self, on_slow: OnSlow) -> None:
        """As of `Decider.tell_slow`."""
        if self._decider is not None:
            self._decider.tell_slow(on_slow)

    def _problem(self, memo: Memo | None) -> Problem:
        problem = build_problem(self.snapshot, memo)
        if self.model.prices_leftover:
            problem = replace(problem, outlook=outlook_of(problem, self.model.usual))
        return problem if self.model.counts_links else replace(problem, fabric=None)

    def _decider_of(self, problem: Problem, maker: PlanMaker, *, by_solver: bool) -> Decider:
        by_board = self._is_by_board(problem)
        actions = self.model.actions

        def first_plan(outcome: Outcome) -> Plan | None:
            mark = outcome.state.mark()
            wait_for_company(outcome)
            plan = maker.plan(problem, Decided(as_if_ended(outcome, actions), None, ()), in_full=False)
            outcome.state.rollback(mark)
            return plan if all(violation.rule in WASTE for violation in maker.check(plan)) else None

        return Decider(
            problem=problem,
            model=self.model,
            time=self.time,
            seed=self.seed,
            bounds=cache(lambda: Bounds(problem)),
            first=FirstPlan(self.time, first_plan, not self.time.is_exact and (by_solver or not by_board)),
            faults=self.faults,
            by_board=by_board,
        )

    def _is_by_board(self, problem: Problem) -> bool:
        """Whether plain gangs have their turns on flat arrays: the cluster is large, and kernels are there.

        Uncompiled, turns on arrays take longer than one by one (600 nodes: 1.2 s of CPU a cycle, not 0.7; 2026-11-27).
        A deterministic cycle decides the same on every machine, with kernels or without.
        """
        is_large = len(problem.nodes) >= compiled.LARGE_NODES
        return self.may_use_board and is_large and compiled.is_loaded() and not self.time.is_exact


def _try(
    decider: Decider, maker: PlanMaker, child: SolverChild | None, left_out: frozenset[str]
) -> tuple[Plan, tuple[Violation, ...]]:
    """A plan without the gangs ``left_out``, and what forbids it; waste is told in its notes."""
    plan = maker.plan(decider.problem, decider.decide(child, left_out))
    found = maker.check(plan)
    waste = tuple(f"{v.object}: {v.text}" for v in found if v.rule in WASTE)
    return replace(plan, notes=(*plan.notes, *waste)), tuple(v for v in found if v.rule not in WASTE)
