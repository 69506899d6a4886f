"""One cycle: snapshot, problem, greedy with the oracle ladder, stages, plan, check.

A pure function of its inputs and of the clock that it is given. The greedy always has a valid plan; the solver may
only make it better, and nothing leaves unchecked.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any, Self

from kai_solver import __version__, compiled
from kai_solver.actions import Actions, Answer, consolidate_late
from kai_solver.actions.draining import move_away
from kai_solver.actions.sparing import spare
from kai_solver.bounds import Bounds
from kai_solver.bounds.outlook import outlook_of
from kai_solver.chains.course import Course
from kai_solver.check import WASTE, Violation, check_plan
from kai_solver.check.optional import installed_checks
from kai_solver.domain import SEATING, Action, Plan, Snapshot, SolverModel, Stage
from kai_solver.engine.attempts import decided
from kai_solver.engine.chains import (
    CHAINS_SHARE,
    LEAST_BUILDS,
    LEAST_CHAINS,
    Chains,
    after_moves,
    is_for_chains,
    refuse_moves,
    without_moves,
)
from kai_solver.engine.counted import bounds_by_count, proven_by_count
from kai_solver.engine.decided import Decided, notes_of, source_of, stage_failed, with_bound, with_proven
from kai_solver.engine.first import FIRST_S, SOON, as_if_ended, is_worth_it
from kai_solver.engine.floor import Floor
from kai_solver.engine.pace import Pace
from kai_solver.engine.passed_over import AskingInOrder, UntilAnswered, is_better, passed_over, policy_order
from kai_solver.engine.progress import Fault, OnSlow, Progress
from kai_solver.engine.proving import LEAST_PART, PART_OF_ACTIONS, has_unknown, prove
from kai_solver.engine.retreat import NO_GANGS, RETREATS, blame, refused, retreat_note
from kai_solver.engine.stages import admission_stage, measured_stages, with_moved_work
from kai_solver.errors.barrier import barrier, caught
from kai_solver.errors.collector import without_collection
from kai_solver.model.families import family
from kai_solver.model.stages import stages
from kai_solver.planning.assemble import assemble
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.problem import Memo, Problem, build_problem
from kai_solver.problem.rules import installed_rules
from kai_solver.reasons.untold import tell
from kai_solver.search.admission import MaxGpuAdmission
from kai_solver.search.budget import SAFETY_S, Budget, promised_s
from kai_solver.search.child import SolverChild
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.linking import link_stage
from kai_solver.search.open_questions import OpenQuestions
from kai_solver.search.oracle import UNASKED, UNKNOWN, SolverActions
from kai_solver.search.pricing import Pricing
from kai_solver.search.refine import WHOLE, Refined, StageOptimizer, is_unproven
from kai_solver.search.reseat import reseat
from kai_solver.search.rights import Rights, rights_of
from kai_solver.search.solver_client import SolverClient
from kai_solver.units import UNLIMITED

Clock = Callable[[], float]
SHARE = 0.25
"""Part of the budget that the turns of one gang may take if other gangs then have no turn."""

READY_S = 10.0
"""Longest wait for the solver's start: 0.4 s on a quiet machine, a few seconds on a busy one (2026-11-21)."""

LEAST_KEPT_S, MOST_KEPT = 0.03, 0.25
"""Seconds that actions and questions leave to the plan and its check at least, and part of the budget at most."""


UNASKED_STATES = ("unasked",)
"""Of proofs of gangs about which a model without a solver asked nothing."""

PRICED_FROM = 1_000
"""Shapes times nodes from which prices are asked for before chains and stages. Of 4,000 equal pods on 500 nodes sums
prove all, and the programme would take 0.3 s of CPU (2026-11-23). Loaded clusters have so many from 150 nodes on: with
2,000, three of 14 twins of 150 to 300 nodes had no bound of evicted work at 2 s (2026-11-28).
"""

PRICING_PART = 0.25
"""Part of the time left that writing the programme down may take before chains are searched; else it comes after."""

POD_S = 5e-6
"""Seconds for each pod that the problem takes to build where nothing is known of it from the cycle before: 0.2 s on
5,000 loaded nodes with 35,000 pods. With a memo it takes 0.05 s there, and all that comes after it takes as long as
without (2026-11-29)."""

RIGHTS_BUILDS = 1.5
"""Seconds to find out what may be changed, for each second that the problem takes to build: 0.3 s on 5,000 loaded nodes
(CPU, 2026-11-29)."""

PRICING_BUILDS = 2.0
"""Seconds to write the linear programme down, for each second that the problem took to build: 0.22 s against 0.14 on
openb, 0.45 against 0.23 on loaded-5000 (CPU, 2026-11-23)."""

SHORT_CHAINS_S = 0.2
"""Seconds of chains below which prices are asked for after them. Else those of what was admitted before hold up those
of what is admitted now: with both, victims on a real twin of 1,000 nodes began 0.3 s later in a cycle of 2 s, and had
no time (2026-11-28)."""

AGAIN_PART = 0.8
"""Part of the time for victims and places that must be left where prices are asked for again: they take 0.3 s on 1,000
loaded nodes (2026-11-28), and those of fewer gangs serve as well."""

CHOOSING_S, MOST_FOR_VICTIMS = 2e-4, 0.9
"""Seconds a variable of the whole model to choose victims and places again, which chains leave for that, and the most
part of the time that is left: on 1,000 and 2,000 loaded nodes that halves the work which chains leave; on openb, with
180,000 variables, there is no time for it anyway (2026-11-23)."""

LATE_MOVES = 0.25
"""Part of the time left for questions in which gangs that chains left are consolidated for. On one of 71 random
clusters of 100 to 300 nodes with rules between pods, only `greedy-only` had served one of them (2026-11-29)."""

HURRIED = 0.25
"""Part of these seconds in which victims and places are mostly chosen, too. Chains have the least of the time then.
With 0.6, three clusters of 2,000 loaded nodes had gaps above 100% at 2 s; with 0.45 at most 0.6% (2026-11-28). The
choice has become faster since: 0.8 s with 14,000 variables, on real twins of 2,000 nodes (2026-11-30)."""

ASKING_S, MOST_FOR_QUESTIONS = 3e-4, 0.6
"""Seconds a node that one question to CP-SAT takes, which chains leave for that, and the most part of their time: 0.3 s
on 1,000 loaded nodes (2026-11-23). None where there is no time for victims: a question's model is as large."""


class Engine:
    """A solver child kept warm over many cycles of one model. Use as a context manager.

    Raises
    ------
    InputError
        A rule, check, constraint family or stage of an installed package cannot be loaded: found now, since in a cycle
        it would stop every decision.
    """

    def __init__(self, model: SolverModel, *, clock: Clock = time.monotonic, child: SolverChild | None = None) -> None:
        installed_rules()
        installed_checks()
        for name in model.families:
            family(name)
        for name in (stage.name for stage in model.stages if stage.name not in SEATING):
            stages(name)
        self.model = model
        self.clock = clock
        self.memo = Memo()
        self.child = child or SolverChild(memory_mib=model.search.memory_mib, clock=clock)

    def __enter__(self) -> Self:
        if self.model.search.enabled:
            self.child.warm()
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close()

    def wait(self, limit_s: float = READY_S) -> bool:
        """Wait until the solver can be asked, so that its start is not taken off a cycle's budget.

        False where it is not ready within ``limit_s`` seconds; then cycles are the greedy's until it is.
        """
        return not self.model.search.enabled or self.child.wait(limit_s)

    def cycle(self, snapshot: Snapshot, **options: Any) -> Plan:
        """Plan one cycle; options as of the function `cycle`. What did not change since the last one is kept."""
        options.setdefault("memo", self.memo)
        return cycle(snapshot, self.model, clock=self.clock, child=self.child, **options)


def cycle(
    snapshot: Snapshot,
    model: SolverModel,
    *,
    budget_s: float | None = None,
    clock: Clock = time.monotonic,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    child: SolverChild | None = None,
    on_fault: Callable[[Fault], None] | None = None,
    memo: Memo | None = None,
    explain: bool = True,
    on_slow: OnSlow | None = None,
) -> Plan:
    """Decide what to do this cycle. An unexpected error leaves out only the gang or node that causes it.

    Parameters
    ----------
    budget_s
        Seconds for the decision (the model's where None). It ends by 1.2 budgets + 0.2 s whatever the solver does.
    seed
        Of the solver; the greedy has no randomness.
    progress, should_stop
        Told what is found; asked whether to stop with the best plan so far.
    child
        A solver process to use; one is started, and ended, where None.
    on_fault
        Called with every failure of the solver and what is needed to replay it; the cycle goes on without the solver.
    memo
        Of earlier cycles of the same cluster: what did not change since is not worked out again. The plan is the same.
    explain
        False: what blocks is not needed, so smallest sets of it are not searched.
    on_slow
        Receives each gang whose turns took more than its share of the time while others had no turn.

    Returns
    -------
    Plan
        Checked. Where the checker refuses one, greedy's without the gangs that it blames; a note says so.
    """
    stop, seconds = should_stop or (lambda: False), model.budget_s if budget_s is None else budget_s

    made: list[_Run] = []

    def run_of(found: Snapshot, seconds: float) -> _Run:
        run = _Run(found, model, seconds, clock, seed, progress, stop, on_fault)
        run.explain = explain
        run.by_board = not made  # After an unexpected error all gangs have their turns one by one.
        made.append(run)
        return run

    if compiled.is_wanted(len(snapshot.nodes)):
        compiled.load_kept()  # Once a process, as imports; not in the budget.
    with without_collection():
        if child is not None or not model.search.enabled:
            return decided(run_of, snapshot, seconds, child, memo, on_slow)
        with SolverChild(memory_mib=model.search.memory_mib, clock=clock) as own:
            return decided(run_of, snapshot, seconds, own, memo, on_slow)


def _places(outcome: Outcome) -> int:
    """Shapes of what was admitted, and of what could leave for it, times nodes."""
    problem, pool = outcome.state.problem, outcome.pool
    pods = [pod for admission in outcome.admissions for pod in admission.allocation_unit.pods]
    pods += [pod for unit in pool.units for pod in unit.pods] if pool is not None else []
    return len({problem.modelled_shape(pod) for pod in pods}) * len(problem.nodes)


def _disturbs(outcome: Outcome) -> bool:
    """Whether any gang was admitted for which others leave or move."""
    return any(admission.units for admission in outcome.admissions)


class _Run:
    """One cycle's course."""

    def __init__(
        self,
        snapshot: Snapshot,
        model: SolverModel,
        budget_s: float,
        clock: Clock,
        seed: int,
        progress: Callable[[Progress], None] | None,
        should_stop: Callable[[], bool],
        on_fault: Callable[[Fault], None] | None,
    ) -> None:
        self.snapshot = snapshot
        self.model = replace(model, actions=snapshot.policy.enabled(model.actions))
        self.clock = clock
        self.seed = seed
        self.progress = progress
        self.should_stop = should_stop
        self.on_fault = on_fault
        self.start_s = clock()
        self.deadline_s = self.start_s + budget_s
        self.budget_s = budget_s
        self.timing: dict[str, float] = {}
        self.explain = True
        self.by_board = True
        self._child: SolverChild | None = None
        self._budgets: list[Budget] = []
        self._first: tuple[Plan | None, float] | None = None
        self._build_s = 0.0
        self._phase_s = self.start_s
        self._attempt_seconds: Mapping[int, float] = {}
        self._was_stopped = False
        self._actions = self.model.actions
        self._leaves_moves = False
        self._known_rights: tuple[list[Admission], int, Rights] | None = None
        self._known_estimate: tuple[Rights, int] | None = None
        self._known_sums: tuple[Rights, tuple[Stage, ...] | None] | None = None
        self._problem: Problem | None = None
        self._pricing: Pricing | None = None
        self._bounds: Callable[[], Bounds] | None = None

    def _oracle(self, without: Answer = UNKNOWN, client: SolverClient | None = None) -> SolverActions:
        """Asks bounds, which all that ask in this cycle share, and CP-SAT where there is a ``client``."""
        return SolverActions(client, without, self._bounds)

    def plan(self, child: SolverChild | None, memo: Memo | None) -> Plan:
        """Decide, assemble, check; fall back where the check refuses."""
        self._child = child
        if child is not None:
            child.take_phases()
        problem = build_problem(self.snapshot, memo)
        if self.model.prices_leftover:
            problem = replace(problem, outlook=outlook_of(problem, self.model.usual))
        if not self.model.counts_links:
            problem = replace(problem, fabric=None)
        self._bounds = cache(lambda: Bounds(problem))
        self._phase("build")
        self._build_s = max(self.timing["build"], POD_S * len(problem.pods))
        by_solver = child is not None and self.model.search.enabled
        plan, violations = self._try(problem, child if by_solver else None, NO_GANGS)
        notes: list[str] = []
        left_out: frozenset[str] = NO_GANGS
        for attempt in range(RETREATS):
            if not violations:
                break
            blamed = blame(problem, plan, violations) if attempt or not by_solver else NO_GANGS
            left_out |= blamed
            notes.append(retreat_note(violations, blamed))
            self.report(notes[-1])
            self.deadline_s = max(self.deadline_s, self.clock() + self.budget_s)
            plan, violations = self._try(problem, None, left_out)
        first, first_s = self._first or (None, 0.0)
        if violations:
            plan = refused(plan, violations, first)
            self.report(plan.notes[-1])
        self.timing |= child.take_phases() if child is not None else {}
        self.timing["decide"] = self.clock() - self.start_s
        self.timing["first-plan"] = first_s if first is not None else self.timing["decide"]
        return replace(plan, timing_s=dict(self.timing), notes=(*notes, *plan.notes))

    def _try(
        self, problem: Problem, child: SolverChild | None, left_out: frozenset[str]
    ) -> tuple[Plan, tuple[Violation, ...]]:
        """A plan without the gangs ``left_out``, and what forbids it; waste is told in its notes."""
        decided = self._decide(problem, child, left_out)
        plan = self._assembled(problem, decided)
        found = self._check(plan)
        waste = tuple(f"{v.object}: {v.text}" for v in found if v.rule in WASTE)
        return replace(plan, notes=(*plan.notes, *waste)), tuple(v for v in found if v.rule not in WASTE)

    def report(self, error: str) -> None:
        """Report a fault, with what is needed to reproduce it."""
        if self.on_fault is not None:
            self.on_fault(Fault(error, self.snapshot, self.model, self.budget_s, self.seed))

    def _decide(self, problem: Problem, child: SolverChild | None, left_out: frozenset[str]) -> Decided:
        self._budgets.clear()
        self._pricing = None
        by_chains = child is not None and is_for_chains(problem, self.model)
        moves = Action.CONSOLIDATION in self.model.actions and not self.model.search.deterministic
        self._leaves_moves = by_chains and moves and compiled.is_loaded()
        self._actions = without_moves(self.model.actions) if self._leaves_moves else self.model.actions
        outcome = self._run_actions(problem, left_out, child)
        tell(outcome, self._out_of_time)
        if by_chains and outcome.admissions and outcome.waiting:
            self.keep_first(outcome, at_end=True)
        self._phase("greedy")
        failed: list[str] = []
        # Not where chains follow: on loaded-1000 (seed 3, 2 s) the second run took 0.4 to 0.6 s of theirs, admitted the
        # same gangs, and let 34.4 million GPU-seconds leave in place of 18.4 million (2026-11-23).
        if child is not None and not by_chains and self.model.admission == "rank":
            try:
                outcome = self._ask_in_order(outcome, child, left_out)
            except Exception as error:
                failed.append(stage_failed(error))
        self._was_stopped, self._problem = outcome.stopped, problem
        floor, refined, links = Floor(outcome), None, None
        try:
            refined, links = self._improve(outcome, child)
        except Exception as error:
            failed.append(stage_failed(error))
            floor.restore()
            if self._leaves_moves:
                refuse_moves(outcome, self.model.actions)
        self._prove(outcome, child)
        bounds: Mapping[str, int] = {}
        try:
            bounds = self._least(outcome, child, refined)
        except Exception as error:
            failed.append(stage_failed(error))
        measured = None
        try:
            measured = self._move_away(outcome, left_out)
        except Exception as error:
            why = caught("deciding", "moves off nodes to be drained", error)
            failed.append(f"an unexpected error, so no pod leaves a node to be drained: {why}")
        errors = tuple(dict.fromkeys([*failed, *(error for budget in self._budgets for error in budget.errors)]))
        for said in errors:
            self.report(said)
        return Decided(outcome, refined, errors, links, bounds, measured)

    def _move_away(self, outcome: Outcome, left_out: frozenset[str]) -> Sequence[Stage] | None:
        """Move pods off nodes to be drained; the stages without that. For a little while even past the budget."""
        if not outcome.state.problem.leavers:
            return None
        measured = measured_stages(outcome, by_gpus="disruption-gpus" in self.model.disrupting, moves=self.model.moves)
        end_s = max(self.deadline_s, min(self.clock(), self.deadline_s) + LEAST_PART * self.budget_s)
        mark, is_exact = outcome.state.mark(), self.model.search.deterministic or not self.model.search.enabled
        try:
            move_away(
                outcome,
                may_move=Action.CONSOLIDATION in self.model.actions,
                most=self.model.moves.per_cycle,
                left_out=left_out,
                is_over=lambda: not is_exact and self.clock() > end_s,
            )
        except Exception:
            outcome.state.rollback(mark)
            outcome.moved_away.clear()
            outcome.unmoved.clear()
            raise
        self._phase("drains")
        return measured

    def _ask_prices(self, outcome: Outcome, child: SolverChild, part: float = 1.0) -> Pricing | None:
        """Ask for the prices of what is admitted now, where victims were taken and a ``part`` of the time is enough."""
        by_gpus = "disruption-gpus" in self.model.disrupting
        left_s = self._priced_until_s - self.clock()
        is_asked = _disturbs(outcome) and bool(self.model.disrupting)
        has_time = self.model.search.deterministic or part * left_s >= PRICING_BUILDS * self._build_s
        if not is_asked or self.should_stop() or not has_time:
            return None
        pricing = Pricing(child, by_gpus=by_gpus, should_stop=self.should_stop)
        values = {stage.name: stage.value for stage in measured_stages(outcome, by_gpus=by_gpus)}
        pricing.begin(outcome, self._rights(outcome), values, self._priced_until_s)
        self._phase("prices")
        return pricing

    @property
    def _priced_until_s(self) -> float:
        """When prices have to be there: before the plan is made; in a deterministic cycle whenever they are."""
        return self.clock() + SAFETY_S if self.model.search.deterministic else self.deadline_s - self.kept_s

    def _least(self, outcome: Outcome, child: SolverChild | None, refined: Refined | None) -> Mapping[str, int]:
        """Bounds of the stages of ``outcome``, by sums and by the linear programme; none where all of it is proven.

        None either where what may be changed is not known, and to find that out would end the cycle too late.
        """
        if child is None or not _disturbs(outcome) or (refined is not None and not is_unproven(refined.stages)):
            return {}
        if not self._knows_rights(outcome) and not self.model.search.deterministic:
            end_s = self.clock() + RIGHTS_BUILDS * self._build_s + self.kept_s
            if end_s - self.start_s > promised_s(self.budget_s):
                return {}
        by_gpus = "disruption-gpus" in self.model.disrupting
        values = {stage.name: stage.value for stage in measured_stages(outcome, by_gpus=by_gpus)}
        before, later = self._pricing, None
        found = [bounds_by_count(outcome, self._rights(outcome), values) or {}]
        if before is not None and before.covers(outcome, self._rights(outcome)):
            found.append(before.bounds(values, self._priced_until_s))
        if before is None or not before.is_of(outcome):
            later = self._ask_prices(outcome, child)
        if later is not None:
            found.append(later.bounds(values, self._priced_until_s))
        bounds = {name: max(one.get(name, 0) for one in found) for one in found for name in one}
        for error in [error for pricing in (before, later) if pricing is not None for error in pricing.errors]:
            self.report(error)
        self._phase("prices")
        return bounds

    def _pricing_of(self, outcome: Outcome) -> Pricing | None:
        """The prices that were asked for, where they say something of what is admitted now."""
        pricing = self._pricing
        return pricing if pricing is not None and pricing.covers(outcome, self._rights(outcome)) else None

    def _prove(self, outcome: Outcome, child: SolverChild | None) -> None:
        """Ask once more, of the final state, why gangs wait; for a little while even where the budget has ended."""
        if child is None:
            self._prove_unasked(outcome)
            return
        if not has_unknown(outcome) or self.should_stop():
            return
        end_s = max(self.deadline_s, min(self.clock(), self.deadline_s) + LEAST_PART * self.budget_s)
        prove(outcome, self.model.actions, self._left_until(end_s), self._oracle())
        self._phase("proofs")

    def _prove_unasked(self, outcome: Outcome) -> None:
        """Without a solver: ask bounds of the final state about gangs of which the board asked nothing."""
        if (
            not self._is_by_board(outcome.state.problem)
            or self.should_stop()
            or not has_unknown(outcome, UNASKED_STATES)
        ):
            return
        now_s = self.clock()
        end_s = min(now_s + PART_OF_ACTIONS * self.timing["greedy"], self.deadline_s - self.kept_s)
        prove(outcome, self.model.actions, self._left_until(end_s), self._oracle(), UNASKED_STATES)
        self._phase("proofs")

    def _left_until(self, end_s: float) -> Callable[[], float]:
        """Tells the seconds until then; without end in a deterministic cycle."""
        return lambda: inf if self.model.search.deterministic else end_s - self.clock()

    def _is_by_board(self, problem: Problem) -> bool:
        """Whether plain gangs have their turns on flat arrays: the cluster is large, and kernels are there.

        Uncompiled, turns on arrays take longer than one by one (600 nodes: 1.2 s of CPU a cycle, not 0.7; 2026-11-27).
        A deterministic cycle decides the same on every machine, with kernels or without.
        """
        is_large = len(problem.nodes) >= compiled.LARGE_NODES
        return self.by_board and is_large and compiled.is_loaded() and not self.model.search.deterministic

    def _improve(self, outcome: Outcome, child: SolverChild | None) -> tuple[Refined | None, Stage | None]:
        """Change ``outcome`` for the better; what was proven of its stages, and the stage of links.

        The prices of what is admitted are found in the solver's process while victims and places are. Where all gangs
        run and none has left or moved for them, only links are left to choose.
        """
        if outcome.state.problem.outlook is None and not _disturbs(outcome) and not outcome.waiting:
            spare(outcome)
            return None, self._link(outcome)
        is_priced = child is not None and _places(outcome) >= PRICED_FROM and not self._is_least(outcome)
        if child is not None and is_priced and self._chains_take_long(outcome):
            self._pricing = self._ask_prices(outcome, child, PRICING_PART)
        self._chain(outcome, child)
        # Victims take 1 to 3 s of CPU on 2,000 loaded nodes, questions all that is left (2026-11-23).
        are_victims_first = is_priced and not self._is_nearly_over() and self._estimate(outcome) > WHOLE
        refined = self._priced_refine(outcome, child, is_priced=is_priced) if are_victims_first else None
        admissions = len(outcome.admissions)
        self._consolidate_late(outcome)
        self._ask_open(outcome, child)
        if not are_victims_first or len(outcome.admissions) > admissions:
            refined = self._priced_refine(outcome, child, is_priced=is_priced) or refined
        spare(outcome)
        return refined, self._link(outcome)

    def _priced_refine(self, outcome: Outcome, child: SolverChild | None, *, is_priced: bool) -> Refined | None:
        """`_refine` with the prices of what is admitted now, else those of before where they still say something."""
        if self._is_nearly_over():
            return None  # To find out what may be changed alone takes 0.3 s of CPU on 5,000 loaded nodes (2026-11-29).
        if child is not None and is_priced and (self._pricing is None or not self._pricing.is_of(outcome)):
            before = self._pricing_of(outcome)
            if before is None or self._has_time_to_price_again(outcome):
                self._pricing = self._ask_prices(outcome, child) or before
        return self._refine(outcome, child)

    def _has_time_to_price_again(self, outcome: Outcome) -> bool:
        """Whether victims and places can still be chosen after new prices."""
        return self.model.search.deterministic or self._left_s() > AGAIN_PART * CHOOSING_S * self._estimate(outcome)

    def _kept_for_victims(self, outcome: Outcome, left_s: float) -> float:
        """Seconds of ``left_s`` that choosing victims and places again takes; 0 where it has no time anyway."""
        seconds, most = CHOOSING_S * self._estimate(outcome), MOST_FOR_VICTIMS * left_s
        return min(seconds, most) if HURRIED * seconds < most else 0.0

    def _kept_for_questions(self, outcome: Outcome) -> float:
        """Seconds that questions about gangs take which an action left open; chains answer for consolidation."""
        asked = 0
        for refusals in outcome.refusals.values():
            others = (r for action, r in refusals.items() if action not in (Action.ALLOCATE, Action.CONSOLIDATION))
            asked += any(refusal.proof.state == "unknown" for refusal in others)
        return asked * ASKING_S * len(outcome.state.problem.nodes)

    def _estimate(self, outcome: Outcome) -> int:
        """Variables (about) of the joint model with all nodes, counted once for the same rights."""
        rights, known = self._rights(outcome), self._known_estimate
        if known is None or known[0] is not rights:
            allocation_units = [(a.allocation_unit, a.action) for a in outcome.admissions]
            size = JointModelInput(outcome).size_estimate(allocation_units, rights.movable)
            known = self._known_estimate = rights, size
        return known[1]

    def _is_least(self, outcome: Outcome) -> bool:
        """Whether no gang waits, and sums prove that no less work could leave."""
        return not outcome.waiting and _disturbs(outcome) and self._counted(outcome) is not None

    def _counted(self, outcome: Outcome) -> tuple[Stage, ...] | None:
        """The stages where sums prove them all (`proven_by_count`), counted once for the same rights."""
        rights, known = self._rights(outcome), self._known_sums
        if known is None or known[0] is not rights:
            names = [stage.name for stage in self.model.stages]
            measured = measured_stages(outcome, moves=self.model.moves)
            lost = [stage for stage in measured if stage.name == "moved-work" and stage.value]
            found = proven_by_count(outcome, rights, names, [s for s in measured if s.name != "moved-work"])
            if found is not None and not self._is_proven_with(lost, found, outcome):
                found = None
            known = self._known_sums = rights, found
        return known[1]

    def _is_proven_with(self, lost: Sequence[Stage], proven: Sequence[Stage], outcome: Outcome) -> bool:
        """Whether the moves lose the least work (``lost``), with the ``proven`` stages at their bounds."""
        return all(stage.optimal for stage in with_moved_work([*proven, *lost], outcome, self.model.moves))

    def _chains_take_long(self, outcome: Outcome) -> bool:
        """Whether prices that are asked for before chains are found by their end; else they wait for what chains do."""
        seconds = self._chain_seconds(outcome, self._left_for_chains_s(outcome)) - PRICING_BUILDS * self._build_s
        return self.model.search.deterministic or seconds >= SHORT_CHAINS_S

    def _left_for_chains_s(self, outcome: Outcome) -> float:
        """Seconds until the plan has to be made, or the least that chains have where the greedy came to its end."""
        left_s = self.deadline_s - self.clock() - self.kept_s
        return left_s if outcome.stopped else max(left_s, LEAST_CHAINS * self.budget_s)

    def _chain_seconds(self, outcome: Outcome, left_s: float) -> float:
        """Seconds of ``left_s`` in which chains are searched."""
        kept_s = self._kept_for_victims(outcome, left_s)
        seconds = min(CHAINS_SHARE * left_s, left_s - kept_s)
        if kept_s and seconds > SHORT_CHAINS_S:  # In less they admit gangs by moves, which comes before questions.
            most = min(MOST_FOR_QUESTIONS * seconds, seconds - SHORT_CHAINS_S)
            seconds -= min(self._kept_for_questions(outcome), most)
        return seconds

    def _chain(self, outcome: Outcome, child: SolverChild | None) -> None:
        """On large clusters: admit by moves and swaps, and let less work leave."""
        search = self.model.search
        if child is None or not is_for_chains(outcome.state.problem, self.model) or self._is_least(outcome):
            return
        effect, left_s = None, self._left_for_chains_s(outcome)
        end_s = self.clock() + left_s

        def is_late() -> bool:
            return self._is_past(end_s)

        if search.deterministic or (left_s > LEAST_BUILDS * self._build_s and not self.should_stop()):
            clock = None if search.deterministic else self.clock
            course = Course(search.chains, self._chain_seconds(outcome, left_s), clock, self.should_stop)
            effect = Chains(outcome, self.model).run(course, self.seed, self._rights, is_late)
        self._phase("chains")
        if effect is not None and self.progress is not None:
            said = f"chains: {effect.admitted} gangs admitted, {effect.changed} of {effect.wanted} changes"
            self.progress(Progress(said, self.clock() - self.start_s))

    def _consolidate_late(self, outcome: Outcome) -> None:
        """Where moves were left to chains: consolidate for gangs that wait still, which chains may know no moves for.

        Chains know no rules between pods. Not where the moves of a cycle are limited: chains have counted theirs.
        """
        if not self._leaves_moves or not outcome.waiting:
            return
        is_limited = not self.model.moves.per_cycle == self.model.moves.per_gang == UNLIMITED
        end_s = self.clock() + LATE_MOVES * (self.deadline_s - self.kept_s - self.clock())

        def is_late() -> bool:
            return self.should_stop() or self.clock() >= end_s

        if not is_limited and not is_late():
            floor = Floor(outcome)
            try:
                consolidate_late(outcome, self._oracle(), is_late, after_moves(self.model.actions))
            except Exception as error:
                floor.restore()
                self.report(f"an unexpected error, so no pod moves late: {caught('deciding', 'late moves', error)}")
        refuse_moves(outcome, self.model.actions)
        self._phase("late-moves")

    def _run_actions(self, problem: Problem, left_out: frozenset[str], child: SolverChild | None) -> Outcome:
        admitter = None
        if child is not None and self.model.admission == "max-gpus":
            admitter = MaxGpuAdmission(self._solver_client(child, self._questions_s / 2, self.clock()))
        actions = Actions(
            problem,
            self._actions,
            self._oracle(UNASKED if child is None else UNKNOWN),
            Pace(self),
            admission=self.model.admission,
            admitter=admitter,
            left_out=left_out,
            between_attempts=self.keep_first,
            by_board=self._is_by_board(problem) and not left_out,
        )
        self._attempt_seconds = actions.context.times.seconds
        return actions.run()

    def _ask_in_order(self, floor: Outcome, child: SolverChild, left_out: frozenset[str]) -> Outcome:
        """Run the actions again where gangs were passed over, and ask CP-SAT in policy order; the better outcome."""
        questions, again_s = passed_over(floor, self._actions), self.timing["greedy"]
        is_exact = self.model.search.deterministic
        seconds = self._questions_s / 2 if is_exact else self._questions_s - again_s
        if not questions or floor.stopped or self._out_of_time() or seconds <= 0:
            return floor
        end_s = self.clock() + seconds + again_s
        client = self._solver_client(child, seconds, self.clock())
        oracle = AskingInOrder(self._oracle(), self._oracle(client=client), questions)
        pace = UntilAnswered(lambda: self.should_stop() or (not is_exact and self.clock() >= end_s), oracle.is_answered)
        actions = Actions(floor.state.problem, self._actions, oracle, pace, left_out=left_out)
        pace.outcome = actions.outcome
        outcome = actions.run()
        oracle.note_proofs(outcome, floor)
        self._phase("passed-over")
        is_best = oracle.has_admitted and not outcome.stopped
        return outcome if is_best and is_better(outcome, floor, policy_order(floor, self._actions)) else floor

    @property
    def _questions_s(self) -> float:
        """Seconds in which gangs may be asked for: of the clock, or of the deterministic budget."""
        search = self.model.search
        left_s = self.budget_s if search.deterministic else self.deadline_s - self.kept_s - self.clock()
        return search.questions_share * left_s

    def tell_slow(self, on_slow: OnSlow) -> None:
        """Report gangs whose turns took more than their share, if some gang had no turn for lack of time."""
        for gang, seconds in self._attempt_seconds.items() if self._was_stopped else ():
            if seconds > SHARE * self.budget_s and self._problem is not None:
                on_slow(self._problem.gangs[gang].gang.key, seconds)

    def keep_first(self, outcome: Outcome, *, at_end: bool = False) -> None:
        """Make the first plan of what was decided by now, once that has taken a while; no gang is between two steps.

        ``at_end``: the actions have ended, soon, and the solver goes on for gangs that wait.

        None past half of the budget: then the plan itself is near. None where kernels take the turns and no solver
        follows: on 5,000 loaded nodes all turns have been taken 0.8 s later, and it took 0.3 s of 2.4 s (2026-11-27).
        """
        took_s = self.clock() - self.start_s
        is_time = took_s <= SOON * self.budget_s if at_end else FIRST_S <= took_s <= self.budget_s / 2
        if not is_time or self._first is not None or self.model.search.deterministic:
            return
        has_solver = self._child is not None and self.model.search.enabled
        if not has_solver and self._is_by_board(outcome.state.problem):
            return
        if not at_end and not is_worth_it(outcome, self.clock() - self._phase_s):
            return
        self._phase("greedy")
        decided = Decided(as_if_ended(outcome, self.model.actions), None, ())
        self._first = None, 0.0
        with barrier("deciding", "the first plan"):
            plan = self._assembled(outcome.state.problem, decided, explain=False)
            if all(violation.rule in WASTE for violation in self._check(plan)):
                self._first = plan, self.clock() - self.start_s

    def _refine(self, outcome: Outcome, child: SolverChild | None) -> Refined | None:
        """Ask for better victims and moves if anything is disturbed; for better places if these are priced."""
        concerned = [a for a in outcome.admissions if a.units or outcome.state.problem.outlook is not None]
        if child is None or not concerned or self._out_of_time():
            return None
        rights = self._rights(outcome)
        stages = self._counted(outcome)
        if stages is not None:
            reseat(outcome)
            refined = Refined(stages, improved=False)
        else:
            client = self._solver_client(child, self._left_s(), self.clock())
            stage_optimizer = StageOptimizer(client, self._stage_progress)
            pricing = self._pricing_of(outcome)
            priced = None if pricing is None else pricing.priced(self._priced_until_s)
            if pricing is None or priced is None:
                refined = stage_optimizer.refine(outcome, rights)
            else:
                refined = stage_optimizer.refine(outcome, rights, priced.least, priced.leaving, pricing.leaving_by)
        self._phase("stages")
        return refined

    def _rights(self, outcome: Outcome) -> Rights:
        """What the stages may change, found once for the same admissions: 0.14 s of CPU on openb (2026-11-23)."""
        known = self._known_rights
        if known is None or not self._knows_rights(outcome):
            known = self._known_rights = outcome.admissions, outcome.version, rights_of(outcome)
        return known[2]

    def _knows_rights(self, outcome: Outcome) -> bool:
        known = self._known_rights
        return known is not None and known[0] is outcome.admissions and known[1] == outcome.version

    def _left_s(self) -> float:
        """Seconds that the questions left: of the clock, or of the deterministic budget."""
        search = self.model.search
        if search.deterministic:
            return self.budget_s * (1 - search.questions_share)
        return self.deadline_s - self.clock()

    @property
    def kept_s(self) -> float:
        """Seconds kept for the plan and its check: as many as the first plan took, or as the problem takes to build.

        5,000 nodes: 0.35 s, and 0.1 to 0.4 s (CPU, 2026-11-21); 648 nodes: 0.02 s, and 0.02 to 0.03 s (2026-11-22).
        """
        first_s = self.timing.get("plan", 0.0) + self.timing.get("check", 0.0)
        return min(max(self._build_s, first_s, LEAST_KEPT_S), MOST_KEPT * self.budget_s)

    def _ask_open(self, outcome: Outcome, child: SolverChild | None) -> None:
        """Ask CP-SAT for gangs whose answer is open, in policy order."""
        seconds = self._questions_s
        if child is None or not has_unknown(outcome) or self._out_of_time() or seconds <= 0:
            return
        solver_client = self._solver_client(child, seconds, self.clock())
        by_size = self.model.admission == "max-gpus"
        # First rules and bounds for all: a proof of theirs takes milliseconds, and one question to CP-SAT may take all.
        for oracle in (self._oracle(), self._oracle(client=solver_client)):
            questions = OpenQuestions(outcome, self.model.actions, oracle, by_size=by_size)
            questions.run(lambda: solver_client.is_out_of_time)
        self._phase("questions")

    def _link(self, outcome: Outcome) -> Stage | None:
        """Exchange seats and victims for better links; None where these make no difference."""
        if outcome.state.problem.fabric is None or self._out_of_time():
            return None
        share_s = sum(s.share for s in self.model.stages if s.name == "links") * self.budget_s
        end_s = self.clock() + share_s
        if not self.model.search.enabled:
            end_s = max(end_s, self.start_s + self.budget_s / 2)  # The same on every machine that has time.
        stage = link_stage(
            outcome,
            lambda: self._rights(outcome),
            lambda: not self.model.search.deterministic and self.clock() > end_s,
            by_gpus="disruption-gpus" in self.model.disrupting,
        )
        self._phase("links")
        return stage

    def _assembled(self, problem: Problem, decided: Decided, *, explain: bool = True) -> Plan:
        if explain:
            tell(decided.outcome, self._is_long_over)
        plan = assemble(problem, decided.outcome, self._is_late if self.explain and explain else lambda: True)
        self._phase("plan")
        stages = self._stages(plan, decided)
        return replace(
            plan,
            stages=stages,
            source=source_of(decided, stages),
            model=self.model.name,
            model_hash=self.model.hash,
            seed=self.seed,
            versions=self._versions(),
            notes=tuple(notes_of(decided)),
            unclaimed=decided.refined.unclaimed if decided.refined is not None else "",
        )

    def _versions(self) -> dict[str, str]:
        solver = self._child.ortools_version if self._child is not None else ""
        return {"kai-solver": __version__} | ({"ortools": solver} if solver else {})

    def _stages(self, plan: Plan, decided: Decided) -> tuple[Stage, ...]:
        """Admission first; then what the solver proved of each stage, or what the plan costs with trivial bounds."""
        found = {s.name: s for s in decided.refined.stages} if decided.refined is not None else {}
        by_gpus = "disruption-gpus" in self.model.disrupting
        measured = decided.measured
        if measured is None:
            measured = measured_stages(decided.outcome, by_gpus=by_gpus, moves=self.model.moves)
        merged = [with_bound(stage, found.pop(stage.name, None)) for stage in measured]
        merged = [with_proven(stage, decided.bounds.get(stage.name)) for stage in merged]
        merged = with_moved_work(merged, decided.outcome, self.model.moves)
        links = (decided.links,) if decided.links is not None else ()
        return (admission_stage(plan), *merged, *links, *found.values())

    def _check(self, plan: Plan) -> tuple[Violation, ...]:
        violations = check_plan(self.snapshot, plan, actions=self.model.actions)
        self._phase("check")
        return violations

    def _solver_client(self, child: SolverChild, seconds: float, start_s: float) -> SolverClient:
        budget = Budget(seconds, self.clock, start_s, self.model.search.deterministic)
        self._budgets.append(budget)
        return SolverClient(self.model, child, budget, self.seed, self.should_stop)

    def _out_of_time(self) -> bool:
        return self.should_stop() or self._is_late()

    def _is_late(self) -> bool:
        return self._is_past(self.deadline_s)

    def _is_past(self, end_s: float) -> bool:
        """Whether it is so late; never in a deterministic cycle."""
        return not self.model.search.deterministic and self.clock() >= end_s

    def _is_nearly_over(self) -> bool:
        """Whether no more time is left than the plan and its check take."""
        return self.should_stop() or self._is_past(self.deadline_s - self.kept_s)

    def _is_long_over(self) -> bool:
        """Whether even the time for proofs of the final state has ended, or the cycle is told to stop."""
        return self.should_stop() or self._is_past(self.deadline_s + LEAST_PART * self.budget_s)

    def _phase(self, name: str) -> None:
        now = self.clock()
        self.timing[name] = self.timing.get(name, 0.0) + now - self._phase_s
        self._phase_s = now
        if self.progress is not None:
            self.progress(Progress(name, now - self.start_s))

    def _stage_progress(self, stage: str, incumbent: int | None, bound: int) -> None:
        if self.progress is not None:
            best = None if incumbent is None else float(incumbent)
            self.progress(Progress(stage, self.clock() - self.start_s, best, float(bound)))
