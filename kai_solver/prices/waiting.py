"""How many of some gangs must wait: what a linear programme proves of gangs that no plan may serve."""

from collections.abc import Sequence
from dataclasses import replace

from kai_solver.prices.packing import Packing, Unit, programme_of

ENOUGH_S = 5.0
"""Seconds for the linear programme of a proof: a hundred times what it takes."""


def least_waiting(packing: Packing, wanted: Sequence[Unit], seconds: float = ENOUGH_S) -> int:
    """A number of ``wanted`` that no plan serves beside all that ``packing`` asks for, whatever of its units leaves.

    ``wanted`` says which gangs are meant, equal ones as copies. With one of them, 1 is a proof that it must wait.
    Nothing is proven, 0, where the solver needs more than ``seconds``.
    """
    none = [0] * len(packing.units)
    costs = (("waiting", [*none, *([1] * len(wanted))]),)
    programme = programme_of(replace(packing, units=(*packing.units, *wanted), costs=costs))
    found = programme.solve(seconds)
    return max(0, programme.bound(found[0], ())) if found else 0
