from kai_solver.errors import InputError as InputError
from kai_solver.errors import KaiSolverError as KaiSolverError
from kai_solver.errors import LimitExceededError as LimitExceededError
from kai_solver.errors import ModelFileError as ModelFileError
from kai_solver.library import Comparison as Comparison
from kai_solver.library import Explanations as Explanations
from kai_solver.library import Finding as Finding
from kai_solver.library import Findings as Findings
from kai_solver.library import Instance as Instance
from kai_solver.library import Simulation as Simulation
from kai_solver.library import Solution as Solution
from kai_solver.library import compare as compare
from kai_solver.library import explain as explain
from kai_solver.library import load as load
from kai_solver.library import simulate as simulate
from kai_solver.library import solve as solve
from kai_solver.library import validate as validate

__version__: str
