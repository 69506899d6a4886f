"""Which devices a plan gives: names for what was counted, by a matching per node, the same for the same plan."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kai_solver.claims.demand import Demand
from kai_solver.claims.matching import Bits, devices_in
from kai_solver.claims.seating import seat
from kai_solver.claims.survey import Keeping, Use, survey
from kai_solver.domain import (
    Allotted,
    Bind,
    Claim,
    ClaimDevice,
    ClaimGrant,
    Device,
    DeviceId,
    Move,
    Plan,
    Pod,
    PodStatus,
    Snapshot,
)
from kai_solver.units import MILLI
from kai_solver.units.resources import FIXED, GPU

_Entry = TypeVar("_Entry", Bind, Move)

Prefer = Callable[[str, Sequence[ClaimDevice], Collection[DeviceId], int], Collection[DeviceId]]
"""Of a node's GPUs (second) and the free ones (third), so many that a pod had best get; none: any will do."""


def _no_preference(
    _node: str, _gpus: Sequence[ClaimDevice], _free: Collection[DeviceId], _count: int
) -> Collection[DeviceId]:
    return ()


def _entries(plan: Plan) -> list[Bind | Move]:
    return [*plan.binds, *plan.moves]


def _target(entry: Bind | Move) -> str:
    return entry.node if isinstance(entry, Bind) else entry.target


def _starts_later(entry: Bind | Move) -> bool:
    return isinstance(entry, Move) or entry.nominated


def _stays(pod: Pod) -> bool:
    return pod.status.is_active or pod.status is PodStatus.STUCK_IN_RELEASING


def name_devices(snapshot: Snapshot, plan: Plan, prefer: Prefer = _no_preference) -> Plan:
    """``plan`` with devices for the claims of every pod that gets a node: those that ``prefer`` names, where possible.

    Devices were counted for now and for later, each by itself. Where no names meet both, gangs that were to start at
    once on that node wait with the others for what is being released. A node without names is left to the checker.
    """
    claims = snapshot.claims
    if claims is None or claims.lowered is None or not (plan.binds or plan.moves):
        return plan
    for _ in range(len(plan.binds) + 1):
        naming = _Naming(snapshot, plan, prefer)
        failed = naming.run()
        if not failed:
            return naming.named()
        late = {bind.gang for bind in plan.binds if bind.node in failed and not bind.nominated}
        if not late:
            return naming.named()
        plan = replace(plan, binds=tuple(replace(b, nominated=True) if b.gang in late else b for b in plan.binds))
    return plan


@dataclass(slots=True)
class _Slot:
    """A device to be chosen: for a request of a claim, or a GPU of a device plugin."""

    pod: str
    claim: str
    request: str
    wish: Bits


@dataclass(slots=True)
class _Names:
    """What was found for one pod."""

    indices: list[int] = field(default_factory=list)
    grants: dict[str, list[Allotted]] = field(default_factory=dict)


class _Naming:
    """One attempt."""

    def __init__(self, snapshot: Snapshot, plan: Plan, prefer: Prefer) -> None:
        claims = snapshot.claims
        assert claims is not None  # noqa: S101  (the caller has looked)
        assert claims.lowered is not None  # noqa: S101
        self.plan = plan
        self.prefer = prefer
        self.asked = claims.lowered.pods
        self.pods = {pod.key: pod for gang in snapshot.gangs for pod in gang.pods}
        self.uses = survey(snapshot, claims.claims)
        before = replace(snapshot, nodes=claims.lowered.nodes, schema=claims.lowered.schema)
        self.demand = Demand(before, claims, self.uses)
        self.table = self.demand.table
        self.plain = {node.name: node.gpus for node in before.nodes}
        self.uuids = {node.name: node.gpu_uuids for node in before.nodes}
        self.leaving = {e.pod for e in plan.evictions} | {m.pod for m in plan.moves}
        self.names: dict[str, _Names] = {}
        self.held_now, self.held_later = self._held()
        self.plain_held = self._plain_held(snapshot)

    # -- what is held --------------------------------------------------------------------------------------------

    def _held(self) -> tuple[Bits, Bits]:
        """Devices that some claim has now, and those that some claim still has when the plan is done."""
        now = later = 0
        for use in self.uses.values():
            bits = 0
            for allotted in use.claim.allotted or ():
                device = self.table.index.get(allotted.id)
                bits |= 0 if device is None else 1 << device
            now |= bits
            later |= bits if self._keeps(use) else 0
        return now, later

    def _keeps(self, use: Use) -> bool:
        """True where the claim's devices stay its own."""
        if use.keeping is Keeping.PAYER:
            return any(c.pod.key not in self.leaving and _stays(c.pod) for c in use.holding)
        return use.keeping is Keeping.ITSELF

    def _plain_held(self, snapshot: Snapshot) -> Mapping[str, set[int]]:
        """Indices of a plugin's GPUs that stay taken, on nodes that have both kinds."""
        found: dict[str, set[int]] = {}
        everybody = [pod for gang in snapshot.gangs for pod in gang.pods] + list(snapshot.foreign)
        for pod in everybody:
            if pod.devices and _stays(pod) and pod.key not in self.leaving:
                found.setdefault(pod.node, set()).update(pod.devices)
        return found

    # -- the matching --------------------------------------------------------------------------------------------

    def run(self) -> set[str]:
        """Find names node by node; the nodes where there are none."""
        failed: set[str] = set()
        by_node: dict[str, list[Bind | Move]] = {}
        for entry in _entries(self.plan):
            by_node.setdefault(_target(entry), []).append(entry)
        for node, entries in by_node.items():
            if any(self.pods[e.pod].claims for e in entries) or self.demand.gpus_on(node):
                slots = list(self._slots(node, sorted(entries, key=_starts_later)))
                seats = seat(self._narrowed(node, slots))
                if seats is None:
                    failed.add(node)
                else:
                    self._give(slots, seats)
        return failed

    def _narrowed(self, node: str, slots: Sequence[_Slot]) -> list[Bits]:
        """Wishes, narrowed to the GPUs that are best for a pod, as long as every slot still finds a device.

        The largest pod first. Pods whose GPUs are asked for in several ways take what the matching gives them.
        """
        wishes, gpus = [slot.wish for slot in slots], self.demand.gpu_bits_on(node)
        by_pod: dict[str, list[int]] = {}
        for number, slot in enumerate(slots):
            if slot.wish & gpus:
                by_pod.setdefault(slot.pod, []).append(number)
        taken = 0
        for numbers in sorted(by_pod.values(), key=len, reverse=True):
            wish = slots[numbers[0]].wish
            if wish & ~gpus or any(slots[number].wish != wish for number in numbers):
                continue
            best = self._best(node, gpus, wish & ~taken, len(numbers))
            narrowed = [best if number in numbers else other for number, other in enumerate(wishes)]
            if best and seat(narrowed) is not None:
                wishes, taken = narrowed, taken | best
        return wishes

    def _best(self, node: str, gpus: Bits, free: Bits, count: int) -> Bits:
        devices = self.table.devices
        ids = {devices[number].id: number for number in devices_in(free)}
        liked = self.prefer(node, [devices[number] for number in devices_in(gpus)], ids.keys(), count)
        return sum(1 << ids[found] for found in liked)

    def _slots(self, node: str, entries: list[Bind | Move]) -> Iterable[_Slot]:
        asked: set[str] = set()
        for entry in entries:
            pod = self.pods[entry.pod]
            free = self._free(node, is_late=_starts_later(entry))
            for key in pod.claims:
                use = self.uses.get(key)
                if use is None or key in asked or (use.claim.allotted is not None and self._keeps(use)):
                    continue
                asked.add(key)
                yield from self._claim_slots(pod, use.claim, node, free)
            for _ in range(self._plain_gpus(pod) if self.demand.gpus_on(node) else 0):
                yield _Slot(pod.key, "", "", self._plain_free(node))

    def _plain_gpus(self, pod: Pod) -> int:
        """Whole GPUs that the pod asks a device plugin for, beside its claims."""
        asked = self.asked.get(pod.key, pod).gpu
        return 0 if any(self._is_for_gpus(key) for key in pod.claims) or not asked.is_whole else asked.devices

    def _is_for_gpus(self, key: str) -> bool:
        """True where the claim stands for the pod's request of GPUs."""
        return key in self.uses and self.uses[key].claim.extended == FIXED[GPU]

    def _claim_slots(self, pod: Pod, claim: Claim, node: str, free: Bits) -> Iterable[_Slot]:
        wishes, _ = self.demand.wishes(claim)
        if claim.extended == FIXED[GPU] and not self.demand.gpus_on(node):
            return  # The plan has given it GPUs of a device plugin already.
        for request, wish in zip(claim.requests, wishes, strict=False):
            bits = wish.bits & free
            if claim.extended == FIXED[GPU]:
                bits |= self._plain_free(node)
            for _ in range(wish.count):
                yield _Slot(pod.key, claim.key, request.name, bits)

    def _free(self, node: str, *, is_late: bool) -> Bits:
        return self.table.on_node.get(node, 0) & ~(self.held_later if is_late else self.held_now | self.held_later)

    def _plain_free(self, node: str) -> Bits:
        """GPUs of a device plugin, as bits behind everything else."""
        taken = self.plain_held.get(node, set())
        first = self._first_plain
        return sum(1 << (first + index) for index in range(self.plain.get(node, 0)) if index not in taken)

    @property
    def _first_plain(self) -> int:
        return len(self.table.devices) + 64

    def _give(self, slots: list[_Slot], seats: list[int]) -> None:
        for slot, number in zip(slots, seats, strict=True):
            names = self.names.setdefault(slot.pod, _Names())
            if number >= self._first_plain:
                names.indices.append(number - self._first_plain)
                continue
            device = self.table.devices[number]
            allotted = Allotted(slot.request, device.driver, device.pool, device.name)
            names.grants.setdefault(slot.claim, []).append(allotted)
            names.indices += self.demand.gpu_indices([allotted])

    # -- the plan ------------------------------------------------------------------------------------------------

    def named(self) -> Plan:
        """The plan with the names found."""
        granted = {key: tuple(found) for names in self.names.values() for key, found in names.grants.items()}
        return replace(
            self.plan,
            binds=tuple(self._named(bind, granted) for bind in self.plan.binds),
            moves=tuple(self._named(move, granted) for move in self.plan.moves),
        )

    def _named(self, entry: _Entry, granted: Mapping[str, tuple[Allotted, ...]]) -> _Entry:
        pod = self.pods[entry.pod]
        grants = []
        for key in pod.claims:
            use = self.uses.get(key)
            if key in granted:
                grants.append(ClaimGrant(key, granted[key]))
            elif use is not None and use.claim.allotted is not None and self._keeps(use):
                grants.append(ClaimGrant(key, use.claim.allotted))
        devices = entry.devices
        names = self.names.get(entry.pod)
        if pod.gpu.is_whole and names is not None and len(names.indices) == pod.gpu.devices:
            uuids = self.uuids.get(_target(entry), ())
            devices = tuple(Device(i, MILLI, uuids[i] if i < len(uuids) else "") for i in sorted(names.indices))
        return replace(entry, claims=tuple(grants), devices=devices)
