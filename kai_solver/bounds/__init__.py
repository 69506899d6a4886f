"""Relaxations that prove: cheap counts that say "no" before any search."""

from kai_solver.bounds.counting import Relaxed, count_bound

__all__ = ["Relaxed", "count_bound"]
