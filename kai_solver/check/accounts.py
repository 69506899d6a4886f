"""What every queue holds before and after a plan, counted by the checker itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kai_solver.check.scene import Scene, destination, is_active
from kai_solver.domain import Gang, Node, Pod, Queue, Snapshot
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
    """What a queue pays for the pod on ``node``: CPU, memory, GPUs with MIG slices (reference 3.0)."""
    milli = pod.quota_gpu_milli
    if pod.gpu.devices:
        milli += pod.gpu.devices * pod.gpu.milli_on(0 if node is None else node.gpu_memory_mib)
    return pod.request[CPU], pod.request[MEMORY], milli


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
        """First queues, from the roots down, in which the paths of two leaves differ (reference 3.5)."""
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
        """A ledger that may go its own way."""
        twin = Ledger(self._tree)
        twin.allocated.update(self.allocated)
        twin.fixed.update(self.fixed)
        return twin

    def add(self, gang: Gang, amount: Amount) -> None:
        """Book ``amount`` (negative: give back) for ``gang`` at its leaf and all ancestors."""
        for queue in self._tree.paths.get(gang.queue, ()):
            self.allocated[queue] = plus(self.allocated[queue], amount)
            if not gang.preemptible:
                self.fixed[queue] = plus(self.fixed[queue], amount)

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
    for gang in scene.snapshot.gangs:
        amount = total((pod, nodes.get(pod.node)) for pod in gang.pods if is_active(pod))
        if any(amount):
            ledger.add(gang, amount)
    return ledger


def ledger_after(scene: Scene, before: Ledger) -> Ledger:
    """Allocated when the plan is done: victims gone, nominated and moved pods in their places."""
    ledger = before.copy()
    for change in scene.changes.values():
        left = change.left if change.moves or change.evictions else ()
        gone = total((change.before[key], scene.nodes[change.before[key].node]) for key in left)
        come = total((scene.pods[entry.pod], scene.nodes[destination(entry)]) for entry in change.arrivals)
        ledger.add(change.gang, minus(come, gone))
    return ledger
