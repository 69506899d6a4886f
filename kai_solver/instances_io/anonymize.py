"""Names out, structure kept: an instance that may be shown to others and schedules the same, but for ties by name."""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kai_solver.domain import (
    NO_CONSTRAINTS,
    RULES,
    Constraints,
    DisruptionBudget,
    Gang,
    Node,
    NodeTerm,
    NumaTopology,
    OneTenant,
    Pod,
    PodAffinityTerm,
    PodSet,
    Queue,
    Requirement,
    Snapshot,
    SpreadConstraint,
    SubGroup,
    Taint,
    Toleration,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    pairs_of,
)
from kai_solver.domain.gpus import GPU_REPLICAS, MIG_ENABLED, MIG_STRATEGY
from kai_solver.kubeobjects.volumes import claim_not_found, missing_claims

NODE_NAME_KEY = "metadata.name"
_KEPT_DOMAINS = ("kubernetes.io", "k8s.io", "kai.scheduler", "nvidia.com", "run.ai")
"""Labels and taints of these domains, and of those below them, keep their keys; their values are hashed too."""
_DIGEST_BYTES = 8
_NUMBERED = re.compile(r"(node|zone|numa)?-?\d+")


def anonymize(snapshot: Snapshot, salt: bytes | None = None) -> Snapshot:
    """``snapshot`` with every name replaced by a keyed hash of it, the same one everywhere.

    Nodes, queues, gangs, pods, namespaces, topologies, subgroups, label keys that are not well known, all label and
    taint values, NUMA zones (but for numbers), uids, device uuids and free texts. Names of resources stay: they say
    what hardware it is. Numbers stay: labels compared as numbers (``Gt``, ``Lt``) keep their values, and so do those
    that say how GPUs are divided.

    Parameters
    ----------
    salt
        Key of the hash; random where None, so that names cannot be guessed and tried.
    """
    return _Anonymizer(salt or secrets.token_bytes(32), _kept_values(snapshot)).snapshot(snapshot)


def _kept_values(snapshot: Snapshot) -> frozenset[str]:
    """Label keys that some pod compares by size, and keys with values that have a meaning here."""
    pods = [pod for gang in snapshot.gangs for pod in gang.pods] + list(snapshot.foreign)
    distinct = {pod.constraints for pod in pods}
    terms = [t for c in distinct for entry in c.node_terms for t in entry]
    terms += [t for c in distinct for _, t in c.preferred]
    return frozenset(r.key for term in terms for r in term if r.operator in ("Gt", "Lt")) | {
        GPU_REPLICAS,
        MIG_ENABLED,
        MIG_STRATEGY,
    }


@dataclass(slots=True)
class _Anonymizer:
    salt: bytes
    plain_keys: frozenset[str]
    _constraints: dict[Constraints, Constraints] = field(default_factory=dict)

    def _hash(self, kind: str, name: str) -> str:
        """``name`` hashed, with a prefix that says what it is; the empty name stays empty."""
        if not name:
            return ""
        return f"{kind}-{hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES, key=self.salt[:64]).hexdigest()}"

    def _key(self, key: str) -> str:
        """A label's key: kept where its domain is well known."""
        domain = key.rpartition("/")[0]
        kept = key == NODE_NAME_KEY or any(domain == d or domain.endswith(f".{d}") for d in _KEPT_DOMAINS)
        return key if kept else self._hash("k", key)

    def _value(self, value: str) -> str:
        """A label's value; nodes and queues are named in labels too, so the hash is that of names."""
        return self._hash("x", value)

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {self._key(k): v if k in self.plain_keys else self._value(v) for k, v in labels.items()}

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        return replace(
            snapshot,
            name=self._hash("instance", snapshot.name),
            nodes=tuple(self._node(node) for node in snapshot.nodes),
            queues=tuple(self._queue(queue) for queue in snapshot.queues),
            gangs=tuple(self._gang(gang) for gang in snapshot.gangs),
            topologies=tuple(self._topology(topology) for topology in snapshot.topologies),
            foreign=tuple(self._pod(pod) for pod in snapshot.foreign),
            budgets=tuple(self._budget(budget) for budget in snapshot.budgets),
            refused=frozenset(self._pod_key(key) for key in snapshot.refused),
            # Their texts contain names, which would not be anonymous.
            notices=(),
            # What claims come to stays in the pods and nodes; devices and selectors would tell too much.
            claims=None,
        )

    def _node(self, node: Node) -> Node:
        return replace(
            node,
            name=self._value(node.name),
            labels=self._labels(node.labels),
            taints=tuple(Taint(self._key(t.key), self._value(t.value), t.effect) for t in node.taints),
            gpu_uuids=tuple(self._hash("GPU", uuid) for uuid in node.gpu_uuids),
            numa=self._numa(node.numa),
        )

    def _numa(self, numa: NumaTopology | None) -> NumaTopology | None:
        if numa is None:
            return None
        return replace(numa, zones=tuple(replace(zone, name=self._zone(zone.name)) for zone in numa.zones))

    def _zone(self, name: str) -> str:
        """Names that only number NUMA zones say nothing, and Kubernetes orders zones by them: they stay."""
        return name if _NUMBERED.fullmatch(name) else self._hash("zone", name)

    def _queue(self, queue: Queue) -> Queue:
        return replace(
            queue,
            name=self._hash("queue", queue.name),
            parent=self._hash("queue", queue.parent),
            display_name=self._hash("queue", queue.display_name),
            uid=self._hash("uid", queue.uid),
            # What those of other packages say is not known here, so it could tell names.
            rules=tuple((rule, self._setting(text)) for rule, text in queue.rules if rule in RULES),
        )

    def _setting(self, text: str) -> str:
        """A setting of a rule that ships: keys and numbers stay, other values may be keys of labels."""
        pairs = ((key, value if not value or value.isdigit() else self._key(value)) for key, value in pairs_of(text))
        return " ".join(f"{key}={value}" for key, value in pairs)

    def _topology(self, topology: Topology) -> Topology:
        levels = tuple(TopologyLevel(self._key(x.node_label), self._key(x.alias)) for x in topology.levels)
        spares = None if topology.spares is None else replace(topology.spares, level=self._key(topology.spares.level))
        name = self._hash("topology", topology.name)
        return Topology(name, levels, self._one_tenant(topology.one_tenant), spares)

    def _one_tenant(self, rule: OneTenant | None) -> OneTenant | None:
        if rule is None:
            return None
        kind, label, key = rule.tenant.partition("label:")
        return OneTenant(self._key(rule.level), f"{kind}{label}{self._key(key) if key else ''}")

    def _gang(self, gang: Gang) -> Gang:
        return replace(
            gang,
            namespace=self._hash("ns", gang.namespace),
            name=self._hash("gang", gang.name),
            queue=self._hash("queue", gang.queue),
            root=self._tree(gang.root),
            pods=tuple(self._pod(pod) for pod in gang.pods),
            workload=self._hash("workload", gang.workload),
            set_aside="set aside on import" if gang.set_aside else "",
            uid=self._hash("uid", gang.uid),
        )

    def _tree(self, group: SubGroup) -> SubGroup:
        children = tuple(
            replace(child, name=self._podset(child.name), topology=self._topology_constraint(child.topology))
            if isinstance(child, PodSet)
            else self._tree(child)
            for child in group.children
        )
        name, topology = self._podset(group.name), self._topology_constraint(group.topology)
        return replace(group, name=name, children=children, topology=topology)

    def _podset(self, name: str) -> str:
        """A subgroup's name; ``default`` is the one of every flat gang."""
        return name if name == "default" else self._hash("part", name)

    def _topology_constraint(self, asked: TopologyConstraint | None) -> TopologyConstraint | None:
        if asked is None:
            return None
        required, preferred = self._level(asked.required), self._level(asked.preferred)
        return TopologyConstraint(self._hash("topology", asked.topology), required, preferred)

    def _level(self, level: str) -> str:
        """A level is named by label or by alias; both are hashed in the same way, if at all."""
        return self._key(level)

    def _pod(self, pod: Pod) -> Pod:
        priority, created_s, uid = pod.order
        return replace(
            pod,
            namespace=self._hash("ns", pod.namespace),
            name=self._hash("pod", pod.name),
            podset=self._podset(pod.podset),
            node=self._value(pod.node),
            gpu_groups=tuple(self._hash("gpus", group) for group in pod.gpu_groups),
            nominated_node=self._value(pod.nominated_node),
            constraints=self._pod_constraints(pod.constraints),
            labels=self._labels(pod.labels),
            order=(priority, created_s, self._hash("pod", uid)),
            claims=(),
            zones=tuple(replace(share, zone=self._zone(share.zone)) for share in pod.zones),
        )

    def _pod_key(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"{self._hash('ns', namespace)}/{self._hash('pod', name)}"

    def _budget(self, budget: DisruptionBudget) -> DisruptionBudget:
        return replace(
            budget,
            namespace=self._hash("ns", budget.namespace),
            name=self._hash("budget", budget.name),
            selector=self._term(budget.selector),
        )

    def _pod_constraints(self, constraints: Constraints) -> Constraints:
        if constraints == NO_CONSTRAINTS:
            return NO_CONSTRAINTS
        if constraints not in self._constraints:
            self._constraints[constraints] = replace(
                constraints,
                node_terms=tuple(tuple(self._term(term) for term in entry) for entry in constraints.node_terms),
                preferred=tuple((weight, self._term(term)) for weight, term in constraints.preferred),
                tolerations=tuple(self._toleration(t) for t in constraints.tolerations),
                affinity=tuple(self._affinity(term) for term in constraints.affinity),
                anti_affinity=tuple(self._affinity(term) for term in constraints.anti_affinity),
                spread=tuple(self._spread(s) for s in constraints.spread),
                preferred_pods=tuple((weight, self._affinity(term)) for weight, term in constraints.preferred_pods),
                preferred_spread=tuple(self._spread(s) for s in constraints.preferred_spread),
                blocked=tuple(map(self._blocked, constraints.blocked)),
            )
        return self._constraints[constraints]

    def _blocked(self, text: str) -> str:
        """A claim that is not there stays named: KAI does not start a pod that refers to one."""
        claims = missing_claims((text,))
        return claim_not_found(self._hash("claim", claims[0])) if claims else "a reason that names something"

    def _term(self, term: NodeTerm) -> NodeTerm:
        return tuple(self._requirement(requirement) for requirement in term)

    def _requirement(self, requirement: Requirement) -> Requirement:
        numeric = requirement.key in self.plain_keys
        values = requirement.values if numeric else tuple(self._value(value) for value in requirement.values)
        return Requirement(self._key(requirement.key), requirement.operator, values)

    def _toleration(self, toleration: Toleration) -> Toleration:
        return replace(toleration, key=self._key(toleration.key), value=self._value(toleration.value))

    def _spread(self, spread: SpreadConstraint) -> SpreadConstraint:
        return replace(spread, selector=self._term(spread.selector), topology_key=self._key(spread.topology_key))

    def _affinity(self, term: PodAffinityTerm) -> PodAffinityTerm:
        namespaces = tuple(name if name == "*" else self._hash("ns", name) for name in term.namespaces)
        return PodAffinityTerm(self._term(term.selector), self._key(term.topology_key), namespaces)
