"""Rule ``numa``: the kubelet would let every new pod start in the NUMA zones that the plan names.

Judged where the node's Topology Manager turns pods away (``single-numa-node``, ``restricted``): the zones hold what of
the pod is aligned, as few of them as the policy asks for, and no zone gets more than it has, now or finally.
What of a pod is aligned is worked out here from its request, by the kubelet's rules.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from kai_solver.check.columns import stays
from kai_solver.check.scene import Holder, Scene, destination, is_immediate
from kai_solver.check.violation import Violation
from kai_solver.domain import Bind, Move, Node, NumaTopology, Pod, ZoneShare
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS, Vector

_STRICT = ("single-numa-node", "restricted")

Needs = list[dict[int, int]]
"""By unit, what is aligned of it, by resource."""


def is_strict(node: Node) -> bool:
    """True where the node's kubelet turns away what it cannot align."""
    return node.numa is not None and node.numa.policy in _STRICT


def judge_numa(scene: Scene) -> Iterator[Violation]:
    """Every new place by itself, then every zone in all."""
    if not any(is_strict(node) for node in scene.concerned.values()):
        return
    faults = []
    tenants, verdicts = Tenants.of(scene), dict[tuple[object, ...], str]()
    numbers: dict[NumaTopology | None, int] = {}
    kind_of = {name: numbers.setdefault(scene.nodes[name].numa, len(numbers)) for name in tenants.arrivals}
    for entry in scene.arrivals():
        node, pod = scene.nodes[destination(entry)], scene.pods[entry.pod]
        if not is_strict(node):
            continue
        # A pod of one container does not mind where others are: what holds for it holds for all that are like it.
        own = entry.pod if pod.containers else ""
        like = own, pod.request, pod.gpu, pod.guaranteed, entry.zones, kind_of[node.name]
        if like not in verdicts:
            verdicts[like] = _fault(tenants, entry, node)
        if text := verdicts[like]:
            faults.append(Violation("numa", entry.pod, f"pod {entry.pod}: node {node.name}: {text}"))
    yield from faults
    if faults:
        return
    strict = [scene.nodes[name] for name in {destination(entry): None for entry in scene.arrivals()}]
    for node in (node for node in strict if is_strict(node)):
        for at_end in (False, True):
            yield from _overfull(ZoneBook.of(tenants, node, at_end=at_end), at_end=at_end)


# -- one pod -----------------------------------------------------------------------------------------------------------


def needs(scene: Scene, pod: Pod, topology: NumaTopology) -> tuple[Needs, Needs]:
    """What of ``pod`` is aligned on such a node: units that run together, and init containers."""
    parts = [(c.role, _aligned(scene, pod, c.request, topology)) for c in pod.containers]
    if not parts:
        whole = pod.gpu.devices * MILLI if pod.gpu.is_whole else 0
        request: Vector = (*pod.request[:GPU], whole, *pod.request[GPU + 1 :])
        parts = [("app", _aligned(scene, pod, request, topology))]
    if topology.scope == "container":
        together = [need for role, need in parts if role != "init" and need]
        return together, [need for role, need in parts if role == "init" and need]
    whole_pod = {r: amount for r in topology.resources if (amount := _peak(parts, r))}
    return ([whole_pod] if whole_pod else []), []


def _aligned(scene: Scene, pod: Pod, request: Vector, topology: NumaTopology) -> dict[int, int]:
    """CPU in whole cores, memory and huge pages of guaranteed pods; devices of all."""
    found = {}
    for r in topology.resources:
        name, amount = scene.snapshot.schema.names[r], request[r]
        gated = r in (CPU, MEMORY) or name.startswith("hugepages-")
        if r == PODS or not amount or (gated and not pod.guaranteed) or (r == CPU and amount % MILLI):
            continue
        found[r] = amount
    return found


def _peak(parts: Sequence[tuple[str, dict[int, int]]], r: int) -> int:
    """The most of ``r`` that the pod's containers hold at any time."""
    beside = most = 0
    for role, need in parts:
        if role == "sidecar":
            beside += need.get(r, 0)
            most = max(most, beside)
        elif role == "init":
            most = max(most, beside + need.get(r, 0))
    return max(most, beside + sum(need.get(r, 0) for role, need in parts if role == "app"))


def _fault(tenants: "Tenants", entry: Bind | Move, node: Node) -> str:
    scene, topology = tenants.scene, node.numa
    if topology is None:
        return ""
    pod = scene.pods[entry.pod]
    zones = {zone.name: number for number, zone in enumerate(topology.zones)}
    if unknown := [share.zone for share in entry.zones if share.zone not in zones]:
        return f"it has no NUMA zone {unknown[0]}"
    if len({share.zone for share in entry.zones}) < len(entry.zones):
        return "a NUMA zone is named twice"
    together, before = needs(scene, pod, topology)
    given = {zones[share.zone]: _amounts(scene, share) for share in entry.zones}
    for r in range(scene.snapshot.schema.size):
        asked, got = sum(n.get(r, 0) for n in together), sum(amounts.get(r, 0) for amounts in given.values())
        if asked != got:
            return f"its NUMA zones give {got} of {scene.snapshot.schema.names[r]}, {asked} are to be aligned"
    widths = [_width(topology, need) for need in together]
    if None in widths:
        return f"no set of NUMA zones that {topology.policy} allows could hold it"
    if not _splits(together, [w or 0 for w in widths], given, len(topology.zones)):
        return f"its NUMA zones {sorted(given)} are not what {topology.policy} allows ({topology.scope} scope)"
    if len(together) < 2 and not before:
        return ""
    book = ZoneBook.of(tenants, node, at_end=not is_immediate(entry), without=entry.pod)
    if len(together) > 1 and not _takes_in_turn(book, together, [w or 0 for w in widths]):
        return "the kubelet, which gives each container in turn the first NUMA zones that serve, would turn it away"
    return _init_fault(book, topology, before)


def _amounts(scene: Scene, share: ZoneShare) -> dict[int, int]:
    names = scene.snapshot.schema.names
    return {names.index(name): amount for name, amount in share.amounts if name in names}


def _width(topology: NumaTopology, need: dict[int, int]) -> int | None:
    """Zones that one unit has to have; None where it may have none.

    One, or under ``restricted`` the fewest that could give every resource: if that differs by resource, none.
    """
    if topology.policy == "single-numa-node":
        return 1
    fewest = set()
    for r, amount in need.items():
        largest = sorted((zone.allocatable[r] for zone in topology.zones), reverse=True)
        enough = (n for n in range(1, len(largest) + 1) if sum(largest[:n]) >= amount)
        fewest.add(next(enough, 0))
    return fewest.pop() if len(fewest) == 1 and 0 not in fewest else None


def _splits(units: Needs, widths: list[int], given: dict[int, dict[int, int]], zones: int) -> bool:
    """True where units can share out ``given`` so that each lies in a set of zones of its width."""
    return _assign(units, widths, given, zones, [])


def _assign(
    units: Needs, widths: list[int], given: dict[int, dict[int, int]], zones: int, sets: list[frozenset[int]]
) -> bool:
    if not _covers(units[: len(sets)], sets, given):
        return False
    if len(sets) == len(units):
        return True
    choices = combinations(range(zones), widths[len(sets)])
    return any(_assign(units, widths, given, zones, [*sets, frozenset(choice)]) for choice in choices)


def _covers(units: Needs, sets: list[frozenset[int]], given: dict[int, dict[int, int]]) -> bool:
    """Hall's condition, by resource: no group of units asks for more than the zones that any of them may use."""
    for size in range(1, len(units) + 1):
        for group in combinations(range(len(units)), size):
            reach = frozenset[int]().union(*(sets[u] for u in group))
            for r in {r for u in group for r in units[u]}:
                want = sum(units[u].get(r, 0) for u in group)
                if want > sum(amounts.get(r, 0) for zone, amounts in given.items() if zone in reach):
                    return False
    return True


def _takes_in_turn(book: "ZoneBook", units: Needs, widths: list[int]) -> bool:
    """True if unit after unit finds zones beside all other pods, each taking the first that fit."""
    count = len(book.used)
    asked = {r for need in units for r in need}  # Others need no count by zone: those of resource claims have none.
    left = [{r: max(0, book.left(zone, r)) for r in asked} for zone in range(count)]
    for need, width in zip(units, widths, strict=True):
        sets = combinations(range(count), width)
        chosen = next((s for s in sets if all(sum(left[z][r] for z in s) >= a for r, a in need.items())), None)
        if chosen is None:
            return False
        for r, amount in need.items():
            rest = amount
            for zone in chosen:
                part = min(rest, left[zone][r])
                left[zone][r] -= part
                rest -= part
    return True


def _init_fault(book: "ZoneBook", topology: NumaTopology, before: Needs) -> str:
    """Init containers have to find zones too, beside all other pods, before their pod's other containers start."""
    for need in before:
        width = _width(topology, need)
        if width is None or not _takes_in_turn(book, [need], [width]):
            return "an init container finds no NUMA zones"
    return ""


# -- all pods of a node ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tenants:
    """Pods that hold resources of each strict node that the plan names, and pods that arrive there."""

    scene: Scene
    holders: dict[str, list[Holder]]
    arrivals: dict[str, list[Bind | Move]]
    leaving: frozenset[str]

    @classmethod
    def of(cls, scene: Scene) -> "Tenants":
        """Indexed once for all nodes."""
        strict = {name for name, node in scene.concerned.items() if is_strict(node)}
        holders: dict[str, list[Holder]] = {name: [] for name in strict}
        arrivals: dict[str, list[Bind | Move]] = {name: [] for name in strict}
        for holder in scene.holders(strict) if strict else ():
            holders[holder.pod.node].append(holder)
        for entry in scene.arrivals() if strict else ():
            if destination(entry) in strict:
                arrivals[destination(entry)].append(entry)
        return cls(scene, holders, arrivals, scene.leaving)


@dataclass(slots=True)
class ZoneBook:
    """What is taken of one node's zones at one moment: ``used[zone][resource]``, and the plan's part of it."""

    scene: Scene
    node: Node
    used: list[list[int]]
    added: list[list[int]]

    @classmethod
    def of(cls, tenants: Tenants, node: Node, *, at_end: bool, without: str = "") -> "ZoneBook":
        """Now, or finally, the pod ``without`` left out."""
        scene = tenants.scene
        size = scene.snapshot.schema.size
        count = len(node.numa.zones) if node.numa is not None else 0
        book = cls(scene, node, [[0] * size for _ in range(count)], [[0] * size for _ in range(count)])
        for holder in tenants.holders[node.name]:
            book._hold_reported(holder.pod.zones, -1)
            if not at_end or stays(holder.pod, tenants.leaving):
                book.take(holder.pod.zones)
        for entry in tenants.arrivals[node.name]:
            if entry.pod != without and (at_end or is_immediate(entry)):
                book.take(entry.zones)
                book._count(book.added, entry.zones, +1)
        return book

    def _hold_reported(self, shares: Sequence[ZoneShare], sign: int) -> None:
        """Where free amounts were reported, what pods held then is off them already."""
        zones = self.node.numa.zones if self.node.numa is not None else ()
        reported = {zone.name for zone in zones if zone.available is not None}
        self._count(self.used, [share for share in shares if share.zone in reported], sign)

    def take(self, shares: Sequence[ZoneShare]) -> None:
        """Count ``shares`` as held."""
        self._count(self.used, shares, +1)

    def _count(self, ledger: list[list[int]], shares: Sequence[ZoneShare], sign: int) -> None:
        zones = self.node.numa.zones if self.node.numa is not None else ()
        numbers = {zone.name: number for number, zone in enumerate(zones)}
        if any(share.zone not in numbers for share in shares):
            return
        for share in shares:
            for r, amount in _amounts(self.scene, share).items():
                ledger[numbers[share.zone]][r] += sign * amount

    def left(self, zone: int, r: int) -> int:
        """What is left of ``r`` in ``zone``; below zero where more is taken than there is."""
        if self.node.numa is None:
            return 0
        z = self.node.numa.zones[zone]
        has = z.allocatable[r] if z.available is None else min(z.available[r], z.allocatable[r])
        return has - self.used[zone][r]

    def admits(self, pod: Pod) -> bool:
        """True where ``pod`` could be in its zones as it was, in which it is then counted."""
        self.take(pod.zones)
        zones = self.node.numa.zones if self.node.numa is not None else ()
        numbers = {zone.name: number for number, zone in enumerate(zones)}
        touched = [(numbers[s.zone], r) for s in pod.zones if s.zone in numbers for r in _amounts(self.scene, s)]
        if all(self.left(zone, r) >= 0 for zone, r in touched):
            return True
        self._count(self.used, pod.zones, -1)
        return False

    def copy(self) -> "ZoneBook":
        """An independent copy."""
        return ZoneBook(self.scene, self.node, [list(row) for row in self.used], self.added)


def _overfull(book: ZoneBook, *, at_end: bool) -> Iterator[Violation]:
    """A zone that was over-full before may stay so; new pods there in that resource are violations."""
    topology = book.node.numa
    for number, zone in enumerate(topology.zones if topology is not None else ()):
        for r in topology.resources if topology is not None else ():
            if book.added[number][r] and book.left(number, r) < 0:
                name = book.scene.snapshot.schema.names[r]
                when = "" if at_end else " while victims and releasing pods still hold theirs"
                text = f"NUMA zone {zone.name} has {-book.left(number, r)} of {name} too little{when}"
                yield Violation("numa", book.node.name, f"node {book.node.name}: {text}")
