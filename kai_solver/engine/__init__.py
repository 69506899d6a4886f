"""The pure cycle: what the controller, the simulator, the command line and the experiments all call."""

from kai_solver.engine.cycle import Engine, cycle
from kai_solver.engine.progress import Fault, Progress

__all__ = ["Engine", "Fault", "Progress", "cycle"]
