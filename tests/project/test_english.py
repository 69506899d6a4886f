"""Documentation and user-facing texts read as Kubernetes' own do: short sentences, things as things, plain words.

Checked are all pages, the help of all commands, alerts, dashboard, chart, and the texts in the code. The program's own
docstrings and comments are checked by ``test_words``.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import typer
import yaml

from kai_solver.cli.app import app

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "kai-solver"
PACKAGE = ROOT / "kai_solver"
PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
PAGES += ["README.md", "CONTRIBUTING.md", "deploy/README.md"]
PAGES += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.ipynb"))
HISTORY = "CHANGELOG.md"
"""Its words are checked, its sentences are not: a line of it is one change, and stays as it was written."""

MEAN, LONGEST = 18, 40
"""Words of a sentence: the mean of a page, and the most of one."""
BANNED = re.compile(
    r"\b(who|whom|whoever|somebody|nobody|anybody|everybody|someone|everyone|anyone|no one|anew|lest|herein|thereof"
    r"|heeded|is told|are told|told of|for \w+ sakes?|so many as|at the most|not so)\b",
    re.IGNORECASE,
)
FOR_PERSONS = {"the API server does not say who you are, or what you may do. Ask again in a moment"}
"""Texts in which such a word is about a person."""
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs)\.")


def text_of(page: str) -> str:
    """What a page says; of a notebook its cells of text."""
    text = (ROOT / page).read_text()
    if not page.endswith(".ipynb"):
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def prose(text: str) -> Iterator[str]:
    """Paragraphs, list items and cells of tables, one each; without code, headings, links' addresses and comments."""
    text = re.sub(r"<!-- (\S+):begin -->.*?<!-- \1:end -->", "", text, flags=re.DOTALL)  # tables that a program wrote
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`\n]*`", "CODE", text)
    text = re.sub(r"^.+\n: {3}", "", text, flags=re.MULTILINE)  # a term stands before its definition
    for block in re.split(r"\n\s*\n", text):
        if block.lstrip().startswith("#"):
            continue
        if block.lstrip().startswith("|"):
            rows = (row for row in block.splitlines() if not re.fullmatch(r"[|:\-\s]+", row))
            yield from (cell.strip() for row in rows for cell in row.strip().strip("|").split("|") if cell.strip())
        else:
            yield from (" ".join(item.split()) for item in re.split(r"\n(?=\s*(?:[-*]|\d+\.) )", block))


def sentences(text: str) -> Iterator[list[str]]:
    """Words of each sentence; cells of tables that are none, and other scraps of fewer than six words, left out."""
    for paragraph in prose(text):
        flat = ABBREVIATIONS.sub(lambda found: found[0].replace(".", ""), paragraph)
        for sentence in re.split(r"(?:(?<=[.!?])|(?<=[.!?][*\")]))\s+(?=[A-Z(*`\"\d]|\w+\()", flat):
            words = re.findall(r"[\w'’/-]+", sentence)
            if len(words) >= 6:
                yield words


def banned(text: str) -> list[str]:
    """``word: paragraph`` for every word to be replaced."""
    return [f"{found[0]}: {paragraph}" for paragraph in prose(text) for found in BANNED.finditer(paragraph)]


def helps(command: Any, path: str = "kai-solver") -> Iterator[tuple[str, str]]:
    """Name and text of every command's and option's help; examples and lists of files left out."""
    yield path, (command.help or "").split("\b")[0]
    yield from ((f"{path} {option.name}", option.help) for option in command.params if getattr(option, "help", None))
    for name, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{path} {name}")


def chart_texts() -> Iterator[tuple[str, str]]:
    """File and text of what the chart says: notes, comments of values, alerts, titles and descriptions of panels."""
    notes = re.sub(r"{{.*?}}", "X", (CHART / "templates" / "NOTES.txt").read_text())
    yield "NOTES.txt", "\n\n".join(line for line in notes.splitlines() if not line.startswith("  "))
    comments = re.findall(r"^ *# -- (.*(?:\n *# (?!--).*)*)", (CHART / "values.yaml").read_text(), flags=re.MULTILINE)
    yield "values.yaml", "\n\n".join(re.sub(r"\n *# ", " ", comment) for comment in comments)
    for group in yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], re.sub(r"{{.*?}}", "X", "\n\n".join(rule["annotations"].values()))
    panels = json.loads((CHART / "files" / "dashboard.json").read_text())["panels"]
    for panel in panels + [below for row in panels for below in row.get("panels", [])]:
        yield f"panel {panel['title']}", f"{panel['title']}\n\n{panel.get('description', '')}"


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string of several words, formatted ones with their parts joined; docstrings left out."""
    tree = ast.parse(source)
    done: set[int] = set()
    for node in ast.walk(tree):  # what stands further out comes first
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            done.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            done |= {id(part) for part in node.values}
            yield from _of_words(node.lineno, (getattr(part, "value", None) for part in node.values))
        elif isinstance(node, ast.Constant) and id(node) not in done:
            yield from _of_words(node.lineno, [node.value])


def _of_words(line: int, parts: Iterable[object]) -> Iterator[tuple[int, str]]:
    text = "".join(part if isinstance(part, str) else "X" for part in parts)
    if " " in text.strip():
        yield line, text


@pytest.mark.parametrize("page", PAGES)
def test_sentences_are_short(page: str) -> None:
    found = list(sentences(text_of(page)))
    if found:
        longest = max(found, key=len)
        assert len(longest) <= LONGEST, " ".join(longest)
        assert mean(map(len, found)) <= MEAN


@pytest.mark.parametrize("page", [*PAGES, HISTORY])
def test_things_are_things_and_words_are_plain(page: str) -> None:
    assert banned(text_of(page)) == []


def test_help_is_short_and_plain() -> None:
    found = list(helps(typer.main.get_command(app)))
    assert len(found) > 100
    assert [
        f"{where}: {' '.join(words)}" for where, text in found for words in sentences(text) if len(words) > 30
    ] == []
    assert [f"{where}: {word}" for where, text in found for word in banned(text)] == []


def test_what_the_chart_says_is_short_and_plain() -> None:
    found = list(chart_texts())
    assert len(found) > 30
    assert [
        f"{where}: {' '.join(words)}" for where, text in found for words in sentences(text) if len(words) > 30
    ] == []
    assert [f"{where}: {word}" for where, text in found for word in banned(text)] == []


def test_texts_in_the_code_are_plain() -> None:
    """Errors, notices, events, log lines and reasons."""
    found = [(path, *text) for path in sorted(PACKAGE.rglob("*.py")) for text in texts_of(path.read_text())]
    assert len(found) > 2000
    assert [
        f"{path.relative_to(ROOT)}:{line}: {word[0]}: {text}"
        for path, line, text in found
        for word in BANNED.finditer(text)
        if text not in FOR_PERSONS
    ] == []


def test_words_are_counted_and_found() -> None:
    text = "# Head\n\nA pod who waits is no news. See `x.y` and [the page](a.b) first.\n\n"
    text += "```sh\nno prose\n```\n\n| a b | c |\n|---|---|\n\nA term\n:   Its definition has these seven words.\n"
    assert [len(words) for words in sentences(text)] == [7, 6, 6]
    assert [found[0] for paragraph in prose(text) for found in BANNED.finditer(paragraph)] == ["who"]


def test_texts_are_found() -> None:
    source = '"""Doc of who."""\nlog(f"pod {name} is gone", "a b")\nx = "one"\n'
    assert list(texts_of(source)) == [(2, "pod X is gone"), (2, "a b")]
