"""The program as users run it: real processes, their exit codes, Ctrl-C, and what help costs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kai_solver import __version__
from tests.cluster.plane.plane import free_ports

INSTANCES = Path(__file__).parents[2] / "instances"
SMALL = INSTANCES / "bench" / "c20_consolidate_2_jobs_20_nodes.json.zst"
LONG = INSTANCES / "openb" / "seed42-102.yaml"
"""The solver finds better plans for as long as it may."""
PROGRAM = [sys.executable, "-m", "kai_solver"]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


def test_help_teaches_with_examples_and_exit_codes() -> None:
    done = run("--help")
    assert done.returncode == 0
    for words in (
        "Examples:",
        "kai-solver solve snapshot.zip",
        "Exit codes:",
        "130  interrupted",
        "conformance",
        "bench",
    ):
        assert words in done.stdout, words


HEAVY = ("numpy", "ortools", "networkx", "rich", "yaml", "orjson", "zstandard")
COMMANDS = ("solve", "validate", "explain", "fairshare", "convert", "conformance", "bench", "models")


def loaded_by(*arguments: str, among: tuple[str, ...]) -> str:
    """Those of ``among`` that printing a help loads, as a list's text."""
    code = (
        "import sys\n"
        "from kai_solver.cli.app import app\n"
        f"app({list(arguments)!r}, standalone_mode=False)\n"
        f"print([name for name in {among!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "Usage: " in done.stdout
    return done.stdout.splitlines()[-1]


def test_help_loads_nothing_heavy() -> None:
    assert loaded_by("--help", among=(*HEAVY, "pydantic")) == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_loads_nothing_of_ours_that_is_heavy(command: str) -> None:
    """typer itself loads pydantic to read options."""
    assert loaded_by(command, "--help", among=HEAVY) == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_models(shell: str) -> None:
    def completed(words: str, index: int) -> str:
        said = {"COMP_WORDS": words, "COMP_CWORD": str(index), "_TYPER_COMPLETE_ARGS": words}
        said |= {"_KAI_SOLVER_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        program = [sys.executable, "-c", "from kai_solver.cli import main; main()"]
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, env=os.environ | said, check=False)
        return done.stdout

    assert "explain" in completed("kai-solver ex", 1)
    assert "solve" not in completed("kai-solver ex", 1)
    assert "deterministic" in completed("kai-solver solve --model d", 3)


def test_the_version_is_printed() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "kai-solver")


def test_an_unknown_option_is_exit_code_2_without_a_traceback() -> None:
    done = run("solve", SMALL, "--frobnicate")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_whole_process_solves_writes_and_ends_with_0(tmp_path: Path) -> None:
    done = run("solve", SMALL, "--budget", "60s", "--output", tmp_path / "plan.json")
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert (len(plan["binds"]), len(plan["moves"])) == (2, 14)
    assert run("validate", SMALL, tmp_path / "plan.json").returncode == 0


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = subprocess.Popen([*PROGRAM, "models", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) in (0, 1)
    assert b"Traceback" not in errors


@pytest.mark.slow
def test_ctrl_c_stops_a_solve_and_writes_the_best_plan_so_far(tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    command = [*PROGRAM, "solve", str(LONG), "--budget", "60s", "--output", str(output)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    while "build" not in process.stderr.readline():
        assert process.poll() is None, "ended before it began to decide"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the solver's child gets it too
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert f"interrupted; this is the best plan so far, written to {output}" in errors
    assert "pending" in said
    assert "Traceback" not in errors
    assert run("validate", LONG, output).returncode == 0


UNNEEDED = (
    "kai_solver.explaining",
    "kai_solver.instances_io.bundle",
    "kai_solver.instances_io.case_schema",
    "kai_solver.instances_io.openb",
    "kai_solver.instances_io.planfile",
    "kai_solver.kubeobjects.assemble",
    "kubernetes",
    "networkx",
    "numba",
    "ortools",
)


def test_a_small_solve_loads_nothing_that_it_does_not_need() -> None:
    code = (
        "import sys\n"
        "from kai_solver.cli.app import app\n"
        "app(['solve', 'instances/features/capacity-memory-is-short.yaml', '--quiet'], standalone_mode=False)\n"
        f"print([name for name in {UNNEEDED!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_leaves_early_is_not_an_error() -> None:
    words = ["solve", str(LONG), "--model", "greedy-only", "--quiet", "--json"]
    with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "{\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=120) == 0


@pytest.mark.parametrize("words", [["fairshare"], ["solve", "--quiet"], ["solve", "--quiet", "--json"]])
def test_a_full_disk_is_said_in_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, *words, SMALL], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    assert done.returncode == 2
    assert done.stderr == (
        "kai-solver: standard output or a folder: cannot be written: No space left on device. "
        "Make room, or name another place\n"
    )


def test_closed_streams_are_no_error_and_files_are_written(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    closed = f'"{sys.executable}" -m kai_solver solve "{SMALL}" --output "{plan}" <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", closed], timeout=120, check=False).returncode == 0
    assert json.loads(plan.read_text())["format"] == "kai-plan/v1"


def test_names_that_the_encoding_lacks_are_escaped(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("format: kai-solver/v1\nnodes: [{name: n}]\nqueues: [{name: käse, quota: {gpu: 1}}]\n", "utf-8")
    words, ascii_only = [*PROGRAM, "fairshare", str(file)], os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, capture_output=True, env=ascii_only, timeout=120, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"k\xe4se" in done.stdout


def test_logs_for_people_have_no_colours_in_a_pipe() -> None:
    said = run("controller", "--dry-run", "--log-format", "console", "--kubeconfig", "/nowhere", "--for", "1")
    code = (
        "from kai_solver.controller.logs import configure_logs\n"
        "from kai_solver.controller.settings import ControllerSettings\n"
        "import structlog\n"
        "configure_logs(ControllerSettings(log_format='console'))\n"
        "structlog.get_logger('x').info('it goes on', gang='n/a')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "it goes on" in done.stderr
    assert "\x1b" not in done.stderr + said.stderr


def test_the_controllers_first_line_says_what_starts_and_holds_no_secret(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "do-not-tell"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    quiet = dict.fromkeys(("metrics_bind_address", "health_bind_address", "answers_bind_address"), "")
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    (tmp_path / "settings.yaml").write_text(json.dumps(quiet))
    words = ["--config", tmp_path / "settings.yaml", "--kubeconfig", tmp_path / "kubeconfig", "--for", "1"]
    lines = run("controller", *words).stderr.splitlines()
    first = json.loads(lines[0])
    assert (first["event"], first["version"]) == ("kai-solver starts", __version__)
    assert first["settings"] == {**quiet, "kubeconfig": str(tmp_path / "kubeconfig")}
    assert "do-not-tell" not in "".join(lines)


@pytest.mark.parametrize("time", ["-1s", "0", "0s"])
def test_shadow_looks_on_for_some_time_or_says_so(time: str) -> None:
    said = run("shadow", "--live", f"--for={time}", "--kubeconfig", "/nowhere")
    assert said.returncode == 2
    assert "is not a time to run for" in said.stderr
