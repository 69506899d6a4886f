"""Events and conditions of a plan, as whoever writes them to the cluster will send them.

Source: docs/kai-behaviour.md#events, #conditions.
"""

from dataclasses import replace

import pytest

from kai_solver.domain import (
    Action,
    Bind,
    Eviction,
    FitError,
    Gang,
    GpuRequest,
    Move,
    Node,
    Pending,
    Plan,
    Pod,
    PodSet,
    PodStatus,
    Proof,
    Queue,
    QueueDetails,
    Reason,
    Snapshot,
    SubGroup,
    flat_gang,
)
from kai_solver.reasons.events import Event, plan_events
from kai_solver.reasons.pending import scheduling_condition
from kai_solver.units import ResourceSchema, go_duration, go_float, humanized, rfc3339

P, R = PodStatus.PENDING, PodStatus.RUNNING


def a_pod(name: str, status: PodStatus = P, podset: str = "default") -> Pod:
    node = "n" if status.holds_resources else ""
    return Pod("ns", name, (1000, 10**9, 0, 1), GpuRequest(1), status, podset, node)


def a_gang(name: str, *pods: Pod, root: SubGroup | None = None) -> Gang:
    return Gang("ns", name, "q", root or flat_gang(len(pods)), pods)


def a_snapshot(*gangs: Gang) -> Snapshot:
    return Snapshot(0.0, ResourceSchema(), (Node("n", (8000, 10**10, 8000, 10), 8, 100),), (Queue("q"),), gangs)


def events(plan: Plan, *gangs: Gang) -> list[Event]:
    return list(plan_events(a_snapshot(*gangs), plan))


def a_wait(
    reason: Reason = Reason.NOT_ENOUGH_RESOURCES, message: str = "", *errors: FitError, proof: str = ""
) -> Pending:
    return Pending("ns/j", reason, message, Proof("proven" if proof else "unknown", proof), errors)


WAITING = a_gang("j", a_pod("j-0"), a_pod("j-1"))


def test_a_bind_says_node_and_pool() -> None:
    plan = Plan(binds=(Bind("ns/j-0", "ns/j", "n"),))
    (event,) = plan_events(a_snapshot(WAITING), plan, "gpus")
    assert event == Event(
        "Pod", "ns/j-0", "Normal", "Scheduled", "Successfully assigned pod ns/j-0 to node n at node-pool gpus"
    )


def test_a_nominated_pod_is_pipelined() -> None:
    (event,) = events(Plan(binds=(Bind("ns/j-0", "ns/j", "n", nominated=True),)), WAITING)
    assert event == Event("Pod", "ns/j-0", "Normal", "Pipelined", "Pod ns/j-0 was pipelined to node n")


def test_an_eviction_is_told_to_the_pod_group_with_what_did_it() -> None:
    lost = [Eviction(f"ns/v-{i}", "ns/v", "n", "preempt", ("other/j", "ns/k"), "text of KAI") for i in range(2)]
    first, second = events(Plan(evictions=tuple(lost)), a_gang("v", a_pod("v-0", R), a_pod("v-1", R)))
    assert first == Event(
        "PodGroup",
        "ns/v",
        "Normal",
        "Evict",
        "text of KAI",
        {
            "num-evicted-pods": "2",
            "evictor-action-type": "preempt",
            "evictor-pod-group-name": "j",
            "evictor-pod-group-namespace": "other",
        },
    )
    assert second.annotations == first.annotations


def test_a_stale_eviction_has_no_evictor() -> None:
    (event,) = events(
        Plan(evictions=(Eviction("ns/v-0", "ns/v", "n", "stale", (), "text"),)), a_gang("v", a_pod("v-0"))
    )
    assert event.annotations == {"num-evicted-pods": "1", "evictor-action-type": "stalegangeviction"}


def test_a_move_is_an_eviction_and_a_pipelined_pod() -> None:
    move = Move("ns/v-0", "ns/v", "n", "m", (), ("ns/j",), Action.CONSOLIDATION, message="text of KAI")
    evict, pipelined = events(Plan(moves=(move,)), a_gang("v", a_pod("v-0", R)))
    assert (evict.reason, evict.message) == ("Evict", "text of KAI; it goes from n to m for ns/j")
    assert evict.annotations["evictor-action-type"] == "consolidation"
    assert (pipelined.object, pipelined.reason) == ("ns/v-0", "Pipelined")


def test_a_gang_that_is_not_ready_says_so_once() -> None:
    (event,) = events(Plan(pending=(a_wait(Reason.NOT_READY, "Job is not ready for scheduling. ..."),)), WAITING)
    assert (event.kind, event.object, event.type, event.reason) == ("PodGroup", "ns/j", "Normal", "NotReady")


def test_pods_that_wait_are_warned_with_kais_text_first_and_ours_after() -> None:
    text = "Resources were not found for pod ns/j-1 due to: no nodes with enough resources were found: 1 node(s) ..."
    error = FitError("PodSchedulingErrors", (text,))
    entry = a_wait(
        Reason.NOT_ENOUGH_RESOURCES, f"{text}\n0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", error
    )
    plan = Plan(binds=(Bind("ns/j-0", "ns/j", "n"),), pending=(replace(entry, proof=Proof("proven", "count")),))
    _, pod, group = events(plan, WAITING)
    assert (pod.kind, pod.object, pod.type, pod.reason) == ("Pod", "ns/j-1", "Warning", "Unschedulable")
    assert (group.kind, group.type, group.reason) == ("PodGroup", "Normal", "Unschedulable")
    assert pod.message == group.message
    assert pod.message == (
        f"PodSchedulingErrors: {text}.\n"
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.\n"
        "Proven: no allowed plan runs it beside what was admitted before it."
    )


@pytest.mark.parametrize(
    ("root", "pods", "text"),
    [
        (flat_gang(3), [a_pod("v-0", R)], "Job is stale. 1 pods are active, minMember is 3"),
        (
            SubGroup(children=(PodSet("a", 1), PodSet("b", 2))),
            [a_pod("v-0", R, "a"), a_pod("v-1", R, "b")],
            "Job is stale. 2 pods are active, minMember is 3, subGroup b minMember is 2 and 1 pods are active",
        ),
        (
            SubGroup(children=(PodSet("a", 1), PodSet("b", 2), PodSet("c", 2)), min_subgroups=2),
            [a_pod("v-0", R, "a"), a_pod("v-1", R, "b")],
            (
                "Job is stale. 2 pods are active, 1 of 2 required subGroups are satisfied, "
                "subGroup b minMember is 2 and 1 pods are active, subGroup c minMember is 2 and 0 pods are active"
            ),
        ),
    ],
)
def test_a_stale_gang_says_what_it_lacks(root: SubGroup, pods: list[Pod], text: str) -> None:
    (event,) = events(Plan(), a_gang("v", *pods, root=root))
    assert event == Event("PodGroup", "ns/v", "Normal", "StaleJob", text)


def test_a_gang_that_runs_enough_of_its_subgroups_is_not_stale() -> None:
    root = SubGroup(children=(PodSet("a", 1), PodSet("b", 2)), min_subgroups=1)
    assert events(Plan(), a_gang("v", a_pod("v-0", R, "a"), root=root)) == []


def test_the_condition_explains_every_error_with_the_queues_numbers() -> None:
    details = QueueDetails(
        "q", (3000, 2, 1500), (-1, -1, 1000), (0, 0, 0), (0, 0, 0), (-1, -1, 2000), (3000, 2, 1500), (0, 0, 0)
    )
    entry = a_wait(Reason.OVER_LIMIT, "too much", FitError("OverLimit", ("too much",), queue=details))
    assert scheduling_condition(WAITING, entry, "amd.com/gpu", "gpus") == {
        "type": "UnschedulableOnNodePool",
        "nodePool": "gpus",
        "reason": "Unschedulable",
        "message": "OverLimit: too much.",
        "status": "True",
        "reasons": [
            {
                "reason": "OverLimit",
                "message": "too much",
                "details": {
                    "queueDetails": {
                        "name": "q",
                        "queueRequestedResources": {"cpu": "3", "memory": "2", "amd.com/gpu": "1500m"},
                        "queueDeservedResources": {"cpu": "-1", "memory": "-1", "amd.com/gpu": "1"},
                        "queueAllocatedNonPreemptibleResources": {"cpu": "0", "memory": "0", "amd.com/gpu": "0"},
                        "podGroupRequestedResources": {"cpu": "3", "memory": "2", "amd.com/gpu": "1500m"},
                        "podGroupRequestedNonPreemptibleResources": {"cpu": "0", "memory": "0", "amd.com/gpu": "0"},
                        "queueAllocatedResources": {"cpu": "0", "memory": "0", "amd.com/gpu": "0"},
                        "queueResourceLimits": {"cpu": "-1", "memory": "-1", "amd.com/gpu": "2"},
                    }
                },
            }
        ],
    }


def test_no_condition_while_pods_run_or_the_gang_is_not_ready() -> None:
    running = a_gang("j", a_pod("j-0", R), a_pod("j-1"))
    assert scheduling_condition(running, a_wait(), "nvidia.com/gpu") is None
    assert scheduling_condition(WAITING, a_wait(Reason.NOT_READY), "nvidia.com/gpu") is None


# -- numbers as Go writes them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "scale", "text"),
    [(-1, 1000, "Unlimited"), (1500, 1000, "1.5"), (1999, 10_000, "0.199"), (0, 1000, "0"), (10_000, 1000, "10")],
)
def test_amounts_are_cut_to_three_decimals(amount: int, scale: int, text: str) -> None:
    assert humanized(amount, scale) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(4.0, "4"), (0.4 + 0.4 + 0.4, "1.2000000000000002"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (0.0, "0")],
)
def test_floats_are_the_shortest_that_read_back(value: float, text: str) -> None:
    assert go_float(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(600, "10m0s"), (90, "1m30s"), (3600, "1h0m0s"), (0, "0s"), (1.5, "1.5s"), (0.25, "250ms"), (-60, "-1m0s")],
)
def test_durations_are_as_go_prints_them(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


def test_moments_are_in_utc_to_the_second() -> None:
    assert rfc3339(1.9) == "1970-01-01T00:00:01Z"
