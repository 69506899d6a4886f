"""Resource claims: which devices match, as amounts that the engine counts, and as names again in the plan."""

from kai_solver.claims.carry import carried
from kai_solver.claims.cel import selects
from kai_solver.claims.errors import SelectorError
from kai_solver.claims.lower import lower, raised
from kai_solver.claims.naming import name_devices

__all__ = ["SelectorError", "carried", "lower", "name_devices", "raised", "selects"]
