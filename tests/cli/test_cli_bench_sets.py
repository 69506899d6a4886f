"""``bench`` with a set: limits, stored runs, tables, growth, generated instances, faults."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from kai_solver.cli.app import app
from kai_solver.instances_io import load_instance

QUIET = {"kind": "quiet", "nodes": 8}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, arguments), "--quiet"])


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    entries = [
        {"name": "quiet", "says": "nobody contends", "peer": "1 s", "generate": QUIET, "checks": [
            {"figure": "decide", "model": "greedy-only", "limit": 60},
            {"figure": "memory", "model": "greedy-only", "limit": 1},
        ]},
        {"name": "quiet-16", "generate": QUIET | {"nodes": 16}, "checks": [
            {"figure": "pending", "model": "greedy-only", "limit": 0},
        ]},
    ]  # fmt: skip
    slope = {"name": "growth", "entries": ["quiet", "quiet-16"], "limit": 99}
    document = {"format": "kai-bench/v1", "name": "tiny", "cycles": 1, "entries": entries, "slopes": [slope]}
    path = tmp_path / "set.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.slow
def test_a_set_prints_phases_limits_and_promises_and_stores_and_draws(tiny: Path, tmp_path: Path) -> None:
    stored, drawn = tmp_path / "runs", tmp_path / "growth.svg"
    first = run(tiny, "--save", stored, "--plot", drawn, "--clock", "cpu")
    assert first.exit_code == 0, first.output
    assert "3 of 4 kept" in first.stdout
    assert "over" in first.stdout
    assert "presolve" in first.stdout
    assert "slope" in drawn.read_text()
    assert len((stored / "runs.jsonl").read_text().splitlines()) == 2
    printed = run(tiny, "--from", stored, "--table")
    assert "| nobody contends | 1 s | <= 60 s; memory <= 1 MiB |" in printed.stdout
    again = run(tiny, "--compare", stored, "--only", "quiet", "--clock", "cpu", "--check")
    assert again.exit_code == 1, "memory is over its limit"
    assert "1 rows in both runs" in again.stdout
    assert "limit of 1 MiB" not in again.stdout


@pytest.mark.slow
def test_tables_are_markdown_and_the_rest_goes_aside(tiny: Path) -> None:
    done = run(tiny, "--table", "--only", "quiet", "--models", "fast")
    assert done.exit_code == 0, done.output
    assert "| nobody contends | 1 s | <= 60 s; memory <= 1 MiB |" in done.stdout
    assert "**memory " in done.stdout
    assert "| quiet | 2 s | 1 placed, 0 evicted, 0 moved;" in done.stdout
    assert "| nothing | nothing | nothing |" in done.stdout
    assert "Limits" in done.stderr
    assert "Limits" not in done.stdout


@pytest.mark.slow
def test_a_run_is_written_into_its_set_and_a_page(tiny: Path, tmp_path: Path) -> None:
    stored, page = tmp_path / "runs", tmp_path / "page.md"
    page.write_text("<!-- tiny:begin --><!-- tiny:end -->\n<!-- tiny-added:begin --><!-- tiny-added:end -->\n")
    done = run(tiny, "--save", stored, "--record", page)
    assert done.exit_code == 0, done.output
    assert "| nobody contends | 1 s | <= 60 s; memory <= 1 MiB |" in page.read_text()
    checks = yaml.safe_load(tiny.read_text())["entries"][0]["checks"]
    assert checks[1]["measured"] > 1
    texts = page.read_text(), tiny.read_text()
    again = run(tiny, "--from", stored, "--record", page)
    assert again.exit_code == 0, again.output
    assert (page.read_text(), tiny.read_text()) == texts


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--only", "quiet"], "needs one set, all of it"), ([], "has no mark <!-- tiny:begin -->")],
)
def test_what_cannot_be_written_down_is_not_measured(
    tiny: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    page, before = tmp_path / "page.md", tiny.read_text()
    page.write_text("no marks")
    done = run(tiny, "--save", tmp_path / "runs", "--record", page, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()
    assert (page.read_text(), tiny.read_text()) == ("no marks", before)


def test_an_entry_can_be_written_as_an_instance(tiny: Path, tmp_path: Path) -> None:
    done = run(tiny, "--generate", "quiet", "--output", tmp_path / "quiet.json.zst")
    assert done.exit_code == 0, done.output
    assert len(load_instance(tmp_path / "quiet.json.zst").snapshot.nodes) == 8
    done = run(tiny, "--generate", "quiet", "--output", tmp_path / "quiet.zip")
    assert done.exit_code == 0, done.output
    assert load_instance(tmp_path / "quiet.zip").kind == "kai-snapshot"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--generate", "quiet"], "an output"),
        (["--generate", "absent", "--output", "x.json"], "--generate: the set has no entry 'absent'"),
        (["--only", "absent"], "--only: the set has no entry 'absent'"),
        (["--compare", "absent"], "has no stored runs"),
        (["--models", "absent"], "absent"),
    ],
)
def test_faults_are_named(tiny: Path, arguments: list[str], said: str) -> None:
    done = run(tiny, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
