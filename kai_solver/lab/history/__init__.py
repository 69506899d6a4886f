"""One's own history of jobs: from CSV, and from finished Kubernetes objects; as a workload, and as past usage."""

from kai_solver.lab.history.past_jobs import PastJob
from kai_solver.lab.history.read import History, read_history, read_mapping
from kai_solver.lab.history.usage import with_past_usage

__all__ = ["History", "PastJob", "read_history", "read_mapping", "with_past_usage"]
