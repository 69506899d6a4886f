"""The ranked list scheduler: plans a whole cycle in milliseconds, and is the floor for the solver."""

from kai_solver.greedy.chunks import Chunk, Part
from kai_solver.greedy.course import Answer, Oracle
from kai_solver.greedy.ladder import Ladder
from kai_solver.greedy.outcome import Admission, Outcome, Refusal
from kai_solver.greedy.state import Place, State
from kai_solver.greedy.units import Unit
from kai_solver.greedy.victims import VictimPool

__all__ = [
    "Admission",
    "Answer",
    "Chunk",
    "Ladder",
    "Oracle",
    "Outcome",
    "Part",
    "Place",
    "Refusal",
    "State",
    "Unit",
    "VictimPool",
]
