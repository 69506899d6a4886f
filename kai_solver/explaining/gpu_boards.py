"""Which GPUs of a node are whose, how that is known, and how they are linked; before or after a plan."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kai_solver.domain import Bind, Knowing, Move, Node, Plan, Pod, Snapshot
from kai_solver.links import (
    TOPOLOGY_ANNOTATION,
    LinkGraph,
    graph_of,
    known_tables,
    links_of_claims,
    mask_of,
    unknown_graph,
    weakest_pair,
)
from kai_solver.units import GPU, MILLI
from kai_solver.units.shares import floor_milli

CURE = (
    f"Give the node the annotation {TOPOLOGY_ANNOTATION} with the output of `nvidia-smi topo -m`, or the name of a "
    "product of `kai-solver devices --list`; in the own format it is gpuTopology"
)
"""Where the links of a node are not known."""


@dataclass(frozen=True, slots=True)
class SetLink:
    """The weakest link of the best ring through a pod's GPUs; ``gpus`` is empty where any two of the node have it."""

    kind: str
    gb_s: int
    gpus: tuple[int, ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"kind": self.kind, "gb_s": self.gb_s, "gpus": list(self.gpus)}


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod with GPUs of a node.

    Attributes
    ----------
    count, milli
        Devices, and thousandths of each.
    gpus
        Their indices; empty where unknown.
    """

    pod: str
    gang: str
    count: int
    milli: int
    gpus: tuple[int, ...]
    known: Knowing


@dataclass(frozen=True, slots=True, eq=False)
class GpuBoard:
    """The GPUs of one node.

    Attributes
    ----------
    graph
        Links between them, in the order of their indices.
    names
        Of devices that are given by claim, by index; else empty.
    untold
        Why it is not known which are free; empty where it is.
    """

    node: str
    graph: LinkGraph
    names: tuple[str, ...]
    holders: tuple[Holder, ...]
    untold: str

    @property
    def free(self) -> tuple[int, ...] | None:
        """GPUs of which no pod has a part; None where that is not known."""
        held = {gpu for holder in self.holders for gpu in holder.gpus}
        return None if self.untold else tuple(gpu for gpu in range(self.graph.gpus) if gpu not in held)

    def link(self, holder: Holder) -> SetLink | None:
        """The link that limits a pod; None of one GPU or of parts, and where links or its GPUs are not known."""
        if not self.graph.is_known or holder.count < 2 or holder.milli != MILLI:
            return None
        if holder.gpus:
            tables = known_tables()
            pair = weakest_pair(tables.tables[tables.add(self.graph)], mask_of(holder.gpus))
        else:
            pair = (0, 1) if self.graph.is_even else None
        if pair is None:
            return None
        named = tuple(sorted(pair)) if holder.gpus else ()
        return SetLink(self.graph.kind(*pair), int(self.graph.gb_s[pair]), named)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        graph, every, free = self.graph, range(self.graph.gpus), self.free
        return {
            "node": self.node,
            "links": {
                "name": graph.name,
                "known": graph.is_known,
                "notices": list(graph.notices),
                "cure": "" if graph.is_known else CURE,
                "kinds": [["X" if one == other else graph.kind(one, other) for other in every] for one in every],
                "gb_s": graph.gb_s.tolist() if graph.is_known else None,
            },
            "gpus": graph.gpus,
            "devices": list(self.names),
            "free": None if free is None else list(free),
            "untold": self.untold,
            "pods": [self._entry(holder) for holder in self.holders],
        }

    def _entry(self, holder: Holder) -> dict[str, Any]:
        link = self.link(holder)
        return {
            "pod": holder.pod,
            "gang": holder.gang,
            "count": holder.count,
            "milli": holder.milli,
            "gpus": list(holder.gpus) if holder.known != "unknown" else None,
            "known": holder.known,
            "link": None if link is None else link.document(),
        }


class GpuBoards:
    """Boards of the nodes of a cluster, as ``plan`` leaves it; each is made when it is asked for."""

    def __init__(self, snapshot: Snapshot, plan: Plan | None = None) -> None:
        claims = snapshot.claims
        lowered = claims.lowered if claims is not None else None
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._by_claim = lowered.gpus if lowered is not None else {}
        self._offered = {node.name: node.gpus for node in lowered.nodes} if lowered is not None else {}
        self._allotted = {c.key for c in lowered.claims if c.allotted is not None} if lowered is not None else set()
        self._holders: dict[str, list[Holder]] = {}
        for node, holder in self._seated(snapshot, plan or Plan()):
            self._holders.setdefault(node, []).append(holder)
        self._boards: dict[str, GpuBoard] = {}

    def of(self, name: str) -> GpuBoard:
        """The board of a node.

        Raises
        ------
        KeyError
            There is no such node.
        """
        if name not in self._boards:
            node = self._nodes[name]
            graph, names = self._graph(node)
            holders = tuple(sorted(self._holders.get(name, ()), key=lambda h: (not h.gpus, h.gpus, h.gang, h.pod)))
            self._boards[name] = GpuBoard(name, graph, names, holders, _untold(node, holders))
        return self._boards[name]

    def _graph(self, node: Node) -> tuple[LinkGraph, tuple[str, ...]]:
        by_claim, offered = self._by_claim.get(node.name, ()), self._offered.get(node.name, node.gpus)
        if not by_claim:
            return graph_of(node) if node.gpus else unknown_graph(0, "unknown", "the node has no GPUs"), ()
        names = tuple(device.name for device in by_claim)
        links = links_of_claims(node, by_claim)
        at = {device: gpu for gpu, device in enumerate(links.devices)}
        if offered:
            why = "some of its GPUs are a device plugin's, others are given by claim"
            return unknown_graph(node.gpus, "unknown", why), ("",) * offered + names
        if len(at) != len(names) or set(at) != set(names):
            return unknown_graph(node.gpus, "unknown", *links.graph.notices, "not all of its devices are GPUs"), names
        return links.graph.ordered([at[name] for name in names]), names

    # -- what each pod holds ------------------------------------------------------------------------------------------

    def _seated(self, snapshot: Snapshot, plan: Plan) -> Iterator[tuple[str, Holder]]:
        coming: tuple[Bind | Move, ...] = (*plan.binds, *plan.moves)
        entries = {entry.pod: entry for entry in coming}
        gone = {eviction.pod for eviction in plan.evictions}
        for gang in snapshot.gangs:
            for pod in gang.pods:
                entry = entries.get(pod.key)
                if pod.gpu.devices and entry is not None:
                    yield self._coming(pod, gang.key, entry)
                elif pod.key not in gone:
                    yield from self._staying(pod, gang.key)
        for pod in snapshot.foreign:
            yield from self._staying(pod, "")

    def _coming(self, pod: Pod, gang: str, entry: Bind | Move) -> tuple[str, Holder]:
        node = entry.node if isinstance(entry, Bind) else entry.target
        known: Knowing = "unknown"
        if self._is_by_claim(node):
            known = "fact" if entry.claims else "unknown"
        elif entry.link is not None or pod.gpu.is_shared:
            known = "wish"
        gpus = tuple(device.index for device in entry.devices) if known != "unknown" else ()
        return node, self._holder(pod, gang, node, gpus, known)

    def _staying(self, pod: Pod, gang: str) -> Iterator[tuple[str, Holder]]:
        if not (pod.gpu.devices and pod.status.holds_resources and pod.node in self._nodes):
            return
        known, gpus = pod.known_devices
        if self._is_by_claim(pod.node) and pod.claims and not self._allotted.issuperset(pod.claims):
            known, gpus = "unknown", ()  # computed for the count: which ones is unknown
        yield pod.node, self._holder(pod, gang, pod.node, gpus, known)

    def _is_by_claim(self, node: str) -> bool:
        return bool(self._by_claim.get(node)) and not self._offered.get(node)

    def _holder(self, pod: Pod, gang: str, node: str, gpus: Sequence[int], known: Knowing) -> Holder:
        of = self._nodes[node]
        inside = tuple(sorted(gpu for gpu in gpus if 0 <= gpu < of.gpus))
        is_right = len(inside) == pod.gpu.devices
        milli = floor_milli(pod.gpu.parts_on(of.gpu_memory_mib))
        return Holder(
            pod.key, gang, pod.gpu.devices, milli, inside if is_right else (), known if is_right else "unknown"
        )


def _untold(node: Node, holders: Sequence[Holder]) -> str:
    """Why it is not known which GPUs are free; empty where it is."""
    if node.allocatable[GPU] != node.gpus * MILLI:
        return f"only {node.allocatable[GPU] / MILLI:g} of its {node.gpus} GPUs can be had, and it is unknown which"
    unknown = [holder.pod for holder in holders if holder.known == "unknown"]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        return f"it is unknown which GPUs these pods have: {unknown[0]}{more}"
    whole = [gpu for holder in holders if holder.milli == MILLI for gpu in holder.gpus]
    parts = {gpu for holder in holders if holder.milli != MILLI for gpu in holder.gpus}
    if len(set(whole)) < len(whole) or parts.intersection(whole):
        return "two pods are said to have the same GPU"
    return ""


def ranges(gpus: Sequence[int]) -> str:
    """``0-3, 6`` of 0, 1, 2, 3, 6."""
    runs: list[list[int]] = []
    for gpu in gpus:
        if runs and gpu == runs[-1][-1] + 1:
            runs[-1].append(gpu)
        else:
            runs.append([gpu])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
