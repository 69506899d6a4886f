"""The best set by looking at all of them, written from the definition; no code is shared with `kai_solver.links`."""

from collections.abc import Mapping
from itertools import combinations, permutations

import numpy as np

Worth = tuple[int, int, int]
"""Grade of the weakest link of the best ring, leftover, sum of grades: the larger the better."""


def weights(gpus: int) -> dict[int, int]:
    """Powers of two count four times; only sizes that leave a GPU count."""
    return {size: 4 if size in (2, 4, 8, 16, 32) else 1 for size in range(2, gpus)}


class Brute:
    """Worth of all sets of a node, by sets of GPUs; up to 8 GPUs."""

    def __init__(
        self, grade: "np.ndarray[tuple[int, ...], np.dtype[np.int32]]", sizes: Mapping[int, int] | None = None
    ):
        self.grade: list[list[int]] = grade.tolist()
        self.gpus = len(self.grade)
        self.sizes = weights(self.gpus) if sizes is None else dict(sizes)
        every = [frozenset(found) for k in range(self.gpus + 1) for found in combinations(range(self.gpus), k)]
        self.weakest = {found: self._weakest(sorted(found)) for found in every}
        self.sums = {found: sum(self.grade[a][b] for a, b in combinations(sorted(found), 2)) for found in every}
        self.left = {found: self._leftover(found) for found in every}

    def _weakest(self, gpus: list[int]) -> int:
        if len(gpus) < 2:
            return 0
        if len(gpus) == 2:
            return self.grade[gpus[0]][gpus[1]]
        rings = ((gpus[0], *rest) for rest in permutations(gpus[1:]))
        return max(min(self.grade[a][b] for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)) for ring in rings)

    def _best(self, free: frozenset[int], size: int) -> int:
        return max((self.weakest[frozenset(found)] for found in combinations(sorted(free), size)), default=-1)

    def _leftover(self, free: frozenset[int]) -> int:
        whole = frozenset(range(self.gpus))
        total = 0
        for size, weight in self.sizes.items():
            best, most = self._best(free, size), self._best(whole, size)
            if best >= 0:
                total += weight * (1000 * best // most if most else 1000)
        return total

    def worth(self, free: frozenset[int], chosen: frozenset[int]) -> Worth:
        return self.weakest[chosen], self.left[free - chosen], self.sums[chosen]

    def best(self, free: frozenset[int], count: int) -> Worth | None:
        """Worth of the best ``count`` of ``free``; None where there are not so many."""
        sets = map(frozenset, combinations(sorted(free), count))
        return max((self.worth(free, chosen) for chosen in sets), default=None)


def weakest_of_all_sets(
    grade: "np.ndarray[tuple[int, ...], np.dtype[np.int32]]",
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Weakest link of the best ring of every mask of up to 16 GPUs, by thresholds.

    For each grade from the lowest up: ``ends[mask]`` are the GPUs at which a path over all of ``mask`` can end that
    begins at its lowest GPU and uses links of that grade only. A ring is there where an end is joined to the beginning.
    """
    gpus = len(grade)
    found = np.zeros(1 << gpus, dtype=np.int64)
    for threshold in np.unique(grade[~np.eye(gpus, dtype=bool)]).tolist():
        near = [sum(1 << b for b in range(gpus) if a != b and grade[a][b] >= threshold) for a in range(gpus)]
        ends = [0] * (1 << gpus)
        for mask in range(1, 1 << gpus):
            first = (mask & -mask).bit_length() - 1
            if mask == 1 << first:
                ends[mask] = mask
                continue
            rest = mask & (mask - 1)
            while rest:
                bit = rest & -rest
                rest ^= bit
                if ends[mask ^ bit] & near[bit.bit_length() - 1]:
                    ends[mask] |= bit
            if ends[mask] & near[first]:
                found[mask] = threshold
    return found
