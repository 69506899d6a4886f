"""Which devices a request may take: sets of devices as bits of integers, found once per distinct request."""

import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kai_solver.claims.cel import selects
from kai_solver.claims.errors import SelectorError
from kai_solver.domain import ClaimDevice, Claims, DeviceClass, DeviceId, DeviceRequest

Bits = int
"""A set of devices: bit i is the device of index i in the table; bits beyond are groups without names."""

_LOOKS_AROUND = re.compile(r"\b(exists|exists_one|all|map|filter|size)\b|cel\.bind|[+]")
"""Expressions that may look at attributes which they do not name."""


def devices_in(bits: Bits) -> list[int]:
    """Indices of the set, ascending."""
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Order of names in which gpu-2 is before gpu-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name) if part)


@dataclass(slots=True)
class DeviceTable:
    """Devices by index, in an order that does not depend on the input's.

    Attributes
    ----------
    on_node
        Devices of each node.
    gpus
        Those that are GPUs or slices of GPUs by themselves, whatever class asks for them.
    """

    devices: tuple[ClaimDevice, ...]
    classes: dict[str, DeviceClass]
    on_node: dict[str, Bits] = field(default_factory=dict)
    index: dict[DeviceId, int] = field(default_factory=dict)
    gpus: Bits = 0
    _answers: dict[tuple[object, ...], bool] = field(default_factory=dict)
    _matches: dict[tuple[str, tuple[str, ...]], Bits | str] = field(default_factory=dict)

    @classmethod
    def known(cls, claims: Claims) -> "DeviceTable":
        """Table of ``claims``; that of the same devices and classes is made once, with all that it has answered."""
        for devices, classes, table in _TABLES:
            if devices is claims.devices and classes is claims.classes:
                return table
        table = cls.of(claims.devices, claims.classes)
        _TABLES.append((claims.devices, claims.classes, table))
        return table

    @classmethod
    def of(cls, devices: Iterable[ClaimDevice], classes: Iterable[DeviceClass]) -> "DeviceTable":
        """Table of ``devices``; of doubled ones the first is used."""
        ordered = sorted({d.id: d for d in reversed(tuple(devices))}.values(), key=_place)
        table = cls(tuple(ordered), {c.name: c for c in classes})
        for number, device in enumerate(ordered):
            table.on_node[device.node] = table.on_node.get(device.node, 0) | 1 << number
            table.index[device.id] = number
            table.gpus |= int(device.is_gpu) << number
        return table

    @property
    def everything(self) -> Bits:
        """All devices."""
        return (1 << len(self.devices)) - 1

    def matching(self, request: DeviceRequest) -> Bits | str:
        """Devices that ``request`` may take, or in words why it cannot be met at all."""
        known = self.classes.get(request.device_class)
        if request.problem or known is None:
            problem = request.problem or f"device class {request.device_class} does not exist"
            return f"request {request.name}: {problem}"
        if known.problem:
            return f"request {request.name}: {known.problem}"
        found = self.matching_selectors(known, request.selectors)
        return found if isinstance(found, int) else f"request {request.name}: {found}"

    def matching_selectors(self, known: DeviceClass, selectors: Sequence[str] = ()) -> Bits | str:
        """Devices of the class that match ``selectors`` too; the class's selectors come first, as in Kubernetes."""
        key = (known.name, tuple(selectors))
        if key not in self._matches:
            self._matches[key] = self._match((*known.selectors, *selectors))
        return self._matches[key]

    def _match(self, selectors: tuple[str, ...]) -> Bits | str:
        found = 0
        try:
            for number, device in enumerate(self.devices):
                if all(self._answer(expression, device) for expression in selectors):
                    found |= 1 << number
        except SelectorError as error:
            return f"selector {error}"
        return found

    def _answer(self, expression: str, device: ClaimDevice) -> bool:
        """Answers are kept by what the expression can see of a device: equal devices are asked once."""
        everything = _LOOKS_AROUND.search(expression) is not None
        seen = [
            (name, type(value), value)
            for part in (device.attributes, device.capacity)
            for name, value in sorted(part.items())
            if everything or _is_named(name, expression)
        ]
        domains = {name.rpartition("/")[0] for part in (device.attributes, device.capacity) for name in part}
        key = (expression, device.driver, tuple(seen), tuple(sorted(d for d in domains if d in expression)))
        if key not in self._answers:
            self._answers[key] = selects(expression, device)
        return self._answers[key]

    def counts(self, bits: Bits) -> Counter[int]:
        """How many nodes have how many devices of the set; nodes without any are left out."""
        return Counter(n for here in self.on_node.values() if (n := (here & bits).bit_count()))


_TABLES: deque[tuple[tuple[ClaimDevice, ...], tuple[DeviceClass, ...], DeviceTable]] = deque(maxlen=2)


def _place(device: ClaimDevice) -> tuple[object, ...]:
    return device.node, device.driver, natural(device.pool), natural(device.name)


def _is_named(name: str, expression: str) -> bool:
    return name.rpartition("/")[2] in expression
