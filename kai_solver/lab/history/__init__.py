"""One's own history of jobs: from CSV, finished Kubernetes objects, SWF and openb; as a workload, and as past usage."""

from kai_solver.lab.history.past_jobs import PastJob
from kai_solver.lab.history.read import History, read_history, read_mapping
from kai_solver.lab.history.swf import read_swf
from kai_solver.lab.history.usage import with_past_usage

__all__ = ["History", "PastJob", "read_history", "read_mapping", "read_swf", "with_past_usage"]
