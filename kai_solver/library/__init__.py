"""What Python programs call: `import kai_solver` exports it, and ``docs/python.md`` shows it.

Names and signatures are pinned by a test: what is public is changed only as the page promises.
"""

from kai_solver.library.comparing import Comparison, compare
from kai_solver.library.explaining import Explanations, explain
from kai_solver.library.instances import Instance, load
from kai_solver.library.simulating import Simulation, simulate
from kai_solver.library.solving import Solution, solve
from kai_solver.library.validating import Finding, Findings, validate

__all__ = [
    "Comparison",
    "Explanations",
    "Finding",
    "Findings",
    "Instance",
    "Simulation",
    "Solution",
    "compare",
    "explain",
    "load",
    "simulate",
    "solve",
    "validate",
]
