"""Reading of untrusted dicts: every step knows its path, so that every complaint can name the field."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

import orjson

from kai_solver.errors import InputError, printable, shown
from kai_solver.units import FIRST_S, LAST_S, parse_duration_s, parse_quantity

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


_LINES = ("annotations", "data")


class Raw:
    """A value from JSON or YAML together with the path that led to it.

    Missing fields and ``null`` are the same, as in Kubernetes. Typed accessors return a default for a missing
    field and raise `InputError`, naming the path, for one of the wrong type.

    A pod is read by some hundred such steps, in a cluster at every change of it: the path is put together only when
    it is asked for.
    """

    __slots__ = ("_above", "_step", "value")

    def __init__(self, value: object, path: str = "", above: "Raw | None" = None) -> None:
        self.value = value
        self._step = path
        self._above = above

    def __bool__(self) -> bool:
        """Whether anything is there."""
        return self.value is not None

    def __repr__(self) -> str:
        return f"Raw({shown(self.value)}, {self.path!r})"

    @property
    def path(self) -> str:
        """Dotted, with indices in brackets: ``spec.containers[0].image``."""
        if self._above is None:
            return self._step
        above = self._above.path
        return f"{above}{'.' if above and self._step and not self._step.startswith('[') else ''}{self._step}"

    def get(self, path: str) -> "Raw":
        """Follow a dotted path of field names; keys that contain dots are read by `key` or `strings`."""
        return Raw(self._at(path), path, self) if path else self

    def key(self, name: str) -> "Raw":
        """The value under one key, whatever characters it has."""
        if self.value is None:
            return Raw(None, name, self)
        if not isinstance(self.value, dict):
            raise wrong_type(self, "an object")
        return Raw(self.value.get(name), name, self)

    def items(self, path: str = "") -> list["Raw"]:
        """Elements of a list; a missing list is empty."""
        value = self._at(path)
        if value is None:
            return []
        here = self.get(path)
        if not isinstance(value, list | tuple):
            raise wrong_type(here, "a list")
        return [Raw(element, f"[{index}]", here) for index, element in enumerate(value)]

    def fields(self, path: str = "") -> Iterator[tuple[str, "Raw"]]:
        """Keys and values of an object; a missing object has none."""
        value = self._at(path)
        if value is None:
            return
        here = self.get(path)
        if not isinstance(value, dict):
            raise wrong_type(here, "an object")
        for name, element in value.items():
            yield printable(str(name)), Raw(element, str(name), here)

    def strings(self, path: str) -> dict[str, str]:
        """An object of strings, such as labels. Values of annotations and data stay as they are: they may be JSON."""
        lines, found = path.endswith(_LINES), self._at(path)
        if isinstance(found, dict) and all(type(name) is type(value) is str for name, value in found.items()):
            return {printable(name): value if lines else printable(value) for name, value in found.items()}
        return {name: value.text(lines=lines) for name, value in self.fields(path)}

    def text(self, path: str = "", default: str = "", *, lines: bool = False) -> str:
        """A string, not a number, as in Kubernetes (in YAML, numbers need quotes).

        It is one printable line (`printable`), unless ``lines`` are allowed.
        """
        value = self._at(path)
        if value is None:
            return default
        if not isinstance(value, str):
            raise wrong_type(self.get(path), "a string", cure="Quote it, or correct its type")
        return value if lines else printable(value)

    def required(self, path: str, *, lines: bool = False) -> str:
        """A string that must be there and not be empty; as `text`."""
        value = self.text(path, lines=lines)
        if not value:
            raise InputError("is missing", field=self.get(path).path, cure="Add it, or check the indentation")
        return value

    def integer(self, path: str = "", default: int = 0) -> int:
        """A whole number."""
        value = self._at(path)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong_type(self.get(path), "a whole number")
        if abs(value) > 2**53:
            raise InputError("the number is absurdly large", field=self.get(path).path, cure="Check the number")
        return value

    def count(self, path: str = "", default: int = 0, most: int = 2**53) -> int:
        """A whole number that is not negative, and at most ``most``."""
        value = self.integer(path, default)
        if not 0 <= value <= most:
            raise InputError(f"{value} is out of range", field=self.get(path).path, cure=f"Write 0 to {most}")
        return value

    def number(self, path: str = "", default: float = 0.0) -> float:
        """A finite number."""
        value = self._at(path)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type(self.get(path), "a number")
        if not abs(value) <= 2**53:  # not a number, infinite, or too large
            raise InputError("the number is absurdly large", field=self.get(path).path, cure="Check the number")
        return float(value)

    def flag(self, path: str = "", default: bool = False) -> bool:
        """True or false."""
        value = self._at(path)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong_type(self.get(path), "true or false")
        return value

    def quantity(self, scale: int = 1) -> int:
        """A Kubernetes quantity times ``scale``, rounded up."""
        if isinstance(self.value, bool) or not isinstance(self.value, str | int | float):
            raise wrong_type(self, "a quantity")
        try:
            return parse_quantity(self.value, scale)
        except InputError as error:
            raise InputError(error.problem, field=self.path, cure=error.cure) from error

    def duration_s(self, path: str = "") -> float | None:
        """Seconds of a Go duration; None where missing."""
        text = self.text(path)
        try:
            return parse_duration_s(text) if text else None
        except InputError as error:
            raise InputError(error.problem, field=self.get(path).path, cure=error.cure) from error

    def time_s(self, path: str = "") -> float | None:
        """Epoch seconds of an RFC 3339 time; None where missing. YAML reads such times as dates by itself."""
        value = self._at(path)
        if value is None or value == "":
            return None
        if isinstance(value, datetime):
            return epoch_s(value)
        text = self.text(path)
        stamp = parse_time_s(text)
        if stamp is None:
            cure = "Write 2026-01-31T12:00:00Z"
            raise InputError(f"{text!r} is not a time", field=self.get(path).path, cure=cure)
        return stamp

    def created_s(self, now_s: float) -> float:
        """Epoch seconds of its creation; a manifest, which no API server has stamped yet, is as new as ``now_s``."""
        stamp_s = self.time_s("metadata.creationTimestamp")
        return now_s if stamp_s is None else stamp_s

    def _at(self, path: str) -> object:
        """The value at the end of a dotted path; None where any part of it is missing."""
        value = self.value
        if not path:
            return value
        for name in _steps(path):
            if value is None:
                return None
            if not isinstance(value, dict):
                above = path.rpartition(f".{name}")[0] if f".{name}" in path else ""
                raise wrong_type(Raw(value, above, self), "an object")
            value = value.get(name)
        return value


@lru_cache(4096)
def _steps(path: str) -> tuple[str, ...]:
    """Names on a path; the paths are the few hundred that stand in this program."""
    return tuple(path.split("."))


def wrong_type(raw: Raw, expected: str, cure: str = "") -> InputError:
    """The error for a value that is not what was ``expected``."""
    return InputError(f"{shown(raw.value)} is not {expected}", field=raw.path, cure=cure or f"Write {expected}")


def parse_json(text: str, field: str, cure: str) -> Raw:
    """JSON in an annotation or a ConfigMap, as it stands in ``field``.

    Raises
    ------
    InputError
        It is not JSON, or nested too deep.
    """
    try:
        return Raw(orjson.loads(text), field)
    except orjson.JSONDecodeError as error:  # also of more than 1,024 levels, where Python's own parser has no limit
        raise InputError("is not JSON", field=field, cure=cure) from error


def parse_time_s(text: str) -> float | None:
    """Epoch seconds of an RFC 3339 time, None where ``text`` is none."""
    if _TIMESTAMP.fullmatch(text) is None:
        return None
    try:
        return epoch_s(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def format_time(stamp_s: float) -> str:
    """RFC 3339 time in UTC; fractions of a second only where there are some."""
    moment = datetime.fromtimestamp(min(max(stamp_s, FIRST_S), LAST_S), tz=UTC)
    return moment.isoformat(timespec="microseconds" if moment.microsecond else "seconds").replace("+00:00", "Z")


def epoch_s(moment: datetime) -> float:
    """Epoch seconds; a moment without a zone is in UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
