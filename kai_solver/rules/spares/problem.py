"""Nodes that the domains of a topology keep free: how many of its nodes may be in use when a plan is done.

A node is in use where a pod of a gang is, or was promised it, or any pod with GPUs. Else a node that victims left would
be a spare before the pod that they left for is there. The nodes of a domain that count are those with GPUs on
which something may be placed. Where n are to be kept, a plan leaves n of them free, or as many as there were; nodes
that only pods take which may use spares (`Gang.uses_spares`) are free all the same.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Pod, PodStatus, Topology, has_gpus, parts_of_gpus
from kai_solver.problem import Problem
from kai_solver.topology import Domain, DomainTree

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NAME = "spares"
"""The rule, its family of rows, and the kind of its element."""


@dataclass(frozen=True, slots=True, eq=False)
class SpareRule:
    """One topology's rule.

    Attributes
    ----------
    domain_of
        (N,) domain of each node that counts, -1 for the others.
    kept, room
        (D,) nodes that stay free in each domain, and most that may be in use.
    asked
        Nodes that each domain is to keep free, where it has as many.
    level, names
        Of the domains, for people.
    """

    domain_of: IntArray
    kept: IntArray
    room: IntArray
    asked: int
    level: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Spares:
    """All rules. ``in_use``: (N,) pods that make each node one in use, once those that are leaving have left.

    ``first_foreign``: index from which pods are of other schedulers. ``parts``: resources that are of GPUs.
    """

    rules: tuple[SpareRule, ...]
    in_use: IntArray
    first_foreign: int
    parts: tuple[int, ...]

    def counts(self, number: int, pod: Pod) -> bool:
        """Whether ``pod``, of index ``number``, puts its node in use."""
        return number < self.first_foreign or has_gpus(pod, self.parts)


def spares_of(problem: Problem) -> Spares | None:
    """The rules of all topologies; None where none has one."""
    snapshot, nodes, pods, pod_node = problem.snapshot, problem.nodes, problem.pods, problem.pod_node
    topologies = [t for t in snapshot.topologies if t.spares is not None]
    if not topologies:
        return None
    first_foreign = len(pods) - len(snapshot.foreign)
    parts = parts_of_gpus(snapshot.schema, snapshot.policy)
    found = Spares((), np.zeros(len(nodes), dtype=np.int64), first_foreign, parts)
    for number, pod in enumerate(pods):
        if pod.nominated_node and pod.status is PodStatus.PENDING and not pod.constraints.may_use_spares:
            promised = problem.node_index.get(pod.nominated_node, -1)
            if promised >= 0:
                found.in_use[promised] += 1
        is_there = pod_node[number] >= 0 and pod.status.holds_resources and pod.status is not PodStatus.RELEASING
        if is_there and found.counts(number, pod):
            found.in_use[pod_node[number]] += 1
    counted = np.array([node.schedulable and node.gpus > 0 for node in nodes], dtype=np.bool_)
    rules = [_rule(t, problem.domains[t.name], counted, found.in_use == 0) for t in topologies]
    return replace(found, rules=tuple(rule for rule in rules if rule is not None))


def _rule(topology: Topology, tree: DomainTree, counted: BoolArray, free: BoolArray) -> SpareRule | None:
    spares = topology.spares
    level = tree.level_index(spares.level) if spares is not None else None
    if spares is None or level is None:
        return None
    domain_of = np.where(counted, tree.domain_of[level], -1).astype(np.int64)
    size = len(tree.names[level])
    inside = domain_of >= 0
    total = np.bincount(domain_of[inside], minlength=size)
    kept = np.minimum(np.bincount(domain_of[inside & free], minlength=size), spares.nodes)
    names = tuple(tree.title(Domain(level, position)) for position in range(size))
    return SpareRule(domain_of, kept, total - kept, spares.nodes, spares.level, names)
