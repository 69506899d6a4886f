"""Identical takers, served in one batch: each gets the place of one victim that asks for the same.

After such a swap every node has as much free as before. So room, what could stay and what could move is as it was, and
the next taker's cheapest victim is the next in a list that is sorted once. The order is asked at every turn; what may
be taken from which queue, for many turns ahead (`lookahead`). A taker that is not certain to be served as one by one
is served alone: the outcome is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kai_solver.actions.accelerators.identical_pods import IdenticalPods
from kai_solver.actions.accelerators.reclaim_lookahead import ReclaimLookahead, Standing
from kai_solver.actions.accelerators.runs import LOOKS
from kai_solver.actions.context import Context
from kai_solver.actions.gang_order import GangOrder, SizeOrder
from kai_solver.actions.survival import MOST_WAITING
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.outcome import Admission
from kai_solver.planstate.signature import Kind
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import GangShape

FEW = 4
"""Swaps below which a batch was not worth the sorting, which takes as long as two or three gangs alone (500 nodes,
2026-11-23): the next ones wait for as many gangs."""


class Swaps:
    """Of one disruptive action of one cycle.

    ``known``: kinds of which one was served alone, by a swap: by then nothing forbids the action to them altogether.
    """

    def __init__(self, context: Context, victim_search: VictimSearch) -> None:
        self.context = context
        self.victim_search = victim_search
        self.state = context.state
        self.problem = context.problem
        self.known: dict[Kind, Preemptor] = {}
        self._alike: dict[Kind, Kind | None] = {}
        is_played = victim_search.action is Action.RECLAIM and len(victim_search.waiting) <= MOST_WAITING
        self._is_off = victim_search.action is Action.CONSOLIDATION or is_played
        self._identical_pods: IdenticalPods | None = None
        self._pause, self._next_pause = 0, FEW

    @property
    def identical_pods(self) -> IdenticalPods:
        """Made when first asked for."""
        if self._identical_pods is None:
            self._identical_pods = IdenticalPods(self.victim_search.pool)
        return self._identical_pods

    def note(self, allocation_unit: AllocationUnit, units: Sequence[int]) -> None:
        """``allocation_unit`` was served alone, and ``units`` left for it: those like it may follow in a batch."""
        self._pause -= 1
        if self._is_off or len(units) != 1 or len(self.victim_search.pool.units[units[0]].pods) != 1:
            return
        kind = self.kind(allocation_unit.gang)
        if kind is not None and kind not in self.known:
            self.known[kind] = Preemptor.of(self.problem, allocation_unit)

    def serve(self, gang_order: GangOrder | SizeOrder) -> bool:
        """Serve the next gangs while they swap; False if there are none."""
        if self._is_off or not self.known or self._pause > 0 or self.context.outcome.consolidated:
            return False
        next_gang = gang_order.peek()
        kind = self.kind(next_gang.gang) if next_gang is not None else None
        if kind is None or kind not in self.known:
            return False
        batch = _Batch(self, kind)
        batch.run(gang_order)
        self._next_pause = FEW if batch.done >= FEW else self._next_pause * 2
        self._pause = 0 if batch.done >= FEW else self._next_pause
        return batch.done > 0

    def kind(self, gang: int) -> Kind | None:
        """The kind of a gang of one plain pod, by the room that it asks for; None for others.

        Where victims have to leave, wishes between pods do not count: the cheapest ones decide.
        """
        kind = self.context.kind(gang)
        if kind is not None and kind not in self._alike:
            shape = self.problem.shapes.same_room(kind.shape)
            is_plain = self.state.is_plain(kind.shape)
            self._alike[kind] = kind._replace(shape=shape, is_related=False) if is_plain else None
        return self._alike[kind] if kind is not None else None


@dataclass(slots=True)
class _Line:
    """Units in the order in which they leave, and how many are gone."""

    units: tuple[int, ...]
    at: int = 0

    def next(self, pool: VictimPool) -> int | None:
        """The first that has not left, and that optional rules let go."""
        while self.at < len(self.units):
            unit = self.units[self.at]
            if not pool.is_disturbed(unit) and pool.releases.fits((unit,)):
                return self.units[self.at]
            self.at += 1
        return None


@dataclass(slots=True)
class _Taker:
    """Gangs of one kind, what they may take from now, and the units that leave for them; None: not asked yet."""

    kind: Kind
    preemptor: Preemptor
    standing: Standing | None = None
    line: _Line | None = None


class _Batch:
    """Swaps by takers of one shape and charge, those of ``kind``, from a state in which it fits nowhere."""

    def __init__(self, swaps: Swaps, kind: Kind) -> None:
        self.swaps = swaps
        self.context, self.victim_search = swaps.context, swaps.victim_search
        self.state, self.problem = swaps.state, swaps.problem
        self.pool, self.fits = swaps.victim_search.pool, swaps.victim_search.fits
        self.shape, self.charge = kind.shape, kind.charge
        takers = frozenset(known.queue for known in swaps.known)
        self.lookahead = ReclaimLookahead(swaps.victim_search, kind.charge, takers)
        self.done = 0
        self._takers = {
            known: _Taker(known, preemptor)
            for known, preemptor in swaps.known.items()
            if known.shape == kind.shape and preemptor.charge == kind.charge
        }
        self._lines: dict[tuple[Kind, Standing], _Line] = {}
        self._same: dict[tuple[int, ...], _Line] = {}
        self._is_stuck: dict[int, bool] = {}

    def run(self, gang_order: GangOrder | SizeOrder) -> None:
        """Serve until a gang has to be asked for alone, or the time ends."""
        if self.fits.has_room(self.shape):
            return
        while (next_gang := gang_order.peek()) is not None:
            unit = self._victim(next_gang.allocation_unit)
            if unit is None:
                return
            gang_order.pop()
            self._swap(next_gang.allocation_unit, unit)
            loser = self.problem.gangs[self.pool.units[unit].gang].queue
            gang_order.lost(loser)
            self.lookahead.note(loser)
            self.done += 1
            if self.done % LOOKS == 0 and self.context.is_over():
                return

    def _victim(self, allocation_unit: AllocationUnit) -> int | None:
        """The unit that surely leaves for ``allocation_unit``, if it swaps; None where that takes a closer look."""
        kind = self.swaps.kind(allocation_unit.gang)
        taker = self._takers.get(kind) if kind is not None else None
        if taker is None or self._was_refused(taker.preemptor, allocation_unit):
            return None
        standing = self.lookahead.standing(taker.preemptor)
        if standing is None:
            return None
        if taker.line is None or standing is not taker.standing:
            taker.standing, taker.line = standing, self._line(taker, standing)
        unit = taker.line.next(self.pool)
        if unit is None:
            return None
        victim = self.problem.gangs[self.pool.units[unit].gang]
        is_sure = self._stays_away(unit, victim) and self.lookahead.covers(taker.preemptor, victim, unit)
        return unit if is_sure else None

    def _was_refused(self, preemptor: Preemptor, allocation_unit: AllocationUnit) -> bool:
        """Refusals are remembered until a gang is admitted."""
        return (
            not self.done
            and self.victim_search.known_refusal(preemptor, self.context.signature(allocation_unit)) is not None
        )

    def _line(self, taker: _Taker, standing: Standing) -> _Line:
        line = self._lines.get((taker.kind, standing))
        if line is None:
            preemptor = taker.preemptor
            evictor = self.victim_search.evictor(preemptor, standing.queues)
            table = evictor.first_table(self.shape, self.lookahead.allowance(preemptor, standing.queues))
            units = tuple(self.swaps.identical_pods.in_order(table, self.charge)) if evictor.has_eligible else ()
            line = self._lines[taker.kind, standing] = self._same.setdefault(units, _Line(units))
        return line

    def _stays_away(self, unit: int, victim: GangShape) -> bool:
        """True where the victim takes nothing else along, and finds no other place: none does while all swap."""
        if len(self.state.gangs[victim.index].active[0]) > 1:
            return False
        shape = self.problem.pod_shape[self.pool.units[unit].pods[0]]
        found = self._is_stuck.get(shape)
        if found is None:
            may_move = self.problem.policy.consolidating_reclaim
            found = self._is_stuck[shape] = not (may_move and self.fits.has_room(shape))
        return found

    def _swap(self, allocation_unit: AllocationUnit, unit: int) -> None:
        self.state.swap(self.pool.units[unit].pods[0], allocation_unit.pods[0])
        self.context.outcome.admit(Admission(allocation_unit, self.victim_search.action, (unit,)))
        self.victim_search.forget()
