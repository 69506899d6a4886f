"""The problem of one cycle: the snapshot in integers and arrays, built once, never changed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Gang, Node, Pod, Policy, Snapshot
from kai_solver.fairness import QueueTree, ReclaimRight, allocatable_share, fair_share
from kai_solver.leftover import Outlook
from kai_solver.predicates import NodePredicates
from kai_solver.problem.charges import BEYOND, Charge
from kai_solver.problem.columns import PodColumns
from kai_solver.problem.fabric import Fabric, fabric_of
from kai_solver.problem.gang_columns import GangColumns, GangShapes
from kai_solver.problem.memo import Memo
from kai_solver.problem.node_table import NodeTable
from kai_solver.problem.podtable import PodTable
from kai_solver.problem.rules import Leaver, RuleFacts, prepared
from kai_solver.problem.shapes import ShapeTable
from kai_solver.topology import DomainTree

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


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
        (N, D) free parts per device (`units.shares`), and parts held by pods that are leaving; 0 beyond a node's
        devices. Free may be negative on a node that was over-committed.
    sharers, sharers_leaving
        (N, D) pods that share each device, and those of them that are leaving. Each shared device has a reservation
        pod, which no snapshot shows: its slot is in ``held``, and in ``releasing`` where all sharers leave
        (docs/kai-behaviour.md#fractions).
    pods
        Pods of gangs in gang order (by key), then foreign pods; index is the pod's identity everywhere below.
    columns
        The same of all pods as arrays.
    charges, least_charges
        By pod: what its queue pays where it runs (a waiting request by GPU memory: on the smallest devices, as fair
        share counts it), and the least that it pays anywhere (on the largest: for limits and bounds;
        docs/kai-behaviour.md#fractions).
    seats
        Devices held, by pod index.
    queues
        Leaf and inner queues; ``allocated`` and ``allocated_fixed`` (non-preemptible) are (Q, 3), rolled up.
    share, allocatable
        (Q, 3) fair share and allocatable share; fixed within the cycle as in KAI.
    gangs
        Gangs of known leaf queues; ``gang_columns``: what they are, as arrays. ``outside``: the others (set aside,
        unknown queue, not a leaf), with the reason.
    outlook
        What is left over is worth so much; None where the model packs and spreads by what is free.
    devices
        (N,) devices, those that may not be had among them.
    devices_known
        (N,) whether it is known which devices are held (``held_devices`` are what pods have, and not only as many), and
        all may be had.
    fabric
        Links between GPUs; None where they make no difference on any node.
    ruled, related
        Pods that carry a rule between pods, or that such a rule is about; the same of rules and wishes. For the others
        it makes no difference which pods are where.
    counted, outward
        Of the related ones, those of which rules and wishes count how many are where, which host ports do not; and
        those that are not only so by wishes of their own gang's pods for each other.
    rules
        Optional rules that some object of this cycle uses; most clusters have none.
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
    columns: PodColumns
    charges: list[Charge]
    least_charges: list[Charge]
    held_devices: dict[int, tuple[int, ...]]
    queues: QueueTree
    total: tuple[int, int, int]
    request: IntArray
    allocated: list[list[int]]
    allocated_fixed: list[list[int]]
    share: list[list[int]]
    allocatable: list[list[int]]
    gangs: GangShapes
    gang_columns: GangColumns
    outside: dict[str, tuple[Gang, str]]
    domains: dict[str, DomainTree] = field(default_factory=dict)
    outlook: Outlook | None = None
    devices: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    devices_known: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    fabric: Fabric | None = None
    ruled: frozenset[int] = frozenset()
    related: frozenset[int] = frozenset()
    counted: frozenset[int] = frozenset()
    outward: frozenset[int] = frozenset()
    rules: tuple[RuleFacts, ...] = ()

    @property
    def policy(self) -> Policy:
        """What the cluster's owner decided."""
        return self.snapshot.policy

    def reclaim_right(self, allocated: Sequence[Sequence[int]], leaf: int, request: Charge) -> ReclaimRight:
        """The right of a gang of ``leaf`` to reclaim ``request`` when the queues hold ``allocated`` (Q, 3)."""
        tables = self.queues, self.share, self.allocatable, allocated
        return ReclaimRight(*tables, leaf, request, self.policy.saturation_multiplier)

    @property
    def room(self) -> tuple[IntArray, IntArray]:
        """(R, N) and (N, D) free once those that are leaving have left."""
        return self.capacity - self.held + self.releasing, self.device_free + self.device_releasing

    @property
    def drained(self) -> frozenset[int]:
        """Gangs whose running pods an optional rule evicts."""
        return frozenset[int]().union(*(rule.drained for rule in self.rules))

    @property
    def leavers(self) -> list[Leaver]:
        """Running pods that optional rules want elsewhere."""
        return [leaver for rule in self.rules for leaver in rule.leavers(self)]

    @property
    def without_queue(self) -> Iterator[tuple[Gang, str]]:
        """Gangs with active pods whose queue takes no part, because it was deleted or now has children, and why."""
        for gang, why in self.outside.values():
            if not gang.set_aside and any(pod.status.is_active for pod in gang.pods):
                yield gang, why

    def modelled_shape(self, pod: int) -> int:
        """The shape that stands for that of ``pod`` in the model, which knows no preferences for nodes or other pods.

        On 1,000 nodes where every tenth gang prefers company, the model has 8 shapes so, and had 93 (2026-11-28).
        """
        return self.shapes.without_wishes(self.pod_shape[pod])

    def by_shape(self, pods: Iterable[int]) -> Counter[int]:
        """How many of ``pods`` each shape has, preferences aside (`modelled_shape`)."""
        found: Counter[int] = Counter()
        for shape, count in Counter([self.pod_shape[pod] for pod in pods]).items():
            found[self.shapes.without_wishes(shape)] += count
        return found


def build_problem(snapshot: Snapshot, memo: Memo | None = None) -> Problem:
    """Prepare ``snapshot``, sorted by name first: the order in which objects arrive changes nothing.

    What did not change since an earlier problem of the same cluster, which ``memo`` knows, is not worked out again.
    """
    memo = memo or Memo()
    snapshot = memo.ruled(memo.moved(snapshot))
    node_table, tree, kinds = memo.node_table(snapshot), memo.tree(snapshot), memo.kinds(snapshot)
    known_pods, occupancy = memo.tenants(snapshot, node_table, kinds)
    table = PodTable(snapshot, known_pods, kinds, node_table, tree)
    held, releasing = occupancy.held_with_reservations()
    device_free, device_releasing = occupancy.devices_to_be_had()
    devices_known = occupancy.devices_known & (node_table.gpus == node_table.usable)
    total = _total(snapshot, node_table, table)
    allocated, fixed, request = _queue_loads(tree, table)
    share = fair_share(tree, total, request, snapshot.policy.k_value)
    held_devices = known_pods.held_devices()
    problem = Problem(
        snapshot=snapshot,
        nodes=node_table.nodes,
        node_index=node_table.index,
        capacity=node_table.capacity,
        held=held,
        releasing=releasing,
        gpus=node_table.usable,
        device_free=device_free,
        device_releasing=device_releasing,
        sharers=occupancy.sharers.copy(),
        sharers_leaving=occupancy.sharers_leaving.copy(),
        min_gpu_memory_mib=node_table.min_memory_mib,
        shapes=table.shapes,
        predicates=node_table.predicates,
        pods=table.pods,
        pod_shape=table.pod_shape,
        pod_gang=table.pod_gang,
        pod_node=table.pod_node,
        columns=PodColumns(table, known_pods, held_devices),
        charges=table.charges,
        least_charges=table.least_charges,
        held_devices=held_devices,
        queues=tree,
        total=total,
        request=request,
        allocated=allocated.tolist(),
        allocated_fixed=fixed.tolist(),
        share=share.tolist(),
        allocatable=allocatable_share(tree, share).tolist(),
        gangs=table.gangs,
        gang_columns=table.gang_columns,
        outside=table.outside,
        domains=node_table.domains,
        devices=node_table.gpus,
        devices_known=devices_known,
        fabric=fabric_of(memo.graphs(snapshot, node_table), devices_known),
        ruled=table.ruled,
        related=table.related,
        counted=table.counted,
        outward=table.outward,
    )
    rules = prepared(problem)
    memo.problem = replace(problem, rules=rules) if rules else problem
    return memo.problem


def _total(snapshot: Snapshot, node_table: NodeTable, table: PodTable) -> tuple[int, int, int]:
    """What fair share divides: schedulable nodes, less what other schedulers' pods hold there.

    Source: docs/kai-behaviour.md#fair-share.
    """
    cpu, memory, gpu = node_table.offered
    first_foreign = len(table.pods) - len(snapshot.foreign)
    for index in range(first_foreign, len(table.pods)):
        node = table.pod_node[index]
        if node >= 0 and node_table.nodes[node].schedulable and table.pods[index].status.holds_resources:
            c = table.charges[index]
            cpu, memory, gpu = cpu - c[0], memory - c[1], gpu - c[2]
    return (max(0, cpu), max(0, memory), max(0, gpu))


def _queue_loads(tree: QueueTree, table: PodTable) -> tuple[IntArray, IntArray, IntArray]:
    """(Q, 3) allocated, allocated by non-preemptible gangs, and requested; every ancestor holds its descendants'.

    Summed as Python integers: pods may ask for more than 64 bits hold in all.
    """
    allocated, fixed, request = ([[0, 0, 0] for _ in tree.names] for _ in range(3))
    for (queue, preemptible, is_active, charge), count in table.loads():
        ledgers = [request]
        if is_active:
            ledgers += [allocated] if preemptible else [allocated, fixed]
        for ledger in ledgers:
            own = ledger[queue]
            for r in range(3):
                own[r] += charge[r] * count
    for ledger in (allocated, fixed, request):
        _roll_up(tree, ledger)
    return _array(allocated), _array(fixed), _array(request)


def _roll_up(tree: QueueTree, ledger: list[list[int]]) -> None:
    """Add what every leaf has to all queues above it."""
    for queue, path in enumerate(tree.path):
        if tree.is_leaf[queue]:
            for above in path[1:]:
                for r in range(3):
                    ledger[above][r] += ledger[queue][r]


def _array(rows: list[list[int]]) -> IntArray:
    """(Q, 3); what is beyond every cluster is all the same."""
    return np.array([[min(amount, BEYOND * 64) for amount in row] for row in rows], dtype=np.int64).reshape(-1, 3)
