"""What the documentation tells people to type exists, and what it links to is there."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import markdown  # type: ignore[import-untyped]
import pytest
import typer
import yaml

from kai_solver.check import RULES
from kai_solver.cli.app import app
from kai_solver.cli.exits import Exit
from kai_solver.domain import FAMILIES, STAGES, Reason
from kai_solver.modelfiles import available_models
from kai_solver.reasons.events import EventReason

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "deploy" / "README.md"])
COMMANDS: Any = typer.main.get_command(app)

BLOCK = re.compile(r"^```(?:sh|console|bash|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands_of(page: Path, program: str) -> list[list[str]]:
    """Words of every line in a shell block that starts with ``program``, comments and pipes cut off."""
    lines = [line.strip().removeprefix("$ ") for block in BLOCK.findall(page.read_text()) for line in block.split("\n")]
    calls = [re.split(r"\s[|#>&;]", line)[0].split() for line in lines if line.startswith(f"{program} ")]
    return [call[1:] for call in calls]


def below(command: Any) -> dict[str, Any]:
    """Commands of a group by name."""
    return getattr(command, "commands", {})


def command_at(words: list[str]) -> Any:
    """The innermost command that ``words`` name."""
    found: Any = COMMANDS
    for word in words:
        if word not in below(found):
            break
        found = below(found)[word]
    return found


def options_of(command: Any) -> set[str]:
    return {"--help", "-h"} | {name for given in command.params for name in (*given.opts, *given.secondary_opts)}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_commands_in_the_documentation_exist(page: Path) -> None:
    for words in commands_of(page, "kai-solver"):
        command = command_at(words)
        assert command is not COMMANDS or words[0].startswith("-"), f"no such command: {' '.join(words)}"
        unknown = {word.split("=")[0] for word in words if word.startswith("-")} - options_of(command)
        assert not unknown, f"{' '.join(words)}: no option {unknown}"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_make_targets_in_the_documentation_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {word for words in commands_of(page, "make") for word in words if "=" not in word}
    assert wanted <= targets


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_to_files(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != ROOT], ids=page_name)
def test_items_of_lists_are_items(page: Path) -> None:
    """An item after an indented paragraph of the item before needs a blank line, else it goes on in that paragraph."""
    extensions = ["admonition", "attr_list", "def_list", "tables", "pymdownx.superfences"]
    html = markdown.markdown(page.read_text(), extensions=extensions)
    text = re.sub(r"<pre.*?</pre>", "", html, flags=re.DOTALL)
    assert re.findall(r"^(?:- |\d+\. ).*", text, flags=re.MULTILINE) == []


def test_the_site_fetches_nothing_and_searches_from_the_file_system() -> None:
    """The plugin takes a script of ours in place of one that it would fetch, by its name."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert site["theme"]["font"] is False
    assert {"search", "offline"} <= set(site["plugins"])
    scripts = site["extra"]["polyfills"]
    assert any("iframe-worker" in script for script in scripts)
    assert [script for script in scripts if not (ROOT / "docs" / script).is_file()] == []


def test_the_readme_begins_with_the_two_commands() -> None:
    first = BLOCK.findall((ROOT / "README.md").read_text())[0]
    assert [line.split()[:2] for line in first.strip().splitlines()] == [["make", "run"], ["make", "test"]]


def test_every_command_and_exit_code_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in below(COMMANDS) if f"## {name}" not in text] == []
    assert [code for code in Exit if f"| {code.value} |" not in text] == []


def test_every_option_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for name, command in below(COMMANDS).items():
        section = text.split(f"## {name}\n")[1].split("\n## ")[0]
        long = {option for option in options_of(command) if option.startswith("--")} - {"--help"}
        assert {option for option in long if option not in section} == set(), name


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("how-a-cycle-decides.md", [f"`{rule}`" for rule in RULES]),
        ("plan.md", [f"`{reason.value}`" for reason in Reason]),
        ("messages.md", [f"`{reason}`" for reason in get_args(EventReason)]),
        ("models.md", [f"| `{model}` |" for model in available_models()]),
        ("formulation.md", [f"### {family}\n" for family in FAMILIES]),
        ("models.md", STAGES),
    ],
)
def test_what_is_published_is_documented(page: str, names: list[str]) -> None:
    text = (ROOT / "docs" / page).read_text()
    assert [name for name in names if name not in text] == []


def test_help_works_and_names_every_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kai_solver", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert [name for name in below(COMMANDS) if name not in done.stdout] == []


def test_make_alone_lists_the_targets() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert {"make run", "make test", "make help"} <= {" ".join(line.split()[:2]) for line in done.stdout.splitlines()}
