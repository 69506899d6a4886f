"""tenants: where a topology says so, a domain is used by one tenant at a time.

With ``used[t, d]`` true where a pod of tenant t finally is in domain d, and s[t, d] one that stays there whatever is
decided::

    x <= m used[t, d]                     for every place, and all that may stay, of t in d (at most m)
    sum_t used[t, d]  <=  1

Tenants that are beside each other already may stay so, and then no other may come; with ``comes[t, d]`` true where
a new pod comes::

    comes[t, d] + used[o, d]  <=  1       for every other tenant o

Source: our rule (KAI has none); docs/domains.md.
"""

from kai_solver.model.placement_terms import Member, PlacementTerms, by_domain, fixed, some_of
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import Variables
from kai_solver.predicates import domain_codes
from kai_solver.rules.one_tenant.problem import NAME


def add(v: Variables) -> None:
    """Add the rows."""
    by_key: dict[str, dict[str, list[Member]]] = {}
    for member in PlacementTerms(v).members:
        for alone in member.pod.constraints.alone:
            by_key.setdefault(alone.topology_key, {}).setdefault(alone.tenant, []).append(member)
    for key, tenants in by_key.items():
        code = domain_codes(v.joint.problem.nodes, key)
        domains: dict[int, dict[str, list[Member]]] = {}
        for tenant, members in tenants.items():
            for domain, inside in by_domain(members, code).items():
                domains.setdefault(domain, {})[tenant] = inside
        for users in domains.values():
            if len(users) > 1 and any(member.is_new for members in users.values() for member in members):
                _part(v, users)


def _part(v: Variables, users: dict[str, list[Member]]) -> None:
    """The rows of one domain."""
    there = [tenant for tenant, members in users.items() if any(member.present for member in members)]
    if len(there) < 2:
        settled = [tenant for tenant, members in users.items() if fixed(members)]
        row: list[Term] = [(1, some_of(v, members, NAME)) for t, members in users.items() if t not in settled]
        v.spec.add_le(row, 1 - len(settled), family=NAME)
        return
    used: dict[str, Var | None] = {t: _used(v, [m for m in users[t] if not m.is_new]) for t in there}
    comes = {t: some_of(v, new, NAME) for t, members in users.items() if (new := [m for m in members if m.is_new])}
    v.spec.add_le([(1, var) for var in comes.values()], 1, family=NAME)
    for tenant, var in comes.items():
        for other in there:
            if other != tenant:
                other_var = used[other]
                row = [(1, var)] if other_var is None else [(1, var), (1, other_var)]
                v.spec.add_le(row, 0 if other_var is None else 1, family=NAME)


def _used(v: Variables, members: list[Member]) -> Var | None:
    """True where any of ``members`` stays; None: for certain."""
    return None if fixed(members) else some_of(v, members, NAME)
