"""Which GPUs of its node a pod of a plan gets: the set with the best links, for all pods of the node together.

The engine counts whole devices, which are alike to it. Here they get names: the largest pod of a node first, each the
set that `links` finds best among what the others leave. Where a pod that runs there has GPUs that nobody knows, nothing
is chosen: what would be free is not known either.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

from kai_solver.claims import name_devices
from kai_solver.domain import Bind, ClaimDevice, Device, DeviceId, GpuLink, Move, Node, Plan, PodStatus
from kai_solver.links import (
    MOST_GPUS,
    Asking,
    Board,
    LinkTables,
    NodeLinks,
    RowWish,
    gpus_of,
    graph_of,
    known_tables,
    links_of_claims,
    mask_of,
    name_all,
)
from kai_solver.reduction import Problem
from kai_solver.reduction.gpurows import wish_of
from kai_solver.units import GPU, MILLI

_Entry = TypeVar("_Entry", Bind, Move)
Chosen = Mapping[str, tuple[tuple[Device, ...], GpuLink]]
"""By pod."""


def named_gpus(problem: Problem, plan: Plan) -> Plan:
    """``plan`` with the best GPUs for the pods that it gives whole ones, where links are known; claims get devices."""
    plan = _choose_plain(problem, plan)
    if problem.snapshot.claims is None:
        return plan
    prefer = _Preferred({node.name: node for node in problem.nodes}, known_tables())
    plan = name_devices(problem.snapshot, plan, prefer)
    return replace(plan, binds=tuple(map(prefer.linked, plan.binds)), moves=tuple(map(prefer.linked, plan.moves)))


def _choose_plain(problem: Problem, plan: Plan) -> Plan:
    """Choose among GPUs of device plugins."""
    by_node = _arrivals(problem, plan)
    if not by_node:
        return plan
    coming = {entry.pod for entries in by_node.values() for entry in entries}
    wishes = {pod.key: wish_of(pod.gpu) for pod in problem.pods if pod.gpu.row and pod.key in coming}
    choice = _Choice(known_tables(), {key: wish for key, wish in wishes.items() if wish is not None})
    boards, sharing = _boards(problem, plan, by_node)
    for node, entries in by_node.items():
        choice.on_node(problem.nodes[node], boards[node], entries, sharing)
    return replace(
        plan,
        binds=tuple(_with(bind, choice.chosen) for bind in plan.binds),
        moves=tuple(_with(move, choice.chosen) for move in plan.moves),
    )


def _with(entry: _Entry, chosen: Chosen) -> _Entry:
    found = chosen.get(entry.pod)
    return entry if found is None else replace(entry, devices=found[0], link=found[1])


def _arrivals(problem: Problem, plan: Plan) -> dict[int, list[Bind | Move]]:
    """Entries with GPUs by node, of nodes where the links between a device plugin's GPUs are known."""
    offered = _offered(problem)
    found: dict[int, list[Bind | Move]] = {}
    is_told: dict[str, bool] = {}
    entries: tuple[Bind | Move, ...] = (*plan.binds, *plan.moves)
    for entry in entries:
        name = _target(entry)
        if entry.devices and name not in is_told:
            is_told[name] = _is_told(problem, problem.node_index[name], offered)
        if entry.devices and is_told[name]:
            found.setdefault(problem.node_index[name], []).append(entry)
    return found


def _offered(problem: Problem) -> Mapping[str, int]:
    """GPUs that device plugins offer by node, where there are claims; else they are all that nodes have."""
    claims = problem.snapshot.claims
    before = claims.lowered.nodes if claims is not None and claims.lowered is not None else ()
    return {node.name: node.gpus for node in before}


def _is_told(problem: Problem, node: int, offered: Mapping[str, int]) -> bool:
    """Whether the links between its GPUs and the free ones are known, and all are a device plugin's and may be had."""
    known = problem.nodes[node]
    is_plain = offered.get(known.name, known.gpus) == known.gpus and known.allocatable[GPU] == known.gpus * MILLI
    return bool(problem.is_told[node]) and is_plain and known.gpus <= MOST_GPUS and graph_of(known).is_known


def _boards(
    problem: Problem, plan: Plan, by_node: Mapping[int, Sequence[Bind | Move]]
) -> tuple[dict[int, Board], set[str]]:
    """What is held on the nodes, and who of those that come shares devices."""
    boards = {node: Board((1 << problem.nodes[node].gpus) - 1) for node in by_node}
    leaving = {eviction.pod for eviction in plan.evictions} | {move.pod for move in plan.moves}
    coming = {entry.pod for entries in by_node.values() for entry in entries}
    sharing: set[str] = set()
    for number, pod in enumerate(problem.pods):
        if pod.gpu.is_shared and pod.key in coming:
            sharing.add(pod.key)
        board = boards.get(problem.pod_node[number])
        if board is not None:
            leaves = pod.status is PodStatus.RELEASING or pod.key in leaving
            mask = mask_of(problem.seats.get(number, ()))
            board.now |= mask
            board.later |= 0 if leaves else mask
    return boards, sharing


@dataclass(slots=True)
class _Choice:
    """The GPUs of one plan."""

    tables: LinkTables
    rows: Mapping[str, RowWish]
    chosen: dict[str, tuple[tuple[Device, ...], GpuLink]] = field(default_factory=dict)

    def on_node(self, node: Node, board: Board, entries: Sequence[Bind | Move], sharing: Collection[str]) -> None:
        """Choose for all pods of one node, or for none; those ``sharing`` devices keep theirs."""
        wholes = [entry for entry in entries if entry.pod not in sharing]
        for entry in entries:
            if entry.pod in sharing:
                mask = mask_of(device.index for device in entry.devices)
                board.now |= mask if _is_at_once(entry) else 0
                board.later |= mask
        graph = graph_of(node)
        kind = self.tables.add(graph)
        asking = [Asking(_is_at_once(entry), len(entry.devices), self.rows.get(entry.pod)) for entry in wholes]
        found = name_all(self.tables, kind, board, asking)
        for entry, mask in zip(wholes, found or (), strict=False):  # Else the engine's own names stand.
            self.chosen[entry.pod] = _named(node, mask), GpuLink(*self.tables.weakest(kind, graph, mask))


def _target(entry: Bind | Move) -> str:
    return entry.node if isinstance(entry, Bind) else entry.target


def _is_at_once(entry: Bind | Move) -> bool:
    return isinstance(entry, Bind) and not entry.nominated


def _named(node: Node, mask: int) -> tuple[Device, ...]:
    uuids = node.gpu_uuids
    if not uuids:
        return _nameless(mask)
    return tuple(Device(gpu, MILLI, uuids[gpu] if gpu < len(uuids) else "") for gpu in gpus_of(mask))


@lru_cache(maxsize=4096)
def _nameless(mask: int) -> tuple[Device, ...]:
    """Devices without a uuid are the same on every node."""
    return tuple(Device(gpu, MILLI) for gpu in gpus_of(mask))


@dataclass(slots=True)
class _Preferred:
    """What `name_devices` is told of GPUs by claim."""

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
