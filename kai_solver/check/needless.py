"""Rule ``units``, second half: no pod is disturbed that could stay where it is."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kai_solver.check.accounts import RESOURCES, ZERO, Amount, Ledger, QueueTree, minus, paid, plus
from kai_solver.check.capacity import Load, room_for_one
from kai_solver.check.devices import Board, set_boards
from kai_solver.check.gangs import Counts, by_podset, members, satisfied
from kai_solver.check.numa import Tenants as ZoneTenants
from kai_solver.check.numa import ZoneBook, is_strict
from kai_solver.check.optional import checks_of
from kai_solver.check.scene import Change, Scene, demand
from kai_solver.check.spares import Spares
from kai_solver.check.tenants import Tenants, has_tenants
from kai_solver.check.units import Part, broken_unit, remainder
from kai_solver.check.violation import Violation
from kai_solver.domain import FOR_NO_GANG, Pod, SubGroup
from kai_solver.units import PODS, UNLIMITED

NOWHERE: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class _Stay:
    """What the pods that could stay hold, while they are found one by one."""

    load: dict[str, list[int]] = field(default_factory=dict)
    boards: dict[str, Board] = field(default_factory=dict)
    books: dict[str, ZoneBook] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)


class Room:
    """What is left over finally. A refusal may be cautious; a yes is certain."""

    def __init__(self, scene: Scene, tree: QueueTree, end: Load, after: Ledger) -> None:
        self._scene, self._tree, self._after = scene, tree, after
        welcome = room_for_one(scene, end)
        self._welcome, homes = {pod.key for pod in welcome}, {pod.node for pod in welcome}
        self._free, self._boards = end.free(), set_boards(scene, end=True, only=homes)
        sources = {entry.source for entry in scene.plan.moves} | {entry.node for entry in scene.plan.evictions}
        zones = ZoneTenants.of(scene)
        strict = (scene.nodes[name] for name in sources if is_strict(scene.nodes[name]))
        self._books = {node.name: ZoneBook.of(zones, node, at_end=True) for node in strict}
        self._tenants = Tenants.of(scene) if has_tenants(scene) else None
        self._spares = Spares.of(scene)

    def keepers(self, change: Change, keys: Iterable[str], targets: Mapping[str, str] = NOWHERE) -> list[str]:
        """Pods among ``keys`` that could stay together; for those with ``targets`` their queue pays there already."""
        welcome = [change.before[key] for key in keys if key in self._welcome]
        if not welcome:
            return []
        stay = _Stay()
        owed: Amount = ZERO
        kept: list[str] = []
        for pod in sorted(welcome, key=lambda pod: pod.order):
            if not self._is_admitted(pod, stay) or not self._takes(pod, stay):
                continue
            stay.nodes.add(pod.node)
            price = self._price(pod, targets.get(pod.key, ""))
            held = plus(owed, price)
            if price == ZERO or self._affords(change.gang.queue, held):
                owed = held
                kept.append(pod.key)
        return kept

    def _is_admitted(self, pod: Pod, stay: _Stay) -> bool:
        """Whether its domains admit it beside the arriving pods, and with the nodes that they keep free."""
        if self._tenants is not None and not self._tenants.admits(pod):
            return False
        return pod.node in stay.nodes or self._spares.admits({*stay.nodes, pod.node})

    def _price(self, pod: Pod, target: str) -> Amount:
        """What the pod costs its queue more at home than at its ``target``, where it has one (GPU memory)."""
        nodes = self._scene.nodes
        price = paid(pod, nodes[pod.node])
        return minus(price, paid(pod, nodes[target])) if target else price

    def _takes(self, pod: Pod, stay: _Stay) -> bool:
        """Whether its node has room beside the pods that stay; the pod then takes it."""
        name = pod.node
        extra = stay.load.setdefault(name, [0] * self._scene.snapshot.schema.size)
        wanted = [have + more for have, more in zip(extra, demand(pod, self._scene.nodes[name]), strict=True)]
        if not _fits(wanted, self._free[name]):
            return False
        if name not in stay.boards:
            stay.boards[name] = self._boards[name].copy()
            if name in self._books:
                stay.books[name] = self._books[name].copy()
        board = stay.boards[name]
        if name in stay.books and not stay.books[name].admits(pod):
            return False
        if pod.gpu.devices and not board.admits(pod):
            return False
        if board.reservations and not _fits(_with_pods(wanted, board.reservations), self._free[name]):
            return False
        extra[:] = wanted
        return True

    def _affords(self, leaf: str, amount: Amount) -> bool:
        """True where no limit on the way up needs the victim gone."""
        for name in self._tree.paths.get(leaf, ()):
            limit, held = self._tree.queues[name].limit, plus(self._after.allocated[name], amount)
            if any(limit[r] != UNLIMITED and held[r] > limit[r] for r in RESOURCES):
                return False
        return True


def _fits(amount: list[int], free: list[int]) -> bool:
    """True where ``amount`` more still fits, in the resources that it asks for."""
    return not any(need > left and need for need, left in zip(amount, free, strict=True))


def _with_pods(amount: list[int], more: int) -> list[int]:
    return [*amount[:PODS], amount[PODS] + more, *amount[PODS + 1 :]]


def _is_decided_by_room(scene: Scene) -> bool:
    """True if no rule of a new pod or victim is about the pods beside it: room and domains decide what may stay."""
    if not any(constraints.binds_pods for constraints in scene.census.constraints.values()):
        return True
    entries = (*scene.arrivals(), *scene.plan.evictions)
    return not any(scene.pods[entry.pod].constraints.binds_pods for entry in entries)


def judge_needless(
    scene: Scene,
    tree: QueueTree,
    end: Load,
    after: Ledger,
    reclaims_hold: Callable[[Collection[str]], bool],
) -> Iterator[Violation]:
    """The plan without a victim must fail: here, no unit of it could stay in the final state as it is.

    ``reclaims_hold``: whether all reclaims of the plan are allowed where these pods stay. One may be allowed only
    because its own queue lost work to others.
    """
    if not (scene.plan.moves or scene.plan.evictions) or not _is_decided_by_room(scene):
        return
    room, changed = Room(scene, tree, end, after), [change.gang for change in scene.changes.values()]
    excused = frozenset[str]().union(*(check.may_need_gone(scene, changed) for check in checks_of(scene)))
    for change in scene.changes.values():
        if change.gang.key in excused:
            continue
        lost = {eviction.pod for eviction in change.evictions if eviction.reason not in FOR_NO_GANG}
        keepers = room.keepers(change, lost) if lost else []
        if (text := _spared(scene, change, keepers, lost)) and reclaims_hold(keepers):
            yield Violation("needless", change.gang.key, f"gang {change.gang.key}: needless eviction, {text}")
        moved = {move.pod: move.target for move in change.moves if move.cause == "room"}
        # A gang that also gets pods may have to move to have them all in one domain.
        if moved and not change.binds and len(room.keepers(change, moved, moved)) == len(moved):
            text = f"gang {change.gang.key}: needless moves, all {len(moved)} pods could stay where they are"
            yield Violation("needless", change.gang.key, text)


def _spared(scene: Scene, change: Change, keepers: list[str], lost: set[str]) -> str:
    if not keepers:
        return ""
    counts, gone = remainder(scene, change), by_podset(scene, lost)
    if broken_unit(change.gang.root, counts, gone) is not None:
        return ""
    spare = _spare(change.gang.root, counts, gone, by_podset(scene, keepers))
    return f"{spare} of {len(lost)} pods could stay where they are" if spare else ""


def _spare(part: Part, counts: Counts, gone: Counts, keepers: Counts) -> int:
    """Pods of whole units that could stay: of an emptied part only its minimum counts, of others each surplus pod."""
    if not members(part, gone):
        return 0
    if not members(part, counts) and not satisfied(part, {}):
        return members(part, keepers) if satisfied(part, keepers) else 0
    if isinstance(part, SubGroup):
        return sum(_spare(child, counts, gone, keepers) for child in part.children)
    return members(part, keepers)
