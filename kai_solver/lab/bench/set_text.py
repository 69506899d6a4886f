"""The text of a benchmark set with other measured figures in it; comments, order and layout stay as they are."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from kai_solver.errors import InputError
from kai_solver.instances_io import DEFAULT_LIMITS
from kai_solver.instances_io.bench_schema import BenchDoc
from kai_solver.instances_io.yaml_text import parse_yaml


@dataclass(frozen=True, slots=True)
class _Edit:
    """Characters ``start`` to ``end`` become ``text``."""

    start: int
    end: int
    text: str


def with_figures(text: str, doc: BenchDoc) -> str:
    """``text``, a set in YAML or JSON, saying what ``doc`` says in all its keys ``measured``.

    ``doc`` is the same set but for those keys.

    Raises
    ------
    InputError
        The text has aliases or merged keys where figures belong.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    edits = _edits(_Keys(root, is_json=text.lstrip().startswith("{")), doc)
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    [written] = parse_yaml(text.encode(), "the set", DEFAULT_LIMITS)
    if BenchDoc.model_validate(written) != doc:
        cure = "Write its checks and slopes out, without aliases"
        raise InputError("figures cannot be written into this set", field="measured", cure=cure)
    return text


class _Keys:
    """A mapping of the text: where its keys and values stand."""

    def __init__(self, node: Any, *, is_json: bool) -> None:
        self._node = node
        self._is_json = is_json
        self._of: Mapping[str, tuple[Any, Any]] = {key.value: (key, value) for key, value in node.value}

    def items(self, name: str) -> list["_Keys"]:
        """Mappings of the sequence at ``name``."""
        if name not in self._of:
            return []
        return [_Keys(node, is_json=self._is_json) for node in self._of[name][1].value]

    def below(self, name: str) -> "_Keys | None":
        """The mapping at ``name``."""
        return _Keys(self._of[name][1], is_json=self._is_json) if name in self._of else None

    def put(self, name: str, value: str, before: str) -> _Edit:
        """Give ``name`` this value; where it is missing it comes before the key ``before``, or after that in braces."""
        if name in self._of:
            old = self._of[name][1]
            return _Edit(old.start_mark.index, old.end_mark.index, value)
        if before not in self._of:  # by a merge key: what comes of it is found to be wrong
            return _Edit(0, 0, "")
        key, beside = self._of[before]
        if self._node.flow_style:
            at = beside.end_mark.index
            return _Edit(at, at, f", {json.dumps(name) if self._is_json else name}: {value}")
        at = key.start_mark.index
        return _Edit(at, at, f"{name}: {value}\n{' ' * key.start_mark.column}")

    def has(self, name: str) -> bool:
        """True where the text has the key."""
        return name in self._of


def _edits(root: _Keys, doc: BenchDoc) -> Iterator[_Edit]:
    """One for each figure that changes, and those for the day and the machine."""
    for keys, entry in zip(root.items("entries"), doc.entries, strict=False):
        for at, check in zip(keys.items("checks"), entry.checks, strict=False):
            yield from _figure(at, check.measured)
    for at, slope in zip(root.items("slopes"), doc.slopes, strict=False):
        yield from _figure(at, slope.measured)
    if doc.measured is None:
        return
    date, machine = (json.dumps(text, ensure_ascii=False) for text in (doc.measured.date, doc.measured.machine))
    known = root.below("measured")
    if known is None:
        yield root.put("measured", f'{{"date": {date}, "machine": {machine}}}', "entries")
    else:
        yield known.put("date", date, "machine")
        yield known.put("machine", machine, "date")


def _figure(at: _Keys, value: float | None) -> Iterator[_Edit]:
    if value is not None or at.has("measured"):
        yield at.put("measured", "null" if value is None else np.format_float_positional(value, trim="-"), "limit")
