"""Lines and tables that keep the width."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kai_solver.cli.console import line, open_console, table, wrapped

WORDS = st.text(alphabet="ab中 -/", max_size=80)


@given(WORDS, st.integers(5, 60))
def test_wrapped_lines_hold_all_words_and_only_a_long_word_passes_the_width(text: str, width: int) -> None:
    lines = wrapped(text.rstrip(), width)
    assert " ".join(lines).split() == text.split()
    for each in lines:
        assert cell_len(each) <= width or len(each.split()) == 1


@given(st.lists(st.tuples(WORDS, WORDS, st.integers(0, 10**9).map(str)), max_size=5), st.integers(20, 200))
def test_a_table_loses_no_word_and_has_no_blanks_at_ends(rows: list[tuple[str, str, str]], width: int) -> None:
    console = open_console(io.StringIO())
    console.width = width
    console.print(table(("name", "what it is", "count"), rows, right=("count",)))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    longest = max((cell_len(word) for row in rows for cell in row for word in cell.split()), default=0)
    for each in text.splitlines():
        assert each == each.rstrip()
        assert cell_len(each) <= max(width, longest + 50)
    printed = text.replace(";", " ").split()
    assert all(word in printed for row in rows for cell in row for word in cell.split())


def test_a_name_is_never_cut_and_a_table_too_narrow_becomes_paragraphs() -> None:
    console = open_console(io.StringIO())
    console.width = 30
    console.print(table(("gang", "where"), [("a-name-of-twenty-letters", "on-a-node-of-length")]))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "a-name-of-twenty-letters\n    where on-a-node-of-length\n"


@pytest.mark.parametrize("columns", ["60", "100"])
def test_columns_sets_the_width_of_a_pipe(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    console = open_console(io.StringIO())
    line(console, "word " * 100)
    assert isinstance(console.file, io.StringIO)
    assert max(map(len, console.file.getvalue().splitlines())) <= int(columns)


def test_a_line_in_a_pipe_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    console = open_console(io.StringIO())
    line(console, "word " * 1000)
    console.print(table(("a", "b"), [("x " * 600, "y")]))
    assert isinstance(console.file, io.StringIO)
    assert len(console.file.getvalue().splitlines()) == 3
