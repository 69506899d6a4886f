"""The independent checker: judges every plan by its own code, whatever made the plan."""

from kai_solver.check.checker import check_plan
from kai_solver.check.optional import Check
from kai_solver.check.violation import RULES, WASTE, Violation

__all__ = ["RULES", "WASTE", "Check", "Violation", "check_plan"]
