"""Domains of one tenant at a time in words: what blocks, and the cluster without the rule."""

from dataclasses import replace

import numpy as np

from kai_solver.bounds.blocking import ElementWords
from kai_solver.domain import Blocker, Snapshot
from kai_solver.predicates import label_value
from kai_solver.rules.one_tenant.bound import Users
from kai_solver.rules.one_tenant.problem import NAME, TenantPods, Tenants

TAKEN = "node(s) were in a domain that is used by another tenant"
MOST_NAMED = 8
"""Domains that are named one by one where other tenants use them."""
CURE = "any tenants beside each other in every {name}"


def texts_by_node(pods: TenantPods, shape: int) -> dict[int, str]:
    """By node that is closed to ``shape``, which domain is used by which other tenant; of many, none is named."""
    found: dict[int, str] = {}
    nodes = pods.tenants.nodes
    for own in pods.tenants.alone(shape):
        code, closed = pods.tenants.code(own.topology_key), pods.closed(own)
        domains = np.unique(code[closed]).tolist()
        for domain in domains if len(domains) <= MOST_NAMED else ():
            here = np.flatnonzero(code == domain)
            title, users = label_value(nodes[here[0]], own.topology_key), pods.users(own, here)
            text = f"node(s) were in {own.level} {title}, which is used by {' and '.join(users)}"
            found.update((node, text) for node in here.tolist() if node not in found)
        found.update((node, TAKEN) for node in np.flatnonzero(closed).tolist() if node not in found)
    return found


def element(tenants: Tenants, words: ElementWords) -> Blocker:
    """Domains that others use: by pods that stay whatever this question may do, or by all pods if there are none.

    If no pod was there before, it is the gang's own pods, or those that came in this cycle.
    """
    rules = {shape: tenants.alone(shape) for shape in words.demand.needed}
    shape = next(s for s, alone in rules.items() if alone)
    leaving = words.bounds.leaving(words.demand, words.moment)
    staying = words.bounds.residents.without(leaving).rules
    used = "".join(bound.said(shape) for bound in staying if isinstance(bound, Users))
    own = dict.fromkeys(one.tenant for one in rules[shape])
    several = any(one.tenant not in own for alone in rules.values() for one in alone)
    newcomers = "its own pods are of several tenants" if several else "used by work admitted before it"
    level = " and ".join(dict.fromkeys(one.level for one in rules[shape]))
    have = used or Users(tenants, np.zeros(0, dtype=np.int64)).said(shape) or newcomers
    return Blocker(NAME, level, "one that no other tenant uses", have)


def without(snapshot: Snapshot) -> Snapshot:
    """The cluster with domains that any tenants use."""
    return replace(snapshot, topologies=tuple(replace(t, one_tenant=None) for t in snapshot.topologies))
