"""Links between a node's GPUs, and which GPUs a pod gets."""

from kai_solver.links.choice import (
    WISHES,
    Choice,
    RowWish,
    alternatives,
    choose,
    gpus_of,
    largest_free_row,
    mask_of,
    masks_of,
    row_masks,
    row_wish,
    stretch,
    tightest_row,
    weakest_pair,
)
from kai_solver.links.classes import like_gpus
from kai_solver.links.graph import MOST_GPUS, PATHS, LinkGraph, pcie_paths, unknown_graph
from kai_solver.links.library import Product, product_named, product_of, products
from kai_solver.links.naming import Asking, Board, name_all
from kai_solver.links.nodes import check_topology, graph_of, known_tables, links_of_claims, topology_problem
from kai_solver.links.sources import (
    COUNT_LABEL,
    PRODUCT_LABEL,
    ROW_ANNOTATION,
    TOPOLOGY_ANNOTATION,
    NodeLinks,
    graph_of_devices,
    graph_of_node,
    graph_of_text,
)
from kai_solver.links.survey import LinkTables, Survey
from kai_solver.links.tables import FULL, LinkTable, usual_sizes

__all__ = [
    "COUNT_LABEL",
    "FULL",
    "MOST_GPUS",
    "PATHS",
    "PRODUCT_LABEL",
    "ROW_ANNOTATION",
    "TOPOLOGY_ANNOTATION",
    "WISHES",
    "Asking",
    "Board",
    "Choice",
    "LinkGraph",
    "LinkTable",
    "LinkTables",
    "NodeLinks",
    "Product",
    "RowWish",
    "Survey",
    "alternatives",
    "check_topology",
    "choose",
    "gpus_of",
    "graph_of",
    "graph_of_devices",
    "graph_of_node",
    "graph_of_text",
    "known_tables",
    "largest_free_row",
    "like_gpus",
    "links_of_claims",
    "mask_of",
    "masks_of",
    "name_all",
    "pcie_paths",
    "product_named",
    "product_of",
    "products",
    "row_masks",
    "row_wish",
    "stretch",
    "tightest_row",
    "topology_problem",
    "unknown_graph",
    "usual_sizes",
    "weakest_pair",
]
