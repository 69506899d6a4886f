"""Domains that one tenant uses at a time: what must leave all of one before another tenant may come."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.rules import ClearedDomains
from kai_solver.rules.one_tenant.problem import TenantPods

BoolArray = NDArray[np.bool_]

DOMAINS_TRIED = 16
"""Domains that are cleared for one allocation unit, cheapest first."""


def clearings(
    pool: VictimPool, pods: TenantPods, eligible: BoolArray, allocation_unit: AllocationUnit
) -> Iterator[ClearedDomains]:
    """Ways to free domains for the tenant of ``allocation_unit``: one domain each, then the cheapest together.

    Empty if its pods have no tenant rule. Domains in which some unit may not leave are left out.
    """
    every = _by_domain(pool, pods, eligible, allocation_unit)
    found = sorted(every, key=lambda way: (sum(pool.cost[u] for u in way.units), way.units))[:DOMAINS_TRIED]
    yield from found
    for count in range(2, len(found) + 1):
        units = dict.fromkeys(unit for way in found[:count] for unit in way.units)
        yield ClearedDomains(list(units), np.logical_or.reduce([way.nodes for way in found[:count]]), count)


def _by_domain(
    pool: VictimPool, pods: TenantPods, eligible: BoolArray, allocation_unit: AllocationUnit
) -> Iterator[ClearedDomains]:
    problem = pool.state.problem
    shapes = problem.shapes.shapes
    rules = {own for shape in problem.by_shape(allocation_unit.pods) for own in shapes[shape].constraints.alone}
    for own in sorted(rules, key=lambda own: (own.topology_key, own.tenant)):
        code, others = pods.tenants.code(own.topology_key), pods.others(own)
        for domain in np.unique(code[(others > 0) & (code >= 0)]).tolist():
            inside = code == domain
            nodes = np.flatnonzero(inside)
            units = pool.closure(u for node in nodes.tolist() for u in pool.on(node) if _is_other(pool, u, own.tenant))
            leaving = sum(
                code[pool.node_of(pod)] == domain and bool(shapes[problem.pod_shape[pod]].constraints.alone)
                for unit in units
                for pod in pool.units[unit].pods
            )
            if all(eligible[unit] for unit in units) and leaving >= int(others[nodes].sum()):
                yield ClearedDomains(units, inside)


def _is_other(pool: VictimPool, unit: int, tenant: str) -> bool:
    """Whether a pod of ``unit`` is another tenant's."""
    problem = pool.state.problem
    alone = (problem.shapes.shapes[problem.pod_shape[pod]].constraints.alone for pod in pool.units[unit].pods)
    return any(own.tenant != tenant for rules in alone for own in rules)
