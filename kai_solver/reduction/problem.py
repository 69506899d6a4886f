"""The problem of one cycle: the snapshot in integers and arrays, built once, never changed."""

from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import (
    NO_PLACEMENT,
    Gang,
    Node,
    Placement,
    Pod,
    PodStatus,
    Policy,
    Snapshot,
    counted_gpu_milli,
    inherited,
)
from kai_solver.fairness import QueueTree, allocatable_share, fair_share
from kai_solver.predicates import NodePredicates
from kai_solver.reduction.alignment import BEYOND
from kai_solver.reduction.devices import seat_running
from kai_solver.reduction.gangs import GangShape, shape_gang
from kai_solver.reduction.podrules import PodRules
from kai_solver.reduction.shapes import ShapeTable, Style
from kai_solver.reduction.zones import ZoneTable, zone_table
from kai_solver.topology import DomainTree
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS

IntArray = NDArray[np.int64]
Charge = tuple[int, int, int]
"""What a queue pays: cpu milli, memory bytes, GPU milli."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A snapshot prepared for the search.

    Attributes
    ----------
    nodes
        In order of name, so that the first of equals is the one that KAI would take. N nodes.
    capacity
        (R, N) allocatable by resource; the GPU row is 0, devices are counted apart.
    held, releasing
        (R, N) what pods hold, and the part of it held by pods that are leaving (not those stuck).
    device_free, device_releasing
        (N, D) free thousandths per device, and thousandths held by pods that are leaving; 0 beyond a node's devices.
        Free may be negative on a node that was over-committed.
    sharers, sharers_leaving
        (N, D) pods that share each device, and those of them that are leaving. Each shared device has a reservation
        pod, which no snapshot shows: its slot is in ``held``, and in ``releasing`` where all sharers leave (reference
        3.11).
    pods
        Pods of gangs in gang order (by key), then foreign pods; index is the pod's identity everywhere below.
    charges, least_charges
        By pod: what its queue pays where it runs (a waiting request by GPU memory: on the smallest devices, as fair
        share counts it), and the least that it pays anywhere (on the largest: for limits and bounds; reference 3.11).
    seats
        Devices held, by pod index.
    queues
        Leaf and inner queues; ``allocated`` and ``allocated_fixed`` (non-preemptible) are (Q, 3), rolled up.
    share, allocatable
        (Q, 3) fair share and allocatable share; fixed within the cycle as in KAI.
    gangs
        Gangs of known leaf queues. ``outside``: the others (set aside, unknown queue, not a leaf), with the reason.
    zones
        NUMA zones; None where no node has any that count.
    """

    snapshot: Snapshot
    nodes: tuple[Node, ...]
    node_index: dict[str, int]
    capacity: IntArray
    held: IntArray
    releasing: IntArray
    gpus: IntArray
    device_free: IntArray
    device_releasing: IntArray
    sharers: IntArray
    sharers_leaving: IntArray
    min_gpu_memory_mib: int
    shapes: ShapeTable
    predicates: NodePredicates
    pods: tuple[Pod, ...]
    pod_shape: list[int]
    pod_gang: list[int]
    pod_node: list[int]
    charges: list[Charge]
    least_charges: list[Charge]
    seats: dict[int, tuple[int, ...]]
    queues: QueueTree
    total: tuple[int, int, int]
    request: IntArray
    allocated: list[list[int]]
    allocated_fixed: list[list[int]]
    share: list[list[int]]
    allocatable: list[list[int]]
    gangs: tuple[GangShape, ...]
    outside: dict[str, tuple[Gang, str]]
    domains: dict[str, DomainTree] = field(default_factory=dict)
    zones: ZoneTable | None = None

    @property
    def policy(self) -> Policy:
        """What the cluster's owner decided."""
        return self.snapshot.policy


def build_problem(snapshot: Snapshot) -> Problem:
    """Prepare ``snapshot``. Cost: about 10 µs a pod.

    Everything is sorted by name first: the order in which objects arrive changes nothing.
    """
    nodes = tuple(sorted(snapshot.nodes, key=lambda node: node.name))
    node_index = {node.name: i for i, node in enumerate(nodes)}
    tree = QueueTree.from_queues(sorted(snapshot.queues, key=lambda queue: queue.name), snapshot.policy)
    table = _PodTable(snapshot, nodes, node_index, tree)
    occupancy = _Occupancy(snapshot, nodes, table)
    if table.shapes.zones is not None:
        table.shapes.zones.occupy(table.pods, table.pod_node)
    total = _total(snapshot, nodes, table)
    allocated, fixed, request = _queue_loads(tree, table)
    share = fair_share(tree, total, request, snapshot.policy.k_value)
    return Problem(
        snapshot=snapshot,
        nodes=nodes,
        node_index=node_index,
        capacity=occupancy.capacity,
        held=occupancy.held,
        releasing=occupancy.releasing,
        gpus=np.array([usable_devices(node) for node in nodes], dtype=np.int64),
        device_free=occupancy.device_free,
        device_releasing=occupancy.device_releasing,
        sharers=occupancy.sharers,
        sharers_leaving=occupancy.sharers_leaving,
        min_gpu_memory_mib=table.min_gpu_memory_mib,
        shapes=table.shapes,
        predicates=table.predicates,
        pods=tuple(table.pods),
        pod_shape=table.pod_shape,
        pod_gang=table.pod_gang,
        pod_node=table.pod_node,
        charges=table.charges,
        least_charges=table.least_charges,
        seats=occupancy.seats,
        queues=tree,
        total=total,
        request=request,
        allocated=allocated.tolist(),
        allocated_fixed=fixed.tolist(),
        share=share.tolist(),
        allocatable=allocatable_share(tree, share).tolist(),
        gangs=tuple(table.gangs),
        outside=table.outside,
        domains={t.name: DomainTree.from_nodes(t, nodes) for t in snapshot.topologies},
        zones=table.shapes.zones,
    )


class _PodTable:
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


def usable_devices(node: Node) -> int:
    """Devices that may be had: those of a node in MIG mode ``mixed`` may not (reference 1.5)."""
    return min(node.gpus, node.allocatable[GPU] // MILLI)


def charge(pod: Pod, gpu_memory_mib: int) -> Charge:
    """What the pod's queue pays on a node whose devices have ``gpu_memory_mib`` (reference 3.1, 3.11)."""
    gpu = pod.gpu
    milli = gpu.devices * gpu.milli_on(gpu_memory_mib) if gpu.devices else 0
    return (min(pod.request[CPU], BEYOND), min(pod.request[MEMORY], BEYOND), milli + pod.quota_gpu_milli)


def _queue_trouble(gang: Gang, tree: QueueTree) -> str:
    queue = tree.index.get(gang.queue)
    if queue is None:
        dropped = tree.dropped.get(gang.queue)
        return dropped or f"Queue '{gang.queue}' does not exist"
    if not tree.is_leaf[queue]:
        return f"Queue '{gang.queue}' is not a leaf queue: only queues without children hold workloads"
    return ""


class _Occupancy:
    """What pods hold on every node."""

    def __init__(self, snapshot: Snapshot, nodes: tuple[Node, ...], table: _PodTable) -> None:
        size, count = snapshot.schema.size, len(nodes)
        width = max((node.gpus for node in nodes), default=0)
        self.capacity = np.array([n.allocatable for n in nodes], dtype=np.int64).reshape(count, size).T.copy()
        self.capacity[GPU] = 0
        self.held = np.zeros((size, count), dtype=np.int64)
        self.releasing = np.zeros((size, count), dtype=np.int64)
        self.device_free = np.zeros((count, width), dtype=np.int64)
        self.device_releasing = np.zeros((count, width), dtype=np.int64)
        self.sharers = np.zeros((count, width), dtype=np.int64)
        self.sharers_leaving = np.zeros((count, width), dtype=np.int64)
        self.seats: dict[int, tuple[int, ...]] = {}
        by_node: dict[int, list[int]] = {}
        for index, pod in enumerate(table.pods):
            if table.pod_node[index] >= 0 and pod.status.holds_resources:
                by_node.setdefault(table.pod_node[index], []).append(index)
        for node, node_pods in by_node.items():
            self._fill(node, nodes[node], [(i, table.pods[i]) for i in node_pods])
        for node in range(count):
            if node not in by_node:
                self.device_free[node, : nodes[node].gpus] = MILLI
            withheld = self.device_free[node, usable_devices(nodes[node]) : nodes[node].gpus]
            np.minimum(withheld, 0, out=withheld)

    def _fill(self, index: int, node: Node, pods: list[tuple[int, Pod]]) -> None:
        requests = np.array([pod.request for _, pod in pods], dtype=np.int64)
        requests[:, GPU] = 0
        leaving = np.array([pod.status is PodStatus.RELEASING for _, pod in pods])
        self.held[:, index] = requests.sum(axis=0)
        self.releasing[:, index] = requests[leaving].sum(axis=0)
        seats, free = seat_running(node, pods)
        self.device_free[index, : node.gpus] = free
        for (pod_index, pod), left in zip(pods, leaving, strict=True):
            milli = pod.gpu.milli_on(node.gpu_memory_mib) if left else 0
            for device in seats.get(pod_index, ()):
                self.device_releasing[index, device] += milli
                self.sharers[index, device] += pod.gpu.is_shared
                self.sharers_leaving[index, device] += pod.gpu.is_shared and left
        self._reserve(index)
        self.seats.update({i: seat for i, seat in seats.items() if seat})

    def _reserve(self, node: int) -> None:
        """Count the reservation pods: one for each shared device, gone when its last sharer is."""
        shared = self.sharers[node] > 0
        self.held[PODS, node] += np.count_nonzero(shared)
        self.releasing[PODS, node] += np.count_nonzero(shared & (self.sharers[node] == self.sharers_leaving[node]))


def _total(snapshot: Snapshot, nodes: tuple[Node, ...], table: _PodTable) -> tuple[int, int, int]:
    """What fair share divides: schedulable nodes, less what other schedulers' pods hold there (reference 3.1)."""
    usable = {i for i, node in enumerate(nodes) if node.schedulable}
    cpu = sum(nodes[i].allocatable[CPU] for i in usable)
    memory = sum(nodes[i].allocatable[MEMORY] for i in usable)
    gpu = sum(counted_gpu_milli(nodes[i], snapshot.schema, snapshot.policy) for i in usable)
    first_foreign = len(table.pods) - len(snapshot.foreign)
    for index in range(first_foreign, len(table.pods)):
        if table.pod_node[index] in usable and table.pods[index].status.holds_resources:
            c = table.charges[index]
            cpu, memory, gpu = cpu - c[0], memory - c[1], gpu - c[2]
    return (max(0, cpu), max(0, memory), max(0, gpu))


def _queue_loads(tree: QueueTree, table: _PodTable) -> tuple[IntArray, IntArray, IntArray]:
    """(Q, 3) allocated, allocated by non-preemptible gangs, and requested; every ancestor holds its descendants'.

    Summed as Python integers: pods may ask for more than 64 bits hold in all.
    """
    size = len(tree.names)
    allocated, fixed, request = ([[0, 0, 0] for _ in range(size)] for _ in range(3))
    for queue, preemptible, pods in table.paying:
        active = _sum(table, [p for p in pods if table.pods[p].status.is_active])
        waiting = _sum(table, [p for p in pods if table.pods[p].status is PodStatus.PENDING])
        for ancestor in tree.path[queue]:
            for r in range(3):
                allocated[ancestor][r] += active[r]
                fixed[ancestor][r] += 0 if preemptible else active[r]
                request[ancestor][r] += active[r] + waiting[r]
    return _array(allocated), _array(fixed), _array(request)


def _sum(table: _PodTable, pods: list[int]) -> Charge:
    charges = [table.charges[p] for p in pods]
    return (sum(c[0] for c in charges), sum(c[1] for c in charges), sum(c[2] for c in charges))


def _array(rows: list[list[int]]) -> IntArray:
    """(Q, 3); what is beyond every cluster is all the same."""
    return np.array([[min(amount, BEYOND * 64) for amount in row] for row in rows], dtype=np.int64).reshape(-1, 3)
