"""Making room in NUMA zones: the cheapest units whose leaving lets one more pod be aligned on a node."""

from collections.abc import Iterable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.victims import VictimPool
from kai_solver.planstate.zones import ZoneLedger
from kai_solver.problem.alignment import Alignment

IntArray = NDArray[np.int64]

SETS_TRIED = 64
"""Sets of zones emptied in thought, per node; nodes of 8 zones have 28 pairs and 56 triples."""


class ZoneRoom:
    """For one shape that is aligned; only units whose zones are known free any."""

    def __init__(self, pool: VictimPool, ledger: ZoneLedger, alignment: Alignment) -> None:
        self.pool = pool
        self.ledger = ledger
        self.alignment = alignment

    def suffice(self, node: int, units: Iterable[int]) -> bool:
        """True where one more pod is aligned once ``units`` have left; also where the node's zones do not bind."""
        row = self.ledger.row(node)
        if row < 0 or not self.ledger.table.binding[row]:
            return True
        return self.ledger.aligns(self.alignment, row, self._given_back(node, row, units))

    def free(self, node: int, chosen: dict[int, None], candidates: list[int]) -> bool:
        """Add to ``chosen`` the cheapest of ``candidates`` that make room; False where even all do not suffice.

        For every set of zones of the width that the pod needs, the units in it leave, cheapest first; the
        cheapest set wins. What several containers need in different zones is found by letting all units leave.
        """
        if self.suffice(node, chosen):
            return True
        row = self.ledger.row(node)
        sitting = [u for u in candidates if u not in chosen and self.pool.hold(u, node).zones]
        sitting.sort(key=lambda unit: (self.pool.cost[unit], unit))
        best: tuple[float, list[int]] | None = None
        for zones in self._targets(row):
            inside = [u for u in sitting if any(zone in zones for zone, _ in self.pool.hold(u, node).zones)]
            found = self._leave(node, list(chosen), inside)
            price = sum(self.pool.cost[u] for u in found or ())
            if found is not None and (best is None or price < best[0]):
                best = price, found
        if best is None:
            return False
        chosen.update(dict.fromkeys(best[1]))
        return True

    def _targets(self, row: int) -> list[frozenset[int]]:
        """Sets of zones to look at, and all zones at last."""
        count = len(self.ledger.table.names[row])
        width = max(self.ledger.table.widths(self.alignment).together[row], default=1)
        sets = [
            frozenset(zones) for zones, _ in zip(combinations(range(count), width), range(SETS_TRIED), strict=False)
        ]
        return [*sets, frozenset(range(count))]

    def _leave(self, node: int, chosen: list[int], order: list[int]) -> list[int] | None:
        """Units of ``order`` taken one by one until the pod fits, without those that turn out not to matter."""
        taken: list[int] = []
        for unit in order:
            taken.append(unit)
            if self.suffice(node, [*chosen, *taken]):
                break
        else:
            return None
        for unit in reversed(taken[:-1]):
            rest = [u for u in taken if u != unit]
            if self.suffice(node, [*chosen, *rest]):
                taken = rest
        return taken

    def _given_back(self, node: int, row: int, units: Iterable[int]) -> IntArray:
        extra: IntArray = np.zeros_like(self.ledger.future[row])
        for unit in units:
            for zone, amounts in self.pool.hold(unit, node).zones:
                extra[zone] += np.array(amounts, dtype=np.int64)
        return extra


def zone_room(pool: VictimPool, shape: int) -> ZoneRoom | None:
    """None where zones say nothing about pods of ``shape``."""
    ledger = pool.state.zones
    alignment = pool.state.problem.shapes.shapes[shape].alignment
    return ZoneRoom(pool, ledger, alignment) if ledger is not None and alignment is not None else None
