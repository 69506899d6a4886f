"""Kernels run as Python and compiled with one result; compiled ones are kept, found again, and not used when broken."""

import ast
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kai_solver import compiled
from kai_solver.cli.app import app
from kai_solver.compiled import kept
from kai_solver.errors import InputError, InternalError

USE = Path(__file__).parent / "small" / "use.py"
FOUND = [1, 2, 0, -1]


def started(folder: Path, *words: str) -> "subprocess.Popen[str]":
    env = os.environ | {compiled.FOLDER_VARIABLE: str(folder)}
    return subprocess.Popen(
        [sys.executable, str(USE), *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(said)
    return found


def use(folder: Path, *words: str) -> dict[str, Any]:
    return answer(started(folder, *words))


def the_file(folder: Path) -> Path:
    (found,) = folder.glob("*.kernels")
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tests' kernels, compiled."""
    folder = tmp_path_factory.mktemp("kernels")
    found = use(folder, "compile_all")
    assert found["found"] == FOUND
    assert (found["loaded"], found["cached"], found["compiled"]) == (True, True, 1)
    return folder


def copied(made: Path, folder: Path, data: bytes | None = None) -> Path:
    file = folder / the_file(made).name
    file.write_bytes(the_file(made).read_bytes() if data is None else data)
    return file


def test_without_a_file_the_same_is_found_by_python_and_numba_is_not_imported(tmp_path: Path) -> None:
    found = use(tmp_path / "none", "load_kept")
    assert found == {"found": FOUND, "loaded": False, "cached": False, "numba": False, "compiled": 0, "errors": []}
    assert not (tmp_path / "none").exists()


def test_what_was_compiled_is_read_by_another_cpu_from_a_folder_that_cannot_be_written_to(
    made: Path, tmp_path: Path
) -> None:
    """As an image layer: read-only, another owner, other times of all files."""
    file = copied(made, tmp_path)
    os.utime(file, (0, 0))
    file.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        found = use(tmp_path, "load_kept", "sapphirerapids")
    finally:
        tmp_path.chmod(0o755)
    assert found == {"found": FOUND, "loaded": True, "cached": True, "numba": True, "compiled": 0, "errors": []}


KEPT_TEXT = r"""
import sys
sys.path.insert(0, "use.py")
import use
from kai_solver import compiled
assert use.main("load_kept")["loaded"]
(entry,) = compiled._compiled.values()
print(*(len(list(result.library._shared_module.functions)) for result in entry.overloads.values()))
"""


def test_what_is_kept_has_machine_code_and_of_llvm_only_the_name(made: Path) -> None:
    """numba keeps LLVM's code for functions that are compiled later and call these. There are none."""
    script = KEPT_TEXT.replace('"use.py"', repr(str(USE.parent)))
    env = os.environ | {compiled.FOLDER_VARIABLE: str(made)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


@pytest.mark.parametrize("how", ["cut", "changed", "empty"])
def test_a_file_that_is_not_whole_is_not_used_and_is_made_again(made: Path, tmp_path: Path, how: str) -> None:
    data = the_file(made).read_bytes()
    middle = len(data) // 2
    broken = {"cut": data[:middle], "changed": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]}
    copied(made, tmp_path, broken.get(how, b""))
    found = use(tmp_path, "load_kept")
    assert (found["found"], found["loaded"], found["errors"]) == (FOUND, False, [])
    assert use(tmp_path, "compile_all")["compiled"] == 1
    assert use(tmp_path, "load_kept")["loaded"]


def test_a_whole_file_that_cannot_be_loaded_is_reported_once_and_python_decides(made: Path, tmp_path: Path) -> None:
    kept.write(tmp_path / the_file(made).name, b"no pickle")
    found = use(tmp_path, "load_kept")
    assert (found["found"], found["loaded"]) == (FOUND, False)
    assert len(found["errors"]) == 1
    assert found["errors"][0].startswith("compiled kernels: ")
    assert use(tmp_path, "load")["loaded"], "who asks for it gets them compiled"


def test_two_processes_that_compile_at_once_do_no_harm(tmp_path: Path) -> None:
    for process in [started(tmp_path, "compile_all") for _ in range(2)]:
        assert answer(process)["found"] == FOUND
    assert [path.suffix for path in tmp_path.iterdir()] == [".kernels"]
    assert use(tmp_path, "load_kept")["loaded"]


def test_a_compilation_that_is_killed_leaves_nothing_that_is_taken_for_compiled(tmp_path: Path) -> None:
    process = started(tmp_path, "compile_all")
    time.sleep(0.4)
    process.kill()
    process.communicate()
    assert not use(tmp_path, "load_kept")["cached"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_where_nothing_can_be_written_it_says_so_before_it_compiles(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    found = use(tmp_path, "compile_all")
    tmp_path.chmod(0o755)
    assert not found["numba"]
    assert "cannot be kept: permission denied" in found["errors"][0]


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = use(tmp_path / "file", "compile_all")
    assert not found["numba"]
    assert "KAI_SOLVER_KERNELS" in found["errors"][0]


def test_without_a_home_the_cure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.delenv(compiled.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(InputError, match="Set KAI_SOLVER_KERNELS"):
        compiled.folder()


def test_old_versions_are_removed(tmp_path: Path) -> None:
    for number in range(kept.VERSIONS_KEPT + 3):
        file = tmp_path / f"{number}.kernels"
        kept.write(file, b"data")
        os.utime(file, (number, number))
    kept.write(tmp_path / "new.kernels", b"data")
    left = {path.stem for path in tmp_path.iterdir()}
    assert left == {"new", *map(str, range(4, kept.VERSIONS_KEPT + 3))}


def test_a_module_with_kernels_must_be_named() -> None:
    """Else a change to it would not make what was compiled before invalid."""
    with pytest.raises(InternalError, match=r"not in compiled\.MODULES"):
        compiled.kernel(the_file)


def test_the_name_of_the_file_has_the_text_of_all_kernels() -> None:
    assert compiled.file().name.startswith("py3.")
    assert compiled.file().parent == compiled.folder()


def test_the_name_of_the_file_has_the_text_of_all_that_kernels_have_constants_of() -> None:
    """A constant is compiled into the code: where it changes, older code is for another problem."""
    known = {"kai_solver.compiled", *compiled.MODULES, *compiled.CONSTANTS}
    for name in compiled.MODULES:
        tree = ast.parse(Path(str(importlib.import_module(name).__file__)).read_text())
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {module for module in imported if str(module).startswith("kai_solver.")} <= known


def test_a_small_solve_does_not_import_numba() -> None:
    code = (
        "import sys; from kai_solver.cli.app import app; app(standalone_mode=False); sys.exit('numba' in sys.modules)"
    )
    instance = Path(__file__).parents[2] / "instances" / "ai-lab-100-gpus.yaml"
    words = [sys.executable, "-c", code, "solve", str(instance), "--model", "fast"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout != "") == (0, True), done.stderr


def test_the_command_says_whether_kernels_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.FOLDER_VARIABLE, str(tmp_path))
    done = CliRunner().invoke(app, ["compile", "--check"])
    assert done.exit_code == 1
    assert "not compiled" in done.stdout
    kept.write(compiled.file(), b"as if")
    done = CliRunner().invoke(app, ["compile", "--check"])
    assert (done.exit_code, done.stdout.strip()) == (0, f"compiled before: {compiled.file()}")
    assert CliRunner().invoke(app, ["compile"]).exit_code == 0
