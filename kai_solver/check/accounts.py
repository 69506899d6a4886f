"""What every queue holds before and after a plan, counted by the checker itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kai_solver.check.columns import Counts, Kinds
from kai_solver.check.parts import charged_on
from kai_solver.check.scene import Scene
from kai_solver.domain import Eviction, Gang, GpuRequest, Move, Node, Pod, Queue, Snapshot
from kai_solver.fairness import QueueTree as Queues
from kai_solver.units import CPU, MEMORY, QUEUE_RESOURCES, Vector

Amount = tuple[int, int, int]
ZERO: Amount = (0, 0, 0)

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
    return _paid(pod.request, pod.gpu, pod.quota_gpu_milli, node)


def _paid(request: Vector, gpu: GpuRequest, quota_gpu_milli: int, node: Node | None) -> Amount:
    return request[CPU], request[MEMORY], quota_gpu_milli + gpu.devices * charged_on(node, gpu)


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
    book(ledger, scene.census.running, scene.kinds)
    for gang, pod in scene.census.by_memory:
        ledger.add(gang, paid(pod, scene.nodes.get(pod.node)))
    return ledger


def book(ledger: Ledger, counts: Counts, kinds: Kinds, node: Node | None = None) -> None:
    """Book pods counted by kind; requests by GPU memory as on ``node``."""
    asked = zip(kinds.requests, kinds.gpus, kinds.quota_gpu_milli, strict=True)
    prices = [_paid(request, gpu, quota, node) for request, gpu, quota in asked]
    for (leaf, preemptible, kind), count in counts.items():
        cpu, memory, gpu_milli = prices[kind]
        ledger.book(leaf, (cpu * count, memory * count, gpu_milli * count), preemptible=preemptible)


def ledger_after(scene: Scene, before: Ledger) -> Ledger:
    """Allocated when the plan is done: victims gone, nominated and moved pods in their places."""
    ledger = before.copy()
    for entry, pod, node, _ in scene.come:
        ledger.add(scene.changes[entry.gang].gang, paid(pod, node))
    leaving: list[Eviction | Move] = [*scene.plan.evictions, *scene.plan.moves]
    for gone in leaving:
        pod = scene.pods[gone.pod]
        ledger.remove(scene.changes[gone.gang].gang, paid(pod, scene.nodes[pod.node]))
    return ledger
