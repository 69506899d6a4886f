"""Relaxations that prove: cheap counts and sums that say "no" before any search."""

from kai_solver.bounds.blocking import Allowance, Evidence
from kai_solver.bounds.counting import Domains, Relaxed, count_bound
from kai_solver.bounds.demand import Demand, Grown, Kept, Scope
from kai_solver.bounds.refuting import Bounds, Moment, Refuted, lacks_rights

__all__ = [
    "Allowance",
    "Bounds",
    "Demand",
    "Domains",
    "Evidence",
    "Grown",
    "Kept",
    "Moment",
    "Refuted",
    "Relaxed",
    "Scope",
    "count_bound",
    "lacks_rights",
]
