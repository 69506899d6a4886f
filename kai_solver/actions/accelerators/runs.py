"""Runs of identical gangs: admitted turn by turn, placed all at once.

The order depends on what queues hold, not on the nodes that their pods got. So the attempts of gangs that differ in
nothing that matters to nodes are taken first, as many as there are places for, and then all their pods are placed in
one step. Other gangs between them are placed one by one, as long as they find places. The outcome is that of placing
all of them one by one.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, takewhile

from kai_solver.actions.accelerators.predicted_order import foresee
from kai_solver.actions.caps import over_capacity
from kai_solver.actions.context import Context
from kai_solver.actions.gang_order import GangOrder, NextGang, SizeOrder
from kai_solver.domain import Action
from kai_solver.placement.placing import TimeIsUp
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Admission
from kai_solver.planstate.state import State
from kai_solver.units import UNLIMITED

LOOKS = 32
"""Gangs between two looks at the clock."""

MANY = 64
"""Length of a run from which on it pays to look ahead: that costs 60 µs a queue and 8 µs a gang (2026-11-21)."""


class Runs:
    """Admits runs on one course."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.state = context.state
        self.placer = context.placer
        self._shapes = context.problem.pod_shape
        self.row = 0
        """Gangs that were admitted one after the other, none refused meanwhile."""
        self._caps = [_has_caps(self.state, queue) for queue in range(self.state.problem.queues.size)]

    def admit(self, gang_order: GangOrder | SizeOrder) -> bool:
        """Admit the next gangs while they are identical and have room; False if there are none."""
        if not self.placer.at_once:
            return False
        if self.row >= MANY and isinstance(gang_order, GangOrder) and self._admit_ahead(gang_order):
            return True
        return self._admit_next(gang_order)

    def _admit_next(self, gang_order: GangOrder | SizeOrder) -> bool:
        """Admit one after the other, at most as many as tell that it pays to look ahead."""
        next_gang = gang_order.peek()
        shape = plain_shape(self.context, next_gang.allocation_unit) if next_gang is not None else None
        if shape is None:
            return False
        room = self._room(shape)
        pods: list[int] = []
        number = 0
        while next_gang is not None and number < MANY and len(pods) + len(next_gang.allocation_unit.pods) <= room:
            if plain_shape(self.context, next_gang.allocation_unit) != shape or not self._may_pay(next_gang):
                break
            gang_order.pop()
            pods += self._let_in(next_gang)
            gang_order.again(next_gang.gang)
            number += 1
            if number % LOOKS == 0 and self.context.is_over():
                break
            next_gang = gang_order.peek()
        self.row += number
        return bool(pods) and self.placer.fill(pods, joined=True)

    # -- ahead ---------------------------------------------------------------------------------------------------

    def _admit_ahead(self, gang_order: GangOrder) -> bool:
        """Look ahead at the turns of all gangs that ask once, and admit them until one finds no room."""
        lines: dict[int, list[NextGang]] = {}
        ends: set[int] = set()
        for leaf, line in gang_order.lines():
            lines[leaf] = list(self._until_other(line, ends))
        ahead: Iterable[NextGang] = foresee(self.state, {leaf: line for leaf, line in lines.items() if line})
        if ends:
            ahead = takewhile(lambda next_gang: next_gang.gang not in ends, ahead)
        served: set[int] = set()
        for shape, run in groupby(ahead, lambda next_gang: plain_shape(self.context, next_gang.allocation_unit)):
            gangs = list(run)
            if not (self._admit_singly(gangs, served) if shape is None else self._admit_run(shape, gangs, served)):
                break
        gang_order.were_served(served)
        if len(served) < MANY:
            self.row = 0
        return bool(served)

    def _until_other(self, line: Iterable[NextGang], ends: set[int]) -> Iterator[NextGang]:
        """The gangs of ``line`` up to the first that may ask again, or cost another amount: it is noted in ``ends``."""
        pods, by_memory, gang_units = self.context.problem.pods, bool(self.state.by_memory), self.context.gang_units
        for next_gang in line:
            yield next_gang
            unit = next_gang.allocation_unit
            units_of_gang = gang_units[unit.gang]
            is_all = unit.is_core and units_of_gang.lone is not None
            is_all = is_all and len(unit.pods) == len(units_of_gang.state.pending[0])
            if not is_all or (by_memory and any(pods[pod].gpu.memory_mib for pod in unit.pods)):
                ends.add(next_gang.gang)
                return

    def _admit_singly(self, run: Iterable[NextGang], served: set[int]) -> bool:
        """Admit gangs one by one; False where one found no place or may not pay: it has an attempt of its own."""
        for next_gang in run:
            unit = next_gang.allocation_unit
            if self.context.is_over() or not self._may_pay(next_gang):
                return False
            self.context.times.begin(next_gang.gang)
            try:
                with self.context.timed_attempt(is_shared=True):
                    if not self.placer.place_unit(unit):
                        return False
            except TimeIsUp:
                return False
            self.context.outcome.admit(Admission(unit, Action.ALLOCATE))
            served.add(next_gang.gang)
        return True

    def _admit_run(self, shape: int, run: Iterable[NextGang], served: set[int]) -> bool:
        """Admit gangs of one shape; False where one found no room, may not pay, or the time ended."""
        room, pods, line = self._room(shape), list[int](), iter(run)
        is_done = True
        while is_done and (gangs := list(islice(line, LOOKS))):
            admitted = self._with_room(gangs, room - len(pods))
            for next_gang in admitted:
                pods += next_gang.allocation_unit.pods
                served.add(next_gang.gang)
            is_done = len(admitted) == len(gangs) and not self.context.is_over()
        if pods:
            self.placer.fill(pods, joined=True)
        return is_done

    def _with_room(self, gangs: Sequence[NextGang], room: int) -> Sequence[NextGang]:
        """Let ``gangs`` in, in order, while there is room for so many pods and their queues may pay; those let in."""
        units = [next_gang.allocation_unit for next_gang in gangs]
        if sum([len(unit.pods) for unit in units]) <= room and all(map(self._is_free, gangs)):
            self.state.join_each([(next_gang.allocation_unit.pods, next_gang.charge) for next_gang in gangs])
            self.context.outcome.admit_binds(units)
            return gangs
        for number, next_gang in enumerate(gangs):
            room -= len(next_gang.allocation_unit.pods)
            if room < 0 or not self._may_pay(next_gang):
                return gangs[:number]
            self._let_in(next_gang)
        return gangs

    # -- one gang ------------------------------------------------------------------------------------------------

    def _room(self, shape: int) -> int:
        return int(self.placer.fits.counts(shape)[0].sum())

    def _may_pay(self, next_gang: NextGang) -> bool:
        return self._is_free(next_gang) or over_capacity(self.state, next_gang.allocation_unit) is None

    def _is_free(self, next_gang: NextGang) -> bool:
        """Whether its queue may pay for it, whatever it holds."""
        gang = self.context.problem.gangs[next_gang.gang]
        return gang.gang.preemptible and not self._caps[gang.queue] and not self.state.refusing

    def _let_in(self, next_gang: NextGang) -> tuple[int, ...]:
        self.state.join(next_gang.allocation_unit.pods, next_gang.charge)
        self.context.outcome.admit(Admission(next_gang.allocation_unit, Action.ALLOCATE))
        return next_gang.allocation_unit.pods


def plain_shape(context: Context, allocation_unit: AllocationUnit) -> int | None:
    """The shape of an allocation unit of one shape that asks for nothing but room for its pods; None for others.

    Shapes that have the same room are one here: wishes that concern no other pod make no difference.
    Surplus may have to wait for its gang's minimum, so it has an attempt of its own.
    """
    units_of_gang, shapes = context.gang_units[allocation_unit.gang], context.problem.pod_shape
    leaf = units_of_gang.lone
    if (
        leaf is None
        or leaf.topology is not None
        or units_of_gang.shape.root.topology is not None
        or not allocation_unit.is_core
    ):
        return None
    shape = shapes[allocation_unit.pods[0]]
    if len(allocation_unit.pods) > 1 and any(shapes[pod] != shape for pod in allocation_unit.pods):
        return None
    return context.problem.shapes.same_room(shape) if context.placer.is_plain(allocation_unit.pods) else None


def _has_caps(state: State, leaf: int) -> bool:
    """True where the queue, or one above it, has a limit."""
    tree = state.problem.queues
    return any(tree.limits[queue] != _FREE for queue in tree.path[leaf])


_FREE = (UNLIMITED, UNLIMITED, UNLIMITED)
