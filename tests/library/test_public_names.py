"""What is public is pinned: whoever changes it reads the promise in docs/python.md first."""

import dataclasses
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import kai_solver
from kai_solver import library

ROOT = Path(__file__).parents[2]
PUBLIC: list[str] = vars(kai_solver)["__all__"]

INSTANCE = "Instance | str | os.PathLike[str] | collections.abc.Mapping[str, typing.Any]"
FILE = "str | os.PathLike[str]"
SIGNATURES = {
    "load": f"(source: {FILE} | collections.abc.Mapping[str, typing.Any], *, now_s: float | None = None, "
    f"history: {FILE} | None = None, mapping: {FILE} | collections.abc.Mapping[str, typing.Any] | None = None, "
    "limits: collections.abc.Mapping[str, int] | None = None) -> Instance",
    "solve": f"(instance: {INSTANCE}, model: {FILE} | None = None, *, budget_s: float | None = None, seed: int = 0, "
    "actions: collections.abc.Sequence[str] | None = None) -> Solution",
    "explain": "(solution: Solution, gang: str | None = None, *, try_out: bool = False) -> Explanations",
    "validate": f"(instance: {INSTANCE}, plan: Solution | Plan | {FILE} | None = None, *, "
    "actions: collections.abc.Sequence[str] | None = None) -> Findings",
    "simulate": f"(scenario: {FILE} | collections.abc.Mapping[str, typing.Any], "
    "policies: collections.abc.Sequence[str] = ('greedy-only', 'kube-default'), *, budget_s: float | None = None, "
    "seed: int | None = None) -> Simulation",
    "compare": f"(sources: {FILE} | collections.abc.Sequence[{FILE}], "
    f"models: collections.abc.Sequence[{FILE}] = ('greedy-only', 'default'), *, "
    "seeds: collections.abc.Sequence[int] = (1,), budget_s: float | None = None, "
    "clock: Literal['wall', 'cpu'] = 'wall', memory_mib: float = 8192.0, wall_s: float = 3600.0, at_once: int = 1, "
    f"folder: {FILE} | None = None) -> Comparison",
}
MEMBERS = {
    "Comparison": {"frame", "runs"},
    "Explanations": {"count", "document", "frame", "index"},
    "Finding": {"cure", "level", "object", "rule", "text"},
    "Findings": {"count", "document", "frame", "index", "is_fine"},
    "Instance": {"document", "frame", "name", "notices", "snapshot", "source"},
    "Simulation": {"document", "frame", "name", "notices", "save", "summaries"},
    "Solution": {"differences", "document", "figures", "frame", "instance", "model", "plan", "save"},
}
ERRORS = {"InputError", "KaiSolverError", "LimitExceededError", "ModelFileError"}


def plain(signature: str) -> str:
    """Types by their own names, where they are of this project or of ``typing``."""
    return re.sub(r"\b(?:kai_solver(?:\.\w+)*|pathlib|typing(?=\.Literal))\.", "", signature)


def test_public_names() -> None:
    assert set(PUBLIC) == set(SIGNATURES) | set(MEMBERS) | ERRORS | {"__version__"}
    assert set(library.__all__) == set(SIGNATURES) | set(MEMBERS)
    assert set(dir(kai_solver)) >= set(PUBLIC)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    function = getattr(kai_solver, name)
    assert plain(str(inspect.signature(function))) == SIGNATURES[name]
    assert "Raises\n" in function.__doc__


@pytest.mark.parametrize("name", MEMBERS)
def test_members_of_results(name: str) -> None:
    kind = getattr(kai_solver, name)
    fields = {one.name for one in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    assert {member for member in {*dir(kind), *fields} if not member.startswith("_")} == MEMBERS[name]


def test_the_stub_names_what_is_exported() -> None:
    stub = (ROOT / "kai_solver" / "__init__.pyi").read_text()
    named = re.findall(r"^from kai_solver\.(\w+) import (\w+) as \2$", stub, re.MULTILINE)
    assert {name: getattr(import_module(f"kai_solver.{package}"), name) for package, name in named} == {
        name: getattr(kai_solver, name) for name in PUBLIC if name != "__version__"
    }


def test_the_page_names_what_is_public() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    table = page[page.index("## What is public") : page.index("A test pins")]
    assert {name for name in PUBLIC if f"`{name}`" in table} == set(PUBLIC) - {"__version__"}


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import sys, kai_solver; print(sorted(name for name in sys.modules if name.startswith('kai_solver')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "['kai_solver']"


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"kai_solver.*has no attribute 'sovle'"):
        getattr(kai_solver, "sovle")  # noqa: B009
