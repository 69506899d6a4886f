"""Citations of documentation pages lead to sections that exist."""

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CITING = (".py", ".toml", ".yaml", ".json", ".md")
CITATION = re.compile(r"\bdocs/([a-z/-]+\.md)((?:#[a-z0-9-]+)?(?:,\s+(?:# )?#[a-z0-9-]+)*)")
"""``docs/page.md``, ``docs/page.md#section``, ``docs/page.md#section, #section of the same page``."""
WITHOUT_PAGE = re.compile(r"\breference (?:section )?\d|\bdesign (?:section )?\d")
"""Sections of papers that are not here."""
ID_OF_HEADING = re.compile(r"^#{1,6} (.*?)(?:\s*\{#([a-z0-9-]+)\})?$", re.MULTILINE)


def sections(page: Path) -> set[str]:
    """Ids of the page's headings: the stated ones, else those that mkdocs makes of the text."""
    found = ID_OF_HEADING.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    return {stated or re.sub(r"[^\w\s-]", "", text).strip().lower().replace(" ", "-") for text, stated in found}


def citing_files() -> list[Path]:
    behaviour = (ROOT / "instances" / "behaviour").rglob("*")
    rooms = [path for room in ("kai_solver", "tests", "docs", "models", "deploy") for path in (ROOT / room).rglob("*")]
    files = [*rooms, *behaviour, *ROOT.glob("*.md")]
    return [path for path in files if path.suffix in CITING and path.is_file() and path != Path(__file__)]


@pytest.mark.slow
def test_citations_lead_to_sections() -> None:
    wrong = []
    for path in citing_files():
        for page, ids in CITATION.findall(path.read_text()):
            cited = set(re.findall(r"#([a-z0-9-]+)", ids))
            target = ROOT / "docs" / page
            if not target.is_file() or cited - sections(target):
                wrong.append(f"{path.relative_to(ROOT)}: docs/{page}{ids}")
    assert wrong == []


def test_no_citation_is_without_a_page() -> None:
    code = [path for path in citing_files() if path.suffix == ".py"]
    assert [str(path.relative_to(ROOT)) for path in code if WITHOUT_PAGE.search(path.read_text())] == []


@pytest.mark.parametrize("case", sorted((ROOT / "instances" / "behaviour").rglob("*.json")), ids=lambda path: path.stem)
def test_behaviour_cases_cite_what_kai_does(case: Path) -> None:
    assert json.loads(case.read_text())["statement"]["reference"].startswith("docs/kai-behaviour.md#")


PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.py|(?:kai_solver|tests|docs|models|instances|deploy)/[\w./-]+)`")
"""A module below the package, or a path below the root of the project."""
FOLDER = re.compile(r"`([\w/]+/)`")
"""On the page about the architecture: a folder below the package."""
BUILT = ("kai_solver/_data/",)
"""Only in the wheel."""


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), ids=lambda path: path.name
)
def test_paths_on_pages_exist(page: Path) -> None:
    named = [] if page.name == "CHANGELOG.md" else PATH.findall(page.read_text())
    named += FOLDER.findall(page.read_text()) if page.name == "architecture.md" else []
    below = (ROOT, ROOT / "kai_solver", page.parent)
    assert [
        name for name in named if not name.startswith(BUILT) and not any((top / name).exists() for top in below)
    ] == []


def test_sections_have_one_id_each() -> None:
    ids = re.findall(r"\{#([a-z0-9-]+)\}", (ROOT / "docs" / "kai-behaviour.md").read_text())
    assert len(ids) == len(set(ids))


def test_the_picture_shows_every_room_on_its_layer() -> None:
    """Rooms of a layer are joined by ``|``, in the order of the linter's contract."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    picture = re.findall(r"^ (\w+(?: \| \w+)*)  ", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    assert [shown for shown in picture if shown in layers] == layers


NAMED = re.compile(r"`(\w+(?:/\w+)*\.py)` \(`(\w+)(?:\.(\w+))?`")
"""A file of the package and, in brackets, a name that it defines."""


def test_names_on_the_page_about_the_architecture_are_defined() -> None:
    found = NAMED.findall((ROOT / "docs" / "architecture.md").read_text())
    assert len(found) > 3
    for file, name, inner in found:
        source = (ROOT / "kai_solver" / file).read_text()
        assert re.search(rf"^(?:class |def )?{name}\b", source, re.MULTILINE), f"{file}: {name}"
        assert not inner or f"def {inner}(" in source, f"{file}: {inner}"
