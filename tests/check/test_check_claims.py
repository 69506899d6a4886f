"""Rule ``claims``: every way in which named devices can be wrong."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Allotted, ClaimGrant, Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model

DRIVER = "gpu.example.com"


def a_cluster(*gangs: dict[str, Any], claims: tuple[dict[str, Any], ...] = ()) -> Snapshot:
    offered = [
        {"name": "big-{i}", "count": 2, "attributes": {"model": "big"}},
        {"name": "small-{i}", "count": 2, "attributes": {"model": "small"}},
    ]
    big = {"deviceClass": DRIVER, "selectors": [f'device.attributes["{DRIVER}"].model == "big"']}
    return snapshot_from_native(
        {
            "format": "kai-solver/v1",
            "nodes": [{"name": "n{i}", "count": 2}],
            "queues": [{"name": "q", "quota": 100}],
            "deviceClasses": [{"name": DRIVER, "selectors": [f'device.driver == "{DRIVER}"']}],
            "resourceSlices": [{"driver": DRIVER, "node": "n{i}", "count": 2, "devices": offered}],
            "resourceClaimTemplates": [{"name": "big", "requests": [big]}],
            "resourceClaims": [{"labels": {"kai.scheduler/queue": "q"}, "requests": [DRIVER]} | c for c in claims],
            "gangs": [{"queue": "q"} | gang for gang in gangs],
        }
    )


def a_plan(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, load_model("greedy-only"))
    assert check_plan(snapshot, plan) == ()
    return plan


def with_devices(plan: Plan, at: int, *names: str, node: str = "n0", request: str = "devices") -> Plan:
    """``plan`` in which bind ``at`` is given other devices for its claim."""
    binds = list(plan.binds)
    grant = ClaimGrant(binds[at].claims[0].claim, tuple(Allotted(request, DRIVER, node, name) for name in names))
    binds[at] = replace(binds[at], claims=(grant,))
    return replace(plan, binds=tuple(binds))


def texts(snapshot: Snapshot, plan: Plan) -> str:
    return " ".join(v.text for v in check_plan(snapshot, plan) if v.rule == "claims")


TWO = {"name": "a", "pods": [{"replicas": 2, "claimTemplates": ["big"]}]}


@pytest.mark.parametrize(
    ("names", "more", "expected"),
    [
        (("small-0",), {}, "does not match"),
        (("big-7",), {}, "has no device"),
        (("big-0",), {"node": "n1"}, "has no device"),
        ((), {}, "is given 0 devices for devices of default/a-0-big, which asks for 1"),
        (("big-0", "big-1"), {}, "is given 2 devices"),
        (("big-0",), {"request": "other"}, "does not ask for"),
        (("big-1",), {}, "has another claim"),
    ],
)
def test_each_wrong_device_is_found(names: tuple[str, ...], more: dict[str, str], expected: str) -> None:
    snapshot = a_cluster(TWO)
    plan = a_plan(snapshot)
    assert [bind.claims[0].devices[0].device for bind in plan.binds] == ["big-0", "big-1"]
    assert expected in texts(snapshot, with_devices(plan, 0, *names, **more))


def test_a_pod_must_be_given_what_its_claims_ask_for_and_nothing_else() -> None:
    snapshot = a_cluster(TWO)
    plan = a_plan(snapshot)
    first, second = plan.binds
    without = replace(plan, binds=(replace(first, claims=()), second))
    assert "which asks for 1" in texts(snapshot, without)
    swapped = replace(plan, binds=(replace(first, claims=second.claims), second))
    assert "which it does not use" in texts(snapshot, swapped)


def test_pods_that_share_are_given_the_same_devices() -> None:
    snapshot = a_cluster({"name": "a", "pods": [{"replicas": 2, "claims": ["c"]}]}, claims=({"name": "c"},))
    plan = a_plan(snapshot)
    given = plan.binds[0].claims[0].devices[0].device
    other = "big-1" if given == "big-0" else "big-0"
    assert "other devices" in texts(snapshot, with_devices(plan, 1, other))


def held(*devices: str) -> dict[str, Any]:
    allocation = [{"driver": DRIVER, "pool": "n0", "device": device} for device in devices]
    return {"name": "c", "allocation": allocation, "reservedFor": ["r-0"]}


def test_a_claim_that_has_devices_keeps_them() -> None:
    runs = {"name": "r", "pods": [{"claims": ["c"], "status": "Running", "node": "n0"}]}
    snapshot = a_cluster(runs, {"name": "a", "pods": [{"claims": ["c"]}]}, claims=(held("small-0"),))
    plan = a_plan(snapshot)
    assert plan.binds[0].node == "n0"
    assert "names others" in texts(snapshot, with_devices(plan, 0, "small-1"))


def test_devices_that_a_pod_holds_are_not_given_away() -> None:
    runs = {"name": "r", "pods": [{"claims": ["c"], "status": "Running", "node": "n0"}]}
    snapshot = a_cluster(runs, TWO, claims=(held("big-0"),))
    plan = a_plan(snapshot)
    at = next(i for i, bind in enumerate(plan.binds) if bind.node == "n0")
    assert "has another claim" in texts(snapshot, with_devices(plan, at, "big-0"))


def test_devices_of_victims_may_be_promised_and_not_be_used_at_once() -> None:
    runs = {"name": "r", "pods": [{"claims": ["c"], "status": "Running", "node": "n0"}]}
    pinned = [[[{"key": "metadata.name", "operator": "In", "values": ["n0"]}]]]
    waits = {"name": "a", "pods": [{"claimTemplates": ["big"], "nodeTerms": pinned}]}
    holds = held("big-0", "big-1") | {"requests": [{"deviceClass": DRIVER, "count": 2}]}
    snapshot = a_cluster(runs, waits, claims=(holds,))
    plan = a_plan(snapshot)
    assert [(move.pod, move.target) for move in plan.moves] == [("default/r-0", "n1")]
    assert plan.binds[0].nominated
    hasty = replace(plan, binds=(replace(plan.binds[0], nominated=False),))
    assert "has another claim" in texts(snapshot, hasty)
