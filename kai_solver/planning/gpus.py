"""Which GPUs of its node a pod of a plan gets: the set with the best links, for all pods of the node together.

The engine counts whole devices, which are equal to it. Here they get indices: the largest pod of a node first, each the
set that `links` finds best among what the others leave. If a pod with unidentified GPUs runs there, nothing is chosen:
what would be free is not known either.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

from kai_solver.claims import name_devices
from kai_solver.domain import Bind, ClaimDevice, Device, DeviceId, GpuLink, GpuRequest, Move, Node, Plan, PodStatus
from kai_solver.links import (
    MOST_GPUS,
    Asking,
    Board,
    LinkGraph,
    LinkTables,
    NodeLinks,
    gpus_of,
    graph_of,
    known_tables,
    links_of_claims,
    mask_of,
    name_all,
    row_wish,
)
from kai_solver.problem import Problem
from kai_solver.units import GPU, MILLI

_Entry = TypeVar("_Entry", Bind, Move)
GpuNames = Mapping[int, tuple[tuple[Device, ...], GpuLink]]
"""By pod."""


class Comer(NamedTuple):
    """A pod that the plan gives ``gpus``, as the engine counts them, of ``node``; ``at_once`` or when others leave."""

    pod: int
    node: int
    gpus: tuple[int, ...]
    at_once: bool


def known_graphs(problem: Problem, nodes: Iterable[int]) -> dict[int, LinkGraph]:
    """The links of those of ``nodes`` on which GPUs of a device plugin may be chosen by them."""
    offered = _offered(problem)
    return {node: graph for node in nodes if (graph := _known_graph(problem, node, offered)) is not None}


def chosen_gpus(
    problem: Problem, graphs: Mapping[int, LinkGraph], comers: Iterable[Comer], leaving: Collection[int]
) -> GpuNames:
    """The best whole GPUs for ``comers``, all on nodes with ``graphs``.

    ``leaving``: pods that run and do not stay where they are.
    """
    by_node: dict[int, list[Comer]] = {}
    for comer in comers:
        if comer.gpus:
            by_node.setdefault(comer.node, []).append(comer)
    boards = _boards(problem, by_node, leaving) if by_node else {}
    choice = _Choice(problem, known_tables())
    for node, own in by_node.items():
        choice.on_node(node, graphs[node], boards[node], own)
    return choice.chosen


def named_claims(problem: Problem, plan: Plan) -> Plan:
    """``plan`` with devices for its claims, the GPUs with the best links where these are known."""
    if problem.snapshot.claims is None:
        return plan
    prefer = _Preferred({node.name: node for node in problem.nodes}, known_tables())
    plan = name_devices(problem.snapshot, plan, prefer)
    return replace(plan, binds=tuple(map(prefer.linked, plan.binds)), moves=tuple(map(prefer.linked, plan.moves)))


def _offered(problem: Problem) -> Mapping[str, int]:
    """GPUs that device plugins offer by node, where there are claims; else they are all that nodes have."""
    claims = problem.snapshot.claims
    before = claims.lowered.nodes if claims is not None and claims.lowered is not None else ()
    return {node.name: node.gpus for node in before}


def _known_graph(problem: Problem, node: int, offered: Mapping[str, int]) -> LinkGraph | None:
    """The links of a node where they and the free GPUs are known, and all are a device plugin's and may be had."""
    known = problem.nodes[node]
    is_plain = offered.get(known.name, known.gpus) == known.gpus and known.allocatable[GPU] == known.gpus * MILLI
    if not problem.devices_known[node] or not is_plain or known.gpus > MOST_GPUS:
        return None
    graph = graph_of(known)
    return graph if graph.is_known else None


def _boards(problem: Problem, nodes: Iterable[int], leaving: Collection[int]) -> dict[int, Board]:
    """What is held on ``nodes``."""
    boards = {node: Board((1 << problem.nodes[node].gpus) - 1) for node in nodes}
    for pod, held_devices in problem.held_devices.items():
        board = boards.get(problem.pod_node[pod])
        if board is not None:
            mask = _mask_of(held_devices)
            board.now |= mask
            if pod not in leaving and problem.pods[pod].status is not PodStatus.RELEASING:
                board.later |= mask
    return boards


@dataclass(slots=True)
class _Choice:
    """The GPUs of one plan."""

    problem: Problem
    tables: LinkTables
    chosen: dict[int, tuple[tuple[Device, ...], GpuLink]] = field(default_factory=dict)

    def on_node(self, node: int, graph: LinkGraph, board: Board, comers: Sequence[Comer]) -> None:
        """Choose for all pods of one node, or for none; those that share devices keep theirs."""
        wholes: list[int] = []
        asking: list[Asking] = []
        for comer in comers:
            gpu = self.problem.pods[comer.pod].gpu
            if gpu.is_whole:
                wholes.append(comer.pod)
                asking.append(_asking(comer.at_once, gpu))
            else:
                mask = _mask_of(comer.gpus)
                board.now |= mask if comer.at_once else 0
                board.later |= mask
        kind, uuids = self.tables.add(graph), self.problem.nodes[node].gpu_uuids
        found = name_all(self.tables, kind, board, asking)
        for pod, mask in zip(wholes, found or (), strict=False):  # Else the engine's own names stand.
            self.chosen[pod] = _named(uuids, mask), _link(*self.tables.weakest(kind, graph, mask))


def _named(uuids: Sequence[str], mask: int) -> tuple[Device, ...]:
    if not uuids:
        return _nameless(mask)
    return tuple(Device(gpu, MILLI, uuids[gpu] if gpu < len(uuids) else "") for gpu in gpus_of(mask))


@lru_cache(maxsize=4096)
def _nameless(mask: int) -> tuple[Device, ...]:
    """Devices without a uuid are the same on every node."""
    return tuple(Device(gpu, MILLI) for gpu in gpus_of(mask))


@lru_cache(maxsize=4096)
def _asking(at_once: bool, gpu: GpuRequest) -> Asking:
    return Asking(at_once, gpu.devices, row_wish(gpu))


_link = lru_cache(maxsize=4096)(GpuLink)
_mask_of = lru_cache(maxsize=4096)(mask_of)


def _target(entry: Bind | Move) -> str:
    return entry.node if isinstance(entry, Bind) else entry.target


@dataclass(slots=True)
class _Preferred:
    """What `name_devices` needs to know of GPUs by claim."""

    nodes: Mapping[str, Node]
    tables: LinkTables
    _links: dict[str, tuple[int, NodeLinks]] = field(default_factory=dict)

    def __call__(
        self, node: str, gpus: Sequence[ClaimDevice], free: Collection[DeviceId], count: int
    ) -> Collection[DeviceId]:
        """The best GPUs of a node for a pod; none where nothing is known of its links."""
        if node not in self._links:
            links = links_of_claims(self.nodes[node], gpus)
            self._links[node] = self.tables.add(links.graph), links
        kind, links = self._links[node]
        if not links.graph.is_known or len(set(links.devices)) != len(gpus):
            return ()
        mask = self._mask(links, [name for _, _, name in free])
        best = self.tables.pick(kind, mask, count)
        chosen = {links.devices[gpu] for gpu in gpus_of(best)} if best is not None else set()
        return [device for device in free if device[2] in chosen]

    def linked(self, entry: _Entry) -> _Entry:
        """The entry with the link of the GPUs that its claims were given, where all of them are claims'."""
        kind, links = self._links.get(_target(entry), (0, None))
        if links is None or not links.graph.is_known or not entry.claims:
            return entry
        mask = self._mask(links, [device.device for grant in entry.claims for device in grant.devices])
        if not mask or mask.bit_count() != len(entry.devices):
            return entry
        return replace(entry, link=GpuLink(*self.tables.weakest(kind, links.graph, mask)))

    @staticmethod
    def _mask(links: NodeLinks, names: Iterable[str]) -> int:
        index = {name: gpu for gpu, name in enumerate(links.devices)}
        return mask_of(index[name] for name in names if name in index)
