"""Programs are built once, whoever asks, and what cannot be built says why."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.gotools import GoTool, ToolMissingError, go_tool, main

TOOL = GoTool("hello", "example.org/hello", "v1.2.3", "example.org/hello/cmd/hello", (("example.org/a", "v0.1.0"),))

GO = """#!/bin/sh
echo "$*" >> "{log}"
if [ "$1" = get ]; then cp go.mod "{log}.mod"; {get}; fi
while [ $# -gt 0 ]; do [ "$1" = -o ] && out="$2"; shift; done
[ -z "$out" ] || {{ sleep 0.2; echo program > "$out"; }}
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return fake_go(tmp_path, monkeypatch, "true")


def fake_go(folder: Path, monkeypatch: pytest.MonkeyPatch, get: str) -> Path:
    log = folder / "log"
    go = folder / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO.format(log=log, get=get))
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    return log


def test_a_program_is_built_once(tmp_path: Path, log: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: go_tool(TOOL, tmp_path / "cache"), range(4)))
    assert found == {tmp_path / "cache" / "tools" / "hello" / "v1.2.3" / "hello"}
    get, build = log.read_text().splitlines()
    assert get == "get example.org/hello/cmd/hello@v1.2.3"
    assert build.startswith("build ")
    assert build.endswith(" example.org/hello/cmd/hello")
    assert found.pop().read_text() == "program\n"


def test_replacements_are_stated_anew(tmp_path: Path, log: Path) -> None:
    go_tool(TOOL, tmp_path / "cache")
    assert "replace example.org/a => example.org/a v0.1.0" in log.with_name("log.mod").read_text()


def test_a_build_that_fails_leaves_nothing_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(tmp_path, monkeypatch, "echo no such version >&2; exit 1")
    with pytest.raises(ToolMissingError, match="no such version"):
        go_tool(TOOL, tmp_path / "cache")
    assert not (tmp_path / "cache" / "tools" / "hello" / "v1.2.3" / "hello").exists()


def test_without_go_what_is_there_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="no Go"):
        go_tool(TOOL, tmp_path / "cache")
    program = tmp_path / "cache" / "tools" / "hello" / "v1.2.3" / "hello"
    program.parent.mkdir(parents=True)
    program.write_text("")
    assert go_tool(TOOL, tmp_path / "cache") == program


def test_the_command_ends_with_1_where_a_program_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KAI_SOLVER_CACHE", str(tmp_path))
    assert main(["helm"]) == 1
    assert "helm" in capsys.readouterr().err
