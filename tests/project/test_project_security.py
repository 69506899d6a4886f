"""``docs/security.md`` names every label and annotation that the code reads: found in the code, not listed here."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kai_solver.controller.admission.rights import ANNOTATIONS
from kai_solver.kubeobjects import names, ownkeys

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
READING = ("kubeobjects", "cluster", "controller", "topology", "links", "domain", "predicates", "reduction", "claims")
"""Rooms that look at objects of a cluster."""

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
KEY = re.compile(rf"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/({_LABEL})?")
NO_KEY = re.compile(
    r".*/v\d+((alpha|beta)\d+)?|application/.*|kubernetes\.io/(tls|no-provisioner)|nvidia\.com/gpu(\.shared)?|deviceclass\.resource\.kubernetes\.io/"
)
"""Versions of APIs, types of contents and Secrets, provisioners, resources."""


def keys() -> Iterator[str]:
    """Texts of the code that have the form of a label's or annotation's name, and all constants of such names."""
    for room in READING:
        for path in sorted((ROOT / "kai_solver" / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.fullmatch(node.value):
                    yield node.value
    for name, value in vars(names).items():
        if name.isupper() and isinstance(value, str) and not name.endswith(("_NAMESPACE", "PROMISED")):
            yield value
    yield from ownkeys.HEEDED
    yield from ownkeys.WRITTEN


FOUND = sorted({key for key in keys() if not NO_KEY.fullmatch(key) and key != "kai-solver/"})


@pytest.mark.parametrize("key", FOUND)
def test_every_key_that_is_read_has_its_row(key: str) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and f"`{key}`" in line]
    assert rows, f"say in docs/security.md who may write {key}, what a liar gains, and what stops the lie"


def test_keys_are_found() -> None:
    assert {"runai-gpu-group", "kai-solver/devices", "kai-solver/gpu-row", "kai-solver/gpu-resources"} <= set(FOUND)
    assert len(FOUND) > 80


def test_every_signed_and_guarded_mark_is_among_the_marks_of_schedulers() -> None:
    marks = PAGE.partition("### Marks of schedulers")[2].partition("### What users ask for")[0]
    signed = {*names.SIGNATURES, *names.SIGNATURES.values()}
    assert [key for key in sorted(signed.union(*ANNOTATIONS.values())) if f"`{key}`" not in marks] == []


def test_no_row_is_about_a_key_that_nothing_reads() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `") and "/" in line.split("|")[1]]
    told = {key for row in rows for key in re.findall(r"`([^`]+)`", row) if KEY.fullmatch(key)}
    elsewhere = "".join(path.read_text() for path in (ROOT / "kai_solver").rglob("*.py"))
    assert [key for key in sorted(told - set(FOUND)) if f'"{key}"' not in elsewhere] == []
