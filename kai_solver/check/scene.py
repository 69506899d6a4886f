"""The snapshot and the plan side by side, indexed once for all rules."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kai_solver.check.columns import Census, Column, Kinds, take_census
from kai_solver.check.parts import charged_on, devices_of, memory_of, share_on
from kai_solver.domain import Action, Bind, Eviction, Gang, Move, Node, Plan, Pod, Snapshot, with_moves
from kai_solver.units import GPU, Vector

Entry = TypeVar("Entry", Bind, Move, Eviction)


def is_active(pod: Pod) -> bool:
    """True where the pod counts toward gang and queue."""
    return pod.status.is_active


@dataclass(slots=True)
class Change:
    """What a plan does to one gang.

    Attributes
    ----------
    before
        Active pods of the snapshot, by key.
    """

    gang: Gang
    before: Mapping[str, Pod]
    binds: Sequence[Bind] = ()
    moves: Sequence[Move] = ()
    evictions: Sequence[Eviction] = ()

    @property
    def arrivals(self) -> list[Bind | Move]:
        """Everything that gets a new place."""
        return [*self.binds, *self.moves]

    @property
    def lost(self) -> set[str]:
        """Keys of the pods that are evicted for good."""
        return {eviction.pod for eviction in self.evictions}

    @property
    def left(self) -> set[str]:
        """Keys of the active pods that are no longer where they were."""
        return self.lost | {move.pod for move in self.moves}


class Holder(NamedTuple):
    """A pod that holds resources of a node now."""

    key: str
    pod: Pod
    active: bool


class Arrival(NamedTuple):
    """A pod that gets a new place; ``at_once``: it starts now and cannot wait for capacity to be released."""

    entry: Bind | Move
    pod: Pod
    node: Node
    at_once: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """Names to objects, and the plan by pod and by gang. Build it with ``set_scene``.

    Attributes
    ----------
    pods, owners
        By key, the pods of gangs that the plan names, and those that it names itself.
    come
        Everything that gets a new place, binds first; entries that name no pod or node are left out.
    concerned
        Nodes that the plan names.
    leaving
        Keys of the pods that are evicted or moved away.
    kinds, census
        What pods ask for, and all pods of the snapshot.
    held, got
        Pods on nodes that the plan names: every pod that holds resources there, foreign ones included, and those of
        ``come``, in its order.
    changes
        Gangs that the plan touches, by key, in the plan's order.
    actions
        Actions by which each gang was admitted, in ``Plan.admitted``'s order.
    """

    snapshot: Snapshot
    plan: Plan
    nodes: dict[str, Node]
    gangs: dict[str, Gang]
    pods: dict[str, Pod]
    owners: dict[str, Gang]
    foreign: frozenset[str]
    come: list[Arrival]
    concerned: dict[str, Node]
    leaving: frozenset[str]
    kinds: Kinds
    census: Census
    held: Column
    got: Column
    changes: dict[str, Change]
    actions: dict[str, list[Action]]

    def everywhere(self) -> list[Holder]:
        """Every pod that holds resources of any node now, foreign ones included."""
        return [Holder(p.key, p, p.status.is_active) for p in _holding(self.snapshot, self.nodes)]

    def arrivals(self) -> Iterator[Bind | Move]:
        """Everything that gets a new place."""
        yield from self.plan.binds
        yield from self.plan.moves

    def holders(self, nodes: Container[str]) -> list[Holder]:
        """Every pod that holds resources of these ``nodes``, of those that the plan names, now."""
        return [Holder(p.key, p, p.status.is_active) for p in self.held.pods if p.node in nodes]


def destination(entry: Bind | Move) -> str:
    """Name of the node where the pod goes."""
    return entry.node if isinstance(entry, Bind) else entry.target


def is_immediate(entry: Bind | Move) -> bool:
    """True where the pod starts now and cannot wait for capacity to be released."""
    return isinstance(entry, Bind) and not entry.nominated


def gpu_milli(pod: Pod, node: Node) -> int:
    """GPUs of ``node`` that the pod is charged, thousandths."""
    return pod.gpu.devices * charged_on(node, pod.gpu)


def demand(pod: Pod, node: Node) -> Vector:
    """What the pod takes of ``node``: its request with the GPUs filled in, in thousandths of MiB (`check.parts`)."""
    request = pod.request
    if not pod.gpu.devices and not request[GPU]:
        return request
    gpus = devices_of(pod.gpu) * share_on(node, pod.gpu)
    return (*request[:GPU], request[GPU] * memory_of(node) + gpus, *request[GPU + 1 :])


def set_scene(snapshot: Snapshot, plan: Plan) -> Scene:
    """Index snapshot and plan. Does not judge: plan entries that name nothing are left to ``form``."""
    snapshot = with_moves(snapshot)
    nodes = {node.name: node for node in snapshot.nodes}
    gangs = {gang.key: gang for gang in snapshot.gangs}
    named = {bind.node for bind in plan.binds} | {eviction.node for eviction in plan.evictions}
    for move in plan.moves:
        named.update((move.source, move.target))
    concerned = {name: nodes[name] for name in sorted(named) if name in nodes}
    pods: dict[str, Pod] = {}
    owners: dict[str, Gang] = {}
    changes = _changes(plan, gangs, pods, owners)
    entries: list[Bind | Move | Eviction] = [*plan.binds, *plan.moves, *plan.evictions]
    if not all(entry.pod in pods for entry in entries):
        for gang in snapshot.gangs:
            _index_pods(gang, pods, owners)
    come = list(_arrivals(plan, pods, nodes))
    leaving = frozenset([entry.pod for entry in plan.evictions] + [entry.pod for entry in plan.moves])
    kinds, rows = Kinds(), {name: row for row, name in enumerate(concerned)}
    census = take_census(snapshot, kinds, rows, leaving)
    return Scene(
        snapshot=snapshot,
        plan=plan,
        nodes=nodes,
        gangs=gangs,
        pods=pods,
        owners=owners,
        foreign=frozenset([pod.key for pod in snapshot.foreign]),
        come=come,
        concerned=concerned,
        leaving=leaving,
        kinds=kinds,
        census=census,
        held=census.held(),
        got=_got(come, rows, kinds),
        changes=changes,
        actions=_actions(plan),
    )


def _changes(plan: Plan, gangs: Mapping[str, Gang], pods: dict[str, Pod], owners: dict[str, Gang]) -> dict[str, Change]:
    """What happens to each gang that the plan names; their pods are indexed on the way."""
    changes: dict[str, Change] = {}
    binds, moves, evictions = _by_gang(plan.binds), _by_gang(plan.moves), _by_gang(plan.evictions)
    for key in dict.fromkeys((*binds, *moves, *evictions)):
        if (gang := gangs.get(key)) is not None:
            before = _index_pods(gang, pods, owners)
            changes[key] = Change(gang, before, binds.get(key, ()), moves.get(key, ()), evictions.get(key, ()))
    return changes


def _index_pods(gang: Gang, pods: dict[str, Pod], owners: dict[str, Gang]) -> Mapping[str, Pod]:
    """Note the pods of ``gang``; the active ones by key."""
    active: dict[str, Pod] = {}
    for pod in gang.pods:
        key = pod.key
        pods[key] = pod
        owners[key] = gang
        if pod.status.is_active:
            active[key] = pod
    return active or _NO_PODS


def _actions(plan: Plan) -> dict[str, list[Action]]:
    """Actions by which gangs are admitted, in the plan's order."""
    found: dict[str, list[Action]] = {}
    for admitted, action in plan.admitted:
        actions = found.get(admitted)
        if actions is None:
            found[admitted] = [action]
        elif action not in actions:
            actions.append(action)
    return found


def _arrivals(plan: Plan, pods: Mapping[str, Pod], nodes: Mapping[str, Node]) -> Iterator[Arrival]:
    for bind in plan.binds:
        pod, node = pods.get(bind.pod), nodes.get(bind.node)
        if pod is not None and node is not None:
            yield Arrival(bind, pod, node, not bind.nominated)
    for move in plan.moves:
        pod, node = pods.get(move.pod), nodes.get(move.target)
        if pod is not None and node is not None:
            yield Arrival(move, pod, node, at_once=False)


def _holding(snapshot: Snapshot, nodes: Container[str]) -> list[Pod]:
    """Pods that hold resources of ``nodes``."""
    pods = [p for gang in snapshot.gangs for p in gang.pods if p.node in nodes and p.status.holds_resources]
    pods += [p for p in snapshot.foreign if p.node in nodes and p.status.holds_resources]
    return pods


def _got(come: list[Arrival], rows: Mapping[str, int], kinds: Kinds) -> Column:
    """Pods that come: at once, unless they wait for capacity."""
    pods, places = [arrival.pod for arrival in come], [rows[arrival.node.name] for arrival in come]
    return Column.of(pods, places, kinds.of_all(pods), [arrival.at_once for arrival in come], [True] * len(come))


def _by_gang(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        known = found.get(entry.gang)
        if known is None:
            found[entry.gang] = [entry]
        else:
            known.append(entry)
    return found


def unchanged(gang: Gang) -> Change:
    """A gang of which nothing is said yet."""
    return Change(gang, {pod.key: pod for pod in gang.pods if pod.status.is_active})


_NO_PODS: Mapping[str, Pod] = {}
"""Shared by all gangs without running pods."""
