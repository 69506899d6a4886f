"""spares: where a topology says so, every domain keeps some of its nodes free.

With ``busy[n]`` true where a pod is on node n finally which may not use spares, or which ran there before, over the
nodes of domain d that count::

    x <= m busy[n]                       for every place, and every pod that may stay, on n (at most m)
    sum_{n in d} busy[n]  <=  room[d]

``room`` is what is left of the nodes when as many are kept as the topology says, or as were free before. Source: our
rule (KAI has none); docs/domains.md.
"""

import numpy as np

from kai_solver.model.placement_terms import Member, PlacementTerms, some_of
from kai_solver.model.variables import Variables
from kai_solver.problem import Problem
from kai_solver.rules.spares.problem import NAME, SpareRule, Spares


def add(v: Variables, spares: Spares) -> None:
    """Add the rows."""
    users: dict[int, list[Member]] = {}
    for member in PlacementTerms(v, all_pods=True).members:
        if member.var is not None and not (member.is_new and member.pod.constraints.may_use_spares):
            users.setdefault(member.node, []).append(member)
    stays = _staying(v, v.joint.problem, spares)
    for rule in spares.rules:
        _keep(v, rule, users, stays)


def _staying(v: Variables, problem: Problem, spares: Spares) -> set[int]:
    """Nodes that are in use whatever is decided."""
    counts = spares.in_use.copy()
    for mover in v.joint.movers:
        for pod in (pod for piece in mover.pieces for pod in piece.pods):
            if problem.pods[pod].status.is_active and problem.pod_node[pod] >= 0:
                counts[problem.pod_node[pod]] -= 1
    return set(np.flatnonzero(counts > 0).tolist())


def _keep(v: Variables, rule: SpareRule, users: dict[int, list[Member]], stays: set[int]) -> None:
    by_domain: dict[int, list[int]] = {}
    for node in np.flatnonzero(rule.domain_of >= 0).tolist():
        by_domain.setdefault(int(rule.domain_of[node]), []).append(node)
    for domain, nodes in by_domain.items():
        fixed = sum(node in stays for node in nodes)
        could = [node for node in nodes if node in users and node not in stays]
        room = int(rule.room[domain]) - fixed
        if len(could) > room:
            row = [(1, some_of(v, users[node], NAME)) for node in could]
            v.spec.add_le(row, room, family=NAME)
