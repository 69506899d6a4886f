"""Cycles whose solver dies, hangs or talks nonsense: a checked plan, no worse than greedy's, and a note."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Plan, Queue, Snapshot, SolverModel
from kai_solver.engine import Engine, cycle
from kai_solver.engine.progress import Fault
from kai_solver.modelfiles import load_model
from kai_solver.search import worker
from kai_solver.search.child import SolverChild
from kai_solver.units import ResourceSchema
from tests.engine.conftest import START_S
from tests.support.builders import a_gang, a_node

DEFAULT = load_model("default")
PATIENT = replace(DEFAULT, budget_s=120.0, search=replace(DEFAULT.search, question_s=60.0))
"""Waits for the solver's start, however long a busy machine takes for it."""

PRELUDE = f"""
import os, sys, time
from array import array
sys.path.insert(0, {str(Path(worker.__file__).parent)!r})
import worker

def send(kind, values=None, **fields):
    blobs = None if values is None else {{"values": array("q", values).tobytes()}}
    os.write(1, worker.encode_frame(kind, fields, blobs))

def questions():
    decoder = worker.FrameDecoder()
    while True:
        yield from decoder.feed(os.read(0, 1 << 20))

send("ready", ortools="0")
"""

MISBEHAVIOUR = {
    "killed": "import signal\nfor q in questions(): os.kill(os.getpid(), signal.SIGKILL)",
    "hung": "for q in questions(): time.sleep(600)",
    "crashed": "for q in questions(): print('Check failed: x', file=sys.stderr, flush=True); os.abort()",
    "exits": "for q in questions(): sys.exit(3)",
    "garbage": "os.write(1, b'not a frame at all' * 100); time.sleep(600)",
    "silent": "time.sleep(600)",
    "lies about values": (
        "number = 0\n"
        "for q in questions():\n"
        "    number += 1\n"
        "    send('answer', [7] * 5, id=number, status='optimal', bound=0, build_s=0.0, deterministic_s=0.0)"
    ),
}


@pytest.fixture(scope="module")
def puzzle() -> Snapshot:
    """First fit fails on the heterogeneous gang, so the solver is asked; a preemptor makes the stages run."""
    nodes = tuple(a_node(f"n{i}") for i in range(3))
    gangs = (
        a_gang("low", 2, 2, 2, on=["n0", "n1", "n2"], priority=40),
        a_gang("mixed", 1, 1, 1, 3, priority=50),
        a_gang("high", 4, priority=60),
    )
    queue = Queue("q", quota=(-1, -1, -1))
    return Snapshot(1000.0, ResourceSchema(), nodes, (queue,), gangs)


def is_no_worse(plan: Plan, greedy: Plan) -> bool:
    evicted, other = len(plan.evictions), len(greedy.evictions)
    more = len(plan.admitted) > len(greedy.admitted)
    return more or (set(plan.admitted) == set(greedy.admitted) and evicted <= other)


@contextmanager
def misbehaving(fault: str, clock: Callable[[], float] = time.monotonic) -> Iterator[SolverChild]:
    """A child that is ready, so that it is a question that meets the fault; garbage may come first."""
    with SolverChild([sys.executable, "-c", PRELUDE + MISBEHAVIOUR[fault]], clock=clock) as child:
        assert fault == "garbage" or child.wait(START_S)
        yield child


class Ticking:
    """A clock of which every look takes 50 ms: how busy the machine is makes no difference."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.05
        return self.now_s


@pytest.mark.parametrize("fault", MISBEHAVIOUR)
def test_a_broken_solver_costs_no_more_than_the_budget_and_nothing_else(puzzle: Snapshot, fault: str) -> None:
    greedy = cycle(puzzle, load_model("greedy-only"))
    budget_s, clock = 5.0, Ticking()
    faults: list[Fault] = []
    with misbehaving(fault, clock) as child:
        plan = cycle(puzzle, DEFAULT, budget_s=budget_s, clock=clock, child=child, on_fault=faults.append)
    assert check_plan(puzzle, plan) == ()
    assert is_no_worse(plan, greedy)
    assert plan.notes
    assert plan.source != "cp-sat"
    assert faults
    assert {fault.error for fault in faults} <= set(plan.notes)
    assert fault != "hung" or any("killed" in note for note in plan.notes)
    assert plan.timing_s["decide"] <= 1.2 * budget_s + 0.2


@pytest.fixture(scope="module")
def impossible() -> Snapshot:
    """3 + 3 + 2 GPUs on two nodes of 4: enough of each, so that only the solver can say no."""
    queue = Queue("q", quota=(-1, -1, -1))
    return Snapshot(1000.0, ResourceSchema(), (a_node("n0"), a_node("n1")), (queue,), (a_gang("odd", 3, 3, 2),))


def test_a_sound_solver_proves_that_the_odd_gang_must_wait(impossible: Snapshot) -> None:
    """Else the next test would test nothing."""
    (waiting,) = cycle(impossible, load_model("deterministic")).pending
    assert waiting.proof.state == "proven"
    assert "cp-sat" in waiting.proof.method


@pytest.mark.parametrize("fault", MISBEHAVIOUR)
def test_a_broken_solver_proves_nothing(impossible: Snapshot, fault: str) -> None:
    with misbehaving(fault) as child, Engine(DEFAULT, child=child) as engine:
        plan = engine.cycle(impossible, budget_s=0.8)
    (waiting,) = plan.pending
    assert waiting.proof.state == "unknown"
    assert "cp-sat" not in waiting.proof.method


@pytest.mark.slow
def test_a_child_killed_between_cycles_is_replaced_without_a_word(puzzle: Snapshot) -> None:
    with Engine(PATIENT) as engine:
        first = engine.cycle(puzzle)
        assert engine.child._channel is not None
        engine.child._channel.kill()
        while not engine.child._channel.has_ended:
            time.sleep(0.01)
        second = engine.cycle(puzzle)
    assert first.admitted == second.admitted
    assert not any("killed" in note or "SIGKILL" in note for note in second.notes)


def test_a_solver_that_cannot_start_leaves_greedys_plan(puzzle: Snapshot) -> None:
    with SolverChild(["/nonexistent/solver"]) as child, Engine(DEFAULT, child=child) as engine:
        plan = engine.cycle(puzzle)
    assert check_plan(puzzle, plan) == ()
    assert plan.notes
    assert plan.admitted == cycle(puzzle, load_model("greedy-only")).admitted


def test_stopping_at_once_still_gives_a_checked_plan(puzzle: Snapshot) -> None:
    plan = cycle(puzzle, DEFAULT, should_stop=lambda: True)
    assert check_plan(puzzle, plan) == ()


def test_no_time_at_all_still_gives_a_checked_plan(puzzle: Snapshot) -> None:
    plan = cycle(puzzle, DEFAULT, budget_s=1e-6)
    assert check_plan(puzzle, plan) == ()
    assert all(p.proof.state != "proven" or "cp-sat" not in p.proof.method for p in plan.pending)


def test_the_puzzle_needs_the_solver(puzzle: Snapshot) -> None:
    """Else the tests above would test nothing."""
    asked: list[int] = []

    class Counting(SolverChild):
        def solve(self, *args: object, **more: object) -> object:  # type: ignore[override]
            asked.append(1)
            return super().solve(*args, **more)  # type: ignore[arg-type]

    model: SolverModel = DEFAULT
    with Counting() as child, Engine(model, child=child) as engine:
        engine.cycle(puzzle)
    assert asked
