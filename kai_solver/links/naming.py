"""Indices for the GPUs of all pods that are placed on one node: pods with whole GPUs, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

from kai_solver.links.choice import RowWish
from kai_solver.links.survey import LinkTables


@dataclass(frozen=True, slots=True)
class Asking:
    """A pod that comes to a node for ``count`` whole GPUs; ``at_once``: not only when others have left."""

    at_once: bool
    count: int
    wish: RowWish | None = None

    @property
    def naming_order(self) -> tuple[bool, int, int]:
        """Sort key: pods that start now, then those that require a row, those that prefer one, and the largest."""
        strictness = 2 if self.wish is None else 1 - self.wish.is_required
        return not self.at_once, strictness, -self.count


@dataclass(slots=True)
class Board:
    """GPUs of one node, as masks: all of them, those held now, and those still held when the plan is done."""

    every: int
    now: int = 0
    later: int = 0

    def free(self, asking: Asking) -> int:
        """What a pod may have."""
        return self.every & ~(self.later | (self.now if asking.at_once else 0))

    def give(self, tables: LinkTables, kind: int, asking: Asking) -> int | None:
        """The best set for the next pod, which is taken then; None where there is none."""
        mask = tables.pick(kind, self.free(asking), asking.count, asking.wish)
        self.later |= mask or 0
        return mask


def name_all(tables: LinkTables, kind: int, board: Board, asking: Sequence[Asking]) -> list[int] | None:
    """Masks for each of ``asking``, chosen in their turns; None where one finds no set. The board is taken along."""
    found = [0] * len(asking)
    for at in sorted(range(len(asking)), key=lambda at: asking[at].naming_order):
        mask = board.give(tables, kind, asking[at])
        if mask is None:
            return None
        found[at] = mask
    return found
