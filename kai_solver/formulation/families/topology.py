"""topology: all pods under a required level are in one of its domains.

One domain is chosen per scope (only if its pods come or move), and places outside it are closed::

    sum_d in[s, d] = admit[owner]          (moved[owner] for a mover)
    sum_{n in d} place[p, n] <= pods[p] in[s, d]     for every piece p under s and domain d

Nested scopes need no link of their own: a piece obeys all scopes above it. Several arrivals and movers of one gang may
have pods under one part of its tree (its minimum and its surplus): those that come or move share one domain, which is
that of those that stay::

    in[s, d] <= shared[part, d],   sum_d shared[part, d] <= 1
    stay[u] + shared[part, d] <= 1                   for every domain d that is not u's home

Source: reference 3.12.
"""

import numpy as np

from kai_solver.formulation.joint import Arrival, Mover
from kai_solver.formulation.spec import Var
from kai_solver.formulation.variables import Variables

Owner = tuple[int, int]
"""Number of the arrival (or of the mover, counted on from the arrivals) and of its scope."""


def add(v: Variables) -> None:
    """Add the rows."""
    first_mover = len(v.joint.arrivals)
    for (owner, scope), chosen in v.domains.items():
        who = v.joint.arrivals[owner] if owner < first_mover else v.units[owner - first_mover].mover
        v.spec.add_eq([*((1, var) for var in chosen.values()), (-1, v.presence(owner))], 0, family="topology")
        domain_of = who.scopes[scope].domain_of
        for scoped in v.scope_pieces[owner, scope]:
            by_domain: dict[int, list[tuple[int, int]]] = {d: [] for d in chosen}
            for node, var in scoped.place.items():
                by_domain[int(domain_of[node])].append((1, var))
            for domain, terms in by_domain.items():
                if terms:
                    v.spec.add_le([*terms, (-len(scoped.piece.pods), chosen[domain])], 0, family="topology")
    for owners in _by_part(v).values():
        if len(owners) > 1:
            _share(v, owners)


def _by_part(v: Variables) -> dict[tuple[int, tuple[str, ...]], list[Owner]]:
    """Owners of scopes by the part of a gang's tree that these are about."""
    everybody: list[Arrival | Mover] = [*v.joint.arrivals, *(unit.mover for unit in v.units)]
    found: dict[tuple[int, tuple[str, ...]], list[Owner]] = {}
    for number, who in enumerate(everybody):
        for index in sorted({index for piece in who.pieces for index in piece.scopes}):
            found.setdefault(who.scopes[index].part, []).append((number, index))
    return found


def _share(v: Variables, owners: list[Owner]) -> None:
    """One domain for all ``owners`` of scopes of one part."""
    domains = sorted({domain for owner in owners for domain in v.domains.get(owner, ())})
    shared = {domain: v.spec.bool_var() for domain in domains}
    v.spec.at_most_one(shared.values(), family="topology")
    for owner in owners:
        for domain, chosen in v.domains.get(owner, {}).items():
            v.spec.implication(chosen, shared[domain], family="topology")
        if owner[0] >= len(v.joint.arrivals):
            _stay_beside(v, owner, shared)


def _stay_beside(v: Variables, owner: Owner, shared: dict[int, Var]) -> None:
    """Where the mover stays, the others come to its home or not at all."""
    unit = v.units[owner[0] - len(v.joint.arrivals)]
    home = _home(v, owner)
    for domain, var in shared.items():
        if domain != home:
            v.spec.at_most_one((unit.stay, var), family="topology")


def _home(v: Variables, owner: Owner) -> int | None:
    """The domain where all of a mover's pods under a scope run; None where they run in several already."""
    number, index = owner
    mover = v.units[number - len(v.joint.arrivals)].mover
    node_of = dict(zip((pod for piece in mover.pieces for pod in piece.pods), mover.home, strict=True))
    nodes = [node_of[pod] for piece in mover.pieces if index in piece.scopes for pod in piece.pods]
    found = np.unique(mover.scopes[index].domain_of[nodes]).tolist()
    return int(found[0]) if len(found) == 1 else None
