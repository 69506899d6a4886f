"""Nodes that are to be drained, while a plan is made: what is closed to a pod does not change."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem.rules import Ledger
from kai_solver.rules.maintenance.problem import NAME, DrainTimes
from kai_solver.rules.maintenance.words import reasons

BoolArray = NDArray[np.bool_]


class DrainLedger(Ledger):
    """Pods that run may stay where they are."""

    kind = NAME

    def __init__(self, times: DrainTimes) -> None:
        self._times = times

    def is_plain(self, shape: int, /) -> bool:
        return not self._times.closes(shape)

    def mask(self, shape: int, pod: int, /) -> BoolArray | None:
        closed = self._times.closed(shape)
        return None if closed is None else ~closed

    def may_return(self, pod: int, /) -> bool:
        return True

    def reasons(self, shape: int, pod: int, nodes: BoolArray, /) -> dict[str, int]:
        return reasons(self._times, nodes)
