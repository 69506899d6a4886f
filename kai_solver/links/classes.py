"""GPUs that nothing tells apart are counted: sets of a graph become vectors of counts.

Two GPUs are *identical* where they have the same grade to every third one. That is an equivalence, and within a
class all grades are equal, so what a set is worth depends on how many GPUs of each class it has. Eight GPUs on a switch
are 9 such states instead of 256 sets, four switches of eight GPUs 6,561 instead of 4 billion.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.errors import InternalError
from kai_solver.links.graph import NVLINK, PATHS, STEP, Ints, LinkGraph

MOST_STATES = 1 << 19
"""Beyond it grades are made coarser until the states are fewer; each takes some 150 bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """C classes of G GPUs.

    Attributes
    ----------
    members
        GPUs of each class, ascending; classes are in the order of their first ones.
    between
        Grade between and within classes, shape (C, C); 0 within a class of one GPU.
    radix
        What one GPU more of a class adds to the number of a state, shape (C,).
    masks
        Bits of each class's GPUs, shape (C,).
    notice
        What was taken for equal although it is not; empty for most.
    """

    members: tuple[tuple[int, ...], ...]
    between: Ints
    radix: NDArray[np.int64]
    masks: NDArray[np.uint64]
    notice: str = ""

    @property
    def states(self) -> int:
        """S, the number of states."""
        return int(self.radix[0]) * (len(self.members[0]) + 1)

    def state_of(self, masks: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Numbers of the states of sets of GPUs, shape (N,)."""
        states = np.zeros(len(masks), dtype=np.int64)
        for own, radix in zip(self.masks, self.radix.tolist(), strict=True):
            states += np.bitwise_count(masks & own).astype(np.int64) * radix
        return states

    def state_of_one(self, mask: int) -> int:
        """Number of the state of one set."""
        counts = [(mask & own).bit_count() for own in self.masks.tolist()]
        return sum(count * radix for count, radix in zip(counts, self.radix.tolist(), strict=True))

    def counts(self) -> NDArray[np.int16]:
        """GPUs of each class in each state, shape (S, C)."""
        sizes = np.array([len(own) + 1 for own in self.members])
        counts: NDArray[np.int16] = (np.arange(self.states)[:, None] // self.radix % sizes).astype(np.int16)
        return counts


def like_gpus(graph: LinkGraph) -> tuple[tuple[int, ...], ...]:
    """GPUs that nothing tells apart, in the order of their first ones."""
    return tuple(map(tuple, _identical_gpus(graph.grade)))


def classes_of(graph: LinkGraph, most_states: int = MOST_STATES) -> Classes:
    """Classes of identical GPUs, by grades as they are or, if there are too many states, by coarser ones.

    Coarser means: the nearest PCIe path is taken as the next one, step by step, until all pairs are equal.
    """
    for notice, grade in _coarser(graph):
        members = _identical_gpus(grade)
        if np.prod([len(own) + 1.0 for own in members]) <= most_states:
            return _classes(members, grade, notice)
    raise InternalError("GPUs that are all identical are more than one class")


def _classes(members: list[list[int]], grade: Ints, notice: str) -> Classes:
    firsts, lasts = [own[0] for own in members], [own[-1] for own in members]
    sizes = [len(own) + 1 for own in members]
    radix = np.cumprod([1, *sizes[:0:-1]])[::-1].astype(np.int64)
    masks = np.array([sum(1 << gpu for gpu in own) for own in members], dtype=np.uint64)
    between = grade[np.ix_(firsts, lasts)]  # within a class: its first to its last GPU
    return Classes(tuple(map(tuple, members)), np.maximum(between, between.T), radix, masks, notice)


def _identical_gpus(grade: Ints) -> list[list[int]]:
    found: list[list[int]] = []
    for gpu in range(len(grade)):
        for own in found:
            apart = grade[gpu] != grade[own[0]]
            apart[[gpu, own[0]]] = False
            if not apart.any():
                own.append(gpu)
                break
        else:
            found.append([gpu])
    return found


def _coarser(graph: LinkGraph) -> Iterator[tuple[str, Ints]]:
    grade = graph.grade
    is_nvlink, apart = grade % STEP == NVLINK, ~np.eye(graph.gpus, dtype=np.bool_)
    yield "", grade
    why = "links are too irregular for this many GPUs: "
    for near in np.unique(grade[apart & ~is_nvlink])[-2::-1].tolist():
        path = PATHS[near % STEP]
        yield f"{why}paths nearer than {path} are taken as {path}", np.where(is_nvlink, grade, np.minimum(grade, near))
    one = np.where(apart, grade[apart].min(initial=_ANY), 0)
    yield f"{why}all pairs are taken as equal", one.astype(np.int32)


_ANY = np.iinfo(np.int32).max
