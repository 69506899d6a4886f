"""Domains of one tenant at a time: each rule alone, and against every possible plan of a small cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Action, Plan, Snapshot
from kai_solver.engine import Engine, cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model
from tests.support.clusters import some

GPUS = 2
"""Of a node."""
RACKS = [0, 0, 1, 1, None]
"""Rack of every node; the last one is in none."""
EVERYTHING = Action.PREEMPT


def a_cluster(
    *gangs: dict[str, Any], rule: dict[str, Any] | None = None, racks: Sequence[int | None] = RACKS
) -> Snapshot:
    """Nodes of two GPUs in racks, and two queues that may hold everything."""
    nodes = [
        {"name": f"n{i}", "gpus": GPUS, "labels": {} if rack is None else {"rack": f"r{rack}"}}
        for i, rack in enumerate(racks)
    ]
    topology = {"name": "racks", "levels": ["rack"], "oneTenant": {"level": "rack"} | (rule or {})}
    queues = [{"name": name, "quota": 99} for name in ("a", "b")]
    return snapshot_from_native(
        {"format": "kai-solver/v1", "nodes": nodes, "topologies": [topology], "queues": queues, "gangs": list(gangs)}
    )


def a_gang(name: str, queue: str = "a", pods: int = 1, gpus: float = GPUS, at: str = "", **more: Any) -> dict[str, Any]:
    pod = {"replicas": pods, "gpus": gpus} | ({"running": {at: pods}} if at else {})
    labels = more.pop("labels", {})
    return {"name": name, "queue": queue, "pods": [pod | ({"labels": labels} if labels else {})], **more}


GREEDY = load_model("greedy-only")


def plan_of(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, GREEDY)
    assert check_plan(snapshot, plan) == ()
    return plan


def nodes_of(plan: Plan) -> set[str]:
    return {bind.node for bind in plan.binds}


def test_a_rack_is_of_its_tenant_and_nodes_outside_of_racks_are_of_any() -> None:
    snapshot = a_cluster(a_gang("r", "a", gpus=1, at="n0"), a_gang("w", "b", pods=3, gpus=2))
    assert nodes_of(plan_of(snapshot)) == {"n2", "n3", "n4"}


def test_pods_of_the_tenant_join_and_pods_without_gpus_do_not_count() -> None:
    full = [a_gang("r0", "a", gpus=1, at="n0"), a_gang("r1", "b", gpus=1, at="n2")]
    own = plan_of(a_cluster(*full, a_gang("w", "a", pods=2, gpus=1)))
    assert nodes_of(own) <= {"n0", "n1", "n4"}
    assert not own.pending
    tools = {"name": "t", "queue": "b", "pods": [{"replicas": 40, "cpu": 1}]}
    assert not plan_of(a_cluster(*full, tools)).pending
    alone = a_cluster(
        {**tools, "pods": [{"cpu": 1, "running": {"n0": 1}}]}, a_gang("w", "a", pods=4), racks=[0, 0, 1, 1]
    )
    assert not plan_of(alone).pending


@pytest.mark.parametrize(
    ("rule", "other", "is_open"),
    [
        ({}, {"queue": "b"}, False),
        ({}, {"queue": "a", "namespace": "elsewhere"}, True),
        ({"tenant": "namespace"}, {"queue": "b"}, True),
        ({"tenant": "namespace"}, {"queue": "a", "namespace": "elsewhere"}, False),
        ({"tenant": "label:team"}, {"queue": "b", "labels": {"team": "x"}}, True),
        ({"tenant": "label:team"}, {"queue": "a"}, False),
    ],
)
def test_who_a_tenant_is(rule: dict[str, Any], other: dict[str, Any], is_open: bool) -> None:
    running = a_gang("r", "a", gpus=1, at="n0", labels={"team": "x"}, priority=100)
    plan = plan_of(a_cluster(running, a_gang("w", gpus=1, **other), rule=rule, racks=[0, 0]))
    assert bool(plan.pending) is not is_open


def test_a_gang_that_waits_is_told_which_domain_is_used_by_which_tenant() -> None:
    snapshot = a_cluster(a_gang("r", "a", gpus=1, at="n0", priority=100), a_gang("w", "b"), racks=[0, 0])
    (pending,) = plan_of(snapshot).pending
    assert "node(s) were in rack r0, which is used by queue a" in pending.message
    assert pending.proof.state == "proven"


def test_a_rack_whose_user_is_going_is_waited_for() -> None:
    going = {"name": "r", "queue": "a", "pods": [{"gpus": 1, "status": "Releasing", "node": "n0"}]}
    (bind,) = plan_of(a_cluster(going, a_gang("w", "b"), racks=[0, 0])).binds
    assert bind.nominated


def test_tenants_beside_each_other_may_stay_and_no_other_joins_them() -> None:
    mixed = [a_gang("r0", "a", gpus=1, at="n0", priority=100), a_gang("r1", "b", gpus=1, at="n1", priority=100)]
    plan = plan_of(a_cluster(*mixed, a_gang("w", "a", gpus=1), racks=[0, 0]))
    assert plan.pending
    assert not plan.moves
    assert nodes_of(plan_of(a_cluster(*mixed, a_gang("w", "a", gpus=1), racks=[0, 0, 1]))) == {"n2"}


def test_racks_of_one_name_in_two_zones_are_two() -> None:
    nodes = [{"name": f"{z}", "gpus": 2, "labels": {"zone": z, "rack": "r"}} for z in ("x", "y")]
    topology = {"name": "t", "levels": ["zone", "rack"], "oneTenant": {"level": "rack"}}
    gangs = [a_gang("r", "a", gpus=1, at="x"), a_gang("w", "b", gpus=1)]
    queues = [{"name": name, "quota": 99} for name in ("a", "b")]
    instance = {"format": "kai-solver/v1", "nodes": nodes, "topologies": [topology], "queues": queues, "gangs": gangs}
    assert nodes_of(plan_of(snapshot_from_native(instance))) == {"y"}


def test_the_checker_refuses_two_tenants_in_one_domain_also_while_one_is_leaving() -> None:
    snapshot = a_cluster(a_gang("r", "a", gpus=1, at="n0"), a_gang("w", "b", gpus=1), racks=[0, 0, 1])
    plan = plan_of(snapshot)
    assert nodes_of(plan) == {"n2"}
    wrong = replace(plan, binds=tuple(replace(bind, node="n1") for bind in plan.binds))
    assert [(v.rule, v.object) for v in check_plan(snapshot, wrong)] == [("tenants", "default/w-0")]
    going = {"name": "r", "queue": "a", "pods": [{"gpus": 1, "status": "Releasing", "node": "n0"}]}
    waits = a_cluster(going, a_gang("w", "b"), racks=[0, 0])
    plan = plan_of(waits)
    at_once = replace(plan, binds=tuple(replace(bind, nominated=False) for bind in plan.binds))
    assert "tenants" in {violation.rule for violation in check_plan(waits, at_once)}


# -- GPUs of any kind, whoever pays ---------------------------------------------------------------------------------


def with_devices(*gangs: dict[str, Any], is_alone: bool = True, rule: str = "queue", **sections: Any) -> Snapshot:
    """Two nodes in one rack with four devices each: GPUs by claim of which the class name says nothing."""
    device = {"name": "dev-{i}", "count": 4, "attributes": {"type": "gpu"}}
    pools = [{"driver": "d.x", "node": node, "devices": [device]} for node in ("n0", "n1")]
    topology: dict[str, Any] = {"name": "racks", "levels": ["rack"]}
    instance = {
        "format": "kai-solver/v1",
        "nodes": [{"name": name, "labels": {"rack": "r"}} for name in ("n0", "n1")],
        "topologies": [topology | ({"oneTenant": {"level": "rack", "tenant": rule}} if is_alone else {})],
        "queues": [{"name": name, "quota": 99} for name in ("a", "b")],
        "deviceClasses": [{"name": "fast"}],
        "resourceSlices": pools,
        "gangs": list(gangs),
    }
    return snapshot_from_native(instance | sections)


def of_both_queues(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "queue": name, "pods": [pod]} for name in ("a", "b")]


def by_claim(device_class: str, driver: str = "d.x", **attributes: str) -> dict[str, Any]:
    """Sections in which both queues ask for one device of the class, of which each node has four."""
    device = {"name": "dev-{i}", "count": 4, "attributes": attributes}
    return {
        "deviceClasses": [{"name": device_class}],
        "resourceSlices": [{"driver": driver, "node": node, "devices": [device]} for node in ("n0", "n1")],
        "resourceClaimTemplates": [{"name": "one", "requests": [{"deviceClass": device_class}]}],
        "gangs": of_both_queues({"claimTemplates": ["one"]}),
    }


def by_resource(resource: str, **more: Any) -> dict[str, Any]:
    """Sections in which both queues ask for one unit of the resource."""
    nodes = [{"name": name, "resources": {resource: 4}, "labels": {"rack": "r"}} for name in ("n0", "n1")]
    return {"nodes": nodes, "gangs": of_both_queues({"resources": {resource: 1}, **more})}


GPUS_OF_ALL_KINDS = {
    "class of GPUs": by_claim("gpu.x.com"),
    "class of MIG slices": by_claim("mig.nvidia.com"),
    "GPUs by their type": by_claim("fast", type="gpu"),
    "MIG slices by their type": by_claim("fast", type="mig"),
    "driver of GPUs": by_claim("fast", driver="gpu.intel.com"),
    "MIG slices that nobody pays": by_resource("nvidia.com/mig-1g.10gb", quotaGpus=0),
    "time-sliced GPUs that nobody pays": by_resource("nvidia.com/gpu.shared", quotaGpus=0),
}
NO_GPUS = {"class of others": by_claim("migration.x.com", type="nic"), "resource": by_resource("rdma/hca")}


@pytest.mark.parametrize("kind", GPUS_OF_ALL_KINDS)
def test_gpus_of_all_kinds_make_a_domain_one_of_their_tenant(kind: str) -> None:
    sections = GPUS_OF_ALL_KINDS[kind]
    plan = plan_of(with_devices(**sections))
    assert [pending.gang for pending in plan.pending] == ["default/b"]
    together = cycle(with_devices(**sections, is_alone=False), GREEDY)
    assert not together.pending
    assert {violation.rule for violation in check_plan(with_devices(**sections), together)} == {"tenants"}


@pytest.mark.parametrize("kind", NO_GPUS)
def test_devices_that_are_no_gpus_make_no_domain_one_of_their_tenant(kind: str) -> None:
    assert not plan_of(with_devices(**NO_GPUS[kind])).pending


def sharers(second: str, status: str = "Pending") -> list[dict[str, Any]]:
    """Two gangs of one queue whose pods share a claim: the first is of team x and pays."""
    first = {"status": status, "node": "n0"} if status != "Pending" else {}
    return [
        {"name": "v", "queue": "a", "pods": [{"claims": ["shared"], "labels": {"team": "x"}} | first]},
        {"name": "w", "queue": "a", "pods": [{"claims": ["shared"], "labels": {"team": second}}]},
    ]


SHARED = {"name": "shared", "labels": {"kai.scheduler/queue": "a"}, "requests": [{"name": "r", "deviceClass": "fast"}]}
ALLOTTED = SHARED | {
    "allocation": [{"request": "r", "driver": "d.x", "pool": "n0", "device": "dev-0"}],
    "reservedFor": ["v-0"],
}


def test_what_shares_a_claim_has_its_gpus_though_another_pays() -> None:
    plan = plan_of(with_devices(*sharers("y"), rule="label:team", resourceClaims=[SHARED]))
    assert [pending.gang for pending in plan.pending] == ["default/w"]
    assert not plan_of(with_devices(*sharers("x"), rule="label:team", resourceClaims=[SHARED])).pending
    together = with_devices(*sharers("y"), rule="label:team", resourceClaims=[SHARED], is_alone=False)
    snapshot = with_devices(*sharers("y"), rule="label:team", resourceClaims=[SHARED])
    assert {v.rule for v in check_plan(snapshot, cycle(together, GREEDY))} == {"tenants"}


def test_a_claim_that_stays_is_no_tenant_beside_its_pods() -> None:
    running = with_devices(*sharers("x", "Running"), rule="label:team", resourceClaims=[ALLOTTED])
    assert nodes_of(plan_of(running)) == {"n0"}
    other = with_devices(*sharers("y", "Running"), rule="label:team", resourceClaims=[ALLOTTED])
    assert plan_of(other).pending


# -- who blocks -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Engine]]:
    base = load_model("deterministic")
    with (
        Engine(replace(base, actions=(Action.ALLOCATE,))) as still,
        Engine(replace(base, actions=(Action.ALLOCATE, Action.CONSOLIDATION))) as moving,
        Engine(replace(base, actions=(Action.ALLOCATE, Action.CONSOLIDATION, Action.PREEMPT))) as preempting,
    ):
        yield {"still": still, "moving": moving, "preempting": preempting}


def blocked_by(engines: dict[str, Engine], snapshot: Snapshot) -> list[tuple[str, str]]:
    (pending,) = engines["preempting"].cycle(snapshot).pending
    return [(blocker.name, blocker.have) for blocker in pending.proof.blocking if blocker.kind == "tenants"]


@pytest.mark.slow
def test_work_admitted_before_it_is_told_as_what_blocks(engines: dict[str, Engine]) -> None:
    both = a_cluster(a_gang("v", "a", gpus=1, priority=100), a_gang("w", "b", gpus=1), racks=[0, 0])
    assert blocked_by(engines, both) == [("rack", "used by work admitted before it")]
    there = a_cluster(a_gang("v", "a", gpus=1, at="n0", priority=100), a_gang("w", "b", gpus=1), racks=[0, 0])
    assert blocked_by(engines, there) == [("rack", "rack r0 is used by queue a")]


def test_a_gang_of_two_tenants_is_told_so(engines: dict[str, Engine]) -> None:
    gang = a_gang("w", gpus=1) | {"pods": [{"name": t, "gpus": 1, "labels": {"team": t}} for t in ("x", "y")]}
    snapshot = a_cluster(gang, rule={"tenant": "label:team"}, racks=[0, 0])
    assert blocked_by(engines, snapshot) == [("rack", "its own pods are of several tenants")]


# -- every plan of a small cluster ---------------------------------------------------------------------------------


@st.composite
def clusters(draw: Any, running: int) -> Snapshot:
    """One gang waits; the others run, of one pod each, wherever there is room. A tenant is a namespace."""
    racks: list[int | None] = draw(st.sampled_from([[0, 0, 1], [0, 1, 1], [0, 0, 1, 1], [0, 1, None]]))
    names = st.sampled_from(["x", "y", "z"])
    free = [GPUS] * len(racks)
    gangs: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, running))):
        node, gpus = draw(st.integers(0, len(racks) - 1)), draw(st.integers(0, GPUS))
        if free[node] >= gpus:
            free[node] -= gpus
            more: dict[str, Any] = {"namespace": draw(names), "priority": draw(st.sampled_from([10, 100]))}
            gangs.append(a_gang(f"r{number}", gpus=gpus, at=f"n{node}", **more))
    size, gpus = draw(st.integers(1, 3)), draw(st.integers(1, GPUS))
    gangs.append(a_gang("w", pods=size, gpus=gpus, namespace=draw(names), priority=50))
    return a_cluster(*gangs, rule={"tenant": "namespace"}, racks=racks)


def is_possible(snapshot: Snapshot, *, may_move: bool, may_evict: bool) -> bool:
    """Whether any assignment runs the waiting gang, whoever else is moved or evicted for it."""
    racks = [node.labels.get("rack") for node in snapshot.nodes]
    names = [node.name for node in snapshot.nodes]
    waiting = next(gang for gang in snapshot.gangs if gang.name == "w")
    running = [(gang, pod) for gang in snapshot.gangs for pod in gang.pods if pod.node]
    gone = -1
    options = []
    for gang, pod in running:
        moves = range(len(names)) if may_move and gang.preemptible else [names.index(pod.node)]
        options.append([*moves, gone] if may_evict and gang.preemptible else list(moves))
    pods = [pod for _, pod in running] + list(waiting.pods)
    origins = [names.index(pod.node) for _, pod in running] + [None] * len(waiting.pods)
    for choice in product(*options, *([range(len(names))] * len(waiting.pods))):
        load = [0] * len(names)
        users: dict[str, set[str]] = {}
        for pod, at in zip(pods, choice, strict=True):
            if at != gone:
                load[at] += pod.gpu.devices
                if pod.gpu.devices and racks[at] is not None:
                    users.setdefault(str(racks[at]), set()).add(pod.namespace)
        come = [
            str(racks[at])
            for pod, at, origin in zip(pods, choice, origins, strict=True)
            if at not in (origin, gone) and pod.gpu.devices and racks[at] is not None
        ]
        if max(load) <= GPUS and all(len(users[rack]) == 1 for rack in come):
            return True
    return False


def decide(engine: Engine, snapshot: Snapshot, **may: bool) -> None:
    """Fails where the plan breaks a rule, a plan that exists is missed, or what is not so is proven."""
    plan = engine.cycle(snapshot)
    assert check_plan(snapshot, plan) == ()
    if plan.pending:
        assert not is_possible(snapshot, **may)
        assert plan.pending[0].proof.state == "proven"
    else:
        assert is_possible(snapshot, **may)


@pytest.mark.slow
@given(cluster=clusters(3))
@some(30)
def test_every_gang_that_can_be_placed_is_and_every_no_is_proven(engines: dict[str, Engine], cluster: Snapshot) -> None:
    decide(engines["still"], cluster, may_move=False, may_evict=False)


@pytest.mark.slow
@given(cluster=clusters(3))
@some(40)
def test_every_gang_that_moves_make_room_for_runs(engines: dict[str, Engine], cluster: Snapshot) -> None:
    decide(engines["moving"], cluster, may_move=True, may_evict=False)


@pytest.mark.slow
@given(cluster=clusters(4))
@some(40)
def test_every_gang_that_victims_make_room_for_runs(engines: dict[str, Engine], cluster: Snapshot) -> None:
    decide(engines["preempting"], cluster, may_move=True, may_evict=True)


@given(cluster=clusters(5))
@some(20, campaign=1000)
def test_in_many_clusters(engines: dict[str, Engine], cluster: Snapshot) -> None:
    decide(engines["still"], cluster, may_move=False, may_evict=False)
    decide(engines["moving"], cluster, may_move=True, may_evict=False)
    decide(engines["preempting"], cluster, may_move=True, may_evict=True)
