"""What consolidation, reclaim and preemption share: the search for victims that make room for one allocation unit.

`VictimSearch.make_room` is the search. What differs stands in `consolidate`, `reclaim` and `preempt`, each of which
answers the same questions:

1. `refusal`: which gangs may ask for victims at all;
2. `candidates`: which work may be taken, in which order sets of it are tried;
3. `accepts`: what is checked once the unit is placed and the victims are gone. What fails the check is rolled back.

How room is made with one set of candidates is in `actions.room`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.accelerators.returning import could_return
from kai_solver.actions.allowance import Allowance
from kai_solver.actions.caps import passed_cap
from kai_solver.actions.room.evictor import Evictor
from kai_solver.actions.room.table import RoomTable
from kai_solver.domain import Action
from kai_solver.fairness import ReclaimLedger
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import never
from kai_solver.planstate.allocation_units import AllocationUnit, GangUnits
from kai_solver.planstate.eligibility import Eligibility, Preemptor, was_counted
from kai_solver.planstate.outcome import Outcome, Refusal
from kai_solver.planstate.signature import signature_of_each
from kai_solver.planstate.state import Place, State
from kai_solver.planstate.victims import VictimPool

BoolArray = NDArray[np.bool_]

Candidates = tuple[BoolArray, Allowance | None]
"""(U,) eviction units that may be taken, and how much of each queue; None: whatever the check allows."""


class VictimSearch(ABC):
    """One action of one cycle that makes room by evicting or moving running pods.

    ``waiting``: the gangs that the action serves. ``is_over``: True once the time of the action has ended.
    """

    action: ClassVar[Action]

    uses_free_room: ClassVar[bool] = True
    """Whether a unit that fits without victims is admitted: earlier victims may have left more than was taken."""

    def __init__(
        self,
        outcome: Outcome,
        fits: FitTable,
        gang_units: GangUnits,
        waiting: Sequence[int] = (),
        is_over: Callable[[], bool] = never,
    ) -> None:
        self.state: State = outcome.state
        self.problem = outcome.state.problem
        self.outcome = outcome
        self.fits = fits
        self.gang_units = gang_units
        self.waiting = waiting
        self.is_over = is_over
        self._eligibility: Eligibility | None = None
        self._evictors: dict[int, Evictor] = {}
        self._tables: dict[tuple[int, bool], RoomTable] = {}
        self._refused: dict[tuple[object, ...], Refusal] = {}
        self._vain: dict[tuple[object, ...], int] = {}
        self._free: dict[bytes, BoolArray] = {}

    @property
    def pool(self) -> VictimPool:
        """Eviction units of all preemptible gangs that run. Made on first use: that costs a third of a quiet cycle."""
        if self.outcome.pool is None:
            self.outcome.pool = VictimPool.of_running(self.state)
        return self.outcome.pool

    @property
    def eligibility(self) -> Eligibility:
        """Which units of the pool the action may take."""
        if self._eligibility is None:
            self._eligibility = Eligibility(self.state, self.pool)
        return self._eligibility

    @property
    def free_milli(self) -> int:
        """In consolidation, thousandths of devices that are free, or that moves would free; 0 in other actions."""
        return 0

    # -- what the actions answer each for itself -------------------------------------------------------------------

    @abstractmethod
    def refusal(self, preemptor: Preemptor) -> Refusal | None:
        """What forbids the action to this gang, whatever the victims; None where it may try."""

    def over_capacity(self, _allocation_unit: AllocationUnit) -> Refusal | None:
        """What forbids the unit before victims are sought. Limits are usually tested with the victims gone."""
        return None

    def candidates(self, preemptor: Preemptor) -> Iterator[Candidates]:
        """Sets of units to take victims from, in the order in which they are tried."""
        yield self.eligible(preemptor, ()), None

    def eligible(self, preemptor: Preemptor, _queues: tuple[int, ...]) -> BoolArray:
        """(U,) units that may be taken for ``preemptor``; in reclaim, those of the leaf ``queues``."""
        return self.eligibility.mask(self.action, preemptor)

    def ledger(self, _preemptor: Preemptor) -> ReclaimLedger | None:
        """In reclaim, what the queues hold before any victim is taken; None in other actions."""
        return None

    def accepts(
        self,
        _preemptor: Preemptor,
        _allocation_unit: AllocationUnit,
        _units: list[int],
        _ledger: ReclaimLedger | None,
    ) -> bool:
        """The action's own check of the set ``units``, with the unit placed and the victims gone."""
        return True

    # -- search ----------------------------------------------------------------------------------------------------

    def find(self, preemptor: Preemptor, allocation_unit: AllocationUnit) -> list[int] | None:
        """Place ``allocation_unit`` for ``preemptor``; as `make_room`, unless an action does more."""
        return self.make_room(preemptor, allocation_unit)

    def make_room(self, preemptor: Preemptor, allocation_unit: AllocationUnit) -> list[int] | None:
        """Place ``allocation_unit``; the units that leave or move for it. None, with the state unchanged, if none do.

        Also None once ``is_over``: it is asked before each pod, so that one large gang does not outlast its time.
        """
        for units, allowance in self._all_candidates(preemptor):
            if self.is_over():
                return None
            evictor = self._evictor(units)
            if self._is_hopeless(evictor, allocation_unit):
                continue
            mark, ledger = self.state.mark(), self.ledger(preemptor)
            found = evictor.make_room(allocation_unit, allowance)
            if found is None:
                continue
            lost = self._places_lost(mark)
            if self._may_lose(lost, ledger) and self.is_allowed(preemptor, allocation_unit, found, ledger):
                return found
            self.state.rollback(mark)
        return None

    def _all_candidates(self, preemptor: Preemptor) -> Iterator[Candidates]:
        """The candidates; finally those of the first set of which no optional rule counts how many leave."""
        first: BoolArray | None = None
        for units, allowance in self.candidates(preemptor):
            yield units, allowance
            first = units if first is None else first
        counted = self.pool.releases.counted
        if counted is not None and first is not None and (first & counted).any():
            uncounted = first & ~counted
            yield self._free.setdefault(uncounted.tobytes(), uncounted), None  # Equal masks are the same object.

    def _evictor(self, units: BoolArray) -> Evictor:
        """The evictor of the set ``units``. Equal masks are the same object, which the evictor keeps alive."""
        found = self._evictors.get(id(units))
        if found is None:
            found = Evictor(self.pool, self.fits, self.action, units, self.is_over, self._tables)
            self._evictors[id(units)] = found
        return found

    def evictor(self, preemptor: Preemptor, queues: tuple[int, ...]) -> Evictor:
        """The evictor that is tried first for ``preemptor``; in reclaim, with victims of the leaf ``queues``."""
        return self._evictor(self.eligible(preemptor, queues))

    def _is_hopeless(self, evictor: Evictor, allocation_unit: AllocationUnit) -> bool:
        return not evictor.has_eligible or evictor.is_hopeless(allocation_unit)

    # -- checks with the victims gone --------------------------------------------------------------------------------

    def is_allowed(
        self, preemptor: Preemptor, allocation_unit: AllocationUnit, units: list[int], ledger: ReclaimLedger | None
    ) -> bool:
        """Whether ``units`` may be taken, with the unit placed and the victims gone.

        Tested are limits (docs/kai-behaviour.md#limits), also those of optional rules, which running pods these
        let go, and what the action checks itself.
        ``ledger``: from before the victims were taken.
        """
        asked = [r for r, amount in enumerate(preemptor.charge) if amount > 0]
        is_within = passed_cap(self.state, preemptor.gang, asked) is None
        if not is_within or not all(rule.keeps_caps() for rule in self.state.rules) or not self.state.may_be_gone():
            return False
        return self.accepts(preemptor, allocation_unit, units, ledger)

    def _places_lost(self, mark: int) -> dict[int, Place]:
        """Places that gangs got in this cycle and that were lost since ``mark``, with the core that left, by pod."""
        state = self.state
        lifted = {pod: place for step, pod, place in state.journal[mark:] if step == "lift" and place is not None}
        return {pod: place for pod, place in lifted.items() if pod not in state.places and pod not in state.gone}

    def _may_lose(self, lost: dict[int, Place], ledger: ReclaimLedger | None) -> bool:
        """Whether these places may be lost. Their pods never ran there, so no reclaim may have counted them."""
        for pod, place in lost.items():
            queue = self.problem.gangs[self.problem.pod_gang[pod]].queue
            if was_counted(self.outcome, queue):
                return False
            if ledger is not None:
                ledger.forget(queue, place.charge)
        return True

    # -- equal questions get equal answers -----------------------------------------------------------------------------

    def known_refusal(self, preemptor: Preemptor, signature: tuple[object, ...]) -> Refusal | None:
        """The answer that an equal question got in this action (KAI: scheduling signatures)."""
        return self._refused.get((*self._rights_of(preemptor), signature))

    def is_vain(self, preemptor: Preemptor, unit: AllocationUnit) -> bool:
        """Whether room was sought in vain for fewer pods, each as those of ``unit``, and with the same rights.

        Three of four gangs that share GPUs on 5,000 loaded nodes so spare a consolidation of 35 ms each (2026-11-29).
        """
        each = signature_of_each(self.state, unit) if self._vain else None
        return each is not None and self._vain.get((*self._rights_of(preemptor), each), len(unit.pods)) < len(unit.pods)

    def remember(
        self, preemptor: Preemptor, unit: AllocationUnit, signature: tuple[object, ...], refusal: Refusal
    ) -> None:
        """Equal questions get ``refusal`` until a gang is admitted, and no room is sought for more of such pods."""
        rights = self._rights_of(preemptor)
        self._refused[*rights, signature] = refusal
        each = signature_of_each(self.state, unit)
        if each is not None:
            self._vain[*rights, each] = min(len(unit.pods), self._vain.get((*rights, each), len(unit.pods)))

    def forget(self) -> None:
        """A gang was admitted: where its victims left, more room may be free than it took."""
        self._refused.clear()
        self._vain.clear()

    def _rights_of(self, preemptor: Preemptor) -> tuple[object, ...]:
        """What of a gang decides which victims it may take."""
        gang = preemptor.gang.gang
        return (preemptor.queue, gang.priority, gang.preemptible, gang.never_preempts)

    # -- after the search --------------------------------------------------------------------------------------------

    def settle(self, units: Iterable[int] | None = None) -> None:
        """Return disturbed ``units`` (all, if None) to where they ran, if later admissions left their places free."""
        if self.outcome.pool is None:
            return
        pool = self.pool
        if units is None:
            units = np.flatnonzero(pool.are_disturbed()).tolist()
        disturbed = [unit for unit in units if pool.is_disturbed(unit)]
        none = np.zeros(len(pool.units), dtype=np.bool_)
        Evictor(pool, self.fits, self.action, none).return_all(pool.dearest_first(self._may_return(disturbed)))

    def _may_return(self, units: list[int]) -> list[int]:
        """The disturbed ``units``, without those of gangs that cannot return: while none moves, room only shrinks."""
        pool = self.pool
        if not units or any(map(pool.is_moved, units)):
            return units
        could = could_return(self.state, [pool.units[unit].pods[0] for unit in units])
        gangs = {pool.units[unit].gang for unit, is_able in zip(units, could, strict=True) if is_able}
        return [unit for unit in units if pool.units[unit].gang in gangs]
