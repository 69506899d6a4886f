"""A snapshot that is moved to another moment."""

from dataclasses import replace

from kai_solver.check import check_plan
from kai_solver.domain import Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io import snapshot_from_native
from kai_solver.instances_io.moments import moved_to
from kai_solver.modelfiles import load_model

DOCUMENT = {
    "format": "kai-solver/v1",
    "nodes": [{"name": "n", "gpus": 2, "cpu": 8, "memory": "8Gi", "drainAt": "2h"}],
    "queues": [{"name": "q", "preemptMinRuntime": "10m"}],
    "gangs": [
        {
            "name": "low",
            "queue": "q",
            "priority": 50,
            "created": "1h",
            "lastStart": "20m",
            "pods": [{"gpus": 2, "status": "Running", "node": "n"}],
        },
        {
            "name": "high",
            "queue": "q",
            "priority": 75,
            "created": "5m",
            "lastEviction": "4m",
            "preemptionDelay": "3m",
            "pods": [{"gpus": 2, "runTime": "1h"}],
        },
    ],
}


def ages(snapshot: Snapshot) -> list[float | None]:
    """How long ago everything was; of the drain, how soon it is."""
    times = [
        *(node.drain_at_s for node in snapshot.nodes),
        *(queue.created_s for queue in snapshot.queues),
        *(
            time
            for gang in snapshot.gangs
            for time in (gang.created_s, gang.last_start_s, gang.last_eviction_s, gang.stale_since_s)
        ),
        *(pod.constraints.closed_until_s for gang in snapshot.gangs for pod in gang.pods),
        *(pod.started_s for gang in snapshot.gangs for pod in gang.pods),
    ]
    return [None if time is None else snapshot.now_s - time for time in times]


def test_everything_is_as_old_as_before() -> None:
    snapshot = snapshot_from_native(DOCUMENT)
    later = moved_to(snapshot, snapshot.now_s + 1e6)
    assert later.now_s == snapshot.now_s + 1e6
    assert ages(later) == ages(snapshot)
    assert sum(age is not None for age in ages(later)) >= 6
    assert moved_to(later, snapshot.now_s) == snapshot


def test_the_same_is_decided_at_another_moment() -> None:
    snapshot = snapshot_from_native(DOCUMENT)
    later = moved_to(snapshot, snapshot.now_s + 86400)
    model = load_model("greedy-only")
    now, then = cycle(snapshot, model, budget_s=5.0), cycle(later, model, budget_s=5.0)
    assert (now.binds, now.evictions) == (then.binds, then.evictions)
    assert [eviction.gang for eviction in now.evictions] == ["default/low"]
    assert check_plan(later, then) == ()


def test_what_is_not_moved_is_decided_otherwise() -> None:
    """The clock alone goes on here: the drain is over, and the node takes nothing."""
    snapshot = snapshot_from_native(DOCUMENT)
    assert cycle(replace(snapshot, now_s=snapshot.now_s + 86400), load_model("greedy-only"), budget_s=5.0).binds == ()
