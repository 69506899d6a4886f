"""Fit errors as KAI words them, each from a tiny cluster through the ladder (docs/kai-behaviour.md#reasons)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kai_solver.actions import Actions
from kai_solver.domain import (
    ACTIONS,
    Action,
    Constraints,
    FitError,
    Gang,
    GpuRequest,
    Node,
    Pending,
    Pod,
    PodAffinityTerm,
    PodSet,
    PodStatus,
    Policy,
    Queue,
    Reason,
    Requirement,
    Snapshot,
    SubGroup,
    Taint,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
)
from kai_solver.planning import assemble
from kai_solver.problem import build_problem
from kai_solver.reasons.pending import detailed_message, short_message
from kai_solver.units import MILLI, ResourceSchema
from tests.support.oracles import Unasked

GB = 10**9
ALLOCATE = (Action.ALLOCATE,)
RACKS = Topology("racks", (TopologyLevel("rack"),))
TWO_LEVELS = Topology("tree", (TopologyLevel("zone"), TopologyLevel("rack")))
NOBODY = "Resources were not found for pod ns/j-0 due to: "
NO_NODES = "no nodes with enough resources were found"


def node(name: str, gpus: int = 2, cores: int = 8, gb: int = 16, pods: int = 110, **more: object) -> Node:
    made = Node(name, (cores * MILLI, gb * GB, gpus * MILLI, pods), gpus=gpus, gpu_memory_mib=1000)
    return replace(made, **more)  # type: ignore[arg-type]


def pod(name: str, gpu: GpuRequest, on: str = "", cores: int = 1, gb: int = 1, **more: object) -> Pod:
    status = PodStatus.RUNNING if on else PodStatus.PENDING
    order = (0, float(name.rpartition("-")[2]), "")
    made = Pod("ns", name, (cores * MILLI, gb * GB, 0, 1), gpu, status, node=on, order=order)
    return replace(made, **more)  # type: ignore[arg-type]


def gang(name: str, *pods: Pod, root: SubGroup | None = None, **more: object) -> Gang:
    made = Gang("ns", name, "q", root or flat_gang(len(pods)), pods)
    return replace(made, **more)  # type: ignore[arg-type]


def waiting(count: int = 1, gpus: int = 1, **more: object) -> Gang:
    return gang("j", *(pod(f"j-{i}", GpuRequest(gpus)) for i in range(count)), **more)  # type: ignore[arg-type]


def snapshot(
    *gangs: Gang, nodes: Sequence[Node], queue: Queue | None = None, topologies: tuple[Topology, ...] = ()
) -> Snapshot:
    queues = (queue or Queue("q", quota=(-1, -1, -1)),)
    return Snapshot(1000.0, ResourceSchema(), tuple(nodes), queues, gangs, topologies)


def pending(snap: Snapshot, actions: Sequence[Action] = ALLOCATE, name: str = "ns/j") -> Pending:
    problem = build_problem(snap)
    plan = assemble(problem, Actions(problem, actions, Unasked()).run())
    return next(entry for entry in plan.pending if entry.gang == name)


def texts(entry: Pending) -> list[str]:
    return [text for error in entry.fit_errors for text in error.messages]


def busy(name: str, on: str, gpus: int) -> Gang:
    return gang(name, pod(f"{name}-0", GpuRequest(gpus), on))


# -- nodes by what they lack -----------------------------------------------------------------------------------------


def test_nodes_without_gpus_left_are_counted() -> None:
    entry = pending(snapshot(busy("a", "n0", 2), busy("b", "n1", 2), waiting(), nodes=[node("n0"), node("n1")]))
    assert texts(entry) == [f"{NOBODY}{NO_NODES}: 2 node(s) didn't have enough resources: GPUs."]
    assert entry.message.endswith("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")


def test_of_one_node_all_that_it_lacks_is_told_and_reasons_are_sorted() -> None:
    hog = gang("a", pod("a-0", GpuRequest(2), "n0", cores=8, gb=16))
    entry = pending(snapshot(hog, waiting(), nodes=[node("n0")]))
    assert texts(entry) == [
        (
            f"{NOBODY}{NO_NODES}: 1 node(s) didn't have enough resources: CPU cores. \n"
            "1 node(s) didn't have enough resources: GPUs. \n1 node(s) didn't have enough resources: memory."
        )
    ]
    assert "1 Insufficient cpu, 1 Insufficient memory, 1 Insufficient nvidia.com/gpu" in entry.message


def test_counts_are_sorted_as_texts() -> None:
    nodes = [node(f"n{i:02}") for i in range(12)]
    held = [busy(f"a{i}", f"n{i:02}", 2) for i in range(10)]
    hogs = [gang(f"h{i}", pod(f"h{i}-0", GpuRequest(0), f"n{i:02}", cores=8)) for i in (10, 11)]
    assert texts(pending(snapshot(*held, *hogs, waiting(), nodes=nodes))) == [
        (
            f"{NOBODY}{NO_NODES}: 10 node(s) didn't have enough resources: GPUs. \n"
            "2 node(s) didn't have enough resources: CPU cores."
        )
    ]


def test_the_gpu_resource_bears_the_clusters_own_name() -> None:
    amd = Policy(gpu_resources=("amd.com/gpu",))
    snap = replace(snapshot(busy("a", "n0", 2), waiting(), nodes=[node("n0")]), policy=amd)
    assert "1 Insufficient amd.com/gpu" in pending(snap).message
    bare = replace(snapshot(waiting(), nodes=[node("n0", 0)]), policy=amd)
    assert "No node advertises amd.com/gpu: install the device plugin" in pending(bare).message


def test_rules_of_nodes_are_told_only_of_nodes_with_room() -> None:
    tainted = replace(node("n1"), taints=(Taint("team", "a", "NoSchedule"),))
    full = replace(node("n2"), taints=(Taint("team", "a", "NoSchedule"),))
    cordoned = replace(node("n0"), schedulable=False)
    entry = pending(snapshot(busy("a", "n2", 2), waiting(), nodes=[cordoned, tainted, full]))
    assert texts(entry) == [
        (
            f"{NOBODY}{NO_NODES}: 1 node(s) didn't have enough resources: GPUs. \n"
            "1 node(s) had untolerated taint {team: a}. \n1 node(s) were unschedulable."
        )
    ]


def test_rules_between_pods_are_told_affinity_first() -> None:
    own = (Requirement("app", "In", ("x",)),)
    near = (PodAffinityTerm(own, "zone"),)
    apart = (PodAffinityTerm(own, "rack"),)
    nodes = [
        node("n0", labels={"zone": "a", "rack": "a0"}),
        node("n1", labels={"zone": "a", "rack": "a0"}),
        node("n2", labels={"zone": "b", "rack": "b0"}),
    ]
    friend = gang("f", pod("f-0", GpuRequest(0), "n0", labels={"app": "x"}))
    shy = pod("j-0", GpuRequest(1), labels={"app": "x"}, constraints=Constraints(affinity=near, anti_affinity=apart))
    assert texts(pending(snapshot(friend, gang("j", shy), nodes=nodes))) == [
        (
            f"{NOBODY}{NO_NODES}: 1 node(s) didn't match pod affinity rules. \n"
            "2 node(s) didn't match pod anti-affinity rules."
        )
    ]


def test_without_nodes_no_reason_is_made_up() -> None:
    assert texts(pending(snapshot(waiting(gpus=0), nodes=[])))[0].startswith(NOBODY)


# -- gangs and subgroups ---------------------------------------------------------------------------------------------


def test_a_gang_is_told_how_many_found_room() -> None:
    entry = pending(snapshot(waiting(3), nodes=[node("n0")]))
    assert texts(entry) == [
        (
            "Resources were found for 2 pods while 3 are required for gang scheduling. Additional pods cannot be "
            f"scheduled due to: {NO_NODES}: 1 node(s) didn't have enough resources: GPUs."
        )
    ]


def test_surplus_is_told_by_pod() -> None:
    entry = pending(snapshot(waiting(3, root=flat_gang(2)), nodes=[node("n0")]))
    expected = f"Resources were not found for pod ns/j-2 due to: {NO_NODES}"
    assert texts(entry) == [f"{expected}: 1 node(s) didn't have enough resources: GPUs."]


def test_a_subgroup_is_named() -> None:
    root = SubGroup(children=(PodSet("master", 1), PodSet("worker", 2)))
    pods = [pod(f"j-{i}", GpuRequest(1), podset="worker" if i else "master") for i in range(3)]
    entry = pending(snapshot(gang("j", *pods, root=root), nodes=[node("n0")]))
    assert texts(entry) == [
        (
            "Resources were found for 1 pods from all sub-groups while sub-group worker requires 2 pods for gang "
            "scheduling. Additional pods cannot be scheduled in this sub-group due to: "
            f"{NO_NODES}: 1 node(s) didn't have enough resources: GPUs."
        )
    ]


# -- requests larger than any node -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "nodes", "tail"),
    [
        (pod("j-0", GpuRequest(4)), [node("n0"), node("n1", 3)], "Max GPU resources % is topped at 3"),
        (pod("j-0", GpuRequest(1)), [node("n0", 0)], "No node in the default node-pool has GPU resources"),
        (pod("j-0", GpuRequest(0), cores=9), [node("n0")], "Max CPU resources % is topped at 8 cores"),
        (pod("j-0", GpuRequest(0), gb=17), [node("n0", gb=16)], "Max memory resources % is topped at 16 GB"),
    ],
)
def test_a_pod_larger_than_every_node_is_told_the_largest(asked: Pod, nodes: list[Node], tail: str) -> None:
    cpu, memory, _, _ = asked.request
    words = f"GPU: {asked.gpu.devices}, CPU: {cpu // MILLI} (cores), memory: {memory // GB} (GB), pods: 1. "
    words += tail.replace("%", "available in a single node in the default node-pool")
    entry = pending(snapshot(gang("j", asked), nodes=nodes))
    assert texts(entry) == [
        (
            f"{NOBODY}Scheduling conditions were not met for pod ns/j-0:\n"
            f"MaxNodePoolResources: The pod ns/j-0 requires {words}.\n"
        )
    ]


def test_evictions_are_not_even_tried_for_a_pod_larger_than_every_node() -> None:
    entry = pending(snapshot(busy("a", "n0", 2), waiting(gpus=4), nodes=[node("n0")]), ACTIONS)
    first, *others = entry.fit_errors
    assert first.messages[0].startswith(f"{NOBODY}Scheduling conditions were not met for pod ns/j-0:\nMax")
    plain = f"{NOBODY}The pod ns/j-0 requires GPU: 4, CPU: 1 (cores), memory: 1 (GB), pods: 1. "
    assert {error.messages[0].partition("Max ")[0] for error in others} == {plain}
    assert "size" in entry.proof.method


def test_where_no_node_has_gpus_the_cure_is_named() -> None:
    message = pending(snapshot(waiting(), nodes=[node("n0", 0)])).message
    assert "No node advertises nvidia.com/gpu or amd.com/gpu: install the device plugin, or the GPU operator" in message
    assert "install" not in pending(snapshot(busy("a", "n0", 2), waiting(), nodes=[node("n0")])).message


# -- topology --------------------------------------------------------------------------------------------------------


def racks(*gpus: int) -> list[Node]:
    return [node(f"n{i}", count, labels={"rack": f"r{i}"}) for i, count in enumerate(gpus)]


def in_a_rack(count: int, gpus: int = 1) -> Gang:
    return waiting(count, gpus, root=flat_gang(count, TopologyConstraint("racks", "rack")))


NO_RACK = "topology racks, requirement rack couldn't be satisfied for job <ns/j>"


def test_each_domain_says_how_many_pods_it_takes() -> None:
    entry = pending(snapshot(in_a_rack(3), nodes=racks(2, 1), topologies=(RACKS,)))
    assert entry.reason is Reason.TOPOLOGY
    assert detailed_message(entry.fit_errors) == (
        "\nUnable to schedule podgroup."
        "\n<r0>: node-group r0 can allocate only 2 of 3 required pods."
        "\n<r1>: node-group r1 can allocate only 1 of 3 required pods."
        f"\n{NO_RACK}."
    )


def test_where_all_domains_together_lack_room_the_cluster_is_blamed() -> None:
    entry = pending(snapshot(in_a_rack(4), nodes=racks(2, 1), topologies=(RACKS,)))
    assert texts(entry) == [f"{NO_RACK}: not enough resources in the cluster to allocate the job"]


def test_where_a_level_is_preferred_alone_no_requirement_is_named() -> None:
    root = flat_gang(4, TopologyConstraint("racks", "", "rack"))
    entry = pending(snapshot(waiting(4, root=root), nodes=racks(2, 1), topologies=(RACKS,)))
    said = (
        "topology racks couldn't be satisfied for job <ns/j>: not enough resources in the cluster to allocate the job"
    )
    assert texts(entry) == [said]


def test_where_all_nodes_are_in_one_domain_that_is_blamed() -> None:
    nodes = [node(f"n{i}", labels={"rack": "r0"}) for i in range(2)]
    entry = pending(snapshot(in_a_rack(5), nodes=nodes, topologies=(RACKS,)))
    assert texts(entry) == [f"{NO_RACK}: not enough resources in r0 to allocate the job"]


def test_inner_domains_are_named_with_those_around_them() -> None:
    nodes = [node(f"n{i}", labels={"zone": f"z{i // 2}", "rack": "r"}) for i in range(4)]
    root = flat_gang(5, TopologyConstraint("tree", "rack"))
    lines = detailed_message(pending(snapshot(waiting(5, root=root), nodes=nodes, topologies=(TWO_LEVELS,))).fit_errors)
    assert "\n<z0.r>: node-group z0.r can allocate only 4 of 5 required pods." in lines


def test_pods_that_differ_are_compared_by_their_sum() -> None:
    pods = [pod("j-0", GpuRequest(2)), pod("j-1", GpuRequest(1)), pod("j-2", GpuRequest(0))]
    root = flat_gang(3, TopologyConstraint("racks", "rack"))
    entry = pending(snapshot(gang("j", *pods, root=root), nodes=racks(2, 2), topologies=(RACKS,)))
    line = "r0 didn't have enough resource: GPUs, requested: 3, available: 2"
    assert f"\n<r0>: {line}." in detailed_message(entry.fit_errors)
    assert "2 node-group(s) didn't have enough resources: GPUs" in short_message(entry.fit_errors)


def test_a_subgroup_of_its_own_topology_is_named() -> None:
    rack = TopologyConstraint("racks", "rack")
    root = SubGroup(children=(PodSet("a", 1), PodSet("b", 3, rack)))
    pods = [pod(f"j-{i}", GpuRequest(1), podset="b" if i else "a") for i in range(4)]
    entry = pending(snapshot(gang("j", *pods, root=root), nodes=racks(2, 2), topologies=(RACKS,)))
    lines = detailed_message(entry.fit_errors)
    assert "\n<r0>: subgroup b: node-group r0 can allocate only " in lines
    assert f"\n{NO_RACK}, subgroup b." in lines


def test_only_the_domain_of_running_pods_is_asked() -> None:
    root = flat_gang(3, TopologyConstraint("racks", "rack"))
    pods = (pod("j-0", GpuRequest(1), "n0"), pod("j-1", GpuRequest(1)), pod("j-2", GpuRequest(1)))
    entry = pending(snapshot(gang("j", *pods, root=root), nodes=racks(2, 8), topologies=(RACKS,)))
    assert texts(entry) == ["node-group r0 can allocate only 1 of 2 required pods", NO_RACK]


def test_a_topology_that_does_not_exist_is_named() -> None:
    assert texts(pending(snapshot(in_a_rack(2), nodes=racks(2)))) == ["Requested topology racks does not exist"]


# -- queues ----------------------------------------------------------------------------------------------------------


def test_a_limit_is_told_before_a_quota_with_the_queues_numbers() -> None:
    queue = Queue("q", quota=(-1, -1, MILLI), limit=(-1, -1, MILLI))
    fixed = waiting(2, preemptible=False)
    (error,) = pending(snapshot(fixed, nodes=[node("n0")], queue=queue)).fit_errors
    assert error.reason == "OverLimit"
    assert error.messages == (
        (
            "q quota has reached the allowable limit of GPUs. Limit is 1 GPUs, currently 0 GPUs allocated and workload "
            "requested 2 GPUs"
        ),
    )
    assert error.queue is not None
    assert (error.queue.name, error.queue.limits, error.queue.gang_requested) == (
        "q",
        (-1, -1, MILLI),
        (2 * MILLI, 2 * GB, 2 * MILLI),
    )


def test_a_sum_of_fractions_is_written_with_all_its_decimals() -> None:
    queue = Queue("q", quota=(-1, -1, MILLI))
    pods = [pod(f"j-{i}", GpuRequest(1, 400)) for i in range(3)]
    (error,) = pending(snapshot(gang("j", *pods, preemptible=False), nodes=[node("n0")], queue=queue)).fit_errors
    assert error.messages == (
        (
            "Non-preemptible workload is over quota. Workload requested 1.2000000000000002 GPUs, but q quota is 1 "
            "GPUs, while 0 GPUs are already allocated for non-preemptible pods. "
            "Use a preemptible workload to go over quota."
        ),
    )


def test_gpu_memory_that_costs_too_much_where_there_is_room_is_told_by_node() -> None:
    queue = Queue("q", quota=(-1, -1, 400))
    nodes = [node("large", gpu_memory_mib=1000), node("small", gpu_memory_mib=500)]
    held = [busy("a", "large", 2)]
    fixed = gang("j", pod("j-0", GpuRequest(1, 0, 300)), preemptible=False)
    (text,) = texts(pending(snapshot(*held, fixed, nodes=nodes, queue=queue)))
    assert text == (
        f"{NOBODY}{NO_NODES}: 1 node does not have enough capacity. Reason: NonPreemptibleOverQuota, Details: "
        "Non-preemptible workload is over quota. Workload requested 0.6 GPUs, but q quota is 0.4 GPUs, while 0 GPUs "
        "are already allocated for non-preemptible pods. Use a preemptible workload to go over quota.."
    )


def test_gpu_memory_goes_where_its_queue_can_pay() -> None:
    queue = Queue("q", quota=(-1, -1, 400))
    nodes = [node("a-small", gpu_memory_mib=500), node("z-large", gpu_memory_mib=1000)]
    fixed = gang("j", pod("j-0", GpuRequest(1, 0, 300)), preemptible=False)
    problem = build_problem(snapshot(fixed, nodes=nodes, queue=queue))
    (bind,) = assemble(problem, Actions(problem, ALLOCATE, Unasked()).run()).binds
    assert bind.node == "z-large"


def test_a_queue_that_does_not_exist_is_named_as_kai_does() -> None:
    lost = replace(waiting(), queue="typo")
    entry = pending(snapshot(lost, nodes=[node("n0")]))
    assert detailed_message(entry.fit_errors) == "\nQueueDoesNotExist.\nQueue 'typo' does not exist."


def test_the_preemption_delay_is_told_with_its_end() -> None:
    young = waiting(preemption_delay_s=600.0, created_s=900.0, priority=60)
    entry = pending(snapshot(busy("a", "n0", 2), young, nodes=[node("n0")]), ACTIONS)
    assert [error.reason for error in entry.fit_errors] == ["PodSchedulingErrors", "PreemptionDelayNotElapsed"]
    assert entry.fit_errors[1].messages == (
        (
            "Workload is within its preemption delay window (10m0s) and may not trigger evictions before "
            "1970-01-01T00:25:00Z"
        ),
    )


# -- one refusal for many --------------------------------------------------------------------------------------------


def test_gangs_of_one_shape_share_a_refusal_and_keep_their_names() -> None:
    gangs = [gang(name, pod(f"{name}-0", GpuRequest(1))) for name in ("j", "k")]
    snap = snapshot(busy("a", "n0", 2), *gangs, nodes=[node("n0")])
    for name in ("j", "k"):
        (text,) = texts(pending(snap, name=f"ns/{name}"))
        assert text.startswith(f"Resources were not found for pod ns/{name}-0 due to: ")


def test_several_errors_have_no_reason_of_their_own() -> None:
    errors = [FitError("A", ("b",)), FitError("A", ("a",), ("z", "y"))]
    assert detailed_message(errors) == "\nUnable to schedule podgroup.\nb.\nz, y."
    assert short_message(errors) == "Unable to schedule podgroup: a. \nb."
    assert detailed_message([]) == "\nUnable to schedule podgroup."
    assert short_message([]) == "Unable to schedule podgroup"
    assert short_message([FitError("A", ("same",)), FitError("A", ("same",))]) == (
        "Unable to schedule podgroup: 2 same."
    )
