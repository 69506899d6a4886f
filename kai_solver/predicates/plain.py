"""The same rules once more, one pod and one node at a time: for the independent checker of plans.

Written without the arrays of ``nodes`` and of `kai_solver.rules.pod_relations`, so that a fault there is not repeated
here; the meaning of a single expression (``matching``) is shared.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from kai_solver.domain import Constraints, Node, NodeTerm, Pod, PodAffinityTerm, SpreadConstraint, Taint
from kai_solver.predicates.matching import labels_match, port_number, ports_clash, tolerated, value_matches
from kai_solver.predicates.nodes import AFFINITY_MISMATCH, CLUSTER_KEY, UNSCHEDULABLE, label_value, taint_message


class Placed(NamedTuple):
    """A pod and the node that holds it."""

    pod: Pod
    node: Node


def fits_node(pod: Pod, node: Node) -> str | None:
    """Why ``node`` may not take ``pod`` as a new pod, capacity and other pods aside; None where it may."""
    if pod.constraints.blocked:
        return pod.constraints.blocked[0]
    if not node.schedulable:
        return UNSCHEDULABLE
    taint = _untolerated(pod, node)
    if taint is not None:
        return taint_message(taint)
    return None if _admits(pod, node) else AFFINITY_MISMATCH


def _untolerated(pod: Pod, node: Node) -> Taint | None:
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not tolerated(taint, pod.constraints.tolerations):
            return taint
    return None


def _admits(pod: Pod, node: Node) -> bool:
    return all(any(_holds(term, node) for term in terms) for terms in pod.constraints.node_terms)


def _holds(term: NodeTerm, node: Node) -> bool:
    return bool(term) and all(value_matches(requirement, label_value(node, requirement.key)) for requirement in term)


class SpreadDomains:
    """Which nodes count for a spread rule, and as which domain; asked once for every rule.

    ``placed``: all placed pods, if many of them are asked about; matching ones are counted once per rule, not once per
    pod.
    """

    def __init__(self, nodes: Sequence[Node], placed: Iterable[Placed] | None = None) -> None:
        self._nodes = tuple(nodes)
        self._placed = None if placed is None else tuple(placed)
        self._node_of = {placed.pod.key: placed.node.name for placed in self._placed or ()}
        self._held: dict[tuple[int, int, str], tuple[Constraints, dict[str, int]]] = {}
        self._known: dict[tuple[int, int], tuple[Constraints, dict[str, str]]] = {}
        self._bearing: dict[int, tuple[Constraints, tuple[Node, ...]]] = {}

    def of(self, pod: Pod, position: int) -> dict[str, str]:
        """Domain by node, for the rule at ``position`` of the pod's spread rules."""
        key = id(pod.constraints), position
        if key not in self._known:
            spread = pod.constraints.spread[position]
            bearing = self._bears_all(pod.constraints)
            found = {n.name: label_value(n, spread.topology_key) for n in bearing if _counts_for(pod, spread, n)}
            self._known[key] = pod.constraints, {name: value for name, value in found.items() if value is not None}
        return self._known[key][1]

    def held(self, pod: Pod, position: int, others: Iterable[Placed]) -> dict[str, int]:
        """Pods by domain that the rule counts, ``pod`` itself left out: of the placed, else of ``others``."""
        domain_of = self.of(pod, position)
        if self._placed is None:
            return _counted(pod, position, others, domain_of)
        key = id(pod.constraints), position, pod.namespace
        if key not in self._held:
            self._held[key] = pod.constraints, _counted(pod, position, self._placed, domain_of)
        held, home = self._held[key][1], self._node_of.get(pod.key, "")
        if home not in domain_of or not labels_match(pod.constraints.spread[position].selector, pod.labels):
            return held
        return held | {domain_of[home]: held[domain_of[home]] - 1}

    def _bears_all(self, constraints: Constraints) -> tuple[Node, ...]:
        """Nodes that bear the keys of all spread rules; looked for once for all rules of a pod."""
        found = self._bearing.get(id(constraints))
        if found is None:
            keys = {spread.topology_key for spread in constraints.spread}
            nodes = tuple(n for n in self._nodes if all(label_value(n, key) is not None for key in keys))
            found = self._bearing[id(constraints)] = constraints, nodes
        return found[1]


def clashes_with_pods(
    pod: Pod,
    node: Node,
    others: Iterable[Placed],
    nodes: Sequence[Node],
    domains: SpreadDomains | None = None,
) -> str | None:
    """Why ``pod`` may not be on ``node`` beside the pods placed before it; None where it may.

    Parameters
    ----------
    others
        All pods that hold a node, ``pod`` itself left out.
    nodes
        All nodes, for the domains of topology spread; ``domains`` of them, where many pods are asked about.
    """
    placed = [other for other in others if other.pod.key != pod.key]
    domains = domains or SpreadDomains(nodes)
    for position in range(len(pod.constraints.spread)):
        if not _keeps_skew(pod, node, position, domains.held(pod, position, placed)):
            return "node(s) didn't match pod topology spread constraints"
    if text := kept_off(pod, node, placed):
        return text
    return None if is_attracted(pod, node, placed) else "node(s) didn't match pod affinity rules"


def kept_off(pod: Pod, node: Node, others: Iterable[Placed]) -> str | None:
    """Why ``pod`` may not be on ``node`` while ``others`` are where they are: ports and anti-affinity, either way."""
    placed = [other for other in others if other.pod.key != pod.key]
    if any(_clash(pod, other) for other in placed if other.node.name == node.name):
        return "node(s) didn't have free ports for the requested pod ports"
    if any(_uses_alone(other.pod, pod) for other in placed):
        return "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
    if any(_repels(other, pod, node) for other in placed):
        return "node(s) didn't satisfy existing pods anti-affinity rules"
    if any(_repels(Placed(pod, node), other.pod, other.node) for other in placed):
        return "node(s) didn't match pod anti-affinity rules"
    return None


def _uses_alone(owner: Pod, pod: Pod) -> bool:
    terms = (term for term in owner.constraints.anti_affinity if term.topology_key == CLUSTER_KEY)
    return any(_selects(term, owner, pod) for term in terms)


@lru_cache(4096)
def _numbers(ports: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(port_number, ports))


@lru_cache(4096)
def _keys_apart(constraints: Constraints) -> tuple[str, ...]:
    """Topology keys of the anti-affinity."""
    return tuple(dict.fromkeys(term.topology_key for term in constraints.anti_affinity))


def _clash(pod: Pod, other: Placed) -> bool:
    if _numbers(pod.constraints.host_ports).isdisjoint(_numbers(other.pod.constraints.host_ports)):
        return False
    taken: dict[str, list[str]] = {}
    for port in other.pod.constraints.host_ports:
        taken.setdefault(port_number(port), []).append(port)
    return any(ports_clash(a, b) for a in pod.constraints.host_ports for b in taken.get(port_number(a), ()))


def _selects(term: PodAffinityTerm, owner: Pod, pod: Pod) -> bool:
    namespaces = term.namespaces or (owner.namespace,)
    return ("*" in namespaces or pod.namespace in namespaces) and labels_match(term.selector, pod.labels)


def _together(key: str, one: Node, other: Node) -> bool:
    value = label_value(one, key)
    return value is not None and value == label_value(other, key)


def _repels(owner: Placed, pod: Pod, node: Node) -> bool:
    """Whether an anti-affinity term of ``owner`` keeps ``pod`` off ``node``."""
    shared = {key for key in _keys_apart(owner.pod.constraints) if _together(key, owner.node, node)}
    terms = owner.pod.constraints.anti_affinity if shared else ()
    return any(term.topology_key in shared and _selects(term, owner.pod, pod) for term in terms)


def is_attracted(pod: Pod, node: Node, placed: Sequence[Placed]) -> bool:
    """Whether those ``placed``, ``pod`` left out, are where it requires them; or it is the first of its kind."""
    terms = pod.constraints.affinity
    peers = [other for other in placed if all(_selects(term, pod, other.pod) for term in terms)]
    if not peers and all(_selects(term, pod, pod) for term in terms):
        return all(label_value(node, term.topology_key) is not None for term in terms)
    return all(any(_together(term.topology_key, node, peer.node) for peer in peers) for term in terms)


def _counted(pod: Pod, position: int, placed: Iterable[Placed], domain_of: Mapping[str, str]) -> dict[str, int]:
    """Pods of ``placed`` by domain that the rule at ``position`` counts."""
    spread = pod.constraints.spread[position]
    held = dict.fromkeys(domain_of.values(), 0)
    for other in placed:
        matches = other.pod.namespace == pod.namespace and labels_match(spread.selector, other.pod.labels)
        if matches and other.node.name in domain_of:
            held[domain_of[other.node.name]] += 1
    return held


def _keeps_skew(pod: Pod, node: Node, position: int, held: Mapping[str, int]) -> bool:
    spread = pod.constraints.spread[position]
    here = label_value(node, spread.topology_key)
    if here is None:
        return False
    own = 1 if labels_match(spread.selector, pod.labels) else 0
    least = min(held.values(), default=0) if len(held) >= spread.min_domains else 0
    return held.get(here, 0) + own - least <= spread.max_skew


def _counts_for(pod: Pod, spread: SpreadConstraint, node: Node) -> bool:
    if spread.honours_affinity and not _admits(pod, node):
        return False
    return not spread.honours_taints or _untolerated(pod, node) is None
