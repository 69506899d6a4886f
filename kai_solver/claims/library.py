"""Selectors evaluated by cel-python, with the functions that Kubernetes adds. Loaded only where one is needed."""

import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import total_ordering
from typing import Any

from celpy import celtypes
from celpy.celparser import CELParseError

from kai_solver.claims.errors import SelectorError
from kai_solver.claims.evaluating import ERRORS, Functions, step_of
from kai_solver.claims.metering import CostExceeded, Meter
from kai_solver.domain import Attribute, ClaimDevice, Version
from kai_solver.errors import InputError
from kai_solver.units import LONGEST_NUMBER, MILLI, parse_duration_s, parse_quantity

_FAILURES = (*ERRORS, InputError, RecursionError)
_DIGITS = r"([0-9]{1,19})"
_SEMVER = re.compile(rf"{_DIGITS}\.{_DIGITS}\.{_DIGITS}(?:-([0-9A-Za-z.-]{{1,256}}))?(?:\+[0-9A-Za-z.-]{{1,256}})?")


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class _Ordered:
    """A quantity or a semantic version inside an expression."""

    rank: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ordered) and bool(self.rank == other.rank)

    def __lt__(self, other: "_Ordered") -> bool:
        return bool(self.rank < other.rank)

    def __hash__(self) -> int:
        return hash(self.rank)


class _Domains(celtypes.MapType):
    """Attributes by domain: one that the device lacks is empty, not an error."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if key in self else celtypes.MapType({})


def _quantity(text: str) -> _Ordered:
    """In thousandths; amounts too large for that are compared in ones."""
    try:
        return _Ordered(parse_quantity(str(text), MILLI))
    except InputError:
        return _Ordered(parse_quantity(str(text)) * MILLI)


def _semver(text: str) -> _Ordered:
    """Precedence of semver.org: numbers, then a release after its pre-releases; build metadata plays no part."""
    match = _SEMVER.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text} is not a semantic version")
    parts = [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in match[4].split(".")] if match[4] else []
    return _Ordered((int(match[1]), int(match[2]), int(match[3]), not parts, tuple(parts)))


def _duration(value: Any) -> celtypes.DurationType:
    """Of a text as Go writes it. cel-python's own pattern takes twice as long for every letter of a text that fails."""
    if not isinstance(value, str):
        return celtypes.DurationType(value)
    return celtypes.DurationType(timedelta(seconds=parse_duration_s(value)))


def _timestamp(value: Any) -> celtypes.TimestampType:
    if isinstance(value, str) and len(value) > LONGEST_NUMBER:
        raise ValueError("no timestamp")
    return celtypes.TimestampType(value)


def _text(change: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda string: celtypes.StringType(change(str(string)))


_FUNCTIONS: Functions = {
    "duration": _duration,
    "timestamp": _timestamp,
    "quantity": _quantity,
    "semver": _semver,
    "compareTo": lambda left, right: celtypes.IntType((left > right) - (left < right)),
    "isGreaterThan": lambda left, right: celtypes.BoolType(left > right),
    "isLessThan": lambda left, right: celtypes.BoolType(left < right),
    "lowerAscii": _text(str.lower),
    "upperAscii": _text(str.upper),
}


def compiled(expression: str) -> Callable[[ClaimDevice, Meter], bool]:
    """A function that evaluates ``expression`` for a device, under a meter.

    Raises
    ------
    SelectorError
        It cannot be read; what is returned raises it where there is no answer, or none within the meter's limit.
    """
    shown = repr(expression) if len(expression) <= _SHOWN else reprlib.repr(expression)
    try:
        step = step_of(expression, _FUNCTIONS)
    except (CELParseError, *_FAILURES) as error:
        raise SelectorError(f"{shown} cannot be read as CEL") from error

    def evaluate(device: ClaimDevice, meter: Meter) -> bool:
        try:
            answer = step({"device": _device(device)}, meter)
        except CostExceeded:
            raise SelectorError(
                f"{shown} costs more than {meter.limit:,} to evaluate for device {device.name}"
            ) from None
        except _FAILURES as error:
            why = str(error.args[0] if error.args else error).partition(" (in activation")[0]
            raise SelectorError(f"{shown} has no answer for device {device.name}: {why[:_SHOWN]}") from error
        if not isinstance(answer, celtypes.BoolType | bool):
            raise SelectorError(f"{shown} is neither true nor false for device {device.name}")
        return bool(answer)

    return evaluate


_SHOWN = 300
"""Characters of an expression, or of cel-python's error, in a message."""


def _device(device: ClaimDevice) -> Any:
    content = {
        "driver": celtypes.StringType(device.driver),
        "attributes": _domains({name: _value(a) for name, a in device.attributes.items()}),
        "capacity": _domains({name: _quantity(q) for name, q in device.capacity.items()}),
    }
    return celtypes.MapType({celtypes.StringType(name): part for name, part in content.items()})


def _value(attribute: Attribute) -> Any:
    if isinstance(attribute, bool):
        return celtypes.BoolType(attribute)
    if isinstance(attribute, int):
        return celtypes.IntType(attribute)
    return _semver(attribute.text) if isinstance(attribute, Version) else celtypes.StringType(attribute)


def _domains(named: Mapping[str, Any]) -> _Domains:
    found: dict[str, dict[Any, Any]] = {}
    for name, content in named.items():
        domain, _, short = name.rpartition("/")
        found.setdefault(domain, {})[celtypes.StringType(short)] = content
    return _Domains({celtypes.StringType(domain): celtypes.MapType(inner) for domain, inner in found.items()})
