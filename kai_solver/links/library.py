"""Products whose links are known, as data: ``instances/topologies/products.yaml``, every figure with its source."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import kai_solver
from kai_solver.errors import InputError, nearest
from kai_solver.links.graph import PCIE_GB_S, LinkGraph
from kai_solver.links.text import read_matrix

_PACKAGE = Path(kai_solver.__file__).parent
_FILE = "products.yaml"


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A node of a known make.

    Attributes
    ----------
    gpu_names
        Values of the label ``nvidia.com/gpu.product`` that mean it, with as many GPUs as the graph has.
    is_switched
        Every pair uses all NVLinks of both GPUs.
    trays
        Nodes that make one NVLink domain; 1: the node is its own.
    sources
        Where each figure is from: ``links``, ``nvlink``, ``pcie``.
    """

    name: str
    about: str
    graph: LinkGraph
    gpu_names: tuple[str, ...]
    is_switched: bool
    trays: int
    sources: Mapping[str, str]


@cache
def products() -> Mapping[str, Product]:
    """Products by name, in the order of the file."""
    folder = _folder()
    document = yaml.safe_load((folder / _FILE).read_text())
    return {entry["name"]: _product(folder, entry, document) for entry in document["products"]}


def product_named(name: str) -> Product:
    """The product of that name.

    Raises
    ------
    InputError
        There is none.
    """
    found = products().get(name)
    if found is None:
        near = nearest(name, products())
        cure = f"Did you mean {near}?" if near else f"Choose from {', '.join(products())}"
        raise InputError(f"unknown product {name!r}", field="product", cure=cure)
    return found


def product_of(gpu_name: str, gpus: int) -> Product | None:
    """The product that GPUs of a name make where there are so many of them; None: it is not known, or left open."""
    label = gpu_name.strip().replace(" ", "-")
    for product in products().values():
        if label in product.gpu_names and product.graph.gpus == gpus:
            return product
    return None


def product_of_file(file: str) -> Product | None:
    """The product after which a file is named: the longest of their names that its own begins with."""
    stem = Path(file).name.lower()
    named = [product for name, product in products().items() if stem.startswith(name)]
    return max(named, key=lambda product: len(product.name), default=None)


def _product(folder: Path, entry: Mapping[str, Any], document: Mapping[str, Any]) -> Product:
    nvlink = document["nvlink"][entry["nvlink"]] if "nvlink" in entry else {}
    pcie = document["pcie"].get(entry.get("pcie"), {})
    file = folder / entry.get("matrix", f"{entry['name']}.txt")
    speeds = {"link_gb_s": nvlink.get("gb_s", 0), "pcie_gb_s": pcie.get("gb_s", PCIE_GB_S)}
    return Product(
        name=entry["name"],
        about=entry["about"],
        graph=read_matrix(file.read_text(), file.name, name=entry["name"], **speeds),
        gpu_names=tuple(entry.get("gpu_names", ())),
        is_switched=bool(entry.get("switched", False)),
        trays=int(entry.get("trays", 1)),
        sources={"links": entry["source"], "nvlink": nvlink.get("source", ""), "pcie": pcie.get("source", "")},
    )


def _folder() -> Path:
    """Folder of the matrices: inside the wheel, or beside the package in a checkout."""
    packed = _PACKAGE / "_data" / "topologies"
    return packed if packed.is_dir() else _PACKAGE.parent / "instances" / "topologies"
