"""Linear programmes of what must leave for what comes: bounds that are proven in integers.

A `Packing` says what needs places and what may leave; `programme_of` writes the programme down, and a solution of it
proves a bound (`Programme.bound`). Stated in docs/formulation.md#prices.
"""

from kai_solver.prices.glop import MoreRow
from kai_solver.prices.packing import Packing, Unit, programme_of
from kai_solver.prices.programme import Programme, Solved
from kai_solver.prices.waiting import least_waiting

__all__ = ["MoreRow", "Packing", "Programme", "Solved", "Unit", "least_waiting", "programme_of"]
