"""Small loaded clusters, with work of two priorities in several queues and gangs that need a rack."""

from functools import cache

from kai_solver.domain import Snapshot
from kai_solver.instances_io.bench_schema import LoadedDoc, RealDoc
from kai_solver.lab.generate import loaded_snapshot, made_real


@cache
def a_loaded_cluster(seed: int, nodes: int = 120, gangs: int = 60) -> Snapshot:
    """A cluster in full use in which gangs wait; the same for the same numbers."""
    doc = LoadedDoc(kind="loaded", nodes=nodes, gangs=gangs, contested=0.0)
    return loaded_snapshot(doc, seed)[0]


@cache
def a_real_cluster(seed: int, nodes: int = 120, gangs: int = 60) -> Snapshot:
    """The same with what clusters have beside their work, and NUMA zones on a third of the nodes."""
    return made_real(a_loaded_cluster(seed, nodes, gangs), RealDoc(zoned=0.3), seed)
