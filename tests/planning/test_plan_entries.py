"""From an outcome to published entries: who binds where, who moves or goes for whom, what the events say."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kai_solver.actions import Actions
from kai_solver.check import check_plan
from kai_solver.domain import (
    ACTIONS,
    Action,
    Blocker,
    Device,
    Gang,
    GpuRequest,
    Node,
    Plan,
    Pod,
    PodSet,
    Proof,
    Queue,
    Reason,
    Snapshot,
    SubGroup,
    flat_gang,
)
from kai_solver.domain.plan import ProofState
from kai_solver.planning import assemble
from kai_solver.planstate.outcome import Refusal
from kai_solver.problem import build_problem
from kai_solver.search.oracle import SolverActions
from kai_solver.units import MILLI, ResourceSchema
from tests.support.builders import GIB, a_cluster, a_gang, a_node, a_queue
from tests.support.oracles import Unasked


def planned(snapshot: Snapshot, actions: Sequence[Action] = ACTIONS) -> Plan:
    problem = build_problem(snapshot)
    plan = assemble(problem, Actions(problem, actions, Unasked()).run())
    assert check_plan(snapshot, plan, actions=actions) == ()
    return plan


# -- entries -------------------------------------------------------------------------------------------------------


def test_a_bind_names_node_devices_and_rung() -> None:
    plan = planned(a_cluster([a_node("n0", 2, gpu_uuids=("GPU-a", "GPU-b"))], [a_gang("w", 2, queue="a")]))
    (bind,) = plan.binds
    assert (bind.pod, bind.gang, bind.node, bind.nominated, bind.action) == (
        "ns/w-0",
        "ns/w",
        "n0",
        False,
        Action.ALLOCATE,
    )
    assert bind.devices == (Device(0, MILLI, "GPU-a"), Device(1, MILLI, "GPU-b"))
    assert plan.admitted == (("ns/w", Action.ALLOCATE),)
    assert plan.pending == ()


def test_uuids_that_are_not_known_are_empty() -> None:
    (bind,) = planned(a_cluster([a_node("n0", 2, gpu_uuids=("GPU-a",))], [a_gang("w", 2, queue="a")])).binds
    assert [device.uuid for device in bind.devices] == ["GPU-a", ""]


def test_a_share_says_how_much_of_the_device_it_takes() -> None:
    gang = a_gang("w", 1, queue="a")
    gang = replace(gang, pods=(replace(gang.pods[0], gpu=GpuRequest(1, 0, 25)),))
    (bind,) = planned(a_cluster([a_node("n0", 1, gpu_memory_mib=100)], [gang])).binds
    assert bind.devices == (Device(0, 250),)


def test_what_waits_for_room_is_nominated_and_the_mover_is_told_for_which_gang() -> None:
    plan = planned(
        a_cluster([a_node("n0", 2), a_node("n1", 1)], [a_gang("r", 1, on="n0", queue="a"), a_gang("w", 2, queue="a")])
    )
    (bind,), (move,) = plan.binds, plan.moves
    assert (bind.node, bind.nominated, bind.action) == ("n0", True, Action.CONSOLIDATION)
    assert (move.pod, move.source, move.target, move.helps) == ("ns/r-0", "n0", "n1", ("ns/w",))
    assert move.action is Action.CONSOLIDATION
    assert plan.evictions == ()


def test_of_a_unit_that_moves_pods_that_can_stay_stay_on_their_own_devices() -> None:
    """One of two pods goes; the other keeps its device, and the newcomer gets the rest."""
    nodes = [a_node("n0", 3), a_node("n1", 4), a_node("n2", 1)]
    running = a_gang("r", 1, 1, on="n1 n1", queue="a")
    seated = tuple(replace(pod, devices=(i,)) for i, pod in enumerate(running.pods))
    plan = planned(a_cluster(nodes, [replace(running, pods=seated), a_gang("w", 3, 3, queue="a")]))
    (move,) = plan.moves
    kept = {0, 1} - {int(move.pod[-1])}
    (on_n1,) = [bind for bind in plan.binds if bind.node == "n1"]
    assert {device.index for device in on_n1.devices} == {0, 1, 2, 3} - kept


def test_a_preempted_pod_is_told_by_which_gang() -> None:
    gangs = [a_gang("low", 1, on="n0", priority=50, queue="a"), a_gang("high", 1, priority=60, queue="a")]
    plan = planned(a_cluster([a_node("n0", 1)], gangs))
    (eviction,) = plan.evictions
    assert (eviction.pod, eviction.node, eviction.reason, eviction.helps) == ("ns/low-0", "n0", "preempt", ("ns/high",))
    assert eviction.message == "Pod ns/low-0 was preempted by higher priority workload ns/high"


def test_a_reclaimed_pod_is_told_what_both_queues_hold() -> None:
    gangs = [a_gang("r0", 1, on="n0", queue="b"), a_gang("r1", 1, on="n0", queue="b"), a_gang("w", 1, queue="a")]
    queues = (a_queue("a", 1, display_name="Ada"), a_queue("b", 1))
    plan = planned(a_cluster([a_node("n0", 2)], gangs, queues))
    (eviction,) = plan.evictions
    assert (eviction.reason, eviction.helps) == ("reclaim", ("ns/w",))
    first, *lines = eviction.message.split("\n")
    assert first == f"Pod {eviction.pod} was preempted by workload ns/w."
    assert [line.split(" uses ")[0] for line in lines] == ["b", "Ada"]
    assert lines[0] == (
        "b uses <GPU: 2, CPU: 0.2 (cores), memory: 2.147 (GB)> with a quota of "
        "<GPU: 1, CPU: Unlimited (cores), memory: Unlimited (GB)>, fair-share of "
        "<GPU: 1, CPU: 0.2 (cores), memory: 2.147 (GB)> and queue priority of <100>."
    )
    assert lines[0].endswith("and queue priority of <100>.")


def test_a_stale_gang_is_told_its_minimum() -> None:
    gang = a_gang("half", 1, on="n0", stale_since_s=0.0, queue="a")
    plan = planned(a_cluster([a_node("n0", 1)], [replace(gang, root=flat_gang(2))]))
    (eviction,) = plan.evictions
    assert (eviction.reason, eviction.helps) == ("stale", ())
    assert eviction.message == (
        "Workload doesn't meet the minimum required number of pods (2), evicting remaining pod: ns/half-0"
    )


def test_a_stale_gang_with_subgroups_names_the_short_one() -> None:
    gang = a_gang("half", 1, on="n0", stale_since_s=0.0, queue="a")
    root = SubGroup(children=(PodSet("master", 1), PodSet("worker", 3)))
    gang = replace(gang, root=root, pods=(replace(gang.pods[0], podset="master"),))
    (eviction,) = planned(a_cluster([a_node("n0", 1)], [gang])).evictions
    assert eviction.message == (
        "Workload doesn't meet the minimum required number of pods (1) in sub-group master, "
        "evicting remaining pod: ns/half-0. Sub-group worker has 0 of 3 pods"
    )


def test_one_victim_may_serve_two_gangs() -> None:
    """Both are admitted by preempt on the room of one; each is told, or at least one pays."""
    gangs = [
        a_gang("low", 2, on="n0", priority=50, queue="a"),
        a_gang("h0", 1, priority=60, queue="a"),
        a_gang("h1", 1, priority=60, queue="a"),
    ]
    plan = planned(a_cluster([a_node("n0", 2)], gangs))
    (eviction,) = plan.evictions
    assert set(eviction.helps) <= {"ns/h0", "ns/h1"}
    assert eviction.helps


# -- what stays pending --------------------------------------------------------------------------------------------


def test_a_gang_that_got_all_is_not_pending_and_one_with_surplus_left_is() -> None:
    plan = planned(a_cluster([a_node("n0", 2)], [a_gang("all", 1, queue="a"), a_gang("some", 1, 1, need=1, queue="a")]))
    assert [pending.gang for pending in plan.pending] == ["ns/some"]


@pytest.mark.parametrize(
    ("queue", "set_aside", "reason"),
    [
        ("nowhere", "", Reason.QUEUE_DOES_NOT_EXIST),
        ("inner", "", Reason.QUEUE_NOT_LEAF),
        ("a", "two sizes in one job", Reason.SET_ASIDE),
    ],
)
def test_gangs_that_take_no_part_are_told_why(queue: str, set_aside: str, reason: Reason) -> None:
    gang = a_gang("w", 1, queue=queue, set_aside=set_aside)
    queues = (a_queue("inner"), a_queue("leaf", parent="inner"), a_queue("a"))
    (pending,) = planned(a_cluster([a_node("n0", 1)], [gang], queues)).pending
    assert (pending.reason, pending.proof.state) == (reason, "proven")
    assert set_aside in pending.message
    assert queue in pending.message or set_aside


def test_a_queue_without_its_parent_is_told_from_one_that_does_not_exist() -> None:
    found = {}
    for queue in ("nowhere", "orphan"):
        queues = (a_queue("orphan", parent="gone"), a_queue("a"))
        (pending,) = planned(a_cluster([a_node("n0", 1)], [a_gang("w", 1, queue=queue)], queues)).pending
        found[queue] = pending.proof.blocking[0].have
    assert found["nowhere"] == "no such queue"
    assert found["orphan"] == 'set aside, as the parent queue "gone" of "orphan" does not exist'


def test_running_pods_of_a_gang_set_aside_are_not_pending() -> None:
    gang = a_gang("r", 1, on="n0", set_aside="two sizes in one job", queue="a")
    assert planned(a_cluster([a_node("n0", 1)], [gang])).pending == ()


def merged(*states: ProofState) -> Plan:
    """A plan in which the actions refused the one gang with these proofs."""
    problem = build_problem(a_cluster([a_node("n0", 1)], [a_gang("w", 2, queue="a")]))
    outcome = Actions(problem, (), Unasked()).run()
    for action, state in zip(ACTIONS, states, strict=False):
        blocker = Blocker("resource", action.value, "1", "0")
        proof = Proof(state, "count", (blocker, Blocker("resource", "gpu", "2", "1")))
        outcome.refuse(0, action, Refusal(Reason.NOT_ENOUGH_RESOURCES, f"said {action.value}", proof))
    return assemble(problem, outcome)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (("proven", "proven"), "proven"),
        (("proven", "unasked"), "unasked"),
        (("unasked", "unknown", "proven"), "unknown"),
    ],
)
def test_a_proof_needs_every_rung(states: tuple[ProofState, ...], expected: ProofState) -> None:
    (pending,) = merged(*states).pending
    assert pending.proof.state == expected


def test_the_first_rung_speaks_and_blockers_are_told_once() -> None:
    (pending,) = merged("proven", "proven").pending
    assert pending.message == "said allocate"
    assert pending.proof.method == "allocate: count; consolidation: count"
    assert [blocker.name for blocker in pending.proof.blocking] == ["allocate", "gpu", "consolidation"]


def test_pending_gangs_come_by_name() -> None:
    gangs = [a_gang("z", 2, queue="a"), a_gang("b", 2, queue="a"), a_gang("m", 2, queue="nowhere")]
    plan = planned(a_cluster([a_node("n0", 1)], gangs))
    assert [pending.gang for pending in plan.pending] == ["ns/b", "ns/m", "ns/z"]


def test_without_time_the_rungs_own_blockers_are_told_and_not_called_smallest() -> None:
    node = Node("n0", (32_000, 64 * GIB, 8 * MILLI, 20), gpus=8, gpu_memory_mib=100)
    pods = tuple(Pod("ns", f"big-{i}", (100, GIB, 0, 1), GpuRequest(8)) for i in range(2))
    gang = Gang("ns", "big", "q", flat_gang(2), pods)
    snapshot = Snapshot(0.0, ResourceSchema(), (node,), (Queue("q", quota=(-1, -1, -1)),), (gang,))
    problem = build_problem(snapshot)
    outcome = Actions(problem, (Action.ALLOCATE,), SolverActions(None)).run()
    (in_time,) = assemble(problem, outcome).pending
    (late,) = assemble(problem, outcome, lambda: True).pending
    assert in_time.proof.state == late.proof.state == "proven"
    assert in_time.proof.minimal
    assert not late.proof.minimal
    assert late.proof.method == f"{in_time.proof.method}; no time was left for the smallest set"
    assert late.proof.blocking
