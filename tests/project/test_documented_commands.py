"""Every command in README and documentation is run, and prints what the page shows; or another test covers it."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from kai_solver.cli.app import app
from kai_solver.cli.exits import Exit

ROOT = Path(__file__).parents[2]
DOCUMENTED = Path(__file__).parent / "documented"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "deploy" / "README.md"])
BLOCK = re.compile(r"^```(sh|console|bash|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WIDTH = "120"
"""Columns of the pages."""

ELSEWHERE = {
    r"make ": "tests/project/test_project_docs.py",
    r"\. \.venv/bin/activate": "tests/project/test_wheel.py",
    r"kubectl .*port-forward|curl ": "tests/controller/serving",
    r"POD=\$\(kubectl .*get lease": "tests/cluster/plane/kai.py",
    r"kubectl get .*\| kai-solver solve -": "tests/cli/test_cli_process.py",
    r"kubectl .*(scale|wait|delete|OPERATOR)|helm upgrade": "tests/cluster/plane/test_hand_over.py",
    r"kubectl annotate node gpu-7 kai-solver/drain-at": "tests/kubeobjects/test_kube_maintenance.py",
    r"kubectl annotate queue": "tests/controller/test_queue_hold.py",
    r"helm (history|rollback)": "tests/cluster/plane/test_upgrade.py",
    r"kubectl (apply|create) (--server-side )?-f deploy/": "tests/cluster/plane/test_quick_start.py",
    r"kubectl .*(get|logs|label|create (namespace|token|clusterrolebinding))": "tests/cluster/plane/test_install.py",
    r"helm (install|uninstall|test)": "tests/cluster/plane/test_install.py",
    r"vcluster |docker |skopeo ": "tests/deploy/test_image.py",
    r"nvidia-smi ": "tests/links/test_links_of_texts.py",
    r"kai-solver controller (--dry-run|--config)": "tests/cluster/plane/test_install.py",
    r"kai-solver explain .*--server": "tests/cli/test_cli_commands.py",
    r"kai-solver shadow": "tests/shadow",
    r"kai-solver (conformance instances/cases|experiment)": "tests/lab",
    r"kai-solver simulate instances/scenarios/training-and-inference.yaml": "tests/lab/simulate",
    r"kai-solver report ": "tests/lab/reports",
    r"kubectl get jobs,podgroups\.scheduling\.run\.ai,pods": "tests/lab/history/test_history_kubernetes.py",
    r"kai-solver bench ": "tests/cli/test_cli_bench_sets.py",
    r"dask |kai-solver compare .*--scheduler": "tests/lab/runs/test_places.py",
    r"kubectl --namespace studies (apply -f deploy/dask|create secret)": "tests/deploy/test_dask.py",
    r"sbatch |scancel ": "tests/deploy/test_slurm.py",
    r"kai-solver tune ": "tests/lab/tune",
    r"(KAI_SOLVER_KERNELS=\S+ )?kai-solver compile": "tests/compiled",
}
"""Commands that need a cluster, a network, other programs or minutes, and the tests that cover what they do."""

FILES = ("mkdir ", "cp ")
"""Commands that a shell runs."""

SLOW = re.compile(r"simulate|controller --embedded|conformance")


@dataclass(frozen=True, slots=True)
class Command:
    """A line of a page, and the output that the page shows below it."""

    page: str
    line: str
    output: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.page}: {self.line}"


def blocks(page: Path) -> Iterator[list[Command]]:
    """Of every shell block: each line, or in a session each line after ``$``."""
    name = str(page.relative_to(ROOT))
    for kind, block in BLOCK.findall(page.read_text()):
        found: list[Command] = []
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if kind != "console" or line.startswith("$ "):
                text = re.split(r"\s+#\s", line.removeprefix("$ "))[0].strip()
                found += [Command(name, text)] if text and not text.startswith("#") else []
            else:
                found[-1].output.append(line)
        yield found


def is_elsewhere(command: Command) -> bool:
    return any(re.match(way, command.line) for way in ELSEWHERE)


BLOCKS = [block for page in PAGES for block in blocks(page)]
COMMANDS = [command for block in BLOCKS for command in block]
RUN = [run for block in BLOCKS if (run := [command for command in block if not is_elsewhere(command)])]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages speak of."""
    folder = tmp_path_factory.mktemp("documented")
    (folder / "instances").symlink_to(ROOT / "instances")
    shutil.copy(DOCUMENTED / "job.yaml", folder)
    shutil.copy(ROOT / "instances" / "topologies" / "dgx1-v100-8.txt", folder / "node.txt")
    shutil.copy(ROOT / "instances" / "scenarios" / "one-move.yaml", folder / "mine.yaml")
    case = next(iter(sorted((ROOT / "instances" / "cases" / "action_reclaim").rglob("*.json"))))
    shutil.copy(case, folder / "case.json")
    (folder / "my-model.toml").write_text('name = "mine"\nextends = "fast"\n')
    (folder / "settings.yaml").write_text("{}\n")
    for words in (
        ["convert", str(DOCUMENTED / "cluster.yaml"), "cluster.yaml", "--to", "kubernetes"],
        ["convert", "cluster.yaml", "snapshot.zip"],
        ["solve", "cluster.yaml", "--model", "deterministic", "--output", "plan.json"],
    ):
        assert invoke(words, folder).exit_code == Exit.FINE
    return folder


def invoke(words: list[str], folder: Path) -> Result:
    before = Path.cwd()
    os.chdir(folder)
    try:
        return CliRunner().invoke(app, words, env={"COLUMNS": WIDTH})
    finally:
        os.chdir(before)


def parameters() -> list[object]:
    found: list[object] = []
    for block in RUN:
        marks = (pytest.mark.slow,) if any(SLOW.search(command.line) for command in block) else ()
        found.append(pytest.param(block, id=str(block[0]), marks=marks))
    return found


@pytest.mark.parametrize("block", parameters())
def test_documented_commands_work_and_print_what_the_page_shows(
    block: list[Command], prepared: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder, symlinks=True)
    for command in block:
        if command.line.startswith(FILES):
            subprocess.run(command.line, shell=True, cwd=folder, check=True)  # noqa: S602 - a line of our own pages
            continue
        done = invoke(words_of(command, folder), folder)
        assert done.exit_code == Exit.FINE, f"{command}: {done.output}"
        assert missing(command.output, done.stdout) == [], f"{command}: {done.stdout}"


def words_of(command: Command, folder: Path) -> list[str]:
    """Arguments, without what follows in the shell; a run of a minute takes three seconds."""
    program, *words = shlex.split(re.split(r"\s(?:\||>|&&)\s", command.line)[0])
    assert program == "kai-solver", f"{command}: no test covers it. Add it to ELSEWHERE"
    if "--plot" in words:
        pytest.importorskip("matplotlib")
    if words[0] == "convert":  # what it writes is not there yet
        (folder / words[2]).unlink(missing_ok=True)
    if "--for" in words:
        words[words.index("--for") + 1] = "3"
    return words


def missing(shown: list[str], printed: str) -> list[str]:
    """Lines of a page that were not printed in this order; ``...`` stands for anything, spaces do not count."""
    at, text = 0, " ".join(printed.split())
    lost = []
    for line in shown:
        words = " ".join(line.split())
        if not words.strip(". "):
            continue
        pattern = ".*?".join(re.escape(part.strip()) for part in words.split("..."))
        found = re.compile(pattern).search(text, at)
        if found is None:
            lost.append(line)
        else:
            at = found.end()
    return lost


@pytest.mark.parametrize("place", sorted(set(ELSEWHERE.values())))
def test_what_covers_other_commands_is_there(place: str) -> None:
    assert (ROOT / place).exists()


@pytest.mark.parametrize("way", ELSEWHERE)
def test_every_exception_is_of_a_documented_command(way: str) -> None:
    assert any(re.match(way, command.line) for command in COMMANDS)


def test_every_option_is_on_the_page_of_the_command_line() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")}
    missing = []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        for each in getattr(command, "commands", {"": command}).values():
            options = [option for param in each.params for option in param.opts if option.startswith("--")]
            missing += [f"{name}: {option}" for option in options if option not in sections[name]]
    assert missing == []


def test_files_named_in_commands_of_other_programs_are_there() -> None:
    named = {word for c in COMMANDS for word in c.line.split() if word.startswith(("deploy/", "instances/"))}
    assert sorted(word for word in named if not (ROOT / word).exists()) == []


def test_what_a_page_shows_and_nothing_prints_is_found() -> None:
    assert missing(["a  b", "...", "c 1...2"], "x a b\ny c 1 and 2") == []
    assert missing(["c", "a"], "a\nc") == ["a"]
    assert missing(["a b c"], "a c") == ["a b c"]
