"""Runs of alike gangs: admitted turn by turn, placed all at once.

Whose turn it is depends on what queues hold, not on the nodes that their pods got. So the turns of gangs that differ in
nothing that matters to nodes are taken first, as many as there are places for, and then all their pods are placed in
one step. The outcome is that of placing them one by one.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile

from kai_solver.actions.caps import over_capacity
from kai_solver.actions.context import Context
from kai_solver.actions.gang_order import GangOrder, SizeOrder, Turn
from kai_solver.actions.predicted_order import foresee
from kai_solver.domain import Action
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Admission
from kai_solver.planstate.state import State
from kai_solver.units import UNLIMITED

LOOKS = 32
"""Turns between two looks at the clock."""

MANY = 64
"""Length of a run from which on it pays to look ahead: that costs 60 µs a queue and 8 µs a gang (2026-11-21)."""


class Runs:
    """Admits runs on one course."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.state = context.state
        self.placer = context.placer
        self._shapes = context.problem.pod_shape
        self._looks_ahead = False
        self._caps = [_has_caps(self.state, queue) for queue in range(self.state.problem.queues.size)]

    def admit(self, turns: GangOrder | SizeOrder) -> bool:
        """Admit those whose turn it is while they are alike and have room; False where that is nobody."""
        if not self.placer.at_once:
            return False
        if self._looks_ahead and isinstance(turns, GangOrder) and self._admit_ahead(turns):
            return True
        return self._admit_next(turns)

    def _admit_next(self, turns: GangOrder | SizeOrder) -> bool:
        """Admit one after the other, at most as many as tell that it pays to look ahead."""
        turn = turns.peek()
        shape = plain_shape(self.context, turn.chunk) if turn is not None else None
        if shape is None:
            return False
        room = self._room(shape)
        pods: list[int] = []
        number = 0
        while turn is not None and number < MANY and len(pods) + len(turn.chunk.pods) <= room:
            if plain_shape(self.context, turn.chunk) != shape or not self._may_pay(turn):
                break
            turns.pop()
            pods += self._let_in(turn)
            turns.again(turn.gang)
            number += 1
            if number % LOOKS == 0 and self.context.is_over():
                break
            turn = turns.peek()
        self._looks_ahead = number == MANY
        return bool(pods) and self.placer.fill(pods, joined=True)

    # -- ahead ---------------------------------------------------------------------------------------------------

    def _admit_ahead(self, turns: GangOrder) -> bool:
        """Look ahead at the turns of all who ask once for plain pods, and admit them until one finds no room."""
        lines: dict[int, list[Turn]] = {}
        ends: set[int] = set()
        for leaf, line in turns.lines():
            lines[leaf] = list(self._until_other(line, ends))
        ahead = foresee(self.state, {leaf: line for leaf, line in lines.items() if line})
        ahead = list(takewhile(lambda turn: turn.gang not in ends, ahead))
        served: set[int] = set()
        for shape, run in groupby(ahead, lambda turn: self._shapes[turn.chunk.pods[0]]):
            if not self._admit_run(shape, run, served):
                break
        turns.were_served(served)
        self._looks_ahead = len(served) >= MANY
        return bool(served)

    def _until_other(self, line: Iterable[Turn], ends: set[int]) -> Iterator[Turn]:
        """The turns of ``line`` up to the first that is not plain or asks again: it is noted in ``ends``."""
        for turn in line:
            yield turn
            is_plain = plain_shape(self.context, turn.chunk) is not None
            if not is_plain or len(turn.chunk.pods) < len(self.state.gangs[turn.gang].pending[0]):
                ends.add(turn.gang)
                return

    def _admit_run(self, shape: int, run: Iterable[Turn], served: set[int]) -> bool:
        """Admit turns of one shape; False where one found no room, may not pay, or the time ended."""
        room = self._room(shape)
        pods: list[int] = []
        is_done = True
        for number, turn in enumerate(run, start=1):
            if len(pods) + len(turn.chunk.pods) > room or not self._may_pay(turn):
                is_done = False
                break
            pods += self._let_in(turn)
            served.add(turn.gang)
            if number % LOOKS == 0 and self.context.is_over():
                is_done = False
                break
        if pods:
            self.placer.fill(pods, joined=True)
        return is_done

    # -- one turn ------------------------------------------------------------------------------------------------

    def _room(self, shape: int) -> int:
        return int(self.placer.fits.counts(shape)[0].sum())

    def _may_pay(self, turn: Turn) -> bool:
        gang = self.context.problem.gangs[turn.gang]
        if gang.gang.preemptible and not self._caps[gang.queue]:
            return True
        return over_capacity(self.state, turn.chunk) is None

    def _let_in(self, turn: Turn) -> tuple[int, ...]:
        self.state.join(turn.chunk.pods, turn.charge)
        self.context.outcome.admit(Admission(turn.chunk, Action.ALLOCATE))
        return turn.chunk.pods


def plain_shape(context: Context, chunk: AllocationUnit) -> int | None:
    """The one shape of a chunk that asks for nothing but room for its pods; None for others.

    Surplus may have to wait for its gang's minimum, so it has its own turn.
    """
    gang_units, shapes = context.allocation_units[chunk.gang], context.problem.pod_shape
    leaf = gang_units.lone
    if leaf is None or leaf.topology is not None or gang_units.shape.root.topology is not None or not chunk.is_core:
        return None
    shape = shapes[chunk.pods[0]]
    if len(chunk.pods) > 1 and any(shapes[pod] != shape for pod in chunk.pods):
        return None
    return shape if context.placer.is_plain(chunk.pods) else None


def _has_caps(state: State, leaf: int) -> bool:
    """True where the queue, or one above it, has a limit."""
    tree = state.problem.queues
    return any(tree.limits[queue] != _FREE for queue in tree.path[leaf])


_FREE = (UNLIMITED, UNLIMITED, UNLIMITED)
