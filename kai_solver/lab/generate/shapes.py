"""How many pods gangs have, how many GPUs their pods, and which gangs are bound to a rack."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Shapes:
    """Of G gangs: ``pods`` and ``gpus`` of each pod (G,), and whether it is ``bound`` to a rack (G,)."""

    pods: Ints
    gpus: Ints
    bound: Bools

    @property
    def size(self) -> Ints:
        """(G,) GPUs of the gang."""
        return self.pods * self.gpus


def gang_sizes(count: int, largest: int, exponent: float) -> Ints:
    """(G,) pods of each gang, descending: the quantiles of a power law, so that every seed has the same load."""
    k = np.arange(1, largest + 1, dtype=np.float64)
    weight = k**-exponent
    cumulative = np.cumsum(weight / weight.sum())
    quantiles = (np.arange(count) + 0.5) / max(count, 1)
    return (np.searchsorted(cumulative, quantiles) + 1).astype(np.int64)[::-1]


def gpus_of(pods: Ints, shares: Mapping[int, float], draw: Generator) -> Ints:
    """(G,) GPUs of each gang's pods, such that the pods of all gangs come close to ``shares``.

    Gangs, largest first, draw among the sizes that are behind, weighted by how far.
    """
    sizes = np.array(sorted(shares), dtype=np.int64)
    target = np.array([shares[int(size)] for size in sizes])
    given = np.zeros(len(sizes))
    chosen = np.zeros(len(pods), dtype=np.int64)
    for i, count in enumerate(pods.tolist()):
        behind = np.maximum(target * (given.sum() + count) - given, 0.0)
        pick = int(draw.choice(len(sizes), p=behind / behind.sum()))
        given[pick] += count
        chosen[i] = sizes[pick]
    return chosen


def draw_shapes(
    count: int, *, largest: int, exponent: float, shares: Mapping[int, float], bound: float, rack: int, draw: Generator
) -> Shapes:
    """Shapes of ``count`` gangs, the largest first; ``bound`` is the share of them that must be in one rack.

    A gang that does not fit into an empty rack of ``rack`` GPUs is never bound to one.
    """
    pods = gang_sizes(count, largest, exponent)
    gpus = gpus_of(pods, shares, draw)
    fit = np.flatnonzero(pods * gpus <= rack)
    chosen = draw.permutation(fit)[: round(bound * count)]
    flags = np.zeros(count, dtype=np.bool_)
    flags[chosen] = True
    return Shapes(pods, gpus, flags)
