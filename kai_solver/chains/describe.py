"""An outcome of the actions in the arrays of the chain search: which pods may get a place, move or leave.

What the arrays cannot say stays where it is: pods under optional rules, with wishes or rules about other pods, with a
preferred domain, or of workloads that are spread; so a result is right without them, and only gains less.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.chains.arrays import NONE, ChainProblem, scaled
from kai_solver.domain import Action, TopologyConstraint
from kai_solver.placement.placing import domains_at
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eviction_units import charge_of
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import GangShape, Leaf, TreeNode
from kai_solver.problem.rules import answering
from kai_solver.search.rights import Rights
from kai_solver.units import PODS, UNLIMITED

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

EVICTING = (Action.RECLAIM, Action.PREEMPT)
BOUNDLESS = 2**61
"""What a ledger without a limit may hold."""


class Group(NamedTuple):
    """What a group of the arrays is: a unit of running pods, what an admission placed, or what a gang waits for.

    ``unit``: index in the pool, else `NONE`. ``admission``: number in the outcome, else `NONE`.
    """

    pods: tuple[int, ...]
    unit: int = NONE
    admission: int = NONE
    waiting: AllocationUnit | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """The arrays, with what their pods (by number in the problem) and groups are."""

    problem: ChainProblem
    pods: IntArray
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class MovePrices:
    """What moves cost and how many there may be.

    ``loss``: by unit of the pool, what it loses by a move, in GPU-seconds. ``per_cycle``, ``per_turn``: pods that are
    moved in all, and for one admission; -1 for no limit.
    """

    loss: IntArray
    per_cycle: int = UNLIMITED
    per_turn: int = UNLIMITED


def describe(
    outcome: Outcome,
    pool: VictimPool,
    rights: Rights,
    moves: MovePrices,
    turns: Sequence[AllocationUnit] = (),
    *,
    may_evict: bool,
) -> Description | None:
    """The arrays of ``outcome``; None where nothing could be changed.

    Parameters
    ----------
    turns
        What gangs wait for that may have others moved, in policy order.
    may_evict
        Whether others may leave in the place of those that do. If not, work only comes back.
    """
    say = _Sayable(outcome.state, pool)
    groups = [
        *say.units(rights, outcome.stale, may_evict=may_evict),
        *say.admissions(outcome),
        *(Group(unit.pods, waiting=unit) for unit in turns if say.can_wait(unit)),
    ]
    if not any(group.waiting or (group.unit != NONE and pool.has_left(group.unit)) for group in groups):
        return None
    return _Arrays(outcome, pool, rights, groups, say).made(moves, may_evict=may_evict)


class _Sayable:
    """Which pods and groups the arrays can say."""

    def __init__(self, state: State, pool: VictimPool) -> None:
        self.state, self.pool, self.problem = state, pool, state.problem
        problem = self.problem
        self.shape = problem.columns.shape
        self.node = problem.columns.node
        self.place = np.full(len(problem.pods), NONE, dtype=np.int64)
        for pod, place in state.places.items():
            self.place[pod] = place.node
        self._masking = answering(state.rules, "mask")
        self.tied = self._tied()
        plain = np.array([self._is_plain(shape) for shape in range(len(problem.shapes.shapes))], dtype=np.bool_)
        self.pods: BoolArray = plain[self.shape]
        self.pods[list(problem.related)] = False
        self._levels: dict[tuple[str, str], int] = {}
        self._asks: dict[int, int | None] = {}

    # -- pods ------------------------------------------------------------------------------------------------------

    def _tied(self) -> BoolArray:
        """(N,) nodes on which some optional rule limits what fits (NUMA zones)."""
        problem = self.problem
        tied = np.zeros(len(problem.nodes), dtype=np.bool_)
        for rule in self.state.rules:
            for shape in filter(rule.limits, range(len(problem.shapes.shapes))):
                limited = rule.limited_nodes(shape)
                tied |= True if limited is None else limited
        return tied

    def _is_plain(self, shape: int) -> bool:
        """True where optional rules are about unrelated pods of ``shape`` on ``tied`` nodes at most."""
        return all(rule.counts_alike(shape) or rule not in self._masking for rule in self.state.rules)

    # -- groups ----------------------------------------------------------------------------------------------------

    def units(self, rights: Rights, stale: Iterable[int], *, may_evict: bool) -> list[Group]:
        """Units that could leave, move or come back. Those of one gang are said together or not at all."""
        pool, state = self.pool, self.state
        if not pool.units:
            return []
        pods, sizes, starts = pool.table.pods, pool.table.sizes, pool.table.starts
        is_gone, place, home = state.is_gone[pods], self.place[pods], self.node[pods]
        sayable = self.pods[pods] & ~self.tied[home] & ((place == NONE) | ~self.tied[place])
        for number in np.flatnonzero(is_gone & (place == home)).tolist():
            pod = int(pods[number])
            same = set(state.places[pod].devices) == set(self.problem.held_devices.get(pod, ()))
            sayable[number] &= same
        gone, placed = np.add.reduceat(is_gone, starts), np.add.reduceat(place != NONE, starts)
        is_whole = ((gone == 0) & (placed == 0)) | ((gone == sizes) & ((placed == 0) | (placed == sizes)))
        good: BoolArray = np.logical_and.reduceat(sayable, starts) & is_whole
        counted = pool.releases.counted
        if counted is not None:
            good &= ~counted
        problem, banned = self.problem, set(stale)
        for gang in pool.of_gang:
            if gang in banned or self.level_of(problem.gangs[gang]) is None or problem.gangs[gang].family >= 0:
                good[pool.of_gang[gang]] = False
        bad = np.unique(pool.gang_of[~good])
        good &= ~np.isin(pool.gang_of, bad)
        out = gone > placed
        useful = pool.may_move | out
        if may_evict:
            useful[list(rights.movable)] = True
        return [Group(pool.units[u].pods, unit=u) for u in np.flatnonzero(good & useful).tolist()]

    def admissions(self, outcome: Outcome) -> list[Group]:
        """What was placed in this cycle, and does not start at once."""
        found = []
        for number, admission in enumerate(outcome.admissions):
            pods = admission.allocation_unit.pods
            places = [outcome.state.places[pod] for pod in pods]
            if any(place.now or self.tied[place.node] for place in places) or not self.pods[list(pods)].all():
                continue
            gang = self.problem.gangs[admission.allocation_unit.gang]
            if gang.family < 0 and self.level_of(gang) is not None:
                found.append(Group(pods, admission=number))
        return found

    def can_wait(self, unit: AllocationUnit) -> bool:
        """Whether what a gang waits for can be said."""
        gang = self.problem.gangs[unit.gang]
        return gang.family < 0 and bool(self.pods[list(unit.pods)].all()) and self.level_of(gang) is not None

    def level_of(self, gang: GangShape) -> int | None:
        """Row of the topology level at which all pods of ``gang`` share a domain; `NONE` without such a rule.

        None where it asks for something else as well: preferred domains, or domains for parts of it.
        """
        if gang.index not in self._asks:
            self._asks[gang.index] = self._ask(gang)
        return self._asks[gang.index]

    def _ask(self, gang: GangShape) -> int | None:
        if len(gang.leaves) == 1 and gang.root.topology is None and gang.leaves[0].topology is None:
            return NONE
        asked = list(_topologies(gang.root))
        if not asked:
            return NONE
        topology = asked[0]
        tree = self.problem.domains.get(topology.topology)
        outer = gang.root.topology or (gang.leaves[0].topology if len(gang.leaves) == 1 else None)
        if len(asked) > 1 or outer is None or tree is None or topology.preferred or not topology.required:
            return None
        if tree.level_index(topology.required) is None:
            return None
        return self._levels.setdefault((topology.topology, topology.required), len(self._levels))

    def domains(self) -> IntArray:
        """(V, N) domain of each node by the levels that gangs ask for."""
        rows = [domains_at(self.problem.domains, topology, level) for topology, level in self._levels]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self.problem.nodes))


def _topologies(node: TreeNode | Leaf) -> Iterator[TopologyConstraint]:
    if node.topology is not None:
        yield node.topology
    for child in () if isinstance(node, Leaf) else node.children:
        yield from _topologies(child)


class _Arrays:
    """Fills the arrays for some groups."""

    def __init__(self, outcome: Outcome, pool: VictimPool, rights: Rights, groups: list[Group], say: _Sayable) -> None:
        self.outcome, self.pool, self.rights, self.say = outcome, pool, rights, say
        self.state, self.problem = outcome.state, outcome.state.problem
        self.groups = groups
        sizes = np.array([len(group.pods) for group in groups], dtype=np.int64)
        self.first: IntArray = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.pods = np.fromiter(chain.from_iterable(group.pods for group in groups), dtype=np.int64)
        self.unit = np.array([group.unit for group in groups], dtype=np.int64)
        self.is_unit: BoolArray = self.unit != NONE
        self.waits: BoolArray = np.array([group.waiting is not None for group in groups], dtype=np.bool_)
        self.of_pod: IntArray = np.repeat(np.arange(len(groups)), sizes)
        place = say.place[self.pods]
        stays = (place == NONE) & self.is_unit[self.of_pod] & ~self.state.is_gone[self.pods]
        self.start: IntArray = np.where(stays, say.node[self.pods], place)
        self.home: IntArray = np.where(self.is_unit[self.of_pod], say.node[self.pods], NONE)

    def made(self, moves: MovePrices, *, may_evict: bool) -> Description:
        """The arrays."""
        problem, state = self.problem, self.state
        used, shape = np.unique(self.say.shape[self.pods], return_inverse=True)
        shapes = [problem.shapes.shapes[s] for s in used.tolist()]
        request = np.array([one.request for one in shapes], dtype=np.int64)
        memories, kind = np.unique([node.gpu_memory_mib for node in problem.nodes], return_inverse=True)
        of_kind = [int(np.flatnonzero(kind == k)[0]) for k in range(len(memories))]
        parts = np.array([problem.shapes.parts(s)[of_kind] for s in used.tolist()], dtype=np.int64)
        devices = np.array([one.gpu.devices for one in shapes], dtype=np.int64)
        shared = np.array([one.gpu.is_shared for one in shapes], dtype=np.bool_)
        allowed, mask = self._masks(used.tolist())
        width = max(1, int(devices.max(initial=0)))
        home_devices, start_devices = self._devices(width)
        room, device_room = state.future.T.copy(), state.device_future.copy()
        at = np.flatnonzero(self.start != NONE)
        np.add.at(room, self.start[at], request[shape[at]])
        sharers = state.sharers_later.copy()
        held, which = np.nonzero(start_devices[at] != NONE)
        node, device = self.start[at][held], start_devices[at][held, which]
        np.add.at(device_room, (node, device), parts[shape[at][held], kind[node]])
        np.subtract.at(sharers, (node, device), shared[shape[at][held]].astype(np.int64))
        room[:, PODS] += ((state.sharers_later > 0) & (sharers == 0)).sum(axis=1)
        cost, price = self._costs(moves, may_evict=may_evict)
        charge = np.array([self._charge(group) for group in self.groups], dtype=np.int64)
        above, limit, in_ledgers, out_ledger = self._ledgers(charge)
        level, within = self._domains()
        may_leave, may_move = self._rights(may_evict=may_evict)
        arrays = ChainProblem(
            room=np.ascontiguousarray(room),
            device_room=device_room,
            sharers=sharers,
            slots=PODS,
            kind=kind.astype(np.int64),
            domain=self.say.domains(),
            request=request,
            devices=devices,
            parts=parts,
            shared=shared,
            allowed=allowed,
            mask=mask,
            shape=shape.astype(np.int64),
            price=price,
            home=self.home,
            home_devices=home_devices,
            start=self.start,
            start_devices=start_devices,
            first=self.first,
            cost=cost,
            may_leave=may_leave,
            may_move=may_move,
            level=level,
            within=within,
            requires=self._requires(),
            charge=charge,
            in_ledgers=in_ledgers,
            out_ledger=out_ledger,
            ledger_above=above,
            ledger_limit=limit,
            turn=np.flatnonzero(self.waits).astype(np.int64),
            moves_limit=moves.per_cycle,
            moves_per_turn=moves.per_turn,
        )
        return Description(arrays, self.pods, tuple(self.groups))

    # -- places ----------------------------------------------------------------------------------------------------

    def _masks(self, shapes: Sequence[int]) -> tuple[BoolArray, IntArray]:
        """(M, N) nodes that some shape may take, and (S,) the row of each."""
        rows: dict[bytes, int] = {}
        masks: list[BoolArray] = []
        of_shape = []
        for shape in shapes:
            mask = self.problem.shapes.mask(shape) & ~self.say.tied
            number = rows.setdefault(mask.tobytes(), len(rows))
            if number == len(masks):
                masks.append(mask)
            of_shape.append(number)
        return np.array(masks, dtype=np.bool_), np.array(of_shape, dtype=np.int64)

    def _devices(self, width: int) -> tuple[IntArray, IntArray]:
        """(P, W) devices that pods hold where they run, and where they begin."""
        home = np.full((len(self.pods), width), NONE, dtype=np.int64)
        start = home.copy()
        held, places = self.problem.held_devices, self.state.places
        for number, (pod, runs, begins) in enumerate(
            zip(self.pods.tolist(), self.home.tolist(), self.start.tolist(), strict=True)
        ):
            own = held.get(pod, ()) if runs != NONE else ()
            if own:
                home[number, : len(own)] = sorted(own)
            if begins != NONE:
                now = places[pod].devices if pod in places else own
                if now:
                    start[number, : len(now)] = sorted(now)
        return home, start

    def _domains(self) -> tuple[IntArray, IntArray]:
        """(G,) level at which each group is in one domain, and that domain where others of its gang are in it."""
        level = np.full(len(self.groups), NONE, dtype=np.int64)
        within = level.copy()
        rows = self.say.domains()
        for number, group in enumerate(self.groups) if len(rows) else ():
            gang = self.problem.gangs[self.problem.pod_gang[group.pods[0]]]
            asked = self.say.level_of(gang)
            if asked is None or asked == NONE:
                continue
            level[number] = asked
            others = {pod for pods in self.state.gangs[gang.index].active for pod in pods}.difference(group.pods)
            nodes = [int(self.say.place[p]) if self.say.place[p] != NONE else int(self.say.node[p]) for p in others]
            if nodes:
                within[number] = int(rows[asked, nodes[0]])
        return level, within

    # -- what may be done --------------------------------------------------------------------------------------

    def _rights(self, *, may_evict: bool) -> tuple[BoolArray, BoolArray]:
        """(G,) groups that may leave, and that may move."""
        may_leave = np.zeros(len(self.groups), dtype=np.bool_)
        if may_evict:
            busy = {self.problem.pod_gang[group.pods[0]] for group in self.groups if group.unit == NONE}
            open_to = {u for action in EVICTING for u in self.rights.by_action.get(action, ())}
            units = [u in open_to and self.pool.units[u].gang not in busy for u in self.unit[self.is_unit].tolist()]
            may_leave[self.is_unit] = units
        may_move = np.ones(len(self.groups), dtype=np.bool_)
        may_move[self.is_unit] = self.pool.may_move[self.unit[self.is_unit]]
        return may_leave, may_move

    def _costs(self, moves: MovePrices, *, may_evict: bool) -> tuple[IntArray, IntArray]:
        """(G,) cost of being out by priority, and (P,) price of moves, which counts as the lowest.

        That gangs wait costs nothing here: they come in by their turns alone, and never for work that leaves.
        """
        units, gangs = self.pool.units, self.problem.gangs
        may_leave, _ = self._rights(may_evict=may_evict)
        is_out = self.is_unit & (self.start[self.first[:-1]] == NONE)
        concerned = np.flatnonzero(may_leave | is_out)
        priority = {int(g): gangs[units[self.unit[g]].gang].gang.priority for g in concerned.tolist()}
        strata = {p: i for i, p in enumerate(sorted(set(priority.values())))}
        work = np.zeros(len(self.groups), dtype=np.int64)
        stratum = np.zeros(len(self.groups), dtype=np.int64)
        for group, own in priority.items():
            work[group] = max(1, round(units[self.unit[group]].work))
            stratum[group] = strata[own]
        price = np.zeros(len(self.pods), dtype=np.int64)
        runs = self.is_unit[self.of_pod]
        size = np.diff(self.first)[self.of_pod]
        price[runs] = np.maximum(1, moves.loss[self.unit[self.of_pod[runs]]] // size[runs])
        both = scaled(np.concatenate([work, price]), np.concatenate([stratum, np.zeros_like(price)]))
        return np.ascontiguousarray(both[: len(work)]), np.ascontiguousarray(both[len(work) :])

    def _requires(self) -> IntArray:
        """(G,) unit of the same gang that leaves next after each."""
        found = np.full(len(self.groups), NONE, dtype=np.int64)
        group_of = {int(unit): group for group, unit in enumerate(self.unit.tolist()) if unit != NONE}
        for unit, group in group_of.items():
            own = self.pool.of_gang[self.pool.units[unit].gang]
            step = self.pool.units[unit].step
            if step + 1 < len(own):
                found[group] = group_of.get(own[step + 1], NONE)
        return found

    # -- queues ----------------------------------------------------------------------------------------------------

    def _charge(self, group: Group) -> tuple[int, int, int]:
        return self.pool.units[group.unit].charge if group.unit != NONE else charge_of(self.problem, group.pods)

    def _ledgers(self, charge: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """(L,) ledgers above and (L, 3) limits; (G, 2) those charged while in, (G,) while out.

        In: the limits of queues. Out: by leaf queue, as much as is out now of what reclaim may take. So it loses no
        more than before by what the same reclaims took, and mostly they may take the other work as well.
        """
        tree = self.problem.queues
        queue = np.array([self.problem.gangs[self.problem.pod_gang[g.pods[0]]].queue for g in self.groups])
        is_in = self.start[self.first[:-1]] != NONE
        limited = [q for q in range(len(tree.names)) if any(cap != UNLIMITED for cap in tree.limits[q])]
        number = {("in", q): i for i, q in enumerate(limited)}
        limits: list[list[int]] = []
        for q in limited:
            below = np.isin(queue, list(tree.leaves[q])) & is_in
            here = charge[below].sum(axis=0).tolist()
            caps = zip(tree.limits[q], self.state.allocated[q], here, strict=True)
            limits.append([BOUNDLESS if cap == UNLIMITED else cap - held + own for cap, held, own in caps])
        reclaimed = self.rights.by_action.get(Action.RECLAIM, frozenset())
        counts = np.array([unit in reclaimed for unit in self.unit.tolist()], dtype=np.bool_)
        for q in np.unique(queue[counts]).tolist():
            number["out", q] = len(limits)
            limits.append(charge[counts & (queue == q) & ~is_in].sum(axis=0).tolist())
        above = np.full(len(limits), NONE, dtype=np.int64)
        for (kind, q), ledger in number.items():
            if kind == "in":
                above[ledger] = next((number[kind, up] for up in tree.path[q][1:] if (kind, up) in number), NONE)
        nearest = {
            q: next((number["in", up] for up in tree.path[q] if ("in", up) in number), NONE)
            for q in set(queue.tolist())
        }
        in_ledgers = np.full((len(self.groups), 2), NONE, dtype=np.int64)
        in_ledgers[:, 0] = [nearest[q] for q in queue.tolist()]
        out_ledger = np.full(len(self.groups), NONE, dtype=np.int64)
        out_ledger[counts] = [number["out", q] for q in queue[counts].tolist()]
        table = np.array(limits, dtype=np.int64).reshape(len(limits), 3)
        return above, table, in_ledgers, out_ledger
