"""Makes the arrays of a working state, with nothing recorded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from kai_solver.actions.board.arrays import (
    BLOCK,
    BOUNDLESS,
    IMPOSSIBLE,
    NONE,
    NUMBERS,
    OTHER,
    WIDTH,
    Arrays,
    BoolArray,
    Domains,
    Gangs,
    IntArray,
    Nodes,
    Queues,
    Record,
    Scratch,
    Shapes,
    Units,
    Zones,
)
from kai_solver.actions.board.plainness import Plainness
from kai_solver.actions.board.room import POINT
from kai_solver.fairness.queue_tables import tree_of
from kai_solver.planstate.allocation_units import GangUnits
from kai_solver.planstate.eligibility import least_milli
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import Problem
from kai_solver.problem.rules import Compartments, Ledger
from kai_solver.units import CPU, GPU, PODS, UNLIMITED
from kai_solver.units.shares import WHOLE

RECORDED_TURNS, RECORDED_PODS = 256, 4096
"""Turns and pods that are recorded before they are put into effect on the working state."""
CHANGES = 1 << 16
"""Changed nodes that are remembered for lower bounds of costs; after more they are found again for all nodes."""
BEST = 100
"""The best score of a rule."""
MOST_HERE = 512
"""Units on one node that are looked at."""


@dataclass(frozen=True, slots=True)
class ArrayMaker:
    """Makes arrays of ``state``. ``pool``: the units that may leave; None before there are any."""

    state: State
    plainness: Plainness
    pool: VictimPool | None

    @property
    def problem(self) -> Problem:
        """Of the state."""
        return self.state.problem

    def made(self, gangs: Gangs, units: Units) -> Arrays:
        """All arrays, with nothing recorded."""
        problem = self.problem
        shapes = self._shape_arrays()
        nodes = self._node_arrays(shapes)
        domains = self._domain_arrays(nodes.gpu_free)
        queues, record = self._queue_arrays(gangs), self._record(gangs, units)
        most = problem.policy.max_consolidation_gangs
        return Arrays(
            nodes=nodes,
            shapes=shapes,
            zones=self._zone_arrays(units, record),
            domains=domains,
            gangs=gangs,
            queues=queues,
            units=units,
            record=record,
            scratch=self._scratch(gangs, len(shapes.devices), domains, units),
            may_move=problem.policy.consolidating_reclaim,
            most_moved=BOUNDLESS if most < 0 else most,
        )

    def _node_arrays(self, shapes: Shapes) -> Nodes:
        state = self.state
        whole, later = state.whole_later.astype(np.int64), np.ascontiguousarray(state.future.T)
        starts, every = np.arange(0, len(whole), BLOCK), np.arange(len(whole))
        is_shared, parts, parts_now = shared_devices(state, every)
        return Nodes(
            later=later,
            now=np.ascontiguousarray(state.idle.T),
            whole_later=whole,
            whole_now=state.whole_now.astype(np.int64),
            gpu_free=state.gpu_free.astype(np.int64),
            is_shared=is_shared,
            parts=parts,
            parts_now=parts_now,
            most_parts=parts.max(axis=1, initial=0),
            has_gpus=self.problem.gpus > 0,
            devices=self.problem.gpus.astype(np.int64),
            is_used=np.logical_or.reduce(shapes.allowed[shapes.devices > 0]),
            block_whole=np.maximum.reduceat(whole, starts),
            block_parts=np.maximum.reduceat(parts.max(axis=1, initial=0), starts),
            block_cpu=np.maximum.reduceat(later[:, CPU], starts),
            gpu=GPU,
            cpu=CPU,
            slots=PODS,
        )

    def _shape_arrays(self) -> Shapes:
        problem, shapes = self.problem, self.plainness.shapes
        specs, size = [problem.shapes.shapes[shape] for shape in shapes], len(problem.nodes)
        masks = [problem.shapes.mask(shape) for shape in shapes]
        width = problem.snapshot.schema.size
        return Shapes(
            request=np.array([spec.request for spec in specs], dtype=np.int64).reshape(len(shapes), width),
            devices=np.array([spec.gpu.devices for spec in specs], dtype=np.int64),
            parts=np.array([spec.gpu.is_shared * spec.gpu.parts_on(0) for spec in specs], dtype=np.int64),
            allowed=np.array(masks, dtype=np.bool_).reshape(len(shapes), size),
            handicap=self._handicaps(shapes),
        )

    def _handicaps(self, shapes: Sequence[int]) -> IntArray:
        """(S, N) by how far nodes are from the best score that rules give; (S, 0) where no rule scores any of these."""
        nodes = np.arange(len(self.problem.nodes))
        scores = [self.state.score(shape, nodes) for shape in shapes]
        found = np.zeros((len(shapes), max(map(len, scores), default=0)), dtype=np.int64)
        for row, score in zip(found, scores, strict=True):
            if len(score):
                row[:] = POINT * (BEST - score)
        return found

    def _zone_arrays(self, units: Units, record: Record) -> Zones:
        size, width = len(self.problem.nodes), self.problem.snapshot.schema.size
        known, shapes = self.plainness.zones, self.plainness.shapes
        if known is None:
            nothing, few = np.zeros((1, 0, width), dtype=np.int64), np.zeros((0, width), dtype=np.bool_)
            return Zones(
                row=np.full(size, NONE, dtype=np.int64), aware=few, later=nothing, now=nothing.copy(),
                asked=np.zeros((len(shapes), width), dtype=np.int64), width=np.zeros((len(shapes), 0), dtype=np.int64),
                held=nothing.copy(), placed=nothing.copy(), moved=nothing.copy(),
            )  # fmt: skip
        rule, parts = known
        said = [rule.in_compartments(shape) for shape in shapes]
        inner = parts.later.shape[1:]
        return Zones(
            row=parts.row_of.astype(np.int64),
            aware=parts.aware.copy(),
            later=parts.later.copy(),
            now=parts.now.copy(),
            asked=np.array([one[0] for one in said if one is not None], dtype=np.int64).reshape(len(shapes), width),
            width=np.array([one[1] for one in said if one is not None], dtype=np.int64).reshape(
                len(shapes), len(parts.aware)
            ),
            held=self._held_in(rule, parts, units),
            placed=np.zeros((len(record.node), *inner), dtype=np.int64),
            moved=np.zeros((len(record.moved), *inner), dtype=np.int64),
        )

    def _held_in(self, rule: Ledger, parts: Compartments, units: Units) -> IntArray:
        """(H, Z, R) what the rows of units hold of compartments where they run."""
        held, pool = np.zeros((len(units.node), *parts.later.shape[1:]), dtype=np.int64), self.pool
        if pool is None:
            return held
        own = int(units.first_moved[0])
        rows = np.flatnonzero(parts.row_of[units.node[:own]] >= 0)
        for row, unit, node in zip(rows.tolist(), units.unit[rows].tolist(), units.node[rows].tolist(), strict=True):
            for pod in pool.units[unit].pods:
                if self.problem.pod_node[pod] == node:
                    add_take(held[row], rule.held(pod))
        return held

    def _domain_arrays(self, gpu_free: IntArray) -> Domains:
        """Levels that gangs ask for, and those above them, which decide which domain is the tightest."""
        asked = self.plainness.levels
        rows: dict[tuple[str, int], int] = {}
        for topology, level in asked:  # First those that gangs ask for: a gang's level is a row.
            rows[topology, self.problem.domains[topology].level_index(level) or 0] = len(rows)
        for topology, at in list(rows):
            for above in range(at):
                rows.setdefault((topology, above), len(rows))
        size, trees = len(self.problem.nodes), self.problem.domains
        width = max([len(trees[topology].names[at]) for topology, at in rows], default=1)
        of_node = np.full((len(rows), size), NONE, dtype=np.int64)
        outer, parent = np.full(len(rows), NONE, dtype=np.int64), np.zeros((len(rows), width), dtype=np.int64)
        free, first = np.zeros((len(rows), width), dtype=np.int64), np.zeros((len(rows), width + 1), dtype=np.int64)
        nodes, number = np.zeros((len(rows), size), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
        for (topology, at), row in rows.items():
            tree = trees[topology]
            of_node[row] = tree.domain_of[at]
            number[row] = len(tree.names[at])
            if at:
                outer[row], parent[row, : number[row]] = rows[topology, at - 1], tree.parents[at]
            inside = np.flatnonzero(of_node[row] >= 0)
            free[row] = np.bincount(of_node[row, inside], weights=gpu_free[inside], minlength=width)
            order = inside[np.argsort(of_node[row, inside], kind="stable")]
            nodes[row, : len(order)] = order
            first[row] = np.searchsorted(of_node[row, order], np.arange(width + 1))
        return Domains(of_node, outer, parent, free, first, nodes, number)

    def _queue_arrays(self, gangs: Gangs) -> Queues:
        tree, problem, state = self.problem.queues, self.problem, self.state
        size = tree.size
        children = [*tree.children, tree.roots]
        leaves = [sorted(tree.leaves[queue]) for queue in range(size)]
        tie = np.zeros(size, dtype=np.int64)
        for siblings in children:
            for place, queue in enumerate(sorted(siblings, key=state.order.tie)):
                tie[queue] = place
        bound = np.array(problem.allocatable, dtype=np.int64).reshape(-1, 3)
        divisor = np.where(bound == UNLIMITED, np.array(problem.total), bound).astype(np.float64)
        depth = np.array([len(path) for path in tree.path], dtype=np.int64)
        return Queues(
            tree=tree_of(tree, problem.share, problem.allocatable, problem.policy.saturation_multiplier, _ints),
            first_child=_starts(children),
            child=_joined(children),
            first_leaf=_starts(leaves),
            leaf=_joined(leaves),
            limit=np.where(tree.limit == UNLIMITED, BOUNDLESS, tree.limit).astype(np.int64),
            divisor=divisor,
            closed=bound == 0,
            priority=-np.array(tree.priority, dtype=np.int64),
            tie=tie,
            held=np.array(state.allocated, dtype=np.int64).reshape(-1, 3),
            fixed=np.array(state.allocated_fixed, dtype=np.int64).reshape(-1, 3),
            first_gang=np.zeros(size + 1, dtype=np.int64),
            gang=np.zeros(len(gangs.queue), dtype=np.int64),
            next_gang=np.zeros(size, dtype=np.int64),
            head=np.full(size, NONE, dtype=np.int64),
            key=np.zeros((size, 6), dtype=np.float64),
            deepest=np.argsort(-depth, kind="stable").astype(np.int64),
            yields=np.full(size, BOUNDLESS, dtype=np.int64),
        )

    def _record(self, gangs: Gangs, units: Units) -> Record:
        pods = max(RECORDED_PODS, int(gangs.pods.max(initial=0)))
        return Record(
            numbers=np.zeros(NUMBERS, dtype=np.int64),
            turn=np.zeros((RECORDED_TURNS, 6), dtype=np.int64),
            node=np.zeros(pods, dtype=np.int64),
            is_now=np.zeros(pods, dtype=np.bool_),
            device=np.zeros(pods, dtype=np.int64),
            victim=np.zeros((2 * len(units.where) + 1, 2), dtype=np.int64),
            moved=np.zeros(int(units.pods.sum()) + 1, dtype=np.int64),
        )

    def _scratch(self, gangs: Gangs, shapes: int, domains: Domains, units: Units) -> Scratch:
        nodes, queues, width = len(self.problem.nodes), self.problem.queues.size, domains.parent.shape[1]
        size = len(units.where) + 1
        return Scratch(
            cost=np.zeros(nodes),
            block_cost=np.zeros(-(-nodes // BLOCK)),
            least=np.full((shapes, nodes), IMPOSSIBLE),
            least_in=np.full((shapes, *domains.parent.shape), IMPOSSIBLE),
            is_known=np.zeros(shapes, dtype=np.bool_),
            seen=np.zeros(shapes, dtype=np.int64),
            changed=np.zeros(max(CHANGES, nodes), dtype=np.int64),
            noted=np.full(nodes, NONE, dtype=np.int64),
            gain=np.zeros(nodes, dtype=np.int64),
            hosts=np.zeros(max(1, width), dtype=np.int64),
            domain_cost=np.zeros(width),
            exactness=np.zeros(width, dtype=np.int64),
            open_queue=np.zeros(queues, dtype=np.int64),
            victim_queue=np.zeros(queues, dtype=np.int64),
            surplus=np.zeros((queues, 3), dtype=np.int64),
            ratio=np.zeros((queues, 3)),
            spent=np.zeros((queues, 3), dtype=np.int64),
            last=np.zeros((queues, 3), dtype=np.int64),
            units=np.zeros(size, dtype=np.int64),
            order=np.zeros(size, dtype=np.int64),
            was_moved=np.zeros(size, dtype=np.bool_),
            here=np.zeros(MOST_HERE, dtype=np.int64),
            rows=np.zeros(len(units.node), dtype=np.int64),
            picks=np.zeros(WIDTH + 2, dtype=np.int64),
            sums=np.zeros(WIDTH + 2),
            masks=np.zeros(WIDTH + 2, dtype=np.int64),
            refused=np.full(int(gangs.kind.max(initial=0)) + 2, NONE, dtype=np.int64),
            failed=np.zeros(int(gangs.place.max(initial=0)) + 2, dtype=np.bool_),
            keys=np.zeros((2, 6)),
            left=np.zeros((queues, 3), dtype=np.int64),
        )


def gang_arrays(state: State, plainness: Plainness, gang_units: GangUnits, standing: Mapping[int, int]) -> Gangs:
    """Of gangs that may wait, in the order of ``standing``, which says how each stands in its line."""
    problem, size = state.problem, len(standing)
    kinds: dict[tuple[object, ...], int] = {}
    places: dict[tuple[int, int, int], int] = {}
    columns = np.zeros((9, size), dtype=np.int64)
    queue, pods, shape, level, milli, priority, kind, place, stands = columns
    charge = np.zeros((size, 3), dtype=np.int64)
    flags = np.zeros((2, size), dtype=np.bool_)
    for row, index in enumerate(standing):
        gang = problem.gangs[index]
        own = gang.gang
        queue[row], priority[row] = gang.queue, own.priority
        flags[0, row], flags[1, row] = own.preemptible, own.never_preempts
        if standing[index] == OTHER:
            continue
        waiting = gang_units[index].state.pending[0]
        asked = plainness.level(gang)
        pods[row], shape[row] = len(waiting), plainness.shape(problem.pod_shape[waiting[0]])
        level[row] = NONE if asked is None else asked
        cost = problem.charges[waiting[0]]
        charge[row] = [len(waiting) * amount for amount in cost]
        milli[row] = len(waiting) * least_milli(problem, waiting[0])
        spot = (int(shape[row]), int(pods[row]), int(level[row]))
        place[row] = places.setdefault(spot, len(places))
        rights = (gang.queue, own.priority, own.preemptible, own.never_preempts, cost, place[row])
        kind[row] = kinds.setdefault(rights, len(kinds))
    return Gangs(
        standing=stands,
        queue=queue,
        pods=pods,
        shape=shape,
        level=level,
        charge=charge,
        milli=milli,
        preemptible=flags[0],
        never_preempts=flags[1],
        priority=priority,
        kind=kind,
        place=place,
    )


def shared_devices(state: State, nodes: IntArray) -> tuple[BoolArray, IntArray, IntArray]:
    """(K, 2 D) devices of ``nodes`` that pods share, and the parts of them that are free, later and now.

    A device that pods share which all leave is whole later, and it is not said what is free of it now.
    """
    later, now = state.device_future[nodes], state.device_idle[nodes]
    is_shared = (state.sharers_later[nodes] > 0) & (later < WHOLE)
    opened = np.zeros(later.shape, dtype=np.int64)
    return (
        np.concatenate([is_shared, opened > 0], axis=1),
        np.concatenate([np.where(is_shared, later, 0), opened], axis=1),
        np.concatenate([np.where(is_shared, now, 0), opened], axis=1),
    )


def add_take(to: IntArray, grant: Iterable[tuple[int, Sequence[int]]] | None) -> None:
    """Add what a pod was granted of compartments."""
    for zone, amounts in grant or ():
        to[zone, : len(amounts)] += np.array(amounts, dtype=np.int64)


def _ints(values: Sequence[object]) -> IntArray:
    return np.array(values, dtype=np.int64)


def _starts(lists: Sequence[Sequence[int]]) -> IntArray:
    return np.cumsum([0, *(len(one) for one in lists)]).astype(np.int64)


def _joined(lists: Iterable[Iterable[int]]) -> IntArray:
    return np.fromiter(chain.from_iterable(lists), dtype=np.int64)
