"""Programs are built once, whoever asks, and what cannot be built says why."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.gotools import KUBERNETES, KWOK, GoModule, GoTool, ToolMissingError, go_module, go_tool, main

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


@pytest.fixture
def module(tmp_path: Path) -> GoModule:
    folder = tmp_path / "module"
    folder.mkdir()
    for name in ("go.mod", "go.sum", "tools.go"):
        (folder / name).write_text(name)
    programs = {"one": "example.org/a/cmd/one", "two": "example.org/b"}
    return GoModule("pair", "v1.2.3", folder, programs, "-X example.org/version=v1.2.3")


def test_programs_of_a_module_of_ours_are_built_once(tmp_path: Path, log: Path, module: GoModule) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: go_module(module, tmp_path / "cache"), range(4)))
    assert [path.read_text() for path in (found.pop() / "one", tmp_path / "cache/tools/pair/v1.2.3/two")] == [
        "program\n"
    ] * 2
    first, second = log.read_text().splitlines()
    assert "-X example.org/version=v1.2.3" in first
    assert first.endswith(" example.org/a/cmd/one")
    assert second.endswith(" example.org/b")


def test_only_what_is_missing_of_a_module_is_built(tmp_path: Path, log: Path, module: GoModule) -> None:
    folder = tmp_path / "cache" / "tools" / "pair" / "v1.2.3"
    folder.mkdir(parents=True)
    (folder / "one").write_text("kept")
    assert (go_module(module, tmp_path / "cache") / "one").read_text() == "kept"
    assert len(log.read_text().splitlines()) == 1


def test_a_module_without_go_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: GoModule) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match=r"pair v1\.2\.3 .* no Go"):
        go_module(module, tmp_path / "cache")


@pytest.mark.parametrize("pinned", [KUBERNETES, KWOK], ids=lambda found: found.name)
def test_what_is_named_is_what_is_pinned(pinned: GoModule) -> None:
    stated = (pinned.folder / "go.mod").read_text()
    assert any(f"{package.split('/cmd/')[0]} {pinned.version}" in stated for package in pinned.programs.values())


def test_the_command_ends_with_1_where_a_program_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KAI_SOLVER_CACHE", str(tmp_path))
    assert main(["helm"]) == 1
    assert "helm" in capsys.readouterr().err
