"""From a question to the aggregated master: identical units and allocation units become groups, nodes become sites."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import TopologyConstraint
from kai_solver.fairness import QueueSurplus
from kai_solver.model.aggregated import Group, Master, Partition
from kai_solver.model.joint import Arrival
from kai_solver.model.sites import Sites, fold
from kai_solver.planstate.eviction_units import Unit
from kai_solver.problem import Problem, TreeNode
from kai_solver.problem.charges import Charge
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.question import Question, largest_part

IntArray = NDArray[np.int64]
Pods = tuple[tuple[int, int], ...]
Level = tuple[str, int]
"""Topology and level. A level of -1 has no domain at all."""
NOWHERE: Level = ("", -1)


@dataclass(frozen=True, slots=True)
class _Load:
    """What a unit asks for wherever it runs: pods by shape, and the level at which they must lie together."""

    pods: Pods
    level: Level | None


class Aggregator:
    """Folds the questions of one run of the actions; what they have in common is kept."""

    def __init__(self, model_input: JointModelInput) -> None:
        self.model_input = model_input
        self.problem: Problem = model_input.problem
        self._loads: dict[int, _Load] = {}
        self._sites: dict[tuple[object, ...], Sites] = {}
        self._levels: dict[bytes, tuple[Level, frozenset[int] | None]] = {}
        self._arrivals: dict[tuple[int, ...], Arrival] = {}

    def master(self, question: Question, most_places: int) -> Master:
        """The relaxation of ``question``; ``most_places`` as of `sites.fold`."""
        anywhere: Counter[int] = Counter()
        groups: Counter[_Key] = Counter()
        surplus = question.surplus
        self._fold_units(question, surplus, anywhere, groups)
        self._fold_arrivals(question, anywhere, groups)
        levels = sorted({key.level for key in groups if key.level is not None})
        shapes = sorted({*anywhere, *(shape for key in groups for shape, _ in key.pods)})
        sites = self._fold_nodes(question.units, shapes, levels, most_places)
        number = {level: index for index, level in enumerate(levels)}
        return Master(
            sites,
            tuple(self._partition(sites, level, number) for level in levels),
            tuple(key.group(copies, number) for key, copies in groups.items()),
            anywhere,
            tuple(allowance(question, s) for s in surplus),
        )

    # -- units -----------------------------------------------------------------------------------------------------

    def _fold_units(
        self, question: Question, surplus: Sequence[QueueSurplus], anywhere: Counter[int], groups: Counter["_Key"]
    ) -> None:
        pool = question.outcome.pool
        surplus_of = {leaf: number for number, s in enumerate(surplus) for leaf in s.leaves}
        charged, free = question.charged, question.droppable
        for index in question.units if pool is not None else ():
            if index in free or pool is None:
                continue
            unit = pool.units[index]
            load = self._load(unit)
            number = surplus_of.get(self.problem.gangs[unit.gang].queue, -2) if index in charged else -1
            if number == -2:
                continue  # It may be taken, and nothing counts what it costs.
            if number < 0 and load.level is None:
                for shape, count in load.pods:
                    anywhere[shape] += count
            elif number >= 0:
                groups[_Key(load.pods, load.level, None, 0, unit.charge, number)] += 1
            else:
                groups[_Key(load.pods, load.level)] += 1

    def _load(self, unit: Unit) -> _Load:
        found = self._loads.get(unit.index)
        if found is None:
            found = self._loads[unit.index] = self._measure(unit)
        return found

    def _measure(self, unit: Unit) -> _Load:
        """Pods that their nodes would take now; others may stay there, and need no room elsewhere."""
        model_input, problem = self.model_input, self.problem
        pods = problem.by_shape(pod for pod in unit.pods if model_input.is_welcome(pod))
        level = self._required_level(problem.gangs[unit.gang].root)
        if level is not None:
            domains = {int(self._domain_of(level)[problem.pod_node[pod]]) for pod in unit.pods}
            if len(domains) > 1 or -1 in domains:
                level = None  # They run where they should not, and may go on.
        return _Load(tuple(sorted(pods.items())), level)

    def _required_level(self, root: TreeNode) -> Level | None:
        """The level that all pods of a gang must share; None without one (parts may have levels of their own)."""
        required = root.topology
        if required is None and len(root.children) == 1:
            required = root.children[0].topology
        return self._level(required) if required is not None and required.required else None

    def _level(self, required: TopologyConstraint) -> Level | None:
        tree = self.problem.domains.get(required.topology)
        level = tree.level_index(required.required) if tree is not None and required.required else None
        return None if level is None else (required.topology, level)

    # -- arrivals --------------------------------------------------------------------------------------------------

    def _fold_arrivals(self, question: Question, anywhere: Counter[int], groups: Counter["_Key"]) -> None:
        undone = question.undone
        for allocation_unit, action in (*question.admitted, (question.allocation_unit, question.action)):
            arrival = self._arrivals.get(allocation_unit.pods)
            if arrival is None:
                arrival = self.model_input.arrival(allocation_unit, action, question.units)
                if not allocation_unit.root.anchors:
                    self._arrivals[allocation_unit.pods] = arrival
            must = allocation_unit.gang not in undone or allocation_unit is question.allocation_unit
            for scope, pods in _by_scope(arrival).items():
                level, domains = (None, None) if scope < 0 else self._recognise(arrival.scopes[scope].domain_of)
                if level is None and must:
                    anywhere.update(dict(pods))
                else:
                    groups[_Key(pods, level, domains, int(must))] += 1

    def _recognise(self, domain_of: IntArray) -> tuple[Level, frozenset[int] | None]:
        """The level behind the domains of a scope, and which of its domains are allowed (None: all)."""
        key = domain_of.tobytes()
        if key not in self._levels:
            self._levels[key] = self._search_level(domain_of)
        return self._levels[key]

    def _search_level(self, domain_of: IntArray) -> tuple[Level, frozenset[int] | None]:
        inside = domain_of >= 0
        for name, tree in self.problem.domains.items() if inside.any() else ():
            for level, of_node in enumerate(tree.domain_of):
                if np.array_equal(of_node[inside], domain_of[inside]):
                    allowed = frozenset(np.unique(domain_of[inside]).tolist())
                    return (name, level), None if np.array_equal(of_node, domain_of) else allowed
        return NOWHERE, frozenset()

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _fold_nodes(
        self, units: frozenset[int], shapes: Sequence[int], levels: Sequence[Level], most_places: int
    ) -> Sites:
        key = (units, tuple(shapes), tuple(levels), most_places)
        found = self._sites.get(key)
        if found is None:
            free, device_free = self.model_input.lifted(units)
            partitions = [self._domain_of(level) for level in levels]
            found = fold(self.problem, free, device_free, shapes, partitions, most_places)
            self._sites[key] = found
        return found

    def _domain_of(self, level: Level) -> IntArray:
        if level == NOWHERE:
            return np.full(len(self.problem.nodes), -1, dtype=np.int64)
        found: IntArray = self.problem.domains[level[0]].domain_of[level[1]]
        return found

    def _partition(self, sites: Sites, level: Level, number: Mapping[Level, int]) -> Partition:
        mine = self._domain_of(level)
        below: dict[int, IntArray] = {}
        for other, index in number.items():
            if other[0] == level[0] and other[1] > level[1]:
                theirs = self._domain_of(other)
                around = np.full(int(theirs.max(initial=-1)) + 1, -1, dtype=np.int64)
                around[theirs[theirs >= 0]] = mine[theirs >= 0]
                below[index] = around
        return Partition(sites.domain_of(mine), below)


@dataclass(frozen=True, slots=True)
class _Key:
    """What must agree for two to fold into one group."""

    pods: Pods
    level: Level | None = None
    domains: frozenset[int] | None = None
    least: int = 1
    charge: Charge = (0, 0, 0)
    surplus: int = -1

    def group(self, copies: int, number: Mapping[Level, int]) -> Group:
        """The group of ``copies``."""
        level = -1 if self.level is None else number[self.level]
        return Group(self.pods, level, self.domains, copies, self.least * copies, self.charge, self.surplus)


def _by_scope(arrival: Arrival) -> dict[int, Pods]:
    """Pods by shape under each innermost scope; -1 for those under none."""
    found: dict[int, Counter[int]] = {}
    for piece in arrival.pieces:
        found.setdefault(piece.scopes[-1] if piece.scopes else -1, Counter())[piece.shape] += len(piece.pods)
    return {scope: tuple(sorted(pods.items())) for scope, pods in found.items()}


def allowance(question: Question, surplus: QueueSurplus) -> tuple[int | None, int | None, int | None]:
    """Most that evictions of the queue may charge, by resource: its surplus less one, and one last allocation unit.

    None where a resource gives no right.
    """
    pool, gangs = question.outcome.pool, question.problem.gangs
    units = [pool.units[u] for u in question.charged if pool is not None]
    theirs = [unit for unit in units if gangs[unit.gang].queue in surplus.leaves]
    cpu, memory, gpu = (
        surplus.most(resource, largest_part(question.problem, theirs, resource)) for resource in range(3)
    )
    return cpu, memory, gpu
