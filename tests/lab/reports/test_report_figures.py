"""How figures are drawn as files and in pages: axes, time, and the Gantt chart."""

import csv
from pathlib import Path

import polars as pl

from kai_solver.lab.reports import build_report, write_figures
from kai_solver.lab.reports.build import Report
from kai_solver.lab.reports.figure import Figure, Panel, Section, Series, with_common_end
from kai_solver.lab.reports.gantt import time_unit
from kai_solver.lab.reports.plotly_json import plotly_figure


def drawn(folder: Path, panel: Panel) -> str:
    """A figure of one panel as SVG."""
    report = Report("", (), (Section("", figures=[Figure("one", "One", "", [panel])]),))
    write_figures(report, folder)
    return (folder / "one.svg").read_text()


def test_a_logarithmic_axis_has_numbers_that_are_written_out(tmp_path: Path) -> None:
    line = Series("a", [0.1, 10.0], [0.0, 1.0])
    text = drawn(tmp_path, Panel("", "seconds", "share", [line], is_log_x=True))
    assert "mathdefault" not in text
    assert ">0.1<" in text
    assert ">10<" in text


def test_an_axis_of_counts_has_whole_numbers(tmp_path: Path) -> None:
    line = Series("a", [float(at) for at in range(1, 21)], [float(at) for at in range(1, 21)])
    text = drawn(tmp_path, Panel("", "problems", "seconds", [line], is_log_y=True))
    assert ">2.5<" not in text
    assert ">20<" in text


def test_an_axis_that_does_not_begin_at_0_says_so(tmp_path: Path) -> None:
    panel = Panel("", "x", "percent", [Series("a", [1.0, 2.0], [90.0, 95.0])], least=85, most=100)
    text = drawn(tmp_path, panel)
    assert "(axis begins at 85)" in text
    assert ">86<" in text
    assert ">0<" not in text
    axis = plotly_figure(Figure("one", "One", "", [panel]))["layout"]["yaxis"]
    assert axis["title"]["text"] == "percent<br>(axis begins at 85)"
    assert axis["range"] == [85, 100]


def test_an_axis_where_all_is_0_ends_at_1() -> None:
    panel = Panel("", "x", "pods", [Series("a", [1.0, 2.0], [0.0, 0.0])])
    assert panel.highest == 1
    assert plotly_figure(Figure("one", "One", "", [panel]))["layout"]["yaxis"]["range"] == [0, 1]


def test_lines_of_shares_end_together() -> None:
    first, second = with_common_end([Series("a", [1.0], [1.0]), Series("b", [1.0, 5.0], [0.5, 0.9])])
    assert (first.x, first.y) == ([1.0, 5.0], [1.0, 1.0])
    assert second.x == [1.0, 5.0]


def test_names_have_their_order_in_the_page() -> None:
    panel = Panel("", "", "y", [Series("a", ["light", "none"], [1.0, 2.0], "points")], names=["none", "light"])
    axis = plotly_figure(Figure("one", "One", "", [panel]))["layout"]["xaxis"]
    assert (axis["type"], axis["categoryarray"]) == ("category", ["none", "light"])


def test_panels_of_other_quantities_have_axes_of_their_own() -> None:
    def axes(first: str, second: str) -> list[bool]:
        panels = [Panel("", x, "y", [Series("a", [1.0], [1.0])]) for x in (first, second)]
        layout = plotly_figure(Figure("one", "One", "", panels))["layout"]
        return ["matches" in layout[name] for name in ("xaxis", "xaxis2")]

    assert axes("hours", "hours") == [False, True]
    assert axes("hours", "pods") == [False, False]


def test_short_replays_are_told_in_minutes() -> None:
    assert time_unit(7200) == ("simulated minutes", 60)
    assert time_unit(7201) == ("simulated hours", 3600)


def test_the_gantt_chart_has_a_bar_for_each_stay(simulated: Path, tmp_path: Path) -> None:
    write_figures(build_report([simulated]), tmp_path)
    with (tmp_path / "gantt.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    stays = pl.read_csv(simulated / "stays.csv")
    assert {(row["replay"], row["pod"], float(row["start_s"])) for row in rows} == set(
        stays.select("policy", "pod", "start_s").iter_rows()
    )
    for row in rows:
        assert float(row["last_lane"]) - float(row["first_lane"]) <= float(row["gpus"])
    text = (tmp_path / "gantt.svg").read_text()
    assert all(f">{name}<" in text for name in ("n-0", "n-1", "greedy-only", "kube-default", "simulated minutes"))
    assert (tmp_path / "gantt.png").exists()
