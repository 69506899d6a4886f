"""What capacity that is left over is worth for the demand that usually arrives."""

from kai_solver.leftover.demand import Bools, Demand, Floats, Ints
from kai_solver.leftover.outlook import Outlook
from kai_solver.leftover.packing import Guest, pack
from kai_solver.leftover.value import PackingTable, ValueTable, pack_device, pack_whole

__all__ = [
    "Bools",
    "Demand",
    "Floats",
    "Guest",
    "Ints",
    "Outlook",
    "PackingTable",
    "ValueTable",
    "pack",
    "pack_device",
    "pack_whole",
]
