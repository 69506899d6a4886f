"""Making room for one allocation unit on one action: who may be taken, the cheapest way, and whether it is allowed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.allowance import Allowance
from kai_solver.actions.caps import passed_cap
from kai_solver.actions.evicting import Evictor
from kai_solver.actions.gang_order import goes_before
from kai_solver.actions.returning import could_return
from kai_solver.actions.room import RoomTable
from kai_solver.actions.survival import MOST_WAITING, survives
from kai_solver.domain import Action
from kai_solver.fairness import ReclaimLedger
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import never
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits
from kai_solver.planstate.budgets import keeps_budgets
from kai_solver.planstate.eligibility import Eligibility, Preemptor, reclaim_allowed, refuses_reclaim, was_counted
from kai_solver.planstate.outcome import Outcome, Refusal
from kai_solver.planstate.saving import free_milli, savings
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.reasons.refusals import (
    consolidation_is_off,
    may_not_move_pods,
    not_entitled,
    too_few_gpus_to_move,
)

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Before:
    """Numbers from before a question."""

    mark: int
    ledger: ReclaimLedger | None


class Disruption:
    """One disruptive action of one climb."""

    def __init__(
        self,
        outcome: Outcome,
        fits: FitTable,
        action: Action,
        gang_units: list[AllocationUnits],
        waiting: Sequence[int] = (),
        is_over: Callable[[], bool] = never,
    ) -> None:
        self.state: State = outcome.state
        self.outcome = outcome
        self.action = action
        self.fits = fits
        self.gang_units = gang_units
        self.waiting = waiting
        self.is_over = is_over
        self._eligibility: Eligibility | None = None
        self._evictors: dict[int, Evictor] = {}
        self._tables: dict[tuple[int, bool], RoomTable] = {}
        self._refused: dict[tuple[object, ...], Refusal] = {}
        self._short: dict[tuple[int, int], Refusal] = {}
        self._counted = (-1, 0)
        self._free: dict[bytes, BoolArray] = {}

    @property
    def pool(self) -> VictimPool:
        """Who could leave: found out when first asked for, since that costs a third of a quiet cycle."""
        if self.outcome.pool is None:
            self.outcome.pool = Disruption.pool_of(self.state)
        return self.outcome.pool

    @property
    def eligibility(self) -> Eligibility:
        """Who of the pool may be taken on this action."""
        if self._eligibility is None:
            self._eligibility = Eligibility(self.state, self.pool)
        return self._eligibility

    @staticmethod
    def pool_of(state: State) -> VictimPool:
        """Units of all preemptible gangs that run."""
        origin = state.problem.pod_node
        candidates = [g for g in state.problem.gangs if g.gang.preemptible and g.active]
        running = [g for g in candidates if all(origin[pod] >= 0 for pod in g.active)]
        return VictimPool(state, running)

    # -- rules that need no search -------------------------------------------------------------------------------

    def forbidden(self, preemptor: Preemptor) -> Refusal | None:
        """What forbids the action to this gang altogether; None where it may try."""
        if self.action is Action.CONSOLIDATION:
            return self._forbidden_moves(preemptor)
        if self.action is Action.RECLAIM:
            blocker = refuses_reclaim(self.state, preemptor)
            if blocker is not None:
                return not_entitled(blocker)
        return None

    def _forbidden_moves(self, preemptor: Preemptor) -> Refusal | None:
        if not preemptor.gang.gang.preemptible:
            return may_not_move_pods()
        if self.state.problem.policy.max_consolidation_gangs == 0:
            return consolidation_is_off()
        free = self._free_gpus()
        return self._too_few(preemptor.device_milli, free) if preemptor.device_milli > free else None

    def _free_gpus(self) -> int:
        """Thousandths of devices that are free, or that moves would free; counted once while nothing changes."""
        at, free = self._counted
        if at != len(self.state.touched):
            free = free_milli(self.state) + savings(self.state).total
            self._counted = (len(self.state.touched), free)
        return free

    def _too_few(self, wanted: int, free: int) -> Refusal:
        found = self._short.get((wanted, free))
        if found is None:
            found = self._short[wanted, free] = too_few_gpus_to_move(wanted, free)
        return found

    # -- memory of refusals --------------------------------------------------------------------------------------

    def _key(self, preemptor: Preemptor, signature: tuple[object, ...]) -> tuple[object, ...]:
        gang = preemptor.gang.gang
        where = (
            ()
            if self.action is Action.CONSOLIDATION
            else (preemptor.queue, gang.priority, gang.preemptible, gang.never_preempts)
        )
        return (*where, signature)

    def known_refusal(self, preemptor: Preemptor, signature: tuple[object, ...]) -> Refusal | None:
        """The answer that an equal question got on this action (KAI: scheduling signatures)."""
        return self._refused.get(self._key(preemptor, signature))

    def remember(self, preemptor: Preemptor, signature: tuple[object, ...], refusal: Refusal) -> None:
        """Equal questions get ``refusal``, until somebody is evicted: moves and places only take room."""
        self._refused[self._key(preemptor, signature)] = refusal

    def forget(self) -> None:
        """Somebody was admitted: where victims left, more room may be free than was taken."""
        if self.action is not Action.CONSOLIDATION:
            self._refused.clear()

    # -- search --------------------------------------------------------------------------------------------------

    def solve(self, preemptor: Preemptor, allocation_unit: AllocationUnit) -> list[int] | None:
        """Place ``allocation_unit``; the units that leave or move for it. None with the state unchanged where greedy
        fails.

        Also None once ``is_over``: it is asked before each pod, so that one large gang does not outlast its time.
        """
        for units, allowance in self._choices(preemptor):
            if self.is_over():
                return None
            evictor = self._evictor(units)
            if self.action is not Action.CONSOLIDATION and (
                not evictor.has_eligible or evictor.is_hopeless(allocation_unit)
            ):
                continue
            before = self._before(preemptor)
            found = evictor.make_room(allocation_unit, allowance)
            if found is None:
                continue
            if self._may_take_back(before) and self.is_allowed(preemptor, allocation_unit, found, before.ledger):
                return found
            self.state.rollback(before.mark)
        return None

    def ledger(self, preemptor: Preemptor) -> ReclaimLedger | None:
        """The queues' numbers before anything is done for ``preemptor``; None on other actions than reclaim."""
        return self._before(preemptor).ledger

    def _choices(self, preemptor: Preemptor) -> Iterator[tuple[BoolArray, Allowance | None]]:
        """Units to try, and what may be taken from whom; at last, those that no disruption budget counts."""
        last: BoolArray | None = None
        for units, allowance in self._choices_by_rights(preemptor):
            yield units, allowance
            last = units if last is None else last
        uses = self.pool.budget_uses
        if uses is not None and last is not None and (last & ~uses.free).any():
            yield self._uncounted(last & uses.free), None

    def _uncounted(self, units: BoolArray) -> BoolArray:
        """Equal masks are the same object."""
        return self._free.setdefault(units.tobytes(), units)

    def _choices_by_rights(self, preemptor: Preemptor) -> Iterator[tuple[BoolArray, Allowance | None]]:
        """Reclaim tries everybody within what each queue must give; then everybody, since who is only moved costs no
        right; then queue by queue.
        """
        if self.action is not Action.RECLAIM:
            yield self.eligibility.mask(self.action, preemptor), None
            return
        queues = self.eligibility.reclaim_queues(preemptor)
        eligible = self.eligibility.reclaim(preemptor, queues)
        yield eligible, Allowance(self.state, self.pool, preemptor.queue, preemptor.charge, queues)
        yield eligible, None
        if len(queues) > 1:
            for queue in queues:
                yield self.eligibility.reclaim(preemptor, (queue,)), None

    def settle(self, units: Iterable[int] | None = None) -> None:
        """After all questions: who was disturbed for one and is, after the later ones, in nobody's way comes home.

        ``units``: only these.
        """
        if self.outcome.pool is None:
            return
        pool = self.pool
        candidates = range(len(pool.units)) if units is None else units
        disturbed = [unit for unit in candidates if pool.is_disturbed(unit)]
        none_eligible = np.zeros(len(pool.units), dtype=np.bool_)
        chosen = self._may_return(disturbed)
        Evictor(pool, self.fits, self.action, none_eligible).return_all(pool.dearest_first(chosen))

    def _may_return(self, units: list[int]) -> list[int]:
        """The disturbed ``units`` without gangs of whom none could: where nobody moved, room only shrinks meanwhile."""
        pool = self.pool
        if not units or any(map(pool.is_moved, units)):
            return units
        could = could_return(self.state, [pool.units[unit].pods[0] for unit in units])
        gangs = {pool.units[unit].gang for unit, is_able in zip(units, could, strict=True) if is_able}
        return [unit for unit in units if pool.units[unit].gang in gangs]

    def _before(self, preemptor: Preemptor) -> _Before:
        if self.action is not Action.RECLAIM:
            return _Before(self.state.mark(), None)
        right = self.state.problem.reclaim_right(self.state.allocated, preemptor.queue, preemptor.charge)
        return _Before(self.state.mark(), ReclaimLedger(right))

    def evictor(self, preemptor: Preemptor, queues: tuple[int, ...]) -> Evictor:
        """Who makes room for ``preemptor`` at first; in reclaim, from the leaf ``queues``."""
        is_reclaim = self.action is Action.RECLAIM
        return self._evictor(
            self.eligibility.reclaim(preemptor, queues) if is_reclaim else self.eligibility.mask(self.action, preemptor)
        )

    def _evictor(self, units: BoolArray) -> Evictor:
        """The one for ``units``; equal masks are the same object, kept by the evictor itself."""
        found = self._evictors.get(id(units))
        if found is None:
            found = Evictor(self.pool, self.fits, self.action, units, self.is_over, self._tables)
            self._evictors[id(units)] = found
        return found

    def is_allowed(
        self, preemptor: Preemptor, allocation_unit: AllocationUnit, units: list[int], ledger: ReclaimLedger | None
    ) -> bool:
        """May these units be taken? Asked after the fact: the allocation unit is placed and the units are gone."""
        if not self._within_limits(preemptor) or not keeps_budgets(self.state):
            return False
        if self.action is Action.CONSOLIDATION:
            return self._moves_few_enough(units)
        if ledger is None:
            return True
        return reclaim_allowed(self.state, self.pool, ledger, units) and self._survives(
            preemptor, allocation_unit, units
        )

    def _may_take_back(self, before: _Before) -> bool:
        """May the places go that cores took with them, which their gangs got in this cycle?

        They never held them: a reclaim from their queues must not have counted them, neither now nor before. Moves
        take no place from any gang, so those do not either.
        """
        state, gangs = self.state, self.state.problem.gangs
        lifted = {p: place for step, p, place in state.journal[before.mark :] if step == "lift" and place is not None}
        lost = [p for p in lifted if p not in state.places and p not in state.gone]
        if lost and self.action is Action.CONSOLIDATION:
            return False
        for pod in lost:
            queue = gangs[state.problem.pod_gang[pod]].queue
            if was_counted(self.outcome, queue):
                return False
            if before.ledger is not None:
                before.ledger.forget(queue, lifted[pod].charge)
        return True

    def _within_limits(self, preemptor: Preemptor) -> bool:
        """Limits are tested with the victims already gone (docs/kai-behaviour.md#limits)."""
        asked = [r for r, amount in enumerate(preemptor.charge) if amount > 0]
        is_within = passed_cap(self.state, preemptor.gang, asked) is None
        return is_within and all(rule.keeps_caps() for rule in self.state.rules)

    def _moves_few_enough(self, units: list[int]) -> bool:
        limit = self.state.problem.policy.max_consolidation_gangs
        return limit < 0 or len({self.pool.units[u].gang for u in units}) <= limit

    def _survives(self, preemptor: Preemptor, allocation_unit: AllocationUnit, units: list[int]) -> bool:
        """Would the next cycle give the room to ``preemptor`` and not back to a victim? Else queues play ping-pong."""
        victims: dict[int, list[int]] = {}
        for unit in units:
            if self.pool.has_left(unit):
                victims.setdefault(self.pool.units[unit].gang, []).append(unit)
        if not all(
            goes_before(
                self.state, preemptor.gang, preemptor.charge, self.state.problem.gangs[gang], self._part_back(left)
            )
            for gang, left in victims.items()
        ):
            return False
        if len(self.waiting) > MOST_WAITING or not victims:
            return True
        evicted = [pod for left in victims.values() for unit in left for pod in self.pool.units[unit].pods]
        return survives(self.state, self.fits, self.gang_units, allocation_unit, evicted, self.waiting)

    def _part_back(self, units: list[int]) -> tuple[int, int, int]:
        """What the victim would ask for next cycle: its core, or one surplus pod."""
        chosen = [self.pool.units[u] for u in units]
        core = [u for u in chosen if u.is_core]
        return (core or chosen)[0].charge
