"""Domains that one tenant uses at a time: which of them are closed by pods that stay whatever is decided."""

from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import PodStatus
from kai_solver.predicates import domain_codes, label_value
from kai_solver.reduction import Problem

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

TENANTS = "tenants"
"""The rule, where a bound or the model is asked without it, and the kind of its element."""


class Users:
    """Whose pods are where.

    Parameters
    ----------
    gone
        Pods (index) that are not counted, beside those that are leaving already.
    """

    def __init__(self, problem: Problem, gone: Container[int] = ()) -> None:
        self._problem = problem
        self._nodes: dict[str, dict[str, set[int]]] = {}
        self._closed: dict[int, BoolArray] = {}
        shapes = problem.shapes.shapes
        for number, pod in enumerate(problem.pods):
            node, alone = problem.pod_node[number], shapes[problem.pod_shape[number]].constraints.alone
            is_there = node >= 0 and pod.status.holds_resources and pod.status is not PodStatus.RELEASING
            for own in alone if is_there and number not in gone else ():
                self._nodes.setdefault(own.topology_key, {}).setdefault(own.tenant, set()).add(node)

    def closed(self, shape: int) -> BoolArray:
        """(N,) True where a pod of ``shape`` may not come, since another tenant is in the domain."""
        found = self._closed.get(shape)
        if found is None:
            found = self._closed[shape] = np.zeros(len(self._problem.nodes), dtype=np.bool_)
            for own in self._problem.shapes.shapes[shape].constraints.alone:
                tenants = self._nodes.get(own.topology_key, {})
                others = [node for who, nodes in tenants.items() if who != own.tenant for node in nodes]
                found |= self._around(own.topology_key, others)
        return found

    def said(self, shape: int, most: int = 4) -> str:
        """Which domains are used by whom, as far as that keeps pods of ``shape`` off them; the first ``most``."""
        problem, texts = self._problem, []
        for own in problem.shapes.shapes[shape].constraints.alone:
            domains: dict[str, set[str]] = {}
            for tenant, nodes in self._nodes.get(own.topology_key, {}).items():
                for node in nodes if tenant != own.tenant else ():
                    title = label_value(problem.nodes[node], own.topology_key)
                    if title is not None:
                        domains.setdefault(title, set()).add(tenant)
            texts += [f"{own.level} {d} is used by {' and '.join(sorted(who))}" for d, who in sorted(domains.items())]
        more = [f"and {len(texts) - most} more"] if len(texts) > most else []
        return ", ".join([*texts[:most], *more])

    def mixed(self) -> BoolArray:
        """(N,) True where several tenants are in the domain: they may stay."""
        found = np.zeros(len(self._problem.nodes), dtype=np.bool_)
        for key, tenants in self._nodes.items():
            around = np.array([self._around(key, list(nodes)) for nodes in tenants.values()])
            found |= around.sum(axis=0) > 1
        return found

    def _around(self, key: str, nodes: list[int]) -> BoolArray:
        """(N,) True for all nodes of the domains in which ``nodes`` are."""
        code = domain_codes(self._problem.nodes, key)
        around: BoolArray = (code >= 0) & np.isin(code, code[nodes])
        return around


def users_of(problem: Problem, gone: IntArray | None = None) -> Users | None:
    """Whose pods are where, without those that are ``gone``; None where no domain is one tenant's at a time."""
    if not any(shape.constraints.alone for shape in problem.shapes.shapes):
        return None
    return Users(problem, frozenset(gone.tolist()) if gone is not None else ())
