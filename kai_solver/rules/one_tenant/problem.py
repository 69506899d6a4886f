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

    def mixed(self) -> BoolArray:
        """(N,) True where several tenants are in the domain: they may stay."""
        found = np.zeros(len(self.nodes), dtype=np.bool_)
        for code, mine in self.by_key():
            pairs = np.unique(np.stack([code[self.node[mine]], self.tenant[mine]]), axis=1)
            domains, users = np.unique(pairs[0], return_counts=True)
            found |= (code >= 0) & np.isin(code, domains[users > 1])
        return found


def has_tenants(problem: Problem) -> bool:
    """Whether any domain is one tenant's at a time."""
    return any(shape.constraints.alone for shape in problem.shapes.shapes)
