"""Pages and figures of tuning: what mattered, by examples that are worked out by hand."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from scipy.stats import kruskal

from kai_solver.errors import InputError
from kai_solver.lab.reports import build_report, write_figures, write_page
from kai_solver.lab.reports.tunings import importance
from kai_solver.lab.runs.paired import corrected_by_holm
from kai_solver.lab.tune import TuneVerdict, read_verdict
from kai_solver.lab.tune.space import ParameterDoc
from kai_solver.lab.tune.verdict import Pair, Tried, side_of

PARAMETERS = {
    "search.presolve": ParameterDoc(choices=("none", "light")),
    "search.question_s": ParameterDoc(low=0.1, high=2.0, log=True),
    "search.parameters.linearization_level": ParameterDoc(choices=(0, 1)),
}


def trials(count: int = 12) -> list[Tried]:
    """The first half has presolve none and is better; the other parameters go round."""
    return [
        Tried(
            number,
            "complete" if number < count / 2 else "pruned",
            0.1 if number < count / 2 else None,
            number / 100,
            4,
            {
                "search.presolve": "none" if number < count / 2 else "light",
                "search.question_s": 0.1 + 0.1 * (number * 5 % count),
                "search.parameters.linearization_level": number % 2,
            },
        )
        for number in range(count)
    ]


def verdict(tried: list[Tried]) -> TuneVerdict:
    training = side_of([Pair(f"t{n}", "f", 0.5, 0.4 - n / 100) for n in range(7)])
    test = side_of([Pair(f"h{n}", "g", 0.5, 0.5 + (-1) ** n * 0.01) for n in range(8)])
    return TuneVerdict(
        "mine", "default", "", "primal-integral", 2.0, 1, {"search.question_s": (1.0, 0.5)}, training, test, (),
        tuple(tried), (0.0, 0.0), "2026-11-24", "", "", "",
    )  # fmt: skip


def a_folder(folder: Path, tried: list[Tried]) -> Path:
    folder.mkdir(parents=True)
    parameters = {path: doc.model_dump(mode="json") for path, doc in PARAMETERS.items()}
    (folder / "space.json").write_bytes(orjson.dumps({"space": {"parameters": parameters}}))
    (folder / "verdict.json").write_bytes(orjson.dumps(verdict(tried).document()))
    return folder


def test_a_verdict_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "study", trials())
    assert read_verdict(folder / "verdict.json") == verdict(trials())


def test_the_parameter_that_separates_good_trials_from_bad_ones_comes_first() -> None:
    first, *others = importance(trials(), PARAMETERS)
    # Two groups of six with ranks 1 to 6 and 7 to 12: H = 12 / (12 * 13) * (21**2 + 57**2) / 6 - 3 * 13 = 8.3077.
    assert first.path == "search.presolve"
    assert first.share == pytest.approx((8.3077 - 1) / 10, abs=1e-4)
    # chi-squared with one degree of freedom: 0.00395; Holm for three parameters: three times that.
    assert first.p == pytest.approx(3 * 0.003948, rel=1e-3)
    assert first.is_shown
    assert [one.is_shown for one in others] == [False, False]
    assert all(one.share < 0.1 for one in others)


def test_a_range_is_put_into_thirds() -> None:
    ranged = {"search.question_s": PARAMETERS["search.question_s"]}
    tried = [replace(one, values={"search.question_s": 0.1 + 0.1 * one.number}) for one in trials()]
    [found] = importance(tried, ranged)
    expected = kruskal([0.0, 0.01, 0.02, 0.03], [0.04, 0.05, 0.06, 0.07], [0.08, 0.09, 0.10, 0.11])
    assert found.share == pytest.approx((expected.statistic - 2) / 9)
    assert found.p == pytest.approx(expected.pvalue)


def test_nothing_is_said_of_few_trials_or_of_equal_ones() -> None:
    assert importance(trials(9), PARAMETERS) == []
    assert importance([replace(one, difference=0.5) for one in trials()], PARAMETERS) == []


def test_a_parameter_that_never_changed_has_no_share() -> None:
    tried = [replace(one, values={**one.values, "search.presolve": "none"}) for one in trials()]
    found = {one.path: one for one in importance(tried, PARAMETERS)}
    assert (found["search.presolve"].share, found["search.presolve"].p) == (0.0, 1.0)


def test_corrections_by_holm() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.04, times 4, 3, 2, 1, and never less than the one before.
    assert corrected_by_holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


def test_a_page_and_figures_of_tuning(tmp_path: Path) -> None:
    report = build_report([a_folder(tmp_path / "study", trials())])
    [section] = report.sections
    assert "No difference from default can be shown" in section.verdicts[0]
    assert section.tables[0].rows == [["search.question_s", "1", "0.5"]]
    write_page(report, tmp_path / "page.html")
    write_figures(report, tmp_path / "figures")
    with (tmp_path / "figures" / "importance.csv").open() as stream:
        shown = {row["x"]: float(row["y"]) for row in csv.DictReader(stream) if row["series"] == "the test shows it"}
    assert shown["presolve"] > 0.7
    assert shown["question_s"] == 0
    with (tmp_path / "figures" / "values.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["panel"].startswith("presolve")]
    assert {(row["series"], row["x"]) for row in rows} == {("complete", "none"), ("given up", "light")}
    assert len(rows) == 12
    with (tmp_path / "figures" / "training-and-test.csv").open() as stream:
        assert [row["series"] for row in csv.DictReader(stream)] == ["training"] * 7 + ["held out"] * 8


def test_few_trials_are_said(tmp_path: Path) -> None:
    [section] = build_report([a_folder(tmp_path / "study", trials(4))]).sections
    assert "importance" not in [figure.name for figure in section.figures]
    assert any("this needs 10 trials" in note for note in section.notes)


def test_tuning_without_a_verdict(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "study", trials())
    (folder / "verdict.json").unlink()
    with pytest.raises(InputError, match=r"without a verdict.*kai-solver tune SPACE --study .* goes on"):
        build_report([folder])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "kai-tuning/v0"}, r"verdict\.json: format: is of another version"),
        ({"tried": [{"number": 0}]}, r"verdict\.json: tried\.0\.state: is of another version"),
        ({"tried": [{"number": 0, "state": "complete", "value": 1, "difference": 0, "instances": 1, "values": {}}]},
         r"space\.json: has other parameters"),
    ],
)  # fmt: skip
def test_a_verdict_of_another_version(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    folder = a_folder(tmp_path / "study", trials())
    document = orjson.loads((folder / "verdict.json").read_bytes()) | change
    (folder / "verdict.json").write_bytes(orjson.dumps(document))
    with pytest.raises(InputError, match=rf"{said}.*kai-solver tune"):
        build_report([folder])
