"""Nodes that are to be drained soon: what runs there moves in time, and what stays is told why."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Action, Device, Move, Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from tests.rules.draining import HOUR_S, LEAD_S, MODELS, a_cluster, a_gang, plan_of
from tests.support.clusters import some

SOON_S = 300.0
SOON = (SOON_S, None)
NOT_PREEMPTIBLE = "its workload is not preemptible"
NO_ROOM = "no other node has room for it"


def moved(plan: Plan) -> list[tuple[str, str, str]]:
    return sorted((move.pod.removeprefix("default/"), move.source, move.target) for move in plan.moves)


def stay(plan: Plan) -> dict[str, str]:
    """Why pods stay, after the ``but``."""
    return {entry.pod.removeprefix("default/"): entry.message.partition(", but ")[2] for entry in plan.unmoved}


@pytest.mark.parametrize("model", MODELS)
def test_what_would_still_run_moves_for_no_gang(model: str) -> None:
    plan = plan_of(a_cluster(a_gang("g", at="n0", pods=2), drains=SOON), model)
    assert moved(plan) == [("g-0", "n0", "n1"), ("g-1", "n0", "n1")]
    for move in plan.moves:
        assert (move.cause, move.by, move.action, move.helps) == ("drain", "drain", Action.CONSOLIDATION, ())
        assert "node n0 is to be drained at 2023-11-" in move.message
    assert (plan.binds, plan.evictions, plan.admitted, plan.unmoved) == ((), (), (), ())


@pytest.mark.parametrize(("drain_s", "moves"), [(LEAD_S, 0), (LEAD_S - 1.0, 1), (1.0, 1), (0.0, 1), (-HOUR_S, 1)])
def test_they_move_ten_minutes_and_their_grace_before(drain_s: float, moves: int) -> None:
    plan = plan_of(a_cluster(a_gang("g", at="n0"), drains=(drain_s, None)))
    assert (len(plan.moves), plan.unmoved) == (moves, ())


@pytest.mark.parametrize(
    ("lead", "grace", "moves"), [("0s", "0s", 0), ("0s", "6m", 1), ("6m", "0s", 1), ("2m", "2m", 0)]
)
def test_the_policy_and_the_pod_say_how_long_before(lead: str, grace: str, moves: int) -> None:
    gang = {"name": "g", "queue": "q", "pods": [{"gpus": 1, "grace": grace, "running": {"n0": 1}}]}
    assert len(plan_of(a_cluster(gang, drains=SOON, policy={"drainLead": lead})).moves) == moves


@pytest.mark.parametrize(
    ("run_time", "started", "moves"),
    [("1h", "58m", 0), ("1h", "50m", 1), ("1h", "2h", 1), ("4m", "", 0), ("6m", "", 1)],
)
def test_what_ends_in_time_stays(run_time: str, started: str, moves: int) -> None:
    """A pod that runs longer than it said may run for any time; without its start it has begun now."""
    pod = {"gpus": 1, "runTime": run_time, "running": {"n0": 1}} | ({"started": started} if started else {})
    plan = plan_of(a_cluster({"name": "g", "queue": "q", "pods": [pod]}, drains=SOON))
    assert (len(plan.moves), plan.unmoved) == (moves, ())


@pytest.mark.parametrize(("run_time", "target"), [("30m", "n1"), ("2h", "n2"), ("", "n2")])
def test_they_go_where_they_end_in_time(run_time: str, target: str) -> None:
    """To a node that is drained in an hour go those that end before; one of unknown run time would have to go again."""
    fuller = a_gang("fuller", at="n1", preemptible=False)
    plan = plan_of(a_cluster(fuller, a_gang("g", run_time, at="n0"), drains=(SOON_S, HOUR_S, None)))
    assert moved(plan) == [("g-0", "n0", target)]


BARE = {"pods": [{"gpus": 1, "replaced": False, "running": {"n0": 1}}]}
BUDGET = [{"name": "b", "allowed": 0}]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("gang", "more", "why"),
    [
        ({"preemptible": False}, {}, NOT_PREEMPTIBLE),
        (BARE, {}, "no controller would make it again"),
        ({}, {"policy": {"maxConsolidationGangs": 0}}, "moves are switched off"),
        ({}, {"disruptionBudgets": BUDGET}, "a disruption budget keeps it, or its eviction was refused lately"),
        ({"pods": [{"gpus": 1, "nodeSelector": {"rack": "r0"}, "running": {"n0": 1}}]}, {}, "no other node has room"),
    ],
)
def test_what_stays_is_told_why(model: str, gang: dict[str, Any], more: dict[str, Any], why: str) -> None:
    plan = plan_of(a_cluster(a_gang("g", at="n0") | gang, drains=SOON, rack=1, **more), model)
    assert (plan.moves, plan.evictions) == ((), ())
    (entry,) = plan.unmoved
    assert (entry.pod, entry.gang, entry.node) == ("default/g-0", "default/g", "n0")
    assert entry.message.startswith("node n0 is to be drained at 2023-11-")
    assert f", but {why}" in entry.message


def test_a_model_without_consolidation_moves_nothing() -> None:
    model = load_model("greedy-only")
    model = replace(model, actions=tuple(action for action in model.actions if action is not Action.CONSOLIDATION))
    plan = cycle(a_cluster(a_gang("g", at="n0"), drains=SOON), model)
    assert (plan.moves, stay(plan)) == ((), {"g-0": "moves are switched off"})


@pytest.mark.parametrize(("room", "moves"), [(1, []), (2, [("g-0", "n0", "n1"), ("g-1", "n0", "n1")])])
def test_the_pods_that_a_gang_needs_move_together_or_stay(room: int, moves: list[tuple[str, str, str]]) -> None:
    other = a_gang("other", at="n1", pods=4 - room, preemptible=False)
    plan = plan_of(a_cluster(other, a_gang("g", at="n0", pods=2), drains=SOON, gpus=4))
    assert moved(plan) == moves
    assert sorted(stay(plan)) == ([] if moves else ["g-0", "g-1"])


@pytest.mark.parametrize(("room", "moves"), [(1, 1), (2, 2), (3, 3)])
def test_surplus_moves_pod_by_pod_after_its_core(room: int, moves: int) -> None:
    other = a_gang("other", at="n1", pods=4 - room, preemptible=False)
    plan = plan_of(a_cluster(other, a_gang("g", at="n0", pods=3, minMember=1), drains=SOON, gpus=4))
    assert [pod for pod, _, _ in moved(plan)] == [f"g-{index}" for index in range(moves)]
    assert set(stay(plan).values()) == ({NO_ROOM} if moves < 3 else set())
    assert len(plan.unmoved) == 3 - moves


@pytest.mark.parametrize("model", MODELS)
def test_a_gang_of_one_rack_goes_to_another_rack_as_a_whole(model: str) -> None:
    """n0 and n1 are one rack; n1 is full, and is not drained."""
    pods = [{"gpus": 2, "replicas": 2, "running": {"n0": 1, "n1": 1}}]
    gang = {"name": "g", "queue": "q", "pods": pods, "topology": {"topology": "t", "required": "rack"}}
    plan = plan_of(a_cluster(gang, drains=(SOON_S, None, None, None), rack=2), model)
    assert sorted(source for _, source, _ in moved(plan)) == ["n0", "n1"]
    assert sorted(target for _, _, target in moved(plan)) == ["n2", "n3"]
    roomy = plan_of(a_cluster(gang, drains=(SOON_S, None, None, None), rack=4), model)
    assert [source for _, source, _ in moved(roomy)] == ["n0"], "its own rack has room: the other pod stays"


@pytest.mark.parametrize("model", MODELS)
def test_what_waits_has_the_room_first(model: str) -> None:
    waits = a_gang("waits", gpus=2, priority=10)
    plan = plan_of(a_cluster(waits, a_gang("g", at="n0", gpus=2, priority=40), drains=SOON), model)
    assert ([entry.node for entry in plan.binds], plan.moves) == (["n1"], ())
    assert stay(plan) == {"g-0": NO_ROOM}


def test_nothing_else_leaves_for_them() -> None:
    low = a_gang("low", at="n1", gpus=2, priority=10)
    plan = plan_of(a_cluster(low, a_gang("g", at="n0", gpus=2, priority=90), drains=SOON))
    assert (plan.moves, plan.evictions, sorted(stay(plan))) == ((), (), ["g-0"])


def test_the_limit_of_moves_holds_and_the_more_urgent_go_first() -> None:
    model = load_model("greedy-only")
    model = replace(model, moves=replace(model.moves, per_cycle=1))
    gangs = a_gang("later", at="n1"), a_gang("sooner", at="n0")
    snapshot = a_cluster(*gangs, drains=(SOON_S, SOON_S + 100, None))
    plan = cycle(snapshot, model)
    assert moved(plan) == [("sooner-0", "n0", "n2")]
    assert plan.unmoved == (), "the next cycle moves it"
    assert check_plan(snapshot, plan) == ()


def test_a_gang_that_gets_pods_moves_in_a_later_cycle() -> None:
    pods = [{"gpus": 1, "replicas": 2, "running": {"n0": 1}}]
    plan = plan_of(a_cluster({"name": "g", "queue": "q", "minMember": 1, "pods": pods}, drains=SOON))
    assert ([entry.pod for entry in plan.binds], plan.moves, plan.unmoved) == (["default/g-1"], (), ())


def test_no_stage_counts_them() -> None:
    gang = a_gang("g", at="n0")
    drained, quiet = (plan_of(a_cluster(gang, drains=(s, None)), "deterministic") for s in (SOON_S, HOUR_S))
    assert (len(drained.moves), len(quiet.moves)) == (1, 0)
    assert [(stage.name, stage.value) for stage in drained.stages] == [(s.name, s.value) for s in quiet.stages]


# -- the checker ----------------------------------------------------------------------------------------------------


def a_move(**fields: Any) -> Plan:
    move = Move("default/g-0", "default/g", "n0", "n1", (Device(0, 1000),), (), Action.CONSOLIDATION, cause="drain")
    return Plan(moves=(replace(move, **fields),))


@pytest.mark.parametrize(
    ("gang", "drains", "fields", "text"),
    [
        ({}, SOON, {}, ""),
        ({}, SOON, {"helps": ("default/h",)}, "as if it helped a gang"),
        ({}, SOON, {"action": Action.RECLAIM}, "as if it helped a gang"),
        ({"preemptible": False}, SOON, {}, "its gang default/g is not preemptible"),
        ({}, (HOUR_S, None), {}, "node n0 is not to be drained soon"),
        ({}, (None, None), {}, "node n0 is not to be drained soon"),
        ({}, (SOON_S, HOUR_S), {}, "node n1 is to be drained, too"),
        (
            BARE,
            SOON,
            {},
            "no controller would make it again",
        ),
        ({"pods": [{"gpus": 1, "runTime": "4m", "running": {"n0": 1}}]}, SOON, {}, "or it ends before"),
    ],
)
def test_the_checker_judges_moves_for_drains(
    gang: dict[str, Any], drains: tuple[Any, ...], fields: dict[str, Any], text: str
) -> None:
    found = check_plan(a_cluster(a_gang("g", at="n0") | gang, drains=drains), a_move(**fields))
    said = [entry.text for entry in found if entry.rule == "moves"]
    assert len(said) == bool(text)
    assert all(one.startswith("pod default/g-0: moved for a drain, but ") and text in one for one in said)
    assert bool(found) == bool(text)


def test_the_checker_knows_where_moves_are_switched_off() -> None:
    snapshot = a_cluster(a_gang("g", at="n0"), drains=SOON, policy={"maxConsolidationGangs": 0})
    (found,) = check_plan(snapshot, a_move())
    assert (found.rule, "moves are switched off" in found.text) == ("moves", True)


def test_the_checker_asks_that_gangs_which_move_get_nothing() -> None:
    pods = [{"gpus": 1, "replicas": 2, "running": {"n0": 1}}]
    snapshot = a_cluster({"name": "g", "queue": "q", "minMember": 1, "pods": pods}, drains=SOON)
    bound = plan_of(snapshot)
    plan = replace(bound, moves=a_move(devices=(Device(1, 1000),)).moves)
    assert any("gets or loses pods in the same plan" in entry.text for entry in check_plan(snapshot, plan))


# -- random clusters ------------------------------------------------------------------------------------------------


def is_due(snapshot: Snapshot, index: int, node: int) -> bool:
    """The rule, as the documentation says it, for pods that started now."""
    at_s, pod = snapshot.nodes[node].drain_at_s, snapshot.gangs[index].pods[0]
    if at_s is None or at_s - snapshot.now_s >= LEAD_S:
        return False
    return pod.run_time_s is None or snapshot.now_s + pod.run_time_s > at_s


@pytest.mark.parametrize("model", MODELS)
@given(data=st.data())
@some(25, campaign=400)
def test_on_random_clusters_each_pod_that_is_due_moves_or_says_why(model: str, data: st.DataObject) -> None:
    drains = tuple(data.draw(st.lists(st.sampled_from([None, None, -10.0, 300.0, HOUR_S]), min_size=2, max_size=5)))
    gangs: list[dict[str, Any]] = []
    for index in range(data.draw(st.integers(1, 7))):
        at = data.draw(st.sampled_from(["", *(f"n{i}" for i in range(len(drains)))]))
        if sum(entry["pods"][0].get("running") == {at: 1} for entry in gangs) == 2:
            at = ""
        run_time = data.draw(st.sampled_from(["", "200s", "5h"]))
        priority, preemptible = data.draw(st.sampled_from([40, 50, 90])), data.draw(st.booleans())
        gangs.append(a_gang(f"g{index}", run_time, at=at, priority=priority, preemptible=preemptible))
    snapshot = a_cluster(*gangs, drains=drains)
    plan = plan_of(snapshot, model)
    why, used = stay(plan), dict.fromkeys((node.name for node in snapshot.nodes), 0)
    here = {pod.key: pod.node for gang in snapshot.gangs for pod in gang.pods if pod.node}
    here |= {move.pod: move.target for move in plan.moves} | {entry.pod: entry.node for entry in plan.binds}
    gone = {entry.pod for entry in plan.evictions}
    for key, node in here.items():
        used[node] += key not in gone
    for index, gang in enumerate(snapshot.gangs):
        (pod,) = gang.pods
        if not pod.node:
            continue
        leaves = is_due(snapshot, index, int(pod.node.removeprefix("n")))
        moves = [move for move in plan.moves if move.pod == pod.key]
        assert all(move.cause == "room" for move in moves) or leaves
        said = why.get(pod.name)
        assert said is None or leaves
        if leaves and not moves and pod.key not in gone:
            assert said == (NO_ROOM if gang.preemptible else NOT_PREEMPTIBLE)
        if said == NO_ROOM and pod.run_time_s is None:
            assert all(used[n.name] == 2 for n in snapshot.nodes if n.drain_at_s is None and n.name != pod.node)
