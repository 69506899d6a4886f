"""The smallest arrays of a board: what kernels are compiled for."""

import numpy as np

from kai_solver.actions.board.arrays import (
    BOUNDLESS,
    NONE,
    NUMBERS,
    OUT,
    WIDTH,
    Arrays,
    Domains,
    Gangs,
    Nodes,
    Queues,
    Record,
    Scratch,
    Shapes,
    Units,
    Zones,
)
from kai_solver.fairness.kernels import Tree


def smallest() -> Arrays:
    """One node, one queue, one gang that does not wait, and one unit."""

    def ints(*size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.zeros(size, dtype=np.int64)

    def floats(*size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.zeros(size, dtype=np.float64)

    def flags(*size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.zeros(size, dtype=np.bool_)

    none = ints(1) + NONE
    nodes = Nodes(
        ints(1, 4), ints(1, 4), ints(1), ints(1), ints(1), flags(1, 2), ints(1, 2), ints(1, 2), ints(1), flags(1),
        ints(1), flags(1), ints(1), ints(1), ints(1), 2, 0, 3,
    )  # fmt: skip
    shapes = Shapes(ints(1, 4), ints(1), ints(1), flags(1, 1), ints(1, 0))
    zones = Zones(
        none, flags(1, 4), ints(1, 2, 4), ints(1, 2, 4), ints(1, 4), ints(1, 1), ints(2, 2, 4), ints(1, 2, 4),
        ints(1, 2, 4),
    )  # fmt: skip
    domains = Domains(ints(1, 1), none, ints(1, 1), ints(1, 1), ints(1, 2), ints(1, 1), ints(1))
    gangs = Gangs(
        ints(1) + OUT, ints(1), ints(1), ints(1), none, ints(1, 3), ints(1), flags(1), flags(1), ints(1),
        ints(1), ints(1),
    )  # fmt: skip
    tree = Tree(none, ints(1), ints(1, 3), ints(1, 3), ints(1, 3), 1.0)
    queues = Queues(
        tree, np.array([0, 0, 1], dtype=np.int64), ints(1), np.array([0, 1], dtype=np.int64), ints(1), ints(1, 3),
        floats(1, 3), flags(1, 3), ints(1), ints(1), ints(1, 3), ints(1, 3),
        ints(2), ints(1), ints(1), none, floats(1, 6), ints(1), ints(1),
    )  # fmt: skip
    units = Units(
        ints(1), floats(1), ints(1), ints(1), ints(1, 3), flags(1), ints(1), ints(1), none, ints(2), ints(1),
        ints(2), ints(1), ints(2), ints(2), ints(2), ints(2), ints(2, 4), np.array([1, 2], dtype=np.int64), none,
        ints(2) + NONE, flags(1),
    )  # fmt: skip
    record = Record(ints(NUMBERS), ints(1, 6), ints(1), flags(1), ints(1), ints(3, 2), ints(1))
    scratch = Scratch(
        floats(1), floats(1), floats(1, 1), floats(1, 1, 1), flags(1), ints(1), ints(64), none, ints(1), ints(1),
        floats(1), ints(1), ints(1), ints(1), ints(1, 3), floats(1, 3), ints(1, 3), ints(1, 3), ints(2), ints(2),
        flags(2), ints(2), ints(2), ints(WIDTH + 2), floats(WIDTH + 2), ints(WIDTH + 2), ints(2), flags(2),
        floats(2, 6), ints(1, 3),
    )  # fmt: skip
    return Arrays(nodes, shapes, zones, domains, gangs, queues, units, record, scratch, True, BOUNDLESS)
