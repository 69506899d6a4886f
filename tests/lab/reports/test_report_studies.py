"""Pages of studies and of the openb experiment."""

from dataclasses import replace
from pathlib import Path

import pytest

from kai_solver.errors import InputError
from kai_solver.lab.bench import save_runs, stored_of
from kai_solver.lab.experiments.tables import write_tables
from kai_solver.lab.reports import build_report, write_figures, write_page
from kai_solver.lab.reports.plotly_json import plotly_figure
from kai_solver.lab.reports.studies import costs_of
from kai_solver.lab.runs import Definition, InstanceFile, Outcome, StageResult, Study, tasks_of
from kai_solver.lab.runs.running import blank
from kai_solver.modelfiles import load_model
from tests.lab.reports.conftest import changed
from tests.support.bench_runs import a_run

MONDAY = Path(__file__).parents[3] / "instances" / "monday-morning.yaml"


def a_study(folder: Path, *, failing: str = "") -> Path:
    """Eight instances with two models; greedy-only is worse on each of them, and proves nothing."""
    sources = tuple(InstanceFile(f"i{n}", MONDAY, f"content{n}") for n in range(8))
    asked = Definition("compare", sources, (load_model("greedy-only"), load_model("default")), (1,))
    with Study.create(folder, asked) as study:
        for task in tasks_of(asked):
            number = int(task.source.name[1:])
            is_ours = task.model is not None and task.model.name == "default"
            value = 3.0 if is_ours else 4.0 + number
            record = replace(
                blank(task, "failed" if task.source.name == failing else "ok"),
                pods=10 * (number + 1),
                cpu_s=1.0 + number,
                stages=(StageResult("pending", value, 3.0, (value - 3.0) / 3.0, is_ours),),
                first_plan_s=0.1 + 0.01 * number,
                proof_s=0.5 + number if is_ours else None,
            )
            study.add(Outcome(record))
    return folder


def test_a_study_says_which_model_is_better(tmp_path: Path) -> None:
    report = build_report([a_study(tmp_path / "study")])
    [section] = report.sections
    assert section.verdicts[0].startswith("16 runs of 2 models on 8 instances with 1 seed: 0 failed, 8 ended")
    assert section.verdicts[1].startswith("default: plans, by the stages in order: 8 better, 0 same, 0 worse")
    assert section.verdicts[2].startswith("default is better than greedy-only")
    # Plans and integrals differ: two tests of p = 2/256, corrected for both.
    assert "p = 0.0156" in section.verdicts[2]
    assert any("for 2 tests" in note for note in section.notes)
    compared = section.tables[0]
    assert compared.title == "default against greedy-only"
    [integral] = [row for row in compared.rows if row[0] == "primal integral"]
    assert (integral[5:7], integral[-1]) == (("8", "0"), "less")
    assert [figure.name for figure in section.figures] == ["profiles", "cactus", "primal-integral", "size", "pairs"]
    write_page(report, tmp_path / "page.html")
    assert len(write_figures(report, tmp_path / "figures")) == 10


def test_a_run_that_failed_is_told(tmp_path: Path) -> None:
    [section] = build_report([a_study(tmp_path / "study", failing="i3")]).sections
    assert "2 failed" in section.verdicts[0]
    assert any(note.startswith("Failed (failed") for note in section.notes)


def test_draws_of_one_generator_are_instances_of_their_own() -> None:
    row = {"model": "m", "instance": "loaded", "seed": 1, "status": "ok"}
    rows = [row | {"draw": draw, "proof_s": float(draw)} for draw in (1, 2)]
    assert costs_of(rows, "proof_s") == {"m": {("loaded", 1): 1.0, ("loaded, draw 2", 1): 2.0}}


def test_runs_of_a_benchmark_are_drawn_as_a_study(tmp_path: Path) -> None:
    runs = [a_run(instance=f"i{n}", model=model) for n in range(3) for model in ("greedy-only", "default")]
    save_runs(stored_of(runs), tmp_path / "runs")
    [section] = build_report([tmp_path / "runs"]).sections
    assert section.title == "Study: bench"
    assert section.verdicts[0].startswith("6 runs of 2 models on 3 instances")


def test_a_study_without_a_run(tmp_path: Path) -> None:
    asked = Definition("compare", (InstanceFile("i", MONDAY, "x"),), (load_model("default"),))
    Study.create(tmp_path / "study", asked)
    with pytest.raises(InputError, match=r"without a run that ended.*kai-solver compare --study"):
        build_report([tmp_path / "study"])


def test_an_experiment(tmp_path: Path) -> None:
    from kai_solver.lab.experiments.report import SIZES, Bin, Failures, Run, RunSpec

    runs = [
        Run(
            RunSpec("default", seed, policy, 1, 0.0),
            tuple(Bin(at, level - at / 10, level, 5.0, 50.0, 0.0) for at in (100, 130)),
            tuple(Failures(at, size, 100, 4 + seed if at > 100 else 2) for at in (100, 130) for size in SIZES),
            0,
            1.0,
        )
        for policy, level in (("fgd", 95.0), ("bestfit", 90.0))
        for seed in (42, 44)
    ]
    write_tables(runs, tmp_path / "openb", tmp_path)
    report = build_report([tmp_path / "openb"])
    [section] = report.sections
    assert "fgd 82.00%, bestfit 77.00% (means over 2 seeds)" in section.verdicts[0]
    allocation, failed = section.figures
    published = [series.name for panel in allocation.panels for series in panel.series if series.kind == "points"]
    assert published == ["bestfit, published", "fgd, published"]
    [panel] = failed.panels
    assert panel.series[0].y[2] == 0.47
    assert panel.series[0].texts[2] == "47 of 100 pods"
    # The least value is 77, and 0 is far from that.
    assert allocation.panels[0].least == 75
    assert allocation.panels[0].y_text == "GPUs allocated, %\n(axis begins at 75)"
    assert plotly_figure(allocation)["layout"]["yaxis"]["range"] == [75, 100]
    assert allocation.panels[1].least == 0
    write_page(report, tmp_path / "page.html")

    changed(tmp_path / "openb", "curves.csv", "allocation", "allocated")
    with pytest.raises(InputError, match=r"another version.*experiment openb"):
        build_report([tmp_path / "openb"])
