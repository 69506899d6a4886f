"""All pods of a snapshot by number: shape, gang, node and what they cost; and the gangs that take part."""

from dataclasses import replace
from itertools import chain

from kai_solver.domain import NO_PLACEMENT, Gang, Node, Placement, Pod, Snapshot, inherited
from kai_solver.fairness import QueueTree
from kai_solver.predicates import NodePredicates
from kai_solver.reduction.charges import Charge, charge
from kai_solver.reduction.gangs import GangShape, shape_gang
from kai_solver.reduction.podrules import PodRules
from kai_solver.reduction.shapes import ShapeTable, Style
from kai_solver.reduction.zones import zone_table


class PodTable:
    """Pods by index with shape, gang, node and charge; gangs whose queue is a known leaf.

    ``paying``: queue, preemptibility and pods of every gang of a known leaf, of those set aside too: what runs, pays.
    """

    def __init__(
        self, snapshot: Snapshot, nodes: tuple[Node, ...], node_index: dict[str, int], tree: QueueTree
    ) -> None:
        self.predicates = NodePredicates(nodes)
        everybody = (pod for gang in snapshot.gangs for pod in gang.pods)
        rules = PodRules(chain(everybody, snapshot.foreign))
        self.shapes = ShapeTable(nodes, self.predicates, rules, zone_table(nodes, snapshot.schema))
        self.pods: list[Pod] = []
        self.pod_shape: list[int] = []
        self.pod_gang: list[int] = []
        self.pod_node: list[int] = []
        self.charges: list[Charge] = []
        self.least_charges: list[Charge] = []
        self.gangs: list[GangShape] = []
        self.outside: dict[str, tuple[Gang, str]] = {}
        self.paying: list[tuple[int, bool, range]] = []
        self._policy = snapshot.policy
        self._families: dict[tuple[str, Placement], int] = {}
        self._node_index = node_index
        self._nodes = nodes
        self._max_gpu_memory_mib = max((n.gpu_memory_mib for n in nodes if n.gpus), default=0)
        self.min_gpu_memory_mib = min((n.gpu_memory_mib for n in nodes if n.gpus and n.gpu_memory_mib), default=0)
        for gang in sorted(snapshot.gangs, key=lambda gang: gang.key):
            self._add_gang(gang, tree)
        for pod in sorted(snapshot.foreign, key=lambda pod: pod.key):
            self._add_pod(pod, -1)

    def _add_gang(self, gang: Gang, tree: QueueTree) -> None:
        if len(gang.pods) > 1:
            gang = replace(gang, pods=tuple(sorted(gang.pods, key=lambda pod: (pod.order, pod.key))))
        why = gang.set_aside or _queue_trouble(gang, tree)
        queue = tree.index.get(gang.queue)
        if queue is not None and tree.is_leaf[queue]:
            first = len(self.pods)
            self.paying.append((queue, gang.preemptible, range(first, first + len(gang.pods))))
        if why or queue is None:
            self.outside[gang.key] = (gang, why)
            for pod in gang.pods:
                self._add_pod(pod, -1)
            return
        index = len(self.gangs)
        placement = inherited([gang.placement, *(tree.queues[above].placement for above in tree.path[queue])])
        shape = shape_gang(index, gang, queue, len(self.pods))
        self.gangs.append(replace(shape, placement=placement, family=self._family(gang, placement)))
        for pod in gang.pods:
            self._add_pod(pod, index, placement)

    def _family(self, gang: Gang, placement: Placement) -> int:
        """Number of the workload, where it matters which of its pods are on one node."""
        if not placement.is_rule and placement.nodes != "spread":
            return -1
        return self._families.setdefault((gang.family, placement), len(self._families))

    def _style(self, pod: Pod, placement: Placement) -> Style:
        policy = self._policy
        nodes = placement.nodes or (policy.gpu_placement if pod.gpu.devices else policy.cpu_placement)
        return nodes, placement.devices or policy.gpu_sharing_placement

    def _add_pod(self, pod: Pod, gang: int, placement: Placement = NO_PLACEMENT) -> None:
        node = self._node_index.get(pod.node, -1)
        memory = self._nodes[node].gpu_memory_mib if node >= 0 else self.min_gpu_memory_mib
        self.pods.append(pod)
        self.pod_shape.append(self.shapes.index(pod, self._style(pod, placement)))
        self.pod_gang.append(gang)
        self.pod_node.append(node)
        self.charges.append(charge(pod, memory))
        is_open = node < 0 and pod.gpu.memory_mib
        self.least_charges.append(charge(pod, self._max_gpu_memory_mib) if is_open else self.charges[-1])


def _queue_trouble(gang: Gang, tree: QueueTree) -> str:
    queue = tree.index.get(gang.queue)
    if queue is None:
        dropped = tree.dropped.get(gang.queue)
        return dropped or f"Queue '{gang.queue}' does not exist"
    if not tree.is_leaf[queue]:
        return f"Queue '{gang.queue}' is not a leaf queue: only queues without children hold workloads"
    return ""
