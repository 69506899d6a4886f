"""Any snapshot written as objects reads as one that a scheduler cannot tell from it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.domain import (
    Constraints,
    Gang,
    GpuRequest,
    Node,
    OneTenant,
    Pod,
    PodAffinityTerm,
    PodSet,
    PodStatus,
    Queue,
    Requirement,
    Snapshot,
    SpareNodes,
    SpreadConstraint,
    SubGroup,
    Taint,
    Toleration,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
)
from kai_solver.errors import InputError
from kai_solver.kubeobjects import objects_from_snapshot, snapshot_from_objects
from kai_solver.kubeobjects.anchors import anchored
from kai_solver.units import ResourceSchema

NOW_S = 1_000_000.0
SCHEMA = ResourceSchema.with_extended(["nvidia.com/mig-1g.5gb", "rdma/hca"])
OURS = ("kai.scheduler/subgroup-name", "kai.scheduler/task-priority", "runai-gpu-group")


def again(snapshot: Snapshot) -> Snapshot:
    return snapshot_from_objects(objects_from_snapshot(snapshot), now_s=snapshot.now_s)


def without_added_labels(pod: Pod) -> Pod:
    """Labels that KAI's objects need are added on the way out; selectors do not ask for them."""
    return replace(pod, labels={key: value for key, value in pod.labels.items() if not key.startswith(OURS)})


def plain(snapshot: Snapshot) -> Snapshot:
    gangs = tuple(replace(gang, pods=tuple(map(without_added_labels, gang.pods))) for gang in snapshot.gangs)
    return replace(snapshot, gangs=gangs, foreign=tuple(map(without_added_labels, snapshot.foreign)), notices=())


def requirement() -> st.SearchStrategy[Requirement]:
    keys, values = st.sampled_from(["zone", "example.com/rack"]), st.sampled_from([("a",), ("a", "b")])
    return st.builds(Requirement, keys, st.sampled_from(["In", "NotIn"]), values)


terms = st.lists(requirement(), min_size=1, max_size=2, unique_by=lambda r: r.key).map(tuple)
constraints = st.builds(
    Constraints,
    node_terms=st.one_of(
        st.just(()),
        st.lists(terms, min_size=1, max_size=2).map(lambda entry: (tuple(entry),)),
    ),
    preferred=st.lists(st.tuples(st.integers(1, 100), terms), max_size=1).map(tuple),
    tolerations=st.lists(st.builds(Toleration, st.just("k"), st.just("Exists")), max_size=1).map(tuple),
    affinity=st.lists(
        st.builds(PodAffinityTerm, terms, st.just("host"), st.sampled_from([(), ("*",), ("a", "b")])), max_size=1
    ).map(tuple),
    anti_affinity=st.lists(st.builds(PodAffinityTerm, terms, st.just("host")), max_size=1).map(tuple),
    spread=st.lists(
        st.builds(
            SpreadConstraint, terms, st.just("zone"), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans()
        ),
        max_size=1,
    ).map(tuple),
    preferred_pods=st.lists(
        st.tuples(st.sampled_from([-7, 7]), st.builds(PodAffinityTerm, terms, st.just("host"))), max_size=1
    ).map(tuple),
    preferred_spread=st.lists(st.builds(SpreadConstraint, terms, st.just("zone")), max_size=1).map(tuple),
    host_ports=st.sampled_from([(), ("80/TCP",), ("53/UDP/10.0.0.1", "80/TCP")]),
    blocked=st.sampled_from([(), ("a claim is missing", "so is a map")]),
)
gpu_requests = st.one_of(
    st.integers(0, 8).map(GpuRequest),
    st.builds(GpuRequest, st.integers(1, 3), st.integers(1, 999)),
    st.builds(GpuRequest, st.integers(1, 3), st.just(0), st.integers(1, 80_000)),
)
moments = st.one_of(st.none(), st.integers(0, 999_999).map(float))


@st.composite
def pods(draw: st.DrawFn, name: str, podsets: list[str]) -> Pod:
    status = draw(st.sampled_from(list(PodStatus)))
    mig = draw(st.integers(0, 2))
    gpu = draw(gpu_requests)
    groups = draw(st.sampled_from([(), ("g1",), ("g1", "g2")])) if gpu.is_shared and status.holds_resources else ()
    return Pod(
        namespace="ns",
        name=name,
        request=(draw(st.integers(0, 64_000)), draw(st.integers(0, 2**40)), 0, 1, mig, draw(st.integers(0, 2))),
        gpu=gpu,
        status=status,
        podset=draw(st.sampled_from(podsets)),
        node="n0" if status.holds_resources else "",
        devices=draw(st.sampled_from([(), (0,), (3, 1)])),
        gpu_groups=groups,
        run_time_s=draw(st.sampled_from([None, 90.0, 7200.5])),
        nominated_node=draw(st.sampled_from(["", "n1"])),
        quota_gpu_milli=1000 * mig,
        constraints=draw(constraints),
        labels=draw(st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]))),
        order=(draw(st.integers(-5, 5)), draw(st.integers(0, 10**6)) / 1.0, f"uid-{name}"),
    )


def topology_constraints() -> st.SearchStrategy[TopologyConstraint | None]:
    return st.one_of(
        st.none(), st.just(TopologyConstraint("t", "rack", "host")), st.just(TopologyConstraint("t", "rack"))
    )


@st.composite
def trees(draw: st.DrawFn) -> SubGroup:
    if draw(st.booleans()):
        return flat_gang(draw(st.integers(0, 3)), draw(topology_constraints()))
    leaves = [PodSet(name, draw(st.integers(0, 3)), draw(topology_constraints())) for name in ("a", "b", "c")]
    inner = SubGroup("inner", tuple(leaves[:2]), draw(st.sampled_from([None, 0, 1])), draw(topology_constraints()))
    return SubGroup("", (inner, leaves[2]), draw(st.sampled_from([None, 1])), draw(topology_constraints()))


@st.composite
def gangs(draw: st.DrawFn, name: str) -> Gang:
    root = draw(trees())
    podsets = [leaf.name for leaf in root.podsets()]
    return Gang(
        namespace="ns",
        name=name,
        queue=draw(st.sampled_from(["q", "typo"])),
        root=root,
        pods=tuple(draw(pods(f"{name}-{index}", podsets)) for index in range(draw(st.integers(0, 3)))),
        priority=draw(st.integers(-10, 1000)),
        preemptible=draw(st.booleans()),
        never_preempts=draw(st.booleans()),
        created_s=draw(st.integers(0, 10**6)) / 1.0,
        last_start_s=draw(moments),
        last_eviction_s=draw(moments),
        stale_since_s=draw(moments),
        preemption_delay_s=draw(st.sampled_from([0.0, 90.0, 0.5])),
        staleness_grace_s=draw(st.sampled_from([None, -1.0, 30.0])),
        uid=f"uid-{name}",
        may_use_spares=draw(st.booleans()),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    nodes = tuple(
        Node(
            name=f"n{index}",
            allocatable=(64_000, 2**39, 1000 * (gpus := draw(st.integers(0, 8))), 110, 7, draw(st.integers(1, 4))),
            gpus=gpus,
            gpu_memory_mib=81_500,
            labels={"nvidia.com/gpu.memory": "81559", "zone": draw(st.sampled_from(["a", "b"]))},
            taints=draw(st.sampled_from([(), (Taint("k", "v", "NoExecute"),)])),
            schedulable=draw(st.booleans()),
            gpu_uuids=draw(st.sampled_from([(), ("GPU-1", "GPU-2")])),
            gpu_topology="dgx1-v100-8" if gpus == 8 else "",
            drain_at_s=draw(moments),
        )
        for index in range(2)
    )
    amounts = st.tuples(*(st.integers(-1, 10**12) for _ in range(3)))
    queue = Queue("q", "", draw(st.integers(0, 200)), 5.0, draw(amounts), draw(amounts), (0.0, 1.5, 40.0), None, 60.0)
    root = replace(queue, name="root", usage=(0.25, 0.0, 1 / 3), display_name="Root", uid="u")
    foreign = [draw(pods(f"f{index}", ["default"])) for index in range(2)]
    rule = draw(st.sampled_from([None, OneTenant("r"), OneTenant("host", "label:team")]))
    topology = Topology(
        "t",
        (TopologyLevel("rack", "r"), TopologyLevel("host")),
        rule,
        draw(st.sampled_from([None, SpareNodes("r", 2)])),
    )
    return Snapshot(
        now_s=NOW_S,
        schema=SCHEMA,
        nodes=nodes,
        queues=(root, replace(queue, parent="root")),
        gangs=tuple(draw(gangs(f"g{index}")) for index in range(2)),
        topologies=(topology,),
        foreign=tuple(replace(pod, order=(0, *pod.order[1:])) for pod in foreign if pod.status.holds_resources),
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(snapshots())
def test_what_goes_out_comes_back(snapshot: Snapshot) -> None:
    back = again(snapshot)
    held = replace(snapshot, gangs=anchored(snapshot.gangs))
    if held == snapshot:
        assert plain(back) == plain(snapshot)
    else:  # entries of node terms are written as one
        assert without_node_terms(plain(back)) == without_node_terms(plain(held))
    assert plain(again(back)) == plain(back)


def without_node_terms(snapshot: Snapshot) -> Snapshot:
    def bare(pod: Pod) -> Pod:
        return replace(pod, constraints=replace(pod.constraints, node_terms=()))

    gangs = tuple(replace(gang, pods=tuple(map(bare, gang.pods))) for gang in snapshot.gangs)
    return replace(snapshot, gangs=gangs)


def small(**changes: Any) -> Snapshot:
    pod = Pod("ns", "p", (1000, 2**30, 0, 1), **changes)
    gang = Gang("ns", "pg", "q", flat_gang(1), (pod,), set_aside="two sizes in one job")
    return Snapshot(0.0, ResourceSchema(), (Node("n", (4000, 2**34, 0, 10)),), (), (gang,))


def test_a_failed_gpu_goes_out_and_comes_back() -> None:
    node = Node("n0", (8000, 2**35, 7000, 110), gpus=8)
    (found,) = again(Snapshot(NOW_S, ResourceSchema(), (node,), (Queue("q"),), ())).nodes
    assert (found.gpus, found.allocatable[2]) == (8, 7000)


def test_a_gang_that_is_set_aside_stays_so() -> None:
    found = again(small())
    assert found.gangs[0].set_aside == "two sizes in one job"
    assert [notice.kind for notice in found.notices] == ["set-aside"]


def test_several_entries_of_node_terms_keep_their_meaning() -> None:
    def one(key: str, *values: str) -> tuple[Requirement, ...]:
        return (Requirement(key, "In", values),)

    entries = ((one("a", "1"),), (one("b", "1", "2"), one("c", "1")), (one("d", "1", "2"),))
    found = again(small(constraints=Constraints(node_terms=entries))).gangs[0].pods[0].constraints.node_terms
    assert found == (
        (one("a", "1"),),
        ((*one("b", "1", "2"), *one("d", "1", "2")), (*one("c", "1"), *one("d", "1", "2"))),
    )


def test_node_terms_that_would_explode_are_refused() -> None:
    pair = ((Requirement("a", "Exists"),), (Requirement("b", "Exists"),))
    with pytest.raises(InputError, match="node affinity"):
        objects_from_snapshot(small(constraints=Constraints(node_terms=(pair,) * 60)))


def test_kais_names_are_used() -> None:
    objects = objects_from_snapshot(small())
    assert objects.pods[0]["metadata"]["annotations"]["pod-group-name"] == "pg"
    assert objects.pods[0]["spec"]["schedulerName"] == "kai-scheduler"
    assert objects.pod_groups[0]["spec"]["minMember"] == 1
