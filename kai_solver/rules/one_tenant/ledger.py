"""Which tenants are in which domain while a plan is made: once all has been carried out, and meanwhile."""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.state import State
from kai_solver.problem.rules import Ledger
from kai_solver.rules.one_tenant.problem import NAME, Tenants
from kai_solver.rules.one_tenant.words import texts_by_node

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class TenantLedger(Ledger):
    """``later``: pods after the plan. ``_now``: with pods that are leaving, and all new ones."""

    kind = NAME

    def __init__(self, state: State, tenants: Tenants) -> None:
        problem = self._problem = state.problem
        self._tenants = tenants
        self._places = state.places
        self.later = tenants.pods(problem, leaving=False)
        self._now = tenants.pods(problem, leaving=True)

    def counts_alike(self, shape: int, /) -> bool:
        """True: pods of which this is not so are related, and related pods are placed one by one."""
        return True

    def mask(self, shape: int, pod: int, /) -> BoolArray | None:
        """(N,) nodes of domains that no other tenant uses; None for a pod without a tenant."""
        return self.later.is_open(shape) if self._tenants.alone(shape) else None

    def place(self, shape: int, pod: int, node: int, count: int, sign: int, *, now: bool) -> None:
        """A pod that waits for its place has its domains promised."""
        self.later.add(shape, node, sign * count)
        self._now.add(shape, node, sign * count)

    def leave(self, shape: int, pod: int, node: int, count: int, sign: int, /) -> None:
        """Until a pod has left, its domains are used."""
        self.later.add(shape, node, -sign * count)

    def may_start(self, shape: int, pod: int, node: int, /) -> bool:
        """False where a pod of another tenant is to leave the domain first."""
        return not self._tenants.alone(shape) or bool(self._now.is_open(shape)[node])

    def may_return(self, pod: int, /) -> bool:
        """True where no other tenant uses the domains where it ran."""
        shape = self._problem.pod_shape[pod]
        node = self._problem.pod_node[pod]
        return not self._tenants.alone(shape) or bool(self.later.is_open(shape)[node])

    def holds(self) -> bool:
        """Whether no pod that was given a place is beside one of another tenant."""
        shapes = self._problem.pod_shape
        placed = {(shapes[pod], place.node) for pod, place in self._places.items() if self._tenants.alone(shapes[pod])}
        return all(self.later.is_open(shape)[node] for shape, node in placed)

    def room(self, room: IntArray, shape: int, domain_of: IntArray, /) -> Iterator[IntArray]:
        """Only nodes of domains that no other tenant uses have room."""
        if self._tenants.alone(shape):
            yield np.where(self.later.is_open(shape), room, 0)

    def reasons(self, shape: int, pod: int, nodes: BoolArray, /) -> Mapping[str, int]:
        """By domain where few are closed."""
        return Counter(text for node, text in texts_by_node(self.later, shape).items() if nodes[node])
