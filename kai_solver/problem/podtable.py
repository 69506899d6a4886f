"""All pods of a snapshot by number: shape, gang, node and what they cost; and the gangs that take part."""

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from kai_solver.domain import NO_PLACEMENT, Gang, Placement, Pod, Policy, Snapshot, inherited
from kai_solver.fairness import QueueTree
from kai_solver.problem.charges import Charge, charge
from kai_solver.problem.gangs import GangShape, renumbered, shape_gang
from kai_solver.problem.kinds import Kinds
from kai_solver.problem.known_pods import KnownPods
from kai_solver.problem.node_table import NodeTable
from kai_solver.problem.podrules import PodRules
from kai_solver.problem.rows import GangRow
from kai_solver.problem.rules import surveyed
from kai_solver.problem.shapes import ShapeTable, Style


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


_Stretch = tuple[int, Placement]
"""Gangs one after the other whose pods share a placement: the pod after their last, and it."""


class PodTable:
    """Pods by index with shape, gang, node and charge; gangs whose queue is a known leaf."""

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
        self._met = dict.fromkeys(self.kinds)
        self._cost = {kind: charge(kinds.samples[kind], node_table.min_memory_mib) for kind in self._met}
        rules = self._rules()
        surveys = surveyed(node_table.nodes, snapshot.schema)
        self.shapes = ShapeTable(node_table.nodes, node_table.predicates, rules, surveys)
        self.gangs: list[GangShape] = []
        self.outside: dict[str, tuple[Gang, str]] = {}
        self._families: dict[tuple[str, Placement], int] = {}
        self._queue_infos: dict[str, _QueueInfo] = {}
        self._stretches: list[_Stretch] = []
        numbers = self._number_gangs(known_pods.rows)
        sizes = [len(row.kinds) for row in every]
        self.pod_gang: list[int] = list(chain.from_iterable(map(repeat, (*numbers, -1), sizes)))
        self.pod_shape = self._number_shapes(rules, snapshot.policy)
        self.ruled = frozenset(self._ruled(rules))
        wished, outward = rules.wished(self.pods, self.pod_gang)
        self.related, self.outward = self.ruled.union(wished), self.ruled.union(outward)
        self.counted = self.related if rules.have_selectors else frozenset(wished)
        self.charges, self.least_charges = self._charged()

    def _rules(self) -> PodRules:
        samples = self._kinds.samples
        speaking = {kind for kind in self._met if samples[kind].constraints.speaks_of_pods}
        if not speaking:
            return PodRules(())
        return PodRules(pod for pod, kind in zip(self.pods, self.kinds, strict=True) if kind in speaking)

    def _ruled(self, rules: PodRules) -> Iterator[int]:
        """Pods that carry a rule about other pods, or that such a rule is about."""
        if rules:
            is_ruled = [bool(shape.affinity_labels) for shape in self.shapes.shapes]
            yield from (pod for pod, shape in enumerate(self.pod_shape) if is_ruled[shape])

    # -- gangs ---------------------------------------------------------------------------------------------------

    def _number_gangs(self, rows: Sequence[GangRow]) -> list[int]:
        """Index of every row's gang, -1 for those that take no part; their stretches are noted.

        A gang that was numbered among the same queues takes part as it did: only its number is another one, and that
        of its pods. Where one gang of a hundred changed, that is so of nearly all.
        """
        numbers: list[int] = []
        first = 0
        last = NO_PLACEMENT
        gangs, tree = self.gangs, self._tree
        for row in rows:
            known = row.shape
            if known is not None and row.tree is tree and known.family < 0:
                index = len(gangs)
                if known.index != index or row.first != first:
                    known = row.shape = renumbered(known, index, first - row.first)
                    row.first = first
                numbers.append(index)
                gangs.append(known)
                if known.placement is not last:
                    self._stretches.append((first, last))
                    last = known.placement
                first += len(row.kinds)
                continue
            gang = row.gang
            queue_info = self._queue_infos.get(gang.queue) or self._queue_info(gang.queue)
            placement = NO_PLACEMENT
            if gang.set_aside or queue_info.trouble:
                self.outside[row.key] = (gang, gang.set_aside or queue_info.trouble)
                numbers.append(-1)
            else:
                shape = self._shape(row, queue_info, first)
                placement = shape.placement
                numbers.append(len(gangs))
                gangs.append(shape)
            if placement is not last:
                self._stretches.append((first, last))
                last = placement
            first += len(row.kinds)
        self._stretches.append((first, last))
        self._stretches.append((len(self.pods), NO_PLACEMENT))
        return numbers

    def _queue_info(self, name: str) -> _QueueInfo:
        """The queue of that name, looked up once."""
        tree = self._tree
        queue = tree.index.get(name, -1)
        is_leaf = queue >= 0 and tree.is_leaf[queue]
        above = tree.path[queue] if is_leaf else ()
        placement = inherited(tree.queues[q].placement for q in above)
        queue_info = self._queue_infos[name] = _QueueInfo(queue, is_leaf, _queue_trouble(name, tree), placement)
        return queue_info

    def _shape(self, row: GangRow, queue_info: _QueueInfo, first: int) -> GangShape:
        index, known, gang = len(self.gangs), row.shape, row.gang
        placement, family = queue_info.placement, -1
        if gang.placement is not NO_PLACEMENT and gang.placement != NO_PLACEMENT:
            above = (self._tree.queues[q].placement for q in self._tree.path[queue_info.queue])
            placement = inherited([gang.placement, *above])
        if placement is not NO_PLACEMENT and (placement.is_rule or placement.nodes == "spread"):
            # Number of the workload, where it matters which of its pods are on one node.
            family = self._families.setdefault((gang.family, placement), len(self._families))
        if (
            known is None
            or known.index != index
            or row.first != first
            or row.tree is not self._tree
            or known.family != family
        ):
            known = shape_gang(index, gang, row.stands, queue_info.queue, first, placement, family)
            row.shape, row.first, row.tree = known, first, self._tree
        return known

    # -- pods ----------------------------------------------------------------------------------------------------

    def _number_shapes(self, rules: PodRules, policy: Policy) -> list[int]:
        """Shape of every pod; numbers are given in the order in which shapes are met."""
        numbers: list[int] = []
        known: dict[Placement, dict[Hashable, int]] = {}
        start = 0
        kinds: Sequence[Hashable] = self.kinds
        keys = list(zip(kinds, map(rules.labels_of, self.pods), strict=True)) if rules else kinds
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
