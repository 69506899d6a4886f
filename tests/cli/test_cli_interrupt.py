"""A process that is told to stop ends, whatever hangs."""

import subprocess
import sys
import time

HANGS = """
import signal, threading
from kai_solver.cli.interrupt import end_for_sure, stop_when_told
from concurrent.futures import ThreadPoolExecutor
stop = threading.Event()
stop_when_told(stop, None)
end_for_sure(stop, {limit_s})
print("runs", flush=True)
{hang}
"""


def ended(hang: str, limit_s: float) -> tuple[int, str, float]:
    """Exit code, stderr, and seconds from SIGTERM to the end."""
    words = [sys.executable, "-c", HANGS.format(hang=hang, limit_s=limit_s)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "runs\n"
    began_s = time.monotonic()
    process.terminate()
    _, said = process.communicate(timeout=60)
    return process.returncode, said, time.monotonic() - began_s


def test_a_lock_that_nothing_opens_does_not_keep_it() -> None:
    code, said, _ = ended("while True: threading.Lock().acquire(); lock = threading.Event(); lock.wait()", 0.5)
    assert code == 1
    assert "most recent call first" in said, "what hung is told"


def test_a_thread_that_the_interpreter_waits_for_does_not_keep_it() -> None:
    code, said, _ = ended("ThreadPoolExecutor(1).submit(threading.Event().wait); stop.wait()", 0.5)
    assert code == 1
    assert "Event" in said or "wait" in said


def test_what_ends_by_itself_ends_at_once_and_well() -> None:
    code, said, seconds = ended("stop.wait()", 50.0)
    assert (code, said) == (0, "")
    assert seconds < 40
