"""Rules of the house that no linter knows: exported names, machine paths, locked packages, layers."""

import importlib
import pkgutil
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import kai_solver

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kai_solver"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())

MACHINE_PATH = re.compile(r"(?<![\w./~-])/(?:home|root|Users|work|tmp)/[\w.]+")
PACKED = {".zip", ".gz", ".zst", ".png"}


def tracked_files() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.slow
def test_no_tracked_file_names_a_path_of_a_machine() -> None:
    found = {
        str(path.relative_to(ROOT)): match[0]
        for path in tracked_files()
        if path.suffix not in PACKED and path != Path(__file__)
        for match in [MACHINE_PATH.search(path.read_text(errors="replace"))]
        if match
    }
    assert found == {}


def test_the_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_the_version_is_written_once() -> None:
    assert kai_solver.__version__ == PROJECT["project"]["version"]


def packages() -> list[str]:
    found = pkgutil.walk_packages([str(PACKAGE)], "kai_solver.")
    return ["kai_solver", *(module.name for module in found if module.ispkg)]


def exported(package: str) -> list[str]:
    return list(getattr(importlib.import_module(package), "__all__", ()))


def sort_key(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, as ruff sorts ``__all__``."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


@pytest.mark.parametrize("package", packages())
def test_exported_names_exist_once_and_in_order(package: str) -> None:
    names = exported(package)
    module = importlib.import_module(package)
    assert [name for name in names if not hasattr(module, name)] == []
    assert names == sorted(set(names), key=sort_key)


# -- locked packages ---------------------------------------------------------------------------------------------------


def pins(file: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9][\w.-]*==\S+)", (ROOT / "requirements" / file).read_text(), re.MULTILINE))


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[\s\[<>=~!;]", text)[0].lower().replace("_", "-") for text in requirements}


def test_every_dependency_is_locked_with_hashes() -> None:
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    locked = {pin.split("==")[0].lower() for pin in pins("dev.txt")}
    assert names_of([*project["dependencies"], *groups["dev"], *groups["docs"]]) <= locked
    assert names_of(project["dependencies"]) <= {pin.split("==")[0].lower() for pin in pins("runtime.txt")}
    for file in ("dev.txt", "runtime.txt", "build.txt"):
        text = (ROOT / "requirements" / file).read_text()
        assert all("--hash=sha256:" in block for block in re.split(r"\n(?=\S)", text.strip()))


def test_development_uses_the_same_versions_as_production() -> None:
    assert pins("runtime.txt") | pins("build.txt") <= pins("dev.txt")


@pytest.mark.parametrize("file", ["dev.txt", "runtime.txt", "build.txt"])
def test_locked_packages_name_no_registry(file: str) -> None:
    text = (ROOT / "requirements" / file).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--(extra-)?index-url|--find-links|--trusted-host)\b", text, re.MULTILINE)


# -- layers ------------------------------------------------------------------------------------------------------------

USERS = {
    "ortools": {"bounds", "model", "modelfiles", "prices", "search"},
    "networkx": {"links", "topology"},
    "pydantic": {"cli", "controller", "instances_io", "kubeobjects", "lab", "modelfiles", "shadow"},
    "kubernetes": {"cluster"},
}
"""Rooms that may use a library; all others must be named in its contract."""


def rooms() -> set[str]:
    return {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


@pytest.mark.parametrize("library", sorted(USERS))
def test_the_contract_of_a_library_names_all_other_rooms(library: str) -> None:
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (contract,) = (found for found in contracts if library in found.get("forbidden_modules", ()))
    assert {name.removeprefix("kai_solver.") for name in contract["source_modules"]} == rooms() - USERS[library]


def test_every_room_has_its_tests() -> None:
    without = {room for room in rooms() if not list((ROOT / "tests" / room).rglob("test_*.py"))}
    nouns = {"domain", "errors", "units"}  # seen through all the others
    assert without - nouns == set()
