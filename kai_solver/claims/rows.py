"""Which sets of devices must be counted: by Hall's theorem, the unions of the sets that requests may take.

Requests on a node can all be met with different devices exactly if for every union U of their sets at least as many
devices of U are free as are asked for by the requests whose set is inside U. Sets without a common device need no
union: their rows add up to it.
"""

from collections.abc import Iterable

from kai_solver.claims.matching import Bits

MOST_ROWS = 64
"""Rows beyond it are not made: each costs every node a number, and unions of many overlapping sets are many."""


def close(sets: Iterable[Bits], most: int = MOST_ROWS) -> tuple[list[Bits], list[Bits]]:
    """Unions that must be counted, and the sets that were left out because they would need too many.

    Parameters
    ----------
    sets
        Distinct sets, the most important first.
    """
    closed: dict[Bits, None] = {}
    left_out: list[Bits] = []
    bases: list[Bits] = []
    for new in sets:
        grown = _grow(closed, [*bases, new], new, most)
        if grown is None:
            left_out.append(new)
        else:
            bases.append(new)
            closed = grown
    return list(closed), left_out


def _grow(closed: dict[Bits, None], bases: list[Bits], new: Bits, most: int) -> dict[Bits, None] | None:
    """``closed`` with ``new`` and its unions; None where that is more than ``most``."""
    found = dict(closed)
    open_sets = [new]
    while open_sets:
        here = open_sets.pop()
        if here in found:
            continue
        found[here] = None
        if len(found) > most:
            return None
        open_sets += [here | other for other in bases if other & here and other | here != here]
    return found
