"""Benchmarks: decide time, memory and quality of models on instances, beside greedy, peers, limits, earlier runs."""

from kai_solver.lab.bench.added import Added, added
from kai_solver.lab.bench.compare import Key, Paired, Row, grouped, paired, rows_of, typical
from kai_solver.lab.bench.figures import figure_of
from kai_solver.lab.bench.find import find_instances, short_name
from kai_solver.lab.bench.linked import in_pairs, with_links
from kai_solver.lab.bench.measure import Job, Run, measure, measure_here
from kai_solver.lab.bench.peers import Peer, Reached, peers_beside, reached_by, shortfall
from kai_solver.lab.bench.record import block_names, blocks, link_spreads, measured, with_blocks
from kai_solver.lab.bench.set_text import with_figures
from kai_solver.lab.bench.sets import BenchSet, Verdict, is_set, jobs_of, late, read_set, source_of, verdicts
from kai_solver.lab.bench.slope import Line, fitted, peer_lines
from kai_solver.lab.bench.slope import plot as plot_lines
from kai_solver.lab.bench.steady import next_moment
from kai_solver.lab.bench.stored import Change, Stored, changes, check_folder, stored_of
from kai_solver.lab.bench.stored import read as read_stored
from kai_solver.lab.bench.stored import save as save_runs
from kai_solver.lab.bench.tables import added_table, limits_table, said
from kai_solver.lab.generate import LoadReport, generated, kai_snapshot, loaded_snapshot, made_real, report_on
from kai_solver.search.budget import promised_s

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
    "added_table",
    "block_names",
    "blocks",
    "changes",
    "check_folder",
    "figure_of",
    "find_instances",
    "fitted",
    "generated",
    "grouped",
    "in_pairs",
    "is_set",
    "jobs_of",
    "kai_snapshot",
    "late",
    "limits_table",
    "link_spreads",
    "loaded_snapshot",
    "made_real",
    "measure",
    "measure_here",
    "measured",
    "next_moment",
    "paired",
    "peer_lines",
    "peers_beside",
    "plot_lines",
    "promised_s",
    "reached_by",
    "read_set",
    "read_stored",
    "report_on",
    "rows_of",
    "said",
    "save_runs",
    "short_name",
    "shortfall",
    "source_of",
    "stored_of",
    "typical",
    "verdicts",
    "with_blocks",
    "with_figures",
    "with_links",
]
