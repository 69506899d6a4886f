"""The library does what the commands do, and says what is wrong."""

import html
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kai_solver
from kai_solver import InputError

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "format": "kai-solver/v1",
    "name": "small",
    "nodes": [{"name": "node-{i}", "count": 2, "gpus": 8}],
    "queues": [{"name": "research", "quota": 16}],
    "gangs": [
        {"name": "fits", "queue": "research", "pods": [{"replicas": 2, "gpus": 6}]},
        {"name": "too-large", "queue": "research", "pods": [{"gpus": 9}]},
    ],
}
SCENARIO: dict[str, Any] = {
    "format": "kai-scenario/v1",
    "name": "short",
    "duration": "10m",
    "cluster": {"nodes": [{"name": "node-0", "gpus": 8}], "queues": [{"name": "research", "quota": 8}]},
    "workloads": [
        {
            "kind": "generate",
            "name": "train",
            "queue": "research",
            "count": 3,
            "arrivals": {"process": "batch"},
            "runtime": {"distribution": "fixed", "typical": "60s"},
            "gpus": 4,
        }
    ],
}


@pytest.fixture(scope="module")
def solution() -> kai_solver.Solution:
    return kai_solver.solve(SMALL, "greedy-only")


def test_the_same_plan_from_file_and_document(tmp_path: Path, solution: kai_solver.Solution) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL))
    of_file = kai_solver.solve(path, "greedy-only")
    assert of_file.plan.binds == solution.plan.binds
    assert of_file.instance.source == str(path)
    assert solution.instance.source == ""


def test_an_instance_is_written_and_read_again(solution: kai_solver.Solution) -> None:
    again = kai_solver.load(solution.instance.document())
    assert again.snapshot == solution.instance.snapshot


def test_frames_have_the_rows_of_the_plan(solution: kai_solver.Solution) -> None:
    assert solution.frame("binds")["pod"].to_list() == [bind.pod for bind in solution.plan.binds]
    assert solution.frame("binds")["gpus"].to_list() == [6.0, 6.0]
    assert solution.frame("pending")["gang"].to_list() == ["default/too-large"]
    assert solution.frame("moves").shape == (0, 5)
    assert solution.instance.frame()["gpus"].to_list() == [12.0, 9.0]
    queues = solution.instance.frame("queues")
    assert queues.select("queue", "quota", "limit", "requested", "fair_share").rows() == [
        ("research", 16.0, float("inf"), 21.0, 16.0)
    ]
    assert solution.instance.frame("nodes")["gpus"].to_list() == [8, 8]
    assert solution.instance.frame("notices").is_empty()


def test_explanations(solution: kai_solver.Solution) -> None:
    found = kai_solver.explain(solution)
    assert [one.gang for one in found] == ["default/too-large"]
    assert found.frame()["gang"].to_list() == ["default/too-large"]
    assert "too-large is pending in queue research" in str(found)
    placed = kai_solver.explain(solution, "fits")
    assert placed[0].state == "placed"
    assert len(found[:0]) == 0
    assert str(found[:0]) == "no gang waits"


@pytest.mark.slow
def test_what_would_help_is_tried_out() -> None:
    document = SMALL | {"gangs": [{"name": "wide", "queue": "research", "pods": [{"replicas": 3, "gpus": 6}]}]}
    solution = kai_solver.solve(document)
    assert kai_solver.explain(solution, "wide")[0].cures == ()
    tried = kai_solver.explain(solution, "wide", try_out=True)
    assert any(cure.runs for cure in tried[0].cures)
    assert ": it runs" in str(tried)


def test_a_part_of_a_result_is_one_of_its_kind(solution: kai_solver.Solution) -> None:
    smaller = SMALL | {"nodes": [{"name": "node-{i}", "count": 2, "gpus": 4}]}
    results = (kai_solver.explain(solution), kai_solver.validate(smaller, solution.plan))
    for found in results:
        before = len(found)
        assert type(found[:1]) is type(found)
        assert list(found[:1]) == [found[0]]
        assert str(found).startswith(str(found[:1]))
        assert len(found[before:]) == 0
        assert len(found) == before > 0


def test_findings(tmp_path: Path, solution: kai_solver.Solution) -> None:
    assert kai_solver.validate(solution.instance, solution).is_fine
    solution.save(tmp_path / "plan.json")
    assert len(kai_solver.validate(SMALL, tmp_path / "plan.json")) == 0
    smaller = SMALL | {"nodes": [{"name": "node-{i}", "count": 2, "gpus": 4}]}
    found = kai_solver.validate(smaller, solution.plan)
    assert not found.is_fine
    assert "capacity" in {one.rule for one in found}
    assert found.frame().height == len(found.document()) == len(found) > 0
    assert str(kai_solver.validate(SMALL)) == "small: fine"
    wide = SMALL | {"gangs": [{"name": "wide", "queue": "research", "pods": [{"replicas": 3, "gpus": 8}]}]}
    [finding] = kai_solver.validate(wide)
    assert (finding.level, finding.object) == ("warning", "gang default/wide")


def test_solutions_gang_by_gang(solution: kai_solver.Solution) -> None:
    places_nothing = kai_solver.solve(SMALL, "greedy-only", actions=["stalegangeviction"])
    [difference] = solution.differences(places_nothing)
    assert (difference.fates, difference.gangs) == (("starts", "waits"), ("default/fits",))
    with pytest.raises(InputError, match="different instances"):
        solution.differences(kai_solver.solve(SMALL | {"queues": [{"name": "research", "quota": 1}]}, "greedy-only"))


def test_a_simulation(tmp_path: Path) -> None:
    found = kai_solver.simulate(SCENARIO)
    assert found.frame()["policy"].to_list() == ["greedy-only", "kube-default"]
    assert found.frame()["done"].to_list() == [3, 3]
    assert found.frame()["mean_wait_s"][0] == pytest.approx(20, abs=1)  # two at once, the third a minute later
    assert found.frame("jobs").filter(policy="greedy-only").height == 3
    assert (tmp_path / "jobs.csv") in found.save(tmp_path)
    assert json.dumps(found.document())


def test_a_comparison_keeps_what_it_measured(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL))
    study = tmp_path / "study"
    first = kai_solver.compare(path, ["greedy-only"], seeds=[1, 2], folder=study)
    assert [(run.admitted, run.pending, run.status) for run in first.runs] == [(1, 1, "ok")] * 2
    assert first.frame().select("model", "runs", "failed", "admitted").rows() == [("greedy-only", 2, 0, 2)]
    assert first.frame("runs").height == 2
    again = kai_solver.compare(path, ["greedy-only"], seeds=[1, 2, 3], folder=study)
    assert again.runs[:2] == first.runs  # they were not run again
    assert len(again.runs) == 3


def test_results_in_a_notebook_are_tables_without_markup_of_foreign_names() -> None:
    hostile = {
        **SMALL,
        "gangs": [{"name": "a", "queue": "research", "pods": [{"gpus": 9}]}],
        "name": "<script>x</script>",
    }
    solution = kai_solver.solve(hostile, "greedy-only")
    results: list[Any] = [solution, solution.instance, kai_solver.explain(solution), kai_solver.validate(hostile)]
    for result in results:
        shown = result._repr_html_()
        assert "<script>" not in shown
        assert "<table>" in shown or not len(result)
        assert repr(result).startswith("<")
    assert html.escape("<script>") in solution._repr_html_()


def test_long_tables_are_cut_with_a_count() -> None:
    gangs = [{"name": f"g-{i:02}", "queue": "research", "pods": [{"gpus": 9}]} for i in range(30)]
    shown = kai_solver.solve(SMALL | {"gangs": gangs}, "greedy-only")._repr_html_()
    assert "and 20 more rows" in shown


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "file": (lambda: kai_solver.load("no-such-file.yaml"), "no-such-file.yaml"),
    "document": (lambda: kai_solver.load({"format": "kai-solver/v1", "nodes": object()}), "plain|document"),
    "kind": (lambda: kai_solver.load({"a": 1}), "no known kind"),
    "nodes": (lambda: kai_solver.solve({"format": "kai-solver/v1"}), "has no nodes"),
    "limit": (lambda: kai_solver.load(SMALL, limits={"size": 1}), "limits: size: 1 is not a limit"),
    "small limit": (lambda: kai_solver.load(SMALL, limits={"depth": 1}), "depth|deep"),
    "model": (lambda: kai_solver.solve(SMALL, "defualt"), "default"),
    "budget": (lambda: kai_solver.solve(SMALL, budget_s=-1), "budget_s: -1 is not a budget"),
    "budget nan": (lambda: kai_solver.solve(SMALL, budget_s=float("nan")), "is not a budget"),
    "budget text": (lambda: kai_solver.solve(SMALL, budget_s="2s"), "'2s' is not a budget"),  # type: ignore[arg-type]
    "no path": (lambda: kai_solver.load(""), "source: '' is not an instance"),
    "no source": (lambda: kai_solver.solve(None), "source: None is not an instance"),  # type: ignore[arg-type]
    "no document": (lambda: kai_solver.load({}), "^is of no known kind: its first document has no keys"),
    "unsolved": (lambda: kai_solver.explain(kai_solver.load(SMALL)), "is not a solution"),  # type: ignore[arg-type]
    "seed": (lambda: kai_solver.solve(SMALL, seed=-1), "seed: -1 is not a seed"),
    "action": (lambda: kai_solver.solve(SMALL, actions=["relcaim"]), "Did you mean reclaim"),
    "actions": (lambda: kai_solver.solve(SMALL, actions=[]), "is no list of actions"),
    "table": (lambda: kai_solver.load(SMALL).frame("nodse"), "Did you mean nodes"),  # type: ignore[arg-type]
    "gang": (lambda: kai_solver.explain(kai_solver.solve(SMALL, "greedy-only"), "fist"), "no gang, pod or workload"),
    "plan": (lambda: kai_solver.validate(SMALL, "no-plan.json"), "no-plan.json"),
    "policies": (lambda: kai_solver.simulate(SCENARIO, []), "names no policy"),
    "policy": (lambda: kai_solver.simulate(SCENARIO, "kube-defualt"), "kube-defualt"),
    "scenario": (lambda: kai_solver.simulate({"format": "kai-scenario/v9"}), "format"),
    "sources": (lambda: kai_solver.compare([]), "sources: is empty"),
    "source": (lambda: kai_solver.compare("nowhere.yaml"), "nowhere.yaml"),
    "seeds": (lambda: kai_solver.compare("x", seeds=[]), "seeds: is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_an_error_with_a_cure(case: str) -> None:
    call, said = BAD[case]
    with pytest.raises(InputError, match=said) as caught:
        call()
    assert caught.value.cure


def test_without_polars_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, solution: kai_solver.Solution
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InputError, match=r"pip install 'kai-solver\[experiments\]'"):
        solution.frame()
    assert solution.document()["binds"]
