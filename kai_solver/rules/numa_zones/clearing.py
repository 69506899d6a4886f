"""Making room in NUMA zones: the cheapest units whose leaving lets one more pod be aligned on a node."""

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.rules import Clearing
from kai_solver.rules.numa_zones.alignment import NAME, Alignment
from kai_solver.rules.numa_zones.table import ZoneTable, ZoneTake

IntArray = NDArray[np.int64]

SETS_TRIED = 64
"""Sets of zones emptied in thought, per node; nodes of 8 zones have 28 pairs and 56 triples."""


class ZoneClearing(Clearing):
    """For one shape that is aligned; only units whose zones are known free any. ``future``: the ledger's own."""

    def __init__(self, pool: VictimPool, table: ZoneTable, future: IntArray, alignment: Alignment) -> None:
        self.pool = pool
        self.table = table
        self.future = future
        self.alignment = alignment

    def suffices(self, node: int, units: Iterable[int], candidates: Sequence[int], /) -> bool:
        """True where one more pod is aligned once ``units`` have left; also where the node's zones do not bind."""
        return self._suffices(node, units)

    def _suffices(self, node: int, units: Iterable[int]) -> bool:
        row = int(self.table.row_of[node])
        if row < 0 or not self.table.binding[row]:
            return True
        free = self.future[row].copy()
        for unit in units:
            for zone, amounts in self._held(unit, node):
                free[zone] += np.array(amounts, dtype=np.int64)
        return self.table.align(self.alignment, row, free) is not None

    def free(self, node: int, chosen: dict[int, None], candidates: Sequence[int], /) -> bool:
        """Add to ``chosen`` the cheapest of ``candidates`` that make room; False where even all do not suffice.

        For every set of zones of the width that the pod needs, the units in it leave, cheapest first; the cheapest set
        wins. What several containers need in different zones is found by letting all units leave.
        """
        if self._suffices(node, chosen):
            return True
        row = int(self.table.row_of[node])
        others = [u for u in candidates if u not in chosen and self._held(u, node)]
        others.sort(key=lambda unit: (self.pool.cost[unit], unit))
        best: tuple[float, list[int]] | None = None
        for zones in self._targets(row):
            inside = [u for u in others if any(zone in zones for zone, _ in self._held(u, node))]
            found = self._leave(node, list(chosen), inside)
            price = sum(self.pool.cost[u] for u in found or ())
            if found is not None and (best is None or price < best[0]):
                best = price, found
        if best is None:
            return False
        chosen.update(dict.fromkeys(best[1]))
        return True

    def _held(self, unit: int, node: int) -> ZoneTake:
        grants: Sequence[ZoneTake] = self.pool.hold(unit, node).grants.get(NAME, ())
        return tuple(part for grant in grants for part in grant)

    def _targets(self, row: int) -> list[frozenset[int]]:
        """Sets of zones to look at, and all zones at last."""
        count = len(self.table.names[row])
        width = max(self.table.widths(self.alignment).together[row], default=1)
        sets = [
            frozenset(zones) for zones, _ in zip(combinations(range(count), width), range(SETS_TRIED), strict=False)
        ]
        return [*sets, frozenset(range(count))]

    def _leave(self, node: int, chosen: list[int], order: list[int]) -> list[int] | None:
        """Units of ``order`` taken one by one until the pod fits, without those that turn out not to matter."""
        taken: list[int] = []
        for unit in order:
            taken.append(unit)
            if self._suffices(node, [*chosen, *taken]):
                break
        else:
            return None
        for unit in reversed(taken[:-1]):
            rest = [u for u in taken if u != unit]
            if self._suffices(node, [*chosen, *rest]):
                taken = rest
        return taken
