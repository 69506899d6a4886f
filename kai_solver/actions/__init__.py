"""The actions of a cycle, in order: allocate, consolidate, reclaim, preempt, stale. The solver's floor."""

from kai_solver.actions.context import Answer, Oracle
from kai_solver.actions.sequence import Actions, consolidate_late

__all__ = ["Actions", "Answer", "Oracle", "consolidate_late"]
