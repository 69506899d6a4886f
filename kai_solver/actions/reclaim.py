"""Reclaim: a queue below its fair share takes from queues above theirs.

Source: docs/kai-behaviour.md#reclaim. What a queue has a right to, and what another has to give, is decided in
`fairness.reclaim`; here it is asked. In order:

1. `Reclaim.refusal`: which gangs may reclaim.
2. `Reclaim.candidates`: from which queues work may be taken, in which order.
3. `VictimSearch.make_room`: the cheapest victims that leave room, node by node; what need not go stays or moves.
4. `Reclaim.accepts`: fair at every step, and would it last?
5. `Reclaim.find`: a gang for which consolidation moved others in this cycle may lose its place instead.
"""

from collections.abc import Iterator
from functools import cached_property
from math import inf

import numpy as np

from kai_solver.actions.allowance import Allowance
from kai_solver.actions.gang_order import goes_before
from kai_solver.actions.survival import MOST_WAITING, survives
from kai_solver.actions.victim_search import BoolArray, Candidates, VictimSearch
from kai_solver.domain import Action
from kai_solver.fairness import ReclaimLedger
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eligibility import Preemptor, reclaim_allowed, refuses_reclaim, was_counted
from kai_solver.planstate.outcome import Admission, Refusal
from kai_solver.problem.charges import Charge
from kai_solver.reasons.refusals import TAKEN_BACK, not_entitled
from kai_solver.units import MILLI


class Reclaim(VictimSearch):
    """Reclaim in one cycle."""

    action = Action.RECLAIM

    # -- 1. which gangs may reclaim --------------------------------------------------------------------------------

    def refusal(self, preemptor: Preemptor) -> Refusal | None:
        """The queue and all above it must have a right to what the gang asks for."""
        blocker = refuses_reclaim(self.state, preemptor)
        return None if blocker is None else not_entitled(blocker)

    # -- 2. which work may be taken, in which order ----------------------------------------------------------------

    def candidates(self, preemptor: Preemptor) -> Iterator[Candidates]:
        """All that may be taken, first within what each queue has to give.

        Then without that bound, since moved work costs its queue nothing; then queue by queue.
        """
        queues = self.eligibility.reclaim_queues(preemptor)
        units = self.eligible(preemptor, queues)
        yield units, Allowance(self.state, self.pool, preemptor.queue, preemptor.charge, queues)
        yield units, None
        if len(queues) > 1:
            for queue in self._may_give_alone(preemptor, queues):
                yield self.eligible(preemptor, (queue,)), None

    def _may_give_alone(self, preemptor: Preemptor, queues: tuple[int, ...]) -> Iterator[int]:
        """Those of ``queues`` that saturation lets lose what is asked for, less all devices that are free.

        Whatever moves, that much is evicted, and the test gets harder with it. On 20,000 loaded nodes 154 gangs asked
        800 queues each, and this spares a third of the greedy's CPU (2026-11-23).
        """
        right = self.problem.reclaim_right(self.state.allocated, preemptor.queue, preemptor.charge)
        least, whole = preemptor.device_milli - self.pool.most_free_milli(), self._whole_milli_lacking(preemptor)
        for queue in queues:
            taken = max(least, whole - self._gains[queue])
            if taken <= 0 or right.may_lose_gpus(queue, taken):
                yield queue

    def _whole_milli_lacking(self, preemptor: Preemptor) -> int:
        """Thousandths of devices that ``preemptor`` asks for, less those that are free whole; 0 if it shares any.

        Below 0 where more are free.

        Work of whole devices takes as many where it moves. Of three gangs on 5,000 loaded nodes with shares that asked
        195 queues, 11 queues are left, and they take 0.08 s of CPU (0.2, 2026-11-29).
        """
        pods = (*preemptor.gang.pending, *preemptor.gang.active)
        if self.problem.columns.shares[list(pods)].any():
            return 0
        shapes = {self.problem.pod_shape[pod] for pod in pods}
        return preemptor.device_milli - self.pool.devices_free(shapes) * MILLI

    @cached_property
    def _gains(self) -> list[int]:
        """By leaf queue, thousandths of devices that its units leave and need not take elsewhere, at most."""
        size = self.problem.queues.size
        gained = np.bincount(self.pool.queue_of, weights=self.pool.gains, minlength=size).astype(np.int64)
        found: list[int] = (gained * MILLI).tolist()
        return found

    def is_vain(self, _preemptor: Preemptor, _unit: AllocationUnit) -> bool:
        """Never known: beyond its quota a gang may take from queues of which a smaller one may take nothing."""
        return False

    def eligible(self, preemptor: Preemptor, queues: tuple[int, ...]) -> BoolArray:
        """(U,) units of the leaf ``queues`` that have run for their minimum runtime."""
        return self.eligibility.reclaim(preemptor, queues)

    def ledger(self, preemptor: Preemptor) -> ReclaimLedger:
        """What the queues hold before any victim is taken."""
        return ReclaimLedger(self.problem.reclaim_right(self.state.allocated, preemptor.queue, preemptor.charge))

    # -- 4. what is checked before it is accepted --------------------------------------------------------------------

    def accepts(
        self, preemptor: Preemptor, allocation_unit: AllocationUnit, units: list[int], ledger: ReclaimLedger | None
    ) -> bool:
        """Every queue may be taken from at every step, and the next cycle would give the room to the same gang."""
        if ledger is None or not reclaim_allowed(self.state, self.pool, ledger, units):
            return False
        return self._lasts(preemptor, allocation_unit, units)

    def _lasts(self, preemptor: Preemptor, allocation_unit: AllocationUnit, units: list[int]) -> bool:
        """Whether the next cycle gives the room to ``preemptor`` and not back to a victim: else queues take turns.

        Source: docs/kai-behaviour.md#reclaim-lasts. Where few gangs wait, their turns are played through; where many
        do, each victim is compared with the preemptor in the order of gangs.
        """
        victims: dict[int, list[int]] = {}
        for unit in units:
            if self.pool.has_left(unit):
                victims.setdefault(self.pool.units[unit].gang, []).append(unit)
        if victims and len(self.waiting) <= MOST_WAITING:
            evicted = [pod for left in victims.values() for unit in left for pod in self.pool.units[unit].pods]
            return survives(self.state, self.fits, self.gang_units, allocation_unit, evicted, self.waiting)
        return all(
            goes_before(self.state, preemptor.gang, preemptor.charge, self.problem.gangs[gang], self._asks_next(left))
            for gang, left in victims.items()
        )

    def _asks_next(self, units: list[int]) -> Charge:
        """What the victim would ask for in the next cycle: its core, or one surplus pod."""
        chosen = [self.pool.units[u] for u in units]
        core = [u for u in chosen if u.is_core]
        return (core or chosen)[0].charge

    # -- 5. what consolidation gave may be taken back ------------------------------------------------------------------

    def find(self, preemptor: Preemptor, allocation_unit: AllocationUnit) -> list[int] | None:
        """As `make_room`; gangs that consolidation admitted in this cycle give way where that spares running victims.

        Such a gang runs nowhere yet, so nothing is lost. KAI finds it among the first victims of its queue, as the
        youngest. Both ways are tried, and the one that loses less work stays.
        """
        given = self._consolidated_in_reach(preemptor)
        if not given:
            return self.make_room(preemptor, allocation_unit)
        state = self.state
        mark = state.mark()
        found = self.make_room(preemptor, allocation_unit)
        steps, cost = state.steps_since(mark), self._work_lost(found)
        given = self._no_dearer(given, found)
        if not given:
            return found
        state.rollback(mark)
        for admission in given:
            for pod in admission.allocation_unit.pods:
                state.lift(pod)
        self.settle()
        spared = self.make_room(preemptor, allocation_unit) if self._all_returned(given) else None
        if spared is not None and self._work_lost(spared) < cost and state.keeps_rules():
            for admission in given:
                self.outcome.withdraw(admission, TAKEN_BACK)
            return spared
        state.rollback(mark)
        state.replay(steps)
        return found

    def _consolidated_in_reach(self, preemptor: Preemptor) -> list[Admission]:
        """What consolidation admitted in queues that ``preemptor`` may take from, and that no reclaim built on."""
        if not self.outcome.consolidated:
            return []
        gangs, admissions = self.problem.gangs, self.outcome.admissions
        moved = [a for a in admissions if a.action is Action.CONSOLIDATION]
        queue_of = {a.allocation_unit.gang: gangs[a.allocation_unit.gang].queue for a in moved}
        queues = set(self.eligibility.reclaim_queues(preemptor)) & set(queue_of.values())
        free = {queue for queue in queues if not was_counted(self.outcome, queue)}
        built_on = {a.allocation_unit.gang for a in admissions if a.action is Action.RECLAIM}
        return [a for a in moved if queue_of[a.allocation_unit.gang] in free and a.allocation_unit.gang not in built_on]

    def _no_dearer(self, given: list[Admission], found: list[int] | None) -> list[Admission]:
        """Those of no higher priority than the victims ``found``; none where nothing has to leave anyway."""
        if found is None:
            return given
        gangs = self.problem.gangs
        evicted = [gangs[self.pool.units[u].gang].gang.priority for u in found if self.pool.has_left(u)]
        return [a for a in given if evicted and gangs[a.allocation_unit.gang].gang.priority <= min(evicted)]

    def _all_returned(self, given: list[Admission]) -> bool:
        """False where a unit that moved for ``given`` cannot return, since others have taken that room meanwhile."""
        moved_for_others = {unit for a in self.outcome.admissions if a not in given for unit in a.units}
        return not any(self.pool.is_disturbed(u) for a in given for u in a.units if u not in moved_for_others)

    def _work_lost(self, units: list[int] | None) -> float:
        """Work lost with ``units``, as victims are weighed; infinite where there is no way."""
        return inf if units is None else sum(self.pool.cost[u] for u in units if self.pool.has_left(u))
