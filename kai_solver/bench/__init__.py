"""Benchmarks: decide time, memory and quality of models on instances, beside greedy, peers, limits, earlier runs."""

from kai_solver.bench.added import Added, added
from kai_solver.bench.compare import Paired, Row, paired, rows_of
from kai_solver.bench.figures import figure_of, promised_s
from kai_solver.bench.find import find_instances
from kai_solver.bench.generate import LoadReport, generated, loaded_snapshot, report_on
from kai_solver.bench.measure import Job, Run, measure, measure_here
from kai_solver.bench.peers import Peer, Reached, peers_beside, reached_by, shortfall
from kai_solver.bench.sets import BenchSet, Verdict, is_set, jobs_of, late, read_set, verdicts
from kai_solver.bench.slope import Line, fitted
from kai_solver.bench.slope import plot as plot_lines
from kai_solver.bench.steady import next_moment
from kai_solver.bench.stored import Change, Key, Stored, changes, grouped
from kai_solver.bench.stored import read as read_stored
from kai_solver.bench.stored import save as save_runs

__all__ = [
    "Added",
    "BenchSet",
    "Change",
    "Job",
    "Key",
    "Line",
    "LoadReport",
    "Paired",
    "Peer",
    "Reached",
    "Row",
    "Run",
    "Stored",
    "Verdict",
    "added",
    "changes",
    "figure_of",
    "find_instances",
    "fitted",
    "generated",
    "grouped",
    "is_set",
    "jobs_of",
    "late",
    "loaded_snapshot",
    "measure",
    "measure_here",
    "next_moment",
    "paired",
    "peers_beside",
    "plot_lines",
    "promised_s",
    "reached_by",
    "read_set",
    "read_stored",
    "report_on",
    "rows_of",
    "save_runs",
    "shortfall",
    "verdicts",
]
