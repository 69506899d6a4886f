"""The arrays of a working state, and how they catch up with it after a turn that they did not take."""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import chain

import numpy as np

from kai_solver.actions.board.arrays import (
    BLOCK,
    BOUNDLESS,
    HOME,
    IMPOSSIBLE,
    KEPT,
    LEFT,
    MOVED,
    NONE,
    NUMBERS,
    OTHER,
    OUT,
    PLAIN,
    WIDTH,
    WISHING,
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
from kai_solver.actions.board.room import POINT, forget, note
from kai_solver.actions.board.victims import list_moved
from kai_solver.actions.gang_order import gang_key
from kai_solver.domain import TopologyConstraint
from kai_solver.errors import InternalError
from kai_solver.planstate.allocation_units import AllocationUnits, GangUnits
from kai_solver.planstate.eligibility import least_milli
from kai_solver.planstate.eviction_units import charge_of
from kai_solver.planstate.state import Place, State
from kai_solver.planstate.victims import VictimPool
from kai_solver.predicates import domain_codes
from kai_solver.problem import GangShape
from kai_solver.problem.rules import Compartments, Ledger
from kai_solver.units import CPU, GPU, PODS, UNLIMITED
from kai_solver.units.shares import WHOLE

RECORDED_TURNS, RECORDED_PODS = 256, 4096
"""Turns and pods that are recorded before they are put into effect on the working state."""
FEW_LINKED = 0.25
"""Part of the nodes on which it may matter which GPUs a pod gets: up to that, links do not order nodes, though they
still choose among the GPUs of a node."""
CHANGES = 1 << 16
"""Changed nodes that are remembered for lower bounds of costs; after more they are found again for all nodes."""


def may_serve(state: State) -> bool:
    """Whether arrays can say the rules of this cycle: none refuses gangs, and no running work is protected for a time.

    Prices of what is left over are not in the arrays either, nor are links between GPUs where many nodes have such.
    """
    problem, policy = state.problem, state.problem.policy
    if problem.outlook is not None or state.refusing:
        return False
    if problem.fabric is not None and np.count_nonzero(problem.fabric.kinds >= 0) > FEW_LINKED * len(problem.nodes):
        return False
    if policy.reclaim_min_runtime_s or policy.preempt_min_runtime_s:
        return False
    queues = problem.queues.queues
    return not any(queue.reclaim_min_runtime_s or queue.preempt_min_runtime_s for queue in queues)


BEST = 100
"""The best score of a rule."""
MOST_HERE = 512
"""Units on one node that are looked at."""


class Plainness:
    """What the arrays can say: which shapes and gangs."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.problem = state.problem
        self._levels: dict[tuple[str, str], int] = {}
        self._shapes: dict[int, int] = {}
        self._of_nodes: dict[str, bool] = {}
        found = [(rule, zones) for rule in state.rules if (zones := rule.compartments()) is not None]
        self.zones: tuple[Ledger, Compartments] | None = found[0] if len(found) == 1 else None
        self._of_shape: dict[int, int] = {}

    def shape(self, shape: int) -> int:
        """Row of a shape in the arrays, the same for shapes with the same room; `NONE` where they cannot say it."""
        found = self._of_shape.get(shape)
        if found is None:
            found = NONE
            if self._is_sayable(shape):
                same = self.problem.shapes.same_room(shape)
                found = self._shapes.setdefault(same, len(self._shapes))
            self._of_shape[shape] = found
        return found

    def _is_sayable(self, shape: int) -> bool:
        spec, state = self.problem.shapes.shapes[shape], self.state
        is_counted = (spec.gpu.is_whole or not spec.gpu.devices) and not spec.gpu.memory_mib
        if spec.gpu.is_shared:
            is_counted = self._says_shares and spec.gpu.devices == 1 and spec.gpu.milli > 0
            is_counted = is_counted and not spec.gpu.memory_mib and spec.devices == "binpack"
        return is_counted and spec.nodes == "binpack" and all(self._is_said(rule, shape) for rule in state.rules)

    @cached_property
    def _says_shares(self) -> bool:
        """Whether pods share each device of which only a part is free."""
        free, sharers = self.state.device_future, self.state.sharers_later
        return not ((free > 0) & (free < WHOLE) & (sharers == 0)).any()

    def _is_said(self, rule: Ledger, shape: int) -> bool:
        """Whether the arrays say what a rule has to say of a shape."""
        if self.zones is not None and rule is self.zones[0]:
            return rule.in_compartments(shape) is not None
        return rule.counts_alike(shape) and not rule.limits(shape)

    @property
    def shapes(self) -> list[int]:
        """By row, a shape."""
        return list(self._shapes)

    @property
    def levels(self) -> list[tuple[str, str]]:
        """Topology and level, by row."""
        return list(self._levels)

    def level(self, gang: GangShape) -> int | None:
        """Row of the level of which one domain holds all pods of a gang without subgroups; `NONE` without such a rule.

        None where it asks for something else as well; what it prefers is left out.
        """
        if gang.root.topology is None and gang.leaves[0].topology is None:  # As in most gangs.
            return NONE
        asked = [topology for topology in (gang.root.topology, gang.leaves[0].topology) if topology is not None]
        topology, *more = dict.fromkeys(asked)
        tree = self.problem.domains.get(topology.topology)
        if more or tree is None:
            return None
        if not topology.required:
            return NONE
        if tree.level_index(topology.required) is None:
            return None
        return self._levels.setdefault((topology.topology, topology.required), len(self._levels))

    def standing(self, units: AllocationUnits) -> int:
        """How a gang that waits stands in its line.

        `PLAIN` asks for nothing but room, at most in one domain, all of it at once; `WISHING` also prefers some nodes.
        """
        leaf, gang, problem = units.lone, units.shape, self.problem
        if (
            leaf is None
            or units.state.active[0]
            or leaf.blocked
            or gang.family >= 0
            or gang.gang.preemption_delay_s > 0
        ):
            return OTHER
        pods = units.state.pending[0]
        if not pods or leaf.min_member != len(pods) or self.level(gang) is None:
            return OTHER
        shape = self.shape(problem.pod_shape[pods[0]])
        if shape == NONE or any(self.shape(problem.pod_shape[pod]) != shape for pod in pods):
            return OTHER
        if any(problem.pods[pod].nominated_node for pod in pods) or not problem.ruled.isdisjoint(pods):
            return OTHER
        if any(rule.tells_apart(pod) is not None for rule in problem.rules for pod in pods):
            return OTHER
        said = problem.shapes.shapes[problem.pod_shape[pods[0]]].constraints
        is_plain = self._keeps_company(pods) and not problem.predicates.has_preference(said)
        return PLAIN if is_plain and not self.prefers_domains(gang) else WISHING

    def _keeps_company(self, pods: Sequence[int]) -> bool:
        """Whether the preferences between ``pods``, all of a gang, and others come to nothing but filling nodes.

        There are none, or the pods like to share a node with each other. They do so anyway where nodes are packed.
        """
        problem = self.problem
        if problem.related.isdisjoint(pods):
            return True
        terms = {term for pod in pods for term in problem.pods[pod].constraints.preferred_pods}
        return problem.outward.isdisjoint(pods) and all(
            weight > 0 and self._is_of_nodes(term.topology_key) for weight, term in terms
        )

    def _is_of_nodes(self, key: str) -> bool:
        """Whether each node has another value of the label, if any."""
        found = self._of_nodes.get(key)
        if found is None:
            codes = domain_codes(self.problem.nodes, key)
            found = self._of_nodes[key] = len(np.unique(codes[codes >= 0])) == np.count_nonzero(codes >= 0)
        return found

    @staticmethod
    def prefers_domains(gang: GangShape) -> bool:
        """Whether its pods are to be near each other where that can be."""
        outer, inner = gang.root.topology, gang.leaves[0].topology
        return bool((outer is not None and outer.preferred) or (inner is not None and inner.preferred))


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
        self._first_pod: IntArray = np.zeros(0, dtype=np.int64)
        self._base: BoolArray = np.zeros(0, dtype=np.bool_)
        self._prices_moves = False
        self._pinned: BoolArray = self._base
        self._sharing: tuple[IntArray, ...] = (self._first_pod,) * 4
        self._first_sharing: IntArray = np.zeros(1, dtype=np.int64)
        self._gangs = list(self.standing)
        self.row_of = {gang: row for row, gang in enumerate(self._gangs)}
        self._kinds: dict[tuple[object, ...], int] = {}
        self._places: dict[tuple[int, int, int], int] = {}
        gangs = self._gang_arrays()
        units = self._no_units()
        self.arrays = self._made(gangs, units)

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

    def _gang_arrays(self) -> Gangs:
        problem, size = self.problem, len(self._gangs)
        columns = np.zeros((9, size), dtype=np.int64)
        queue, pods, shape, level, milli, priority, kind, place, standing = columns
        charge = np.zeros((size, 3), dtype=np.int64)
        flags = np.zeros((2, size), dtype=np.bool_)
        for row, index in enumerate(self._gangs):
            gang = problem.gangs[index]
            own = gang.gang
            queue[row], priority[row] = gang.queue, own.priority
            flags[0, row], flags[1, row] = own.preemptible, own.never_preempts
            if self.standing[index] == OTHER:
                continue
            waiting = self.gang_units[index].state.pending[0]
            asked = self.plainness.level(gang)
            pods[row], shape[row] = len(waiting), self.plainness.shape(problem.pod_shape[waiting[0]])
            level[row] = NONE if asked is None else asked
            cost = problem.charges[waiting[0]]
            charge[row] = [len(waiting) * amount for amount in cost]
            milli[row] = len(waiting) * least_milli(problem, waiting[0])
            spot = (int(shape[row]), int(pods[row]), int(level[row]))
            place[row] = self._places.setdefault(spot, len(self._places))
            rights = (gang.queue, own.priority, own.preemptible, own.never_preempts, cost, place[row])
            kind[row] = self._kinds.setdefault(rights, len(self._kinds))
        return Gangs(
            standing=standing,
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

    # -- arrays ----------------------------------------------------------------------------------------------------

    def _made(self, gangs: Gangs, units: Units) -> Arrays:
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
            scratch=self._scratch(len(shapes.devices), domains, units),
            multiplier=float(problem.policy.saturation_multiplier),
            may_move=problem.policy.consolidating_reclaim,
            most_moved=BOUNDLESS if most < 0 else most,
        )

    def _node_arrays(self, shapes: Shapes) -> Nodes:
        state = self.state
        whole, later = state.whole_later.astype(np.int64), np.ascontiguousarray(state.future.T)
        starts, every = np.arange(0, len(whole), BLOCK), np.arange(len(whole))
        is_shared, parts, parts_now = self._shared_devices(every)
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

    def _shared_devices(self, nodes: IntArray) -> tuple[BoolArray, IntArray, IntArray]:
        """(K, 2 D) devices of ``nodes`` that pods share, and the parts of them that are free, later and now.

        A device that pods share which all leave is whole later, and it is not said what is free of it now.
        """
        later, now = self.state.device_future[nodes], self.state.device_idle[nodes]
        is_shared = (self.state.sharers_later[nodes] > 0) & (later < WHOLE)
        opened = np.zeros(later.shape, dtype=np.int64)
        return (
            np.concatenate([is_shared, opened > 0], axis=1),
            np.concatenate([np.where(is_shared, later, 0), opened], axis=1),
            np.concatenate([np.where(is_shared, now, 0), opened], axis=1),
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
        held = np.zeros((len(units.node), *parts.later.shape[1:]), dtype=np.int64)
        own = int(units.first_moved[0])
        rows = np.flatnonzero(parts.row_of[units.node[:own]] >= 0)
        for row, unit, node in zip(rows.tolist(), units.unit[rows].tolist(), units.node[rows].tolist(), strict=True):
            for pod in self.pool.units[unit].pods:
                if self.problem.pod_node[pod] == node:
                    _add_take(held[row], rule.held(pod))
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
            parent=tree.parent.astype(np.int64),
            first_child=_starts(children),
            child=_joined(children),
            first_leaf=_starts(leaves),
            leaf=_joined(leaves),
            share=np.array(problem.share, dtype=np.int64).reshape(-1, 3),
            allocatable=bound,
            quota=_bounded(tree.quota),
            limit=_bounded(tree.limit),
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

    def _scratch(self, shapes: int, domains: Domains, units: Units) -> Scratch:
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
            refused=np.full(len(self._kinds) + 1, NONE, dtype=np.int64),
            failed=np.zeros(len(self._places) + 1, dtype=np.bool_),
            keys=np.zeros((2, 6)),
            left=np.zeros((queues, 3), dtype=np.int64),
        )

    # -- units of running pods -------------------------------------------------------------------------------------

    def _no_units(self) -> Units:
        none, width = np.zeros(0, dtype=np.int64), self.problem.snapshot.schema.size
        flags, rows = np.zeros(0, dtype=np.bool_), np.zeros((0, width), dtype=np.int64)
        starts = np.zeros(len(self.problem.nodes) + 1, dtype=np.int64)
        wide, some = np.zeros((0, 3), dtype=np.int64), np.zeros(0)
        queues = np.zeros(self.problem.queues.size + 1, dtype=np.int64)
        first, heads = np.zeros(1, dtype=np.int64), np.full(len(self.problem.nodes), NONE, dtype=np.int64)
        return Units(
            where=none, cost=some, queue=none, priority=none, charge=wide, movable=flags, shape=none,
            pods=none, level=none, first_of=queues, of_queue=none, first_row=first, row=none, first_on=starts,
            unit=none, node=none, whole=none, request=rows, first_moved=first, head=heads, after=none, is_listed=flags,
        )  # fmt: skip

    def with_units(self, pool: VictimPool) -> None:
        """From now on the units of ``pool`` may leave and move."""
        if self._pool is pool:
            return
        self._pool, self._prices_moves = pool, False
        units = self._unit_arrays(pool)
        # Shapes and levels of units may be new.
        self.arrays = self._made(self.arrays.gangs, units)
        self._seen = self._placed = len(self.state.touched)
        self._paid = len(self.state.paid)
        none = np.zeros(0, dtype=np.int64)
        self._set_where(np.arange(len(pool.units)), none)

    def _unit_arrays(self, pool: VictimPool) -> Units:
        problem, rows = self.problem, pool.origins
        size, sizes, pods, starts = len(pool.units), pool.table.sizes, pool.table.pods, pool.table.starts
        self._first_pod = pool.table.first_pod
        shape = self._shape_rows(pods)
        is_uniform = np.maximum.reduceat(shape, starts) == np.minimum.reduceat(shape, starts)
        shape = np.where(is_uniform, shape[starts], NONE)
        level, may_go = self._levels_of(pool.gang_of)
        movable = pool.may_move & ~pool.is_elastic & may_go & (shape != NONE)
        movable &= ~np.logical_or.reduceat(self._is_among(pods, problem.related), starts)
        base = ~(pool.is_elastic | np.logical_or.reduceat(self._is_among(pods, problem.ruled), starts))
        if pool.releases.held is not None:
            base[:] = False
        shares = np.array([rows.shared_unit, rows.shared_node, rows.shared_device])
        shares, pods = np.unique(shares, axis=1, return_counts=True)
        self._base, self._sharing, self._pinned = base, (*shares, pods), np.zeros(size, dtype=np.bool_)
        self._first_sharing = np.searchsorted(shares[0], np.arange(size + 1))
        self.is_partial = not bool((base & self._have_own(np.arange(size))).all())
        whole = rows.whole.copy()
        key = rows.node * size + rows.unit  # Ascending.
        np.add.at(whole, np.searchsorted(key, shares[1] * size + shares[0]), 1)
        by_unit, by_queue = np.argsort(rows.unit, kind="stable"), np.argsort(pool.queue_of, kind="stable")
        own = len(rows.unit)
        more = np.repeat(np.arange(size, dtype=np.int64), sizes)
        width = problem.snapshot.schema.size
        nothing = np.zeros(len(more), dtype=np.int64)
        return Units(
            where=np.zeros(size, dtype=np.int64),
            cost=np.array(pool.cost, dtype=np.float64),
            queue=pool.queue_of,
            priority=problem.gang_columns.priority[pool.gang_of],
            charge=np.ascontiguousarray(pool.charges),
            movable=movable,
            shape=shape,
            pods=sizes,
            level=level,
            first_of=np.searchsorted(pool.queue_of[by_queue], np.arange(problem.queues.size + 1)).astype(np.int64),
            of_queue=by_queue.astype(np.int64),
            first_row=np.searchsorted(rows.unit[by_unit], np.arange(size + 1)).astype(np.int64),
            row=by_unit.astype(np.int64),
            first_on=rows.starts(len(problem.nodes)).astype(np.int64),
            unit=np.concatenate([rows.unit, more]),
            node=np.concatenate([rows.node, nothing]),
            whole=np.concatenate([whole, nothing]).astype(np.int64),
            request=np.concatenate([rows.request.T, np.zeros((len(more), width), dtype=np.int64)]),
            first_moved=own + np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            head=np.full(len(problem.nodes), NONE, dtype=np.int64),
            after=np.full(own + len(more), NONE, dtype=np.int64),
            is_listed=np.zeros(size, dtype=np.bool_),
        )

    def _shape_rows(self, pods: IntArray) -> IntArray:
        """(K,) of pods, the row of their shape; `NONE` where the arrays cannot say it, and of those that share."""
        shapes, at = np.unique(self.problem.columns.shape[pods], return_inverse=True)
        rows = np.array([self.plainness.shape(shape) for shape in shapes.tolist()], dtype=np.int64)
        found: IntArray = np.where(self.problem.columns.shares[pods], NONE, rows[at.reshape(-1)])
        return found

    def _levels_of(self, gangs: IntArray) -> tuple[IntArray, BoolArray]:
        """(K,) of the ``gangs`` of units, ascending: the row of the level of which one domain holds all pods; `NONE`
        where there is none, or arrays cannot say it; (K,) whether they can.
        """
        level, may_go = np.full(len(gangs), NONE, dtype=np.int64), np.ones(len(gangs), dtype=np.bool_)
        columns, shapes = self.problem.gang_columns, self.problem.gangs
        known: dict[tuple[TopologyConstraint | None, ...], int | None] = {}
        is_plain = columns.is_flat & ~columns.is_bound  # As most: nothing is asked of domains.
        for unit in np.flatnonzero(~is_plain[gangs]).tolist():
            gang = shapes.whatever_number(int(gangs[unit]))
            asked = gang.root.topology, gang.leaves[0].topology
            is_sayable = gang.is_flat and gang.family < 0 and not self.plainness.prefers_domains(gang)
            if is_sayable and asked not in known:
                known[asked] = self.plainness.level(gang)
            row = known[asked] if is_sayable else None
            level[unit], may_go[unit] = NONE if row is None else row, row is not None
        return level, may_go

    def _is_among(self, pods: IntArray, marked: Collection[int]) -> BoolArray:
        """(K,) which of ``pods`` are ``marked``."""
        found = np.zeros(len(self.problem.pods), dtype=np.bool_)
        found[list(marked)] = True
        return found[pods]

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
        _, node, device, pods = self._sharing
        first, last = self._first_sharing[units], self._first_sharing[units + 1]
        rows = ranges(first, last)
        has_others = self.state.sharers_later[node[rows], device[rows]] != pods[rows]
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
        first, before = self._first_pod[chosen], units.where[chosen]
        gone, out, pinned = state.is_gone[first], state.is_out[first], pool.is_pinned[chosen]
        may = self._base[chosen] & ~pinned & self._have_own(chosen)
        now = np.where(may & ~gone, HOME, KEPT)
        now[may & gone & ~out & units.movable[chosen]] = MOVED
        differs = (now != before) & ~((now == KEPT) & (before == LEFT))
        again = (now == MOVED) & (differs | self._is_on(chosen, touched))
        self._note(self._nodes_of(chosen[differs | again]))
        units.where[chosen[differs]] = now[differs]
        self._pinned[chosen] = pinned
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
                _add_take(take, place.grants.get(self.plainness.zones[0].kind))
        return takes

    def _units_on(self, nodes: IntArray) -> IntArray:
        """Units that could be elsewhere than they were when nothing but ``nodes`` was touched since."""
        pool, units = self._pool, self.arrays.units
        if pool is None:
            return np.zeros(0, dtype=np.int64)
        at_home = units.unit[ranges(units.first_on[nodes], units.first_on[nodes + 1])]
        pinned = np.flatnonzero(pool.is_pinned != self._pinned)
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
        is_shared, parts, parts_now = self._shared_devices(nodes)
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


def _add_take(to: IntArray, grant: Iterable[tuple[int, Sequence[int]]] | None) -> None:
    """Add what a pod was granted of compartments."""
    for zone, amounts in grant or ():
        to[zone, : len(amounts)] += np.array(amounts, dtype=np.int64)


def ranges(first: IntArray, last: IntArray) -> IntArray:
    """The numbers from each of ``first`` (K,) up to, and without, that of ``last``, one after the other."""
    counts = last - first
    found: IntArray = np.arange(int(counts.sum())) + np.repeat(first - np.cumsum(counts) + counts, counts)
    return found


def _bounded(table: IntArray) -> IntArray:
    return np.where(table == UNLIMITED, BOUNDLESS, table).astype(np.int64)


def _starts(lists: Sequence[Sequence[int]]) -> IntArray:
    return np.cumsum([0, *(len(one) for one in lists)]).astype(np.int64)


def _joined(lists: Iterable[Iterable[int]]) -> IntArray:
    return np.fromiter(chain.from_iterable(lists), dtype=np.int64)
