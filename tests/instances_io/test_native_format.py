"""The native format: what is written by hand comes out as meant, and slips are named with field and cure."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kai_solver.domain import GpuRequest, PodSet, PodStatus, Snapshot, SubGroup, TopologyConstraint
from kai_solver.errors import InputError
from kai_solver.instances_io import load_native, snapshot_from_native
from kai_solver.units import CPU, GPU, MEMORY, PODS

BASE: dict[str, Any] = {
    "format": "kai-solver/v1",
    "nodes": [{"name": "node-{i}", "count": 4, "gpus": 4, "cpu": 32, "memory": "256Gi"}],
    "queues": [{"name": "team", "quota": 8}],
}


def with_gang(**gang: Any) -> Snapshot:
    return snapshot_from_native(BASE | {"gangs": [{"name": "g", "queue": "team"} | gang]})


def refusal(document: dict[str, Any]) -> InputError:
    with pytest.raises(InputError) as caught:
        load_native(document, "cluster.yaml")
    assert caught.value.file == "cluster.yaml"
    assert caught.value.cure
    return caught.value


def refused_gang(**gang: Any) -> InputError:
    return refusal(BASE | {"gangs": [{"name": "g", "queue": "team"} | gang]})


def test_nodes_are_expanded_by_their_count() -> None:
    nodes = snapshot_from_native(BASE).nodes
    assert [node.name for node in nodes] == ["node-0", "node-1", "node-2", "node-3"]
    assert nodes[0].allocatable[CPU] == 32_000
    assert nodes[0].allocatable[MEMORY] == 256 * 2**30
    assert nodes[0].allocatable[GPU] == 4000
    assert nodes[0].allocatable[PODS] == 110


def test_places_in_names_and_labels_are_filled_in() -> None:
    entry = {"name": "n{i:03}", "count": 10, "labels": {"rack": "r{i//4}", "slot": "{i%4}"}}
    nodes = snapshot_from_native(BASE | {"nodes": [entry]}).nodes
    assert (nodes[9].name, dict(nodes[9].labels)) == ("n009", {"rack": "r2", "slot": "1"})


def test_a_count_without_a_place_numbers_the_names() -> None:
    nodes = snapshot_from_native(BASE | {"nodes": [{"name": "n", "count": 2}]}).nodes
    assert [node.name for node in nodes] == ["n-0", "n-1"]


def test_a_count_of_zero_makes_nothing() -> None:
    assert snapshot_from_native(BASE | {"nodes": [{"name": "n", "count": 0}]}).nodes == ()


def test_a_node_in_mig_mode_has_slices_and_no_whole_gpus() -> None:
    entry = {"name": "n", "gpus": 2, "allocatableGpus": 0, "resources": {"nvidia.com/mig-1g.5gb": 14}}
    snapshot = snapshot_from_native(BASE | {"nodes": [entry]})
    assert snapshot.schema.mapping(snapshot.nodes[0].allocatable)["nvidia.com/mig-1g.5gb"] == 14
    assert snapshot.nodes[0].allocatable[GPU] == 0


@pytest.mark.parametrize(("memory", "mib"), [("80Gi", 81_920), (81_920, 81_920), ("81920", 81_920), ("1", 1)])
def test_gpu_memory_is_a_quantity_or_mebibytes(memory: object, mib: int) -> None:
    nodes = snapshot_from_native(BASE | {"nodes": [{"name": "n", "gpus": 1, "gpuMemory": memory}]}).nodes
    assert nodes[0].gpu_memory_mib == mib


def test_a_queue_by_one_number_is_gpus_and_the_rest_unlimited() -> None:
    [queue] = snapshot_from_native(BASE | {"queues": [{"name": "q", "quota": 2.5, "weight": 3}]}).queues
    assert queue.quota == (-1, -1, 2500)
    assert queue.limit == (-1, -1, -1)
    assert queue.weight == (1.0, 1.0, 3.0)


def test_a_queue_by_resource() -> None:
    shares = {"cpu": "500m", "memory": "1Gi", "gpu": "unlimited"}
    [queue] = snapshot_from_native(BASE | {"queues": [{"name": "q", "quota": shares, "limit": {"gpu": 0}}]}).queues
    assert queue.quota == (500, 2**30, -1)
    assert queue.limit == (-1, -1, 0)


def test_earlier_queues_and_gangs_of_the_file_are_older() -> None:
    gang = {"queue": "team", "pods": [{"gpus": 1}]}
    gangs = [{"name": "a", "count": 2} | gang, {"name": "b"} | gang]
    queues = [{"name": "team"}, {"name": "other"}]
    snapshot = snapshot_from_native(BASE | {"gangs": gangs, "queues": queues})
    ages = [gang.created_s for gang in snapshot.gangs]
    assert ages == sorted(ages)
    assert ages[-1] < snapshot.now_s
    assert snapshot.queues[0].created_s < snapshot.queues[1].created_s


def test_moments_are_epoch_seconds_or_durations_back_from_now() -> None:
    [gang] = with_gang(created="2026-11-01T08:00:00+02:00").gangs
    assert gang.created_s == datetime(2026, 11, 1, 6, tzinfo=UTC).timestamp()
    [gang] = with_gang(created="1h30m", lastStart=123.5, staleSince="61s").gangs
    assert gang.created_s == 1_700_000_000 - 5400
    assert gang.last_start_s == 123.5
    assert gang.stale_since_s == 1_700_000_000 - 61
    assert gang.last_eviction_s is None


def test_a_flat_gang_needs_all_of_its_pods_by_default() -> None:
    [gang] = with_gang(pods=[{"replicas": 3}, {"replicas": 2}]).gangs
    assert gang.root == SubGroup(children=(PodSet("default", 5),))
    assert [pod.name for pod in gang.pods] == ["g-0-0", "g-0-1", "g-0-2", "g-1-0", "g-1-1"]


def test_an_elastic_gang_says_its_minimum() -> None:
    [gang] = with_gang(minMember=2, pods=[{"replicas": 3}]).gangs
    assert next(gang.root.podsets()).min_member == 2


def test_a_tree_of_groups() -> None:
    racks = {"topology": "racks", "required": "rack"}
    groups = [
        {"name": "decode", "topology": racks, "groups": [{"name": "leader", "minMember": 1}], "minGroups": 1},
        {"name": "router", "minMember": 2},
    ]
    [gang] = with_gang(groups=groups, pods=[{"group": "leader"}, {"group": "router", "replicas": 2}]).gangs
    decode = SubGroup("decode", (PodSet("leader", 1),), 1, TopologyConstraint("racks", "rack"))
    assert gang.root == SubGroup("", (decode, PodSet("router", 2)))
    assert not gang.set_aside


def test_preemptible_follows_priority_where_not_stated() -> None:
    assert with_gang(priority=99).gangs[0].preemptible
    assert not with_gang(priority=100).gangs[0].preemptible
    assert with_gang(priority=100, preemptible=True).gangs[0].preemptible


def test_running_says_how_many_replicas_run_where() -> None:
    [gang] = with_gang(pods=[{"replicas": 4, "gpus": 1, "running": {"node-0": 2, "node-3": 1}}]).gangs
    assert [pod.node for pod in gang.pods] == ["node-0", "node-0", "node-3", ""]
    assert [pod.status for pod in gang.pods].count(PodStatus.RUNNING) == 3


def test_counted_gangs_fill_in_where_they_run() -> None:
    snapshot = with_gang(count=4, pods=[{"gpus": 1, "running": {"node-{i}": 1}}])
    assert [gang.pods[0].node for gang in snapshot.gangs] == ["node-0", "node-1", "node-2", "node-3"]


@pytest.mark.parametrize(
    ("pod", "request_"),
    [
        ({}, GpuRequest()),
        ({"gpus": 2}, GpuRequest(2)),
        ({"gpus": 0.5}, GpuRequest(1, 500)),
        ({"gpus": 0.9996}, GpuRequest(1, 999)),
        ({"gpus": 0.25, "gpuDevices": 2}, GpuRequest(2, 250)),
        ({"gpuMemory": "10Gi"}, GpuRequest(1, 0, 10_240)),
    ],
)
def test_requests_of_gpus(pod: dict[str, Any], request_: GpuRequest) -> None:
    assert with_gang(pods=[pod]).gangs[0].pods[0].gpu == request_


def test_foreign_pods_are_load_of_their_own() -> None:
    foreign = [{"name": "daemon", "cpu": 2, "status": "Running", "node": "node-1"}]
    snapshot = snapshot_from_native(BASE | {"foreign": foreign})
    assert snapshot.foreign[0].key == "default/daemon"
    assert snapshot.foreign[0].request[CPU] == 2000


def test_expectations_are_passed_on() -> None:
    loaded = load_native(BASE | {"expect": {"placed": ["g"], "evictions": 3, "source": "cp-sat"}})
    assert loaded.expect is not None
    assert (loaded.expect.placed, loaded.expect.evictions, loaded.expect.source) == (("g",), 3, "cp-sat")


def test_another_moment_can_be_given() -> None:
    loaded = load_native(BASE | {"gangs": [{"name": "g", "queue": "team", "created": "10s"}]}, now_s=500.0)
    assert loaded.snapshot.gangs[0].created_s == 490.0


@pytest.mark.parametrize(
    ("document", "field", "cure"),
    [
        ({"gngs": []}, "gngs", "gangs"),
        ({"nodes": [{"name": "n", "gpu": 1}]}, "nodes[0].gpu", "gpus"),
        ({"nodes": [{"gpus": 1}]}, "nodes[0].name", "Add it"),
        ({"nodes": [{"name": "n", "gpus": -1}]}, "nodes[0].gpus", "larger"),
        ({"nodes": [{"name": "n", "gpus": 10**9}]}, "nodes[0].gpus", "smaller"),
        ({"nodes": [{"name": "n", "memory": "-1Gi"}]}, "nodes[0].memory", "zero or more"),
        ({"nodes": [{"name": "n", "memory": "64Gb"}]}, "nodes[0].memory", "64Gi"),
        ({"nodes": [{"name": "n", "memory": "9E99"}]}, "nodes[0].memory", "suffix"),
        ({"nodes": [{"name": "n", "cpu": True}]}, "nodes[0].cpu", "500m"),
        ({"queues": [{"name": "q", "quota": "lots"}]}, "queues[0].quota.gpu", "500m"),
        ({"queues": [{"name": "q", "limit": {"gpus": 1}}]}, "queues[0].limit.gpus", "gpu"),
        ({"queues": [{"name": "q", "weight": -1}]}, "queues[0].weight.gpu", "larger"),
        ({"topologies": [{"name": "t", "levels": []}]}, "topologies[0].levels", ""),
        ({"policy": {"gpuPlacement": "both"}}, "policy.gpuPlacement", ""),
        ({"now": "soon"}, "now", ""),
        ({"format": "kai-solver/v9"}, "format", "kai-solver/v1"),
    ],
)
def test_a_slip_is_named_with_its_field_and_a_cure(document: dict[str, Any], field: str, cure: str) -> None:
    error = refusal(BASE | document)
    assert error.field == field
    assert cure in error.cure


@pytest.mark.parametrize(
    ("gang", "field"),
    [
        ({"pods": [{"gpus": 1.5}]}, "gangs[0].pods[0].gpus"),
        ({"pods": [{"gpus": 1, "gpuMemory": 10}]}, "gangs[0].pods[0].gpuMemory"),
        ({"pods": [{"gpuMemory": "lots"}]}, "gangs[0].pods[0].gpuMemory"),
        ({"pods": [{}, {"cpu": "-2"}]}, "gangs[0].pods[1].cpu"),
        ({"pods": [{"replicas": 1, "running": {"node-0": 2}}]}, "gangs[0].pods[0].running"),
        ({"pods": [{"running": {"node-0": -1}}]}, "gangs[0].pods[0].running"),
        ({"pods": [{"running": {"node-0": 1}, "node": "node-0"}]}, "gangs[0].pods[0].running"),
        ({"pods": [{"status": "Flying"}]}, "gangs[0].pods[0].status"),
        ({"created": "yesterday"}, "gangs[0].created"),
        ({"created": "2026-11-01"}, "gangs[0].created"),  # in which zone?
        ({"created": "2026-11-01T08:00:00"}, "gangs[0].created"),
        ({"minMember": -1}, "gangs[0].minMember"),
        ({"minMember": 1, "groups": [{"name": "a", "minMember": 1}]}, "gangs[0].minMember"),
        ({"groups": [{"name": "a", "minMember": 1, "groups": []}]}, "gangs[0].groups[0].minMember"),
        ({"groups": [{"name": "a", "minGroups": 1}]}, "gangs[0].groups[0].minGroups"),
        ({"groups": [{"name": "a", "min_membr": 1}]}, "gangs[0].groups[0].min_membr"),
    ],
)
def test_a_slip_in_a_gang_is_named_with_its_field(gang: dict[str, Any], field: str) -> None:
    assert refused_gang(**gang).field == field


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"nodes": [{"name": "n"}, {"name": "n"}]}, "nodes"),
        ({"queues": [{"name": "q"}, {"name": "q"}]}, "queues"),
        ({"gangs": [{"name": "g", "queue": "team"}] * 2}, "gangs"),
        ({"gangs": [{"name": "g", "queue": "team", "pods": [{"name": "p"}, {"name": "p"}]}]}, "pods"),
        ({"topologies": [{"name": "t", "levels": ["rack"]}] * 2}, "topologies"),
    ],
)
def test_a_name_that_stands_twice_is_refused(document: dict[str, Any], kind: str) -> None:
    error = refusal(BASE | document)
    assert error.field == kind
    assert "occurs 2 times" in error.problem
