"""topology: all pods under a required level are in one of its domains.

One domain is chosen per scope (for movers only if they move), and places outside it are closed::

    sum_d in[s, d] = 1                     (= moved, for a mover)
    sum_{n in d} place[p, n] <= pods[p] in[s, d]     for every piece p under s and domain d

Nested scopes need no link of their own: a piece obeys all scopes above it. Source: reference 3.12.
"""

from kai_solver.formulation.variables import Variables


def add(v: Variables) -> None:
    """Add the rows."""
    first_mover = len(v.joint.arrivals)
    for (owner, scope), chosen in v.domains.items():
        is_arrival = owner < first_mover
        who = v.joint.arrivals[owner] if is_arrival else v.units[owner - first_mover].mover
        total = [(1, var) for var in chosen.values()]
        if is_arrival:
            v.spec.add_eq(total or [(0, v.one)], 1, family="topology")
        else:
            v.spec.add_eq([*total, (-1, v.units[owner - first_mover].moved)], 0, family="topology")
        domain_of = who.scopes[scope].domain_of
        for scoped in v.scope_pieces[owner, scope]:
            by_domain: dict[int, list[tuple[int, int]]] = {d: [] for d in chosen}
            for node, var in scoped.place.items():
                by_domain[int(domain_of[node])].append((1, var))
            for domain, terms in by_domain.items():
                if terms:
                    v.spec.add_le([*terms, (-len(scoped.piece.pods), chosen[domain])], 0, family="topology")
