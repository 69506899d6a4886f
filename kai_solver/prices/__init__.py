"""Linear programmes of what must leave for what comes: bounds that are proven in integers, and prices of room.

A `Packing` says what needs places and what may leave; `model_of` writes the programme down; its solution has prices
(`prices_of`), and proves a bound (`Programme.bound`). Stated in docs/formulation.md#prices.
"""

from kai_solver.prices.packing import Model, Packing, Unit, model_of
from kai_solver.prices.prices import Prices, least_waiting, prices_of
from kai_solver.prices.programme import Programme, Solved

__all__ = ["Model", "Packing", "Prices", "Programme", "Solved", "Unit", "least_waiting", "model_of", "prices_of"]
