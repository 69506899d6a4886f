"""Every end-to-end spec of KAI has a test on our control plane."""

import re
from importlib import import_module
from pathlib import Path

PLANE = Path(__file__).parents[1] / "cluster" / "plane"


def test_every_spec_has_a_test() -> None:
    for module in sorted(PLANE.glob("test_specs_*.py")):
        import_module(f"tests.cluster.plane.{module.stem}")
    specs = import_module("tests.cluster.plane.specs")
    lines = (PLANE / "specs.txt").read_text().splitlines()
    titles = {line for line in lines if not line.startswith("#")}
    assert len(titles) == 148
    assert set(specs.TITLES) == titles


def test_every_row_of_the_table_for_administrators_of_kai_names_tests_of_the_controller() -> None:
    text = (PLANE.parents[2] / "docs" / "switching-from-kai.md").read_text()
    table = text.partition("## Feature by feature")[2]
    rows = [line for line in table.splitlines() if re.match(r"\| (?!feature \|)", line)]
    known = {
        found
        for module in (*PLANE.glob("test_*.py"), *PLANE.parents[1].glob("controller/test_*.py"))
        for found in re.findall(r"^def (test_\w+)", module.read_text(), re.MULTILINE)
    }
    assert len(rows) > 30
    named = {row: re.findall(r"`(test_\w+)`", row.rstrip("| ").rpartition("|")[2]) for row in rows}
    assert [row for row, tests in named.items() if not tests] == []
    assert {test for tests in named.values() for test in tests} - known == set()
