"""Benchmarks: decide time, memory and quality over instances and models, against greedy and recorded peers."""

from kai_solver.bench.compare import Paired, Row, paired, rows_of
from kai_solver.bench.find import find_instances
from kai_solver.bench.generate import LoadReport, generated, loaded_snapshot, report_on
from kai_solver.bench.measure import Job, Run, measure, measure_here
from kai_solver.bench.peers import Peer, Reached, peers_beside, reached_by, shortfall
from kai_solver.bench.sets import BenchSet, read_set

__all__ = [
    "BenchSet",
    "Job",
    "LoadReport",
    "Paired",
    "Peer",
    "Reached",
    "Row",
    "Run",
    "find_instances",
    "generated",
    "loaded_snapshot",
    "measure",
    "measure_here",
    "paired",
    "peers_beside",
    "reached_by",
    "read_set",
    "report_on",
    "rows_of",
    "shortfall",
]
