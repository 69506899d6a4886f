"""From the state of the actions to the input of the model: what is flexible is lifted out, the rest is taken off."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds import Kept, Relaxed
from kai_solver.domain import Action, TopologyConstraint
from kai_solver.fairness import QueueSurplus
from kai_solver.model.joint import Arrival, Cap, Joint, Mover, Piece, Scope
from kai_solver.planstate.allocation_units import AllocationUnit, Part
from kai_solver.planstate.eviction_units import Unit, charge_of, least_charge_of
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool, part_of_unit
from kai_solver.problem import Problem
from kai_solver.problem.charges import Charge, charge, sum_of
from kai_solver.problem.rules import ReleaseKey
from kai_solver.search.stamp import Stamp
from kai_solver.units import GPU, PODS, QUEUE_RESOURCES, UNLIMITED

LIFTS_KEPT = 32
"""Sets of units of which what is free without them is kept: 2 MiB a set on 20,000 nodes, and hundreds are asked for."""

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Standing:
    """What was decided when a question is asked.

    Attributes
    ----------
    admitted
        Allocation units that got places, and by which action. ``allocation_units``: without the action.
    disturbed
        Units that left or moved for them, in whole or in part; ``evicted``: those that left.
    cores
        Of gangs that got places and run, the units that leave last.
    """

    admitted: list[tuple[AllocationUnit, Action]]
    allocation_units: list[AllocationUnit]
    disturbed: frozenset[int]
    evicted: frozenset[int]
    cores: tuple[int, ...]
    _known: dict[tuple[Hashable, int], tuple[frozenset[int], Any]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """By name and identity of the eligible units, these and the answer. Questions of equal rights have the same object:
    on 20,000 nodes 800 questions ask of 12,000 units each."""

    def units(self, eligible: frozenset[int]) -> frozenset[int]:
        """Units that may be disturbed beside the ``eligible``: those that were."""
        return self.once("units", eligible, lambda: eligible | self.disturbed)

    def served(self, eligible: frozenset[int]) -> frozenset[int]:
        """The ``eligible`` that are cores of gangs which got places in this cycle."""
        return self.once("served", eligible, lambda: eligible.intersection(self.cores))

    def kept(self, eligible: frozenset[int]) -> frozenset[int]:
        """`units` that keep their right to run if nothing is evicted: not cores of gangs that may lose their places."""
        return self.once("kept", eligible, lambda: self.units(eligible) - self.served(eligible) - self.evicted)

    def moved_aside(self, eligible: frozenset[int]) -> frozenset[int]:
        """Units that moved for others, and are not ``eligible``."""
        return self.once("moved_aside", eligible, lambda: self.disturbed - eligible - self.evicted)

    def once(self, name: Hashable, eligible: frozenset[int], make: Callable[[], Found]) -> Found:
        """What ``make`` says of the ``eligible``, asked once: of all that follows from them, it is the ``name``."""
        known = self._known.get((name, id(eligible)))
        if known is None:
            known = self._known[name, id(eligible)] = eligible, make()
        found: Found = known[1]
        return found


@dataclass(slots=True)
class _Admitted:
    """What a list of admissions says, kept while it grows: on 20,000 loaded nodes 7,000 come one by one.

    ``taken``: units of their victims. ``gangs``: those that got places.
    """

    known: list[Admission] = field(default_factory=list)
    admitted: list[tuple[AllocationUnit, Action]] = field(default_factory=list)
    allocation_units: list[AllocationUnit] = field(default_factory=list)
    taken: Counter[int] = field(default_factory=Counter)
    gangs: dict[int, None] = field(default_factory=dict)
    cores: list[int] = field(default_factory=list)
    """Of the first ``cored`` of the gangs, those that run: the units that leave last."""
    cored: int = 0

    def precedes(self, admissions: list[Admission]) -> bool:
        """Whether ``admissions`` are the known ones, perhaps with other victims, and perhaps others after them."""
        return len(admissions) >= len(self.known) and all(
            old is new or (old.allocation_unit is new.allocation_unit and old.action is new.action)
            for old, new in zip(self.known, admissions, strict=False)
        )

    def add(self, admissions: list[Admission]) -> None:
        """Note what came since, and other victims."""
        for old, new in zip(self.known, admissions, strict=False):
            if old is not new:
                self.taken = self.taken - Counter(old.units) + Counter(new.units)
        for admission in admissions[len(self.known) :]:
            allocation_unit = admission.allocation_unit
            self.admitted.append((allocation_unit, admission.action))
            self.allocation_units.append(allocation_unit)
            self.taken.update(admission.units)
            self.gangs[allocation_unit.gang] = None
        self.known = list(admissions)

    def cores_in(self, pool: VictimPool) -> list[int]:
        """Of the gangs that run, the units that leave last."""
        for gang in islice(self.gangs, self.cored, None):
            units = pool.of_gang.get(gang)
            if units and pool.units[units[-1]].is_core:
                self.cores.append(units[-1])
        self.cored = len(self.gangs)
        return self.cores

    def standing(self, pool: VictimPool | None) -> Standing:
        """As it is now."""
        admitted, allocation_units = list(self.admitted), list(self.allocation_units)
        if pool is None:
            return Standing(admitted, allocation_units, frozenset(), frozenset(), ())
        is_taken = np.zeros(len(pool.units), dtype=np.bool_)
        is_taken[np.fromiter(self.taken, dtype=np.int64, count=len(self.taken))] = True
        # After the stages the first pod of a unit may be home and others not.
        disturbed = np.flatnonzero(is_taken & pool.are_disturbed())
        return Standing(
            admitted,
            allocation_units,
            frozenset(disturbed.tolist()),
            frozenset(disturbed[pool.have_left()[disturbed]].tolist()),
            tuple(self.cores_in(pool)),
        )


class JointModelInput:
    """Builds joint problems on one state."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.state: State = outcome.state
        self.problem: Problem = outcome.state.problem
        self._lifts: dict[frozenset[int], tuple[IntArray, IntArray]] = {}
        self.violated = self._violated()
        self._exempt = frozenset(pod for rule in self.problem.rules for pod in rule.exempt(self.problem))
        self._fixed_movers: dict[tuple[int, bool, bool, bool], Mover] = {}
        self._pods: dict[frozenset[int], frozenset[int]] = {}
        self._welcome: dict[frozenset[int], Mapping[int, int]] = {}
        self._by_gang: dict[frozenset[int], Kept] = {}
        self._of_gang: dict[int, Mapping[int, int]] = {}
        self._relaxed: dict[frozenset[int], Relaxed] = {}
        self._counted: tuple[list[AllocationUnit], Counter[int]] = ([], Counter())
        self._standing: tuple[Stamp, Standing] | None = None
        self._admitted = _Admitted()

    def shapes_of(self, allocation_units: list[AllocationUnit]) -> Counter[int]:
        """Pods of ``allocation_units`` by shape; of a list that only grew, what came to it is counted."""
        before, counted = self._counted
        if allocation_units is before:
            return Counter(counted)
        if allocation_units[: len(before)] != before:
            before, counted = [], Counter()
        counted = counted + self.problem.by_shape(
            pod for allocation_unit in allocation_units[len(before) :] for pod in allocation_unit.pods
        )
        self._counted = allocation_units, counted
        return Counter(counted)

    def standing(self) -> "Standing":
        """What all questions have in common until another gang is admitted or another step is taken."""
        outcome = self.outcome
        if self._standing is not None and self._standing[0].holds(outcome):
            return self._standing[1]
        if not self._admitted.precedes(outcome.admissions):
            self._admitted = _Admitted()
        self._admitted.add(outcome.admissions)
        found = self._admitted.standing(outcome.pool)
        self._standing = Stamp.of(outcome), found
        return found

    def join(
        self,
        allocation_units: Sequence[tuple[AllocationUnit, Action]],
        units: frozenset[int],
        reclaimable: frozenset[int],
        preemptable: frozenset[int],
        surplus: Sequence[QueueSurplus],
        *,
        may_move: bool,
        optional: bool = False,
        gone: frozenset[int] = frozenset(),
    ) -> Joint:
        """The problem in which ``allocation_units`` must have places and ``units`` may be disturbed.

        ``allocation_units`` may have places now (then these are lifted) or not yet. ``units`` may run, be moved, or be
        evicted at present; all of that is open again. ``optional``: allocation units may also be left out. ``gone``:
        units that were evicted and stay out.
        """
        pool = self.outcome.pool
        units = self._without_violated(units)
        movers = tuple(
            self._mover(pool, u, units, reclaimable, preemptable, gone, may_move=may_move)
            for u in (sorted(units) if pool else ())
            if pool
        )
        arrivals = tuple(
            replace(self.arrival(allocation_unit, action, units), optional=optional)
            for allocation_unit, action in allocation_units
        )
        free, device_free = self.lifted(units | gone)
        held_devices = self.problem.held_devices
        return Joint(
            problem=self.problem,
            free=free,
            device_free=device_free,
            arrivals=arrivals,
            movers=movers,
            device_of={
                pod: held_devices[pod]
                for m in movers
                for piece in m.pieces
                for pod in piece.pods
                if pod in held_devices
            },
            caps=tuple(self._caps(arrivals, movers)),
            surplus=tuple(surplus),
            free_of=self._lifted_grants(movers),
            of_rules=self._of_rules(arrivals, movers),
            releases=tuple(self._releases(movers)),
        )

    def size_estimate(self, allocation_units: Sequence[tuple[AllocationUnit, Action]], units: frozenset[int]) -> int:
        """About how many variables the model would have: places by shape and node, and units that may leave."""
        pool = self.outcome.pool
        pods = [p for allocation_unit, _ in allocation_units for p in allocation_unit.pods]
        pods += [p for u in units for p in pool.units[u].pods] if pool is not None else []
        owners = [allocation_unit.gang for allocation_unit, _ in allocation_units] + (
            [pool.units[u].gang for u in units] if pool is not None else []
        )
        ruled = sum(2 for gang in owners if self.problem.gangs[gang].is_spaced)
        return (len({self.problem.modelled_shape(p) for p in pods}) + ruled) * len(self.problem.nodes) + len(units)

    # -- arrivals and movers -------------------------------------------------------------------------------------

    def arrival(self, allocation_unit: AllocationUnit, action: Action, units: frozenset[int]) -> Arrival:
        """``allocation_unit`` as the model takes it where ``units`` may be disturbed."""
        gang = self.problem.gangs[allocation_unit.gang]
        pieces, scopes = self._pieces(allocation_unit.gang, allocation_unit.root, units)
        charge, least = (
            charge_of(self.problem, allocation_unit.pods),
            least_charge_of(self.problem, allocation_unit.pods),
        )
        return Arrival(allocation_unit.gang, gang.queue, action, charge, least, pieces, scopes, gang.gang.preemptible)

    def _mover(
        self,
        pool: VictimPool,
        unit: int,
        units: frozenset[int],
        reclaimable: frozenset[int],
        preemptable: frozenset[int],
        gone: frozenset[int],
        *,
        may_move: bool,
    ) -> Mover:
        key = (unit, unit in reclaimable, unit in preemptable, may_move and bool(pool.may_move[unit]))
        found = self._fixed_movers.get(key)
        if found is not None:
            return found
        made = self._make_mover(pool, units, gone, key)
        if made.is_simple:
            self._fixed_movers[key] = made
        return made

    def _make_mover(
        self, pool: VictimPool, units: frozenset[int], gone: frozenset[int], key: tuple[int, bool, bool, bool]
    ) -> Mover:
        unit, reclaimable, preemptable, may_move = key
        u = pool.units[unit]
        gang = self.problem.gangs[u.gang]
        pieces, scopes = self._pieces_of_unit(u, units)
        pods = [p for piece in pieces for p in piece.pods]
        bears, quorum = tuple(above for above in self._bears(pool, u) if above not in gone), self._quorum(u)
        stuck = sum(above not in units for above in bears)
        if stuck and not 0 < quorum <= len(bears):
            reclaimable = preemptable = False  # What stays anyway would stay without its minimum.
        return Mover(
            unit=unit,
            gang=u.gang,
            queue=gang.queue,
            charge=u.charge,
            pieces=pieces,
            origin=tuple(self.problem.pod_node[p] for p in pods),
            bears=bears,
            quorum=quorum,
            stuck=stuck,
            scopes=scopes,
            may_move=may_move,
            reclaimable=reclaimable,
            preemptable=preemptable,
            work=max(1, round(u.work)),
            stratum=gang.gang.priority,
            breaks=u.is_core,
            saves=self._saves(u),
            rank=pool.rank[unit],
            tested=self._tested(u),
            releases=pool.releases.use(unit),
            marks=tuple(rule.tells_apart(pod) for rule in self.problem.rules for pod in u.pods),
        )

    def _pieces_of_unit(self, unit: Unit, units: frozenset[int]) -> tuple[tuple[Piece, ...], tuple[Scope, ...]]:
        gang = self.problem.gangs[unit.gang]
        if len(unit.pods) == 1 and gang.is_flat and gang.root.topology is None and gang.leaves[0].topology is None:
            return (Piece(self.problem.modelled_shape(unit.pods[0]), unit.pods, (), gang.is_spaced),), ()  # Most units.
        part = part_of_unit(gang, unit.pods, [list(leaf.active) for leaf in gang.leaves])
        return self._pieces(unit.gang, part, units)

    def _saves(self, unit: Unit) -> Charge:
        """What its queue pays less for the unit on the largest devices: only requests by GPU memory tell them apart."""
        pods = [self.problem.pods[pod] for pod in unit.pods]
        if not any(pod.gpu.memory_mib for pod in pods):
            return (0, 0, 0)
        largest = max(node.gpu_memory_mib for node in self.problem.nodes)
        return (0, 0, max(0, unit.charge[GPU] - sum(charge(pod, largest)[GPU] for pod in pods)))

    def _bears(self, pool: VictimPool, unit: Unit) -> tuple[int, ...]:
        """Surplus of the podsets whose minimum ``unit`` holds; the core bears everything.

        But a minimum of one is held by any pod that stays: there the core is one pod like the others.
        """
        units = pool.of_gang[unit.gang]
        if unit.is_core:
            return tuple(units[: unit.step]) if self._quorum(unit) != 1 else ()
        leaf_of, leaves = self.state.leaf_of, self.problem.gangs[unit.gang].leaves
        left = Counter(leaf_of[p] for u in units[unit.step :] for p in pool.units[u].pods)
        held = {leaf for leaf in (leaf_of[p] for p in unit.pods) if left[leaf] <= leaves[leaf].min_member}
        return tuple(u for u in units[: unit.step] if any(leaf_of[p] in held for p in pool.units[u].pods))

    def _tested(self, unit: Unit) -> tuple[tuple[int, int, int], ...]:
        leaves = self.problem.gangs[unit.gang].leaves
        if len(unit.pods) == 1:
            leaf = self.state.leaf_of[unit.pods[0]]
            return ((leaf, 1, max(1, leaves[leaf].min_member)),)
        counts = Counter(self.state.leaf_of[pod] for pod in unit.pods)
        return tuple((leaf, count, max(1, leaves[leaf].min_member)) for leaf, count in sorted(counts.items()))

    def _quorum(self, unit: Unit) -> int:
        """Surplus pods that could take the place of ``unit``: of the core of a gang with one podset, its minimum."""
        leaves = self.problem.gangs[unit.gang].leaves
        return leaves[0].min_member if unit.is_core and len(leaves) == 1 else 0

    def _pods_of(self, units: frozenset[int]) -> frozenset[int]:
        pool = self.outcome.pool
        found = self._pods.get(units)
        if found is None:
            pods = (pod for u in units for pod in pool.units[u].pods) if pool is not None else ()
            found = self._pods[units] = frozenset(pods)
        return found

    def _pieces(self, gang: int, root: Part, units: frozenset[int]) -> tuple[tuple[Piece, ...], tuple[Scope, ...]]:
        scopes: list[Scope] = []
        pieces: list[Piece] = []
        own = self.problem.gangs[gang].is_spaced
        to_do: list[tuple[Part, tuple[str, ...], tuple[int, ...]]] = [(root, (), ())]
        while to_do:
            part, path, above = to_do.pop()
            path = (*path, part.name)
            if part.topology is not None and part.topology.required:
                scopes.append(Scope(self._domain_of(part, part.topology, units), (gang, path)))
                above = (*above, len(scopes) - 1)
            by_shape: dict[int, list[int]] = {}
            for pod in part.pods:
                by_shape.setdefault(self.problem.modelled_shape(pod), []).append(pod)
            pieces.extend(Piece(shape, tuple(pods), above, own) for shape, pods in by_shape.items())
            to_do.extend((child, path, above) for child in reversed(part.parts))
        return tuple(pieces), tuple(scopes)

    def _domain_of(self, part: Part, topology: TopologyConstraint, units: frozenset[int]) -> IntArray:
        """Domain of each node at the required level; -1 where pods of ``part`` may not join those that cannot move.

        Those of ``units`` can.
        """
        tree = self.problem.domains.get(topology.topology)
        level = tree.level_index(topology.required) if tree is not None else None
        if tree is None or level is None:
            return np.full(len(self.problem.nodes), -1, dtype=np.int64)
        domain_of: IntArray = tree.domain_of[level].astype(np.int64)
        if not part.anchors:
            return domain_of
        flexible = self._pods_of(units)
        fixed = {int(domain_of[self.problem.pod_node[p]]) for p in part.anchors if self._is_fixed(p, flexible)}
        if not fixed:
            return domain_of
        keep = fixed if len(fixed) == 1 else set()
        return np.where(np.isin(domain_of, sorted(keep)), domain_of, -1)

    def _is_fixed(self, pod: int, flexible: frozenset[int]) -> bool:
        """True where the pod runs and stays: nothing placed in this cycle is sure of its place."""
        return self.problem.pod_node[pod] >= 0 and pod not in self.state.gone and pod not in flexible

    def _of_rules(self, arrivals: Sequence[Arrival], movers: Sequence[Mover]) -> dict[str, Any]:
        every = ((rule.kind, rule.for_rows(arrivals, movers)) for rule in self.state.rules)
        return {kind: found for kind, found in every if found is not None}

    # -- capacity ------------------------------------------------------------------------------------------------

    def lifted(self, units: frozenset[int]) -> tuple[IntArray, IntArray]:
        """(R, N) and (N, D) free with ``units`` and all that was placed in this cycle out of the way.

        It does not matter where they are at present, so one answer serves as long as the set is the same.
        """
        found = self._lifts.get(units)
        if found is None:
            found = self._lifts[units] = self._lift_origins(units)
            if len(self._lifts) > LIFTS_KEPT:
                del self._lifts[next(iter(self._lifts))]
        return found

    def relaxed(self, units: frozenset[int]) -> Relaxed:
        """The same for counts, which keep how many pods of each shape fit there."""
        found = self._relaxed.get(units)
        if found is None:
            found = self._relaxed[units] = Relaxed(*self.lifted(units))
            if len(self._relaxed) > LIFTS_KEPT:
                del self._relaxed[next(iter(self._relaxed))]
        return found

    def room_at_origins(self, units: frozenset[int]) -> Mapping[int, int]:
        """Pods of ``units`` by shape, where they run on nodes that would take them now.

        Others (on nodes cordoned, tainted or over-committed since) may stay there all the same, so a count of room must
        not ask for their places. One answer serves many questions: they ask for the same units.
        """
        found = self._welcome.get(units)
        if found is None:
            pool = self.outcome.pool
            welcome = self._is_welcome
            pods = [p for u in units for p in pool.units[u].pods if welcome[p]] if pool is not None else []
            found = self._welcome[units] = self.problem.by_shape(pods)
        return found

    def kept(self, units: frozenset[int]) -> Kept:
        """By gang of ``units``, what `room_at_origins` says of those that are its own."""
        known, pool = self._by_gang.get(units), self.outcome.pool
        found: dict[int, Mapping[int, int]] = {}
        if known is None and pool is not None:
            gangs, counts = np.unique(pool.gang_of[list(units)], return_counts=True)
            for gang, count in zip(gangs.tolist(), counts.tolist(), strict=True):
                own = pool.of_gang[gang]
                if count < len(own):
                    found[gang] = self.room_at_origins(units.intersection(own))
                    continue
                if gang not in self._of_gang:
                    self._of_gang[gang] = self.room_at_origins(frozenset(own))
                found[gang] = self._of_gang[gang]
            known = self._by_gang[units] = Kept(found)
            if len(self._by_gang) > LIFTS_KEPT:
                del self._by_gang[next(iter(self._by_gang))]
        return known or Kept(found)

    @cached_property
    def _is_welcome(self) -> list[bool]:
        """(P,) True for pods that run on a node that would take them now, with the GPUs that they have.

        On 5,000 nodes with rules between pods it takes 3 ms, and to ask pod by pod took 4 ms for each question.
        """
        problem = self.problem
        columns, is_open = problem.columns, ~self.violated
        for rule in problem.rules:
            tolerated = rule.tolerated(problem)
            is_open = is_open if tolerated is None else is_open & ~tolerated
        found = np.zeros(len(columns.node), dtype=np.bool_)
        runs = np.flatnonzero(columns.node >= 0)
        shapes, own = np.unique(columns.shape[runs], return_inverse=True)
        rooms = np.array([problem.shapes.same_room(shape) for shape in shapes.tolist()], dtype=np.int64)[
            own.reshape(-1)
        ]
        for shape in np.unique(rooms).tolist():
            same = runs[rooms == shape]
            nodes = columns.node[same]
            found[same] = problem.shapes.mask(shape)[nodes] & is_open[nodes]
        found[list(self._exempt)] = False
        return found.tolist()

    def _without_violated(self, units: frozenset[int]) -> frozenset[int]:
        """Leave out units that run, undisturbed, on nodes that hold more than they have.

        They could not even stay in a model whose rows say what a node has; so they stay outside it.
        """
        pool, origin = self.outcome.pool, self.problem.pod_node
        if pool is None or not self.violated.any():
            return units
        over = {u for u in units if any(self.violated[origin[p]] for p in pool.units[u].pods)}
        return units - frozenset(u for u in over if not pool.has_left(u) and not pool.is_moved(u))

    def is_partial(self, units: frozenset[int]) -> bool:
        """True where some of ``units`` may do what is not modelled.

        They run on nodes that hold more than they have, or do not keep an optional rule where they are.
        """
        pool, origin = self.outcome.pool, self.problem.pod_node
        if pool is None or not (self.violated.any() or self._exempt):
            return False
        return any(self.violated[origin[p]] or p in self._exempt for u in units for p in pool.units[u].pods)

    def _violated(self) -> BoolArray:
        """(N,) nodes that hold more than they have, as when a node shrank."""
        problem = self.problem
        over: BoolArray = np.any(problem.capacity < problem.held - problem.releasing, axis=0)
        if problem.device_free.shape[1]:
            over |= np.any((problem.device_free + problem.device_releasing) < 0, axis=1)
        for rule in problem.rules:
            nodes = rule.overcommitted(problem)
            over = over if nodes is None else over | nodes
        return over

    def _lift_origins(self, units: frozenset[int]) -> tuple[IntArray, IntArray]:
        problem, pool = self.problem, self.outcome.pool
        free = problem.capacity - problem.held + problem.releasing
        device_free = problem.device_free + problem.device_releasing
        if pool is None or not units:
            return free, device_free
        out = np.zeros(len(pool.units), dtype=np.bool_)
        out[np.fromiter(units, dtype=np.int64, count=len(units))] = True
        origins, kept = pool.origins, out[pool.origins.unit]
        rows = np.flatnonzero(kept)
        if len(rows):
            nodes = origins.node[rows]  # Ascending.
            first = np.flatnonzero(np.diff(nodes, prepend=-1))
            free[:, nodes[first]] += np.add.reduceat(np.take(origins.request, rows, axis=1), first, axis=1)
        held_devices = self._held_devices[:, out[self._held_devices[0]]]
        devices = held_devices[1] * device_free.shape[1] + held_devices[2]
        np.add.at(device_free.reshape(-1), devices, held_devices[3])  # By two indices it takes four times as long.
        sharing = np.flatnonzero(out & pool.shares).tolist()
        self._lift_reservations([p for u in sharing for p in pool.units[u].pods], free)
        return free, device_free

    @cached_property
    def _held_devices(self) -> IntArray:
        """(4, S) unit, node, device and parts of it, of all devices that units hold where they run."""
        problem, pool = self.problem, self.outcome.pool
        if pool is None:
            return np.zeros((4, 0), dtype=np.int64)
        pods = pool.table.pods
        row, device, parts = problem.columns.held(pods)
        return np.array([pool.table.unit_of_row[row], problem.columns.node[pods[row]], device, parts])

    def _lifted_grants(self, movers: Iterable[Mover]) -> dict[str, Any]:
        """By rule that grants something, what is free without ``movers`` and all that was placed in this cycle."""
        pods = [p for mover in movers for piece in mover.pieces for p in piece.pods]
        return {
            rule.kind: rule.free(self.problem, pods) for rule in self.problem.rules if rule.kind in self.state.granting
        }

    def _lift_reservations(self, pods: list[int], free: IntArray) -> None:
        """Give back the pod slots of reservation pods on devices that no pod shares once ``pods`` have left."""
        problem = self.problem
        lifted = Counter(
            (problem.pod_node[p], d)
            for p in pods
            if problem.pods[p].gpu.is_shared
            for d in problem.held_devices.get(p, ())
        )
        for (node, device), count in lifted.items():
            if problem.sharers[node, device] - problem.sharers_leaving[node, device] == count:
                free[PODS, node] += 1

    # -- queues --------------------------------------------------------------------------------------------------

    def _caps(self, arrivals: Sequence[Arrival], movers: Sequence[Mover]) -> Iterable[Cap]:
        """Caps that the arrivals' queues have, with what arrivals hold now taken off and movers back at home."""
        tree, pool = self.problem.queues, self.outcome.pool
        queues = {q for a in arrivals for q in tree.path[a.queue]}
        held, fixed, lost = ({queue: [0, 0, 0] for queue in queues} for _ in range(3))
        for a in arrivals:
            now = self._paid_now(a)
            for queue in tree.path[a.queue]:
                _add(held[queue], now)
                if not a.preemptible:
                    _add(fixed[queue], now)
        for m in movers:
            if pool is not None and pool.is_disturbed(m.unit):
                now = self._paid_now(m)
                for queue in queues.intersection(tree.path[m.queue]):
                    _add(lost[queue], [charged - paid for charged, paid in zip(m.charge, now, strict=True)])
        for queue in sorted(queues):
            for r in range(len(QUEUE_RESOURCES)):
                if tree.limits[queue][r] != UNLIMITED:
                    before = self.state.allocated[queue][r] - held[queue][r] + lost[queue][r]
                    yield Cap("limit", queue, r, tree.limits[queue][r] - before)
                if tree.quotas[queue][r] != UNLIMITED:
                    yield Cap(
                        "quota",
                        queue,
                        r,
                        tree.quotas[queue][r] - (self.state.allocated_fixed[queue][r] - fixed[queue][r]),
                    )

    def _releases(self, movers: Sequence[Mover]) -> Iterable[tuple[ReleaseKey, int]]:
        """How many pods the caps of ``movers`` let go, with all of them at home."""
        pool = self.outcome.pool
        mine = {cap for mover in movers for cap, _ in mover.releases}
        if pool is None or not mine:
            return
        left = pool.releases.left()
        for mover in movers:
            if mover.releases and pool.is_disturbed(mover.unit):
                for cap, pods in mover.releases:
                    left[cap] += pods
        yield from ((cap, left[cap]) for cap in sorted(mine))

    def _paid_now(self, item: Arrival | Mover) -> Charge:
        """What the queue pays where the cycle has placed the pods."""
        places, pods = self.state.places, (pod for piece in item.pieces for pod in piece.pods)
        return sum_of(places[pod].charge for pod in pods if pod in places)


def _add(total: list[int], amounts: Sequence[int]) -> None:
    for resource, amount in enumerate(amounts):
        total[resource] += amount
