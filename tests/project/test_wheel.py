"""The wheel alone is enough: models and schemas are in it, and it solves from any directory."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from kai_solver.instances_io.schemas import published_schemas
from kai_solver.links import products
from kai_solver.modelfiles import available_models

ROOT = Path(__file__).parents[2]

SMALL = {
    "format": "kai-solver/v1",
    "nodes": [{"name": "node-{i}", "count": 2, "gpus": 8}],
    "queues": [{"name": "research", "quota": 16}],
    "gangs": [
        {"name": "fits", "queue": "research", "pods": [{"replicas": 2, "gpus": 6}]},
        {"name": "too-large", "queue": "research", "pods": [{"gpus": 9}]},
    ],
}

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> str:
    """Standard output of a command that knows nothing of this checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | {"COLUMNS": "1000"}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("kai_solver-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scripts of an environment with the wheel; what it depends on is read from this one, so nothing is downloaded."""
    home = tmp_path_factory.mktemp("home") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=home.parent)
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(ours)) + "\n")
    return home / "bin"


def test_it_carries_the_package_its_types_the_models_and_the_schemas(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "kai_solver/py.typed" in names
    assert {f"kai_solver/_data/models/{model}.toml" for model in available_models()} <= names
    assert {f"kai_solver/_data/schema/{schema}" for schema in published_schemas()} <= names


def test_it_carries_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kai_solver"}


def test_the_installed_code_is_that_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "python", "-c", "import kai_solver; print(kai_solver.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(installed.parent)


def test_it_finds_its_models_from_another_directory(installed: Path, tmp_path: Path) -> None:
    listed = run(installed / "kai-solver", "models", "list", cwd=tmp_path)
    assert [line.split()[0] for line in listed.splitlines()] == list(available_models())


def test_it_finds_its_topologies_from_another_directory(installed: Path, tmp_path: Path) -> None:
    listed = run(installed / "kai-solver", "devices", "--list", cwd=tmp_path)
    assert [line.split()[0] for line in listed.splitlines()[1:]] == list(products())


def test_it_solves_from_another_directory(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text(json.dumps(SMALL))
    run(installed / "kai-solver", "solve", "small.json", "--output", "plan.json", cwd=tmp_path)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert {bind["gang"] for bind in plan["binds"]} == {"default/fits"}
    assert [(entry["gang"], entry["proof"]["state"]) for entry in plan["pending"]] == [("default/too-large", "proven")]
    run(installed / "kai-solver", "validate", "small.json", "plan.json", cwd=tmp_path)
