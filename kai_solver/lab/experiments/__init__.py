"""Experiments on public traces: published baselines in our own code, beside our own policy."""

from kai_solver.lab.experiments.report import Run, RunSpec
from kai_solver.lab.experiments.rows import FailedRun, nvlink_outcome, openb_outcome
from kai_solver.lab.experiments.suite import POLICIES, plan_runs, run_suite
from kai_solver.lab.experiments.tables import SUMMARY_COLUMNS, summary_of, write_tables

__all__ = [
    "POLICIES",
    "SUMMARY_COLUMNS",
    "FailedRun",
    "Run",
    "RunSpec",
    "nvlink_outcome",
    "openb_outcome",
    "plan_runs",
    "run_suite",
    "summary_of",
    "write_tables",
]
