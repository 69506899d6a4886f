"""Which devices a request may take: sets of devices as bits of integers, found once per distinct request."""

import re
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kai_solver.claims.cel import evaluated
from kai_solver.claims.errors import SelectorError
from kai_solver.domain import ClaimDevice, Claims, DeviceClass, DeviceId, DeviceRequest
from kai_solver.domain.object_limits import SELECTORS_COST, SELECTORS_COST_PER_DEVICE

Bits = int
"""A set of devices: bit i is the device of index i in the table; bits beyond are groups without names."""

_LOOKS_AROUND = re.compile(r"\b(exists|exists_one|all|map|filter|size)\b|cel\.bind|[+]")
"""Expressions that may look at attributes which they do not name."""

_VISIT = 5
"""Cost of a lookup for one device."""
_KEPT = 200_000
"""Most results of selectors, and half as many sets of devices; the least recently used are dropped."""


class _PutOff(Exception):  # noqa: N818  (no error: the answer comes in a later cycle)
    """The cycle's evaluations have reached their cost limit."""


class _Answers:
    """Results of selectors for devices, kept for later cycles, by the fields of a device that they can see."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], bool | str] = OrderedDict()

    def get(self, key: tuple[object, ...]) -> bool | str | None:
        """The answer, or in words why there is none; None if it was not requested."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: tuple[object, ...], answer: bool | str) -> None:
        """Keep a result, and drop the least recently used ones if there are too many."""
        self._kept[key] = answer
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)


_ANSWERS = _Answers()


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
    _matches: dict[tuple[str, tuple[str, ...]], Bits | str] = field(default_factory=dict)
    _left: int = SELECTORS_COST

    @classmethod
    def known(cls, claims: Claims) -> "DeviceTable":
        """Table of ``claims``; that of equal devices and classes is made once, with all that it has answered."""
        for devices, classes, table in _TABLES:
            if devices == claims.devices and classes == claims.classes:
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
        table.begin()
        return table

    def begin(self) -> None:
        """A cycle begins: evaluations that the last one postponed may run."""
        self._left = SELECTORS_COST + SELECTORS_COST_PER_DEVICE * len(self.devices)
        if len(self._matches) > _KEPT // 2:
            self._matches.clear()

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
        found = self._matches.get(key)
        if found is None:
            try:
                found = self._matches[key] = self._match((*known.selectors, *selectors))
            except _PutOff:
                most = SELECTORS_COST + SELECTORS_COST_PER_DEVICE * len(self.devices)
                return f"its selectors are not evaluated yet: those of this cycle cost more than {most:,} together"
        return found

    def _match(self, selectors: tuple[str, ...]) -> Bits | str:
        matching = list(range(len(self.devices)))
        for expression in selectors:
            view = _View(expression)
            kept = []
            for number in matching:
                answer = self._answer(view, self.devices[number])
                if isinstance(answer, str):
                    return f"selector {answer}"
                if answer:
                    kept.append(number)
            matching = kept
        return sum(1 << number for number in matching)

    def _answer(self, view: "_View", device: ClaimDevice) -> bool | str:
        """Answers are kept by what the expression can see of a device: equal devices are asked once."""
        if self._left <= 0:
            raise _PutOff
        self._left -= _VISIT
        key = view.of(device)
        answer = _ANSWERS.get(key)
        if answer is None:
            try:
                answer, cost = evaluated(view.expression, device)
            except SelectorError as error:
                answer, cost = str(error), error.cost
            self._left -= cost
            _ANSWERS.keep(key, answer)
        return answer

    def counts(self, bits: Bits) -> Counter[int]:
        """How many nodes have how many devices of the set; nodes without any are left out."""
        return Counter(n for here in self.on_node.values() if (n := (here & bits).bit_count()))


_TABLES: deque[tuple[tuple[ClaimDevice, ...], tuple[DeviceClass, ...], DeviceTable]] = deque(maxlen=2)


def _place(device: ClaimDevice) -> tuple[object, ...]:
    return device.node, device.driver, natural(device.pool), natural(device.name)


class _View:
    """The fields of a device that an expression can see."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._everything = _LOOKS_AROUND.search(expression) is not None
        self._named: dict[str, bool] = {}

    def of(self, device: ClaimDevice) -> tuple[object, ...]:
        """The expression and all of the device that it can see."""
        parts = device.attributes, device.capacity
        seen = [
            (name, type(value), value)
            for part in parts
            for name, value in sorted(part.items())
            if self._everything or self._is_named(name.rpartition("/")[2])
        ]
        domains = {name.rpartition("/")[0] for part in parts for name in part}
        return self.expression, device.driver, tuple(seen), tuple(sorted(d for d in domains if self._is_named(d)))

    def _is_named(self, name: str) -> bool:
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = name in self.expression
        return found
