"""Decides a problem: the greedy's actions, what the solver makes of them, proofs, and moves off nodes to be drained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kai_solver import compiled
from kai_solver.actions import Actions
from kai_solver.actions.draining import move_away
from kai_solver.actions.paces import UntilLate
from kai_solver.bounds import Bounds
from kai_solver.domain import Action, SolverModel, Stage
from kai_solver.engine.asking import Asking
from kai_solver.engine.chains import is_for_chains, refuse_moves, without_moves
from kai_solver.engine.cycle_time import CycleTime
from kai_solver.engine.decided import Decided, stage_failed
from kai_solver.engine.first import FirstPlan
from kai_solver.engine.floor import Floor
from kai_solver.engine.improving import Improver
from kai_solver.engine.known import Known
from kai_solver.engine.pace import Pace
from kai_solver.engine.passed_over import AskingInOrder, UntilAnswered, is_better, passed_over, policy_order
from kai_solver.engine.prices import Prices
from kai_solver.engine.progress import FaultReporter, OnSlow
from kai_solver.engine.proving import PART_OF_ACTIONS, has_unknown, prove
from kai_solver.engine.stages import measured_stages
from kai_solver.errors.barrier import barrier, caught
from kai_solver.placement.placing import wait_for_company
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import Problem
from kai_solver.search.admission import MaxGpuAdmission
from kai_solver.search.child import SolverChild
from kai_solver.search.oracle import UNASKED, UNKNOWN

SHARE = 0.25
"""Part of the budget that the turns of one gang may take if other gangs then have no turn."""

MOST_PROMISED = 500
"""Nodes up to which the actions before the solver are those of ``greedy-only``, in the same pace: no stage is worse.
On larger clusters chains take the place of consolidation, which takes 0.2 to 0.4 s of CPU on openb (1,213 nodes). With
a tenth of the time for it, openb had 251 to 564 gangs on a busy machine; by chains alone 350 to 627 (2026-12-01)."""

UNASKED_STATES = ("unasked",)
"""Of proofs of gangs about which a model without a solver asked nothing."""


@dataclass(slots=True)
class Decider:
    """Decides one problem, once more without some gangs where the checker refuses what comes of it.

    Attributes
    ----------
    by_board
        Whether plain gangs have their turns on flat arrays.
    """

    problem: Problem
    model: SolverModel
    time: CycleTime
    seed: int
    bounds: Callable[[], Bounds]
    first: FirstPlan
    faults: FaultReporter
    by_board: bool
    _turns_s: Mapping[int, float] = field(default_factory=dict)
    """By gang, seconds that its turns took in the newest actions."""
    _was_stopped: bool = False
    """Whether some gang had no turn in them for lack of time."""

    def decide(self, child: SolverChild | None, left_out: frozenset[str]) -> Decided:
        """Decide without the gangs ``left_out``; without ``child``, the greedy's outcome is not changed."""
        model, time = self.model, self.time
        asking = Asking(model, time, self.seed, self.bounds, child)
        by_chains = child is not None and is_for_chains(self.problem, model)
        moves = Action.CONSOLIDATION in model.actions and not time.is_exact
        by_chains_alone = model.moves.are_limited or not self._is_promised
        leaves_moves = by_chains and moves and compiled.is_loaded() and by_chains_alone
        actions = without_moves(model.actions) if leaves_moves else model.actions
        outcome = self._run_actions(actions, asking, left_out)
        if by_chains and outcome.admissions and outcome.waiting:
            self.first.keep(outcome, at_end=True)
        time.phase("greedy")
        failed: list[str] = []
        # Not where chains follow: on loaded-1000 (seed 3, 2 s) the second run took 0.4 to 0.6 s of theirs, admitted the
        # same gangs, and let 34.4 million GPU-seconds leave in place of 18.4 million (2026-11-23).
        if child is not None and not by_chains and model.admission == "rank":
            try:
                outcome = self._ask_in_order(outcome, actions, asking, child, left_out)
            except Exception as error:
                failed.append(stage_failed(error))
        self._was_stopped = outcome.stopped
        known = Known(model)
        prices = Prices(model, time, known, self.faults)
        floor, refined, links = Floor(outcome), None, None
        try:
            improver = Improver(
                model,
                time,
                asking,
                known,
                prices,
                by_chains,
                leaves_moves,
                lambda end_s: self._run_actions(model.actions, asking, left_out, end_s),
                self.faults,
            )
            improved = improver.improve(outcome)
            outcome, refined, links = improved.outcome, improved.refined, improved.links
        except Exception as error:
            failed.append(stage_failed(error))
            floor.restore()
            if leaves_moves:
                refuse_moves(outcome, model.actions)
        self._prove(outcome, asking)
        bounds: Mapping[str, int] = {}
        try:
            bounds = prices.bounds(outcome, child, refined)
        except Exception as error:
            failed.append(stage_failed(error))
        measured = None
        try:
            measured = self._move_away(outcome, left_out)
        except Exception as error:
            why = caught("deciding", "moves off nodes to be drained", error)
            failed.append(f"an unexpected error, so no pod leaves a node to be drained: {why}")
        with barrier("deciding", "pods that wait for those that they require"):
            wait_for_company(outcome)
        errors = tuple(dict.fromkeys([*failed, *asking.errors]))
        for said in errors:
            self.faults.report(said)
        return Decided(outcome, refined, errors, links, bounds, measured)

    def tell_slow(self, on_slow: OnSlow) -> None:
        """Report gangs with turns that took more than their share, if some gang had no turn for lack of time."""
        for gang, seconds in self._turns_s.items() if self._was_stopped else ():
            if seconds > SHARE * self.time.budget_s:
                on_slow(self.problem.gangs[gang].gang.key, seconds)

    @property
    def _is_promised(self) -> bool:
        """Whether what the solver starts from is the plan of ``greedy-only``."""
        return len(self.problem.nodes) <= MOST_PROMISED

    def _run_actions(
        self, kinds: Sequence[Action], asking: Asking, left_out: frozenset[str], end_s: float | None = None
    ) -> Outcome:
        """Run actions in their pace, or all of them until ``end_s``."""
        time = self.time
        admitter, child = None, asking.child
        if child is not None and self.model.admission == "max-gpus":
            admitter = MaxGpuAdmission(asking.client(child, self.time.questions_s / 2))
        actions = Actions(
            self.problem,
            kinds,
            asking.oracle(UNASKED if child is None else UNKNOWN),
            Pace(time, is_patient=self._is_promised) if end_s is None else UntilLate(lambda: time.is_over_at(end_s)),
            admission=self.model.admission,
            admitter=admitter,
            left_out=left_out,
            between_attempts=self.first.keep,
            by_board=self.by_board and not left_out,
        )
        self._turns_s = actions.context.times.seconds
        return actions.run()

    def _ask_in_order(
        self,
        floor: Outcome,
        kinds: Sequence[Action],
        asking: Asking,
        child: SolverChild,
        left_out: frozenset[str],
    ) -> Outcome:
        """Run the actions again where gangs were passed over, and ask CP-SAT in policy order; the better outcome."""
        time = self.time
        questions, again_s = passed_over(floor, kinds), time.spent_s["greedy"]
        seconds = time.questions_s / 2 if time.is_exact else time.questions_s - again_s
        if not questions or floor.stopped or time.is_out() or seconds <= 0:
            return floor
        end_s = time.clock() + seconds + again_s
        oracle = AskingInOrder(asking.oracle(), asking.oracle(client=asking.client(child, seconds)), questions)
        pace = UntilAnswered(lambda: time.is_over_at(end_s), oracle.is_answered)
        actions = Actions(self.problem, kinds, oracle, pace, left_out=left_out)
        pace.outcome = actions.outcome
        outcome = actions.run()
        oracle.note_proofs(outcome, floor)
        time.phase("passed-over")
        is_best = oracle.has_admitted and not outcome.stopped
        return outcome if is_best and is_better(outcome, floor, policy_order(floor, kinds)) else floor

    def _prove(self, outcome: Outcome, asking: Asking) -> None:
        """Ask once more, of the final state, why gangs wait; for a little while even where the budget has ended."""
        if asking.child is None:
            self._prove_unasked(outcome, asking)
            return
        if not has_unknown(outcome) or self.time.should_stop():
            return
        left_s = self.time.left_until(self.time.longer_until_s)
        prove(outcome, self.model.actions, left_s, asking.oracle())
        self.time.phase("proofs")

    def _prove_unasked(self, outcome: Outcome, asking: Asking) -> None:
        """Without a solver: ask bounds of the final state about gangs of which the board asked nothing."""
        time = self.time
        if not self.by_board or time.should_stop() or not has_unknown(outcome, UNASKED_STATES):
            return
        now_s = time.clock()
        end_s = min(now_s + PART_OF_ACTIONS * time.spent_s["greedy"], now_s + time.left_s)
        prove(outcome, self.model.actions, time.left_until(end_s), asking.oracle(), UNASKED_STATES)
        time.phase("proofs")

    def _move_away(self, outcome: Outcome, left_out: frozenset[str]) -> Sequence[Stage] | None:
        """Move pods off nodes to be drained; the stages without that. For a little while even past the budget."""
        if not self.problem.leavers:
            return None
        model, time, end_s = self.model, self.time, self.time.longer_until_s
        measured = measured_stages(outcome, by_gpus=model.evicts_by_gpus, moves=model.moves)
        mark, is_exact = outcome.state.mark(), time.is_exact or not model.search.enabled
        try:
            move_away(
                outcome,
                may_move=Action.CONSOLIDATION in model.actions,
                most=model.moves.per_cycle,
                left_out=left_out,
                is_over=lambda: not is_exact and time.clock() > end_s,
            )
        except Exception:
            outcome.state.rollback(mark)
            outcome.moved_away.clear()
            outcome.unmoved.clear()
            raise
        time.phase("drains")
        return measured
