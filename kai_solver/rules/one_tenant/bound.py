"""Domains that one tenant uses at a time: which of them are closed by pods that stay whatever is decided."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.predicates import label_value
from kai_solver.problem.rules import RuleBound
from kai_solver.rules.one_tenant.problem import NAME, Tenants

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Users(RuleBound):
    """Tenants of domains once the pods ``gone`` (indices) have left."""

    kind = NAME

    def __init__(self, tenants: Tenants, gone: IntArray) -> None:
        self._tenants = tenants
        self._stays: BoolArray = ~np.isin(tenants.pod, gone)
        self._closed: dict[int, BoolArray] = {}

    def closed(self, shape: int, /) -> BoolArray:
        """(N,) True where a pod of ``shape`` may not come, since another tenant is in the domain."""
        found = self._closed.get(shape)
        if found is None:
            tenants = self._tenants
            found = self._closed[shape] = np.zeros(len(tenants.nodes), dtype=np.bool_)
            for own in tenants.alone(shape):
                code = tenants.code(own.topology_key)
                used = code[tenants.node[self._stays & tenants.of_others(own)]]
                found |= (code >= 0) & np.isin(code, used)
        return found

    def said(self, shape: int, most: int = 4) -> str:
        """Domains and their tenants, as far as they keep pods of ``shape`` off; the first ``most``."""
        tenants, texts = self._tenants, []
        for own in tenants.alone(shape):
            domains: dict[str, set[str]] = {}
            rows = np.flatnonzero(self._stays & tenants.of_others(own))
            for node, tenant in sorted({*zip(tenants.node[rows].tolist(), tenants.tenant[rows].tolist(), strict=True)}):
                title = label_value(tenants.nodes[node], own.topology_key)
                if title is not None:
                    domains.setdefault(title, set()).add(tenants.name(tenant))
            texts += [
                f"{own.level} {d} is used by {' and '.join(sorted(users))}" for d, users in sorted(domains.items())
            ]
        more = [f"and {len(texts) - most} more"] if len(texts) > most else []
        return ", ".join([*texts[:most], *more])
