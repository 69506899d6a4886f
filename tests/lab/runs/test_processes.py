"""Ctrl-C is the parent's alone, and processes that it leaves end at once."""

import os
import signal
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path

from kai_solver.lab.runs.processes import Processes


def _sleep(begun: Path) -> None:
    begun.touch()
    time.sleep(3600)


def _begin(said: Path) -> None:
    said.write_text(str(os.getpid()))


def test_a_process_never_gets_ctrl_c_and_the_parent_does() -> None:
    with Processes(1) as pool:
        blocked = pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result()
    assert signal.SIGINT in blocked, "blocked before it imports anything"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_ctrl_c_ends_what_runs_instead_of_waiting_for_it(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with suppress(KeyboardInterrupt), Processes(1) as pool:
        call = pool.submit(_sleep, begun)
        while not begun.exists():
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert isinstance(call.exception(), BrokenProcessPool)


def test_each_process_begins_with_the_call_that_is_given(tmp_path: Path) -> None:
    said = tmp_path / "pid"
    with Processes(1, _begin, (said,)) as pool:
        assert pool.submit(os.getpid).result() == int(said.read_text())
