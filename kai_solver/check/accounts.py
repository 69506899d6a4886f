"""What every queue holds before and after a plan, counted by the checker itself."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kai_solver.check.parts import charged_on
from kai_solver.check.scene import Scene
from kai_solver.domain import Eviction, Gang, Move, Node, Pod, Queue, Snapshot
from kai_solver.fairness import QueueTree as Queues
from kai_solver.units import CPU, MEMORY, QUEUE_RESOURCES

Amount = tuple[int, int, int]
ZERO: Amount = (0, 0, 0)

Counts = dict[tuple[str, bool, Amount], int]
"""Pods by leaf, by whether they are preemptible, and by what each pays."""

RESOURCES = range(len(QUEUE_RESOURCES))


def plus(left: Amount, right: Amount) -> Amount:
    """Sum by resource."""
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]


def minus(left: Amount, right: Amount) -> Amount:
    """Difference by resource."""
    return left[0] - right[0], left[1] - right[1], left[2] - right[2]


def paid(pod: Pod, node: Node | None) -> Amount:
    """What a queue pays for the pod on ``node``: CPU, memory, GPUs with MIG slices.

    Source: docs/kai-behaviour.md#accounting.
    """
    milli, gpu, request = pod.quota_gpu_milli, pod.gpu, pod.request
    milli += gpu.devices * charged_on(node, gpu)
    return request[CPU], request[MEMORY], milli


def smallest_devices(scene: Scene) -> Node | None:
    """A node whose GPUs have the least memory: as there count requests by memory without a place.

    Source: docs/kai-behaviour.md#fractions.
    """
    nodes = [node for node in scene.snapshot.nodes if node.gpus and node.gpu_memory_mib]
    return min(nodes, key=lambda node: node.gpu_memory_mib, default=None)


@dataclass(frozen=True, slots=True)
class QueueTree:
    """Queues that can hold gangs, and the way from each to its root.

    Attributes
    ----------
    paths
        Of each leaf, from the leaf to its root. Queues whose ancestors are missing or loop are left out.
    """

    queues: Mapping[str, Queue]
    paths: Mapping[str, tuple[str, ...]]

    def are_siblings(self, one: str, other: str) -> bool:
        """True for two queues of one parent."""
        return one != other and self.queues[one].parent == self.queues[other].parent

    def levelled(self, first: str, second: str) -> tuple[str, str]:
        """First queues, from the roots down, in which the paths of two leaves differ.

        Source: docs/kai-behaviour.md#reclaim-victims.
        """
        down = list(zip(reversed(self.paths[first]), reversed(self.paths[second]), strict=False))
        for one, other in down:
            if one != other:
                return one, other
        return down[-1]


def grow_tree(snapshot: Snapshot) -> QueueTree:
    """The queue tree as the policy sees it (flat without ``full_hierarchy``)."""
    tree = Queues.from_queues(snapshot.queues, snapshot.policy)
    paths = {
        name: tuple(tree.names[above] for above in path)
        for name, path, is_leaf in zip(tree.names, tree.path, tree.is_leaf, strict=True)
        if is_leaf
    }
    return QueueTree(dict(zip(tree.names, tree.queues, strict=True)), paths)


class Ledger:
    """Allocated amounts per queue, all gangs and non-preemptible ones, summed into every ancestor."""

    def __init__(self, tree: QueueTree) -> None:
        self._tree = tree
        self.allocated: dict[str, Amount] = dict.fromkeys(tree.queues, ZERO)
        self.fixed: dict[str, Amount] = dict.fromkeys(tree.queues, ZERO)

    def copy(self) -> "Ledger":
        """An independent copy."""
        copied = Ledger(self._tree)
        copied.allocated.update(self.allocated)
        copied.fixed.update(self.fixed)
        return copied

    def add(self, gang: Gang, amount: Amount) -> None:
        """Book ``amount`` (negative: give back) for ``gang`` at its leaf and all ancestors."""
        self.book(gang.queue, amount, preemptible=gang.preemptible)

    def book(self, leaf: str, amount: Amount, *, preemptible: bool) -> None:
        """Book ``amount`` at the queue ``leaf`` and all ancestors; nowhere where it takes no part."""
        allocated, fixed = self.allocated, self.fixed
        for queue in self._tree.paths.get(leaf, ()):
            cpu, memory, gpu = allocated[queue]
            allocated[queue] = cpu + amount[0], memory + amount[1], gpu + amount[2]
            if not preemptible:
                fixed[queue] = plus(fixed[queue], amount)

    def remove(self, gang: Gang, amount: Amount) -> None:
        """Give ``amount`` back."""
        self.add(gang, minus(ZERO, amount))


def total(pods: Iterable[tuple[Pod, Node | None]]) -> Amount:
    """What the pods pay together."""
    cpu = memory = gpu = 0
    for pod, node in pods:
        amount = paid(pod, node)
        cpu, memory, gpu = cpu + amount[0], memory + amount[1], gpu + amount[2]
    return cpu, memory, gpu


def ledger_before(scene: Scene, tree: QueueTree) -> Ledger:
    """Allocated by the active pods of the snapshot."""
    ledger = Ledger(tree)
    nodes = scene.nodes
    counts: Counts = {}
    for gang in scene.snapshot.gangs:
        count_paid(counts, gang, [pod for pod in gang.pods if pod.status.is_active], lambda pod: nodes.get(pod.node))
    book(ledger, counts)
    return ledger


def count_paid(counts: Counts, gang: Gang, pods: Sequence[Pod], node_of: Callable[[Pod], Node | None]) -> None:
    """Count ``pods`` of ``gang`` by what each pays on its node; those that share what they ask for pay the same."""
    before, number = None, 0
    for pod in pods:
        if before is not None:
            if _pays_the_same(pod, before):
                number += 1
                continue
            _count(counts, gang, paid(before, node_of(before)), number)
        before, number = pod, 1
    if before is not None:
        _count(counts, gang, paid(before, node_of(before)), number)


def _pays_the_same(pod: Pod, other: Pod) -> bool:
    return (
        pod.request is other.request
        and pod.gpu is other.gpu
        and pod.quota_gpu_milli == other.quota_gpu_milli
        and (not pod.gpu.memory_mib or pod.node == other.node)
    )


def _count(counts: Counts, gang: Gang, amount: Amount, number: int) -> None:
    key = gang.queue, gang.preemptible, amount
    counts[key] = counts.get(key, 0) + number


def book(ledger: Ledger, counts: Counts) -> None:
    """Book pods counted by leaf, by whether they are preemptible, and by what each pays."""
    for (leaf, preemptible, (cpu, memory, gpu)), count in counts.items():
        ledger.book(leaf, (cpu * count, memory * count, gpu * count), preemptible=preemptible)


def ledger_after(scene: Scene, before: Ledger) -> Ledger:
    """Allocated when the plan is done: victims gone, nominated and moved pods in their places."""
    ledger = before.copy()
    counts: Counts = {}
    for entry, pod, node, _ in scene.come:
        _count(counts, scene.changes[entry.gang].gang, paid(pod, node), +1)
    leaving: list[Eviction | Move] = [*scene.plan.evictions, *scene.plan.moves]
    for gone in leaving:
        pod = scene.pods[gone.pod]
        _count(counts, scene.changes[gone.gang].gang, paid(pod, scene.nodes[pod.node]), -1)
    book(ledger, counts)
    return ledger
