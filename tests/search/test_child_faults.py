"""Children that hang, crash, lie or never start: the question ends in time, with what was known, and says why."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kai_solver.model.spec import ModelSpec, SpecAnswer
from kai_solver.search import worker
from kai_solver.search.child import WORKER_COMMAND, SolverChild
from kai_solver.search.parameters import SolverParameters

PARAMETERS = SolverParameters()
START_S = 60.0
"""No test fails because the machine is slow to start a child."""

PRELUDE = f"""
import os, sys, time
from array import array
sys.path.insert(0, {str(Path(worker.__file__).parent)!r})
import worker

def send(kind, values=None, **fields):
    blobs = None if values is None else {{"values": array("q", values).tobytes()}}
    os.write(1, worker.encode_frame(kind, {{"id": 1, **fields}}, blobs))

def question():
    decoder = worker.FrameDecoder()
    while True:
        for frame in decoder.feed(os.read(0, 1 << 20)):
            return frame

def answer(status, values=None, bound=0, **fields):
    send("answer", values, status=status, bound=bound, build_s=0.0, deterministic_s=0.0, **fields)
    time.sleep(60)

send("ready", ortools="0")
"""


def fake(body: str) -> list[str]:
    return [sys.executable, "-c", PRELUDE + body]


def spec_of_two() -> ModelSpec:
    """Minimise x + y with x + y >= 2: optimum 2."""
    spec = ModelSpec()
    x, y = spec.int_var(0, 5), spec.int_var(0, 5)
    spec.add_ge([(1, x), (1, y)], 2, family="f")
    spec.minimize([(1, x), (1, y)])
    return spec


def ask(body: str, seconds: float = 10.0, spec: ModelSpec | None = None) -> SpecAnswer:
    with SolverChild(fake(body)) as child:
        assert child.wait(START_S)
        return child.solve(spec or spec_of_two(), PARAMETERS, time.monotonic() + seconds)


def test_a_child_that_hangs_is_killed_and_its_last_solution_is_kept() -> None:
    """Its time is over when it has said all that it has to say."""
    ahead_s, limit_s = 0.0, 600.0

    def found(_values: object, objective: int) -> None:
        nonlocal ahead_s
        ahead_s = limit_s if objective == 3 else 0.0

    body = "question(); send('incumbent', [2, 2]); send('incumbent', [3, 0]); time.sleep(600)"
    with SolverChild(fake(body), clock=lambda: time.monotonic() + ahead_s) as child:
        assert child.wait(START_S)
        answer = child.solve(spec_of_two(), PARAMETERS, time.monotonic() + limit_s, on_incumbent=found)
    assert (answer.status, answer.objective, answer.incumbents) == ("feasible", 3, 2)
    assert "killed" in answer.error


class Steps:
    """A clock that goes on a little whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


def test_a_hanging_child_costs_the_grace_and_no_more() -> None:
    clock = Steps()
    with SolverChild(fake("question(); time.sleep(60)"), grace_s=0.25, clock=clock) as child:
        while not child.wait(1.0):
            pass  # the clock goes faster than a process starts
        begin = clock.now
        answer = child.solve(spec_of_two(), PARAMETERS, begin + 0.5)
    assert "killed" in answer.error
    assert 0.75 <= clock.now - begin < 0.85


def test_a_pause_of_the_whole_machine_is_no_reason_to_kill() -> None:
    """It lasts from before the deadline to long after the grace; the child answers when it is told to stop."""
    clock = Steps()

    def paused(_values: object, _objective: int) -> None:
        clock.now += 1000.0

    body = "question(); send('incumbent', [2, 2]); question(); send('incumbent', [2, 1]); answer('OPTIMAL', [2, 0], 2)"
    with SolverChild(fake(body), clock=clock) as child:
        assert child.wait(START_S)
        answer = child.solve(spec_of_two(), PARAMETERS, clock.now + 500, on_incumbent=paused)
    assert (answer.status, answer.error) == ("optimal", "")


def test_a_child_that_never_reads_cannot_block_the_parent() -> None:
    spec = ModelSpec()
    spec.bool_vars(300_000)
    answer = ask("time.sleep(60)", seconds=0.5, spec=spec)
    assert answer.status == "unknown"
    assert "killed" in answer.error


def test_a_crash_is_reported_with_its_last_words_and_the_solution_is_kept() -> None:
    answer = ask(
        "question(); send('incumbent', [2, 0]); print('Check failed: x', file=sys.stderr, flush=True); os.abort()"
    )
    assert (answer.status, answer.objective) == ("feasible", 2)
    assert "SIGABRT" in answer.error
    assert "Check failed: x" in answer.error


def test_after_a_crash_the_next_question_starts_a_new_child(tmp_path: Path) -> None:
    marker = tmp_path / "crashed"
    program = (
        f"import os, pathlib, runpy\nmarker = pathlib.Path({str(marker)!r})\n"
        f"if not marker.exists():\n    marker.touch()\n    os.abort()\n"
        f"runpy.run_path({worker.__file__!r}, run_name='__main__')"
    )
    with SolverChild([sys.executable, "-c", program]) as child:
        first = child.solve(spec_of_two(), PARAMETERS, time.monotonic() + 20)
        second = child.solve(spec_of_two(), PARAMETERS, time.monotonic() + 20)
    assert "SIGABRT" in first.error
    assert (second.status, second.objective, second.error) == ("optimal", 2, "")


@pytest.mark.slow
def test_a_child_that_died_while_idle_is_replaced_without_an_error() -> None:
    with SolverChild() as child:
        child.solve(spec_of_two(), PARAMETERS, time.monotonic() + 20)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        answer = child.solve(spec_of_two(), PARAMETERS, time.monotonic() + 20)
    assert (answer.status, answer.error) == ("optimal", "")


@pytest.mark.parametrize(
    "body",
    [
        "question(); answer('OPTIMAL', [0, 0])",
        "question(); answer('OPTIMAL', [1])",
        "question(); answer('OPTIMAL', [9, 9])",
        "question(); answer('OPTIMAL')",
        "question(); answer('OPTIMAL', [1, 1], bound=3)",
        "question(); send('bound', bound=4.0); answer('OPTIMAL', [1, 1], bound=2)",
        "question(); send('bound', bound='high')",
        "question(); send('bound', bound=float('nan'))",
        "question(); send('incumbent')",
        "question(); send('answer')",
        "question(); send('gossip')",
        "question(); os.write(1, worker.encode_frame('incumbent', {'id': 1}, {'values': b'abc'}))",
    ],
    ids=[
        "row",
        "shape",
        "domain",
        "no-values",
        "bound",
        "contradiction",
        "text",
        "nan",
        "no-blob",
        "bare",
        "kind",
        "cut",
    ],
)
def test_nonsense_is_not_believed(body: str) -> None:
    answer = ask(body)
    assert "nonsense" in answer.error
    assert answer.status in ("unknown", "feasible")
    assert answer.values is None or answer.values.tolist() == [1, 1]


def test_a_good_solution_survives_later_nonsense() -> None:
    answer = ask("question(); send('incumbent', [1, 2]); answer('OPTIMAL', [0, 0])")
    assert (answer.status, answer.objective) == ("feasible", 3)
    assert "nonsense" in answer.error


def test_infeasible_is_not_believed_where_the_hint_is_a_solution() -> None:
    spec = spec_of_two()
    spec.hint(np.array([1, 1]))
    answer = ask("question(); answer('INFEASIBLE')", spec=spec)
    assert answer.status == "unknown"
    assert "a solution is known" in answer.error


def test_answers_to_earlier_questions_are_ignored() -> None:
    answer = ask("question(); send('incumbent', [0, 0], id=0); answer('OPTIMAL', [1, 1], bound=2)")
    assert (answer.status, answer.error) == ("optimal", "")


@pytest.mark.parametrize("garbage", ["b'hello, world: no frame at all'", "bytes(4000)", "b'KAIf' + bytes([255]) * 60"])
def test_garbage_is_not_believed(garbage: str) -> None:
    answer = ask(f"question(); os.write(1, {garbage}); time.sleep(60)")
    assert answer.status == "unknown"
    assert "invalid data" in answer.error


def test_a_broken_header_is_garbage() -> None:
    """A frame's last bytes are its header's."""
    answer = ask("question(); os.write(1, worker.encode_frame('answer', {'id': 1})[:-1] + b','); time.sleep(60)")
    assert "invalid data" in answer.error


def test_a_command_that_does_not_exist_is_an_answer_with_an_error() -> None:
    with SolverChild(["/nowhere/solver"]) as child:
        child.warm()
        answer = child.solve(spec_of_two(), PARAMETERS, time.monotonic() + 5)
    assert answer.status == "unknown"
    assert "cannot be started" in answer.error


def test_a_child_that_ends_at_once_says_why() -> None:
    with SolverChild([sys.executable, "-c", "import sys; sys.exit('no solver here')"]) as child:
        answer = child.solve(spec_of_two(), PARAMETERS, time.monotonic() + 10)
    assert "ended with code 1" in answer.error
    assert "no solver here" in answer.error


def test_a_slow_start_outlives_the_deadline_and_serves_the_next_question() -> None:
    program = f"import time, runpy; time.sleep(0.6); runpy.run_path({worker.__file__!r}, run_name='__main__')"
    with SolverChild([sys.executable, "-c", program]) as child:
        first = child.solve(spec_of_two(), PARAMETERS, time.monotonic() + 0.2)
        pid = child.pid
        second = child.solve(spec_of_two(), PARAMETERS, time.monotonic() + 20)
        assert child.pid == pid is not None
    assert "not ready" in first.error
    assert second.status == "optimal"


def test_a_child_that_got_ready_unheard_is_not_killed_for_it(tmp_path: Path) -> None:
    ahead_s, marker = 0.0, tmp_path / "ready"
    body = f"open({str(marker)!r}, 'w').close(); question(); answer('OPTIMAL', [1, 1], 2, id=2)"
    with SolverChild(fake(body), clock=lambda: time.monotonic() + ahead_s) as child:
        first = child.solve(spec_of_two(), PARAMETERS, time.monotonic())
        assert "not ready" in first.error
        pid = child.pid
        while not marker.exists():
            time.sleep(0.01)
        ahead_s = 100.0  # the next question comes late, as on a quiet cluster
        second = child.solve(spec_of_two(), PARAMETERS, time.monotonic() + ahead_s + 20)
        assert child.pid == pid is not None
    assert second.status == "optimal"


def test_a_child_that_never_gets_ready_is_killed() -> None:
    with SolverChild([sys.executable, "-c", "import time; time.sleep(60)"], start_s=0.3) as child:
        answer = child.solve(spec_of_two(), PARAMETERS, time.monotonic() + 20)
        assert child.pid is None
    assert "not ready after 0.3 s" in answer.error


def test_a_child_is_waited_for_no_longer_than_asked() -> None:
    with SolverChild([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        assert not child.wait(0.2)
    with SolverChild(["no-such-program"]) as child:
        assert not child.wait(20)


def test_a_child_that_eats_memory_is_killed() -> None:
    with SolverChild(
        fake("question(); eaten = bytearray(b'x') * (200 << 20); time.sleep(60)"), memory_mib=100
    ) as child:
        answer = child.solve(spec_of_two(), PARAMETERS, time.monotonic() + 30)
        assert child.peak_rss_mib > 100
    assert "100 MiB" in answer.error


def test_a_child_deaf_to_stop_is_killed_soon_after() -> None:
    with SolverChild(fake("question(); send('incumbent', [1, 1]); time.sleep(60)")) as child:
        found: list[int] = []
        answer = child.solve(
            spec_of_two(),
            PARAMETERS,
            float("inf"),
            on_incumbent=lambda _, objective: found.append(objective),
            should_stop=lambda: bool(found),
        )
    assert (answer.status, answer.objective) == ("feasible", 2)
    assert "killed" in answer.error


def test_a_stop_that_scip_does_not_hear_is_no_fault() -> None:
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 5

    with SolverChild(fake("question(); time.sleep(60)")) as child:
        start_s = time.monotonic()
        answer = child.solve(spec_of_two(), replace(PARAMETERS, engine="scip"), start_s + 30, should_stop=stop)
        assert time.monotonic() - start_s < 20
    assert (answer.status, answer.error) == ("unknown", "")


def test_a_real_child_killed_in_the_middle_leaves_its_solution() -> None:
    rng = np.random.default_rng(1)
    spec = ModelSpec()
    x = spec.bool_vars(60)
    spec.add_rows([60], x, rng.integers(50, 99, 60), 0, 1400, family="f")
    spec.add_rows([60], x, rng.integers(50, 99, 60), 0, 1400, family="f")
    spec.add_rows([60], x, rng.integers(50, 99, 60), 0, 1400, family="f")
    spec.minimize(list(zip((-rng.integers(50, 99, 60)).tolist(), x.tolist(), strict=True)))
    with SolverChild(WORKER_COMMAND) as child:

        def kill_it(_values: object, objective: int) -> None:
            if objective < 0 and child.pid is not None:
                os.kill(child.pid, signal.SIGKILL)

        answer = child.solve(spec, PARAMETERS, time.monotonic() + 30, on_incumbent=kill_it)
    assert answer.values is not None
    assert spec.check(answer.values) is None
    assert "SIGKILL" in answer.error
