"""From what was decided to an ordered, published plan."""

from kai_solver.planning.assemble import assemble

__all__ = ["assemble"]
