"""Selectors evaluated by cel-python, with the functions that Kubernetes adds. Loaded only where one is needed."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

import celpy
from celpy import celtypes
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from kai_solver.claims.errors import SelectorError
from kai_solver.domain import Attribute, ClaimDevice, Version
from kai_solver.errors import InputError
from kai_solver.units import MILLI, parse_quantity

_FAILURES = (CELEvalError, InputError, ValueError, TypeError, AttributeError, KeyError, RecursionError)
_SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


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
        raise ValueError(f"{text} is no semantic version")
    parts = [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in match[4].split(".")] if match[4] else []
    return _Ordered((int(match[1]), int(match[2]), int(match[3]), not parts, tuple(parts)))


def _text(change: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda string: celtypes.StringType(change(str(string)))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": _quantity,
    "semver": _semver,
    "compareTo": lambda left, right: celtypes.IntType((left > right) - (left < right)),
    "isGreaterThan": lambda left, right: celtypes.BoolType(left > right),
    "isLessThan": lambda left, right: celtypes.BoolType(left < right),
    "lowerAscii": _text(str.lower),
    "upperAscii": _text(str.upper),
}


def compiled(expression: str) -> Callable[[ClaimDevice], bool]:
    """What evaluates ``expression`` for a device.

    Raises
    ------
    SelectorError
        It cannot be read; what is returned raises it where there is no answer.
    """
    try:
        environment = celpy.Environment()
        program = environment.program(environment.compile(expression), functions=_FUNCTIONS)
    except (CELParseError, ValueError, RecursionError) as error:
        raise SelectorError(f"{expression!r} cannot be read as CEL") from error

    def evaluate(device: ClaimDevice) -> bool:
        try:
            answer = program.evaluate({"device": _device(device)})
        except _FAILURES as error:
            why = str(error.args[0] if error.args else error).partition(" (in activation")[0]
            raise SelectorError(f"{expression!r} has no answer for device {device.name}: {why}") from error
        if not isinstance(answer, celtypes.BoolType | bool):
            raise SelectorError(f"{expression!r} is neither true nor false for device {device.name}")
        return bool(answer)

    return evaluate


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
