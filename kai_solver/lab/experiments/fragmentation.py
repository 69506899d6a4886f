"""Fragmentation of nodes as the paper defines it: free GPU capacity that a typical pod cannot use.

For a node n and a typical pod t: all free GPU capacity of n where n cannot host t (or t asks for no GPU), else the
capacity on GPUs that are too small for t. F(n) is the mean over typical pods by their frequency.
"""

from collections.abc import Sequence

import numpy as np

from kai_solver.lab.experiments.trace import Floats, Ints, Shape


class Fragmentation:
    """F of nodes, vectorised over them.

    Parameters
    ----------
    typical
        Typical pods and their frequencies, which sum to 1.
    models
        Names of GPU models.

    Typical pods of the same GPUs and models differ by CPU alone: they are one group, and the part of the group that a
    node can host is a step function of its free CPU.
    """

    def __init__(self, typical: Sequence[tuple[Shape, float]], models: Sequence[str]) -> None:
        hosted = [(shape, frequency) for shape, frequency in typical if shape.gpus]
        groups = sorted({(shape.gpus, shape.gpu_milli, shape.models) for shape, _ in hosted})
        self._gpus = np.array([gpus for gpus, _, _ in groups], dtype=np.int64)
        self._milli = np.array([milli for _, milli, _ in groups], dtype=np.int64)
        allowed = [[not names or model in names for _, _, names in groups] for model in models]
        self._allowed = np.array(allowed, dtype=np.bool_).reshape(len(models), len(groups))
        self._steps = np.unique(np.array([shape.cpu_milli for shape, _ in hosted], dtype=np.int64))
        self._mass = np.zeros((len(self._steps) + 1, len(groups)))
        for shape, frequency in hosted:
            first = int(np.searchsorted(self._steps, shape.cpu_milli)) + 1
            self._mass[first:, groups.index((shape.gpus, shape.gpu_milli, shape.models))] += frequency

    def amount(self, cpu: Ints, free: Ints, model: Ints) -> Floats:
        """F of states in thousandths of GPUs, shape (K,).

        Parameters
        ----------
        cpu, free, model
            Free CPU (K,), free thousandths of GPUs (K, D), index of the model (K,).
        """
        enough = free[:, None, :] >= self._milli[None, :, None]
        usable = np.where(enough, free[:, None, :], 0).sum(axis=2)
        hosts = (np.count_nonzero(enough, axis=2) >= self._gpus) & self._allowed[model]
        mass = self._mass[np.searchsorted(self._steps, cpu, side="right")] * hosts
        unused: Floats = free.sum(axis=1) - (mass * usable).sum(axis=1)
        return unused
