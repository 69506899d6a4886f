"""Which nodes of a case are the same node under another name.

Which of several equal nodes is taken does not matter. Two nodes are equal when they have the same capacity and labels
and the same load of pods that stayed where they were, that is the same free vector once the plan's victims are gone.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

from kai_solver.domain import Node, Pod, Snapshot
from kai_solver.lab.conformance.states import States

IDENTITY_LABELS = frozenset({"kubernetes.io/hostname", "kai.scheduler/type", "metadata.name"})
"""Labels that only repeat the node's name."""


class NodeNames:
    """A renaming of nodes, grown while expectations are compared: expected name to the name in our outcome.

    A name once given holds for the rest of the comparison, in both directions, so that tasks expected on one node may
    not be found on two.
    """

    def __init__(self, classes: Mapping[str, object]) -> None:
        self._class = classes
        self._ours: dict[str, str] = {}
        self._theirs: dict[str, str] = {}

    def pin(self, node: str) -> None:
        """Let ``node`` stand for itself: a case that is about this very node."""
        self.same(node, node)

    def same(self, expected: str, actual: str) -> bool:
        """True where ``actual`` may be what the case calls ``expected``; then it is so from now on."""
        if expected not in self._class or actual not in self._class:
            return False
        if self._class[expected] != self._class[actual]:
            return False
        if self._ours.get(expected, actual) != actual or self._theirs.get(actual, expected) != expected:
            return False
        self._ours[expected], self._theirs[actual] = actual, expected
        return True

    def ours(self, expected: str) -> str:
        """The name in our outcome of what the case calls ``expected``."""
        return self._ours.get(expected, expected)


def node_classes(before: Snapshot, after: States) -> dict[str, object]:
    """Class of every node; equal nodes have equal classes.

    Parameters
    ----------
    before
        The cluster at the start of the case.
    after
        States on which the expectation is judged: a pod that is not where it was no longer counts as load.
    """
    stayed: dict[str, Counter[object]] = defaultdict(Counter)
    for pod in (pod for gang in before.gangs for pod in gang.pods):
        state = after[pod.key]
        if pod.node and state.node == pod.node and state.status == pod.status.value:
            stayed[pod.node][_load(pod)] += 1
    for pod in before.foreign:
        stayed[pod.node][_load(pod)] += 1
    named = _named_nodes(before)
    return {
        node.name: (_capacity(node), frozenset(stayed[node.name].items()), node.name if node.name in named else "")
        for node in before.nodes
    }


def _capacity(node: Node) -> object:
    labels = frozenset((k, v) for k, v in node.labels.items() if k not in IDENTITY_LABELS)
    return (node.allocatable, node.gpus, node.gpu_memory_mib, labels, node.taints, node.schedulable, node.numa)


def _load(pod: Pod) -> object:
    return (pod.request, pod.gpu, pod.status, pod.devices if pod.gpu.is_shared else (), pod.zones)


def _named_nodes(snapshot: Snapshot) -> set[str]:
    """Nodes that some pod asks for by name: they are not interchangeable."""
    names = {node.name for node in snapshot.nodes}
    return {
        value
        for gang in snapshot.gangs
        for pod in gang.pods
        for terms in pod.constraints.node_terms
        for term in terms
        for requirement in term
        for value in requirement.values
        if value in names
    }
