"""Estimates of steps follow how fast the machine is; deterministic cycles do not look at it."""

from collections import deque
from dataclasses import replace
from typing import Any, cast

import pytest

from kai_solver.engine import cycle_time
from kai_solver.engine.cycle_time import CycleTime
from kai_solver.modelfiles import load_model
from kai_solver.search import machine, solver_client
from kai_solver.search.budget import Budget
from kai_solver.search.solver_client import SolverClient

MODEL = load_model("default")
EXACT = replace(MODEL, search=replace(MODEL.search, deterministic=True))


def a_client(model: Any, seconds: float) -> SolverClient:
    return SolverClient(model, cast("Any", None), Budget(seconds, lambda: 0.0, 0.0, model.search.deterministic))


def test_it_is_the_median_of_what_was_measured_and_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, seconds = 100.0, machine.WORK_S
    monkeypatch.setattr(machine, "_measured", deque(maxlen=3))
    monkeypatch.setattr(machine, "_measured_at_s", float("-inf"))
    monkeypatch.setattr(machine, "_timed", lambda: seconds)
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    assert machine.slowness() == 1.0
    found: list[float] = []
    for seconds in (9.0, 1e-9, 1e-9, 9.0, 9.0):  # noqa: B007 - the loop that is measured takes so long
        assert machine.slowness() == (found[-1] if found else 1.0), "it was measured just now"
        now_s += machine.AGAIN_S
        found.append(machine.slowness())
    assert found == [1.0, 1.0, machine.LEAST, machine.LEAST, machine.MOST]


@pytest.mark.parametrize("slowness", [0.5, 2.0])
def test_a_step_begins_if_it_can_end_on_this_machine(monkeypatch: pytest.MonkeyPatch, slowness: float) -> None:
    monkeypatch.setattr(solver_client, "slowness", lambda: slowness)
    client = a_client(MODEL, 1.0)
    assert client.has_time_for(0.9 / slowness)
    assert not client.has_time_for(1.1 / slowness)


def test_a_deterministic_cycle_counts_the_same_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (solver_client, cycle_time):
        monkeypatch.setattr(module, "slowness", lambda: 2.0)
    assert a_client(EXACT, 1.0).has_time_for(100.0)
    assert CycleTime(EXACT.search, 1.0).here_s(0.3) == 0.3
    assert CycleTime(MODEL.search, 1.0).here_s(0.3) == 0.6
