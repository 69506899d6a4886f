"""One pod after the other onto the nodes of the openb trace, as its authors' simulator does it (numpy over nodes).

Filters are those of their protocol: CPU, memory, pods, GPU model, and either one device with enough left or enough
wholly free devices. Equal scores go to the first node; inside the node the tightest device is taken.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kai_solver.units import MILLI

Policy = Literal["best-fit", "first-fit"]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

_CPU_SCALE, _GPU_SCALE = 128_000, 8_000
"""Largest node of the trace in both: what BestFit measures the rest by."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod asks for; ``models`` empty: any."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Index of the node, and the devices on it."""

    node: int
    devices: tuple[int, ...]


class Placement:
    """What is left on every node.

    Parameters
    ----------
    cpu_milli, memory_mib, gpus
        Of nodes, shape (N,).
    max_pods
        Of every node.
    models
        GPU model of nodes.
    """

    def __init__(self, *, cpu_milli: Ints, memory_mib: Ints, gpus: Ints, max_pods: int, models: list[str]) -> None:
        self._cpu = cpu_milli.astype(np.int64)
        self._memory = memory_mib.astype(np.int64)
        self._pods = np.full(gpus.shape, max_pods, dtype=np.int64)
        exists = np.arange(int(gpus.max(initial=0))) < gpus[:, None]
        self._devices: Ints = exists.astype(np.int64) * MILLI
        self._gpu_left: Ints = self._devices.sum(axis=1)
        self._most_left: Ints = self._devices.max(axis=1, initial=0)
        self._whole: Ints = (self._devices == MILLI).sum(axis=1)
        self._models = np.array(models)

    def place(self, demand: Demand, policy: Policy) -> Place | None:
        """Take what ``demand`` asks for on the node that ``policy`` prefers; None where it fits nowhere."""
        fits = np.flatnonzero(self._fits(demand))
        if not fits.size:
            return None
        node = int(fits[0] if policy == "first-fit" else fits[np.argmax(self._best_fit(fits, demand))])
        devices = self._tightest(node, demand)
        self._take(node, devices, demand)
        return Place(node, devices)

    def _fits(self, demand: Demand) -> Bools:
        fits: Bools = (self._cpu >= demand.cpu_milli) & (self._memory >= demand.memory_mib) & (self._pods > 0)
        if demand.gpus and demand.gpu_milli < MILLI and demand.gpus == 1:
            fits &= self._most_left >= demand.gpu_milli
        elif demand.gpus and demand.gpu_milli < MILLI:
            fits &= (self._devices >= demand.gpu_milli).sum(axis=1) >= demand.gpus
        elif demand.gpus:
            fits &= self._whole >= demand.gpus
        if demand.models:
            fits &= np.isin(self._models, demand.models)
        return fits

    def _best_fit(self, nodes: Ints, demand: Demand) -> Ints:
        """Scores 0..100 as the simulator computes them, truncation included: it makes ties, and ties go by name."""
        cpu_after = self._cpu[nodes] - demand.cpu_milli
        gpu_after = self._gpu_left[nodes] - demand.gpus * demand.gpu_milli
        scores: Ints = (100 * (1 - 0.5 * cpu_after / _CPU_SCALE - 0.5 * gpu_after / _GPU_SCALE)).astype(np.int64)
        return scores

    def _tightest(self, node: int, demand: Demand) -> tuple[int, ...]:
        left = self._devices[node]
        order = np.argsort(left, kind="stable")
        enough = [int(index) for index in order if left[index] >= max(demand.gpu_milli, 1)]
        return tuple(enough[: demand.gpus])

    def _take(self, node: int, devices: tuple[int, ...], demand: Demand) -> None:
        self._cpu[node] -= demand.cpu_milli
        self._memory[node] -= demand.memory_mib
        self._pods[node] -= 1
        row = self._devices[node]
        row[list(devices)] -= demand.gpu_milli
        self._gpu_left[node] = row.sum()
        self._most_left[node] = row.max(initial=0)
        self._whole[node] = np.count_nonzero(row == MILLI)
