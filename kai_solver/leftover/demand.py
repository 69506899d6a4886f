"""The demand that usually arrives, by kind of pod: arrays, one row a kind."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kai_solver.units import MILLI

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Demand:
    """Kinds of pods.

    Attributes
    ----------
    cpu
        What a pod takes of the CPU of each type of node, thousandths, shape (C, T). Where memory is scarcer than CPU it
        may count as the CPU that comes with it.
    gpus, milli
        Number of GPUs, and thousandths of each, shape (C,); both 0 where a pod needs none. Several are whole ones.
    allowed
        Types of nodes on which it may run and on which, empty, it fits, shape (C, T).
    """

    cpu: Ints
    gpus: Ints
    milli: Ints
    allowed: Bools

    @property
    def total_milli(self) -> Ints:
        """Thousandths of GPUs in all, shape (C,)."""
        return self.gpus * self.milli

    @property
    def unit(self) -> int:
        """Largest step, in thousandths of a GPU, of which every size is a multiple."""
        sizes = self.milli[self.gpus == 1]
        return int(np.gcd.reduce(np.append(sizes, MILLI)))

    @property
    def steps(self) -> list[int]:
        """Sizes of the pods of at most one GPU, in units, ascending."""
        return sorted({int(milli) // self.unit for milli in self.milli[self.gpus == 1]})

    @property
    def levels(self) -> int:
        """Steps of a whole GPU."""
        return MILLI // self.unit
