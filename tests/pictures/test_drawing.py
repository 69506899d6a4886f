"""Figures in general: a title, text as text, the same file twice, the data beside it, errors that say what to do."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kai_solver.errors import InputError
from kai_solver.pictures import Data, check_place, data_place, draw, ticks

DATA = Data(("x", "y"), [(1, 2.5), (2, "a,b")])


def content(figure: Any) -> None:
    axes = figure.subplots()
    axes.plot([1, 2], [3, 4])
    axes.set_title("what is seen")


def test_a_figure_has_a_title_and_text_that_can_be_searched(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "one.svg"
    draw(file, (4, 3), "GPUs <by> queue", content, DATA)
    root = ET.parse(file).getroot()  # noqa: S314 - our own file
    space = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{space}title") == "GPUs <by> queue"
    assert "what is seen" in [text.text for text in root.iter(f"{space}text")]
    assert data_place(file).read_text() == 'x,y\n1,2.5\n2,"a,b"\n'


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_names_with_signs_of_formulas_are_drawn_as_they_are(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file, name = tmp_path / f"odd.{ending}", "a$x^^$b"
    draw(file, (4, 3), "title", lambda figure: figure.subplots().set_title(name), DATA)
    assert ending == "png" or name in file.read_text()


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_same_figure_is_the_same_file(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for file in files:
        draw(file, (4, 3), "title", content, DATA)
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("name", "problem"), [("one.gif", "Write .svg or .png"), ("none/one.svg", "is in no folder that exists")]
)
def test_a_place_where_nothing_can_be_drawn_is_refused(name: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem):
        check_place(tmp_path / name)


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        (0.8, 12, [1, 2, 5, 10]),
        (1, 100, [1, 2, 5, 10, 20, 50, 100]),
        (0.9, 2_000_000, [1, 10, 100, 1e3, 1e4, 1e5, 1e6]),
        (3, 4, [3, 4]),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_round(least: float, most: float, expected: list[float]) -> None:
    assert ticks(least, most) == pytest.approx(expected)


def test_a_table_that_belongs_to_no_figure_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    table = tmp_path / "one.csv"
    table.write_text("somebody's own\n")
    with pytest.raises(InputError, match=r"one\.csv is there already"):
        draw(tmp_path / "one.svg", (4, 3), "x", content, DATA)
    assert table.read_text() == "somebody's own\n"
    table.unlink()
    for _ in range(2):
        draw(tmp_path / "one.svg", (4, 3), "x", content, DATA)
    assert table.read_text().startswith("x,y\n")
