"""The documentation reads as Kubernetes' own does: short sentences, things as things, the terms of the field."""

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parents[2]
REWRITTEN = """
    admission architecture cli controller differences-from-kai domains from-default-scheduler getting-started glossary
    how-a-cycle-decides index install limits placement shadow switching-from-kai vcluster when-not
"""
PAGES = [f"docs/{name}.md" for name in REWRITTEN.split()]
PAGES += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "runbooks").glob("*.md"))
"""Pages that have been rewritten so; the others follow."""

MEAN, LONGEST = 18, 40
"""Words of a sentence: the mean of a page, and the most of one."""
BANNED = re.compile(
    r"\b(who|whom|whoever|somebody|nobody|anybody|everybody|no one|anew|lest|herein|thereof|heeded"
    r"|is told|are told|told of|for \w+ sake|so many as|at the most|not so)\b",
    re.IGNORECASE,
)
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs)\.")


def prose(text: str) -> Iterator[str]:
    """Paragraphs, list items and cells of tables, one each; without code, headings, links' addresses and comments."""
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


@pytest.mark.parametrize("page", PAGES)
def test_sentences_are_short(page: str) -> None:
    found = list(sentences((ROOT / page).read_text()))
    longest = max(found, key=len)
    assert len(longest) <= LONGEST, " ".join(longest)
    assert mean(map(len, found)) <= MEAN


@pytest.mark.parametrize("page", PAGES)
def test_things_are_things_and_words_are_plain(page: str) -> None:
    paragraphs = prose((ROOT / page).read_text())
    assert [f"{found[0]}: {paragraph}" for paragraph in paragraphs for found in BANNED.finditer(paragraph)] == []


def test_words_are_counted_and_found() -> None:
    text = "# Head\n\nA pod who waits is no news. See `x.y` and [the page](a.b) first.\n\n"
    text += "```sh\nno prose\n```\n\n| a b | c |\n|---|---|\n"
    assert [len(words) for words in sentences(text)] == [7, 6]
    assert [found[0] for paragraph in prose(text) for found in BANNED.finditer(paragraph)] == ["who"]
