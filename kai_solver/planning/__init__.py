"""From what was decided to an ordered, published plan."""

from kai_solver.planning.assemble import assemble
from kai_solver.planning.fit_errors import detailed_message, short_message

__all__ = ["assemble", "detailed_message", "short_message"]
