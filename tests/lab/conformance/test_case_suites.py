"""Folders of cases through the real engine."""

from functools import partial
from pathlib import Path

import pytest

from kai_solver.errors import InputError
from kai_solver.lab.conformance import CaseResult, find_cases, read_case, run_suite, totals
from kai_solver.lab.conformance.deciding import open_decider
from kai_solver.modelfiles import load_model

CASES = Path(__file__).parents[3] / "instances" / "cases"
FEW = sorted((CASES / "action_preempt").glob("*.json"))[:6]


def run(paths: list[Path], model: str = "greedy-only", processes: int = 1) -> list[CaseResult]:
    decider = partial(open_decider, load_model(model))
    return list(run_suite(paths, decider, root=CASES, processes=processes))


def test_several_processes_give_the_same_verdicts_in_the_same_order() -> None:
    alone, together = run(FEW), run(FEW, processes=2)
    assert [(r.path, r.verdict) for r in alone] == [(r.path, r.verdict) for r in together]


def test_the_solver_is_kept_over_cases_with_different_ladders() -> None:
    mixed = [*FEW[:2], *sorted((CASES / "action_allocate").glob("*.json"))[:2]]
    assert all(r.verdict.kind == "as expected" for r in run(mixed, model="default"))


def test_a_case_that_cannot_be_read_is_different_and_the_rest_goes_on(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema": "kai-case/1", "expected": {}, "run": {"actions": ["steal"]}, "instance": {}}')
    decider = partial(open_decider, load_model("greedy-only"))
    (result,) = run_suite([broken], decider, root=tmp_path)
    assert result.verdict.kind == "different"
    assert "run.actions" in result.verdict.reason


def test_totals_name_every_kind() -> None:
    assert totals([]) == {"as expected": 0, "better": 0, "different": 0}


def test_cases_are_found_below_and_in_order() -> None:
    found = list(find_cases(CASES))
    assert found == sorted(found)
    assert all(path.suffix in (".json", ".zst") for path in found)
    assert len({path.parent for path in found}) > 5


def test_a_folder_without_cases_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="no behaviour case"):
        list(find_cases(tmp_path))


def test_a_wrong_field_is_named(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text(FEW[0].read_text().replace('"expected": {', '"expected": {"jobs": 3, "was": {', 1))
    with pytest.raises(InputError, match=r"case\.json: "):
        read_case(path)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "least"), [("default", 0.97), ("greedy-only", 0.92)])
def test_the_recorded_cases_come_out_as_expected_but_for_a_few(model: str, least: float) -> None:
    """Floors of ``docs/conformance.md``."""
    results = run(list(find_cases(CASES)), model=model)
    counts = totals(results)
    different = [f"{r.path}: {r.verdict.reason}" for r in results if r.verdict.kind == "different"]
    assert counts["as expected"] + counts["better"] >= least * len(results), different
    assert counts["better"] <= 0.08 * len(results)
