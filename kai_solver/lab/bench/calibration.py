"""How fast this machine is at this moment: a fixed loop and a fixed search, so that runs of two machines compare.

Shared machines differ by a factor of two to three from hour to hour; times divided by this one differ by far less.
"""

import math
import time
from collections.abc import Callable

import numpy as np

from kai_solver.model.spec import ModelSpec
from kai_solver.search.child import SolverChild
from kai_solver.search.parameters import SolverParameters

_ROUNDS = 3
_ITEMS, _KNAPSACKS = 40, 6
_DETERMINISTIC_S = 0.01


def calibration_s() -> float:
    """Geometric mean of the seconds of a fixed loop and of a fixed search, each the best of three."""
    spec = _spec()
    parameters = SolverParameters(workers=1, seed=1, presolve="default", deterministic_s=_DETERMINISTIC_S)
    with SolverChild() as child:
        child.wait(10.0)
        searched = _best(lambda: child.solve(spec, parameters, time.monotonic() + 10.0))
    return math.sqrt(_best(_loop) * searched)


def _best(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _loop() -> int:
    """Plain Python and numpy, about half and half."""
    values = np.arange(100_000, dtype=np.int64) * 7919 % 100_003
    total = sum(i * i % 7 for i in range(100_000))
    for _ in range(5):
        total += int(np.sort(values)[1000])
    return total


def _spec() -> ModelSpec:
    """Items into knapsacks, heavy enough that the search uses up its deterministic time."""
    draw = np.random.default_rng(1)
    weight, worth = draw.integers(10, 60, _ITEMS).tolist(), draw.integers(10, 60, _ITEMS).tolist()
    spec = ModelSpec()
    put = [[spec.bool_var() for _ in range(_KNAPSACKS)] for _ in range(_ITEMS)]
    for row in put:
        spec.at_most_one(row, family="item")
    for k in range(_KNAPSACKS):
        spec.add_le([(weight[i], put[i][k]) for i in range(_ITEMS)], 150, family="knapsack")
    spec.minimize([(-worth[i], var) for i, row in enumerate(put) for var in row])
    return spec
