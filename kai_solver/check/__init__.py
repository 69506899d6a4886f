"""The independent checker: judges every plan with its own eyes, whoever made it."""

from kai_solver.check.checker import check_plan
from kai_solver.check.violation import RULES, Violation

__all__ = ["RULES", "Violation", "check_plan"]
