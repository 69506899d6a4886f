"""Topologies: domain trees over nodes, and the order in which domains are tried."""

from kai_solver.topology.candidates import LevelRange, candidate_domains, level_range
from kai_solver.topology.tree import ROOT, ROOT_LEVEL, Domain, DomainTree, LabelPath

__all__ = [
    "ROOT",
    "ROOT_LEVEL",
    "Domain",
    "DomainTree",
    "LabelPath",
    "LevelRange",
    "candidate_domains",
    "level_range",
]
