"""Host ports in use while a plan is made: once all has been carried out, and meanwhile."""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem import Problem
from kai_solver.problem.rules import Ledger
from kai_solver.rules.host_ports.problem import NAME, TAKEN, HostPorts

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class PortLedger(Ledger):
    """Ports by node: ``_later`` after the plan; ``_now`` with pods that are leaving, and all new ones."""

    kind = NAME

    def __init__(self, problem: Problem, ports: HostPorts) -> None:
        self._problem = problem
        self._asked = ports.table.asked
        self._later, self._now = ports.later.copy(), ports.now.copy()
        self._placed = Counter[tuple[int, int]]()

    def is_plain(self, shape: int, /) -> bool:
        """True for pods without host ports."""
        return shape not in self._asked

    def mask(self, shape: int, pod: int, /) -> BoolArray | None:
        """(N,) nodes on which its ports are free; None for a pod without any."""
        return self._later.is_free(shape) if shape in self._asked else None

    def place(self, shape: int, pod: int, node: int, count: int, sign: int, *, now: bool) -> None:
        """A pod that waits for its place has its ports promised."""
        if shape in self._asked:
            self._later.add(shape, node, sign * count)
            self._now.add(shape, node, sign * count)
            self._placed[shape, node] += sign * count

    def leave(self, shape: int, pod: int, node: int, count: int, sign: int, /) -> None:
        """Until a pod has left, its ports are taken."""
        if shape in self._asked:
            self._later.add(shape, node, -sign * count)

    def may_start(self, shape: int, pod: int, node: int, /) -> bool:
        """False where a pod has the port that is to leave first."""
        return shape not in self._asked or bool(self._now.is_free(shape)[node])

    def may_return(self, pod: int, /) -> bool:
        """True where its ports are free again where it ran."""
        shape = self._problem.pod_shape[pod]
        return shape not in self._asked or bool(self._later.is_free(shape)[self._problem.pod_node[pod]])

    def holds(self) -> bool:
        """Whether every pod that was given a place has its ports for itself."""
        placed = (at for at, count in self._placed.items() if count)
        return not any(self._later.has_clash(shape, node) for shape, node in placed)

    def room(self, room: IntArray, shape: int, domain_of: IntArray, /) -> Iterator[IntArray]:
        """Only nodes on which the ports of ``shape`` are free have room."""
        if shape in self._asked:
            yield np.where(self._later.is_free(shape), room, 0)

    def reasons(self, shape: int, pod: int, nodes: BoolArray, /) -> Mapping[str, int]:
        """Kubernetes' text for all of them."""
        return {TAKEN: int(nodes.sum())} if nodes.any() else {}
