"""Which fields of an object are used, and which are not: so that nothing is ignored in silence."""

import re
from collections.abc import Iterator, Mapping

from kai_solver.kubeobjects.raw import Raw

Rules = Mapping[re.Pattern[str], re.Pattern[str]]
"""Paths of fields that are honoured, each with the values that are."""

ANYTHING = re.compile(r".*", re.DOTALL)
YES = re.compile(r"True")

_IDENTITY = re.compile(r"apiVersion|kind|metadata(\..*)?|status(\..*)?", re.DOTALL)


def unhonoured(raw: Raw, rules: Rules) -> Iterator[str]:
    """Paths of all fields that no rule covers, in the order of the file."""
    for path, value in _leaves(raw):
        honoured = any(rule.fullmatch(path) and values.fullmatch(str(value)) for rule, values in rules.items())
        if not honoured and not _IDENTITY.fullmatch(path):
            yield path


def _leaves(raw: Raw) -> Iterator[tuple[str, object]]:
    """Path and value of everything that is no object and no list."""
    pending = [raw]
    while pending:
        here = pending.pop()
        if isinstance(here.value, dict) and here.value:
            pending += reversed([inner for _, inner in here.fields()])
        elif isinstance(here.value, list) and here.value:
            pending += reversed(here.items())
        else:
            yield here.path, here.value
