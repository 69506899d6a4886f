"""One climb of the ladder: allocate, consolidate, reclaim, preempt, then stale gangs.

Source: docs/how-a-cycle-decides.md#actions.

Within an action gangs come in policy order, re-evaluated as allocations grow. The greedy answers first. Where it finds
no way, an ``Oracle`` may be asked: it proves that there is none, or finds one.
"""

from collections.abc import Iterable

from kai_solver.actions.allocating import Admitter, Allocation
from kai_solver.actions.batch_probe import BatchProbe
from kai_solver.actions.caps import over_capacity
from kai_solver.actions.context import Context, Oracle, Pace, of_choice
from kai_solver.actions.disruption import Disruption
from kai_solver.actions.refused import Refused
from kai_solver.actions.stale import stale_gangs
from kai_solver.actions.swaps import Swaps
from kai_solver.actions.undoing import solve
from kai_solver.actions.yielding import give_way
from kai_solver.domain import Action
from kai_solver.errors import GangError
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.budgets import keeps_budgets
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.outcome import Admission, Outcome, Refusal
from kai_solver.problem import Problem
from kai_solver.reasons.refusals import LEFT_OUT, LargestNode, not_ready, within_delay

_RESUMED = (Action.CONSOLIDATION, Action.RECLAIM)
"""Actions that may give way to those after them where they serve nobody."""


class Actions:
    """Climbs action by action on one state."""

    def __init__(
        self,
        problem: Problem,
        actions: Iterable[Action],
        oracle: Oracle,
        pace: Pace | None = None,
        *,
        admission: str = "rank",
        admitter: Admitter | None = None,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self.problem = problem
        self.actions = tuple(actions)
        self.admitter = admitter
        self.left_out = left_out
        self.context = Context(problem, oracle, pace, admission)
        self.state = self.context.state
        self.outcome = self.context.outcome
        self.largest = LargestNode(problem)
        self._late: list[tuple[Action, list[int]]] = []

    def run(self) -> Outcome:
        """Climb all actions; gangs without a turn on an action that gave way get it after the others, if there is time.

        Raises
        ------
        GangError
            An unexpected error while a gang had its turn, or in what followed from it.
        """
        times = self.context.times
        try:
            return self._run_actions()
        except Exception as error:
            if times.gang is None:
                raise
            raise GangError(self.problem.gangs[times.gang].gang.key, error) from error
        finally:
            times.end()

    def _run_actions(self) -> Outcome:
        candidates = self._ready()
        for number, action in enumerate(self.actions):
            if action is Action.STALE:
                self._return_to_late()
            self.context.start(len(self.actions) - number, may_yield=action in _RESUMED)
            if self.context.is_over() and action is not Action.STALE:
                self.context.stop(action, candidates)
            elif action is Action.ALLOCATE:
                Allocation(self.context, self.admitter).run(candidates)
            elif action is Action.STALE:
                self._evict_stale()
            else:
                self._disturb(action, candidates)
        self._return_to_late()
        return self.outcome

    def _return_to_late(self) -> None:
        """Go on with actions that gave way, for all of the time that is left."""
        late, self._late = self._late, []
        for action, gangs in late:
            self.context.start(1)
            if not self.context.is_over():
                self._disturb(action, [gang for gang in gangs if self.context.gang_units[gang].waits()])
            else:
                self._late.append((action, gangs))
        for action, gangs in self._late:
            self.context.stop(action, gangs)
        self._late = []

    def _ready(self) -> list[int]:
        ready: list[int] = []
        for gang, units_of_gang in zip(self.problem.gangs, self.context.gang_units, strict=True):
            if not gang.waits and not self.left_out:
                continue
            refusal = not_ready(self.problem, gang, units_of_gang) if gang.waits else None
            if self.left_out and gang.gang.key in self.left_out:
                refusal = LEFT_OUT
            if refusal is None and not gang.pending:
                continue
            if refusal is None:
                ready.append(gang.index)
            else:
                for action in self.actions:
                    self.outcome.refuse(gang.index, action, refusal)
        return ready

    # -- actions that disturb --------------------------------------------------------------------------------------

    def _disturb(self, action: Action, candidates: list[int]) -> None:
        gang_order = self.context.gang_order(candidates)
        disruption = Disruption(
            self.outcome,
            self.context.placer.fits,
            action,
            self.context.gang_units,
            candidates,
            self.context.is_over,
        )
        swaps, refused = Swaps(self.context, disruption), Refused(self.context, action)
        batch_probe = BatchProbe(
            self.context, action, disruption, lambda allocation_unit: self._may_ask(disruption, allocation_unit)
        )
        while not gang_order.is_over:
            if self.context.is_over() or self.context.is_fruitless():
                self._late.append((action, list(gang_order.rest())))
                break
            if swaps.serve(gang_order):
                self.context.attempted(served=True)
                refused.forget()
                continue
            next_gang = gang_order.pop()
            if next_gang is None:
                break
            gang = next_gang.gang
            allocation_unit = self.context.gang_units[gang].next()
            if allocation_unit is None:
                continue  # Its core was evicted for an earlier one, and its surplus cannot run alone.
            kind, refusal = self.context.kind(gang), self._disturb_for(disruption, action, allocation_unit)
            self.context.attempted(served=refusal is None)
            if refusal is not None:
                self.outcome.refuse(gang, action, of_choice(refusal, allocation_unit), allocation_unit.pods)
                refused.note(kind, refusal)
                if refused.refuse_rest(gang_order):
                    break
            else:
                disruption.forget()
                refused.forget()
                gang_order.refresh()
                swaps.note(allocation_unit, self.outcome.admissions[-1].units)
                batch_probe.after(gang_order, allocation_unit)
        disruption.settle()

    def _disturb_for(self, disruption: Disruption, action: Action, allocation_unit: AllocationUnit) -> Refusal | None:
        preemptor = Preemptor.of(self.problem, allocation_unit)
        refusal = self._forbidden(disruption, preemptor, allocation_unit)
        if refusal is None and action is Action.CONSOLIDATION:
            refusal = over_capacity(self.state, allocation_unit)
        if refusal is not None:
            return refusal
        signature = self.context.signature(allocation_unit)
        refusal = disruption.known_refusal(preemptor, signature)
        if refusal is not None:
            return refusal
        refusal = self._make_room(disruption, preemptor, allocation_unit)
        if refusal is None or give_way(self.context, disruption, preemptor, allocation_unit):
            return None
        disruption.remember(preemptor, signature, refusal)
        return refusal

    def _make_room(
        self, disruption: Disruption, preemptor: Preemptor, allocation_unit: AllocationUnit
    ) -> Refusal | None:
        action = disruption.action
        refusal = self.context.refute(allocation_unit, action)
        if refusal is not None:
            return refusal
        found = self._without_victims(action, allocation_unit)
        if found is None:
            found = solve(self.outcome, disruption, preemptor, allocation_unit)
        if found is not None:
            self.outcome.admit(Admission(allocation_unit, action, tuple(found)))
            return None
        return self.context.ask(allocation_unit, action, disruption)

    def _forbidden(
        self, disruption: Disruption, preemptor: Preemptor, allocation_unit: AllocationUnit
    ) -> Refusal | None:
        """What needs no search: the delay, the rules of the action, and pods that fit no node at all."""
        refusal = within_delay(self.problem, preemptor.gang)
        if refusal is not None:
            return refusal
        refusal = disruption.forbidden(preemptor)
        if refusal is None or refusal.proof.method == "count":
            refusal = self.largest.refuses(allocation_unit) or refusal
        return refusal

    def _may_ask(self, disruption: Disruption, allocation_unit: AllocationUnit) -> bool:
        return self._forbidden(disruption, Preemptor.of(self.problem, allocation_unit), allocation_unit) is None

    def _without_victims(self, action: Action, allocation_unit: AllocationUnit) -> list[int] | None:
        """Earlier victims may have left more room than was taken: then nobody has to go."""
        if action is Action.CONSOLIDATION or over_capacity(self.state, allocation_unit) is not None:
            return None
        return [] if self.context.fits_free(allocation_unit) else None

    # -- stale gangs ---------------------------------------------------------------------------------------------

    def _evict_stale(self) -> None:
        for gang in stale_gangs(self.state, self.context.gang_units):
            state, mark = self.state.gangs[gang], self.state.mark()
            for pod in [p for leaf in state.active for p in leaf]:
                if pod in self.state.places:
                    self.state.lift(pod)
                else:
                    self.state.evict(pod)
            if self.state.keeps_rules() and keeps_budgets(self.state):
                self.outcome.stale.append(gang)
            else:
                # Newcomers count on it, who are not asked any more once they run; or a disruption budget holds it.
                self.state.rollback(mark)
