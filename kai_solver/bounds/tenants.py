"""Domains that one tenant uses at a time: which of them are closed by pods that stay whatever is decided."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Alone, PodStatus
from kai_solver.predicates import domain_codes, label_value
from kai_solver.problem import Problem

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

TENANTS = "tenants"
"""The rule, where a bound or the model is asked without it, and the kind of its element."""


class Tenants:
    """Where pods are when the cycle begins, row by row: a pod under one rule. Pods that are leaving do not count.

    Attributes
    ----------
    pod, node
        (A,) index of the pod and of its node.
    key, tenant
        (A,) number of the label that names the rule's domains, and of the pod's tenant.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._keys: dict[str, int] = {}
        self._tenants: dict[str, int] = {}
        self._codes: dict[str, IntArray] = {}
        table = np.array(list(self._rows()), dtype=np.int64).reshape(-1, 4)
        self.pod, self.node, self.key, self.tenant = table.T

    def _rows(self) -> Iterator[tuple[int, int, int, int]]:
        problem, keys, tenants = self.problem, self._keys, self._tenants
        rules = [shape.constraints.alone for shape in problem.shapes.shapes]
        for number, (node, shape) in enumerate(zip(problem.pod_node, problem.pod_shape, strict=True)):
            if node < 0 or not rules[shape]:
                continue
            status = problem.pods[number].status
            for own in rules[shape] if status.holds_resources and status is not PodStatus.RELEASING else ():
                key = keys.setdefault(own.topology_key, len(keys))
                yield number, node, key, tenants.setdefault(own.tenant, len(tenants))

    def without(self, gone: IntArray | None = None) -> "Users":
        """The pods that stay when ``gone`` (indices) have left."""
        return Users(self, np.ones(len(self.pod), dtype=np.bool_) if gone is None else ~np.isin(self.pod, gone))

    def of_others(self, own: Alone) -> BoolArray:
        """(A,) rows under the same rule as ``own`` of other tenants."""
        is_under = self.key == self._keys.get(own.topology_key, -1)
        found: BoolArray = is_under & (self.tenant != self._tenants.get(own.tenant, -1))
        return found

    def code(self, key: str) -> IntArray:
        """(N,) number of each node's domain under the label ``key``, -1 where it is in none."""
        if key not in self._codes:
            self._codes[key] = domain_codes(self.problem.nodes, key)
        return self._codes[key]

    def by_key(self) -> Iterator[tuple[IntArray, BoolArray]]:
        """Of every rule: (N,) domain of each node, and its rows (A,)."""
        for key, number in self._keys.items():
            yield self.code(key), self.key == number

    def name(self, tenant: int) -> str:
        """The tenant of a number."""
        return list(self._tenants)[tenant]


class Users:
    """Tenants of domains once some pods have left: ``stays`` are the rows (A,) of ``tenants`` that count."""

    def __init__(self, tenants: Tenants, stays: BoolArray) -> None:
        self._tenants = tenants
        self._stays = stays
        self._closed: dict[int, BoolArray] = {}

    def closed(self, shape: int) -> BoolArray:
        """(N,) True where a pod of ``shape`` may not come, since another tenant is in the domain."""
        found = self._closed.get(shape)
        if found is None:
            problem, tenants = self._tenants.problem, self._tenants
            found = self._closed[shape] = np.zeros(len(problem.nodes), dtype=np.bool_)
            for own in problem.shapes.shapes[shape].constraints.alone:
                code = tenants.code(own.topology_key)
                used = code[tenants.node[self._stays & tenants.of_others(own)]]
                found |= (code >= 0) & np.isin(code, used)
        return found

    def said(self, shape: int, most: int = 4) -> str:
        """Domains and their tenants, as far as they keep pods of ``shape`` off; the first ``most``."""
        tenants, texts = self._tenants, []
        for own in tenants.problem.shapes.shapes[shape].constraints.alone:
            domains: dict[str, set[str]] = {}
            rows = np.flatnonzero(self._stays & tenants.of_others(own))
            for node, tenant in sorted({*zip(tenants.node[rows].tolist(), tenants.tenant[rows].tolist(), strict=True)}):
                title = label_value(tenants.problem.nodes[node], own.topology_key)
                if title is not None:
                    domains.setdefault(title, set()).add(tenants.name(tenant))
            texts += [
                f"{own.level} {d} is used by {' and '.join(sorted(tenants))}" for d, tenants in sorted(domains.items())
            ]
        more = [f"and {len(texts) - most} more"] if len(texts) > most else []
        return ", ".join([*texts[:most], *more])

    def mixed(self) -> BoolArray:
        """(N,) True where several tenants are in the domain: they may stay."""
        tenants = self._tenants
        found = np.zeros(len(tenants.problem.nodes), dtype=np.bool_)
        for code, rows in tenants.by_key():
            mine = rows & self._stays
            pairs = np.unique(np.stack([code[tenants.node[mine]], tenants.tenant[mine]]), axis=1)
            domains, users = np.unique(pairs[0], return_counts=True)
            found |= (code >= 0) & np.isin(code, domains[users > 1])
        return found


def tenants_of(problem: Problem) -> Tenants | None:
    """Where pods are; None if no domain is one tenant's at a time."""
    if not any(shape.constraints.alone for shape in problem.shapes.shapes):
        return None
    return Tenants(problem)
