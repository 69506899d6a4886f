"""spread: where a pod with a spread rule comes, its domain has at most ``maxSkew`` more of its kind than the emptiest.

With M the pods that the rule counts on the nodes that it counts, for every domain d of its key::

    least  <=  sum of M in d                                    (least = 0 with fewer than minDomains domains)
    used[d]  =>  sum of M in d - least  <=  maxSkew
    x  <=  m used[d]                                            for every place x (at most m) in d

Source: kube-scheduler's plugin PodTopologySpread, over where all pods finally are; docs/kai-behaviour.md#predicates.
"""

import numpy as np

from kai_solver.domain import SpreadConstraint
from kai_solver.model.placement_terms import Member, PlacementTerms, by_domain, close, fixed, terms
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import Variables
from kai_solver.predicates import of_spread
from kai_solver.rules.pod_relations.index import PodAffinityIndex

FAMILY = "spread"


def add(v: Variables) -> None:
    """Add the rows; none where no pod has such a rule."""
    crowd = PlacementTerms(v)
    for members in crowd.newcomers(lambda pod: pod.constraints.spread).values():
        for rule in members[0].pod.constraints.spread:
            _spread(v, crowd, members, rule)


def _spread(v: Variables, crowd: PlacementTerms, members: list[Member], rule: SpreadConstraint) -> None:
    """``members``: the new places of one shape, which has ``rule`` among others."""
    problem, pod = v.joint.problem, members[0].pod
    rules = PodAffinityIndex(problem.nodes, problem.predicates)
    code, counts = rules.code(rule.topology_key), rules.eligible(pod.constraints, rule)
    close(v, (m for m in members if not counts[m.node]), FAMILY)
    counted = [m for m in crowd.matching(of_spread(rule, pod.namespace).matches) if counts[m.node]]
    held = by_domain(counted, code)
    domains = np.unique(code[counts]).tolist()
    least = _least(v, [held.get(d, []) for d in domains]) if len(domains) >= rule.min_domains else None
    for domain, places in by_domain([m for m in members if counts[m.node]], code).items():
        _keep_skew(v, places, held.get(domain, []), least, rule.max_skew)


def _least(v: Variables, held: list[list[Member]]) -> Var | None:
    """A number that is at most what any domain holds; None where one can hold nothing."""
    most = min((sum(m.count * m.most for m in members) for members in held), default=0)
    if not most:
        return None
    least = v.spec.int_var(0, most)
    for members in held:
        v.spec.add_le([(1, least), *((-count, var) for count, var in terms(members))], fixed(members), family=FAMILY)
    return least


def _keep_skew(v: Variables, places: list[Member], held: list[Member], least: Var | None, skew: int) -> None:
    if sum(m.count * m.most for m in held) <= skew:
        return
    used = v.spec.bool_var()
    row: list[Term] = terms(held)
    if least is not None:
        row.append((-1, least))
    v.spec.add_le(row, skew - fixed(held), family=FAMILY, only_if=[used])
    for member in places:
        if member.var is not None:
            v.spec.add_le([(1, member.var), (-member.most, used)], 0, family=FAMILY)
