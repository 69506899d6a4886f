"""What a node with little CPU is worth: the best first pod that fits as a whole, and the rest in fractions.

`ValueTable` shares CPU out in fractions, so a node with a free GPU and 10 cores has most of the worth of a pod of 11.
Any packing of usual pods has a first one, so the best of these bounds their value from above as well, and mostly lower.
A node that only rarer pods fit counts as worth nothing.
"""

from dataclasses import dataclass

import numpy as np

from kai_solver.lab.experiments.cluster import take_whole
from kai_solver.lab.experiments.trace import Bools, Floats, Ints
from kai_solver.leftover import Demand, ValueTable
from kai_solver.units import MILLI

KINDS = 40
"""The most frequent kinds of pods are tried as the first; on default they are 91% of the pods."""
TIGHT_PER_GPU, TIGHT_CPU = 14, 40_000
"""Thousandths of CPU: for each thousandth of a free GPU, and in all, below which a node has little of it. With twice as
much per GPU nothing is gained (cpu250, three seeds, 2026-11-28)."""
_NO_ROOM = MILLI + 1


@dataclass(frozen=True, slots=True)
class FirstPods:
    """Kinds of pods, F of them, that may come first, at what they are worth.

    Attributes
    ----------
    demand
        All kinds of pods.
    kinds
        Those that are tried; they are worth something.
    worth
        Of all kinds, shape (C,).
    """

    demand: Demand
    kinds: tuple[int, ...]
    worth: Floats

    @classmethod
    def of(cls, demand: Demand, worth: Floats, frequency: Floats) -> "FirstPods":
        """The most frequent kinds; ``frequency``: pods of each kind, shape (C,)."""
        often = np.argsort(-frequency, kind="stable")[:KINDS].tolist()
        return cls(demand, tuple(kind for kind in often if worth[kind] > 0), worth)

    @staticmethod
    def are_tight(cpu: Ints, free: Ints) -> Ints:
        """Which states, of ``cpu`` (K,) and ``free`` (K, D), have free GPUs and little CPU."""
        gpus = free.sum(axis=1)
        return np.flatnonzero((gpus > 0) & (cpu < TIGHT_PER_GPU * gpus) & (cpu < TIGHT_CPU))

    def value(self, table: ValueTable, cpu: Ints, free: Ints, kind: Ints) -> Floats:
        """Values of states, shape (K,): their free CPU (K,), free GPUs (K, D), and types of nodes (K,)."""
        best = np.zeros(len(cpu))
        for pod in self.kinds:
            need = self.demand.cpu[pod, kind]
            fits, after = self._seated(pod, free)
            rows = np.flatnonzero(fits & (need <= cpu) & self.demand.allowed[pod, kind])
            if rows.size:
                rest = table.of_nodes(cpu[rows] - need[rows], after[rows], kind[rows])
                best[rows] = np.maximum(best[rows], self.worth[pod] + rest)
        return best

    def _seated(self, pod: int, free: Ints) -> tuple[Bools, Ints]:
        """Where the GPUs suffice, and what is free with the pod: a share on the fullest GPU that takes it."""
        gpus, milli, after = int(self.demand.gpus[pod]), int(self.demand.milli[pod]), free.copy()
        if not gpus:
            return np.ones(len(free), dtype=np.bool_), after
        if milli < MILLI:
            room = np.where(free >= milli, free, _NO_ROOM)
            device = room.argmin(axis=1)
            after[np.arange(len(free)), device] -= milli
            return room.min(axis=1) < _NO_ROOM, after
        take_whole(after, gpus)
        return np.count_nonzero(free == MILLI, axis=1) >= gpus, after
