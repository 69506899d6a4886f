"""Kernels are compiled beside the loop, once, where a cluster is large and they are missing."""

import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kai_solver import compiled
from kai_solver.controller.compiling import Compiling

LARGE = compiled.LARGE_NODES
SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture(autouse=True)
def is_there(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether compiled kernels can be loaded; tests change it."""
    found = [False]
    monkeypatch.setattr(compiled, "MODULES", ("a.module",))
    monkeypatch.setattr(compiled, "load_kept", lambda: found[0])
    return found


def until_over(compiling: Compiling, reported: list[bool]) -> None:
    end_s = time.monotonic() + 30
    while not reported and time.monotonic() < end_s:
        compiling(LARGE)
        time.sleep(0.02)


def test_a_small_cluster_needs_none() -> None:
    reported: list[bool] = []
    compiling = Compiling(reported.append, command=("no such program",))
    compiling(LARGE - 1)
    assert reported == []
    compiling.close()


def test_those_that_are_there_are_loaded(is_there: list[bool]) -> None:
    is_there[0], reported = True, list[bool]()
    compiling = Compiling(reported.append, command=("no such program",))
    with capture_logs() as logs:
        compiling(LARGE)
        compiling(LARGE)
    assert reported == [True]
    assert [entry["event"] for entry in logs] == ["compiled kernels decide"]
    compiling.close()


def test_it_goes_on_while_they_are_compiled_and_loads_them_then(is_there: list[bool], tmp_path: Path) -> None:
    reported: list[bool] = []
    begun = tmp_path / "begun"
    code = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(60)"
    compiling = Compiling(reported.append, command=(sys.executable, "-c", code))
    with capture_logs() as logs:
        for _ in range(3):
            compiling(LARGE)
        assert reported == []
        is_there[0] = True
        compiling(LARGE)
    assert reported == [True]
    assert [entry["log_level"] for entry in logs] == ["info", "info"], "it is begun once"
    compiling.close()


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ((sys.executable, "-c", "import sys; sys.exit('no room')"), "no room"),
        (("/no/such/program",), "/no/such/program"),
    ],
)
def test_a_compilation_that_fails_is_told_once(command: tuple[str, ...], error: str) -> None:
    reported: list[bool] = []
    compiling = Compiling(reported.append, command=command)
    with capture_logs() as logs:
        until_over(compiling, reported)
        compiling(LARGE)
    assert reported == [False]
    (told,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert error in told["error"]
    compiling.close()


def test_a_compilation_that_ends_while_the_file_is_looked_for_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[bool] = []
    compiling = Compiling(reported.append, command=(sys.executable, "-c", ""))
    compiling(LARGE)
    process = compiling._process
    assert process is not None
    looked: list[int] = []

    def load() -> bool:
        """The first look comes before the file, and the process ends after that."""
        looked.append(process.wait())
        return len(looked) > 1

    monkeypatch.setattr(process, "poll", lambda: process.returncode)
    monkeypatch.setattr(compiled, "load_kept", load)
    compiling(LARGE)
    compiling(LARGE)
    assert reported == [True]
    compiling.close()


def test_a_controller_that_can_write_nowhere_decides_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryFile", nowhere)
    reported: list[bool] = []
    compiling = Compiling(reported.append, command=SLEEP)
    with capture_logs() as logs:
        compiling(LARGE)
    assert reported == [False]
    assert "No usable temporary directory" in logs[0]["error"]
    compiling.close()


def test_it_may_be_forbidden() -> None:
    reported: list[bool] = []
    compiling = Compiling(reported.append, may_compile=False, command=SLEEP)
    with capture_logs() as logs:
        compiling(LARGE)
    assert reported == [False]
    assert "compile_kernels is off" in logs[0]["event"]
    compiling.close()


def test_the_end_of_the_controller_ends_it() -> None:
    compiling = Compiling(list[bool]().append, command=SLEEP)
    compiling(LARGE)
    process = compiling._process
    assert process is not None
    compiling.close()
    assert process.poll() is not None
