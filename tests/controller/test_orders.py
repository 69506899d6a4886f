"""What a plan says of a pod goes with its binding."""

import json
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.controller.orders import orders_of
from kai_solver.domain import (
    Allotted,
    Bind,
    ClaimDevice,
    ClaimGrant,
    Claims,
    Device,
    GpuLink,
    GpuRequest,
    Lowered,
    Plan,
    PodStatus,
    Snapshot,
    ZoneShare,
)
from kai_solver.kubeobjects import RawObjects, snapshot_from_objects


@pytest.fixture
def snapshot() -> Snapshot:
    """One node, and one pod that waits."""
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"schedulerName": "kai-scheduler", "containers": [container]},
    }
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"nvidia.com/gpu": "2", "pods": "10"}}}
    return snapshot_from_objects(RawObjects(pods=(pod,), nodes=(node,)), now_s=0.0)


@pytest.mark.parametrize(
    ("status", "ran"), [(PodStatus.RUNNING, True), (PodStatus.PENDING, False), (PodStatus.SUCCEEDED, False)]
)
def test_a_gang_of_which_pods_have_places_does_not_begin_again(
    snapshot: Snapshot, status: PodStatus, ran: bool
) -> None:
    (gang,) = snapshot.gangs
    other = replace(gang.pods[0], name="q", status=status)
    grown = replace(snapshot, gangs=(replace(gang, pods=(*gang.pods, other)),))
    (order,) = orders_of(grown, Plan(binds=(Bind("n/p", gang.key, "a"),))).binds
    assert order.ran == ran


def annotations(snapshot: Snapshot, **bind: Any) -> dict[str, str]:
    plan = Plan(binds=(Bind("n/p", snapshot.gangs[0].key, "a", **bind),))
    ((placement,),) = (gang.placements for gang in orders_of(snapshot, plan).binds)
    return dict(placement.annotations)


def with_pod(snapshot: Snapshot, **fields: Any) -> Snapshot:
    (gang,) = snapshot.gangs
    return replace(snapshot, gangs=(replace(gang, pods=(replace(gang.pods[0], **fields),)),))


@pytest.mark.parametrize(
    ("fields", "received"),
    [
        ({}, "Regular"),
        ({"gpu": GpuRequest(1, 500)}, "Fraction"),
        ({"gpu": GpuRequest(0), "quota_gpu_milli": 1000}, "MigInstance"),
        ({"gpu": GpuRequest(0), "quota_gpu_milli": 1000, "claims": ("n/shared",)}, "Regular"),
    ],
)
def test_pods_are_told_what_they_got(snapshot: Snapshot, fields: Any, received: str) -> None:
    assert annotations(with_pod(snapshot, **fields)) == {"received-resource-type": received}


def test_pods_are_told_the_gpus_that_were_chosen_for_them(snapshot: Snapshot) -> None:
    devices = (Device(2, 1000), Device(5, 1000))
    assert annotations(snapshot, devices=devices, link=GpuLink("NV2", 50))["kai-solver/gpus"] == "2,5"
    assert "kai-solver/gpus" not in annotations(snapshot, devices=devices)


def test_gpus_that_a_claim_is_allocated_are_no_wish(snapshot: Snapshot) -> None:
    gpu = ClaimDevice("a", "gpu.nvidia.com", "a", "gpu-0")
    claims = Claims(devices=(gpu,), lowered=Lowered(snapshot.schema, snapshot.nodes, gpus={"a": (gpu,)}))
    told = annotations(replace(snapshot, claims=claims), devices=(Device(0, 1000),), link=GpuLink())
    assert "kai-solver/gpus" not in told


def test_pods_are_told_their_numa_zones_where_any_count(snapshot: Snapshot) -> None:
    shares = (ZoneShare("node-0", (("gpu", 1000), ("cpu", 500))),)
    stated = annotations(snapshot, zones=shares)["kai.scheduler/numa-placement-predicted"]
    assert json.loads(stated) == [{"zone": "node-0", "amount": {"nvidia.com/gpu": "1", "cpu": "500m"}}]


def test_parts_of_one_claim_are_one_to_the_api_server(snapshot: Snapshot) -> None:
    first, second, third = (Allotted(f"r-{i}", "d", "a", f"gpu-{i}") for i in range(3))
    grants = (ClaimGrant("n/c", (first,)), ClaimGrant("n/e", (third,)), ClaimGrant("n/c#1", (second,)))
    plan = Plan(binds=(Bind("n/p", snapshot.gangs[0].key, "a", claims=grants),))
    ((placement,),) = (gang.placements for gang in orders_of(snapshot, plan).binds)
    assert placement.claims == (("n/c", (first, second)), ("n/e", (third,)))
