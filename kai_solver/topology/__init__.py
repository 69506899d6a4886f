"""Topologies: domain trees over nodes."""

from kai_solver.topology.tree import ROOT, ROOT_LEVEL, Domain, DomainTree, LabelPath

__all__ = [
    "ROOT",
    "ROOT_LEVEL",
    "Domain",
    "DomainTree",
    "LabelPath",
]
