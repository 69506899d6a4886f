"""YAML under limits: aliases are expanded in the count, never in memory, before any object is built."""

from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import yaml

from kai_solver.errors import InputError
from kai_solver.instances_io.json_text import check_counts
from kai_solver.instances_io.limits import Limits

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LONGEST_NUMBER = 1_000
_CONTROLS = frozenset(range(0x20)) - frozenset(b"\t\n\r\f")
"""Bytes that no text has, in any code that ASCII is a part of."""
_FLAT_SCALARS = {"nan", "inf", "+inf", "-inf"}


class _Loader(_Base):  # type: ignore[misc]
    """Safe loader as Kubernetes reads YAML: dates stay text, no key repeats, numbers are finite."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _problem(node, "a key is not plain text", "Write keys as text")
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise _problem(key, f"the key {key.value!r} occurs twice in one mapping", "Keep one of them")
            seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping

    def construct_finite_float(self, node: yaml.ScalarNode) -> float:
        if node.value.lower().lstrip("+-").lstrip(".") in _FLAT_SCALARS:
            raise _problem(node, f"{node.value} is not a number that can be used", "Write -1 or unlimited where meant")
        _check_length(node)
        number: float = self.construct_yaml_float(node)
        return number

    def construct_short_int(self, node: yaml.ScalarNode) -> int:
        _check_length(node)
        number: int = self.construct_yaml_int(node)
        return number


def _check_length(node: yaml.ScalarNode) -> None:
    """Numbers of base 60 (``59:59:59``) take time by the square of their length: 100,000 parts 2 s (2026-11-23)."""
    if len(node.value) > _LONGEST_NUMBER:
        problem = f"a number of {len(node.value):,} characters is not read"
        raise _problem(node, problem, f"Write {_LONGEST_NUMBER} at most, or quote it")


def _problem(node: yaml.Node, problem: str, cure: str) -> InputError:
    return InputError(f"line {node.start_mark.line + 1}: {problem}", cure=cure)


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_finite_float)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_short_int)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_str)


@dataclass(slots=True)
class _Size:
    """Expanded size of a node that is being read."""

    anchor: str | None = None
    objects: int = 0
    values: int = 0
    height: int = 0


@dataclass(slots=True)
class _Counter:
    """Adds up a document's events; an alias counts as all that it stands for."""

    file: str
    limits: Limits
    open: list[_Size] = field(default_factory=lambda: [_Size()])
    anchors: dict[str, _Size] = field(default_factory=dict)

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.CollectionStartEvent):
            self.open.append(_Size(event.anchor, int(isinstance(event, yaml.MappingStartEvent)), 1))
            self._check(self.open[-1])
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self.open.pop()
            done.height += 1
            self._add(done)
        elif isinstance(event, yaml.ScalarEvent):
            self._add(_Size(event.anchor, 0, 1))
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._expanded(event.anchor or ""))

    def _expanded(self, anchor: str) -> _Size:
        if any(size.anchor == anchor for size in self.open):
            problem = f"the alias *{anchor} is inside the value that it names, a loop"
            raise InputError(problem, file=self.file, cure="Write the content out")
        known = self.anchors.get(anchor, _Size())
        return _Size(None, known.objects, known.values, known.height)

    def _add(self, size: _Size) -> None:
        if size.anchor:
            self.anchors[size.anchor] = size
        parent = self.open[-1]
        parent.objects += size.objects
        parent.values += size.values
        parent.height = max(parent.height, size.height)
        self._check(parent)

    def _check(self, size: _Size) -> None:
        depth = len(self.open) - 1 + size.height
        check_counts(self.file, self.limits, depth=depth, objects=size.objects, values=size.values)


def parse_yaml(data: bytes, file: str, limits: Limits) -> list[Any]:
    """Documents of the YAML text ``data``, empty ones left out.

    Raises
    ------
    LimitExceededError
        Deeper or more numerous than ``limits`` allow, aliases expanded.
    InputError
        Not YAML, a repeated key, an alias loop, NaN or infinity, or a tag that is not plain data.
    """
    try:
        text = data.decode("utf-8-sig")
        counter = _Counter(file, limits)
        for event in yaml.parse(text, Loader=_Base):
            counter.take(event)
        return [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except UnicodeDecodeError:
        if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            raise InputError("is text in UTF-16", file=file, cure="Save it as UTF-8") from None
        if not _CONTROLS.intersection(data):
            raise InputError("is text, and not in UTF-8", file=file, cure="Save it as UTF-8") from None
        problem = "is neither JSON nor YAML nor a known archive"
        raise InputError(problem, file=file, cure="Give a .json, .yaml, .gz, .zst or .zip file") from None
    except yaml.YAMLError as error:
        cure = "Indent with spaces, not with tabs" if _is_at_tab(error, text) else "Check the file near that place"
        raise InputError(f"is not YAML: {_first_line(error)}", file=file, cure=cure) from None
    except (ValueError, OverflowError) as error:
        raise InputError(f"holds a value that cannot be read: {error}", file=file, cure="Quote it") from None
    except InputError as error:
        raise error.in_file(file) from None


def _is_at_tab(error: yaml.YAMLError, text: str) -> bool:
    mark = getattr(error, "problem_mark", None)
    lines = text.splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    return "\t" in line[: len(line) - len(line.lstrip())]


def _first_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or error).splitlines()[0][:200]
    return f"{problem} (line {mark.line + 1})" if mark else problem
