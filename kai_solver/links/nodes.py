"""Graphs of a snapshot's nodes, and the tables of all graphs that were ever asked about."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from kai_solver.domain.claims import ClaimDevice
from kai_solver.domain.cluster import Node
from kai_solver.errors import InputError
from kai_solver.links.graph import LinkGraph
from kai_solver.links.library import products
from kai_solver.links.sources import PRODUCT_LABEL, NodeLinks, graph_of_devices, graph_of_node, graph_of_text, index_of
from kai_solver.links.survey import LinkTables
from kai_solver.units import GPU, MILLI

MOST_KINDS = 256
"""Kinds of graphs that are remembered; a cluster has a few, and some more while links fail."""

CYCLE_STATES = 1 << 16
"""States of a table that a cycle may have to wait for, once: 0.2 s, for 16 GPUs of which no two are identical."""

_MIG = "nvidia.com/mig-"


@lru_cache(maxsize=4096)
def topology_problem(text: str, gpus: int = 0) -> str:
    """Why the text of a node does not tell the links of ``gpus`` GPUs (0: of however many); empty where it does."""
    try:
        graph = products()[text.strip()].graph if text.strip() in products() else graph_of_text(text)
    except InputError as error:
        return str(error)
    return f"is of {graph.gpus} GPUs, and the node has {gpus}" if gpus and graph.gpus != gpus else ""


def check_topology(text: str, gpus: int, field: str) -> None:
    """Refuse a text that does not tell the links of ``gpus`` GPUs.

    Raises
    ------
    InputError
        With what is wrong.
    """
    problem = topology_problem(text, gpus)
    if problem:
        cure = "Name a product of `kai-solver devices --list`, or give the output of `nvidia-smi topo -m`"
        raise InputError(problem, field=field, cure=cure)


def graph_of(node: Node) -> LinkGraph:
    """Graph of the GPUs that a device plugin offers on ``node``: of its own text, else its labels, else its zones."""
    numa = node.numa
    zones = tuple(zone.allocatable[GPU] // MILLI for zone in numa.zones) if numa is not None else ()
    product = node.labels.get(PRODUCT_LABEL, "")
    told = product or node.gpu_topology
    # Of many labels these alone count; looking for them is dear where there are thousands of nodes.
    mig = tuple((key, value) for key, value in node.labels.items() if key.startswith(_MIG)) if told else ()
    return _graph(product, mig, node.gpus, node.gpu_topology, zones)


@lru_cache(maxsize=4096)
def _graph(product: str, mig: tuple[tuple[str, str], ...], gpus: int, text: str, zones: tuple[int, ...]) -> LinkGraph:
    labels = {PRODUCT_LABEL: product, **dict(mig)} if product else dict(mig)
    return graph_of_node(labels, gpus, text, zones)


def links_of_claims(node: Node, devices: Sequence[ClaimDevice]) -> NodeLinks:
    """Graph of the GPUs that ``node`` publishes in ResourceSlices, where the text of the node does not tell more."""
    found = graph_of_devices(devices)
    if not node.gpu_topology or topology_problem(node.gpu_topology):
        return found
    graph = _graph("", (), _size_of(node.gpu_topology), node.gpu_topology, ())
    if graph.gpus == len(found.devices):
        return replace(found, graph=graph)
    problem = topology_problem(node.gpu_topology, len(found.devices))
    index = {device.name: index_of(device) for device in devices}
    order = [index[name] for name in found.devices]
    # Without its last GPU a node looks like one whose GPUs were renumbered because another fell off the bus.
    is_told = len(set(order)) == len(order) and min(order, default=-1) >= 0 and max(order) == graph.gpus - 1
    if is_told and len(order) == len(devices):
        return replace(found, graph=graph.ordered(order).noting(f"the text {problem}: those with these indices"))
    return replace(found, graph=found.graph.noting(f"the text {problem}, and it is unknown which: it is left out"))


@lru_cache(maxsize=4096)
def _size_of(text: str) -> int:
    """GPUs of a text that tells their links."""
    known = products().get(text.strip())
    return (known.graph if known is not None else graph_of_text(text)).gpus


class _Known:
    """Tables of one process: the same graphs come every cycle, and some tables take a second to make."""

    def __init__(self) -> None:
        self.tables = LinkTables(most_states=CYCLE_STATES)


_KNOWN = _Known()


def known_tables() -> LinkTables:
    """Tables of all graphs so far; cleared when there are too many. A caller keeps the result for one plan."""
    if len(_KNOWN.tables.tables) > MOST_KINDS:
        _KNOWN.tables = LinkTables(most_states=CYCLE_STATES)
    return _KNOWN.tables
