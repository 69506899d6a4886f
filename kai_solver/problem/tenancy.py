"""Domains that one tenant uses at a time, as rules between pods: those with GPUs state their tenant.

A topology declares it for one of its levels (`OneTenant`). Pods with GPUs then bear ``alone``, and the nodes of the
tree a label that names their domain by the whole path of labels above it. Where a topology keeps nodes free,
pods that wait and may use them say so, too. Nothing of this leaves the problem.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kai_solver.domain import (
    Alone,
    Constraints,
    Gang,
    Node,
    OneTenant,
    Pod,
    PodStatus,
    Snapshot,
    Topology,
    has_gpus,
    parts_of_gpus,
)
from kai_solver.topology import Domain, DomainTree

_KEY = "kai-solver/domain-of/"
_MOST_KNOWN = 20_000
"""Pairs of constraints and tenants that are held on to."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A topology's rule, and the label by which its domains are told apart."""

    topology: Topology
    one_tenant: OneTenant
    level: int

    @property
    def key(self) -> str:
        return f"{_KEY}{self.topology.name}"


class Tenancy:
    """Writes the rules into snapshots of one cluster; what did not change stays the same object."""

    def __init__(self) -> None:
        self._rules: tuple[_Rule, ...] = ()
        self._spares = False
        self._parts: tuple[int, ...] = ()
        self._given: Sequence[Node] = ()
        self._nodes: tuple[Node, ...] = ()
        self._gangs: dict[int, tuple[Gang, Gang]] = {}
        self._foreign: dict[int, tuple[Pod, Pod]] = {}
        self._known: dict[tuple[int, tuple[Alone, ...], bool], tuple[Constraints, Constraints]] = {}

    def written(self, snapshot: Snapshot) -> Snapshot:
        """``snapshot`` with the rules as its pods' own; the very same where no topology has one."""
        rules = tuple(_rules(snapshot.topologies))
        spares = any(topology.spares is not None for topology in snapshot.topologies)
        if not rules and not spares:
            return snapshot
        parts = parts_of_gpus(snapshot.schema, snapshot.policy)
        if (rules, spares, parts) != (self._rules, self._spares, self._parts):
            self._rules, self._spares, self._parts, self._given = rules, spares, parts, ()
            self._gangs.clear()
            self._foreign.clear()
        if self._given != snapshot.nodes:
            self._given, self._nodes = snapshot.nodes, self._labelled(snapshot.nodes)
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        known, foreign = self._gangs, self._foreign
        self._gangs = {id(gang): known.get(id(gang)) or (gang, self._gang(gang)) for gang in snapshot.gangs}
        stand_ins = snapshot.stand_ins
        self._foreign = {
            id(pod): foreign.get(id(pod)) or (pod, pod if pod.key in stand_ins else self._pod(pod, ""))
            for pod in snapshot.foreign
        }
        return replace(
            snapshot,
            nodes=self._nodes,
            gangs=tuple(self._gangs[id(gang)][1] for gang in snapshot.gangs),
            foreign=tuple(self._foreign[id(pod)][1] for pod in snapshot.foreign),
        )

    def _labelled(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        labels: list[dict[str, str]] = [{} for _ in nodes]
        for rule in self._rules:
            tree = DomainTree.from_nodes(rule.topology, nodes)
            for node in tree.members.tolist():
                labels[node][rule.key] = tree.title(Domain(rule.level, int(tree.domain_of[rule.level, node])))
        pairs = zip(nodes, labels, strict=True)
        return tuple(replace(node, labels={**node.labels, **more}) if more else node for node, more in pairs)

    def _gang(self, gang: Gang) -> Gang:
        uses = self._spares and gang.uses_spares
        waits = (PodStatus.PENDING, PodStatus.GATED)
        pods = tuple(self._pod(p, gang.queue, may_use_spares=uses and p.status in waits) for p in gang.pods)
        is_same = all(one is other for one, other in zip(pods, gang.pods, strict=True))
        return gang if is_same else replace(gang, pods=pods)

    def _pod(self, pod: Pod, queue: str, *, may_use_spares: bool = False) -> Pod:
        alone = tuple(
            Alone(rule.key, rule.one_tenant.of(pod.namespace, pod.labels, queue), rule.one_tenant.level)
            for rule in (self._rules if has_gpus(pod, self._parts) else ())
        )
        if not alone and not may_use_spares:
            return pod
        key = id(pod.constraints), alone, may_use_spares
        if key not in self._known:
            said = replace(pod.constraints, alone=alone, may_use_spares=may_use_spares)
            self._known[key] = pod.constraints, said
        return replace(pod, constraints=self._known[key][1])


def _rules(topologies: Sequence[Topology]) -> Sequence[_Rule]:
    """Rules of levels that there are, by the topology's name."""
    found: list[_Rule] = []
    for topology in topologies:
        if topology.one_tenant is not None:
            level = topology.level_index(topology.one_tenant.level)
            if level is not None:
                found.append(_Rule(topology, topology.one_tenant, level))
    return found
