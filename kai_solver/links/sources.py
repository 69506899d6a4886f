"""From what a node says of itself to its graph: texts, labels, devices of ResourceSlices.

Whatever is wrong or missing, there is a graph: "unknown, all equal" where nothing better is known, with a notice that
says why. Only `graph_of_text`, for a file that a user names, raises the error.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kai_solver.domain.claims import Attribute, ClaimDevice
from kai_solver.errors import InputError
from kai_solver.links.graph import MOST_GPUS, LinkGraph, pcie_paths, unknown_graph
from kai_solver.links.library import Product, product_named, product_of, product_of_file, products
from kai_solver.links.text import LinkStatus, read_matrix, read_status, with_status

TOPOLOGY_ANNOTATION = "kai-solver/gpu-topology"
"""On a node: the text of ``nvidia-smi topo -m``, of ``nvidia-smi nvlink -s``, or both; or the name of a product."""

ROW_ANNOTATION = "kai-solver/gpu-row"
"""On a pod: one of `WISHES`."""

PRODUCT_LABEL, COUNT_LABEL = "nvidia.com/gpu.product", "nvidia.com/gpu.count"
_MIG_COUNT = re.compile(r"nvidia\.com/mig-[0-9][^/]*\.count")
_SUFFIX = re.compile(r"-(?:MIG-.*|SHARED)$")
_INDEX = re.compile(r"gpu-([0-9]{1,3})")


@dataclass(frozen=True, slots=True, eq=False)
class NodeLinks:
    """The graph of a node and the names of its devices in the graph's order; no names where there are no claims."""

    graph: LinkGraph
    devices: tuple[str, ...] = ()


def graph_of_text(text: str, file: str = "", product: str = "") -> LinkGraph:
    """Graph of what ``nvidia-smi`` printed.

    Figures are those of ``product``, else those that the text tells, else those of the product after which the file is
    named. A status of NVLinks without a matrix is that of the product that its GPUs make.

    Raises
    ------
    InputError
        There is no such product, or nothing in the text can be used: names file, row and cure.
    """
    named = product_named(product) if product else None
    status = read_status(text, file)
    try:
        return _with_figures(text, file, named, status)
    except InputError as error:
        if status is None or error.field != "header":
            raise
    known = named or product_of(status.products[0], len(status.products))
    if known is None:
        cure = "Add the output of `nvidia-smi topo -m`: a status alone does not say where links lead"
        raise InputError("has no matrix, and its GPUs are of no known product", file=file, cure=cure)
    return with_status(replace(known.graph, name=file or known.name), status, is_switched=known.is_switched)


def graph_of_node(
    labels: Mapping[str, str], gpus: int = 0, annotation: str = "", zones: Sequence[int] = ()
) -> LinkGraph:
    """Graph of a node with ``gpus`` GPUs from its annotation, else its labels, else its zones; never an error.

    Parameters
    ----------
    labels
        Of the node; ``nvidia.com/gpu.product`` counts. Where it says that there are MIG devices NVLink does not.
    gpus
        GPUs that the node has; 0: as the label ``nvidia.com/gpu.count`` says, which is 1 where there is none.
    annotation
        Value of `TOPOLOGY_ANNOTATION`.
    zones
        GPUs of each NUMA zone (NodeResourceTopology), which are taken to be numbered zone by zone.
    """
    gpus = min(max(gpus or _count(labels), 1), MOST_GPUS)
    graph = _of_labels(labels, gpus, zones)
    if annotation.strip():
        graph = _of_annotation(annotation, labels, graph)
    return graph.without_nvlink().noting("MIG mode: no NVLink") if _is_mig(labels) else graph


def graph_of_devices(devices: Sequence[ClaimDevice]) -> NodeLinks:
    """Graph of the GPUs that a node publishes in ResourceSlices; MIG devices are left out, and put it into MIG mode.

    They are in the order of their PCI addresses, which is the driver's, else of their indices, else of their names.
    """
    whole = [device for device in devices if _attribute(device, "type") in ("", "gpu")][:MOST_GPUS]
    if not whole:
        return NodeLinks(unknown_graph(1, "unknown", "no device is a whole GPU"))
    whole.sort(key=_place)
    names = {str(_attribute(device, "productName")) for device in whole}
    product = product_of(names.pop(), len(whole)) if len(names) == 1 else None
    graph = product.graph if product else _of_places(whole)
    if any(_attribute(device, "type") == "mig" for device in devices):
        graph = graph.without_nvlink().noting("MIG mode: no NVLink")
    return NodeLinks(graph, tuple(device.name for device in whole))


# -- texts -------------------------------------------------------------------------------------------------------------


def _with_figures(text: str, file: str, named: Product | None, status: LinkStatus | None) -> LinkGraph:
    told = status is not None and status.link_gb_s > 0
    known = named or (product_of_file(file) if file else None)
    if known is None and status is not None:
        known = product_of(status.products[0], len(status.products))
    if known is None:
        return read_matrix(text, file)
    link_gb_s = 0 if told and named is None else known.graph.link_gb_s
    return read_matrix(text, file, link_gb_s=link_gb_s, pcie_gb_s=known.graph.pcie_gb_s)


def _of_annotation(text: str, labels: Mapping[str, str], otherwise: LinkGraph) -> LinkGraph:
    gpus = otherwise.gpus
    known = product_of(_gpu_name(labels), gpus)
    named = products().get(text.strip())
    try:
        graph = named.graph if named else graph_of_text(text, product=known.name if known else "")
    except InputError as error:
        return otherwise.noting(f"annotation {TOPOLOGY_ANNOTATION}: {error}")
    if graph.gpus == gpus:
        return replace(graph, name=f"annotation {TOPOLOGY_ANNOTATION}")
    return otherwise.noting(f"annotation {TOPOLOGY_ANNOTATION}: is of {graph.gpus} GPUs, and the node has {gpus}")


def _of_labels(labels: Mapping[str, str], gpus: int, zones: Sequence[int]) -> LinkGraph:
    name = _gpu_name(labels)
    product = product_of(name, gpus)
    if product is not None:
        return product.graph
    if len(zones) > 1 and sum(zones) == gpus and min(zones) >= 0:
        path = pcie_paths(np.repeat(np.arange(len(zones)), zones))
        return LinkGraph("NUMA zones", np.zeros_like(path), path, notices=("PCIe paths alone, by NUMA zones",))
    what = f"{gpus} of {name!r} are not a known product" if name else f"no label {PRODUCT_LABEL}"
    return unknown_graph(gpus, "unknown", what)


def _count(labels: Mapping[str, str]) -> int:
    text = labels.get(COUNT_LABEL, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 1


def _gpu_name(labels: Mapping[str, str]) -> str:
    return _SUFFIX.sub("", labels.get(PRODUCT_LABEL, ""))


def _is_mig(labels: Mapping[str, str]) -> bool:
    """MIG devices are there, under either strategy."""
    counts = [value for label, value in labels.items() if _MIG_COUNT.fullmatch(label)]
    return "-MIG-" in labels.get(PRODUCT_LABEL, "") or any(value not in ("", "0") for value in counts)


# -- devices -----------------------------------------------------------------------------------------------------------


def _attribute(device: ClaimDevice, name: str) -> Attribute:
    """Value of an attribute in any domain; empty where there is none."""
    found = [value for key, value in device.attributes.items() if key.rpartition("/")[2] == name]
    return found[0] if found else ""


def index_of(device: ClaimDevice) -> int:
    """The driver's index of a GPU, from its attribute, else its name; at least `MOST_GPUS` where neither tells."""
    match, index = _INDEX.fullmatch(device.name), _attribute(device, "index")
    return index if isinstance(index, int) else int(match[1]) if match else MOST_GPUS


def _place(device: ClaimDevice) -> tuple[str, int, str]:
    number = index_of(device)
    return str(_attribute(device, "pcieBusID") or _attribute(device, "pciBusID")).lower(), number, device.name


def _of_places(devices: Sequence[ClaimDevice]) -> LinkGraph:
    """PCIe paths as far as roots and NUMA nodes tell them; NVLinks of products that are not known are not told."""
    roots = tuple(str(_attribute(device, "pcieRoot")) for device in devices)
    zones = [_attribute(device, "numaNode") for device in devices]
    numa = np.array([zone if isinstance(zone, int) and abs(zone) < _ANY_ZONE else -1 for zone in zones], dtype=np.int64)
    path = pcie_paths(numa, roots)
    if not any(roots) and (numa < 0).all():
        return unknown_graph(len(devices), "unknown", "the devices name no known product and no place")
    notice = "the product is not known: PCIe paths alone, by the attributes of its devices"
    return LinkGraph("resource slices", np.zeros_like(path), path, notices=(notice,))


_ANY_ZONE = 1 << 16
