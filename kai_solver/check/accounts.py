"""What every queue holds before and after a plan, counted by the checker itself."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kai_solver.check.columns import Counts, Kinds
from kai_solver.check.parts import charged_on
from kai_solver.check.scene import Scene
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


Sums = Mapping[tuple[str, bool, Amount], int]
"""Pods by leaf, by whether they are preemptible, and by what is paid for each."""


class Bills:
    """What is paid for each pod that the plan touches: the same for pods of one kind, unless they ask for GPU memory.

    Attributes
    ----------
    bound
        Of all pods that are bound.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._by_memory = bool(scene.kinds.flags(lambda gpu: gpu.memory_mib).any())
        self._prices = [paid(pod, None) for pod in scene.kinds.pods]
        self._arriving = self._at_targets()
        self.bound: Sums = _summed_up(scene, scene.plan.binds, self._arriving[: len(scene.plan.binds)])

    @cached_property
    def come(self) -> dict[str, Amount]:
        """By key of a pod that gets a place: what is paid for it there."""
        return {arrival.pod.key: price for arrival, price in zip(self._scene.come, self._arriving, strict=True)}

    @cached_property
    def asked(self) -> dict[str, Amount]:
        """The same as on the smallest devices: rights are tested with it."""
        if not self._by_memory:
            return self.come
        smallest = smallest_devices(self._scene)
        return {arrival.pod.key: paid(arrival.pod, smallest) for arrival in self._scene.come}

    @cached_property
    def gone(self) -> dict[str, Amount]:
        """By key of a pod that leaves its place: what was paid for it there."""
        scene, leaving = self._scene, np.flatnonzero(~self._scene.held.end)
        pods = [scene.held.pods[place] for place in leaving.tolist()]
        if self._by_memory:
            return {pod.key: paid(pod, scene.nodes[pod.node]) for pod in pods}
        kinds = scene.held.kinds[leaving].tolist()
        return {pod.key: self._prices[kind] for pod, kind in zip(pods, kinds, strict=True)}

    def _at_targets(self) -> list[Amount]:
        """What is paid for each of ``Scene.come``."""
        if self._by_memory:
            return [paid(arrival.pod, arrival.node) for arrival in self._scene.come]
        return [self._prices[kind] for kind in self._scene.got.kinds.tolist()]

    def sums(self, entries: Entries, prices: Mapping[str, Amount]) -> Sums:
        """Of the pods of ``entries``, for each of which ``prices`` says what is paid."""
        return _summed_up(self._scene, entries, [prices[entry.pod] for entry in entries])


def _summed_up(scene: Scene, entries: Entries, prices: Sequence[Amount]) -> Sums:
    gangs = [scene.gangs[entry.gang] for entry in entries]
    return Counter([(gang.queue, gang.preemptible, price) for gang, price in zip(gangs, prices, strict=True)])


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


def book_sums(ledger: Ledger, sums: Sums, sign: int = 1) -> None:
    """Book what is paid for pods that come, or (``sign`` -1) that go."""
    for (leaf, preemptible, (cpu, memory, gpu)), count in sums.items():
        times = sign * count
        ledger.book(leaf, (times * cpu, times * memory, times * gpu), preemptible=preemptible)


def ledger_after(scene: Scene, before: Ledger, bills: Bills) -> Ledger:
    """Allocated when the plan is done: victims gone, nominated and moved pods in their places."""
    ledger, plan = before.copy(), scene.plan
    book_sums(ledger, bills.bound)
    if plan.moves:
        book_sums(ledger, bills.sums(plan.moves, bills.come))
        book_sums(ledger, bills.sums(plan.moves, bills.gone), -1)
    if plan.evictions:
        book_sums(ledger, bills.sums(plan.evictions, bills.gone), -1)
    return ledger
