"""Runs written down: figures in the text of a set, tables and words in a page; what is shipped agrees."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import BenchDoc, SlopeDoc
from kai_solver.lab.bench import (
    BenchSet,
    Run,
    Stored,
    block_names,
    blocks,
    fitted,
    measured,
    read_set,
    read_stored,
    with_blocks,
    with_figures,
)
from tests.support.bench_runs import a_run, changed

ROOT = Path(__file__).parents[3]
BENCH = ROOT / "instances" / "bench"
RUN = a_run()
FLOW = """\
# why these
format: kai-bench/v1
name: tiny
entries:
  - name: small   # the one
    generate: {kind: quiet}
    checks:
      - {figure: decide, limit: 1, says: "fast, or so"}   # a promise
      - {figure: unproven, limit: 0, measured: 9}
  - {name: other, generate: {kind: quiet}}
"""
BLOCK = """\
format: kai-bench/v1
name: tiny
measured:
  date: "2000-01-01"
  machine: old   # and slow
entries:
- name: small
  generate:
    kind: quiet
  checks:
  - figure: decide
    limit: 1   # a promise
  - measured: 9
    figure: unproven
    limit: 0
"""
JSON = (
    '{"format": "kai-bench/v1", "name": "tiny", "entries": [{"name": "small", "generate": {"kind": "quiet"},'
    ' "checks": [{"figure": "decide", "limit": 1}, {"figure": "unproven", "measured": 9, "limit": 0}]}]}'
)


def stored(*runs: Run) -> Stored:
    return Stored("2026-01-02", "2 x Slow", "1.2", runs)


def set_of(text: str) -> BenchSet:
    return BenchSet(BenchDoc.model_validate(yaml.safe_load(text)), Path("set.yaml"))


def recorded(text: str, *runs: Run) -> str:
    return with_figures(text, measured(set_of(text), stored(*runs)))


# -- the text of a set -------------------------------------------------------------------------------------------------


def test_figures_go_into_braces() -> None:
    expected = FLOW.replace('"fast, or so"}', '"fast, or so"}').replace("limit: 1,", "limit: 1, measured: 0.2,")
    expected = expected.replace("measured: 9", "measured: 1")
    about = 'measured: {"date": "2026-01-02", "machine": "2 x Slow"}\n'
    assert recorded(FLOW, RUN) == expected.replace("entries:", f"{about}entries:")


def test_figures_go_on_lines_of_their_own() -> None:
    expected = BLOCK.replace("    limit: 1 ", "    measured: 0.2\n    limit: 1 ").replace("measured: 9", "measured: 1")
    assert recorded(BLOCK, RUN) == expected.replace("2000-01-01", "2026-01-02").replace("old ", '"2 x Slow" ')


def test_json_stays_json() -> None:
    document = yaml.safe_load(recorded(JSON, RUN))
    assert [check["measured"] for check in document["entries"][0]["checks"]] == [0.2, 1]
    assert '"measured": 0.2' in recorded(JSON, RUN)


def test_what_was_not_measured_loses_its_old_figure() -> None:
    text = recorded(FLOW, changed(RUN, instance="other"))
    assert "measured: null" in text
    assert "measured: 9" not in text
    assert "limit: 1, says" in text


@pytest.mark.parametrize(
    ("seconds", "written"), [(0.123456, "0.1235"), (28991083.0, "28990000"), (1.2e-05, "0.000012")]
)
def test_figures_have_four_digits_that_yaml_reads_as_numbers(seconds: float, written: str) -> None:
    text = recorded(FLOW, changed(RUN, decide_s=seconds))
    assert f"limit: 1, measured: {written}," in text


def test_of_several_seeds_the_worst_is_written() -> None:
    text = FLOW.replace("kind: quiet}\n    checks", "kind: quiet}\n    seeds: [1, 2]\n    checks")
    runs = [changed(RUN, draw=1, decide_s=0.5), changed(RUN, draw=2, decide_s=0.3)]
    assert "limit: 1, measured: 0.5," in recorded(text, *runs)


@pytest.mark.parametrize("shared", ["*one", "{<<: *one, model: fast}"])
def test_a_figure_that_two_places_share_is_an_error(shared: str) -> None:
    text = FLOW.replace("- {figure: decide", "- &one {figure: decide").replace(
        "{name: other, generate: {kind: quiet}}", f"{{name: other, generate: {{kind: quiet}}, checks: [{shared}]}}"
    )
    with pytest.raises(InputError, match="cannot be written into this set"):
        recorded(text, RUN)


# -- the page ----------------------------------------------------------------------------------------------------------

PAGE = (
    "before\n<!-- tiny:begin -->\nold\n<!-- tiny:end -->\nbetween\n<!-- tiny-added:begin -->\n<!-- tiny-added:end -->\n"
)


def words(text: str, *runs: Run) -> str:
    bench_set = set_of(text)
    return " ".join(blocks(bench_set, stored(*runs), "default", "greedy-only")["tiny"].split())


def test_tables_replace_what_is_between_the_marks_and_nothing_else() -> None:
    wanted = blocks(set_of(FLOW), stored(RUN, changed(RUN, model="greedy-only")), "default", "greedy-only")
    page = with_blocks(PAGE, wanted)
    assert page.startswith("before\n<!-- tiny:begin -->\n")
    assert "old" not in page
    assert "\nbetween\n" in page
    assert "| small |  | <= 1 s (fast, or so); unproven <= 0 | 0.2 s; **unproven 1** |" in page
    assert "| small | 2 s | 3 placed, 1 evicted, 0 moved, 1 of 2 pending proven; 0.20 s | nothing |" in page
    assert with_blocks(page, wanted) == page


def test_a_page_may_have_one_of_the_marks() -> None:
    page = with_blocks("<!-- tiny:begin --><!-- tiny:end -->", {"tiny": "a", "tiny-added": "b"})
    assert "a" in page.splitlines()
    assert "b" not in page.splitlines()


@pytest.mark.parametrize(
    ("page", "said"),
    [("nothing", "has no mark"), ("<!-- tiny:begin -->\n", "has no end"), ("tiny:begin", "has no mark")],
)
def test_a_page_without_marks_is_an_error(page: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        with_blocks(page, dict.fromkeys(block_names(set_of(FLOW)), "text"))


def test_the_words_name_day_machine_clock_and_speed() -> None:
    text = words(FLOW, changed(RUN, calibration_s=0.02), changed(RUN, calibration_s=0.06, clock="cpu"))
    assert "Measured on 2026-01-02 with kai-solver 1.2 on 2 x Slow; cpu and wall time, medians of 2 cycles" in text
    assert "The calibration took 20 to 60 ms, median 40." in text


def test_the_words_name_what_is_over_and_what_is_late() -> None:
    text = words(FLOW, changed(RUN, decide_s=2.7))
    assert "**0 of 2 limits are kept; over them:** small decide 2.7 s (limit 1 s, budget 2 s); small unproven 1" in text
    assert "**0 of 1 cycles ended by 1.2 B + 0.2 s; too late:** small 2.70 s of 2.60 s." in text
    text = words(FLOW, changed(RUN, proven=2))
    assert "**2 of 2 limits are kept; over them:** none." in text
    assert "**1 of 1 cycles ended by 1.2 B + 0.2 s; too late:** none." in text
    assert "Not measured" not in text


def test_the_words_name_what_was_not_measured() -> None:
    text = words(FLOW.replace("figure: unproven", "figure: steady"), RUN)
    assert "**Not measured:** small steady." in text
    assert "0.2 s; steady not measured |" in text


def test_growth_is_told_as_fitted_and_at_its_end() -> None:
    slope = {"name": "growth", "entries": ["small", "other"], "model": "default", "limit": 9}
    text = words(
        FLOW + yaml.safe_dump({"slopes": [slope]}), RUN, changed(RUN, instance="other", nodes=40, decide_s=0.8)
    )
    assert "growth: 0.2, 0.8 s at 10, 40 nodes. The slope fitted to all is 1.00, that from 10 to 40 nodes 1.00." in text


def test_the_last_slope_is_that_of_the_largest_sizes() -> None:
    doc = SlopeDoc(name="g", entries=("a", "b", "c"), model="default", limit=9)
    sizes = (("a", 10, 1.0), ("b", 100, 1.0), ("c", 1000, 100.0))
    line = fitted(doc, [changed(RUN, instance=name, nodes=nodes, decide_s=s) for name, nodes, s in sizes])
    assert line is not None
    assert line.last_slope == pytest.approx(2.0)
    assert line.slope == pytest.approx(1.0)


# -- what is shipped ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((BENCH / "runs").iterdir()), ids=lambda path: path.name)
def test_page_set_plot_and_run_of_one_name_agree(path: Path) -> None:
    """If not: ``kai-solver bench SET --from RUN --plot SVG --record docs/benchmarks.md`` writes them again."""
    bench_set, run = read_set(BENCH / "sets" / f"{path.name}.yaml"), read_stored(path)
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    wanted: dict[str, Any] = blocks(bench_set, run, "default", "greedy-only")
    assert all(f"<!-- {name}:begin -->" in page for name in wanted)
    assert with_blocks(page, wanted) == page
    text = bench_set.path.read_text()
    assert with_figures(text, measured(bench_set, run)) == text
    plot = (ROOT / "docs" / "images" / f"{path.name}.svg").read_text()
    lines = [fitted(slope, run.runs) for slope in bench_set.doc.slopes]
    assert all(f"{line.name}: slope {line.slope:.2f}" in plot for line in lines if line)
    assert {r.record.instance for r in run.runs} <= {entry.name for entry in bench_set.doc.entries}
