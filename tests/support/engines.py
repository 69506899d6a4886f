"""Engines for tests that ask what is decided, not how fast."""

from kai_solver.engine import Engine
from kai_solver.modelfiles import load_model
from kai_solver.search.child import SolverChild

LATE_S = 10.0
"""How late an answer of the solver may be: its process is not killed because the machine stood still for a moment."""

GREEDY = ("--model", "greedy-only", "--budget", "60s")
"""Options of a command that is to decide by the greedy alone, also where the machine stands still meanwhile."""


def patient_engine(model: str) -> Engine:
    """An engine of the shipped model of that name."""
    return Engine(load_model(model), child=SolverChild(grace_s=LATE_S))
