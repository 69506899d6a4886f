"""``kai-solver compare --study``, and plans compared."""

import json
import re
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from kai_solver.cli.app import app
from kai_solver.cli.exits import Exit

INSTANCES = Path(__file__).parents[2] / "instances"
MONDAY = INSTANCES / "monday-morning.yaml"
SET = """format: kai-bench/v1
name: small
cycles: 1
entries:
  - {name: drawn, generate: {kind: loaded, nodes: 10, gangs: 5, contested: 0}, seeds: [1, 2]}
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "120"})


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """What is printed, and the folder."""
    folder = tmp_path_factory.mktemp("studies")
    (folder / "set.yaml").write_text(SET)
    options = ("--models", "greedy-only,fast", "--budget", "1s", "--seeds", "1..2", "--at-once", 2)
    return run(MONDAY, folder / "set.yaml", *options, "--study", folder / "study"), folder / "study"


def test_every_model_runs_on_every_source_with_every_seed(study: tuple[Result, Path]) -> None:
    done, folder = study
    assert done.exit_code == Exit.FINE
    assert "12 runs of 2 models on 3 instances" in done.stdout
    assert "[12/12]" in done.stderr
    runs = pl.read_parquet(folder / "runs.parquet")
    assert sorted(set(runs["source"])) == [str(MONDAY), "loaded, draw 1", "loaded, draw 2"]
    assert runs.group_by("instance", "source", "seed", "model").len()["len"].to_list() == [1] * 12


def test_the_verdict_says_so_where_too_few_pairs_differ(study: tuple[Result, Path]) -> None:
    words = " ".join(study[0].stdout.split())
    assert "fast against greedy-only 6 pairs" in words
    assert "Plans, by the stages in order:" in words
    assert "too few pairs that differ to tell (6 are needed)." in words
    assert re.search(r"seconds to decide .* (less|more|no difference) Wilcoxon's signed-rank test", words)
    assert re.search(
        r"p with Holm's correction for \d tests?: .* Less is better\. Runs were done at the same time", words
    )


def test_the_folder_alone_goes_on_and_has_nothing_left_to_do(study: tuple[Result, Path]) -> None:
    before = (study[1] / "runs.jsonl").read_bytes()
    done = run("--study", study[1], "--json", "--quiet")
    found = json.loads(done.stdout)
    assert (found["format"], found["runs"], found["missing"], found["failed"]) == ("kai-study-verdicts/v1", 12, 0, [])
    assert [one["model"] for one in found["models"]] == ["greedy-only", "fast"]
    assert (study[1] / "runs.jsonl").read_bytes() == before


def test_failed_runs_are_named_with_the_command_that_does_them_again(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    asked = (MONDAY, "--models", "greedy-only", "--study", folder)
    done = run(*asked, "--limit-time", "10ms")
    assert done.exit_code == Exit.FINDINGS
    assert "out_of_time: not done after the limit of 0.01 s" in done.stdout
    assert re.search(r"^    kai-solver solve \S+", done.stdout, re.MULTILINE)
    assert run(*asked, "--retry").exit_code == Exit.FINE


def test_two_plans_are_compared_gang_by_gang(tmp_path: Path) -> None:
    assert run(MONDAY, "--plans", tmp_path, "--budget", "60s", "--quiet").exit_code == Exit.FINE
    first, second = (tmp_path / f"{model}.plan.json" for model in ("greedy-only", "default"))
    done = run(MONDAY, "--plan", first, "--plan", second)
    assert done.exit_code == Exit.FINE
    words = [line.split() for line in done.output.splitlines()]
    assert ["gangs", "admitted", "2", "3"] in words
    assert ["waits", "starts", "1", "default/detector"] in words
