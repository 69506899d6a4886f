"""Scores of the baselines, written from the paper's definitions and the protocol: integers 0..100, larger is better."""

from typing import Protocol

import numpy as np

from kai_solver.lab.experiments.cluster import Cluster, Devices, take_whole
from kai_solver.lab.experiments.fragmentation import Fragmentation
from kai_solver.lab.experiments.trace import Floats, Ints, Shape
from kai_solver.units import MILLI

_CPU_SCALE, _GPU_SCALE = 128_000, 8_000
"""The trace's largest node: what BestFit measures what is left by."""


class Score(Protocol):
    """How a baseline judges nodes."""

    def of(self, cluster: Cluster, shape: Shape, nodes: Ints) -> Ints:
        """Score of ``nodes`` that can host ``shape``, shape (K,)."""

    def devices(self, cluster: Cluster, shape: Shape, node: int) -> Devices:
        """GPUs of the chosen node."""


class BestFit:
    """Least left over of CPU and GPU, each as a share of the largest node's."""

    def of(self, cluster: Cluster, shape: Shape, nodes: Ints) -> Ints:
        """See `Score`."""
        cpu = (cluster.cpu[nodes] - shape.cpu_milli) / _CPU_SCALE
        gpu = (cluster.free[nodes].sum(axis=1) - shape.total_milli) / _GPU_SCALE
        scores: Ints = (100 * (1 - 0.5 * cpu - 0.5 * gpu)).astype(np.int64)
        return scores

    def devices(self, cluster: Cluster, shape: Shape, node: int) -> Devices:
        """See `Score`."""
        return cluster.tightest(node, shape)


class Constant:
    """Every node equal, and a random one of the GPUs that are enough: with a random choice of nodes, policy random."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def of(self, cluster: Cluster, shape: Shape, nodes: Ints) -> Ints:  # noqa: ARG002 - the interface's
        """See `Score`."""
        return np.zeros(len(nodes), dtype=np.int64)

    def devices(self, cluster: Cluster, shape: Shape, node: int) -> Devices:
        """See `Score`."""
        enough = np.flatnonzero(cluster.free[node] >= shape.gpu_milli)
        return tuple(self._random.permutation(enough)[: shape.gpus].tolist())


class GradientDescent:
    """FGD: the placement that lets fragmentation grow least, ``int(100 * sigmoid((F before - F after) / 1000))``."""

    def __init__(self, fragmentation: Fragmentation) -> None:
        self._fragmentation = fragmentation

    def of(self, cluster: Cluster, shape: Shape, nodes: Ints) -> Ints:
        """See `Score`. States that are equal are judged once."""
        rows = np.column_stack((cluster.cpu[nodes], cluster.model[nodes], cluster.free[nodes]))
        if len(nodes) < _WORTH_GROUPING:
            alone: Ints = self._by_device(shape, rows).max(axis=1)
            return alone
        states, where = np.unique(rows, axis=0, return_inverse=True)
        scores: Ints = self._by_device(shape, states).max(axis=1)[where.ravel()]
        return scores

    def devices(self, cluster: Cluster, shape: Shape, node: int) -> Devices:
        """See `Score`; a share of a GPU goes to the first GPU of the best score."""
        if not 0 < shape.total_milli < MILLI:
            return cluster.tightest(node, shape)
        row = np.concatenate(([cluster.cpu[node], cluster.model[node]], cluster.free[node]))
        return (int(np.argmax(self._by_device(shape, row[None, :])[0])),)

    def _by_device(self, shape: Shape, states: Ints) -> Ints:
        """Scores, shape (K, D) for a share of a GPU (-1 where it does not fit) and (K, 1) for all else."""
        cpu, model, free = states[:, 0], states[:, 1], states[:, 2:]
        before = self._fragmentation.amount(cpu, free, model)
        if 0 < shape.total_milli < MILLI:
            return self._shares(shape, states, before)
        after = free.copy()
        if shape.gpus:
            take_whole(after, shape.gpus)
        return _sigmoid(before - self._fragmentation.amount(cpu - shape.cpu_milli, after, model))[:, None]

    def _shares(self, shape: Shape, states: Ints, before: Floats) -> Ints:
        free = states[:, 2:]
        scores = np.full(free.shape, -1, dtype=np.int64)
        k, device = np.nonzero(free >= shape.gpu_milli)
        after = free[k]
        after[np.arange(len(k)), device] -= shape.gpu_milli
        left = self._fragmentation.amount(states[k, 0] - shape.cpu_milli, after, states[k, 1])
        scores[k, device] = _sigmoid(before[k] - left)
        return scores


_WORTH_GROUPING = 64


def _sigmoid(gain: Floats) -> Ints:
    scores: Ints = (100.0 / (1.0 + np.exp(-gain / 1000.0))).astype(np.int64)
    return scores
