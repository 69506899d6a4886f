"""Topologies: domain trees over nodes, and the order of ranks along them."""

from kai_solver.topology.ranks import OWN_RANK, Rank, fewest_apart, named_topology, neighbours_apart, rank_of
from kai_solver.topology.tree import ROOT, ROOT_LEVEL, Domain, DomainTree, LabelPath

__all__ = [
    "OWN_RANK",
    "ROOT",
    "ROOT_LEVEL",
    "Domain",
    "DomainTree",
    "LabelPath",
    "Rank",
    "fewest_apart",
    "named_topology",
    "neighbours_apart",
    "rank_of",
]
