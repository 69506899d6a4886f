"""May this pod be on that node: selectors, affinity, taints, ports, spread (capacity is counted elsewhere)."""

from kai_solver.predicates.matching import labels_match, port_number, ports_clash, tolerated, value_matches
from kai_solver.predicates.nodes import (
    AFFINITY_MISMATCH,
    CLUSTER_KEY,
    NODE_NAME_KEY,
    NOT_SHARED,
    UNSCHEDULABLE,
    NodePredicates,
    domain_codes,
    label_value,
)
from kai_solver.predicates.plain import Placed, SpreadDomains, clashes_with_pods, fits_node, is_attracted, kept_off
from kai_solver.predicates.pods import PodSelector, SelectorIndex, of_spread, of_term, selectors_of, wished_selectors_of

__all__ = [
    "AFFINITY_MISMATCH",
    "CLUSTER_KEY",
    "NODE_NAME_KEY",
    "NOT_SHARED",
    "UNSCHEDULABLE",
    "NodePredicates",
    "Placed",
    "PodSelector",
    "SelectorIndex",
    "SpreadDomains",
    "clashes_with_pods",
    "domain_codes",
    "fits_node",
    "is_attracted",
    "kept_off",
    "label_value",
    "labels_match",
    "of_spread",
    "of_term",
    "port_number",
    "ports_clash",
    "selectors_of",
    "tolerated",
    "value_matches",
    "wished_selectors_of",
]
