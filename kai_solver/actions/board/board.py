"""The arrays of a working state, and how they catch up with it after a turn that they did not take."""

from collections.abc import Iterable, Sequence

import numpy as np

from kai_solver.actions.board.arrays import (
    BLOCK,
    HOME,
    IMPOSSIBLE,
    KEPT,
    LEFT,
    MOVED,
    NONE,
    OTHER,
    OUT,
    BoolArray,
    IntArray,
)
from kai_solver.actions.board.making import ArrayMaker, add_take, gang_arrays, shared_devices
from kai_solver.actions.board.plainness import Plainness
from kai_solver.actions.board.room import forget, note
from kai_solver.actions.board.rows import list_moved
from kai_solver.actions.board.unit_arrays import no_facts, no_units, unit_arrays
from kai_solver.actions.gang_order import gang_key
from kai_solver.errors import InternalError
from kai_solver.planstate.allocation_units import AllocationUnits, GangUnits
from kai_solver.planstate.eviction_units import charge_of
from kai_solver.planstate.state import Place, State
from kai_solver.planstate.victims import VictimPool
from kai_solver.units import CPU


class Board:
    """The arrays of one cycle, on the working state that the actions share.

    ``is_partial``: some running work is left out, so that room may be made which the arrays do not show.
    """

    def __init__(self, state: State, gang_units: GangUnits, candidates: Iterable[int]) -> None:
        self.state = state
        self.problem = state.problem
        self.gang_units = gang_units
        self.plainness = Plainness(state)
        self.standing = {gang: self.plainness.standing(gang_units[gang]) for gang in candidates}
        self.is_partial = False
        self._seen = self._placed = len(state.touched)
        self._paid = len(state.paid)
        self._pool: VictimPool | None = None
        self._facts = no_facts()
        self._prices_moves = False
        self._gangs = list(self.standing)
        self.row_of = {gang: row for row, gang in enumerate(self._gangs)}
        gangs = gang_arrays(state, self.plainness, gang_units, self.standing)
        self.arrays = ArrayMaker(state, self.plainness, None).made(gangs, no_units(self.problem))

    # -- what is asked ---------------------------------------------------------------------------------------------

    @property
    def pool(self) -> VictimPool:
        """The units that may leave; there are some once an action may disturb running work."""
        if self._pool is None:
            raise InternalError("a unit leaves before there are any")
        return self._pool

    def gang(self, row: int) -> int:
        """The gang of a row."""
        return self._gangs[row]

    # -- units of running pods -------------------------------------------------------------------------------------

    def with_units(self, pool: VictimPool) -> None:
        """From now on the units of ``pool`` may leave and move."""
        if self._pool is pool:
            return
        self._pool, self._prices_moves = pool, False
        units, self._facts = unit_arrays(self.plainness, pool)
        every = np.arange(len(pool.units))
        self.is_partial = not bool((self._facts.base & self._have_own(every)).all())
        # Shapes and levels of units may be new.
        self.arrays = ArrayMaker(self.state, self.plainness, pool).made(self.arrays.gangs, units)
        self._seen = self._placed = len(self.state.touched)
        self._paid = len(self.state.paid)
        self._set_where(every, np.zeros(0, dtype=np.int64))

    def price(self, *, moves: bool) -> None:
        """What units cost from now on: if they leave, or in ``moves`` if they go elsewhere.

        A move is dear by the pods and by the devices of each, for which one node has to have room; it is impossible for
        what may not move, or has moved.
        """
        if self._pool is None or self._prices_moves is moves:
            return
        units, pool = self.arrays.units, self._pool
        units.cost[:] = pool.cost
        if moves:
            devices = np.append(self.arrays.shapes.devices, 0)[units.shape]  # The last one is for `NONE`.
            may, tie = units.movable & (units.where != MOVED), np.array(pool.rank) / (len(pool.units) + 1)
            units.cost[:] = np.where(may, units.pods * (1.0 + devices) ** 2 + tie, IMPOSSIBLE)
        self._prices_moves = moves
        forget(self.arrays)

    def _have_own(self, units: IntArray) -> BoolArray:
        """(K,) which of ``units`` leave each of their devices free whole: they share it with no other."""
        facts = self._facts
        first, last = facts.first_sharing[units], facts.first_sharing[units + 1]
        rows = ranges(first, last)
        sharers = self.state.sharers_later[facts.sharing_node[rows], facts.sharing_device[rows]]
        has_others = sharers != facts.sharing_pods[rows]
        others = np.concatenate([[0], np.cumsum(has_others)])
        ends = np.cumsum(last - first)
        found: BoolArray = others[ends] == others[ends - (last - first)]
        return found

    def _set_where(self, chosen: IntArray, touched: IntArray) -> None:
        """Write where the ``chosen`` units are: at home, moved to where the arrays can say it, or kept out of it.

        Those that had moved are looked at again where something of theirs is on ``touched`` nodes.
        """
        pool, state, units = self._pool, self.state, self.arrays.units
        if pool is None or not len(chosen):
            return
        first, before = self._facts.first_pod[chosen], units.where[chosen]
        gone, out, pinned = state.is_gone[first], state.is_out[first], pool.is_pinned[chosen]
        may = self._facts.base[chosen] & ~pinned & self._have_own(chosen)
        now = np.where(may & ~gone, HOME, KEPT)
        now[may & gone & ~out & units.movable[chosen]] = MOVED
        differs = (now != before) & ~((now == KEPT) & (before == LEFT))
        again = (now == MOVED) & (differs | self._is_on(chosen, touched))
        self._note(self._nodes_of(chosen[differs | again]))
        units.where[chosen[differs]] = now[differs]
        self._facts.pinned[chosen] = pinned
        for unit in chosen[again].tolist():
            places = [state.places[pod] for pod in pool.units[unit].pods]
            nodes = np.array([place.node for place in places], dtype=np.int64)
            list_moved(self.arrays, unit, nodes, self._taken(places), 0)
        self._note(self._nodes_of(chosen[again]))

    def _taken(self, places: Sequence[Place]) -> IntArray:
        """(K, Z, R) what pods with ``places`` took of compartments."""
        takes = np.zeros((len(places), *self.arrays.zones.later.shape[1:]), dtype=np.int64)
        if self.plainness.zones is not None:
            for place, take in zip(places, takes, strict=True):
                add_take(take, place.grants.get(self.plainness.zones[0].kind))
        return takes

    def _units_on(self, nodes: IntArray) -> IntArray:
        """Units that could be elsewhere than they were when nothing but ``nodes`` was touched since."""
        pool, units = self._pool, self.arrays.units
        if pool is None:
            return np.zeros(0, dtype=np.int64)
        at_home = units.unit[ranges(units.first_on[nodes], units.first_on[nodes + 1])]
        pinned = np.flatnonzero(pool.is_pinned != self._facts.pinned)
        found: IntArray = np.unique(np.concatenate([at_home, pool.guests(nodes), pinned]))
        return found

    def _is_on(self, chosen: IntArray, nodes: IntArray) -> BoolArray:
        """(K,) which of the ``chosen`` units had moved, and to some of ``nodes``."""
        units, found = self.arrays.units, np.zeros(len(chosen), dtype=np.bool_)
        moved = np.flatnonzero(units.where[chosen] == MOVED)
        is_touched = np.zeros(len(self.problem.nodes) + 1, dtype=np.bool_)  # The last stands for no node.
        is_touched[nodes] = True
        rows = ranges(units.first_moved[chosen[moved]], units.first_moved[chosen[moved] + 1])
        on = units.unit[rows[is_touched[units.node[rows]]]]
        found[np.searchsorted(chosen, on)] = True
        return found

    def _nodes_of(self, units: IntArray) -> IntArray:
        """Nodes that these units are on, or were or will be."""
        table, found = self.arrays.units, []
        for unit in units.tolist():
            found.append(table.row[table.first_row[unit] : table.first_row[unit + 1]])
            if table.is_listed[unit]:
                found.append(np.arange(table.first_moved[unit], table.first_moved[unit + 1]))
        nodes = np.unique(table.node[np.concatenate(found)]) if found else np.zeros(0, dtype=np.int64)
        known: IntArray = nodes[nodes != NONE]
        return known

    def _note(self, nodes: IntArray) -> None:
        """Note that something changed on ``nodes``, as the kernels do."""
        for node in nodes.tolist():
            note(self.arrays, node)

    # -- lines and changes -----------------------------------------------------------------------------------------

    def line_up(self, gangs: Iterable[int]) -> None:
        """Only ``gangs`` wait, in their order."""
        arrays, problem = self.arrays, self.problem
        standing = arrays.gangs.standing
        standing[:] = OUT
        lines: list[list[tuple[object, int]]] = [[] for _ in range(problem.queues.size)]
        for gang in gangs:
            units, row = self.gang_units[gang], self.row_of[gang]
            if units.waits() and self._stand(row, units):
                lines[problem.gangs[gang].queue].append((gang_key(units), row))
        self._write_lines(lines)

    def _stand(self, row: int, units: AllocationUnits) -> bool:
        """Let a gang stand in its line; False where it has nothing to ask for."""
        gangs, standing = self.arrays.gangs, self.standing[self.gang(row)]
        unit = units.next() if standing == OTHER else None
        if standing == OTHER and unit is None:
            return False
        gangs.standing[row] = standing
        if unit is not None:
            gangs.charge[row] = charge_of(self.problem, unit.pods)
        return True

    def _write_lines(self, lines: Sequence[list[tuple[object, int]]]) -> None:
        queues = self.arrays.queues
        at = 0
        for queue, line in enumerate(lines):
            line.sort()
            queues.first_gang[queue] = queues.next_gang[queue] = at
            for _, row in line:
                queues.gang[at] = row
                at += 1
        queues.first_gang[len(lines)] = at

    def stand_again(self, gang: int) -> None:
        """A gang that is not plain had its turn, and may want more: its line is ordered again."""
        row, problem = self.row_of[gang], self.problem
        if not (self.gang_units[gang].waits() and self._stand(row, self.gang_units[gang])):
            return
        queue, queues, standing = problem.gangs[gang].queue, self.arrays.queues, self.arrays.gangs.standing
        first, last = queues.first_gang[queue], queues.first_gang[queue + 1]
        rows = queues.gang[first:last]
        waiting = [int(r) for r in rows if standing[r] != OUT]
        waiting.sort(key=lambda r: gang_key(self.gang_units[self.gang(r)]))
        gone = [int(r) for r in rows if standing[r] == OUT]
        rows[:] = gone + waiting
        queues.next_gang[queue] = first + len(gone)

    def waiting(self) -> list[int]:
        """Gangs that stand in a line, queue by queue in order."""
        queues, standing = self.arrays.queues, self.arrays.gangs.standing
        return [self.gang(int(row)) for row in queues.gang[: queues.first_gang[-1]] if standing[row] != OUT]

    def catch_up(self) -> None:
        """Take over what changed in the working state."""
        state, queues = self.state, self.arrays.queues
        touched = np.unique(np.array(state.touched[self._placed :], dtype=np.int64))
        self.agree()
        self._placed = len(state.touched)
        path = self.problem.queues.path
        for queue in {queue for leaf in set(state.paid[self._paid :]) for queue in path[leaf]}:
            queues.held[queue], queues.fixed[queue] = state.allocated[queue], state.allocated_fixed[queue]
        self._paid = len(state.paid)
        self._set_where(self._units_on(touched), touched)

    def agree(self) -> None:
        """The working state has caught up with the arrays: what it knows better is taken over.

        Which devices pods get is decided there, and so how many whole ones are free now.
        """
        touched = self.state.touched
        self._take_over(np.unique(np.array(touched[self._seen :], dtype=np.int64)))
        self._seen = len(touched)

    def _take_over(self, nodes: IntArray) -> None:
        """Write what is free on ``nodes`` as the working state has it."""
        state, own, domains = self.state, self.arrays.nodes, self.arrays.domains
        later, whole, free = state.future[:, nodes].T, state.whole_later[nodes], state.gpu_free[nodes]
        is_shared, parts, parts_now = shared_devices(state, nodes)
        differs = (own.later[nodes] != later).any(axis=1)
        differs |= (np.sort(own.parts[nodes], axis=1) != np.sort(parts, axis=1)).any(axis=1)
        differs |= (own.whole_later[nodes] != whole) | (own.gpu_free[nodes] != free)
        differs |= self._zones_differ(nodes)
        own.now[nodes] = state.idle[:, nodes].T
        own.whole_now[nodes] = state.whole_now[nodes]
        own.is_shared[nodes], own.parts[nodes], own.parts_now[nodes] = is_shared, parts, parts_now
        own.most_parts[nodes] = parts.max(axis=1, initial=0)
        if not differs.any():
            return
        changed = nodes[differs]
        gained = free[differs] - own.gpu_free[changed]
        for row in range(len(domains.of_node)):
            at = domains.of_node[row, changed]
            inside = at >= 0
            np.add.at(domains.free[row], at[inside], gained[inside])
        own.later[changed], own.whole_later[changed], own.gpu_free[changed] = (
            later[differs],
            whole[differs],
            free[differs],
        )
        for block in np.unique(changed // BLOCK).tolist():
            here = slice(block * BLOCK, (block + 1) * BLOCK)
            own.block_whole[block] = max(0, int(own.whole_later[here].max()))
            own.block_parts[block] = own.most_parts[here].max()
            own.block_cpu[block] = max(0, int(own.later[here, CPU].max()))
        self.arrays.scratch.failed[:] = False
        self._note(changed)

    def _zones_differ(self, nodes: IntArray) -> BoolArray:
        """(K,) whether compartments of ``nodes`` have other free room than the arrays say; they say it then."""
        found = np.zeros(len(nodes), dtype=np.bool_)
        if self.plainness.zones is None:
            return found
        parts, own = self.plainness.zones[1], self.arrays.zones
        at = np.flatnonzero(parts.row_of[nodes] >= 0)
        rows = parts.row_of[nodes[at]]
        found[at] = (own.later[rows] != parts.later[rows]).any(axis=(1, 2))
        own.later[rows], own.now[rows] = parts.later[rows], parts.now[rows]
        return found


def ranges(first: IntArray, last: IntArray) -> IntArray:
    """The numbers from each of ``first`` (K,) up to, and without, that of ``last``, one after the other."""
    counts = last - first
    found: IntArray = np.arange(int(counts.sum())) + np.repeat(first - np.cumsum(counts) + counts, counts)
    return found
