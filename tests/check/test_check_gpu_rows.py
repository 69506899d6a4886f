"""GPUs in a row, as the checker sees them: a row is refused where it is unknown which GPUs are free."""

from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Action, Bind, Device, Eviction, Move, Plan, Snapshot
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.units import MILLI


def runs(name: str, gpus: float = 1, node: str = "n0", status: str = "Running", **of_pod: Any) -> dict[str, Any]:
    pod = {"gpus": gpus, "node": node, "status": status} | of_pod
    return {"name": name, "queue": "q", "priority": 40, "lastStart": "1h", "pods": [pod]}


def cluster(*running: dict[str, Any], **of_node: Any) -> Snapshot:
    """Two nodes of eight GPUs; ``row`` wants two in a row, ``one`` wants one, and both come before all others."""
    waiting = [
        {"name": "row", "queue": "q", "priority": 80, "pods": [{"gpus": 2, "gpuRow": "contiguous-required"}]},
        {"name": "one", "queue": "q", "priority": 80, "pods": [{"gpus": 1}]},
    ]
    nodes = [{"name": "n0", "gpus": 8} | of_node, {"name": "n1", "gpus": 8}]
    queues = [{"name": "q", "quota": 16}]
    gangs = [*running, *waiting]
    return snapshot_from_native({"format": "kai-solver/v1", "nodes": nodes, "queues": queues, "gangs": gangs})


def bind(name: str, *devices: int, waits: bool = False) -> Bind:
    seats = tuple(Device(device, MILLI) for device in devices)
    action = Action.PREEMPT if waits else Action.ALLOCATE
    return Bind(f"default/{name}-0", f"default/{name}", "n0", seats, nominated=waits, action=action)


def evicted(*names: str) -> tuple[Eviction, ...]:
    return tuple(Eviction(f"default/{n}-0", f"default/{n}", "n0", "preempt", ("default/row",)) for n in names)


def texts(snapshot: Snapshot, *binds: Bind, evictions: tuple[Eviction, ...] = (), moves: tuple[Move, ...] = ()) -> str:
    """What rule ``devices`` says."""
    actions = dict.fromkeys((b.gang, b.action) for b in binds)
    plan = Plan(binds, moves, evictions, admitted=tuple(actions))
    return "; ".join(violation.text for violation in check_plan(snapshot, plan) if violation.rule == "devices")


def test_a_row_among_known_pods_is_fine() -> None:
    snapshot = cluster(runs("fact", devices=[3]), runs("wish", wishedDevices=[4]), runs("half", 0.5, devices=[5]))
    assert texts(snapshot, bind("row", 6, 7)) == ""
    assert texts(cluster(), bind("row", 0, 1)) == ""


def test_no_row_beside_what_stays_with_unknown_gpus() -> None:
    assert "it is unknown which default/r-0 holds, which stays" in texts(cluster(runs("r")), bind("row", 6, 7))
    assert texts(cluster(runs("r")), bind("one", 7)) == ""
    assert texts(cluster(runs("r", node="n1")), bind("row", 6, 7)) == ""


@pytest.mark.parametrize("held", [{"devices": [3]}, {"wishedDevices": [3]}])
def test_a_wish_for_what_another_has_names_nothing(held: dict[str, Any]) -> None:
    snapshot = cluster(runs("r", **held), runs("s", wishedDevices=[3]))
    assert "it is unknown which default/s-0 holds" in texts(snapshot, bind("row", 6, 7))
    assert texts(snapshot, bind("row", 6, 7, waits=True), evictions=evicted("s")) == ""


def test_no_row_over_what_another_wished_for() -> None:
    assert "may hold some of these" in texts(cluster(runs("r", wishedDevices=[6])), bind("row", 6, 7))


def test_whose_gpus_are_unknown_leaves_and_the_row_waits() -> None:
    snapshot = cluster(runs("r"), runs("s", wishedDevices=[0]))
    assert texts(snapshot, bind("row", 6, 7, waits=True), evictions=evicted("r")) == ""
    assert "starts while default/r-0 still holds" in texts(snapshot, bind("row", 6, 7), evictions=evicted("r"))
    going = cluster(runs("r", status="Releasing"))
    assert texts(going, bind("row", 6, 7, waits=True)) == ""


def test_nothing_starts_among_them_beside_a_row() -> None:
    row, one = bind("row", 6, 7, waits=True), bind("one", 5)
    snapshot = cluster(runs("r"))
    assert "default/one-0 starts while default/r-0 still holds" in texts(snapshot, row, one, evictions=evicted("r"))
    assert texts(snapshot, row, bind("one", 5, waits=True), evictions=evicted("r")) == ""
    known = cluster(runs("r", devices=[0]))
    assert texts(known, row, one, evictions=evicted("r")) == ""


def test_no_row_where_gpus_failed_and_nothing_says_which() -> None:
    snapshot = cluster(allocatableGpus=7)
    assert "cannot be had, and it is unknown which" in texts(snapshot, bind("row", 0, 1))
    assert texts(snapshot, bind("one", 0)) == ""
