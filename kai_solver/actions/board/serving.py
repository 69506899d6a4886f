"""Turns that kernels took, put into effect on the working state; a line of gangs in which other gangs have their turns.

The line serves plain gangs up to the next one that is not plain, which `pop` hands out. The working state is then as if
each had its turn there.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from kai_solver.actions.board.arrays import (
    ADMITTED,
    ALLOCATE,
    ASK,
    ASKED,
    BOUNDLESS,
    CONSOLIDATE,
    HOME,
    MADE_ROOM,
    MAY_YIELD,
    MOVED,
    MOVES,
    NONE,
    OTHER,
    OUT,
    PLACED,
    PODS,
    PREEMPT,
    RECLAIM,
    SAME,
    TURNS,
    VICTIMS,
    WISHING,
)
from kai_solver.actions.board.board import Board
from kai_solver.actions.board.turns import begin_turns, has_way, look_at_queues, take_turns
from kai_solver.actions.gang_order import NextGang
from kai_solver.domain import Action
from kai_solver.errors import InternalError
from kai_solver.placement.placing import start_together
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eviction_units import charge_of
from kai_solver.planstate.outcome import Admission
from kai_solver.units import PODS as SLOTS

if TYPE_CHECKING:
    from kai_solver.actions.context import Context

NUMBER = {
    Action.ALLOCATE: ALLOCATE,
    Action.CONSOLIDATION: CONSOLIDATE,
    Action.RECLAIM: RECLAIM,
    Action.PREEMPT: PREEMPT,
}
AT_ONCE = 64
"""Turns between two looks at the clock."""

MOST_VAIN = {Action.ALLOCATE: 0, Action.CONSOLIDATION: 1, Action.RECLAIM: 1, Action.PREEMPT: 4}
"""Gangs of an action that find no room in the arrays, and are asked for on the working state as well until so many were
in vain: the arrays do not show all running work, or moves are searched there in more ways.

On 5,000 loaded nodes with shares one takes 0.04 to 0.1 s of CPU. Of 1,015 consolidations there, which took 2.1 s, one
found room (2026-11-27). On ten twins of 500 to 5,000 nodes and openb, in four cycles each, one consolidation in vain
gave the plans of four in all but one cycle of openb, which served as many; on four of them one reclaim gave those of
two. In a fifth cycle on 1,000 nodes two gangs more were served with four and two. Without any, openb evicted 256 pods
in a cycle, not 198; with one preemption 1,000 nodes served a gang less (2026-11-29)."""

Refuse = Callable[[AllocationUnit, int, bool], None]
"""Refuses what a gang asked for: with its kind, and whether the last gang of this kind was refused in this state."""


class BoardLine:
    """The line of one action. It stands in for `GangOrder`.

    Attributes
    ----------
    free_milli
        In consolidation, thousandths of devices that moves could make free.
    shows_all
        Whether a "no" of the arrays stands: they show all that could make room, or enough gangs were asked for beside.
    asked_again
        The gang that was refused last, if it has to be asked for on the working state: what the arrays do not show, or
        gangs that were placed in this cycle, may make room for it.
    found
        The gang that `pop` handed out last, if the arrays found room for it.
    """

    def __init__(self, context: "Context", board: Board, action: Action, gangs: Iterable[int]) -> None:
        self.context, self.board, self.action = context, board, action
        self.state, self.outcome = context.state, context.outcome
        self.number = NUMBER[action]
        self.free_milli = 0
        self.shows_all = False
        self._vain, self._asks, self._is_ahead = 0, False, False
        self.asked_again: AllocationUnit | None = None
        self.found: int | None = None
        board.catch_up()
        if action is not Action.ALLOCATE:
            self._write_yields()
            board.price(moves=action is Action.CONSOLIDATION)
        board.line_up(gangs)
        if action is Action.PREEMPT:
            self._leave_out_capped()
        begin_turns(board.arrays)

    def _leave_out_capped(self) -> None:
        """Gangs that a limit refuses as things are have their turns on the working state, if their queue runs what they
        may evict: kernels seek no victims where room is.
        """
        gangs, queues, units = self.board.arrays.gangs, self.board.arrays.queues, self.board.arrays.units
        least = np.full(len(queues.held), BOUNDLESS, dtype=np.int64)
        at_home = units.where == HOME
        np.minimum.at(least, units.queue[at_home], units.priority[at_home])
        rows = np.flatnonzero((gangs.standing != OUT) & (least[gangs.queue] < gangs.priority) & ~gangs.never_preempts)
        queue, is_over = gangs.queue[rows], np.zeros(len(rows), dtype=np.bool_)
        parent = np.append(queues.tree.parent, NONE)  # Of `NONE`, the last one, itself.
        while (queue != NONE).any():
            asked = gangs.charge[rows]
            exceeds = (asked > 0) & (queues.held[queue] + asked > queues.limit[queue])
            is_over |= exceeds.any(axis=1) & (queue != NONE)
            queue = parent[queue]
        gangs.standing[rows[is_over]] = OTHER

    def _write_yields(self) -> None:
        """Of each queue, the least priority of preemptible gangs that allocate placed."""
        yields, gangs = self.board.arrays.queues.yields, self.board.problem.gangs
        yields[:] = BOUNDLESS
        for admission in self.outcome.binds:
            gang = gangs[admission.allocation_unit.gang]
            if gang.gang.preemptible:
                yields[gang.queue] = min(int(yields[gang.queue]), gang.gang.priority)

    # -- plain gangs -----------------------------------------------------------------------------------------------

    def serve(self, refuse: Refuse) -> int:
        """Let plain gangs have their turns, and ``refuse`` those that get no places; how many had a turn."""
        arrays, numbers = self.board.arrays, self.board.arrays.record.numbers
        numbers[TURNS] = numbers[PODS] = numbers[VICTIMS] = numbers[MOVES] = 0
        is_whole = not self.board.is_partial and self.action is not Action.CONSOLIDATION
        self.shows_all = is_whole or self._vain >= MOST_VAIN[self.action]
        ended = take_turns(arrays, self.number, AT_ONCE, self.free_milli, not self.shows_all)
        count, self._asks = int(numbers[TURNS]), ended == ASK
        self.asked_again = self.found = None
        if count:
            self._put_into_effect(count, refuse, is_open=ended == MAY_YIELD)
            shape = arrays.gangs.shape[arrays.record.turn[count - 1, 0]]
            if arrays.shapes.parts[shape] > 0:
                self.board.catch_up()  # Which units share devices may have changed.
            else:
                self.board.agree()
        return count

    def _put_into_effect(self, count: int, refuse: Refuse, *, is_open: bool) -> None:
        arrays, board, units = self.board.arrays, self.board, self.context.gang_units
        record = arrays.record
        nodes, is_now = record.node, record.is_now
        moved_at = 0
        turns = record.turn[:count].tolist()
        for number, (row, said, first, last, victim, victims_end) in enumerate(turns):
            gang = board.gang(row)
            unit = units[gang].next()
            if unit is None:
                raise InternalError(f"{board.problem.gangs[gang].gang.key} had a turn and asks for nothing")
            if said == PLACED:
                self._place(unit, nodes[first:last].tolist(), now=bool(is_now[first]))
                self.outcome.admit(Admission(unit, self.action))
            elif said == MADE_ROOM:
                disturbed = record.victim[victim:victims_end].tolist()
                pool, moves = board.pool, self._leave(disturbed, moved_at)
                self._put(unit.pods, nodes[first:last].tolist())
                for moved, places in moves:
                    self._put(pool.units[moved].pods, places)
                    pool.note_places(moved)
                    moved_at += len(places)
                admission = Admission(unit, self.action, tuple(number for number, _ in disturbed))
                self.outcome.admit(admission)
            elif is_open and number == count - 1:
                self.asked_again = unit
            else:
                refuse(unit, int(arrays.gangs.kind[row]), said == SAME)

    def _place(self, unit: AllocationUnit, nodes: list[int], *, now: bool) -> None:
        if self.state.problem.pods[unit.pods[0]].gpu.is_shared:
            for pod, node in zip(unit.pods, nodes, strict=True):
                self.state.put(pod, node, now=now and self._is_share_free_now(pod, node))
            start_together(self.state, unit)
        else:
            self._put(unit.pods, nodes, now=now and self._is_free_now(unit, nodes))

    def _put(self, pods: tuple[int, ...], nodes: Sequence[int], *, now: bool = False) -> None:
        """``pods`` start on ``nodes``, ``now`` or once what leaves has left."""
        state, problem = self.state, self.state.problem
        shape, is_alone = problem.pod_shape[pods[0]], problem.related.isdisjoint(pods)
        is_shared = problem.shapes.shapes[shape].gpu.is_shared
        if state.by_device or is_shared or not is_alone or state.is_linked(shape):
            for pod, node in zip(pods, nodes, strict=True):
                state.put(pod, node, now=now)
            return
        runs = [(node, len(list(run))) for node, run in groupby(nodes)]
        state.join(pods, charge_of(problem, pods))
        state.place_joined(pods, [node for node, _ in runs], [count for _, count in runs], now=now)

    def _is_free_now(self, unit: AllocationUnit, nodes: list[int]) -> bool:
        """Whether the devices that are free now suffice: the arrays count them, and pods that start later choose."""
        devices = self.state.problem.pods[unit.pods[0]].gpu.devices
        return all(self.state.whole_now[node] >= devices * nodes.count(node) for node in set(nodes))

    def _is_share_free_now(self, pod: int, node: int) -> bool:
        """The same of a device that ``pod`` is to share."""
        state, shape = self.state, self.state.problem.pod_shape[pod]
        parts, (kept, slots) = state.problem.shapes.parts(shape)[node], state.reserved(node, now=True)
        free = np.minimum(state.device_idle[node], state.device_future[node]).tolist()
        slots -= state.problem.shapes.shapes[shape].request[SLOTS]
        return any(part >= parts and slots >= (not own) for part, own in zip(free, kept, strict=True))

    def _leave(self, disturbed: list[list[int]], moved_at: int) -> list[tuple[int, list[int]]]:
        """Let units leave; those that move, with the new nodes of their pods, recorded from ``moved_at`` on."""
        pool, moved = self.board.pool, self.board.arrays.record.moved
        moves = []
        for number, where in disturbed:
            pool.leave(number)
            if where == MOVED:
                end = moved_at + len(pool.units[number].pods)
                moves.append((number, moved[moved_at:end].tolist()))
                moved_at = end
        return moves

    # -- other gangs -----------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """Whether some gang waits."""
        return int(self.board.arrays.record.numbers[ASKED]) != NONE

    def pop(self) -> NextGang | None:
        """The next gang that is not plain, for which there may be room; None if none is next."""
        arrays = self.board.arrays
        if not self._asks:
            return None
        row = int(arrays.record.numbers[ASKED])
        gang = self.board.gang(row)
        self.found = gang if arrays.gangs.standing[row] == WISHING else None
        arrays.gangs.standing[row] = OUT
        unit = self.context.gang_units[gang].next()
        if unit is None:
            look_at_queues(arrays)
            return None
        self.context.times.begin(gang)
        return NextGang(gang, unit, charge_of(self.board.problem, unit.pods))

    def shows_way(self, unit: AllocationUnit) -> bool:
        """Whether the arrays find places for ``unit`` in the working state as it is now, which may be rolled back then.

        True for gangs that the arrays cannot say.
        """
        if self.board.standing[unit.gang] == OTHER:
            return True
        self.board.catch_up()
        self._is_ahead = True
        return has_way(self.board.arrays, self.board.row_of[unit.gang], self.number)

    def again(self, gang: int) -> None:
        """``gang``, which is not plain, was served, and may want more."""
        self.board.stand_again(gang)
        self.changed()

    def changed(self) -> None:
        """The working state changed by the turn of a gang that is not plain."""
        self._catch_up()
        self.board.arrays.record.numbers[ADMITTED] += 1
        look_at_queues(self.board.arrays)

    def unchanged(self) -> None:
        """A gang was refused in its turn on the working state, or is postponed."""
        self._vain += self.asked_again is not None and not self.shows_all
        if self._is_ahead:
            self._catch_up()
        look_at_queues(self.board.arrays)

    def _catch_up(self) -> None:
        self.board.catch_up()
        self._is_ahead = False

    def rest(self) -> Iterator[int]:
        """All gangs without a turn."""
        return iter(self.board.waiting())
