"""All pods of a snapshot by number: shape, gang, node and what they cost; and the gangs that take part."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import lt
from typing import NamedTuple

from kai_solver.domain import NO_PLACEMENT, Gang, Placement, Pod, PodStatus, Policy, Snapshot, inherited
from kai_solver.fairness import QueueTree
from kai_solver.reduction.charges import Charge, charge
from kai_solver.reduction.gangs import GangShape, Standings, shape_gang, standings
from kai_solver.reduction.ground import Ground
from kai_solver.reduction.kinds import Kinds
from kai_solver.reduction.podrules import PodRules
from kai_solver.reduction.shapes import ShapeTable, Style
from kai_solver.reduction.zones import zone_table

Crowd = tuple[int, bool, int]
"""Pods of a gang that cost the same: offset of the first, whether they are active (else they wait), and how many."""


class Load(NamedTuple):
    """What pods cost which queue."""

    queue: int
    preemptible: bool
    is_active: bool
    charge: Charge


class _Home(NamedTuple):
    """A queue that gangs name: its index (-1: none), what is wrong with it, and the placement that it grants."""

    queue: int
    is_leaf: bool
    trouble: str
    placement: Placement


@dataclass(slots=True)
class GangRow:
    """What is known of one gang as long as it is the same object.

    Attributes
    ----------
    source
        The snapshot's gang; ``gang``: the same with its pods in order.
    homes
        Index of each pod's node, -1: none; by the numbers of ``ground``.
    shape
        As it was last numbered, from the pod ``first`` on and in the tree ``tree``.
    """

    key: str
    source: Gang
    gang: Gang
    stands: Standings
    kinds: list[int]
    crowds: list[Crowd]
    homes: list[int] = field(default_factory=list)
    ground: dict[str, int] | None = None
    shape: GangShape | None = None
    first: int = -1
    tree: QueueTree | None = None


def gang_row(gang: Gang, kinds: Kinds) -> GangRow:
    """Look at ``gang`` for the first time."""
    ordered = _in_order(gang)
    numbers = kinds.of(ordered.pods)
    return GangRow(gang.key, gang, ordered, standings(ordered.pods), numbers, _crowds(ordered.pods, numbers))


def _crowds(pods: Sequence[Pod], kinds: list[int]) -> list[Crowd]:
    """Active and waiting pods by what they cost: by kind, and by node where they ask for GPU memory."""
    found: dict[tuple[int, bool, str], list[int]] = {}
    for offset, (pod, kind) in enumerate(zip(pods, kinds, strict=True)):
        status = pod.status
        if status.is_active or status is PodStatus.PENDING:
            key = kind, status.is_active, pod.node if pod.gpu.memory_mib else ""
            found.setdefault(key, [offset, 0])[1] += 1
    return [(offset, is_active, count) for (_, is_active, _), (offset, count) in found.items()]


def _in_order(gang: Gang) -> Gang:
    """``gang`` with its pods as they are served; itself where they are so already."""
    orders = [pod.order for pod in gang.pods]
    if all(map(lt, orders, orders[1:])):
        return gang
    return replace(gang, pods=tuple(sorted(gang.pods, key=lambda pod: (pod.order, pod.key))))


class PodTable:
    """Pods by index with shape, gang, node and charge; gangs whose queue is a known leaf.

    ``paying``: queue, first pod and row of every gang of a known leaf, of those set aside too: what runs, pays.
    """

    def __init__(
        self, snapshot: Snapshot, rows: Sequence[GangRow], kinds: Kinds, ground: Ground, tree: QueueTree
    ) -> None:
        self._kinds = kinds
        self._ground = ground
        self._tree = tree
        self._foreign = sorted(snapshot.foreign, key=lambda pod: pod.key)
        self.kinds = [kind for row in rows for kind in row.kinds]
        self.kinds += kinds.of(self._foreign)
        self.pods: list[Pod] = [pod for row in rows for pod in row.gang.pods]
        self.pods += self._foreign
        rules = self._rules()
        self.shapes = ShapeTable(ground.nodes, ground.predicates, rules, zone_table(ground.nodes, snapshot.schema))
        self._numbers = _ShapeNumbers(self.shapes, kinds, snapshot.policy, rules)
        self.pod_shape: list[int] = []
        self.pod_gang: list[int] = []
        self.pod_node: list[int] = []
        self.gangs: list[GangShape] = []
        self.outside: dict[str, tuple[Gang, str]] = {}
        self.paying: list[tuple[int, int, GangRow]] = []
        self._families: dict[tuple[str, Placement], int] = {}
        self._homes: dict[str, _Home] = {}
        for row in rows:
            self._add_gang(row)
        get = ground.index.get
        homes = [get(pod.node, -1) for pod in self._foreign]
        self._add(self._foreign, self.kinds[len(self.pod_gang) :], -1, homes, NO_PLACEMENT)
        self.charges, self.least_charges = self._charged()

    def _rules(self) -> PodRules:
        samples = self._kinds.samples
        binding = {kind for kind in set(self.kinds) if samples[kind].constraints.binds_pods}
        if not binding:
            return PodRules(())
        return PodRules(pod for pod, kind in zip(self.pods, self.kinds, strict=True) if kind in binding)

    def _add_gang(self, row: GangRow) -> None:
        gang, first = row.gang, len(self.pod_gang)
        if row.ground is not self._ground.index:
            get = self._ground.index.get
            row.homes, row.ground = [get(pod.node, -1) for pod in gang.pods], self._ground.index
        home = self._home(gang.queue)
        if home.is_leaf:
            self.paying.append((home.queue, first, row))
        if gang.set_aside or home.trouble:
            self.outside[row.key] = (gang, gang.set_aside or home.trouble)
            self._add(gang.pods, row.kinds, -1, row.homes, NO_PLACEMENT)
            return
        shape = self._shape(row, home, first)
        self.gangs.append(shape)
        self._add(gang.pods, row.kinds, shape.index, row.homes, shape.placement)

    def _home(self, name: str) -> _Home:
        """The queue of that name, looked up once."""
        home = self._homes.get(name)
        if home is None:
            tree = self._tree
            queue = tree.index.get(name, -1)
            is_leaf = queue >= 0 and tree.is_leaf[queue]
            above = tree.path[queue] if is_leaf else ()
            placement = inherited(tree.queues[q].placement for q in above)
            home = self._homes[name] = _Home(queue, is_leaf, _queue_trouble(name, tree), placement)
        return home

    def _shape(self, row: GangRow, home: _Home, first: int) -> GangShape:
        index, known, gang = len(self.gangs), row.shape, row.gang
        placement, family = home.placement, -1
        if gang.placement is not NO_PLACEMENT and gang.placement != NO_PLACEMENT:
            above = (self._tree.queues[q].placement for q in self._tree.path[home.queue])
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
            known = shape_gang(index, gang, row.stands, home.queue, first, placement, family)
            row.shape, row.first, row.tree = known, first, self._tree
        return known

    def _add(self, pods: Sequence[Pod], kinds: list[int], gang: int, homes: list[int], placement: Placement) -> None:
        self.pod_shape += self._numbers.of(pods, kinds, placement)
        self.pod_gang += [gang] * len(pods)
        self.pod_node += homes

    def _charged(self) -> tuple[list[Charge], list[Charge]]:
        """What each pod costs where it runs, and at least; they differ for requests by GPU memory only."""
        ground, samples = self._ground, self._kinds.samples
        known = {kind: charge(samples[kind], ground.min_memory_mib) for kind in set(self.kinds)}
        charges = [known[kind] for kind in self.kinds]
        by_memory = {kind for kind in known if samples[kind].gpu.memory_mib}
        if not by_memory:
            return charges, charges
        least = list(charges)
        for index, kind in enumerate(self.kinds):
            if kind in by_memory:
                node = self.pod_node[index]
                memory = int(ground.memory_mib[node]) if node >= 0 else ground.min_memory_mib
                charges[index] = least[index] = charge(samples[kind], memory)
                if node < 0:
                    least[index] = charge(samples[kind], ground.max_memory_mib)
        return charges, least

    def loads(self) -> Counter[Load]:
        """How many pods of every queue are active or wait, by what they cost."""
        loads: Counter[Load] = Counter()
        for queue, first, row in self.paying:
            preemptible = row.gang.preemptible
            for offset, is_active, count in row.crowds:
                loads[Load(queue, preemptible, is_active, self.charges[first + offset])] += count
        return loads


class _ShapeNumbers:
    """The shape of pods by kind, and by what else tells them apart: their workload's placement, and pods' rules."""

    def __init__(self, shapes: ShapeTable, kinds: Kinds, policy: Policy, rules: PodRules) -> None:
        self._shapes = shapes
        self._samples = kinds.samples
        self._policy = policy
        self._rules = rules
        self._plain: dict[int, int] = {}
        self._known: dict[Placement, dict[int, int]] = {NO_PLACEMENT: self._plain}

    def of(self, pods: Sequence[Pod], kinds: list[int], placement: Placement) -> list[int]:
        """Shapes of ``pods``; numbers are given in the order in which shapes are met."""
        if self._rules:
            return [self._shapes.index(pod, self._style(pod, placement)) for pod in pods]
        known = self._plain if placement is NO_PLACEMENT else self._known.setdefault(placement, {})
        try:
            return [known[kind] for kind in kinds]
        except KeyError:
            for kind in kinds:
                if kind not in known:
                    sample = self._samples[kind]
                    known[kind] = self._shapes.index(sample, self._style(sample, placement))
            return [known[kind] for kind in kinds]

    def _style(self, pod: Pod, placement: Placement) -> Style:
        policy = self._policy
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
