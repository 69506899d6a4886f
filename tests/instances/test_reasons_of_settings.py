"""What plans of the feature instances say, where it is not only about who is placed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kai_solver.domain import Plan

MODELS = pytest.mark.parametrize("model", ["deterministic", "greedy-only"])


@pytest.fixture
def plan(instances: Path, plan_of: Callable[..., Plan], model: str) -> Callable[[str], Plan]:
    return lambda name: plan_of(instances / "features" / f"{name}.yaml", model)


def said(plan: Plan) -> dict[str, tuple[str, str]]:
    return {p.gang.removeprefix("default/"): (p.reason.value, p.message) for p in plan.pending}


@MODELS
def test_only_the_gang_beyond_its_own_grace_is_evicted_as_stale(plan: Callable[[str], Plan]) -> None:
    found = plan("stale-beyond-its-grace")
    assert [(e.gang, e.reason) for e in found.evictions] == [("default/stale", "stale")]


@MODELS
def test_work_of_queues_that_hold_none_is_told_why(plan: Callable[[str], Plan]) -> None:
    found = said(plan("queues-orphans-and-parents-hold-no-work"))
    assert found["in-an-orphan"] == (
        "QueueDoesNotExist",
        'Queue "orphan" takes no part: the parent queue "gone" of "orphan" does not exist',
    )
    assert found["in-a-parent"][0] == "QueueNotLeaf"
    assert found["nowhere"] == ("QueueDoesNotExist", "Queue 'typo' does not exist")
    flat = said(plan("queues-flat-without-their-departments"))
    assert "without full hierarchy fairness root queues are left out" in flat["in-the-department"][1]


@MODELS
def test_a_gang_that_waits_for_its_delay_is_told_so(plan: Callable[[str], Plan]) -> None:
    reason, message = said(plan("delay-holds-the-hand-that-takes"))["too-early"]
    assert reason == "PreemptionDelayNotElapsed"
    assert "2 node(s) didn't have enough resources: GPUs" in message
    assert "Workload is within its preemption delay window (" in message
    assert message.endswith(" and may not trigger evictions before 2023-11-14T22:17:20Z")
    assert said(plan("delay-is-over"))["evicted"][0] == "PreemptionDelayNotElapsed"


@MODELS
def test_gated_and_failed_pods_are_not_ready(plan: Callable[[str], Plan]) -> None:
    found = said(plan("pods-gated-bound-failed-and-best-effort"))
    gated = "Job is not ready for scheduling. Waiting for 2 pods, currently 2 exist, 1 are gated"
    assert found["gated"][0] == "NotReady"
    assert gated in found["gated"][1]
    assert "Waiting for 2 pods, currently 1 exist, 0 are gated" in found["failed"][1]


@MODELS
def test_what_waits_for_a_leaving_pod_is_nominated(plan: Callable[[str], Plan]) -> None:
    (bind,) = plan("pods-stuck-in-releasing-are-not-waited-for").binds
    assert (bind.node, bind.nominated) == ("node-0", True)


@MODELS
def test_protected_victims_lose_surplus_only(plan: Callable[[str], Plan]) -> None:
    found = plan("runtime-protects-the-core-and-not-the-surplus")
    assert len(found.evictions) == 2
    assert {(e.gang, e.reason) for e in found.evictions} == {("default/holder", "preempt")}


@MODELS
def test_the_gpu_of_another_vendor_is_named(plan: Callable[[str], Plan]) -> None:
    ((reason, message),) = said(plan("gpus-of-another-vendor-do-not-fit")).values()
    assert reason == "NotEnoughResources"
    assert "amd.com/gpu" in message
