"""What a levelled queue keeps at least, asked before all else: in most turns most queues may lose nothing."""

from collections.abc import Sequence

from kai_solver.fairness import kept_amounts, levelled
from kai_solver.fairness.order import Amounts
from kai_solver.problem import Problem
from kai_solver.problem.charges import Charge
from kai_solver.units import UNLIMITED


class Levels:
    """Levelled queues by the leaf queues of reclaimer and victim, found once, with the least that these may keep."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._found: dict[tuple[int, int], tuple[int, Charge]] = {}

    def may_lose(self, reclaimer: int, victim: int, held: Sequence[Amounts], last: Charge = (0, 0, 0)) -> bool:
        """Whether a reclaim might take victims (leaf queues ``reclaimer``, ``victim``): rule 3 of `fairness.reclaim`.

        Only victims with parts are judged by it. ``held``: by queue, before any part is taken; or once all are, none of
        which is larger than ``last``.
        """
        found = self._found.get((reclaimer, victim))
        if found is None:
            problem = self._problem
            queue = levelled(problem.queues, reclaimer, victim)[1]
            least = kept_amounts(problem.allocatable[queue], problem.queues.quotas[queue], is_guaranteed=True)
            found = self._found[reclaimer, victim] = queue, least
        (queue, (cpu, memory, gpu)), (last_cpu, last_memory, last_gpu) = found, last
        row = held[queue]
        return (
            row[2] + last_gpu > gpu != UNLIMITED
            or row[0] + last_cpu > cpu != UNLIMITED
            or row[1] + last_memory > memory != UNLIMITED
        )
