"""``kai-solver compare``: two models on one instance, side by side."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kai_solver.cli.app import app
from kai_solver.cli.exits import Exit

MONDAY = Path(__file__).parents[2] / "instances" / "monday-morning.yaml"
PATIENT = ("--budget", "60s", "--quiet")
"""Both models end long before, also on a machine with much else to do."""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "100"})


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """What is printed, and the folder of the plans."""
    folder = tmp_path_factory.mktemp("out") / "plans"
    return run(MONDAY, "--plans", folder, *PATIENT), folder


def test_models_are_compared_in_numbers_and_gang_by_gang(plans: tuple[Result, Path]) -> None:
    done, _ = plans
    assert done.exit_code == Exit.FINE
    words = [line.split() for line in done.output.splitlines()]
    assert ["gangs", "admitted", "2", "3"] in words
    assert ["GPU-hours", "evicted", "96.0", "64.0"] in words
    assert ["waits", "starts", "1", "default/detector"] in words
    assert ["is", "evicted", "stays", "1", "default/ablation"] in words
    assert ["default/fine-tune", "b-0", "a-3"] in words
    assert ["default/label", "-", "c-2"] in words
    assert len(done.stdout.splitlines()) <= 40


def test_progress_says_of_which_model_it_is() -> None:
    lines = run(MONDAY, "--models", "greedy-only,fast", "--budget", "60s").stderr.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["greedy-only, 60 s", "fast, 60 s"]


def test_what_is_pending_has_its_reason(plans: tuple[Result, Path]) -> None:
    text = " ".join(plans[0].output.split())
    assert "default/flagship (proven): it needs 14 pods of 8 GPUs" in text


def test_the_plans_are_written(plans: tuple[Result, Path]) -> None:
    _, folder = plans
    assert sorted(path.name for path in folder.iterdir()) == ["default.plan.json", "greedy-only.plan.json"]
    best = str(folder / "default.plan.json")
    assert CliRunner().invoke(app, ["validate", str(MONDAY), best]).exit_code == Exit.FINE


def test_the_comparison_as_json() -> None:
    found = json.loads(run(MONDAY, "--json", *PATIENT).stdout)
    assert found["format"] == "kai-comparison/v1"
    assert [(one["model"], one["evicted_gpu_hours"]) for one in found["models"]] == [
        ("greedy-only", 96),
        ("default", 64),
    ]
    assert {"fates": {"greedy-only": "waits", "default": "starts"}, "gangs": ["default/detector"]} in found[
        "differences"
    ]
    assert {"gang": "default/fine-tune", "nodes": {"greedy-only": {"b-0": 1}, "default": {"a-3": 1}}} in found[
        "placings"
    ]


def test_equal_plans_say_that_they_are_equal(plans: tuple[Result, Path]) -> None:
    _, folder = plans
    same = folder.parent / "same.plan.json"
    same.write_bytes((folder / "default.plan.json").read_bytes())
    done = run(MONDAY, "--plan", folder / "default.plan.json", "--plan", same)
    assert "All gangs fare alike, and get the same nodes." in done.output


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ("default", "needs two models or more, each once"),
        ("default,default", "needs two models or more, each once"),
        ("default,nope", "nope"),
    ],
)
def test_models_that_cannot_be_compared_are_refused_before_any_work(models: str, problem: str) -> None:
    done = run(MONDAY, "--models", models)
    assert done.exit_code == Exit.INPUT
    assert problem in done.stderr


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(MONDAY, "--plans", tmp_path / "file" / "plans")
    assert done.exit_code == Exit.INPUT
    assert "Name a folder" in done.stderr


def test_a_case_is_solved_with_the_actions_that_it_names(tmp_path: Path) -> None:
    case = MONDAY.parent / "cases" / "action_preempt" / "021_elastic_inference_job_preempts_train_job.json"
    second = tmp_path / "second.toml"
    second.write_text('extends = "greedy-only"\nname = "second"\n')
    found = json.loads(run(case, "--models", f"greedy-only,{second}", "--json", "--quiet").stdout)
    assert [(one["admitted"], one["pending"]) for one in found["models"]] == [(1, 0), (1, 0)]
