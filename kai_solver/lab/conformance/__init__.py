"""Behaviour cases: run them, and say whether they came out as KAI's tables expect, better, or different."""

from kai_solver.lab.conformance.casefile import Case, RunSpec, find_cases, read_case
from kai_solver.lab.conformance.outcome import Outcome
from kai_solver.lab.conformance.runner import Decide, run_case
from kai_solver.lab.conformance.suite import CaseResult, Decider, run_file, run_suite, totals
from kai_solver.lab.conformance.verdict import Verdict, judge

__all__ = [
    "Case",
    "CaseResult",
    "Decide",
    "Decider",
    "Outcome",
    "RunSpec",
    "Verdict",
    "find_cases",
    "judge",
    "read_case",
    "run_case",
    "run_file",
    "run_suite",
    "totals",
]
