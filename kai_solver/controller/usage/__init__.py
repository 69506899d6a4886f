"""Past usage of queues for time-based fair share, from Prometheus: asked for, and laid over the Queue objects."""

from kai_solver.controller.usage.following import PastUsage
from kai_solver.controller.usage.prometheus import UsageError, ask, questions

__all__ = ["PastUsage", "UsageError", "ask", "questions"]
