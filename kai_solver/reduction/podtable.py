"""All pods of a snapshot by number: shape, gang, node and what they cost; and the gangs that take part."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import lt

from kai_solver.domain import NO_PLACEMENT, Gang, Placement, Pod, Policy, Snapshot, inherited
from kai_solver.fairness import QueueTree
from kai_solver.reduction.charges import Charge, charge
from kai_solver.reduction.gangs import GangShape, Standings, shape_gang, standings
from kai_solver.reduction.ground import Ground
from kai_solver.reduction.kinds import Kinds
from kai_solver.reduction.podrules import PodRules
from kai_solver.reduction.shapes import ShapeTable, Style
from kai_solver.reduction.zones import zone_table


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
    homes: list[int] = field(default_factory=list)
    ground: dict[str, int] | None = None
    shape: GangShape | None = None
    first: int = -1
    tree: QueueTree | None = None


def gang_row(gang: Gang, kinds: Kinds) -> GangRow:
    """Look at ``gang`` for the first time."""
    ordered = _in_order(gang)
    return GangRow(gang.key, gang, ordered, standings(ordered.pods), kinds.of(ordered.pods))


def _in_order(gang: Gang) -> Gang:
    """``gang`` with its pods as they are served; itself where they are so already."""
    orders = [pod.order for pod in gang.pods]
    if all(map(lt, orders, orders[1:])):
        return gang
    return replace(gang, pods=tuple(sorted(gang.pods, key=lambda pod: (pod.order, pod.key))))


class PodTable:
    """Pods by index with shape, gang, node and charge; gangs whose queue is a known leaf.

    ``paying``: queue, preemptibility and pods of every gang of a known leaf, of those set aside too: what runs, pays.
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
        self.paying: list[tuple[int, bool, range]] = []
        self._families: dict[tuple[str, Placement], int] = {}
        self._inherited: dict[int, Placement] = {}
        for row in rows:
            self._add_gang(row)
        get = ground.index.get
        self._add(self._foreign, -1, [get(pod.node, -1) for pod in self._foreign])
        self.charges, self.least_charges = self._charged()

    def _rules(self) -> PodRules:
        samples = self._kinds.samples
        binding = {kind for kind in set(self.kinds) if samples[kind].constraints.binds_pods}
        if not binding:
            return PodRules(())
        return PodRules(pod for pod, kind in zip(self.pods, self.kinds, strict=True) if kind in binding)

    def _add_gang(self, row: GangRow) -> None:
        gang, tree, first = row.gang, self._tree, len(self.pod_gang)
        if row.ground is not self._ground.index:
            get = self._ground.index.get
            row.homes, row.ground = [get(pod.node, -1) for pod in gang.pods], self._ground.index
        queue = tree.index.get(gang.queue)
        if queue is not None and tree.is_leaf[queue]:
            self.paying.append((queue, gang.preemptible, range(first, first + len(gang.pods))))
        why = gang.set_aside or _queue_trouble(gang, tree)
        if why or queue is None:
            self.outside[row.key] = (gang, why)
            self._add(gang.pods, -1, row.homes)
            return
        shape = self._shape(row, queue, first)
        self.gangs.append(shape)
        self._add(gang.pods, shape.index, row.homes, shape.placement)

    def _shape(self, row: GangRow, queue: int, first: int) -> GangShape:
        index, known = len(self.gangs), row.shape
        placement = self._placement(row.gang, queue)
        family = self._family(row.gang, placement)
        if (
            known is None
            or row.tree is not self._tree
            or (known.index, row.first, known.queue, known.family) != (index, first, queue, family)
        ):
            known = shape_gang(index, row.gang, row.stands, queue, first, placement, family)
            row.shape, row.first, row.tree = known, first, self._tree
        return known

    def _placement(self, gang: Gang, queue: int) -> Placement:
        """What holds for the gang: its own word, else its queues'."""
        tree = self._tree
        if gang.placement is not NO_PLACEMENT and gang.placement != NO_PLACEMENT:
            return inherited([gang.placement, *(tree.queues[above].placement for above in tree.path[queue])])
        if queue not in self._inherited:
            self._inherited[queue] = inherited(tree.queues[above].placement for above in tree.path[queue])
        return self._inherited[queue]

    def _family(self, gang: Gang, placement: Placement) -> int:
        """Number of the workload, where it matters which of its pods are on one node."""
        if placement is NO_PLACEMENT or (not placement.is_rule and placement.nodes != "spread"):
            return -1
        return self._families.setdefault((gang.family, placement), len(self._families))

    def _add(self, pods: Sequence[Pod], gang: int, homes: list[int], placement: Placement = NO_PLACEMENT) -> None:
        first = len(self.pod_gang)
        kinds = self.kinds[first : first + len(pods)]
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


class _ShapeNumbers:
    """The shape of pods by kind, and by what else tells them apart: their workload's placement, and pods' rules."""

    def __init__(self, shapes: ShapeTable, kinds: Kinds, policy: Policy, rules: PodRules) -> None:
        self._shapes = shapes
        self._samples = kinds.samples
        self._policy = policy
        self._rules = rules
        self._known: dict[Placement, dict[int, int]] = {}

    def of(self, pods: Sequence[Pod], kinds: list[int], placement: Placement) -> list[int]:
        """Shapes of ``pods``; numbers are given in the order in which shapes are met."""
        if self._rules:
            return [self._shapes.index(pod, self._style(pod, placement)) for pod in pods]
        known = self._known.setdefault(placement, {})
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


def _queue_trouble(gang: Gang, tree: QueueTree) -> str:
    queue = tree.index.get(gang.queue)
    if queue is None:
        dropped = tree.dropped.get(gang.queue)
        return dropped or f"Queue '{gang.queue}' does not exist"
    if not tree.is_leaf[queue]:
        return f"Queue '{gang.queue}' is not a leaf queue: only queues without children hold workloads"
    return ""
