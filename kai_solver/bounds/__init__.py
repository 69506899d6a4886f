"""Relaxations that prove: cheap counts and sums that say "no" before any search."""

from kai_solver.bounds.counting import Relaxed, count_bound
from kai_solver.bounds.demand import Demand, Grown, Scope
from kai_solver.bounds.refuting import Bounds, Moment, Refuted

__all__ = ["Bounds", "Demand", "Grown", "Moment", "Refuted", "Relaxed", "Scope", "count_bound"]
