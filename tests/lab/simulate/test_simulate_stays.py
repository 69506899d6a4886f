"""The table of stays: where each pod was, from when to when, why there, and what it waited for."""

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kai_solver.lab.simulate import Result, Scenario
from kai_solver.lab.simulate.stays import StayRow

Make = Callable[..., Scenario]
Run = Callable[..., Result]
Job = Callable[..., dict[str, Any]]


@pytest.fixture
def contended(make: Make, run: Run, job: Job) -> Result:
    """Queue ``a`` fills both nodes, then ``b`` reclaims its half; a node fails and returns."""
    many = job("many", queue="a", count=4, gpus=4, preemptible=True, runtime={"distribution": "fixed", "typical": 400})
    other = job("other", at=50, queue="b", gpus=8)
    failures = {"outages": [{"node": "n-0", "at": 300, "lasts": 30}]}
    return run(make(many, other, failures=failures))


def test_stays_account_for_all_gpu_seconds(contended: Result) -> None:
    held = sum(
        row.gpus * ((contended.end_s if row.end_s is None else row.end_s) - row.start_s) for row in contended.stays
    )
    assert held == pytest.approx(contended.held_gpu_s)
    assert held > 0


def test_no_gpu_has_two_pods_at_a_time(contended: Result) -> None:
    by_gpu: dict[tuple[str, str], list[StayRow]] = defaultdict(list)
    for row in contended.stays:
        for device in row.devices.split():
            by_gpu[row.node, device].append(row)
    assert len(by_gpu) == 16
    for rows in by_gpu.values():
        for before, after in pairwise(rows):
            assert before.end_s is not None
            assert before.end_s <= after.start_s


def test_a_stay_says_why_it_ended_and_the_next_what_the_pod_waited_for(contended: Result) -> None:
    reclaimed = [row for row in contended.stays if row.ended == "reclaim for sim/other-00000"]
    assert len(reclaimed) == 2
    assert {row.end_s for row in reclaimed} == {55.0}, "5 s of grace after the cycle of second 50"
    [winner] = [row for row in contended.stays if row.job == "other-00000"][:1]
    assert winner.why.startswith("room was made for its gang: 2 pods evicted")
    assert winner.waited_s == 5.0
    again = [row for row in contended.stays if row.pod == reclaimed[0].pod][1]
    assert again.waited_s == again.start_s - 55.0
    assert again.waited_for, "the plans said why it stayed pending"
    assert {row.ended for row in contended.stays} >= {"done", "node failed"}


def test_a_moved_pod_says_where_from_and_for_which_gang(make: Make, run: Run, job: Job) -> None:
    # Each node is left with 4 free GPUs; one of the small pods moves, and the large one has a node.
    long = {"distribution": "fixed", "typical": 500}
    first = job("first", gpus=4, runtime=long)
    short = job("short", gpus=4, runtime={"distribution": "fixed", "typical": 10})
    second = job("second", gpus=4, at=1, runtime=long)
    result = run(make(first, short, second, job("large", gpus=8, at=20, queue="b")))
    moved = [row for row in result.stays if row.ended.startswith("moved to")]
    for row in moved:
        target = row.ended.split()[2]
        [after] = [other for other in result.stays if other.pod == row.pod and other.start_s >= (row.end_s or 0)][:1]
        assert after.node == target
        assert after.why.startswith(f"moved here from {row.node} for sim/large-00000")
    assert moved, "the scenario needs a move"


def test_what_waits_after_the_plan_holds_until_the_next_row(make: Make, run: Run, job: Job) -> None:
    result = run(make(job("w", count=3), job("late", at=500)))
    waiting = [(row.time_s, row.pending, row.waiting) for row in result.records.cycles]
    assert waiting[0] == (0.0, 3, 1), "two nodes, three jobs"
    assert waiting[-1][2] == 0
