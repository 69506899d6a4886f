"""What every queue holds before and after a plan, counted by the checker itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kai_solver.check.columns import Counts, Kinds
from kai_solver.check.parts import charged_on
from kai_solver.check.scene import Change, Scene
from kai_solver.domain import Bind, Eviction, Gang, Move, Node, Pod, Queue, Snapshot
from kai_solver.fairness import QueueTree as Queues
from kai_solver.units import CPU, MEMORY, QUEUE_RESOURCES

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
    request, gpu = pod.request, pod.gpu
    return request[CPU], request[MEMORY], pod.quota_gpu_milli + gpu.devices * charged_on(node, gpu)


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
        """Book ``amount`` for ``gang`` at its leaf and all ancestors."""
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
        self.book(gang.queue, (-amount[0], -amount[1], -amount[2]), preemptible=gang.preemptible)


Entries = Sequence[Bind] | Sequence[Move] | Sequence[Eviction]


def summed(prices: Mapping[str, Amount], entries: Entries) -> Amount:
    """What the pods of ``entries`` pay together, by what each pays."""
    if len(entries) == 1:
        return prices[entries[0].pod]
    cpu = memory = gpu = 0
    for entry in entries:
        amount = prices[entry.pod]
        cpu, memory, gpu = cpu + amount[0], memory + amount[1], gpu + amount[2]
    return cpu, memory, gpu


@dataclass(frozen=True, slots=True)
class Bills:
    """What is paid for each pod that the plan touches, by its key.

    Attributes
    ----------
    come, gone
        For pods that get a place, there; and for those that leave one, where they were.
    asked
        For pods that get a place, as on the smallest devices: rights are tested with it.
    bound
        By gang: for all pods that are bound.
    """

    come: dict[str, Amount]
    gone: dict[str, Amount]
    asked: dict[str, Amount]
    bound: dict[str, Amount]


def write_bills(scene: Scene) -> Bills:
    """Pods of one kind pay the same, unless they ask for GPU memory."""
    prices = [paid(pod, None) for pod in scene.kinds.pods]
    by_memory = scene.kinds.flags(lambda gpu: gpu.memory_mib)
    got, leaving = scene.got.kinds, np.flatnonzero(~scene.held.end)
    come = {a.pod.key: prices[kind] for a, kind in zip(scene.come, got.tolist(), strict=True)}
    lost = [scene.held.pods[place] for place in leaving.tolist()]
    gone = {pod.key: prices[kind] for pod, kind in zip(lost, scene.held.kinds[leaving].tolist(), strict=True)}
    asked = come
    if by_memory.any():
        smallest = smallest_devices(scene)
        asked = {a.pod.key: paid(a.pod, smallest) for a in scene.come}
        come = {a.pod.key: paid(a.pod, a.node) for a in scene.come}
        gone = {pod.key: paid(pod, scene.nodes[pod.node]) for pod in lost}
    bound = {key: summed(come, change.binds) for key, change in scene.changes.items() if change.binds}
    return Bills(come, gone, asked, bound)


def ledger_before(scene: Scene, tree: QueueTree) -> Ledger:
    """Allocated by the active pods of the snapshot."""
    ledger = Ledger(tree)
    book(ledger, scene.census.running, scene.kinds)
    for gang, pod in scene.census.by_memory:
        ledger.add(gang, paid(pod, scene.nodes.get(pod.node)))
    return ledger


def book(ledger: Ledger, counts: Counts, kinds: Kinds, node: Node | None = None) -> None:
    """Book pods counted by kind; requests by GPU memory as on ``node``."""
    prices = [paid(pod, node) for pod in kinds.pods]
    for (leaf, preemptible, kind), count in counts.items():
        cpu, memory, gpu = prices[kind]
        ledger.book(leaf, (cpu * count, memory * count, gpu * count), preemptible=preemptible)


def book_changes(ledger: Ledger, amounts: Iterable[tuple[Gang, Amount]]) -> None:
    """Book what gangs pay more or less."""
    leaves: dict[tuple[str, bool], Amount] = {}
    for gang, amount in amounts:
        leaf = gang.queue, gang.preemptible
        leaves[leaf] = plus(leaves.get(leaf, ZERO), amount)
    for (queue, preemptible), amount in leaves.items():
        ledger.book(queue, amount, preemptible=preemptible)


def ledger_after(scene: Scene, before: Ledger, bills: Bills) -> Ledger:
    """Allocated when the plan is done: victims gone, nominated and moved pods in their places."""
    ledger = before.copy()
    book_changes(ledger, ((change.gang, _more(change, bills)) for change in scene.changes.values()))
    return ledger


def _more(change: Change, bills: Bills) -> Amount:
    """What the gang pays more than before."""
    amount = bills.bound[change.gang.key] if change.binds else ZERO
    if change.evictions:
        amount = minus(amount, summed(bills.gone, change.evictions))
    if change.moves:
        amount = plus(minus(amount, summed(bills.gone, change.moves)), summed(bills.come, change.moves))
    return amount
