"""Every line of the log is an event in the same form, whoever wrote it."""

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import structlog

from kai_solver import __version__
from kai_solver.controller.logs import configure_logs, log_start
from kai_solver.controller.settings import ControllerSettings, load_settings


def fail() -> None:
    raise ZeroDivisionError("for a test")


def test_our_lines_those_of_libraries_and_faults_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(ControllerSettings())
    structlog.get_logger("ours").info("cycle", binds=2)
    structlog.get_logger("ours").debug("not told")
    logging.getLogger("urllib3").warning("pool of %s is full", "host")
    logging.getLogger("urllib3").info("not told")
    thread = threading.Thread(target=fail, name="one")
    thread.start()
    thread.join()
    cycle, library, fault = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (cycle["event"], cycle["level"], cycle["binds"]) == ("cycle", "info", 2)
    assert (library["event"], library["level"]) == ("pool of host is full", "warning")
    assert (fault["event"], fault["thread"]) == ("a thread failed", "one")
    assert "ZeroDivisionError: for a test" in fault["exception"]
    assert {"timestamp"} <= cycle.keys() & library.keys() & fault.keys()


def test_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(ControllerSettings(log_format="console", log_level="debug"))
    structlog.get_logger("ours").debug("seen", pods=3)
    logging.getLogger("urllib3").warning("full")
    first, second = capsys.readouterr().err.splitlines()
    assert "seen" in first
    assert "full" in second
    assert not first.startswith("{")


def test_the_first_line_has_the_version_and_what_is_set_and_nothing_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("node_pool: a100\nevictions: {per_cycle: 20, per_queue: 0}\nworkers: {writes: 16}\n")
    settings = load_settings(file, scheduler_name="kai-scheduler")
    configure_logs(settings)
    log_start(settings)
    first = json.loads(capsys.readouterr().err)
    assert (first["event"], first["version"]) == ("kai-solver starts", __version__)
    assert first["settings"] == {"node_pool": "a100", "evictions": {"per_cycle": 20}}
    assert first["leadership"] == "by the Lease kai-solver/kai-solver-kai-scheduler-a100"


@pytest.mark.parametrize(
    ("changed", "leadership"),
    [
        ({"dry_run": True}, "none: a dry run changes nothing"),
        ({"leadership": {"enabled": False}}, "this replica leads: no election"),
    ],
)
def test_the_first_line_without_an_election(
    changed: dict[str, Any], leadership: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ControllerSettings(**changed)
    configure_logs(settings)
    log_start(settings)
    first = json.loads(capsys.readouterr().err)
    assert (first["settings"], first["leadership"]) == (changed, leadership)
