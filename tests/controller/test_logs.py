"""Every line of the log is an event in the same form, whoever wrote it."""

import json
import logging
import threading

import pytest
import structlog

from kai_solver.controller.logs import configure_logs
from kai_solver.controller.settings import ControllerSettings


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
