"""Claims from the file to the plan: sets of devices, sharing, holding, and what makes a pod wait."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_solver.claims import carried, lower, raised
from kai_solver.domain import Plan, Snapshot
from kai_solver.instances_io.anonymize import anonymize
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.instances_io.native_write import native_from_snapshot
from kai_solver.lab.conformance.rounds import settle

Cluster = Callable[..., Snapshot]
Planned = Callable[..., Plan]
DRIVER = "gpu.example.com"
LABEL = {"kai.scheduler/queue": "q"}


def pods(template: str, replicas: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [{"replicas": replicas, "claimTemplates": [template], **more}]


def claim(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "labels": LABEL, "requests": [DRIVER]} | more


def held(device: str, node: str = "n0") -> list[dict[str, str]]:
    return [{"driver": DRIVER, "pool": node, "device": device}]


def placed(plan: Plan) -> dict[str, str]:
    return {bind.pod.rpartition("/")[2]: bind.node for bind in plan.binds}


def given_devices(plan: Plan) -> dict[str, list[str]]:
    return {b.pod.rpartition("/")[2]: [d.device for g in b.claims for d in g.devices] for b in plan.binds}


def why(plan: Plan) -> str:
    return " ".join(pending.message for pending in plan.pending)


@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
def test_what_can_take_less_leaves_what_only_others_can_take(cluster: Cluster, planned: Planned, model: str) -> None:
    gangs = [{"name": "a", "pods": pods("any")}, {"name": "b", "pods": pods("big")}]
    plan = planned(cluster(gangs), model)
    assert given_devices(plan) == {"a-0": ["small-0"], "b-0": ["big-0"]}
    assert {bind.pod: [d.index for d in bind.devices] for bind in plan.binds} == {
        "default/a-0": [1],
        "default/b-0": [0],
    }


@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
def test_no_more_pods_than_devices_that_match(cluster: Cluster, planned: Planned, model: str) -> None:
    gangs = [{"name": "a", "minMember": 2, "pods": pods("big", 2)}, {"name": "b", "pods": pods("any")}]
    plan = planned(cluster(gangs, big=1, small=3), model)
    assert placed(plan) == {"b-0": "n0"}
    assert [(p.gang, p.proof.state) for p in plan.pending] == [("default/a", "proven")]


def test_the_devices_that_lack_are_named_by_their_class(cluster: Cluster, planned: Planned) -> None:
    gangs = [{"name": "r", "pods": pods("big", running={"n0": 1})}, {"name": "a", "pods": pods("big")}]
    assert f"didn't have enough resources: devices of {DRIVER}" in why(planned(cluster(gangs, small=2)))


def test_gpus_that_lack_beside_those_of_claims_are_named_as_such(cluster: Cluster, planned: Planned) -> None:
    gangs = [{"name": "r", "pods": [{"gpus": 1, "node": "n0"}]}, {"name": "a", "pods": [{"gpus": 1}]}]
    told = why(planned(cluster(gangs, node={"gpus": 1, "gpuMemory": "80Gi"})))
    assert "didn't have enough resources: GPUs that are not for claims" in told


def test_gpus_of_claims_count_in_the_queue_s_limit(cluster: Cluster, planned: Planned) -> None:
    queues = [{"name": "q", "quota": 1, "limit": 1}]
    gangs = [{"name": "a", "pods": pods("any")}, {"name": "b", "pods": pods("any")}]
    plan = planned(cluster(gangs, queues=queues))
    assert len(plan.binds) == 1
    assert [pending.reason.value for pending in plan.pending] == ["OverLimit"]


def test_all_devices_of_a_node_are_taken_or_none(cluster: Cluster, planned: Planned) -> None:
    running = {"name": "r", "pods": pods("any", 1, running={"n0": 1})}
    whole = {"name": "a", "pods": pods("whole-node")}
    assert placed(planned(cluster([running, whole], nodes=2))) == {"a-0": "n1"}
    assert not planned(cluster([running, whole])).binds


def test_nodes_with_other_numbers_are_not_considered_for_all_and_that_is_told(
    cluster: Cluster, planned: Planned
) -> None:
    slices = [
        {"driver": DRIVER, "node": "n{i}", "count": 2, "devices": [{"name": "g{i}", "count": 2}]},
        {"driver": DRIVER, "node": "n2", "devices": [{"name": "g{i}", "count": 4}]},
    ]
    gangs = [{"name": f"a{i}", "pods": pods("whole-node")} for i in range(3)]
    snapshot = cluster(gangs, nodes=3, resourceSlices=slices)
    assert any("only those with 2" in notice.text for notice in snapshot.notices)
    plan = planned(snapshot)
    assert sorted(placed(plan).values()) == ["n0", "n1"]
    assert [pending.proof.state for pending in plan.pending] == ["unknown"]


def test_a_shared_claim_is_paid_once_and_all_its_pods_run_beside_each_other(cluster: Cluster, planned: Planned) -> None:
    gangs = [{"name": "a", "pods": [{"replicas": 3, "claims": ["c"]}]}]
    plan = planned(cluster(gangs, nodes=2, resourceClaims=[claim("c")]))
    assert len(set(placed(plan).values())) == 1
    assert len({tuple(devices) for devices in given_devices(plan).values()}) == 1
    assert sum(len(bind.devices) for bind in plan.binds) == 1


def test_pods_of_other_gangs_that_share_wait_for_the_one_that_pays(cluster: Cluster, planned: Planned) -> None:
    gangs: list[dict[str, Any]] = [
        {"name": "late", "priority": 40, "pods": [{"claims": ["c"], "cpu": 1}]},
        {"name": "first", "priority": 60, "pods": [{"claims": ["c"], "cpu": 1}]},
    ]
    assert set(placed(planned(cluster(gangs, resourceClaims=[claim("c")])))) == {"late-0", "first-0"}
    gangs[1]["pods"][0]["cpu"] = 1000
    assert not planned(cluster(gangs, resourceClaims=[claim("c")])).binds


def test_a_pod_joins_the_claim_that_others_hold(cluster: Cluster, planned: Planned) -> None:
    gangs = [
        {"name": "r", "pods": [{"claims": ["c"], "status": "Running", "node": "n1"}]},
        {"name": "a", "pods": [{"claims": ["c"]}]},
    ]
    allocated = claim("c", allocation=held("small-0", "n1"), reservedFor=["r-0"])
    plan = planned(cluster(gangs, nodes=3, resourceClaims=[allocated]))
    assert placed(plan) == {"a-0": "n1"}
    assert given_devices(plan) == {"a-0": ["small-0"]}


def test_devices_of_a_shared_claim_stay_taken_when_one_of_its_pods_leaves(cluster: Cluster, planned: Planned) -> None:
    low = {"priority": 10, "lastStart": "1h"}
    gangs = [
        low | {"name": "r", "pods": [{"claims": ["c"], "status": "Running", "node": "n0"}]},
        low | {"name": "s", "pods": [{"claims": ["c"], "status": "Running", "node": "n0"}]},
        {"name": "a", "priority": 90, "pods": pods("any", 2)},
    ]
    allocated = claim("c", allocation=held("small-0"), reservedFor=["r-0", "s-0"])
    plan = planned(cluster(gangs, resourceClaims=[allocated]))
    assert not plan.binds
    assert not plan.evictions
    assert [pending.proof.state for pending in plan.pending] == ["unknown"]


@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
def test_a_shared_claim_is_freed_when_the_gang_that_shares_it_leaves_whole(
    cluster: Cluster, planned: Planned, model: str
) -> None:
    shared = [{"replicas": 2, "claims": ["c"], "running": {"n0": 2}}]
    gangs = [
        {"name": "r", "priority": 10, "lastStart": "1h", "pods": shared},
        {"name": "a", "priority": 90, "pods": pods("any", 2)},
    ]
    allocated = claim("c", allocation=held("small-0"), reservedFor=["r-0", "r-1"])
    plan = planned(cluster(gangs, resourceClaims=[allocated]), model)
    assert {eviction.pod for eviction in plan.evictions} == {"default/r-0", "default/r-1"}
    assert sorted(d for found in given_devices(plan).values() for d in found) == ["big-0", "small-0"]


def test_only_the_victim_that_holds_a_matching_device_goes(cluster: Cluster, planned: Planned) -> None:
    low = {"priority": 10, "lastStart": "1h"}
    claims = [claim("c", allocation=held("small-0")), claim("d", allocation=held("big-0"))]
    gangs = [
        low | {"name": "r", "pods": [{"claims": ["c"], "status": "Running", "node": "n0"}]},
        low | {"name": "s", "pods": [{"claims": ["d"], "status": "Running", "node": "n0"}]},
        {"name": "a", "priority": 90, "pods": pods("big")},
    ]
    plan = planned(cluster(gangs, resourceClaims=claims))
    assert [eviction.pod for eviction in plan.evictions] == ["default/s-0"]
    assert given_devices(plan) == {"a-0": ["big-0"]}
    assert plan.binds[0].nominated


def test_a_claim_that_no_pod_holds_any_more_keeps_its_devices(cluster: Cluster, planned: Planned) -> None:
    allocated = claim("c", allocation=held("small-0"), reservedFor=["a-pod-elsewhere"])
    plan = planned(cluster([{"name": "a", "pods": pods("any", 2)}], resourceClaims=[allocated]))
    assert not plan.binds


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"resourceClaims": []}, 'resourceclaim.resource.k8s.io "c" not found'),
        ({"resourceClaims": [claim("c", labels={})]}, "has no label kai.scheduler/queue"),
        ({"resourceClaims": [claim("c", labels={"kai.scheduler/queue": "x"})]}, "is labelled for queue 'x'"),
        (
            {"resourceClaims": [claim("c", requests=["fpga.example.com"])]},
            "request devices: device class fpga.example.com does not exist",
        ),
        (
            {"resourceClaims": [claim("c", requests=[{"deviceClass": DRIVER, "selectors": ["device.driver =="]}])]},
            "cannot be read as CEL",
        ),
        (
            {"resourceClaims": [claim("c", requests=[{"deviceClass": DRIVER, "selectors": ["false"]}])]},
            "no node offers a device that matches",
        ),
        ({"resourceClaims": [claim("c", requests=[{"deviceClass": DRIVER, "count": 33}])]}, "at most 32"),
        ({"resourceClaims": [claim("c", reservedFor=[f"p{i}" for i in range(256)])]}, "consumers (256)"),
    ],
)
def test_what_makes_a_pod_wait_is_told_and_the_rest_is_scheduled(
    cluster: Cluster, planned: Planned, sections: dict[str, Any], text: str
) -> None:
    gangs = [{"name": "a", "pods": [{"claims": ["c"]}]}, {"name": "b", "pods": pods("any")}]
    plan = planned(cluster(gangs, **sections))
    assert placed(plan) == {"b-0": "n0"}
    assert text in why(plan)


def test_a_missing_template_makes_its_pods_wait(cluster: Cluster, planned: Planned) -> None:
    plan = planned(cluster([{"name": "a", "pods": pods("lost")}]))
    assert 'resourceclaimtemplate.resource.k8s.io "lost" not found' in why(plan)


def test_gpus_of_plugins_and_of_claims_are_kept_apart(cluster: Cluster, planned: Planned) -> None:
    gangs = [
        {"name": "a", "pods": pods("any", 3), "minMember": 1},
        {"name": "b", "pods": [{"gpus": 1, "replicas": 2}], "minMember": 1},
        {"name": "c", "pods": [{"gpus": 0.5}]},
    ]
    document = native_from_snapshot(cluster(gangs))
    plan = planned(snapshot_from_native(document | {"nodes": [{"name": "n0"}, {"name": "plain", "gpus": 2}]}))
    by_gang = {name: sorted(n for pod, n in placed(plan).items() if pod.startswith(name)) for name in "abc"}
    assert by_gang["a"] == ["n0", "n0"]
    assert sorted(by_gang["b"] + by_gang["c"]) == ["plain", "plain"]


def test_a_share_where_all_gpus_are_of_claims_is_told_that_they_are_not_shared(
    cluster: Cluster, planned: Planned
) -> None:
    text = why(planned(cluster([{"name": "c", "pods": [{"gpus": 0.5}]}])))
    assert "node(s) had GPUs that cannot be shared" in text
    assert "affinity" not in text


def test_an_extended_resource_takes_devices_of_the_class_that_backs_it(cluster: Cluster, planned: Planned) -> None:
    classes = [{"name": DRIVER, "selectors": [f'device.driver == "{DRIVER}"'], "extendedResource": "gpu"}]
    nodes = [{"name": "n0"}, {"name": "plain", "gpus": 1}]
    gangs = [{"name": "b", "pods": [{"gpus": 1, "replicas": 4}], "minMember": 1}]
    document = native_from_snapshot(cluster(gangs, deviceClasses=classes))
    plan = planned(snapshot_from_native(document | {"nodes": nodes}))
    assert sorted(placed(plan).values()) == ["n0", "n0", "plain"]
    assert sorted(d for found in given_devices(plan).values() for d in found) == ["big-0", "small-0"]


def test_a_class_s_own_resource_name_asks_for_it_too(cluster: Cluster, planned: Planned) -> None:
    resource = f"deviceclass.resource.kubernetes.io/{DRIVER}"
    gangs = [{"name": f"b{i}", "pods": [{"resources": {resource: 1}}]} for i in range(3)]
    plan = planned(cluster(gangs))
    assert len(plan.binds) == 2
    assert all(len(bind.claims) == 1 for bind in plan.binds)


def test_what_was_put_on_top_is_taken_off_again(cluster: Cluster) -> None:
    gangs = [
        {"name": "r", "pods": [{"claims": ["c"], "status": "Running", "node": "n0"}]},
        {"name": "s", "pods": [{"claims": ["c"], "gpus": 0.5}]},
        {"name": "a", "pods": pods("big")},
        {"name": "b", "pods": [{"gpus": 1}]},
    ]
    allocated = claim("c", allocation=held("small-0"), reservedFor=["r-0", "s-0"])
    snapshot = cluster(gangs, resourceClaims=[allocated])
    assert snapshot.schema.size > 4
    bare = raised(snapshot)
    assert bare.schema.size == 4
    assert not bare.foreign
    assert [pod.gpu.devices for gang in bare.gangs for pod in gang.pods] == [0, 1, 0, 1]
    assert lower(bare) == snapshot
    assert snapshot_from_native(native_from_snapshot(snapshot)) == snapshot


def test_without_claims_gangs_are_the_very_same(cluster: Cluster) -> None:
    bare = raised(cluster([{"name": "a"}, {"name": "b"}]))
    lowered = lower(bare)
    assert all(one is other for one, other in zip(lowered.gangs, bare.gangs, strict=True))
    assert all(node.gpus == 2 for node in lowered.nodes), "their nodes have the devices all the same"


def test_rounds_carry_allocations_and_give_up_those_of_the_evicted(cluster: Cluster, planned: Planned) -> None:
    gangs = [
        {"name": "r", "priority": 10, "lastStart": "1h", "pods": [{"claims": ["c"], "running": {"n0": 1}}]},
        {"name": "a", "priority": 90, "pods": pods("any", 2)},
    ]
    first = cluster(gangs, resourceClaims=[claim("c", allocation=held("small-0"), reservedFor=["r-0"])])
    plan = planned(first)
    second = settle(first, plan)
    assert second.claims is not None
    assert {c.key: c.allotted for c in second.claims.claims}["default/c"] is None
    third = settle(second, planned(second))
    assert third.claims is not None
    assert sum(len(c.allotted or ()) for c in third.claims.claims) == 2
    assert carried(third, Plan()) == third
    assert not planned(third).binds


def test_devices_of_running_pods_without_an_allocation_are_worked_out(cluster: Cluster, planned: Planned) -> None:
    gangs = [{"name": "r", "pods": pods("big", running={"n0": 1})}, {"name": "a", "pods": pods("any", 1)}]
    snapshot = cluster(gangs)
    assert snapshot.gangs[0].pods[0].devices == (0,)
    assert given_devices(planned(snapshot)) == {"a-0": ["small-0"]}


def test_a_name_that_must_be_free_now_makes_its_gang_wait(cluster: Cluster, planned: Planned) -> None:
    """The big one is free, the small one is being released: who needs the big one gets it, the other waits."""
    claims = [claim("c", allocation=held("small-0"), reservedFor=["r-0"])]
    gangs = [
        {"name": "r", "pods": [{"claims": ["c"], "status": "Releasing", "node": "n0"}]},
        {"name": "a", "priority": 60, "pods": pods("any")},
        {"name": "b", "priority": 50, "pods": pods("big")},
    ]
    plan = planned(cluster(gangs, resourceClaims=claims))
    assert given_devices(plan) == {"a-0": ["small-0"], "b-0": ["big-0"]}
    assert all(bind.nominated for bind in plan.binds if bind.pod == "default/a-0")


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["any", "big"]), min_size=1, max_size=6),
    st.integers(0, 3),
    st.integers(0, 3),
    st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_as_many_single_pods_run_as_devices_allow(
    cluster: Cluster, planned: Planned, asked: list[str], big: int, small: int, running: list[bool]
) -> None:
    """On one node: who runs stays, and of those that wait as many run as there are devices for, in policy order."""
    runs = [is_running and asked[:i].count("big") < big and i < big for i, is_running in enumerate(running)]
    gangs: list[dict[str, Any]] = []
    for number, template in enumerate(asked):
        where: dict[str, Any] = {"running": {"n0": 1}} if runs[number] and template == "big" else {}
        gangs.append({"name": f"g{number}", "pods": pods(template, **where)})
    plan = planned(cluster(gangs, big=big, small=small))
    already = sum("running" in gang["pods"][0] for gang in gangs)
    free_big, free = big - already, big - already + small
    for number, template in enumerate(asked):
        if "running" in gangs[number]["pods"][0]:
            continue
        fits = free > 0 and (template == "any" or free_big > 0)
        # Those that take anything leave the big ones to later ones as long as there are small ones.
        assert (f"g{number}-0" in placed(plan)) == fits
        if fits:
            free -= 1
            free_big -= template == "big"
            free_big = min(free_big, free)


def test_hashed_names_leave_what_claims_come_to(cluster: Cluster, planned: Planned) -> None:
    gangs = [
        {"name": "r", "pods": [{"claims": ["c"], "status": "Running", "node": "n0"}]},
        {"name": "s", "pods": [{"claims": ["c"]}]},
        {"name": "a", "pods": pods("big", 2)},
    ]
    allocated = claim("c", allocation=held("small-0"), reservedFor=["r-0", "s-0"])
    snapshot = cluster(gangs, resourceClaims=[allocated], big=1)
    hashed = snapshot_from_native(native_from_snapshot(anonymize(snapshot, salt=b"salt")))
    assert hashed.claims is None
    for seen in (snapshot, hashed):
        plan = planned(seen)
        assert (len(plan.binds), len(plan.pending)) == (1, 1)


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
def test_claims_and_numa_zones_on_one_node(cluster: Cluster, planned: Planned, scope: str, model: str) -> None:
    zones = [{"name": f"z{at}", "cpu": 4} for at in range(2)]
    numa = {"policy": "single-numa-node", "scope": scope, "zones": zones}
    cores = {"replicas": 3, "cpu": 3, "guaranteed": True, "containers": [{"cpu": 3}]}
    gangs = [{"name": "a", "pods": pods("big")}, {"name": "b", "minMember": 0, "pods": [cores]}]
    plan = planned(cluster(gangs, node={"cpu": 8, "numa": numa}), model)
    assert placed(plan) == {"a-0": "n0", "b-0": "n0", "b-1": "n0"}, "zones hold two, and the claim is none of theirs"


@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
def test_the_pod_that_was_promised_a_node_is_served_first_and_pays_for_a_shared_claim(
    cluster: Cluster, planned: Planned, model: str
) -> None:
    both = [{"name": f"a-{i}", "claims": ["one"]} for i in (0, 1)]
    both[1]["nominatedNode"] = "n0"
    plan = planned(cluster([{"name": "a", "minMember": 1, "pods": both}], resourceClaims=[claim("one")]), model)
    assert placed(plan) == {"a-0": "n0", "a-1": "n0"}
