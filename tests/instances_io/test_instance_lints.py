"""Lints: each rule fires where it should, and stays silent where it should."""

from dataclasses import replace

import pytest

from kai_solver.domain import (
    Gang,
    GpuRequest,
    Node,
    Pod,
    PodSet,
    PodStatus,
    Policy,
    Queue,
    Snapshot,
    SpareNodes,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
)
from kai_solver.instances_io import load_instance
from kai_solver.instances_io.lints import Lint, lint, lints
from kai_solver.units import ResourceSchema

NODE = Node("n1", (8000, 2**33, 4000, 110), gpus=4)
POD = Pod("default", "p", (1000, 0, 0, 1), GpuRequest(1))
GANG = Gang("default", "g", "team", flat_gang(1), (POD,))
TEAM = Queue("team", quota=(-1, -1, 2000))
BASE = Snapshot(0.0, ResourceSchema(), (NODE,), (TEAM,), (GANG,))


def found(**changes: object) -> list[Lint]:
    return list(lints(replace(BASE, **changes)))  # type: ignore[arg-type]


def texts(**changes: object) -> str:
    return " | ".join(f"{x.severity} {x.object}: {x.text}. {x.cure}" for x in found(**changes))


def gang_of(pods: int, gpus: int, minimum: int) -> Gang:
    members = tuple(replace(POD, name=f"p{i}", gpu=GpuRequest(gpus)) for i in range(pods))
    return replace(GANG, root=flat_gang(minimum), pods=members)


def test_a_sound_instance_has_no_lints() -> None:
    assert found() == []


def test_amounts_in_a_unit_that_was_not_meant_are_named() -> None:
    odd = replace(NODE, allocatable=(64 * 2**30 * 1000, 64, 4000, 110))
    said = texts(nodes=(odd,))
    assert "warning node n1: its memory is 64 bytes, less than 1Gi. Write it with a suffix, like 64Gi" in said
    assert "warning node n1: its CPU is 68,719,476,736 cores. Write CPU without the suffix of memory" in said
    greedy = replace(GANG, pods=(replace(POD, request=(4 * 2**20 * 1000, 0, 0, 1)),))
    assert "warning gang default/g: its CPU is 4,194,304 cores" in texts(gangs=(greedy,))


def test_a_placeholder_that_nothing_fills_is_named() -> None:
    assert "warning node a-{i}: its name has a placeholder" in texts(nodes=(replace(NODE, name="a-{i}"),))
    many = replace(GANG, pods=tuple(replace(POD, name=f"p-{{j}}-{i}") for i in range(3)))
    assert [lint.object for lint in found(gangs=(many,))] == ["pod default/p-{j}-0"]


def test_a_minimum_above_the_number_of_pods_is_named() -> None:
    assert "warning gang default/g: its minMember is 3, and it has 2 pods" in texts(gangs=(gang_of(2, 1, 3),))
    assert texts(gangs=(gang_of(2, 1, 2),)) == ""


def test_an_unknown_topology_is_named_once() -> None:
    asked = TopologyConstraint("racks", required="rack", preferred="host")
    root = replace(flat_gang(1), topology=asked)
    assert texts(gangs=(replace(GANG, root=root),)).count("which does not exist") == 1


def test_a_limit_of_zero_allows_nothing() -> None:
    assert "error queue team: its limit of gpu is 0" in texts(queues=(replace(TEAM, limit=(-1, -1, 0)),))


def test_a_limit_of_zero_at_an_ancestor_counts_and_elsewhere_does_not() -> None:
    closed = Queue("closed", limit=(0, 0, 0), quota=(-1, -1, 2000))
    assert "queue closed" in texts(queues=(closed, replace(TEAM, parent="closed")))
    assert "queue closed" not in texts(queues=(closed, TEAM))


def test_all_work_non_preemptible_is_named() -> None:
    fixed = replace(GANG, preemptible=False, priority=125)
    assert "every gang is non-preemptible (priorities 125)" in texts(gangs=(fixed,))
    assert texts(gangs=(fixed, replace(GANG, name="h", pods=()))) == ""


def test_children_promised_more_than_their_parent() -> None:
    children = (replace(TEAM, parent="root"), Queue("b", parent="root", quota=(-1, -1, 3000)))
    text = texts(queues=(Queue("root", quota=(-1, -1, 4000)), *children))
    assert "queue root: its children's quotas sum to 5 GPUs, its own is 4 GPUs" in text
    assert texts(queues=(Queue("root", quota=(-1, -1, -1)), *children)) == ""
    flat = Policy(full_hierarchy=False)
    assert "children" not in texts(queues=(Queue("root", quota=(-1, -1, 4000)), *children), policy=flat)


def test_quotas_above_the_cluster() -> None:
    assert "quotas sum to 5 GPUs, the cluster has 4 GPUs" in texts(queues=(replace(TEAM, quota=(-1, -1, 5000)),))
    assert "the cluster has 0 GPUs" in texts(nodes=(replace(NODE, schedulable=False),))


def test_no_node_advertises_a_gpu() -> None:
    bare = replace(NODE, gpus=0, allocatable=(8000, 2**33, 0, 110))
    assert "device plugin" in texts(nodes=(bare,))
    assert "device plugin" not in texts(nodes=(bare,), gangs=(replace(GANG, pods=(replace(POD, gpu=GpuRequest()),)),))


@pytest.mark.parametrize(("gang", "too_large"), [(gang_of(5, 1, 5), True), (gang_of(5, 1, 4), False)])
def test_a_gang_larger_than_the_cluster(gang: Gang, too_large: bool) -> None:
    assert ("the whole cluster has 4 GPUs" in texts(gangs=(gang,))) is too_large


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("nvidia.com/gpus", "Did you mean nvidia.com/gpu?"),
        ("rdma/hca_shared", "Did you mean rdma/hca_shared_devices?"),
        ("example.com/fpga", "Correct the name, or install what advertises it"),
    ],
)
def test_a_resource_that_no_node_has(name: str, cure: str) -> None:
    schema = ResourceSchema.with_extended([name, "rdma/hca_shared_devices"])
    has = replace(
        NODE, allocatable=schema.vector({"cpu": 8000, "gpu": 4000, "pods": 110, "rdma/hca_shared_devices": 2})
    )
    asks = replace(GANG, pods=(replace(POD, request=schema.vector({"cpu": 1000, "pods": 1, name: 4})),))
    assert texts(schema=schema, nodes=(has,), gangs=(asks,)) == (
        f"warning gang default/g: it asks for {name}, and no node has any. {cure}"
    )


def test_subgroups_that_may_be_left_out_do_not_count_as_needed() -> None:
    members = tuple(replace(POD, name=s, podset=s, gpu=GpuRequest(3)) for s in ("a", "b"))
    both = SubGroup(children=(PodSet("a", 1), PodSet("b", 1)))
    assert "needs at least 6 GPUs" in texts(gangs=(replace(GANG, root=both, pods=members),))
    assert texts(gangs=(replace(GANG, root=replace(both, min_subgroups=1), pods=members),)) == ""


def test_a_leaf_without_quota_and_weight() -> None:
    poor = replace(TEAM, quota=(-1, -1, 0))
    assert "neither a quota nor a weight" in texts(queues=(poor,))
    assert texts(queues=(replace(poor, weight=(0.0, 0.0, 1.0)),)) == ""


def test_gangs_of_queues_that_cannot_take_them() -> None:
    assert "error queue typo: 1 gang names it, and it does not exist" in texts(gangs=(replace(GANG, queue="typo"),))
    assert "does not exist. Did you mean team?" in texts(gangs=(replace(GANG, queue="teem"),))
    assert "it is not a leaf" in texts(queues=(TEAM, Queue("below", parent="team", quota=(-1, -1, 1))))


def test_unknown_topologies_and_levels() -> None:
    racks = Topology("racks", (TopologyLevel("rack"),))
    asked = replace(GANG, root=flat_gang(1, TopologyConstraint("racks", "rack")))
    labelled = (replace(NODE, labels={"rack": "r1"}),)
    assert "'racks', which does not exist" in texts(gangs=(asked,))
    assert texts(gangs=(asked,), topologies=(racks,), nodes=labelled) == ""
    near = Topology("rack", racks.levels)
    assert "which does not exist. Did you mean rack?" in texts(gangs=(asked,), topologies=(near,), nodes=labelled)
    wrong = replace(GANG, root=SubGroup(children=(PodSet("default", 1, TopologyConstraint("racks", "row")),)))
    assert "the level 'row'" in texts(gangs=(wrong,), topologies=(racks,), nodes=labelled)


def test_gpu_nodes_outside_a_topology_are_pointed_out() -> None:
    assert "info topology racks: 1 GPU nodes (n1) lack the label rack" in texts(
        topologies=(Topology("racks", (TopologyLevel("rack"),)),)
    )


def test_running_gangs_are_not_called_too_large() -> None:
    running = tuple(replace(p, status=PodStatus.RUNNING, node="n1") for p in gang_of(5, 1, 5).pods)
    assert texts(gangs=(replace(gang_of(5, 1, 5), pods=running),)) == ""


def test_lints_are_shown_as_notices_with_their_cure() -> None:
    [notice] = lint(replace(BASE, queues=(replace(TEAM, limit=(-1, -1, 0)),)))
    assert notice.kind == "warning"
    assert notice.text.endswith("Set the limit, or -1 for no limit")


@pytest.mark.slow
def test_lints_of_a_whole_trace_are_quick_and_few() -> None:
    from pathlib import Path

    recipe = Path(__file__).parents[2] / "instances" / "openb" / "seed42-102.yaml"
    assert lints(load_instance(recipe).snapshot) == ()


@pytest.mark.parametrize(("kept", "is_told"), [(1, False), (2, True), (3, True)])
def test_domains_that_keep_all_their_nodes_are_named(kept: int, is_told: bool) -> None:
    """The larger of two racks has two nodes with GPUs; others do not count."""
    racks = [("r0", 4), ("r0", 4), ("r0", 0), ("r1", 4), ("", 4)]
    nodes = tuple(
        replace(NODE, name=f"n{i}", gpus=gpus, labels={"rack": rack} if rack else {})
        for i, (rack, gpus) in enumerate(racks)
    )
    topology = Topology("t", (TopologyLevel("rack"),), spares=SpareNodes("rack", kept))
    text = f"warning topology t: of each rack {kept} nodes are kept free, and none has more than 2. Keep fewer"
    assert (text in texts(nodes=nodes, topologies=(topology,))) is is_told
    assert "kept free" not in texts(topologies=(topology,))
