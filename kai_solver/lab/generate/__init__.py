"""Clusters made from a specification and a seed: the instances of benchmarks that no file holds."""

from kai_solver.domain import Snapshot
from kai_solver.instances_io.bench_schema import CliquesDoc, EmptyDoc, GeneratorDoc, LoadedDoc, ReclaimDoc
from kai_solver.lab.generate.cliques import cliques_snapshot
from kai_solver.lab.generate.kai_snapshot import kai_snapshot
from kai_solver.lab.generate.load_report import LoadReport, report_on
from kai_solver.lab.generate.loaded import loaded_snapshot
from kai_solver.lab.generate.plain import empty_snapshot, quiet_snapshot, reclaim_snapshot
from kai_solver.lab.generate.real import made_real

__all__ = ["LoadReport", "generated", "kai_snapshot", "loaded_snapshot", "made_real", "report_on"]


def generated(doc: GeneratorDoc, seed: int = 1) -> Snapshot:
    """The snapshot of a specification; only ``loaded`` and ``cliques`` draw anything.

    Raises
    ------
    InputError
        What was drawn is not what the specification says.
    """
    if isinstance(doc, LoadedDoc):
        return loaded_snapshot(doc, seed)[0]
    if isinstance(doc, CliquesDoc):
        return cliques_snapshot(doc, seed)
    if isinstance(doc, ReclaimDoc):
        return reclaim_snapshot(doc)
    return empty_snapshot(doc) if isinstance(doc, EmptyDoc) else quiet_snapshot(doc)
