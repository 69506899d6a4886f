"""What can be asked in one cycle: bounds, which all that ask share, and CP-SAT where there is a solver's process."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kai_solver.actions import Answer
from kai_solver.bounds import Bounds
from kai_solver.domain import SolverModel
from kai_solver.engine.cycle_time import CycleTime
from kai_solver.search.budget import Budget
from kai_solver.search.child import SolverChild
from kai_solver.search.oracle import UNKNOWN, SolverActions
from kai_solver.search.solver_client import SolverClient


@dataclass(slots=True)
class Asking:
    """Makes those that answer, and knows what went wrong with the solver's process.

    ``child``: None where only bounds are asked.
    """

    model: SolverModel
    time: CycleTime
    seed: int
    bounds: Callable[[], Bounds]
    child: SolverChild | None
    _budgets: list[Budget] = field(default_factory=list)

    def oracle(self, without: Answer = UNKNOWN, client: SolverClient | None = None) -> SolverActions:
        """Asks bounds, and CP-SAT where there is a ``client``; ``without``: the answer where that is missing."""
        return SolverActions(client, without, self.bounds)

    def client(self, child: SolverChild, seconds: float) -> SolverClient:
        """Asks CP-SAT, for so many ``seconds`` from now."""
        budget = Budget(seconds, self.time.clock, self.time.clock(), self.time.is_exact)
        self._budgets.append(budget)
        return SolverClient(self.model, child, budget, self.seed, self.time.should_stop)

    @property
    def errors(self) -> list[str]:
        """What failed of all that was asked."""
        return [error for budget in self._budgets for error in budget.errors]
