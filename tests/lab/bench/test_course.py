"""Plan and bound over the budgets that were measured, and their picture."""

from pathlib import Path

import pytest

from kai_solver.domain import Stage
from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import PeerPointDoc
from kai_solver.lab.bench import figure_of
from kai_solver.lab.bench.course import course, draw
from tests.support.bench_runs import a_run, changed

STAGES = (
    Stage("pending-gangs", 7, 4, False),
    Stage("evicted-work/75", 10, 5, False),
    Stage("evicted-work/50", 30, 20, False),
)
RUN = a_run(instance="i", model="m", pending=7, stages=STAGES)


def test_a_point_is_a_budget_with_strata_added_up() -> None:
    runs = [changed(RUN, budget_s=10.0, decide_s=9.0), RUN, changed(RUN, instance="other"), changed(RUN, model="other")]
    short, long = course(runs, "i", "m")
    assert (short.seconds, long.seconds) == (0.2, 9.0)
    assert short.values == {"pending-gangs": 7, "evicted-work": 40}
    assert short.bounds == {"pending-gangs": 4, "evicted-work": 25}


def test_figures_of_admission_and_work() -> None:
    assert figure_of("unsettled", [RUN]) == 3
    assert figure_of("unproven", [RUN]) == 6
    assert figure_of("evicted-work", [RUN]) == 40


def test_the_picture_shows_every_version_and_peer(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = {"1.0": course([RUN, changed(RUN, budget_s=10.0)], "i", "m"), "2.0": course([RUN], "i", "m")}
    peer = PeerPointDoc(name="KAI", seconds=127, pending=9, evicted_work=80)
    draw({"i": lines, "unmeasured": {"1.0": ()}}, {"i": [peer]}, tmp_path / "course.svg")
    text = (tmp_path / "course.svg").read_text()
    for said in ("plan, 1.0", "bound, 2.0", "KAI, 127 s"):
        assert f">{said}</text>" in text
    assert "unmeasured" not in text
    assert "i,KAI,127,pending-gangs,9," in (tmp_path / "course.csv").read_text().splitlines()


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no instance was measured"):
        draw({"i": {"1.0": ()}}, {}, tmp_path / "course.svg")
