"""What claims ask for and what nodes offer, as sets of devices and as amounts of the resources made of them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kai_solver.claims.extended import backed_resources
from kai_solver.claims.matching import Bits, DeviceTable, devices_in
from kai_solver.claims.rows import MOST_ROWS, close
from kai_solver.claims.seating import seat
from kai_solver.claims.survey import Use
from kai_solver.domain import (
    MOST_DEVICES,
    Allotted,
    Claim,
    ClaimDevice,
    Claims,
    DeviceRequest,
    Node,
    Notice,
    Pod,
    Snapshot,
    is_of_gpus,
    names_gpus,
)
from kai_solver.units import Vector
from kai_solver.units.resources import FIXED, GPU

_GPU_NAME = FIXED[GPU]
TOO_MANY = f"its devices overlap with those of too many other requests (more than {MOST_ROWS} unions)"


@dataclass(frozen=True, slots=True)
class Wish:
    """``count`` devices of the set ``bits``, where given on one of ``nodes``.

    ``is_narrowed``: other nodes would do as well, but are not considered.
    """

    bits: Bits
    count: int
    is_gpu: bool
    nodes: tuple[str, ...] | None = None
    is_narrowed: bool = False


class Demand:
    """Sets of devices of one snapshot, and the resources ("rows") that count them.

    Devices of device plugins stand in the sets as groups, one bit each with so many devices on every node: GPUs
    (where both kinds are in the cluster), and extended resources that a device class backs.
    """

    def __init__(self, snapshot: Snapshot, claims: Claims, uses: Mapping[str, Use]) -> None:
        self.snapshot = snapshot
        self.claims = claims
        self.uses = uses
        self.table = DeviceTable.known(claims)
        self.notices: list[Notice] = []
        self.is_rough = False
        backed = backed_resources(claims, snapshot.schema)
        groups = sorted({_GPU_NAME, *backed})
        self._group = {name: 1 << (len(self.table.devices) + i) for i, name in enumerate(groups)}
        self._gpus = self._gpu_devices()
        self._gpu_index = self._indices()
        self.rows, self._left_out = close(self._sets())
        self.rows = [row for row in self.rows if not self._is_counted_as_gpus(row)]
        self.row_names = tuple(self._row_names())
        # A share of a GPU has no place on a node whose GPUs are given by claim (docs/kai-behaviour.md#fractions).
        self.no_shares_on = tuple(sorted(n for n, here in self.table.on_node.items() if here & self._gpus))

    # -- sets ----------------------------------------------------------------------------------------------------

    def _gpu_devices(self) -> Bits:
        """Devices of all classes of GPUs."""
        found = 0
        for known in self.claims.classes:
            if known.is_gpu and not known.problem:
                matched = self.table.matching_selectors(known)
                found |= matched if isinstance(matched, int) else 0
        return found

    def _indices(self) -> dict[int, int]:
        """Index on its node of every GPU by claim: after those of a device plugin."""
        plain = {node.name: node.gpus for node in self.snapshot.nodes}
        found: dict[int, int] = {}
        for node, here in self.table.on_node.items():
            first = plain.get(node, 0)
            found.update({device: first + i for i, device in enumerate(devices_in(here & self._gpus))})
        return found

    def _sets(self) -> list[Bits]:
        """Distinct sets, those that most claims need first; GPUs of plugins where there are GPUs by claim too."""
        wanted: Counter[Bits] = Counter()
        pods = (pod for gang in self.snapshot.gangs for pod in gang.pods)
        if self._gpus and any(pod.gpu.is_whole for pod in (*pods, *self.snapshot.foreign)):
            wanted[self._group[_GPU_NAME]] = len(self.uses) + 1
        for use in self.uses.values():
            if use.holding or use.waiting:
                for request in use.claim.requests:
                    bits = self.bits(use.claim, request)
                    if isinstance(bits, int) and bits:
                        wanted[bits] += 1
        return sorted(wanted, key=lambda bits: (-wanted[bits], bits))

    def bits(self, claim: Claim, request: DeviceRequest) -> Bits | str:
        """Devices that the request may take, groups of device plugins among them; or why it cannot be met."""
        found = self.table.matching(request)
        return found | self._group[claim.extended] if isinstance(found, int) and claim.extended else found

    def _is_counted_as_gpus(self, row: Bits) -> bool:
        """True where the GPUs of nodes say the same: all of them, and nothing else may take one."""
        if row != self._gpus | self._group[_GPU_NAME] and not (row == self._gpus and not self._plain_gpus()):
            return False
        return not any(
            isinstance(bits := self.bits(use.claim, request), int) and bits & self._gpus
            for use in self.uses.values()
            for request in use.claim.requests
            if not self._asks_gpu(request)
        )

    def _plain_gpus(self) -> int:
        return sum(node.gpus for node in self.snapshot.nodes)

    def _asks_gpu(self, request: DeviceRequest) -> bool:
        known = self.table.classes.get(request.device_class)
        return known is not None and known.is_gpu

    def _row_names(self) -> list[str]:
        """A name for people per row: the classes whose requests it counts, numbered where that says too little."""
        names: list[str] = []
        for row in self.rows:
            classes = sorted(
                {
                    request.device_class
                    for use in self.uses.values()
                    for request in use.claim.requests
                    if isinstance(bits := self.bits(use.claim, request), int) and bits and not bits & ~row
                }
            )
            plain = sorted("GPUs" if name == _GPU_NAME else name for name, bits in self._group.items() if bits & row)
            base = f"devices of {' or '.join(classes)}" if classes else f"{' or '.join(plain)} that are not for claims"
            taken = sum(name == base or name.startswith(f"{base}#") for name in names)
            names.append(f"{base}#{taken + 1}" if taken else base)
        return names

    # -- what claims ask for -------------------------------------------------------------------------------------

    def is_gpu(self, claim: Claim) -> bool:
        """True where some request is for GPUs."""
        return any(self._asks_gpu(request) for request in claim.requests)

    def uses_gpus(self, claim: Claim) -> bool:
        """True where some of its devices are or may be GPUs or slices: its pods use them, whichever pod pays."""
        if is_of_gpus(claim.extended, self.snapshot.policy) or any(names_gpus(r.device_class) for r in claim.requests):
            return True
        known = [allotted for allotted in claim.allotted or () if allotted.id in self.table.index]
        found = [self.bits(claim, request) for request in claim.requests]
        bits = [self._bits_held(known), *(each for each in found if isinstance(each, int))]
        return any(each & self.table.gpus for each in bits)

    def wishes(self, claim: Claim) -> tuple[list[Wish], str]:
        """What the claim asks for, or why that cannot be met."""
        found: list[Wish] = []
        if claim.problem:
            return found, claim.problem
        for request in claim.requests:
            bits = self.bits(claim, request)
            if isinstance(bits, str):
                return [], bits
            if not bits:
                return [], f"request {request.name}: no node offers a device that matches"
            if bits in self._left_out:
                return [], f"request {request.name}: {TOO_MANY}"
            found.append(self._wish(request, bits))
        devices = sum(wish.count for wish in found)
        if devices > MOST_DEVICES and not claim.extended:
            return [], f"asks for {devices} devices, at most {MOST_DEVICES} are possible"
        return found, ""

    def _wish(self, request: DeviceRequest, bits: Bits) -> Wish:
        is_gpu = self._asks_gpu(request)
        if not request.all_devices:
            return Wish(bits, request.count, is_gpu)
        counts = self.table.counts(bits)
        count = max(counts, key=lambda c: (counts[c], c))
        nodes = tuple(sorted(n for n, here in self.table.on_node.items() if (here & bits).bit_count() == count))
        if len(counts) > 1:
            text = f"all devices are asked for, and nodes have {sorted(counts)}: only those with {count} are considered"
            self.notices.append(Notice("warning", f"device class {request.device_class}", text))
        return Wish(bits, count, is_gpu, nodes, len(counts) > 1)

    def plain_wishes(self, pod: Pod) -> list[Wish]:
        """Whole GPUs of a device plugin that ``pod`` asks for."""
        is_mixed = self._gpus and pod.gpu.is_whole
        return [Wish(self._group[_GPU_NAME], pod.gpu.devices, is_gpu=True)] if is_mixed else []

    # -- amounts -------------------------------------------------------------------------------------------------

    def amounts(self, wishes: Iterable[Wish]) -> Vector:
        """By row, how many of its devices the wishes are sure to need."""
        asked = list(wishes)
        return tuple(sum(wish.count for wish in asked if wish.bits and not wish.bits & ~row) for row in self.rows)

    def amounts_held(self, held: Iterable[Allotted]) -> Vector:
        """By row, how many of its devices are held."""
        bits = self._bits_held(held)
        return tuple((bits & row).bit_count() for row in self.rows)

    def amounts_plain(self, plain: Mapping[str, int]) -> Vector:
        """By row, devices of plugins, given how many of which resource are held."""
        return tuple(sum(n for name, n in plain.items() if row & self._group[name]) for row in self.rows)

    def plain_gpus(self, plain: Mapping[str, int]) -> int:
        """GPUs among them."""
        return plain.get(_GPU_NAME, 0)

    def offered(self, node: Node) -> Vector:
        """By row, how many of its devices the node has."""
        here = self.table.on_node.get(node.name, 0)
        groups = [(bit, self._plain_on(node, name)) for name, bit in self._group.items()]
        return tuple((here & row).bit_count() + sum(n for bit, n in groups if bit & row) for row in self.rows)

    def _plain_on(self, node: Node, resource: str) -> int:
        if resource == _GPU_NAME:
            return node.gpus
        return node.allocatable[self.snapshot.schema.index(resource)]

    def gpus_on(self, node: str) -> int:
        """GPUs by claim of the node."""
        return self.gpu_bits_on(node).bit_count()

    def gpus_by_node(self) -> dict[str, tuple[ClaimDevice, ...]]:
        """GPUs by claim of every node that has some, in the order of their indices there."""
        found: dict[str, list[ClaimDevice]] = {}
        for device in self._gpu_index:
            known = self.table.devices[device]
            found.setdefault(known.node, []).append(known)
        return {node: tuple(gpus) for node, gpus in found.items()}

    def gpu_bits_on(self, node: str) -> Bits:
        """The same as a set."""
        return self.table.on_node.get(node, 0) & self._gpus

    def gpu_indices(self, held: Iterable[Allotted]) -> tuple[int, ...]:
        """Indices on their node of the GPUs that are held."""
        return tuple(sorted(self._gpu_index[d] for d in devices_in(self._bits_held(held)) if d in self._gpu_index))

    def _bits_held(self, held: Iterable[Allotted]) -> Bits:
        found = 0
        for allotted in held:
            found |= 1 << self.table.index[allotted.id]
        return found

    def node_of(self, held: Iterable[Allotted]) -> str:
        """The node of the devices; empty where there are none, or they are on several."""
        nodes = {self.table.devices[self.table.index[allotted.id]].node for allotted in held}
        return nodes.pop() if len(nodes) == 1 else ""

    def is_more_than(self, held: Iterable[Allotted], wishes: Iterable[Wish]) -> bool:
        """True where what is held counts in more rows than what was asked for."""
        return self.amounts_held(held) != self.amounts(wishes)

    # -- allocations that are not stated ---------------------------------------------------------------------------

    def infer(self) -> dict[str, tuple[Allotted, ...]]:
        """Devices for claims of pods that run and whose claim has no allocation: some that are free on their node."""
        free = dict(self.table.on_node)
        for use in self.uses.values():
            for allotted in use.claim.allotted or ():
                device = self.table.index.get(allotted.id)
                if device is not None:
                    free[self.table.devices[device].node] &= ~(1 << device)
        found: dict[str, tuple[Allotted, ...]] = {}
        for key, use in sorted(self.uses.items()):
            if use.claim.allotted is None and use.holding:
                grant = self._inferred(use, free)
                if grant:
                    found[key] = grant
        return found

    def _inferred(self, use: Use, free: dict[str, Bits]) -> tuple[Allotted, ...]:
        node = use.holding[0].pod.node
        requests, wishes = [], []
        for request in use.claim.requests:
            bits = self.table.matching(request)
            if isinstance(bits, str) or request.all_devices:
                return ()
            requests += [request.name] * request.count
            wishes += [bits & free.get(node, 0)] * request.count
        seats = seat(wishes)
        if not seats:
            return ()
        for device in seats:
            free[node] &= ~(1 << device)
        devices = [self.table.devices[device] for device in seats]
        return tuple(Allotted(r, d.driver, d.pool, d.name) for r, d in zip(requests, devices, strict=True))
