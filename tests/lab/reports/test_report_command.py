"""`kai-solver report`: one page from folders, and errors with the cure."""

import csv
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kai_solver.cli.app import app
from kai_solver.cli.exits import Exit
from tests.lab.reports.conftest import changed, copied


def report(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


class Addresses(HTMLParser):
    """What a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        wanted = ("src", "data", "srcset") if tag != "link" else ("href",)
        self.found += [value or "" for name, value in attrs if name in wanted]


def test_a_page_of_a_simulation_has_everything_inside(simulated: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = report(simulated, "-o", page, "--title", "A & B")
    assert done.exit_code == Exit.FINE, done.output
    text = page.read_text()
    assert "<title>A &amp; B</title>" in text
    assert "greedy-only compared with kube-default" in text
    addresses = Addresses()
    addresses.feed(text)
    assert [one for one in addresses.found if not one.startswith("data:")] == []
    for name in ("utilisation", "waits", "waits-by-group", "fair-share", "fragmentation", "evictions", "gantt"):
        assert f'id="s1-{name}"' in text


def test_figures_are_drawn_twice_with_their_data(simulated: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    for _ in range(2):  # a second time they are replaced
        done = report(simulated, "-o", tmp_path / "page.html", "--figures", figures)
        assert done.exit_code == Exit.FINE, done.output
    names = {path.stem for path in figures.iterdir()}
    assert {"utilisation", "fair-share", "evictions"} <= names
    for name in names:
        assert {f"{name}.svg", f"{name}.png", f"{name}.csv"} <= {path.name for path in figures.iterdir()}
    with (figures / "evictions.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["series"] for row in rows} == {"greedy-only", "kube-default"}
    assert max(float(row["y"]) for row in rows if row["series"] == "greedy-only") > 0


def test_two_folders_stand_side_by_side(simulated: Path, tmp_path: Path) -> None:
    first, second = copied(simulated, tmp_path / "before"), copied(simulated, tmp_path / "after")
    page = tmp_path / "page.html"
    done = report(first, second, "-o", page)
    assert done.exit_code == Exit.FINE, done.output
    text = page.read_text()
    assert "before: greedy-only compared with after: greedy-only" in text
    assert "the same work that was kept (within half a percentage point)" in text


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("runs.jsonl", '"goodput"', '"good"', r"runs\.jsonl: measures: .*another version: it has no 'goodput'"),
        ("cycles.csv", "gpus_held", "held", r"cycles\.csv: gpus_held: is a table of another version"),
        ("queues.csv", "0.0", "none", r"queues\.csv: .*: has a cell that is no"),
        ("nodes.csv", "False", "no", r"nodes\.csv: is_down: has a cell that is no Boolean"),
    ],
)
def test_a_table_of_another_version(simulated: Path, tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    folder = copied(simulated, tmp_path / "old")
    changed(folder, file, old, new)
    done = report(folder, "-o", tmp_path / "page.html")
    assert done.exit_code == Exit.INPUT
    assert re.search(said, done.output), done.output
    assert "kai-solver simulate" in done.output
    assert not (tmp_path / "page.html").exists()


def test_a_missing_table(simulated: Path, tmp_path: Path) -> None:
    folder = copied(simulated, tmp_path / "part", ("runs.jsonl", "jobs.csv"))
    done = report(folder, "-o", tmp_path / "page.html")
    assert done.exit_code == Exit.INPUT
    assert "queues.csv: is missing" in done.output


def test_folders_that_are_nothing(simulated: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    for name, said in (("empty", "is empty"), ("other", "is no study, no simulation"), ("none", "is no folder")):
        done = report(tmp_path / name, "-o", tmp_path / "page.html")
        assert done.exit_code == Exit.INPUT
        assert said in done.output
        assert "Name the folder of" in done.output
    twice = report(simulated, simulated, "-o", tmp_path / "page.html")
    assert "is named twice" in twice.output


def test_places_where_no_page_can_be(simulated: Path, tmp_path: Path) -> None:
    assert "ends in .html" in report(simulated, "-o", tmp_path / "page.pdf").output
    assert "is a folder" in report(simulated, "-o", tmp_path).output
    (tmp_path / "file").write_text("")
    assert "cannot be written" in report(simulated, "-o", tmp_path / "file" / "page.html").output


def test_names_cannot_leave_their_place(simulated: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hostile"
    shutil.copytree(simulated, folder)
    hostile = "</script><script>alert(1)</script>"
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("kube-default", hostile))
    page = tmp_path / "page.html"
    done = report(folder, "-o", page)
    assert done.exit_code == Exit.FINE, done.output
    assert hostile not in page.read_text()
