"""Where the pods of tenants are when the cycle begins.

Pods with GPUs state their tenant by `Constraints.alone`, which `problem/tenancy.py` writes from what topologies say.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Alone, PodStatus
from kai_solver.predicates import domain_codes
from kai_solver.problem import Problem

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NAME = "tenants"
"""The rule, its family of rows, and the kind of its element."""


class Tenants:
    """Pods under a rule, row by row: A pairs of both. Pods that are leaving do not count.

    Attributes
    ----------
    pod, node
        (A,) index of the pod and of its node.
    key, tenant
        (A,) number of the label that names the rule's domains, and of the pod's tenant.
    """

    def __init__(self, problem: Problem) -> None:
        self.nodes = problem.nodes
        self.shapes = problem.shapes
        self._keys: dict[str, int] = {}
        self._tenants: dict[str, int] = {}
        self._codes: dict[str, IntArray] = {}
        table = np.array(list(self._rows(problem)), dtype=np.int64).reshape(-1, 4)
        self.pod, self.node, self.key, self.tenant = table.T

    def _rows(self, problem: Problem) -> Iterator[tuple[int, int, int, int]]:
        keys, tenants = self._keys, self._tenants
        rules = [shape.constraints.alone for shape in problem.shapes.shapes]
        for number, (node, shape) in enumerate(zip(problem.pod_node, problem.pod_shape, strict=True)):
            if node < 0 or not rules[shape]:
                continue
            status = problem.pods[number].status
            for own in rules[shape] if status.holds_resources and status is not PodStatus.RELEASING else ():
                key = keys.setdefault(own.topology_key, len(keys))
                yield number, node, key, tenants.setdefault(own.tenant, len(tenants))

    def alone(self, shape: int) -> tuple[Alone, ...]:
        """The tenants of pods of ``shape``, rule by rule."""
        return self.shapes.shapes[shape].constraints.alone

    def of_others(self, own: Alone) -> BoolArray:
        """(A,) rows under the same rule as ``own`` of other tenants."""
        is_under = self.key == self._keys.get(own.topology_key, -1)
        found: BoolArray = is_under & (self.tenant != self._tenants.get(own.tenant, -1))
        return found

    def code(self, key: str) -> IntArray:
        """(N,) number of each node's domain under the label ``key``, -1 where it is in none."""
        if key not in self._codes:
            self._codes[key] = domain_codes(self.nodes, key)
        return self._codes[key]

    def by_key(self) -> Iterator[tuple[IntArray, BoolArray]]:
        """Of every rule: (N,) domain of each node, and its rows (A,)."""
        for key, number in self._keys.items():
            yield self.code(key), self.key == number

    def name(self, tenant: int) -> str:
        """The tenant of a number."""
        return list(self._tenants)[tenant]

    def pods(self, problem: Problem, *, leaving: bool) -> "TenantPods":
        """Running pods; ``leaving``: with those that leave."""
        found = TenantPods(self)
        for number, (node, shape) in enumerate(zip(problem.pod_node, problem.pod_shape, strict=True)):
            if node >= 0 and self.alone(shape):
                status = problem.pods[number].status
                if status.holds_resources and (leaving or status is not PodStatus.RELEASING):
                    found.add(shape, node, 1)
        return found

    def mixed(self) -> BoolArray:
        """(N,) True where several tenants are in the domain: they may stay."""
        found = np.zeros(len(self.nodes), dtype=np.bool_)
        for code, mine in self.by_key():
            pairs = np.unique(np.stack([code[self.node[mine]], self.tenant[mine]]), axis=1)
            domains, users = np.unique(pairs[0], return_counts=True)
            found |= (code >= 0) & np.isin(code, domains[users > 1])
        return found


class TenantPods:
    """(N,) pods by node, under each rule (the label of its domains): of all tenants, and of each one."""

    def __init__(self, tenants: "Tenants") -> None:
        self.tenants = tenants
        self._all: dict[str, IntArray] = {}
        self._of: dict[str, dict[str, IntArray]] = {}

    def add(self, shape: int, node: int, count: int) -> None:
        """``count`` pods of ``shape`` come to ``node``."""
        for own in self.tenants.alone(shape):
            if own.topology_key not in self._all:
                self._all[own.topology_key] = np.zeros(len(self.tenants.nodes), dtype=np.int64)
            of = self._of.setdefault(own.topology_key, {})
            if own.tenant not in of:
                of[own.tenant] = np.zeros(len(self.tenants.nodes), dtype=np.int64)
            self._all[own.topology_key][node] += count
            of[own.tenant][node] += count

    def others(self, own: Alone) -> IntArray:
        """(N,) pods of other tenants than that of ``own``, under its rule."""
        every = self._all.get(own.topology_key)
        if every is None:
            return np.zeros(len(self.tenants.nodes), dtype=np.int64)
        mine = self._of[own.topology_key].get(own.tenant)
        return every if mine is None else every - mine

    def is_open(self, shape: int) -> BoolArray:
        """(N,) nodes of domains that no other tenant than that of ``shape`` uses."""
        found = np.ones(len(self.tenants.nodes), dtype=np.bool_)
        for own in self.tenants.alone(shape):
            found &= ~self.closed(own)
        return found

    def closed(self, own: Alone) -> BoolArray:
        """(N,) nodes of domains that another tenant uses."""
        code = self.tenants.code(own.topology_key)
        used = np.zeros(int(code.max(initial=-1)) + 2, dtype=np.bool_)
        used[code[self.others(own) > 0]] = True
        used[-1] = False
        found: BoolArray = used[code]
        return found

    def users(self, own: Alone, nodes: IntArray) -> list[str]:
        """Other tenants with pods on ``nodes``, by name."""
        of = self._of.get(own.topology_key, {})
        return sorted(tenant for tenant, pods in of.items() if tenant != own.tenant and pods[nodes].any())


def has_tenants(problem: Problem) -> bool:
    """Whether any domain is one tenant's at a time."""
    return any(shape.constraints.alone for shape in problem.shapes.shapes)
