"""Pods: state, request, GPUs, place."""

from typing import Any

import pytest

from kai_solver.domain import GpuRequest, PodStatus, Policy
from kai_solver.kubeobjects import KubeSettings

LONG_AGO, JUST_NOW = "1970-01-12T13:44:39Z", "1970-01-12T13:46:35Z"  # 121 s and 5 s before the builder's now
GROUP = {"pod-group-name": "pg"}


def deleted(moment: str) -> dict[str, Any]:
    return {"metadata": {"deletionTimestamp": moment}}


def binding(pod: str = "p", node: str = "n", **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {"name": pod, "namespace": "ns"},
        "spec": {"podName": pod, "selectedNode": node, "selectedGPUGroups": ["g1"]},
        "status": status,
    }


@pytest.mark.parametrize(
    ("phase", "more", "expected"),
    [
        ("Running", {}, PodStatus.RUNNING),
        ("Running", deleted(JUST_NOW), PodStatus.RELEASING),
        ("Running", deleted(LONG_AGO), PodStatus.STUCK_IN_RELEASING),
        ("Pending", {}, PodStatus.BOUND),
        ("Pending", deleted(LONG_AGO), PodStatus.RELEASING),
        ("Succeeded", {}, PodStatus.SUCCEEDED),
        ("Failed", {}, PodStatus.FAILED),
        ("Unknown", {}, PodStatus.STUCK_IN_RELEASING),
    ],
)
def test_status_of_a_pod_with_a_node(build: Any, phase: str, more: Any, expected: PodStatus) -> None:
    pod = build.one_pod(build.pod("p", more, node="n", phase=phase))
    assert pod.status is expected
    assert pod.node == ("n" if expected.holds_resources else "")


def test_a_waiting_pod_is_pending_and_with_gates_gated(build: Any) -> None:
    assert build.one_pod(build.pod()).status is PodStatus.PENDING
    gated = build.one_pod(build.pod("p", {"spec": {"schedulingGates": [{"name": "g"}]}}))
    assert gated.status is PodStatus.GATED


def test_a_bind_request_makes_a_pod_binding_even_when_gated(build: Any) -> None:
    pod = build.one_pod(build.pod("p", {"spec": {"schedulingGates": [{"name": "g"}]}}), binding())
    assert (pod.status, pod.node, pod.gpu_groups) == (PodStatus.BINDING, "n", ("g1",))


@pytest.mark.parametrize(
    "request_",
    [
        binding(phase="Failed"),
        binding(node="gone"),
        {**binding(), "metadata": {"namespace": "ns", "ownerReferences": [{"kind": "Pod", "uid": "an earlier one"}]}},
    ],
    ids=["failed for good", "node gone", "of an earlier pod of that name"],
)
def test_a_bind_request_that_is_over_does_not_count(build: Any, request_: dict[str, Any]) -> None:
    assert build.one_pod(build.pod(), request_).status is PodStatus.PENDING


def test_a_failed_bind_request_with_attempts_left_counts(build: Any) -> None:
    request = binding(phase="Failed", failedAttempts=1)
    request["spec"]["backoffLimit"] = 3
    assert build.one_pod(build.pod(), request).status is PodStatus.BINDING


def test_a_pod_deleted_before_it_had_a_node_takes_no_part_and_is_named(build: Any) -> None:
    found = build.read(build.pod("p", deleted(JUST_NOW)))
    assert [gang.pods for gang in found.gangs] == [()]
    assert any("ns/p" in text and "deleted" in text for text in build.texts(found))


def test_a_pod_requests_its_containers_together_or_the_largest_step_before(build: Any) -> None:
    spec = {
        "containers": [container("1", "1Gi"), container("500m", "1Gi")],
        "initContainers": [container("1", "6Gi"), {**container("250m", "1Gi"), "restartPolicy": "Always"}],
        "overhead": {"cpu": "10m", "memory": "1Mi"},
    }
    pod = build.one_pod(build.pod("p", {"spec": spec}))
    assert pod.request == (1_750 + 10, 6 * 2**30 + 2**20, 0, 1)


def container(cpu: str, memory: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}


def test_an_init_container_runs_beside_the_sidecars_before_it(build: Any) -> None:
    sidecar = {**container("1", "1Gi"), "restartPolicy": "Always"}
    spec = {"containers": [container("1", "1Gi")], "initContainers": [sidecar, container("3", "1Gi")]}
    assert build.one_pod(build.pod("p", {"spec": spec})).request[:2] == (4_000, 2 * 2**30)


def test_a_limit_without_a_request_is_a_request(build: Any) -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": 3}}}]}
    pod = build.one_pod(build.pod("p", {"spec": spec}))
    assert (pod.request[0], pod.gpu) == (2_000, GpuRequest(3))


def test_a_pod_that_asks_for_nothing_is_best_effort(build: Any) -> None:
    pod = build.one_pod(build.pod("p", {"spec": {"containers": [{"name": "c"}]}}))
    assert pod.request == (0, 0, 0, 1)
    assert pod.gpu == GpuRequest(0)


def test_gpus_of_every_vendor_are_gpus(build: Any) -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"amd.com/gpu": "2"}}}]}
    assert build.one_pod(build.pod("p", {"spec": spec})).gpu == GpuRequest(2)
    settings = KubeSettings(policy=Policy(gpu_resources=("example.com/gpu",)))
    spec = {"containers": [{"name": "c", "resources": {"limits": {"example.com/gpu": "2"}}}]}
    assert build.one_pod(build.pod("p", {"spec": spec}), settings=settings).gpu == GpuRequest(2)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"gpu-fraction": "0.5"}, GpuRequest(1, 500)),
        ({"gpu-fraction": "0.3333"}, GpuRequest(1, 334)),
        ({"gpu-fraction": "0.9995"}, GpuRequest(1, 999)),
        ({"gpu-fraction": "1E-999999999"}, GpuRequest(1, 1)),
        ({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "3"}, GpuRequest(3, 250)),
        ({"gpu-memory": "2000"}, GpuRequest(1, 0, 2000)),
        ({"gpu-memory": "2000", "gpu-fraction-num-devices": "2"}, GpuRequest(2, 0, 2000)),
    ],
)
def test_shared_gpus_by_annotation(build: Any, annotations: dict[str, str], expected: GpuRequest) -> None:
    assert build.one_pod(build.pod(annotations=annotations)).gpu == expected


@pytest.mark.parametrize(
    "annotations",
    [
        {"gpu-fraction": "1"},
        {"gpu-fraction": "0"},
        {"gpu-fraction": "half"},
        {"gpu-fraction": "nan"},
        {"gpu-fraction": "1e999999999"},
        {"gpu-memory": "-5"},
        {"gpu-memory": "2Gi"},
        {"gpu-fraction": "0.5", "gpu-memory": "100"},
        {"gpu-fraction-num-devices": "2"},
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"},
    ],
)
def test_what_admission_refuses_is_set_aside_by_name(build: Any, annotations: dict[str, str]) -> None:
    found = build.read(build.pod(annotations=annotations), build.pod("good"))
    assert [pod.name for gang in found.gangs for pod in gang.pods] == ["good"]
    assert any(text.startswith("Pod ns/p: metadata.annotations.gpu-") for text in build.texts(found, "set-aside"))


def test_a_pod_whose_gpu_memory_is_in_bytes_waits_with_a_warning_of_the_unit(build: Any) -> None:
    found = build.read(build.pod(annotations={"gpu-memory": "8589934592"}))
    assert [pod.gpu for gang in found.gangs for pod in gang.pods] == [GpuRequest(1, 0, 8_589_934_592)]
    (text,) = (text for text in build.texts(found, "warning") if "gpu-memory" in text)
    assert "gpu-memory is in MiB, and no GPU has 8589934592 MiB" in text
    assert 'If these are bytes, write "8192"' in text


def test_a_fraction_beside_whole_gpus_is_set_aside(build: Any) -> None:
    found = build.read(build.pod(gpus=1, annotations={"gpu-fraction": "0.5"}))
    assert found.gangs == ()


def test_where_no_gpu_is_shared_a_part_of_one_waits_with_the_cure(build: Any) -> None:
    settings = KubeSettings(no_shares="set the image")
    part = build.pod("part", annotations={"gpu-fraction": "0.5"})
    found = build.read(part, build.pod("whole", gpus=1), settings=settings)
    blocked = {gang.pods[0].name: gang.pods[0].constraints.blocked for gang in found.gangs}
    assert blocked == {"part": ("set the image",), "whole": ()}
    assert build.read(part).gangs[0].pods[0].constraints.blocked == ()


def test_mig_slices_are_resources_that_the_queue_pays_by_slice(build: Any) -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/mig-2g.10gb": "3"}}}]}
    found = build.read(build.pod("p", {"spec": spec}))
    (pod,) = found.gangs[0].pods
    assert pod.quota_gpu_milli == 6_000
    assert found.schema.mapping(pod.request)["nvidia.com/mig-2g.10gb"] == 3
    assert pod.gpu.devices == 0


def test_gpu_groups_come_from_labels_and_devices_from_reservation_pods(build: Any) -> None:
    labels = {"runai-gpu-group/b": "b", "runai-gpu-group/a": "a"}
    annotations = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}
    pod = build.pod(labels=labels, annotations=annotations, node="n", phase="Running")
    assert build.one_pod(pod).gpu_groups == ("a", "b")
    assert build.one_pod(pod).devices == ()
    reserved = [reservation("a", "4"), reservation("b", "1")]
    assert build.one_pod(pod, *reserved).devices == (4, 1)


def reservation(group: str, index: str) -> dict[str, Any]:
    metadata = {
        "name": f"reserve-{group}",
        "namespace": "kai-resource-reservation",
        "labels": {"runai-gpu-group": group},
        "annotations": {"run.ai/reserve_for_gpu_index": index},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}, "status": {}}


def test_nomination_is_kept(build: Any) -> None:
    assert build.one_pod(build.pod("p", {"status": {"nominatedNodeName": "n"}})).nominated_node == "n"


def test_order_is_leading_role_then_task_priority_then_age(build: Any) -> None:
    pods = [
        build.pod("late", {"metadata": {"creationTimestamp": "1970-01-02T00:00:00Z"}}, annotations=GROUP),
        build.pod("early", {"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}}, annotations=GROUP),
        build.pod("urgent", labels={"kai.scheduler/task-priority": "7"}, annotations=GROUP),
        build.pod("head", labels={"ray.io/node-type": "head"}, annotations=GROUP),
    ]
    gang = build.one_gang(build.pod_group(), *pods)
    assert [pod.name for pod in sorted(gang.pods, key=lambda pod: pod.order)] == ["head", "urgent", "early", "late"]


def test_running_pods_of_other_schedulers_are_load_and_waiting_ones_are_nothing(build: Any) -> None:
    other = {"spec": {"schedulerName": "default-scheduler"}}
    found = build.read(
        build.pod("runs", other, node="n", phase="Running", gpus=2),
        build.pod("done", other, node="n", phase="Succeeded"),
        build.pod("waits", other),
    )
    assert [pod.name for pod in found.foreign] == ["runs"]
    assert found.foreign[0].gpu == GpuRequest(2)
    assert found.gangs == ()


def test_kais_own_utility_pods_are_neither_load_nor_gangs(build: Any) -> None:
    other = {"spec": {"schedulerName": "default-scheduler"}}
    reserved = build.pod("r", {**other, "metadata": {"namespace": "kai-resource-reservation"}}, node="n", gpus=1)
    scaling = build.pod("s", {"metadata": {"namespace": "kai-scale-adjust"}}, gpus=1)
    found = build.read(reserved, scaling)
    assert (found.foreign, found.gangs) == ((), ())


def test_a_running_pod_on_an_unknown_node_is_set_aside_and_its_gang_with_it(build: Any) -> None:
    found = build.read(
        build.pod_group(spec={"queue": "q", "minMember": 2}),
        build.pod("lost", node="gone", phase="Running", annotations=GROUP),
        build.pod("here", node="n", phase="Running", annotations=GROUP),
    )
    (gang,) = found.gangs
    assert [pod.name for pod in gang.pods] == ["here"]
    assert "ns/lost" in gang.set_aside
    assert "gone" in gang.set_aside
    assert any("Pod ns/lost: runs on node 'gone'" in text for text in build.texts(found, "set-aside"))


def test_pods_on_nodes_of_other_pools_are_left_to_them_in_silence(build: Any) -> None:
    labels = {"metadata": {"labels": {"kai.scheduler/node-pool": "a100"}}}
    found = build.read(build.node("n"), build.node("far", labels), build.pod(node="far", phase="Running"))
    assert [node.name for node in found.nodes] == ["n"]
    assert [gang.pods for gang in found.gangs] == [()]
    assert not build.texts(found, "set-aside")


def test_the_shard_of_a_pool_sees_its_own_nodes_queues_and_gangs_only(build: Any) -> None:
    labels = {"metadata": {"labels": {"kai.scheduler/node-pool": "a100"}}}
    objects = [
        build.node("n"),
        build.node("far", labels),
        build.queue("q"),
        build.queue("r", more=labels),
        build.pod_group("pg", more=labels),
        build.pod_group("near"),
        build.pod(annotations=GROUP),
    ]
    inside = build.read(*objects, settings=KubeSettings(node_pool="a100"))
    outside = build.read(*objects)
    assert ([n.name for n in inside.nodes], [q.name for q in inside.queues]) == (["far"], ["r"])
    assert [(g.name, len(g.pods)) for g in inside.gangs] == [("pg", 1)]
    assert ([n.name for n in outside.nodes], [q.name for q in outside.queues]) == (["n"], ["q"])
    assert [(g.name, len(g.pods)) for g in outside.gangs] == [("near", 0)]
    assert not build.texts(outside, "set-aside")


def test_a_manifest_without_a_scheduler_is_ours_and_that_is_said(build: Any) -> None:
    found = build.read(build.pod("p", {"spec": {"schedulerName": None}}))
    assert len(found.gangs) == 1
    assert any("ns/p" in text and "schedulerName" in text for text in build.texts(found))


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ([], False),
        ([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}], True),
        ([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"}], False),
        ([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n", "controller": True}], False),
    ],
)
def test_only_a_controller_makes_a_pod_again(build: Any, owners: list[dict[str, Any]], expected: bool) -> None:
    pod = build.one_pod(
        build.pod("p", {"metadata": {"ownerReferences": owners}}, node="n"), build.pod_group(), build.queue()
    )
    assert pod.is_replaced is expected


def test_a_pod_that_is_where_it_was_promised_a_place_is_promised_none(build: Any) -> None:
    """Some API servers keep the field once the pod is bound; when it leaves, it does not hold its own place."""
    nominated = {"status": {"nominatedNodeName": "n"}}
    for node, expected in (("n", ""), ("n2", "n"), ("", "n")):
        pod = build.one_pod(build.pod("p", nominated, node=node), build.node("n"), build.node("n2"), build.queue())
        assert pod.nominated_node == expected
