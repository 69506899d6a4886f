"""Places for all that a cycle admitted, once it is decided what leaves: the largest first, best fit, as the greedy.

On loaded clusters nearly all find a place beside what stays (CPU, 2026-11-23): all of 354 gangs on 1,000 loaded nodes
in 0.08 s, where CP-SAT takes 0.6 s; all but one of 697 on 2,000 nodes in 0.15 s, where CP-SAT finds none in 4 s. For
the others room is made: of the nodes where that disturbs least, small pods move elsewhere, or more leaves. In the next
try they come first: on 1,000 loaded nodes (seed 23) work of 4.4 million leaves for a gang of 46 pods on one rack, and
none if it is the first; on 500 (seed 13) 1.1 million for one of 36 pods, and 0.18. A third try was better than both in
none of seven clusters (2026-11-30).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.caps import within_limits
from kai_solver.model.joint import Mover
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import Placer, domains_at, start_together
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.capacity import fitting_beside_gpus, fitting_on_devices
from kai_solver.problem.charges import sum_of
from kai_solver.units import GPU

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

TRIES = 4
"""Sets of nodes that are tried for one gang, the cheapest first."""
LEAVES, HIGHER = 1e6, 1e9
"""What it costs that work leaves, beside the work itself, where a move costs 1 and the thousandths of GPUs moved; how
many times as much that is of the next higher priority."""
HIGHEST = 30
"""Priorities beyond so many lower ones cost the same: a float holds no more."""


@dataclass(frozen=True, slots=True)
class Seats:
    """Units that leave, and those that move, now that everything has its place."""

    leaving: frozenset[int]
    moved: tuple[int, ...]


class _Holdings(NamedTuple):
    """By pod that runs and is in question: its unit, node, request (P, R), whether it is the first of its unit there.

    ``holder``, ``device``, ``parts`` (H,): the places of these pods here, each device that they hold, and how much.
    """

    pod: IntArray
    unit: IntArray
    node: IntArray
    request: IntArray
    is_first: BoolArray
    holder: IntArray
    device: IntArray
    parts: IntArray


class SeatSearch:
    """Gives all that ``outcome`` admitted their places, whatever leaves of ``movers``; for one choice after another."""

    def __init__(
        self, outcome: Outcome, pool: VictimPool, movers: Sequence[Mover], is_late: Callable[[], bool]
    ) -> None:
        self.is_late = is_late
        self.outcome, self.pool, self.state = outcome, pool, outcome.state
        self.problem = outcome.state.problem
        self.movers = {mover.unit: mover for mover in movers}
        self.leaving: set[int] = set()
        self._lacking: set[AllocationUnit] = set()
        """Gangs of several pods for which others made room, in this try or one before."""
        self.may_be_better = False
        """Whether such gangs came in the last try, so that the next one has another order."""
        self.staying: Collection[int] = ()
        self.moved: list[int] = []
        self._at = self._units_by_node()
        self._held = self._holdings()
        strata = sorted({mover.stratum for mover in movers})
        self._anywhere = np.zeros(len(self.problem.nodes), dtype=np.int64)
        self._factor = {stratum: HIGHER ** min(height, HIGHEST) for height, stratum in enumerate(strata)}

    def seat(self, leaving: Collection[int], staying: Collection[int] = ()) -> Seats | None:
        """Let just ``leaving`` leave, and as few others as possible, and give all admitted their places.

        ``staying``: units that must not leave as well; they may move. None, with the state as it was, where some find
        no place, or ``is_late``: room for one gang takes 5 ms on 2,000 nodes (CPU, 2026-11-23), and with seed 3 many
        lack it. Gangs of several pods for which others made room are placed first in all later tries.
        """
        self.leaving, self.staying, self.moved = self.movers.keys() & set(leaving), staying, []
        mark, state, first = self.state.mark(), self.state, frozenset(self._lacking)
        self._lacking = set()
        admitted = [admission.allocation_unit for admission in self.outcome.admissions]
        admitted.sort(key=lambda unit: (unit in first, *self._size(unit)), reverse=True)
        is_seated = self._clear(admitted) and self._place(admitted) and self._holds(admitted)
        self.may_be_better = not self._lacking <= first
        self._lacking |= first
        if is_seated:
            return Seats(frozenset(self.leaving), tuple(self.moved))
        state.rollback(mark)
        return None

    def _clear(self, admitted: Sequence[AllocationUnit]) -> bool:
        """Lift all that was placed; what leaves leaves, and the others are back where they ran."""
        state = self.state
        for pod in (pod for unit in admitted for pod in unit.pods):
            state.lift(pod)
        for mover in self.movers.values():
            for pod in _pods(mover):
                if pod in state.places:
                    state.lift(pod)
                if mover.unit in self.leaving and pod not in state.gone:
                    state.evict(pod)
        return all(
            state.returns_to_origin([pod for pod in _pods(mover) if pod in state.gone], rules=False)
            for mover in self.movers.values()
            if mover.unit not in self.leaving
        )

    def _place(self, admitted: Sequence[AllocationUnit]) -> bool:
        """Give every unit its places, one after the other; then those that made room for them."""
        placer, ejected = Placer(self.state, fits=FitTable(self.state)), list[int]()
        later = Placer(self.state, fits=placer.fits, later=True)
        for unit in admitted:
            if self.is_late():
                return False
            place = partial(placer.place_unit, unit)
            if not place():
                if len(unit.pods) > 1:
                    self._lacking.add(unit)
                made = self._make_room(later, unit.pods, self._domains(unit), place)
                if made is None:
                    return False
                ejected += made
        if not self._house(later, ejected):
            return False
        self._keep_limits()
        self._return(later)
        return self._keeps_cores()

    def _house(self, placer: Placer, ejected: Iterable[int]) -> bool:
        """Give units that were taken off their nodes places again, the dearest first; those that find none leave.

        Room is made once for each, where all that leaves for it costs less, even if none of it finds a place again.
        """
        dearest, tried = sorted(map(self._by_price, ejected)), set[int]()
        homeless = [one for one in dearest if not self._returns(one[1])]
        while homeless:
            _, number = homeless.pop(0)
            mover = self.movers[number]
            if self._returns(number):
                continue
            move = partial(self._move, placer, mover)
            is_loose = _is_loose(mover)
            made: list[int] | None = [] if is_loose and move() else None
            if made is None and is_loose and number not in tried and not self.is_late():
                tried.add(number)
                made = self._make_room(placer, _pods(mover), self._anywhere, move, self._leave_price(mover))
            if made is not None:
                self._note_moved(mover)
                homeless = sorted([*homeless, *map(self._by_price, made)])
            elif self._may_leave(mover):
                self.leaving.add(number)
            else:
                return False
        return True

    def _returns(self, number: int) -> bool:
        """Bring a unit back where it ran, if there is room."""
        return self.state.returns_to_origin(_pods(self.movers[number]), rules=False)

    def _by_price(self, number: int) -> tuple[float, int]:
        """What orders units, the dearest first."""
        return -self._leave_price(self.movers[number]), number

    def _keep_limits(self) -> None:
        """Let more leave of queues above their limits, the cheapest first; what is not needed comes back.

        The programme knows limits for whole units and moves only roughly.
        """
        by_queue: dict[int, list[Mover]] = {}
        for mover in self.movers.values():
            if (
                self._may_leave(mover)
                and not mover.bears
                and mover.unit not in self.leaving
                and mover.unit not in self.moved
            ):
                by_queue.setdefault(self.problem.gangs[mover.gang].queue, []).append(mover)
        for queue, movers in by_queue.items():
            for mover in sorted(movers, key=lambda m: (m.stratum, m.work, m.unit)):
                if within_limits(self.state, queue):
                    break
                for pod in _pods(mover):
                    self.state.evict(pod)
                self.leaving.add(mover.unit)

    def _return(self, later: Placer) -> None:
        """Bring home what there is still room for where it ran, else move it where there is room, the dearest first."""
        core_of = {above: mover.unit for mover in self.movers.values() for above in mover.bears}
        leaving = [self.movers[unit] for unit in self.leaving]
        for mover in sorted(leaving, key=lambda m: (m.stratum, m.breaks, m.work, m.unit), reverse=True):
            stands = core_of.get(mover.unit) not in self.leaving
            mark, queue = self.state.mark(), self.problem.gangs[mover.gang].queue
            if not (stands and self._comes_back(later, mover) and within_limits(self.state, queue)):
                self.state.rollback(mark)
                continue
            self.leaving.remove(mover.unit)
            self._note_moved(mover)

    def _may_leave(self, mover: Mover) -> bool:
        return mover.may_leave and mover.unit not in self.staying

    def _note_moved(self, mover: Mover) -> None:
        """Remember that it moved, unless it is where it ran."""
        if self.pool.is_moved(mover.unit):
            self.moved.append(mover.unit)
            self.pool.note_places(mover.unit)

    def _move(self, placer: Placer, mover: Mover) -> bool:
        """Place all pods of ``mover`` elsewhere, or none."""
        mark = self.state.mark()
        if all(map(placer.place_pod, _pods(mover))):
            return True
        self.state.rollback(mark)
        return False

    def _comes_back(self, placer: Placer, mover: Mover) -> bool:
        """Give what was taken off its node its place there again, or another."""
        is_home = self.state.returns_to_origin(_pods(mover), rules=False)
        return is_home or (_is_loose(mover) and self._move(placer, mover))

    def _size(self, unit: AllocationUnit) -> tuple[int, int, int]:
        """Thousandths of GPUs of the largest pod, and in all; CPU."""
        charges = [self.problem.charges[pod] for pod in unit.pods]
        cpu, _, gpu = sum_of(charges)
        return max(charge[GPU] for charge in charges), gpu, cpu

    def _keeps_cores(self) -> bool:
        """What holds a minimum leaves only with what is above it, or where so many of that stay that they are one."""
        for mover in self.movers.values():
            if mover.unit in self.leaving and mover.bears:
                movers = self.movers.keys() & mover.bears
                stay = mover.stuck + len(movers - self.leaving)
                if stay and not 0 < mover.quorum <= stay:
                    return False
        return True

    def _holds(self, admitted: Sequence[AllocationUnit]) -> bool:
        """Spacing, limits and optional rules; whole gangs start together."""
        state, gangs = self.state, self.problem.gangs
        concerned = {unit.gang for unit in admitted} | {mover.gang for mover in self.movers.values()}
        for unit in admitted:
            start_together(state, unit)
        return (
            all(map(state.keeps_spacing, concerned))
            and all(within_limits(state, queue) for queue in {gangs[gang].queue for gang in concerned})
            and state.keeps_rules()
            and state.may_be_gone()
        )

    # -- room ------------------------------------------------------------------------------------------------------

    def _units_by_node(self) -> dict[int, list[int]]:
        """Units of running pods by node."""
        found: dict[int, list[int]] = {}
        for mover in self.movers.values():
            for node in set(mover.origin):
                found.setdefault(node, []).append(mover.unit)
        return found

    def _holdings(self) -> _Holdings:
        """What the pods of all units hold where they run."""
        problem = self.problem
        pods = [(pod, mover.unit) for mover in self.movers.values() for pod in _pods(mover)]
        seen: set[tuple[int, int]] = set()
        is_first = []
        for pod, unit in pods:
            at = (unit, problem.pod_node[pod])
            is_first.append(at not in seen)
            seen.add(at)
        held = [
            (number, device, problem.shapes.parts(problem.pod_shape[pod])[problem.pod_node[pod]])
            for number, (pod, _) in enumerate(pods)
            for device in problem.held_devices.get(pod, ())
        ]
        holder, device, parts = np.array(held, dtype=np.int64).reshape(-1, 3).T
        return _Holdings(
            np.array([pod for pod, _ in pods], dtype=np.int64),
            np.array([unit for _, unit in pods], dtype=np.int64),
            np.array([problem.pod_node[pod] for pod, _ in pods], dtype=np.int64),
            problem.shapes.requests[[problem.pod_shape[pod] for pod, _ in pods]],
            np.array(is_first, dtype=np.bool_),
            holder,
            device,
            parts,
        )

    def _price(self, mover: Mover, fits: FitTable) -> float:
        """What it costs about that a unit is taken off its node; infinite where it can go nowhere."""
        if _is_loose(mover) and all(fits.has_room(piece.shape) for piece in mover.pieces):
            return 1.0 + mover.charge[GPU]
        return LEAVES * self._factor[mover.stratum] + self._leave_price(mover)

    def _leave_price(self, mover: Mover) -> float:
        """What is lost where a unit leaves; infinite where it must not."""
        return mover.work * self._factor[mover.stratum] if self._may_leave(mover) else np.inf

    def _make_room(
        self, later: Placer, pods: Sequence[int], domains: IntArray, place: Callable[[], bool], below: float = np.inf
    ) -> list[int] | None:
        """Where taking others off their nodes costs least, ``place`` all ``pods``; those, or None where it helps not.

        What must not leave has its place elsewhere at once, before another takes it. ``below``: what all that is taken
        must cost less than, if it leaves.
        """
        is_bounded = below < np.inf
        price = {n: self._leave_price(m) if is_bounded else self._price(m, later.fits) for n, m in self.movers.items()}
        for nodes in self._cheapest(later.fits, pods, domains, price, below):
            mark, off = self.state.mark(), list[int]()
            for number in dict.fromkeys(n for node in nodes for n in self._at.get(node, ())):
                mover = self.movers[number]
                if price[number] < np.inf and not any(pod in self.state.gone for pod in _pods(mover)):
                    off.append(number)
                    for pod in _pods(mover):
                        self.state.evict(pod)
            bound = [self.movers[n] for n in off if not self._may_leave(self.movers[n])]
            if place() and all(self._comes_back(later, mover) for mover in bound):
                for mover in bound:
                    self._note_moved(mover)
                return [n for n in off if self._may_leave(self.movers[n])]
            self.state.rollback(mark)
        return None

    def _cheapest(
        self, fits: FitTable, pods: Sequence[int], domains: IntArray, prices: Mapping[int, float], below: float
    ) -> Iterator[list[int]]:
        """Nodes to clear for all ``pods`` in one of the ``domains``, (N,) by node; the cheapest first.

        ``prices``: of units; infinite for those that stay.
        """
        state, problem = self.state, self.problem
        shape = max((problem.pod_shape[pod] for pod in pods), key=lambda s: problem.shapes.shapes[s].request[GPU])
        count, request = len(pods), problem.shapes.shapes[shape].request
        nodes = len(problem.nodes)
        price, freed = np.zeros(nodes), np.zeros((nodes, len(request)), dtype=np.int64)
        held, of_unit = self._held, np.zeros(len(self.pool.units))
        of_unit[list(prices)] = list(prices.values())
        may_go = ~state.is_gone[held.pod] & (of_unit[held.unit] < np.inf)
        there = np.flatnonzero(may_go)
        once = there[held.is_first[there]]
        np.add.at(price, held.node[once], of_unit[held.unit[once]])
        np.add.at(freed, held.node[there], held.request[there])
        beside = fitting_beside_gpus(request, state.future + freed.T, problem.shapes.mask(shape))
        takes = np.minimum(beside, fitting_on_devices(problem, self._devices_free(may_go), shape)).clip(0, count)
        _, ever = fits.counts(shape)
        takes = np.where(price > 0, takes, np.minimum(ever, count))
        price[ever >= takes] = 0.0
        if count == 1:
            takes[ever > 0] = 0  # It has no place there, by some rule.
        each = np.where(takes > 0, price / np.maximum(takes, 1), np.inf)
        found: list[tuple[float, list[int]]] = []
        for domain in range(int(domains.max()) + 1):
            inside = np.flatnonzero((domains == domain) & (takes > 0))
            order = inside[np.argsort(each[inside], kind="stable")]
            for _ in range(TRIES):
                enough = int(np.searchsorted(np.cumsum(takes[order]), count))
                if enough >= len(order):
                    break
                chosen, order = order[: enough + 1], order[enough + 1 :]
                cost = float(price[chosen].sum())
                if cost < below:
                    found.append((cost, chosen[price[chosen] > 0].tolist()))
        return (chosen for _, chosen in sorted(found)[:TRIES])

    def _devices_free(self, may_go: BoolArray) -> IntArray:
        """(N, D) free parts of devices, once the holdings that ``may_go`` are gone."""
        free, held = self.state.device_future.copy(), self._held
        freed = may_go[held.holder]
        np.add.at(free, (held.node[held.holder[freed]], held.device[freed]), held.parts[freed])
        return free

    def _domains(self, unit: AllocationUnit) -> IntArray:
        """(N,) domain of each node that all pods of ``unit`` have to share."""
        gang = self.problem.gangs[unit.gang]
        topology = gang.root.topology or (gang.leaves[0].topology if len(gang.leaves) == 1 else None)
        if topology is not None and topology.required:
            domains = domains_at(self.problem.domains, topology.topology, topology.required)
            if domains is not None:
                return domains
        return self._anywhere


def _is_loose(mover: Mover) -> bool:
    """Whether its pods may go wherever there is room for them."""
    return mover.may_move and not mover.scopes and not mover.bears


def _pods(mover: Mover) -> list[int]:
    return [pod for piece in mover.pieces for pod in piece.pods]
