"""May this pod be on that node: selectors, affinity, taints, ports, spread (capacity is counted elsewhere)."""

from kai_solver.predicates.affinity import PodAffinityIndex
from kai_solver.predicates.matching import labels_match, ports_clash, tolerated, value_matches
from kai_solver.predicates.nodes import AFFINITY_MISMATCH, NODE_NAME_KEY, UNSCHEDULABLE, NodePredicates
from kai_solver.predicates.plain import Placed, clashes_with_pods, fits_node

__all__ = [
    "AFFINITY_MISMATCH",
    "NODE_NAME_KEY",
    "UNSCHEDULABLE",
    "NodePredicates",
    "Placed",
    "PodAffinityIndex",
    "clashes_with_pods",
    "fits_node",
    "labels_match",
    "ports_clash",
    "tolerated",
    "value_matches",
]
