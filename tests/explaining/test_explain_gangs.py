"""Explanations of hand-made clusters: nodes by reason, queues, what would have to change."""

from dataclasses import replace

import pytest

from kai_solver.domain import (
    Bind,
    Blocker,
    Constraints,
    Device,
    Eviction,
    Gang,
    GpuRequest,
    Move,
    Node,
    NumaTopology,
    NumaZone,
    Pending,
    Plan,
    Pod,
    PodAffinityTerm,
    PodStatus,
    Proof,
    Queue,
    Reason,
    Requirement,
    Snapshot,
    Taint,
    ZoneShare,
    flat_gang,
)
from kai_solver.errors import InputError
from kai_solver.explaining import Explanation, carried_out, explain_gang, fair_share_lines
from kai_solver.units import ResourceSchema

SCHEMA = ResourceSchema()
GIB = 2**30


def node(name: str, gpus: int = 4, **more: object) -> Node:
    return replace(Node(name, (8000, 64 * GIB, 1000 * gpus, 110), gpus, 80_000), **more)  # type: ignore[arg-type]


def pod(name: str, gpu: GpuRequest, on: str = "", devices: tuple[int, ...] = (), **more: object) -> Pod:
    status = PodStatus.RUNNING if on else PodStatus.PENDING
    made = Pod("ns", name, (1000, GIB, 0, 1), gpu, status, node=on, devices=devices)
    return replace(made, **more)  # type: ignore[arg-type]


def gang(name: str, *pods: Pod, minimum: int | None = None, **more: object) -> Gang:
    made = Gang("ns", name, "leaf", flat_gang(len(pods) if minimum is None else minimum), pods)
    return replace(made, **more)  # type: ignore[arg-type]


FREE = (-1, -1, -1)
ROOT = Queue("root", quota=FREE, limit=FREE, weight=(1.0, 1.0, 1.0))
LEAF = Queue("leaf", parent="root", quota=(-1, -1, 4000), limit=FREE, weight=(1.0, 1.0, 1.0))


def snapshot(*gangs: Gang, nodes: tuple[Node, ...] = (), queue: Queue = LEAF) -> Snapshot:
    return Snapshot(0.0, SCHEMA, nodes or (node("a"), node("b")), (ROOT, queue), gangs)


def waiting(name: str = "j", reason: Reason = Reason.NOT_ENOUGH_RESOURCES, *blocking: Blocker) -> Plan:
    return Plan(pending=(Pending(f"ns/{name}", reason, "words of the engine", Proof("proven", "bound", blocking)),))


BUSY = gang("busy", pod("busy-0", GpuRequest(3), "a", (0, 1, 2)), pod("busy-1", GpuRequest(1), "b", (0,)))


def reasons(explanation: Explanation) -> dict[str, int]:
    return {reason.kubernetes: reason.nodes for fit in explanation.fits for reason in fit.reasons}


def test_nodes_are_counted_by_what_they_lack() -> None:
    found = explain_gang(snapshot(BUSY, gang("j", pod("j-0", GpuRequest(4)))), waiting(), "ns/j")
    assert reasons(found) == {"Insufficient nvidia.com/gpu": 2}
    assert found.kubernetes == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    assert found.kai == "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs."
    assert found.fits[0].nearest == "b has 3 of 4 GPUs free"


def test_a_gang_that_fits_in_part_says_how_far() -> None:
    pods = [pod(f"j-{i}", GpuRequest(3)) for i in range(2)]
    found = explain_gang(snapshot(BUSY, gang("j", *pods)), waiting(), "j")
    assert found.fits[0].room == 1
    assert found.kai.startswith("Resources were found for 1 pods while 2 are required for gang scheduling.")
    assert any(text.startswith("Free room for 1 more pod of 3 GPUs") for text in found.changes)


def test_a_resource_that_no_node_has_is_probably_a_slip() -> None:
    schema = SCHEMA.with_extended(["nvidia.com/gpus"])
    asks = gang("j", pod("j-0", GpuRequest(), request=schema.vector({"cpu": 1000, "pods": 1, "nvidia.com/gpus": 4})))
    bare = node("a", allocatable=schema.vector({"cpu": 8000, "gpu": 4000, "pods": 110}))
    found = explain_gang(replace(snapshot(asks, nodes=(bare,)), schema=schema), waiting(), "j")
    assert found.changes == ("No node has any nvidia.com/gpus: did you mean nvidia.com/gpu?",)
    lost = explain_gang(snapshot(gang("j", pod("j-0", GpuRequest(1))), nodes=(node("a", 0),)), waiting(), "j")
    assert lost.changes == ("No node has any GPUs: add nodes that have some",)


def test_a_gang_that_fits_everywhere_is_not_said_to_lack_nodes() -> None:
    found = explain_gang(snapshot(gang("j", pod("j-0", GpuRequest(1)))), waiting(), "j")
    assert (found.kai, found.kubernetes, found.fits[0].room) == ("", "", 8)


def test_taints_cordons_and_selectors_have_their_own_words() -> None:
    nodes = (node("a", taints=(Taint("key", "value"),)), node("b", schedulable=False), node("c"))
    picky = Constraints(node_terms=(((Requirement("zone", "In", ("here",)),),),))
    found = explain_gang(snapshot(gang("j", pod("j-0", GpuRequest(1), constraints=picky)), nodes=nodes), waiting(), "j")
    assert reasons(found) == {
        "node(s) had untolerated taint {key: value}": 1,
        "node(s) were unschedulable": 1,
        "node(s) didn't match Pod's node affinity/selector": 1,
    }
    assert any("no node admits them" in text for text in found.changes)


def test_shares_of_a_device_are_counted_per_device() -> None:
    holders = [pod(f"busy-{i}", GpuRequest(1, 600), "a", (i,)) for i in range(4)]
    shared = gang("j", pod("j-0", GpuRequest(1, 500)))
    found = explain_gang(snapshot(gang("busy", *holders), shared, nodes=(node("a"),)), waiting(), "j")
    assert reasons(found) == {"Insufficient nvidia.com/gpu": 1}
    fitting = explain_gang(snapshot(gang("busy", *holders[:3]), shared, nodes=(node("a"),)), waiting(), "j")
    assert fitting.fits[0].room == 2


def test_cpu_and_memory_are_named() -> None:
    big = gang("j", pod("j-0", GpuRequest(0), request=(9000, 100 * GIB, 0, 1)))
    assert reasons(explain_gang(snapshot(big), waiting(), "j")) == {"Insufficient cpu": 2, "Insufficient memory": 2}


def test_other_pods_keep_a_pod_away() -> None:
    term = PodAffinityTerm((Requirement("app", "In", ("x",)),), "metadata.name")
    there = gang("busy", pod("busy-0", GpuRequest(1), "a", (0,), labels={"app": "x"}))
    shy = gang("j", pod("j-0", GpuRequest(1), constraints=Constraints(anti_affinity=(term,))))
    found = explain_gang(snapshot(there, shy, nodes=(node("a", labels={"metadata.name": "a"}),)), waiting(), "j")
    assert reasons(found) == {"node(s) didn't match pod anti-affinity rules": 1}


def test_the_plan_counts_as_carried_out() -> None:
    before = snapshot(
        gang("first", pod("first-0", GpuRequest(4))), gang("j", pod("j-0", GpuRequest(4))), nodes=(node("a"),)
    )
    devices = tuple(Device(i, 1000) for i in range(4))
    plan = replace(waiting(), binds=(Bind("ns/first-0", "ns/first", "a", devices, nominated=True),))
    assert explain_gang(before, plan, "j").fits[0].room == 0
    assert explain_gang(before, waiting(), "j").fits[0].room == 1


def test_a_limit_in_the_way_is_named_with_the_amount() -> None:
    tight = replace(LEAF, limit=(-1, -1, 4000))
    found = explain_gang(snapshot(BUSY, gang("j", pod("j-0", GpuRequest(2))), queue=tight), waiting(), "j")
    assert "Raise the limit of queue leaf by 2 GPUs (now 4 GPUs, in use 4 GPUs)" in found.changes


def test_a_quota_in_the_way_of_non_preemptible_work_is_named() -> None:
    fixed = gang("j", pod("j-0", GpuRequest(5)), preemptible=False)
    found = explain_gang(snapshot(fixed), waiting(), "j")
    assert "Raise the quota of queue leaf by 1 GPU (now 4 GPUs, in use 0 GPUs), or make the workload preemptible" in (
        found.changes
    )


def test_missing_and_gated_members_are_asked_for() -> None:
    gated = pod("j-1", GpuRequest(1), status=PodStatus.GATED)
    found = explain_gang(
        snapshot(gang("j", pod("j-0", GpuRequest(1)), gated, minimum=3)), waiting("j", Reason.NOT_READY), "j"
    )
    assert found.changes[0] == "Create 2 more pods: 3 needed, 1 ready (1 gated)"


def test_blockers_of_the_proof_are_passed_on() -> None:
    blocker = Blocker("domain", "rack-1", "4 nodes", "3 nodes")
    plan = waiting("j", Reason.TOPOLOGY, blocker)
    found = explain_gang(snapshot(gang("j", pod("j-0", GpuRequest(1)))), plan, "j")
    assert found.document()["proof"]["blocking"][0]["name"] == "rack-1"


def test_the_queue_chain_goes_up_to_the_root_with_allocation_after_the_plan() -> None:
    found = explain_gang(snapshot(BUSY, gang("j", pod("j-0", GpuRequest(1)))), waiting(), "j")
    assert [line.name for line in found.queues] == ["leaf", "root"]
    assert found.queues[0].allocated == (2000, 2 * GIB, 4000)
    assert found.queues[0].requested == (3000, 3 * GIB, 5000)


def test_a_victim_is_told_for_which_gang() -> None:
    eviction = Eviction(
        "ns/busy-0", "ns/busy", "a", "reclaim", ("ns/j",), "Pod ns/busy-0 was preempted by workload ns/j."
    )
    found = explain_gang(snapshot(BUSY), Plan(evictions=(eviction,)), "busy")
    assert found.state == "evicted"
    assert [str(event) for event in found.events] == ["Evict: Pod ns/busy-0 was preempted by workload ns/j."]


def test_a_moved_gang_is_told_in_words_of_kai() -> None:
    text = "Pod ns/busy-1 was preempted and rescheduled due to bin packing (resource consolidation) procedure"
    move = Move("ns/busy-1", "ns/busy", "b", "a", (Device(3, 1000),), ("ns/j",), message=text)
    found = explain_gang(snapshot(BUSY), Plan(moves=(move,)), "busy")
    assert found.state == "moved"
    evict, pipelined = found.events
    assert evict.message == f"{text}; it goes from b to a for ns/j"
    assert str(pipelined) == "Pipelined: Pod ns/busy-1 was pipelined to node a"


@pytest.mark.parametrize(("name", "words"), [("nobody", "no gang, pod or workload"), ("twin", "several gangs")])
def test_a_gang_that_cannot_be_found_is_an_input_error(name: str, words: str) -> None:
    identical_pods = (
        gang("twin", pod("x", GpuRequest(1))),
        replace(gang("twin", pod("y", GpuRequest(1))), namespace="other"),
    )
    with pytest.raises(InputError, match=words):
        explain_gang(snapshot(*identical_pods), Plan(), name)


def test_a_gang_of_an_unknown_queue_is_explained_without_nodes() -> None:
    lost = replace(gang("j", pod("j-0", GpuRequest(1))), queue="nowhere")
    found = explain_gang(snapshot(lost), waiting("j", Reason.QUEUE_DOES_NOT_EXIST), "j")
    assert (found.queues, found.fits, found.reason) == ((), (), "QueueDoesNotExist")
    assert found.changes == ("Create the queue nowhere, or name another",)
    near = explain_gang(snapshot(replace(lost, queue="leave")), waiting("j", Reason.QUEUE_DOES_NOT_EXIST), "j")
    assert near.changes == ("Create the queue leave, or name another: did you mean leaf?",)


def test_evicted_pods_wait_after_the_plan_and_others_stay() -> None:
    plan = Plan(evictions=(Eviction("ns/busy-0", "ns/busy", "a", "stale"),))
    after = carried_out(snapshot(BUSY), plan)
    assert [(p.status, p.node) for p in after.gangs[0].pods] == [(PodStatus.PENDING, ""), (PodStatus.RUNNING, "b")]


def test_fair_share_lines_are_parents_first() -> None:
    lines = fair_share_lines(snapshot(BUSY))
    assert [(line.name, line.depth) for line in lines] == [("root", 0), ("leaf", 1)]
    assert lines[1].fair_share[2] == 4000
    assert lines[1].document()["allocated"] == {"cpu": 2000, "memory": 2 * GIB, "gpu": 4000}


def in_zones(policy: str) -> Node:
    zones = tuple(NumaZone(f"node-{i}", (0, 0, 2000, 0)) for i in range(2))
    return node("a", numa=NumaTopology(policy, "pod", zones, (2,)))  # type: ignore[arg-type]


def test_a_node_that_cannot_align_the_pod_says_so_and_what_its_zones_have() -> None:
    tenant = pod("t", GpuRequest(1), on="a", devices=(0,), zones=(ZoneShare("node-0", (("gpu", 1000),)),))
    waiting = gang("w", pod("w", GpuRequest(2)), pod("x", GpuRequest(1)))
    cluster = snapshot(gang("t", tenant), waiting, nodes=(in_zones("single-numa-node"),))
    plan = Plan(pending=(Pending("ns/w", Reason.NOT_ENOUGH_RESOURCES, "", Proof("unknown")),))
    two, one = explain_gang(cluster, plan, "w").fits
    assert (two.room, one.room) == (1, 3)
    found = explain_gang(replace(cluster, gangs=(gang("t", tenant), gang("w", pod("w", GpuRequest(3))))), plan, "w")
    (fit,) = found.fits
    assert "cannot NUMA-align" in fit.reasons[0].kai
    assert fit.nearest == "a has no NUMA zones for 3 GPUs (single-numa-node): node-1 has 2 GPUs; node-0 has 1 GPU"


def test_events_name_the_zones() -> None:
    cluster = snapshot(gang("w", pod("w", GpuRequest(1))), nodes=(in_zones("restricted"),))
    zones = (ZoneShare("node-1", (("gpu", 1000),)),)
    plan = Plan(binds=(Bind("ns/w", "ns/w", "a", (Device(0, 1000),), zones=zones),))
    (event,) = explain_gang(cluster, plan, "w").events
    assert event.message == "Successfully assigned pod ns/w to node a at node-pool default, NUMA zone node-1"


@pytest.mark.parametrize("reason", ["TopologyNotSatisfied", "PlacementNotSatisfied", "NotEnoughResources"])
def test_a_gang_whose_pods_fit_one_by_one_is_told_what_to_loosen(reason: str) -> None:
    job = gang("j", pod("j-0", GpuRequest(1)))
    (change,) = explain_gang(snapshot(job), waiting("j", Reason(reason)), "ns/j").changes
    assert "or add nodes" in change or "a wider level" in change


def test_what_a_pod_waits_for_outside_is_to_be_mended() -> None:
    lost = Blocker("pod", "ns/j-0", "its conditions", 'persistentvolumeclaim "data" not found')
    plan = waiting("j", Reason.POD_SCHEDULING_ERRORS, lost)
    found = explain_gang(snapshot(gang("j", pod("j-0", GpuRequest(1)))), plan, "ns/j")
    assert found.changes == ('Mend what pod ns/j-0 waits for: persistentvolumeclaim "data" not found',)


def test_nodes_that_take_some_of_the_pods_are_not_said_to_admit_none() -> None:
    pods = [pod(f"j-{i}", GpuRequest(4)) for i in range(3)]
    (change,) = explain_gang(snapshot(gang("j", *pods)), waiting(), "ns/j").changes
    assert change.startswith("The nodes hold at most 2 pods of 4 GPUs")
    assert "no node" not in change
