"""Which GPUs a pod gets: the best set of a node's free ones, and what else there was."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import GpuRequest
from kai_solver.errors import InputError
from kai_solver.links.tables import LinkTable

ROWS = ("contiguous", "aligned")
"""``contiguous``: GPUs i, i + 1, ...; ``aligned``: the same, and i is a multiple of their number."""

WISHES = tuple(f"{row}-{bond}" for row in ROWS for bond in ("required", "preferred"))


@dataclass(frozen=True, slots=True)
class RowWish:
    """GPUs whose indices are in a row.

    ``is_required``: no others will do; else they are taken where some are free.
    """

    row: str
    is_required: bool

    @classmethod
    def parse(cls, text: str, field: str = "") -> "RowWish":
        """Wish of ``contiguous-required``, ``aligned-preferred``, ...

        Raises
        ------
        InputError
            It is none of these.
        """
        word = text.strip().lower()
        if word not in WISHES:
            raise InputError(f"{text!r} is not known", field=field, cure=f"Choose from {', '.join(WISHES)}")
        row, bond = word.split("-")
        return cls(row, bond == "required")


@lru_cache(maxsize=256)
def row_wish(gpu: GpuRequest) -> RowWish | None:
    """The row that a pod wants; None where any GPUs will do."""
    return RowWish.parse(gpu.row) if gpu.row and gpu.is_whole else None


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of GPUs of a node.

    Attributes
    ----------
    gpus
        Their indices, ascending.
    ring
        The same in the order of the best ring, which begins at the first; neighbours have the fastest links there are.
    bottleneck_gb_s
        GB/s of the weakest link of that ring, or of the pair; 0 for one GPU, and where links are not known.
    weakest
        What that link is: ``NV2``, ``SYS``; empty for one GPU.
    sum_gb_s
        GB/s of all pairs together.
    leftover
        What the rest is worth to pods that may still arrive; the empty node is 1.
    """

    gpus: tuple[int, ...]
    ring: tuple[int, ...]
    bottleneck_gb_s: int
    weakest: str
    sum_gb_s: int
    leftover: float


def choose(table: LinkTable, free: int, count: int, wish: RowWish | None = None) -> Choice | None:
    """The best ``count`` of the free GPUs (a mask); None where the node cannot serve so many, or not as required.

    Order: the weakest link of the best ring, what the rest is still good for, the sum over pairs, the lowest indices.
    """
    found = alternatives(table, free, count, 1, wish)
    return found[0] if found else None


def alternatives(table: LinkTable, free: int, count: int, most: int, wish: RowWish | None = None) -> tuple[Choice, ...]:
    """Up to ``most`` sets, the best first; of sets that nothing tells apart only the one of the lowest GPUs.

    GPUs in a row differ by their indices: sets that are otherwise equal are listed one by one.
    """
    return tuple(_as_choice(table, free, mask) for mask in best_masks(table, free, count, most, wish))


def best_masks(table: LinkTable, free: int, count: int, most: int = 1, wish: RowWish | None = None) -> list[int]:
    """GPUs of the same sets as masks, without what there is to tell about them."""
    if not 1 <= count <= free.bit_count():
        return []
    if wish is not None:
        rows = [mask for mask in row_masks(table.graph.gpus, count, wish.row) if mask & ~free == 0]
        if rows or wish.is_required:
            return _best_first(table, free, rows)[:most]
    state = table.classes.state_of_one(free)
    states = table.ranked(state, table.candidates(state, count))[:most].tolist()
    return [mask_of_state(table, free, chosen) for chosen in states]


def mask_of_state(table: LinkTable, free: int, state: int) -> int:
    """The lowest free GPUs of each class that make up ``state``."""
    taken = 0
    for members, count in zip(table.classes.members, table.counts[state].tolist(), strict=True):
        own = [gpu for gpu in members if free >> gpu & 1]
        taken |= mask_of(own[:count])
    return taken


def row_masks(gpus: int, count: int, row: str) -> list[int]:
    """Sets of ``count`` GPUs in a row, the lowest first."""
    step = count if row == "aligned" else 1
    return [((1 << count) - 1) << first for first in range(0, gpus - count + 1, step)]


def tightest_row(free: int, count: int, row: str) -> int:
    """Of the free rows of ``count`` GPUs that in the shortest stretch of free ones, as a mask; 0: there is none."""
    rows = [mask for mask in row_masks(free.bit_length(), count, row) if mask & ~free == 0]
    return min(rows, key=lambda mask: stretch(free, mask), default=0)


def stretch(free: int, row: int) -> int:
    """Free GPUs in a row of which ``row`` is a part."""
    wider = row
    while wider != (wider | wider << 1 | wider >> 1) & free:
        wider = (wider | wider << 1 | wider >> 1) & free
    return wider.bit_count()


def largest_free_row(free: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The most free GPUs in a row in each mask, shape (N,)."""
    runs, longest = free.copy(), np.zeros(len(free), dtype=np.int64)
    while runs.any():
        longest += runs != 0
        runs &= runs << np.uint64(1)
    return longest


def mask_of(gpus: Iterable[int]) -> int:
    """Bits of GPUs."""
    return sum(1 << gpu for gpu in set(gpus))


def masks_of(free: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Masks of rows of GPUs that are free or not, shape (N, D) to (N,); D is 64 at most."""
    bits = np.uint64(1) << np.arange(free.shape[1], dtype=np.uint64)
    masks: NDArray[np.uint64] = np.where(free, bits, np.uint64(0)).sum(axis=1, dtype=np.uint64)
    return masks


def gpus_of(mask: int) -> tuple[int, ...]:
    """GPUs of a mask, ascending."""
    return tuple(gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1)


def _best_first(table: LinkTable, free: int, masks: Sequence[int]) -> list[int]:
    state_of = table.classes.state_of_one
    whole = state_of(free)

    def worth(mask: int) -> tuple[int, int, int, int]:
        state = state_of(mask)
        return -int(table.grade[state]), -int(table.leftover[whole - state]), -int(table.sums[state]), mask

    return sorted(masks, key=worth)


def _as_choice(table: LinkTable, free: int, mask: int) -> Choice:
    graph, gpus = table.graph, gpus_of(mask)
    ring = _ring(table, mask)
    weak = _weakest(table, ring)
    pairs = [(one, other) for one in gpus for other in gpus if one < other]
    return Choice(
        gpus=gpus,
        ring=ring,
        bottleneck_gb_s=int(graph.gb_s[weak]) if weak else 0,
        weakest=graph.kind(*weak) if weak else "",
        sum_gb_s=sum(int(graph.gb_s[pair]) for pair in pairs),
        leftover=int(table.leftover[table.classes.state_of_one(free & ~mask)]) / max(table.most_leftover, 1),
    )


def weakest_pair(table: LinkTable, mask: int) -> tuple[int, int] | None:
    """The GPUs of the weakest link of the best ring of a set; None for one GPU."""
    return _weakest(table, _ring(table, mask))


def _weakest(table: LinkTable, ring: Sequence[int]) -> tuple[int, int] | None:
    turns = list(zip(ring, (*ring[1:], ring[0]), strict=True)) if len(ring) > 1 else []
    return min(turns, key=lambda turn: int(table.graph.grade[turn]), default=None)


def _ring(table: LinkTable, mask: int) -> tuple[int, ...]:
    """GPUs of ``mask`` in the order of the best ring: the table's paths, walked back."""
    classes, state, left = table.classes, table.classes.state_of_one(mask), mask
    close = classes.between[int((table.counts[state] > 0).argmax())]
    order: list[int] = []
    while left:
        last = int(np.minimum(table.path[state], close).argmax())
        gpu = next(gpu for gpu in reversed(classes.members[last]) if left >> gpu & 1)
        order.append(gpu)
        left ^= 1 << gpu
        state, close = state - int(classes.radix[last]), classes.between[:, last]
    return tuple(reversed(order))
