"""A node's GPUs and the links between them, as arrays.

Every pair has a *grade*, one integer that says all that counts when pairs are compared: bandwidth first, then what lies
between the two (NVLink, one PCIe bridge, several, a host bridge, a node's interconnect, the sockets').
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import networkx as nx

Ints = NDArray[np.int32]

MOST_GPUS = 64
"""GPUs of a node, bits of a mask."""

PATHS = ("SYS", "NODE", "PHB", "PXB", "PIX", "NV")
"""What lies between two GPUs, the farthest first, in the terms of ``nvidia-smi topo -m``."""

NVLINK = PATHS.index("NV")
STEP = 8
"""Grades of one GB/s: paths of the same bandwidth fit between two bandwidths."""

PCIE_GB_S = 10
"""A PCIe 3.0 x16 path in one direction, in practice; the default where nothing else is stated."""

NVLINK_GB_S = 25
"""One NVLink in one direction, generations 2 to 4; the default where nothing else is stated."""


@dataclass(frozen=True, slots=True, eq=False)
class LinkGraph:
    """G GPUs, numbered as the driver numbers them.

    Attributes
    ----------
    name
        Product or file that it is of.
    links
        NVLinks between each pair, shape (G, G); through a switch, those of the poorer of the two.
    path
        What else lies between each pair, indices of `PATHS` below `NVLINK`, shape (G, G).
    link_gb_s, pcie_gb_s
        GB/s of one NVLink and of a PCIe path in one direction.
    is_known
        False where nothing is known of the links: all pairs are equal then, and no bandwidth is told.
    notices
        What was assumed, lost or set aside when it was read, a sentence each.
    gb_s
        Bandwidth of each pair in one direction, shape (G, G); 0 where it is not known.
    grade
        Grade of each pair, shape (G, G): bandwidth, then path. Higher is better.
    is_even
        Whether all pairs are equal: then every set of as many GPUs is as good as any other.
    """

    name: str
    links: Ints
    path: Ints
    link_gb_s: int = NVLINK_GB_S
    pcie_gb_s: int = PCIE_GB_S
    is_known: bool = True
    notices: tuple[str, ...] = ()
    gb_s: Ints = field(init=False)
    grade: Ints = field(init=False)
    is_even: bool = field(init=False)

    def __post_init__(self) -> None:
        tells = ~np.eye(self.gpus, dtype=np.bool_) & self.is_known
        gb_s = tells * np.where(self.links > 0, self.links * self.link_gb_s, self.pcie_gb_s)
        grade = STEP * gb_s + tells * np.where(self.links > 0, NVLINK, self.path)
        object.__setattr__(self, "gb_s", gb_s.astype(np.int32))
        object.__setattr__(self, "grade", grade.astype(np.int32))
        pairs = self.grade[~np.eye(self.gpus, dtype=np.bool_)]
        object.__setattr__(self, "is_even", not len(pairs) or bool((pairs == pairs[0]).all()))

    @property
    def gpus(self) -> int:
        """G, the number of GPUs."""
        return len(self.links)

    @property
    def key(self) -> bytes:
        """The same for graphs in which every choice is the same."""
        return self.grade.tobytes()

    def ordered(self, order: Sequence[int]) -> "LinkGraph":
        """The same with GPU ``order[i]`` as the i-th."""
        at = np.ix_(order, order)
        return replace(self, links=self.links[at], path=self.path[at])

    def kind(self, one: int, other: int) -> str:
        """The link of a pair as ``nvidia-smi topo -m`` prints it: ``NV2``, ``SYS``; ``?`` where it is not known."""
        if not self.is_known:
            return "?"
        count = int(self.links[one, other])
        return f"NV{count}" if count else PATHS[self.path[one, other]]

    def without_nvlink(self) -> "LinkGraph":
        """The same GPUs in MIG mode, which has no NVLink."""
        return replace(self, links=np.zeros_like(self.links))

    def noting(self, *notices: str) -> "LinkGraph":
        """The same graph with more to tell."""
        return replace(self, notices=(*self.notices, *notices))

    def as_graph(self) -> "nx.Graph[Any]":
        """The graph for export and plots: edges have ``kind``, ``gb_s`` (0: not known) and ``links``."""
        import networkx as nx  # 0.3 s of a cold start, and only exports and plots need it

        graph: nx.Graph[Any] = nx.Graph(name=self.name)
        graph.add_nodes_from(range(self.gpus))
        for one in range(self.gpus):
            for other in range(one):
                facts = {"gb_s": int(self.gb_s[one, other]), "links": int(self.links[one, other])}
                graph.add_edge(other, one, kind=self.kind(one, other), **facts)
        return graph


def unknown_graph(gpus: int, name: str = "unknown", *notices: str) -> LinkGraph:
    """``gpus`` GPUs of whose links nothing is known: all pairs are equal."""
    nothing = np.zeros((gpus, gpus), dtype=np.int32)
    return LinkGraph(name, nothing, nothing, is_known=False, notices=notices)


def pcie_paths(numa: NDArray[np.int64], roots: tuple[str, ...] = ()) -> Ints:
    """Paths between GPUs without NVLink, shape (G, G): ``NODE`` within a NUMA node, else ``SYS``.

    Parameters
    ----------
    numa
        NUMA node of each GPU, shape (G,); -1 where it is not known.
    roots
        PCIe root of each GPU, where known: GPUs below the same one are ``PXB`` to each other.
    """
    same = (numa[:, None] == numa[None, :]) & (numa >= 0)[:, None]
    path = np.where(same, PATHS.index("NODE"), PATHS.index("SYS"))
    if roots:
        below = np.array([[bool(one) and one == other for other in roots] for one in roots])
        path = np.where(below, PATHS.index("PXB"), path)
    return path.astype(np.int32)
