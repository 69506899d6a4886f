"""The page in Debian's Chromium: it loads nothing, says no error, and the Gantt chart's filter and pointer work."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from kai_solver.lab.reports import build_report, write_page
from tests.support.browser import CHROMIUM, WHY_NOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(WHY_NOT)
    with sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page(browser: Browser, simulated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page of two policies, with all figures drawn."""
    file = tmp_path_factory.mktemp("page") / "page.html"
    write_page(build_report([simulated]), file)
    view = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
    faults: list[str] = []
    view.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
    view.on("pageerror", lambda error: faults.append(f"error: {error}"))
    view.on("request", lambda request: faults.append(request.url) if request.url != file.as_uri() else None)
    view.goto(file.as_uri())
    for place in view.locator("[data-of]").all():
        place.scroll_into_view_if_needed()
        place.locator("svg.main-svg").first.wait_for()
    view.locator(".gantt[data-ready]").wait_for()
    yield view
    assert [fault for fault in faults if not fault.startswith(("data:", "blob:"))] == []


def test_every_figure_has_marks(page: Page) -> None:
    for place in page.locator(".plot").all():
        assert place.locator(".scatterlayer path, .barlayer path").count() > 0, place.get_attribute("aria-label")


def test_logarithmic_axes_have_numbers_also_within_a_decade(page: Page) -> None:
    found = 0
    for place in page.locator(".plot").all():
        texts = place.evaluate(
            "plot => Object.entries((plot.querySelector('.js-plotly-plot') || plot)._fullLayout)"
            ".filter(([name, axis]) => /^[xy]axis/.test(name) && axis.type === 'log')"
            ".map(([name, axis]) => axis._vals.map((tick) => tick.text))"
        )
        for labels in texts:
            found += 1
            assert len(labels) >= 2, (place.get_attribute("aria-label"), labels)
            assert all(float(label) > 0 for label in labels), labels
    assert found > 0


def test_a_filter_by_queue_hides_its_stays(page: Page, simulated: Path) -> None:
    stays = pl.read_csv(simulated / "stays.csv", infer_schema=False)
    counts = {key: len(rows) for key, rows in stays.group_by("policy", "queue")}
    ours, other = (counts[policy, "a"] + counts[policy, "b"] for policy in ("greedy-only", "kube-default"))
    shown = page.locator(".controls output")
    assert shown.inner_text().startswith(f"{ours} and {other} stays")
    box = page.locator(".controls fieldset label", has_text="b").locator("input")
    box.uncheck()
    assert shown.inner_text().startswith(f"{counts['greedy-only', 'a']} and {counts['kube-default', 'a']} stays")
    box.check()
    search = page.locator(".controls input[type=search]")
    search.fill("no such gang")
    assert shown.inner_text().startswith("0 and 0 stays")
    search.fill("")
    page.locator(".controls select").select_option("gang")
    assert shown.inner_text().startswith(f"{ours} and {other} stays")
    page.locator(".controls select").select_option("queue")


def _point_at(page: Page, row: float, minutes: float) -> Locator:
    """Put the pointer on the first chart, at a row and a time."""
    chart = page.locator(".chart").first
    chart.scroll_into_view_if_needed()
    x, y = chart.evaluate(
        "(plot, [row, minutes]) => { const { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();"
        " return [box.left + xaxis._offset + xaxis.d2p(minutes), box.top + yaxis._offset + yaxis.d2p(row)]; }",
        [row, minutes],
    )
    page.mouse.move(x, y)
    return page.locator(".tip")


def test_the_pointer_says_which_gang_why_here_and_what_it_waited_for(page: Page, simulated: Path) -> None:
    stays = pl.read_csv(simulated / "stays.csv").filter(policy="greedy-only", node="n-0")
    first = stays.filter(pl.col("waited_for").is_not_null()).sort("start_s").row(0, named=True)
    middle = (first["start_s"] + (first["end_s"] or 1200.0)) / 2 / 60
    lane = int(str(first["devices"]).split()[0])
    tip = _point_at(page, 0.06 + 0.88 * (lane + 0.5) / 8, middle)
    said = tip.inner_text()
    assert f"gang {first['job']}" in said
    assert f"why here: {first['why']}" in said
    assert first["waited_for"].split("\n")[0] in said
    page.mouse.move(2, 2)
    assert not tip.is_visible()


def test_zooming_in_time_moves_both_charts(page: Page) -> None:
    first, second = page.locator(".chart").all()
    first.evaluate("plot => Plotly.relayout(plot, { 'xaxis.range': [0.05, 0.1] })")
    page.wait_for_function("() => document.querySelectorAll('.chart')[1].layout.xaxis.range[0] === 0.05")
    assert second.evaluate("plot => plot.layout.xaxis.range") == [0.05, 0.1]
