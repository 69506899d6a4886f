"""Engines for tests that ask what is decided, not how fast."""

from dataclasses import replace

from kai_solver.domain import SolverModel
from kai_solver.engine import Engine
from kai_solver.modelfiles import load_model
from kai_solver.search.child import SolverChild

LATE_S = 10.0
"""How late an answer of the solver may be: its process is not killed because the machine stood still for a moment."""

PATIENT_S = 60.0
"""Budget of a cycle that a machine does not end by standing still for seconds."""

GREEDY = ("--model", "greedy-only", "--budget", f"{PATIENT_S:g}s")
"""Options of a command that is to decide by the greedy alone, also where the machine stands still meanwhile."""


def patient(model: SolverModel) -> SolverModel:
    """The model with as much time for one question as for all of them; a deterministic one knows no clock."""
    if model.search.deterministic:
        return model
    return replace(model, search=replace(model.search, question_s=PATIENT_S))


def patient_engine(model: str) -> Engine:
    """An engine of the shipped model of that name."""
    return Engine(load_model(model), child=SolverChild(grace_s=LATE_S))
