"""What a cluster looks like in the next round, and what tasks are called after a plan."""

from dataclasses import replace

import pytest

from kai_solver.domain import (
    Bind,
    Device,
    Eviction,
    Gang,
    GpuRequest,
    Move,
    Node,
    Plan,
    Pod,
    PodStatus,
    Queue,
    Snapshot,
    flat_gang,
)
from kai_solver.lab.conformance.rounds import is_short, settle
from kai_solver.lab.conformance.states import TaskState, seat_devices, states_after
from kai_solver.units import ResourceSchema

ONE = GpuRequest(1)
NODES = tuple(Node(name, (8000, 2**36, 2000, 110), 2) for name in ("a", "b"))


def pod(name: str, status: PodStatus = PodStatus.PENDING, node: str = "", gpu: GpuRequest = ONE) -> Pod:
    return Pod("ns", name, (1000, 2**30, 0, 1), gpu, status, node=node)


def gang(name: str, *pods: Pod, minimum: int | None = None) -> Gang:
    return Gang("ns", name, "q", flat_gang(len(pods) if minimum is None else minimum), pods)


def cluster(*gangs: Gang) -> Snapshot:
    return Snapshot(1000.0, ResourceSchema(), NODES, (Queue("q"),), gangs)


RUNS = gang("r", pod("r-0", PodStatus.RUNNING, "a"))
WAITS = gang("w", pod("w-0"))
BIND = Bind("ns/w-0", "ns/w", "a", (Device(1, 1000),))
MOVE = Move("ns/r-0", "ns/r", "a", "b", (Device(0, 1000),))
EVICT = Eviction("ns/r-0", "ns/r", "a", "reclaim")


def only_pod(snapshot: Snapshot, key: str) -> Pod:
    return next(p for g in snapshot.gangs for p in g.pods if p.key == key)


@pytest.mark.parametrize(
    ("plan", "key", "state"),
    [
        (Plan(binds=(BIND,)), "ns/w-0", TaskState("Binding", "a", frozenset({1}))),
        (Plan(binds=(replace(BIND, nominated=True),)), "ns/w-0", TaskState("Pipelined", "a", frozenset({1}))),
        (Plan(moves=(MOVE,)), "ns/r-0", TaskState("Pipelined", "b", frozenset({0}))),
        (Plan(evictions=(EVICT,)), "ns/r-0", TaskState("Releasing", "a", frozenset({0}))),
        (Plan(), "ns/r-0", TaskState("Running", "a", frozenset({0}))),
    ],
)
def test_tasks_have_the_words_of_kai_after_a_plan(plan: Plan, key: str, state: TaskState) -> None:
    assert states_after(seat_devices(cluster(RUNS, WAITS)), plan)[key] == state


@pytest.mark.parametrize(
    ("plan", "key", "status", "node"),
    [
        (Plan(binds=(BIND,)), "ns/w-0", PodStatus.RUNNING, "a"),
        (Plan(binds=(replace(BIND, nominated=True),)), "ns/w-0", PodStatus.PENDING, ""),
        (Plan(moves=(MOVE,)), "ns/r-0", PodStatus.PENDING, ""),
        (Plan(evictions=(EVICT,)), "ns/r-0", PodStatus.PENDING, ""),
    ],
)
def test_a_plan_has_its_effect_in_the_next_round(plan: Plan, key: str, status: PodStatus, node: str) -> None:
    found = only_pod(settle(cluster(RUNS, WAITS), plan), key)
    assert (found.status, found.node) == (status, node)


def test_evicted_pods_of_lasting_gangs_stay_releasing() -> None:
    found = only_pod(settle(cluster(RUNS), Plan(evictions=(EVICT,)), lasting=frozenset({"r"})), "ns/r-0")
    assert (found.status, found.node) == (PodStatus.RELEASING, "a")


def test_a_gang_that_starts_has_started_a_minute_ago() -> None:
    after = settle(cluster(RUNS, WAITS), Plan(binds=(BIND,)), delay_s=5)
    assert [g.last_start_s for g in after.gangs] == [None, 945.0]
    assert after.now_s == 1005.0


def test_shared_devices_are_kept_by_index() -> None:
    half = GpuRequest(1, 500)
    before = cluster(gang("r", pod("r-0", PodStatus.RUNNING, "a", half)), gang("w", pod("w-0", gpu=half)))
    plan = Plan(binds=(Bind("ns/w-0", "ns/w", "a", (Device(0, 500),)),))
    after = seat_devices(settle(seat_devices(before), plan))
    assert [p.devices for g in after.gangs for p in g.pods] == [(0,), (0,)]


def test_a_gang_below_its_minimum_becomes_stale_once_and_recovers() -> None:
    short = gang("r", pod("r-0", PodStatus.RUNNING, "a"), pod("r-1"))
    once = settle(cluster(short), Plan(), delay_s=10)
    twice = settle(once, Plan(), delay_s=10)
    assert [s.gangs[0].stale_since_s for s in (once, twice)] == [1000.0, 1000.0]
    whole = settle(twice, Plan(binds=(Bind("ns/r-1", "ns/r", "b", (Device(0, 1000),)),)))
    assert whole.gangs[0].stale_since_s is None


def test_a_finished_gang_is_never_short() -> None:
    pods = (pod("r-0", PodStatus.RUNNING, "a"), pod("r-1", PodStatus.SUCCEEDED))
    assert not is_short(gang("r", *pods))
    assert is_short(gang("r", pods[0], pod("r-1", PodStatus.FAILED)))
    assert not is_short(gang("r", pods[0], pod("r-1"), minimum=1))
    assert not is_short(gang("r", pod("r-0"), pod("r-1")))
