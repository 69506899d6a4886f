"""Placing an allocation unit by making room: the cheapest victims per node, then all back that can stay or move."""

from collections.abc import Callable
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.accelerators.resettling import Resettling
from kai_solver.actions.allowance import Allowance, Spent
from kai_solver.actions.caps import within_limits
from kai_solver.actions.room.capping import passed_limit, sets_below
from kai_solver.actions.room.table import RoomTable
from kai_solver.domain import Action
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import Placer, never
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits, Part
from kai_solver.planstate.eviction_units import charge_of
from kai_solver.planstate.releases import Exhausted
from kai_solver.planstate.victims import IMPOSSIBLE, VictimPool, part_of_unit
from kai_solver.problem.rules import ClearedDomains
from kai_solver.topology import DomainTree

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]

NODES_TRIED = 8
"""Nodes tried for one pod whose victims find no other place, cheapest first."""
NO_QUEUES: frozenset[int] = frozenset()
DOMAINS_TRIED = 16
"""Domains tried for one allocation unit, cheapest estimate first."""


class Evictor(Placer):
    """A placer that may make units leave. One serves all questions with the same action and eligible gangs.

    ``tables``: of room by shape, which all evictors of an action share.
    """

    at_once = False  # Every pod may cost other victims.

    def __init__(
        self,
        pool: VictimPool,
        fits: FitTable,
        action: Action,
        eligible: BoolArray,
        is_over: Callable[[], bool] = never,
        tables: dict[tuple[int, bool], RoomTable] | None = None,
    ) -> None:
        super().__init__(pool.state, fits=fits)
        self.pool = pool
        self.action = action
        self.eligible = eligible
        self.has_eligible = bool(eligible.any())
        self.is_over = is_over
        self.may_move = pool.state.problem.policy.consolidating_reclaim or action is Action.CONSOLIDATION
        self.mover = Placer(pool.state, fits=fits, later=True)
        self.resettling = Resettling(pool, fits)
        self.left: dict[int, None] = {}
        self._allowance: Allowance | None = None
        self._spent: dict[int, Spent] = {}
        self._counted: tuple[int, object] = (0, None)
        self._tables: dict[tuple[int, bool], RoomTable] = {} if tables is None else tables
        self._open: dict[tuple[frozenset[int], Exhausted], BoolArray] = {}
        self._most: tuple[int, NDArray[np.int64]] = (-1, np.zeros(0, dtype=np.int64))

    def make_room(self, allocation_unit: AllocationUnit, allowance: Allowance | None = None) -> list[int] | None:
        """Place ``allocation_unit`` with victims; the units that left or moved for it, or None with the state
        unchanged.

        Units that turn out not to be needed stay; those that fit elsewhere are moved; the rest is evicted.
        ``allowance``: what may be taken from which queue, if all that leaves is evicted.
        """
        mark = self.state.mark()
        self.left = {}
        self._allowance = allowance
        self._spent, self._counted = {}, (0, None)
        is_done = self.place_unit(allocation_unit) or self._place_by_clearing(allocation_unit)
        # Attempts that were taken back have left their victims where they were.
        self.left = {u: None for u in self.left if self.pool.is_disturbed(u)}
        if is_done and self.action is not Action.CONSOLIDATION:
            self._keep_limits(allocation_unit)
        is_done = is_done and self._settle() and self._keeps_spacing(allocation_unit)
        if not is_done or (self.left and not self.state.keeps_rules()):
            self.state.rollback(mark)
            return None
        return [u for u in self.left if self.pool.is_disturbed(u)]

    def _keep_limits(self, allocation_unit: AllocationUnit) -> None:
        """Let more leave, the cheapest first, where a queue now passes a limit, as far as that is possible."""
        state, problem = self.state, self.state.problem
        leaf = problem.gangs[allocation_unit.gang].queue
        asked = [resource for resource, amount in enumerate(charge_of(problem, allocation_unit.pods)) if amount > 0]
        while (passed := passed_limit(state, leaf, asked)) is not None:
            units = next(filter(self._may_go_too, sets_below(self.pool, self.eligible, *passed)), None)
            if units is None:
                return
            for unit in units:
                self.pool.leave(unit)
            self.left.update(dict.fromkeys(units))

    def _may_go_too(self, units: list[int]) -> bool:
        """Whether ``units`` may leave beside those that left."""
        if self.is_over() or not self.pool.releases.fits(units):
            return False
        return self._allowance is None or self._allowance.allows(self._allowance.spent(self.left), units)

    def _place_by_clearing(self, allocation_unit: AllocationUnit) -> bool:
        """Place ``allocation_unit`` in domains that a rule closes as a whole, once all that closes them has left."""
        mark = self.state.mark()
        rules = self.state.problem.rules
        for way in chain.from_iterable(r.clearings(self.pool, self.eligible, allocation_unit) for r in rules):
            if self.is_over():
                break
            if self._is_allowed(way.units) and self._place_in_cleared(allocation_unit, way):
                return True
            self.state.rollback(mark)
        self.left = {}
        return False

    def _is_allowed(self, units: list[int]) -> bool:
        fits = self.pool.releases.fits(units)
        return fits and (self._allowance is None or self._allowance.allows({}, units))

    def _place_in_cleared(self, allocation_unit: AllocationUnit, way: ClearedDomains) -> bool:
        """Place ``allocation_unit`` once the units have left; if it must be in one domain, in one that was cleared."""
        problem, domain_of, allowed = self.state.problem, self._required(allocation_unit.root), None
        if domain_of is not None:
            around = np.unique(domain_of[way.nodes & (domain_of >= 0)])
            allowed = np.isin(domain_of, around)
            most = np.bincount(domain_of[allowed], weights=problem.gpus[allowed]).max(initial=0)
            shapes = problem.shapes.shapes
            asked = sum(
                count * shapes[shape].gpu.devices for shape, count in problem.by_shape(allocation_unit.pods).items()
            )
            is_whole = all(shapes[problem.pod_shape[pod]].gpu.is_whole for pod in allocation_unit.pods)
            if (way.domains > 1 and len(around) > 1) or (is_whole and asked > most):
                return False  # It has to be in one of them, and another way clears that one alone.
        for unit in way.units:
            self.pool.leave(unit)
        self.left = dict.fromkeys(way.units)
        if self._allowance is not None:
            self._spent, self._counted = self._allowance.spent(way.units), (0, None)
        is_done = self.place_unit(allocation_unit, allowed)
        return is_done and (self.action is not Action.CONSOLIDATION or self._replace_all(way.units))

    def is_hopeless(self, allocation_unit: AllocationUnit) -> bool:
        """True where whole devices do not suffice even with all eligible units gone: no search is needed then.

        Counted in the best of the domains of which one must hold all of ``allocation_unit``. With 31 gangs to make room
        for and 28 choices of victims each (5,000 loaded nodes, 2026-11-22) that spares most of 2.3 s.
        """
        problem = self.state.problem
        most = self._most_devices()
        domain_of = self._required(allocation_unit.root)
        for shape, count in problem.by_shape(allocation_unit.pods).items():
            gpu = problem.shapes.shapes[shape].gpu
            if not gpu.is_whole:
                continue
            hosts = np.where(problem.shapes.mask(shape), most // gpu.devices, 0)
            if domain_of is not None:
                hosts = np.bincount(domain_of[domain_of >= 0], weights=hosts[domain_of >= 0])
            if (hosts.sum() if domain_of is None else hosts.max(initial=0)) < count:
                return True
        return False

    def _most_devices(self) -> NDArray[np.int64]:
        """`VictimPool.most_devices`, kept until something is touched: the same is asked with and without allowance."""
        seen, most = self._most
        touched = len(self.state.touched)
        if seen != touched:
            most = self.pool.most_devices(self.eligible, self._eligible_rows)
            self._most = touched, most
        return most

    @cached_property
    def _eligible_rows(self) -> NDArray[np.int64]:
        """Rows of `VictimPool.origins` of units that may leave."""
        return np.flatnonzero(self.eligible[self.pool.origins.unit])

    def _required(self, part: Part) -> IntArray | None:
        """(N,) domains of which one must hold all of ``part``; None without such a rule."""
        while part.topology is None and not part.pods and len(part.parts) == 1:
            [part] = part.parts
        topology = part.topology
        tree = self.state.problem.domains.get(topology.topology) if topology is not None else None
        level = tree.level_index(topology.required) if tree is not None and topology is not None else None
        return None if tree is None or level is None else tree.domain_of[level]

    def _keeps_spacing(self, allocation_unit: AllocationUnit) -> bool:
        """What leaves may have been what kept its workload on enough nodes."""
        gangs = {allocation_unit.gang, *(self.pool.units[unit].gang for unit in self.left)}
        return all(self.state.keeps_spacing(gang) for gang in gangs)

    def table(self, shape: int, exhausted: frozenset[int] = NO_QUEUES) -> RoomTable:
        """Room for one more pod of ``shape``, by node, with no unit from the ``exhausted`` levelled queues."""
        eligible = self._still_open(exhausted)
        # One for all units and one for the changing rest of them, so that neither loses what the other needs.
        key = (shape, eligible is self.eligible)
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = RoomTable(self.pool, self.fits, shape, eligible, self.action)
        found.serve(eligible)
        return found

    def _still_open(self, queues: frozenset[int]) -> BoolArray:
        """The eligible without those of exhausted ``queues``, and those that an optional rule lets go no more."""
        releases = self.pool.releases
        caps = releases.exhausted()
        if not queues and not caps:
            return self.eligible
        found = self._open.get((queues, caps))
        if found is None:
            found = self.eligible
            if queues and self._allowance is not None:
                found = found & self._allowance.open_units(queues)
            if caps:
                found = found & releases.open_units(caps)
            self._open[queues, caps] = found
        return found

    def first_table(self, shape: int, allowance: Allowance | None) -> RoomTable:
        """The table by which the first pod of an allocation unit of ``shape`` is placed."""
        self._allowance = allowance
        return self.table(shape, allowance.exhausted({}) if allowance is not None else NO_QUEUES)

    def place_pod(self, pod: int, allowed: BoolArray | None = None) -> bool:
        """Place ``pod`` where the fewest victims have to leave."""
        if super().place_pod(pod, allowed):
            return True
        if self.is_over():
            return False
        allowance, spent = self._allowance, {}
        if allowance is not None:
            spent = self._spent_so_far(allowance)
        exhausted = allowance.exhausted(spent) if allowance is not None else NO_QUEUES
        table = self.table(self.state.problem.pod_shape[pod], exhausted)
        allowed = self.state.admitting(pod, allowed)
        bound = table.update(allowed)
        open_ = bound < IMPOSSIBLE
        if allowed is not None:
            open_ &= allowed
        if self.fits.has_room(table.shape):
            # Where it fits and was not placed, other rules than room forbid it.
            open_ &= self.fits.counts(table.shape)[1] <= 0
        nodes = np.flatnonzero(open_)
        cost, tried = bound[nodes], 0
        while tried < NODES_TRIED and (at := table.cheapest(nodes, cost)) is not None:
            node = int(nodes[at])
            victims = table.victims(node)
            fits = self.pool.releases.fits(victims)
            if fits and (allowance is None or allowance.allows(spent, victims)):
                if self._place_by_leaving(pod, table, node, victims):
                    if allowance is not None:
                        self._spent = allowance.spent(victims, spent)
                        self._counted = (len(self.state.journal), self.state.journal[-1])
                    return True
                tried += 1
            cost[at] = IMPOSSIBLE
        return False

    def _spent_so_far(self, allowance: Allowance) -> dict[int, Spent]:
        """What is taken by now; counted again only if something was taken back since the last time."""
        journal, (length, last) = self.state.journal, self._counted
        if length > len(journal) or (length and journal[length - 1] is not last):
            self.left = {unit: None for unit in self.left if self.pool.is_disturbed(unit)}
            self._spent = allowance.spent(self.left)
        return self._spent

    def _place_by_leaving(self, pod: int, table: RoomTable, node: int, victims: list[int]) -> bool:
        if self.action is Action.CONSOLIDATION and (
            self.resettling.lacks_devices(victims, pod, node) or self.resettling.is_hopeless(victims, pod, node)
        ):
            return False
        mark = self.state.mark()
        for unit in victims:
            self.pool.leave(unit)
        fits = table.is_exact or self.fits.counts(table.shape)[1][node] > 0
        if fits:
            self.state.put(pod, node, now=False)
        if fits and (self.action is not Action.CONSOLIDATION or self._replace_all(victims)):
            self.left.update(dict.fromkeys(victims))
            return True
        self.state.rollback(mark)
        return False

    def _replace_all(self, units: list[int]) -> bool:
        """Give all ``units`` other places, and leave no gang split over domains that it may not be split over."""
        if self.resettling.lacks_room(units):
            return False
        if not all(self._replace(unit) for unit in self._by_size(units)):
            return False
        gangs = {self.pool.units[unit].gang for unit in units}
        shapes = [self.state.problem.gangs[gang] for gang in gangs]
        return all(self.keeps_domains(shape, shape.root) and self.state.keeps_spacing(shape.index) for shape in shapes)

    def _by_size(self, units: list[int]) -> list[int]:
        """First those that can only return to their origin, then the largest."""
        pool = self.pool
        return sorted(units, key=lambda u: (pool.may_move[u], -pool.units[u].charge[2], -pool.units[u].charge[0], u))

    def _replace(self, unit: int) -> bool:
        """Give the pods of a unit that left another place, within their own gang's constraints.

        Surplus of which no controller makes new pods leaves with its core in consolidation, and may only return to its
        origin.
        """
        u = self.pool.units[unit]
        if not self.pool.may_move[unit]:
            return self.state.returns_to_origin(u.pods)
        gang = self.state.problem.gangs[u.gang]
        mark = self.state.mark()
        part = part_of_unit(gang, u.pods, self.state.gangs[u.gang].active)
        is_uneven = len({self.state.problem.pod_shape[pod] for pod in u.pods}) > 1
        for largest_first in (False, True) if is_uneven else (False,):
            placed = self.mover.place_part(part, None, largest_first=largest_first)
            # A request by GPU memory costs more on smaller devices.
            if placed and self._within_limits(u.gang) and (self.action is Action.CONSOLIDATION or self._may_run(unit)):
                self.pool.note_places(unit)
                return True
            self.state.rollback(mark)
        return False

    def _settle(self) -> bool:
        """Bring back what can stay, then move what can, dearest first; False where consolidation leaves one behind."""
        pool = self.pool
        order = pool.dearest_first(self.left)
        self.return_all(order)
        for gang in dict.fromkeys(pool.units[u].gang for u in order if pool.units[u].is_core and pool.has_left(u)):
            self._return_surplus(gang)
        if self.may_move and self.action is not Action.CONSOLIDATION:
            hopeless: set[tuple[int, ...]] = set()
            for unit in order:
                if pool.has_left(unit) and pool.may_move[unit]:
                    self._move_unless_hopeless(unit, hopeless)
        return self.action is not Action.CONSOLIDATION or not any(pool.has_left(u) for u in order)

    def return_all(self, units: list[int]) -> None:
        """Let every disturbed unit stay where it ran that can; pieces that must lie together come together."""
        for unit in units:
            self._return_units([unit])
        left: dict[int, list[int]] = {}
        for unit in filter(self.pool.is_disturbed, units):
            left.setdefault(self.pool.units[unit].gang, []).append(unit)
        for together in left.values():
            if len(together) > 1:
                self._return_units(together)

    def _return_units(self, units: list[int]) -> None:
        """Let all of one gang's ``units`` stay where they ran, or none: is there room now that the rest is placed?"""
        pool, state = self.pool, self.state
        moved = [pod for unit in units if pool.is_moved(unit) for pod in pool.units[unit].pods]
        vacated, origin = {state.places[pod].node for pod in moved}, state.problem.pod_node
        if not all(origin[p] in vacated or state.fits_origin(p) for unit in units for p in pool.units[unit].pods):
            return  # Most homes are taken; then nothing has to be tried.
        mark = state.mark()
        for pod in moved:
            state.lift(pod)
        fits = state.returns_to_origin([pod for unit in units for pod in pool.units[unit].pods])
        gang = pool.units[units[0]].gang
        if not (fits and self._within_limits(gang) and all(self._may_run(unit) for unit in units)):
            state.rollback(mark)
            return
        for unit in units:
            pool.note_places(unit)

    def _return_surplus(self, gang: int) -> None:
        """Let the surplus of a gang stay without its core, where together it makes up the minimum."""
        pool, state = self.pool, self.state
        if len(pool.of_gang[gang]) == 1:
            return
        shape = state.problem.gangs[gang]
        mark = state.mark()
        surplus = [u for u in pool.of_gang[gang] if pool.has_left(u) and not pool.units[u].is_core]
        origin = [u for u in reversed(surplus) if state.returns_to_origin(pool.units[u].pods)]
        is_whole = AllocationUnits(shape, state.gangs[gang]).is_whole() and self.keeps_domains(shape, shape.root)
        if not origin or not is_whole or not self._within_limits(gang):
            state.rollback(mark)
            return
        for unit in origin:
            pool.note_places(unit)

    def _within_limits(self, gang: int) -> bool:
        """False where the queue passes a limit only because units of ``gang`` returned: they had to go for that."""
        return within_limits(self.state, self.state.problem.gangs[gang].queue)

    def _may_run(self, unit: int) -> bool:
        """Surplus has no place without its core, unless it makes up the minimum by itself; a rack stays one rack."""
        gang = self.pool.units[unit].gang
        shape = self.state.problem.gangs[gang]
        if self.pool.has_left_after(unit) and not AllocationUnits(shape, self.state.gangs[gang]).is_whole():
            return False
        return self.keeps_domains(shape, shape.root) and self.state.keeps_spacing(gang)

    def _move_unless_hopeless(self, unit: int, hopeless: set[tuple[int, ...]]) -> None:
        """Try to move; units identical to one that found no place are not tried again (room only shrinks here)."""
        u = self.pool.units[unit]
        gang = self.state.problem.gangs[u.gang].gang
        identical = tuple(sorted(self.state.problem.pod_shape[pod] for pod in u.pods))
        if not all(map(self.fits.has_room, identical)):
            return
        is_plain = gang.root.topology is None and all(p.topology is None for p in gang.root.podsets())
        is_plain = is_plain and not self.state.problem.gangs[u.gang].is_spaced
        if is_plain and identical in hopeless:
            return
        if not self._replace(unit):
            hopeless.add(identical)

    # -- topology ------------------------------------------------------------------------------------------------

    def _ranked(self, tree: DomainTree, level: int, part: Part, inside: BoolArray) -> list[int]:
        """Domains in which room could be made, cheapest estimate first."""
        estimate = self._estimate(part, tree.domain_of[level], inside)
        order = np.argsort(estimate, kind="stable")[:DOMAINS_TRIED]
        return [int(domain) for domain in order if estimate[domain] < IMPOSSIBLE]

    def _estimate(self, part: Part, domain_of: IntArray, inside: BoolArray) -> FloatArray:
        """(D,) cost of the cheapest pods' worth of room by domain, each node counted as often as it could host."""
        problem = self.state.problem
        total = np.zeros(int(domain_of.max(initial=-1)) + 1)
        for shape, count in problem.by_shape(part.all_pods()).items():
            cost = np.where(self.fits.counts(shape)[1] > 0, 0.0, self.table(shape).update(inside))
            nodes = np.flatnonzero(inside & np.isfinite(cost))
            nodes = nodes[np.lexsort((cost[nodes], domain_of[nodes]))]
            devices = problem.shapes.shapes[shape].gpu.devices
            often = np.maximum(1, problem.gpus[nodes] // devices) if devices else np.full(len(nodes), count)
            domain, before = domain_of[nodes], np.cumsum(often) - often
            first = np.ones(len(nodes), dtype=np.bool_)
            first[1:] = domain[1:] != domain[:-1]
            before -= np.maximum.accumulate(np.where(first, before, 0))
            hosts = np.clip(count - before, 0, often)
            total += np.bincount(domain, weights=hosts * cost[nodes], minlength=len(total))
            total[np.bincount(domain, weights=hosts, minlength=len(total)) < count] = IMPOSSIBLE
        return total
