"""Experiments on public traces: published baselines in our own code, beside our own policy."""

from kai_solver.lab.experiments.report import Run, RunSpec
from kai_solver.lab.experiments.suite import POLICIES, plan_runs, run_suite
from kai_solver.lab.experiments.tables import SUMMARY_COLUMNS, write_tables

__all__ = ["POLICIES", "SUMMARY_COLUMNS", "Run", "RunSpec", "plan_runs", "run_suite", "write_tables"]
