"""All pods of a snapshot by number: shape, gang, node and what they cost; and the gangs that take part."""

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import NO_PLACEMENT, Gang, Placement, Pod, Policy, Snapshot, inherited
from kai_solver.fairness import QueueTree
from kai_solver.problem.charges import Charge, charge
from kai_solver.problem.gang_columns import GangColumns, GangShapes
from kai_solver.problem.gangs import GangShape, renumbered, shape_gang
from kai_solver.problem.kinds import Kinds
from kai_solver.problem.known_pods import KnownPods
from kai_solver.problem.node_table import NodeTable
from kai_solver.problem.podrules import Concerned, PodRules
from kai_solver.problem.rows import GangRow, Lodgers
from kai_solver.problem.rules import surveyed
from kai_solver.problem.shapes import ShapeTable, Style

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class Load(NamedTuple):
    """What pods cost which queue."""

    queue: int
    preemptible: bool
    is_active: bool
    charge: Charge


class _QueueInfo(NamedTuple):
    """A queue that gangs name: its index (-1: none), what is wrong with it, and the placement that it grants."""

    queue: int
    is_leaf: bool
    trouble: str
    placement: Placement


_SHAPE = attrgetter("shape")

_Stretch = tuple[int, Placement]
"""Gangs one after the other whose pods share a placement: the pod after their last, and it."""


class PodTable:
    """Pods by index with shape, gang, node and charge; gangs whose queue is a known leaf.

    Attributes
    ----------
    sizes
        Pods of each gang of the snapshot, by key, and last of the foreign pods.
    nodes, gang_of
        (P,) as ``pod_node`` and ``pod_gang``.
    """

    def __init__(
        self, snapshot: Snapshot, known_pods: KnownPods, kinds: Kinds, node_table: NodeTable, tree: QueueTree
    ) -> None:
        self._kinds = kinds
        self._node_table = node_table
        self._tree = tree
        self._known_pods = known_pods
        every = [*known_pods.rows, known_pods.foreign]
        self.pods: tuple[Pod, ...] = tuple(chain.from_iterable([row.pods for row in every]))
        self.kinds: list[int] = list(chain.from_iterable([row.kinds for row in every]))
        self.pod_node: list[int] = list(chain.from_iterable([row.origins for row in every]))
        self.nodes: IntArray = np.array(self.pod_node, dtype=np.int64)
        self._met = dict.fromkeys(self.kinds)
        self._cost = {kind: charge(kinds.samples[kind], node_table.min_memory_mib) for kind in self._met}
        rules, concerned = self._rules(every)
        surveys = surveyed(node_table.nodes, snapshot.schema)
        self.shapes = ShapeTable(node_table.nodes, node_table.predicates, rules, surveys)
        self.outside: dict[str, tuple[Gang, str]] = {}
        self._families: dict[tuple[str, Placement], int] = {}
        self._queue_infos: dict[str, _QueueInfo] = {}
        self._stretches: list[_Stretch] = []
        self.sizes: IntArray = np.array([len(row.kinds) for row in every], dtype=np.int64)
        self.gangs, self.gang_columns, numbers = self._numbered(known_pods.rows)
        self.gang_of: IntArray = np.repeat(np.append(numbers, -1), self.sizes)
        self.pod_gang: list[int] = self.gang_of.tolist()
        self.pod_shape = self._number_shapes(rules, concerned, snapshot.policy)
        self.ruled = self._ruled(rules, concerned)
        wished, outward = rules.wished(concerned, self.pod_gang)
        self.related, self.outward = self.ruled.union(wished), self.ruled.union(outward)
        self.counted = self.related if rules.have_selectors else frozenset(wished)
        self.charges, self.least_charges = self._charged()

    def _rules(self, every: Sequence[Lodgers]) -> tuple[PodRules, list[Concerned]]:
        """Rules and wishes between pods; and the pods that carry some, or that some could be about, in their order."""
        samples = self._kinds.samples
        if not any(samples[kind].constraints.speaks_of_pods for kind in self._met):
            return PodRules(()), []
        rules = PodRules(pod for lodgers in every if lodgers.company.speaks for _, pod in lodgers.company.alike)
        concerned: list[Concerned] = []
        start = 0
        for lodgers in every:
            company, first = lodgers.company, start
            start += len(lodgers.kinds)
            if company.speaks or rules.may_be_about(company.labels):
                for count, pod in company.alike:
                    concerned.append((range(first, first + count), pod))
                    first += count
        return rules, concerned

    def _ruled(self, rules: PodRules, concerned: Sequence[Concerned]) -> frozenset[int]:
        """Pods that carry a rule about other pods, or that such a rule is about."""
        if not rules:
            return frozenset()
        is_ruled = [bool(shape.affinity_labels) for shape in self.shapes.shapes]
        return frozenset([pod for alike, _ in concerned for pod in alike if is_ruled[self.pod_shape[pod]]])

    # -- gangs ---------------------------------------------------------------------------------------------------

    def _numbered(self, rows: Sequence[GangRow]) -> tuple[GangShapes, GangColumns, IntArray]:
        """Gangs that take part; the number of every row's gang, -1 for those that do not. Their stretches are noted.

        A gang that was numbered among the same queues takes part as it did, and only its number is another one. Where
        one gang of a hundred changed, that is so of nearly all.
        """
        facts = self._known_pods.facts
        facts.serve(self._tree)
        slots = np.array([row.slot for row in rows], dtype=np.int64)
        takes_part: BoolArray = facts.of(slots)["is_known"]
        new = np.flatnonzero(~takes_part).tolist()
        for at in new:
            takes_part[at] = self._takes_part(rows[at])
        numbers: IntArray = np.where(takes_part, np.cumsum(takes_part) - 1, -1)
        first: IntArray = np.cumsum(self.sizes[:-1]) - self.sizes[:-1]
        shaped = [rows[at] for at in new if takes_part[at]]
        for row, at in zip(shaped, [at for at in new if takes_part[at]], strict=True):
            row.shape = self._shape(row, int(numbers[at]), int(first[at]))
        facts.write([row.slot for row in shaped], [row.known_shape for row in shaped])
        own = np.flatnonzero(takes_part)
        found, starts = facts.of(slots[own]), first[own]
        partaking = [rows[at] for at in own.tolist()] if len(own) < len(rows) else rows
        shapes: list[GangShape] = [*map(_SHAPE, partaking)]
        self._note_stretches(shapes if found["is_placed"].any() else (), starts, self.sizes[own])
        gangs = GangShapes(partaking, shapes, starts.tolist())
        return gangs, GangColumns(found, starts, gangs, self.nodes), numbers

    def _takes_part(self, row: GangRow) -> bool:
        """Whether the gang's queue is a leaf; it is noted why not."""
        gang = row.gang
        queue_info = self._queue_infos.get(gang.queue) or self._queue_info(gang.queue)
        trouble = gang.set_aside or queue_info.trouble
        if trouble:
            self.outside[row.key] = (gang, trouble)
        return not trouble

    def _note_stretches(self, shapes: Sequence[GangShape], first: IntArray, sizes: IntArray) -> None:
        """Note the stretches of gangs with ``shapes``, whose pods begin at ``first``; none: no gang has a placement."""
        end, last = 0, NO_PLACEMENT
        for shape, start, size in zip(shapes, first.tolist(), sizes.tolist(), strict=False):
            if start != end and last is not NO_PLACEMENT:  # Gangs that take no part lie between.
                self._stretches.append((end, last))
                last = NO_PLACEMENT
            if shape.placement is not last:
                self._stretches.append((start, last))
                last = shape.placement
            end = start + size
        self._stretches.append((end, last))
        self._stretches.append((len(self.pods), NO_PLACEMENT))

    def _queue_info(self, name: str) -> _QueueInfo:
        """The queue of that name, looked up once."""
        tree = self._tree
        queue = tree.index.get(name, -1)
        is_leaf = queue >= 0 and tree.is_leaf[queue]
        above = tree.path[queue] if is_leaf else ()
        placement = inherited(tree.queues[q].placement for q in above)
        queue_info = self._queue_infos[name] = _QueueInfo(queue, is_leaf, _queue_trouble(name, tree), placement)
        return queue_info

    def _shape(self, row: GangRow, index: int, first: int) -> GangShape:
        """The gang's shape; the last one where it is the same."""
        known, gang = row.shape, row.gang
        queue_info = self._queue_infos.get(gang.queue) or self._queue_info(gang.queue)
        placement, family = queue_info.placement, -1
        if gang.placement is not NO_PLACEMENT and gang.placement != NO_PLACEMENT:
            above = (self._tree.queues[q].placement for q in self._tree.path[queue_info.queue])
            placement = inherited([gang.placement, *above])
        if placement is not NO_PLACEMENT and (placement.is_rule or placement.nodes == "spread"):
            # Number of the workload, where it matters which of its pods are on one node.
            family = self._families.setdefault((gang.family, placement), len(self._families))
        if known is not None and (known.queue, known.placement, known.family) == (queue_info.queue, placement, family):
            return renumbered(known, index, first)
        return shape_gang(index, gang, row.stands, queue_info.queue, first, placement, family)

    # -- pods ----------------------------------------------------------------------------------------------------

    def _number_shapes(self, rules: PodRules, concerned: Sequence[Concerned], policy: Policy) -> list[int]:
        """Shape of every pod; numbers are given in the order in which shapes are met."""
        numbers: list[int] = []
        known: dict[Placement, dict[Hashable, int]] = {}
        start = 0
        keys: Sequence[Hashable] = self._told_apart(rules, concerned) if rules else self.kinds
        for end, placement in self._stretches:
            found, own = known.setdefault(placement, {}), keys[start:end]
            new = [key for key in dict.fromkeys(own) if key not in found]
            if new:
                first = dict(zip(reversed(own), reversed(self.pods[start:end]), strict=True))
                for key in new:
                    found[key] = self.shapes.index(first[key], _style(first[key], placement, policy))
            numbers += map(found.__getitem__, own)
            start = end
        return numbers

    def _told_apart(self, rules: PodRules, concerned: Sequence[Concerned]) -> list[Hashable]:
        """Kinds of all pods, with their labels where ``rules`` tell pods of one kind apart by these."""
        found: list[Hashable] = [*self.kinds]
        for alike, pod in concerned:
            labels = rules.labels_of(pod)
            for number in alike if labels else ():
                found[number] = self.kinds[number], labels
        return found

    def _charged(self) -> tuple[list[Charge], list[Charge]]:
        """What each pod costs where it runs, and at least; they differ for requests by GPU memory only."""
        node_table, samples = self._node_table, self._kinds.samples
        known = self._cost
        charges = list(map(known.__getitem__, self.kinds))
        by_memory = {kind for kind in known if samples[kind].gpu.memory_mib}
        if not by_memory:
            return charges, charges
        least = list(charges)
        for index, kind in enumerate(self.kinds):
            if kind in by_memory:
                node = self.pod_node[index]
                charges[index] = least[index] = self._charge_on(kind, node)
                if node < 0:
                    least[index] = charge(samples[kind], node_table.max_memory_mib)
        return charges, least

    def charge_rows(self) -> IntArray:
        """(P, 3) `charges`."""
        samples = self._kinds.samples
        if any(samples[kind].gpu.memory_mib for kind in self._met):
            return np.array(self.charges, dtype=np.int64).reshape(-1, 3)
        by_kind = np.zeros((max(self._met, default=0) + 1, 3), dtype=np.int64)
        by_kind[list(self._met)] = np.array(list(self._cost.values()), dtype=np.int64).reshape(-1, 3)
        found: IntArray = by_kind[np.array(self.kinds, dtype=np.int64)]
        return found

    def _charge_on(self, kind: int, node: int) -> Charge:
        """What a pod of ``kind`` costs on ``node``; -1: it waits, and pays as on the smallest devices."""
        if node < 0:
            return self._cost[kind]
        return charge(self._kinds.samples[kind], int(self._node_table.memory_mib[node]))

    def loads(self) -> Iterator[tuple[Load, int]]:
        """How many pods of every leaf queue are active or wait, by what they cost; of gangs set aside too."""
        index = self._node_table.index
        for (name, preemptible, kind, is_active, node), count in self._known_pods.pod_counts.items():
            queue_info = self._queue_infos.get(name) or self._queue_info(name)
            if queue_info.is_leaf:
                cost = self._charge_on(kind, index.get(node, -1)) if node else self._cost[kind]
                yield Load(queue_info.queue, preemptible, is_active, cost), count


def _style(pod: Pod, placement: Placement, policy: Policy) -> Style:
    nodes = placement.nodes or (policy.gpu_placement if pod.gpu.devices else policy.cpu_placement)
    return nodes, placement.devices or policy.gpu_sharing_placement


def _queue_trouble(name: str, tree: QueueTree) -> str:
    queue = tree.index.get(name)
    if queue is None:
        dropped = tree.dropped.get(name)
        return dropped or f"Queue '{name}' does not exist"
    if not tree.is_leaf[queue]:
        return f"Queue '{name}' is not a leaf queue: only queues without children hold workloads"
    return ""
