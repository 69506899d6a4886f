"""Pods with unidentified GPUs: while they stay, no row can be promised on their node."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem.devices import believed_devices
from kai_solver.problem.gpurows import needs_row
from kai_solver.problem.node_table import NodeTable
from kai_solver.problem.podtable import PodTable

BoolArray = NDArray[np.bool_]


def unidentified_of(table: PodTable, node_table: NodeTable, devices_known: BoolArray) -> frozenset[int]:
    """Indices of these pods, if any pod needs a row; ``devices_known``: (N,) nodes that have none.

    Nodes some of whose devices may not be had are no matter: which ones these are is not known, whatever leaves.
    """
    nodes = set(np.flatnonzero(~devices_known & (node_table.gpus == node_table.usable)).tolist())
    if not nodes or not any(needs_row(shape.gpu) for shape in table.shapes.shapes):
        return frozenset()
    there: dict[int, list[int]] = {}
    for number, node in enumerate(table.pod_node):
        pod = table.pods[number]
        if node in nodes and pod.gpu.devices and pod.status.holds_resources:
            there.setdefault(node, []).append(number)
    found = set[int]()
    for node, numbers in there.items():
        believed = believed_devices(node_table.nodes[node].gpus, [table.pods[number] for number in numbers])
        found.update(number for number, devices in zip(numbers, believed, strict=True) if not devices)
    return frozenset(found)
