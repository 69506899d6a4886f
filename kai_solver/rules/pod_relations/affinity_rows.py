"""affinity: pods that repel each other are in different domains, and pods that require peers have them.

Anti-affinity of a term, for every domain d of its key, where U bear the term and match it, V only bear it, and W only
match it::

    sum of U in d + any(V in d) + any(W in d)  <=  1

Affinity, for every place x (at most m) in domain d of a term's key, with F the pods that match all terms of the pod::

    x  <=  m near[d] + m lone
    near[d]  =>  sum of F in d >= 1   (2 where the pod itself is one of F)
    lone     =>  sum of F everywhere <= 1   (only where the pod itself is one of F: it may be the first)

Source: kube-scheduler's plugin InterPodAffinity, over where all pods finally are; docs/kai-behaviour.md#predicates.
"""

from kai_solver.domain import Pod
from kai_solver.model.placement_terms import Member, PlacementTerms, by_domain, close, fixed, part, terms
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import Variables
from kai_solver.predicates import PodSelector, domain_codes, of_term

FAMILY = "affinity"


def add(v: Variables) -> None:
    """Add the rows; none where no pod has such a rule."""
    crowd = PlacementTerms(v)
    _repel(v, crowd)
    for members in crowd.newcomers(lambda pod: pod.constraints.affinity).values():
        _attract(v, crowd, members)


def _repel(v: Variables, crowd: PlacementTerms) -> None:
    bearers: dict[tuple[PodSelector, str], list[Member]] = {}
    for member in crowd.members:
        keys = {(of_term(t, member.pod.namespace), t.topology_key) for t in member.pod.constraints.anti_affinity}
        for key in keys:
            bearers.setdefault(key, []).append(member)
    for (selector, topology_key), ones in bearers.items():
        part(v, ones, crowd.matching(selector.matches), domain_codes(v.joint.problem.nodes, topology_key), FAMILY)


def _attract(v: Variables, crowd: PlacementTerms, members: list[Member]) -> None:
    """``members``: the new places of one shape."""
    pod = members[0].pod
    selectors = frozenset(of_term(term, pod.namespace) for term in pod.constraints.affinity)

    def is_friend(other: Pod) -> bool:
        return all(selector.matches(other) for selector in selectors)

    friends = crowd.matching(is_friend)
    own = is_friend(pod)
    lone = _lone(v, friends) if own and not fixed(friends) else None
    for key in sorted({term.topology_key for term in pod.constraints.affinity}):
        code = domain_codes(v.joint.problem.nodes, key)
        close(v, (m for m in members if code[m.node] < 0), FAMILY)
        company = by_domain(friends, code)
        for domain, places in by_domain(members, code).items():
            if not fixed(company.get(domain, ())):
                _in_company(v, places, company.get(domain, []), lone, 2 if own else 1)


def _lone(v: Variables, friends: list[Member]) -> Var:
    lone = v.spec.bool_var()
    v.spec.add_le(terms(friends), 1, family=FAMILY, only_if=[lone])
    return lone


def _in_company(v: Variables, places: list[Member], friends: list[Member], lone: Var | None, needed: int) -> None:
    """Pods come to ``places`` where ``needed`` friends are in the domain, or one alone where it may be."""
    ways: list[Var] = [] if lone is None else [lone]
    if sum(m.count * m.most for m in friends) >= needed:
        near = v.spec.bool_var()
        v.spec.add_ge(terms(friends), needed, family=FAMILY, only_if=[near])
        ways.append(near)
    for member in places:
        if member.var is not None:
            row: list[Term] = [(1, member.var), *((-member.most, way) for way in ways)]
            v.spec.add_le(row, 0, family=FAMILY)
