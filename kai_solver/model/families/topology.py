"""topology: all pods under a required level are in one of its domains.

One domain is chosen per scope (only if its pods come or move), and places outside it are closed::

    sum_d in[s, d] = admit[owner]          (moved[owner] for a mover; the sum of them for scopes of one kind)
    sum_{n in d} place[p, n] <= pods[p] in[s, d]     for every piece p with places of its own under s, and domain d
    sum_{n in d} place[shape, n] >= sum pods[p] in[s, d]     for the others, by shape and domain (`model.flows`)

Nested scopes need no link of their own: a piece obeys all scopes above it. Several arrivals and movers of one gang may
have pods under one part of its tree (its minimum and its surplus): those that come or move share one domain, which is
that of those that stay::

    in[s, d] <= shared[part, d],   sum_d shared[part, d] <= 1
    stay[u] + shared[part, d] <= 1                   for every domain d that is not u's home

Whole blocks, and domains that are emptied or not used (`model.blocks`) follow for integers, not for the LP.

Source: docs/kai-behaviour.md#topology.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from kai_solver.model.blocks import Block, emptying, whole_blocks
from kai_solver.model.joint import Arrival, IntArray, Mover
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import DomainChoice, Variables

Owner = tuple[int, int]
"""Number of the arrival (or of the mover, counted on from the arrivals) and of its scope."""


def add(v: Variables) -> None:
    """Add the rows."""
    for choice in v.choices:
        terms = [(1, var) for var in choice.chosen.values()]
        coming = Counter(v.presence(owner) for owner, _ in choice.takers)
        v.spec.add_eq([*terms, *((-count, var) for var, count in coming.items())], 0, family="topology")
        if len(choice.takers) == 1:
            _close(v, choice)
    for shape, domain_of in v.flows.partition.items():
        _flow(v, shape, domain_of)
        _keep_whole(v, shape, domain_of)
    for owners in _by_part(v).values():
        if len(owners) > 1:
            _share(v, owners)


def _close(v: Variables, choice: DomainChoice) -> None:
    """Pieces with places of their own take none outside the domain that is chosen."""
    ((owner, scope),) = choice.takers
    domain_of = v.owner(owner).scopes[scope].domain_of
    for scoped in v.scope_pieces.get((owner, scope), ()):
        by_domain: dict[int, list[Term]] = {}
        for node, var in scoped.place.items():
            by_domain.setdefault(int(domain_of[node]), []).append((1, var))
        for domain, terms in by_domain.items():
            into = [(-len(scoped.piece.pods), choice.chosen[domain])] if domain in choice.chosen else []
            v.spec.add_le([*terms, *into], 0, family="topology")


def _flow(v: Variables, shape: int, domain_of: IntArray) -> None:
    """Each domain gets at least as many pods of the shape as choose it."""
    into: dict[int, list[Term]] = {}
    for choice, pods in _choosing(v, shape):
        for domain, var in choice.chosen.items():
            into.setdefault(domain, []).append((-pods, var))
    places: dict[int, list[Term]] = {}
    for node, var in v.place.get(shape, {}).items():
        places.setdefault(int(domain_of[node]), []).append((1, var))
    for domain, terms in into.items():
        v.spec.add_ge([*places.get(domain, ()), *terms], 0, family="topology")


def _choosing(v: Variables, shape: int) -> Iterator[tuple[DomainChoice, int]]:
    """Choices of domains by pods of the shape, and how many pods each taker brings."""
    for choice in v.choices:
        owner, scope = choice.takers[0]
        pieces = enumerate(v.owner(owner).pieces)
        mine = [p for n, p in pieces if v.flows.is_flowing(owner, n) and scope in p.scopes]
        pods = sum(len(piece.pods) for piece in mine if piece.shape == shape)
        if pods:
            yield choice, pods


def _keep_whole(v: Variables, shape: int, domain_of: IntArray) -> None:
    """Cuts: no domain takes parts of blocks, and none is used beside what is in the way."""
    room = np.bincount(domain_of[domain_of >= 0], weights=v.fitting(shape)[domain_of >= 0]).astype(np.int64)
    coming: dict[int, list[Block]] = {}
    for choice, pods in _choosing(v, shape):
        for domain, var in choice.chosen.items():
            most = min(len(choice.takers), int(room[domain]) // pods)
            coming.setdefault(domain, []).append(Block(pods, var, most))
    staying = _staying(v, shape, domain_of)
    for domain, blocks in coming.items():
        beside = staying.get(domain, [])
        for terms, most in whole_blocks([*blocks, *beside], int(room[domain])):
            v.spec.add_le(terms, most, family="topology")
        for terms, most in emptying(blocks, beside, int(room[domain])):
            v.spec.add_le(terms, most, family="topology")


def _staying(v: Variables, shape: int, domain_of: IntArray) -> dict[int, list[Block]]:
    """By domain, the pods of the shape of each unit there, on nodes that would take them."""
    found: dict[int, list[Block]] = {}
    fit = v.fitting(shape)
    for unit in v.units:
        node_of = zip((piece.shape for piece in unit.mover.pieces for _ in piece.pods), unit.mover.origin, strict=True)
        origins, counts = np.unique([node for of, node in node_of if of == shape], return_counts=True)
        welcome = origins[fit[origins] >= counts] if len(origins) else origins
        sizes: dict[int, int] = {}
        for node, count in zip(origins.tolist(), counts.tolist(), strict=True):
            if node in welcome and domain_of[node] >= 0:
                sizes[int(domain_of[node])] = sizes.get(int(domain_of[node]), 0) + count
        for domain, size in sizes.items():
            found.setdefault(domain, []).append(Block(size, unit.stay, 1))
    return found


def _by_part(v: Variables) -> dict[tuple[int, tuple[str, ...]], list[Owner]]:
    """Owners of scopes by the part of a gang's tree that these are about."""
    owners: list[Arrival | Mover] = [*v.joint.arrivals, *(unit.mover for unit in v.units)]
    found: dict[tuple[int, tuple[str, ...]], list[Owner]] = {}
    for number, item in enumerate(owners):
        for index in sorted({index for piece in item.pieces for index in piece.scopes}):
            found.setdefault(item.scopes[index].part, []).append((number, index))
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
    origin = _origin(v, owner)
    for domain, var in shared.items():
        if domain != origin:
            v.spec.at_most_one((unit.stay, var), family="topology")


def _origin(v: Variables, owner: Owner) -> int | None:
    """The domain where all of a mover's pods under a scope run; None where they run in several already."""
    number, index = owner
    mover = v.units[number - len(v.joint.arrivals)].mover
    node_of = dict(zip((pod for piece in mover.pieces for pod in piece.pods), mover.origin, strict=True))
    nodes = [node_of[pod] for piece in mover.pieces if index in piece.scopes for pod in piece.pods]
    found = np.unique(mover.scopes[index].domain_of[nodes]).tolist()
    return int(found[0]) if len(found) == 1 else None
