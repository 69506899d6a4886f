"""Workloads given as manifests without pods, and documents as files give them."""

from typing import Any

import pytest

from kai_solver.domain import Gang
from kai_solver.kubeobjects import objects_from_documents

TEMPLATE = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
}


def manifest(kind: str, api: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "w", "namespace": "ns", **metadata}, "spec": spec}


ROLE = {"replicas": 2, "template": TEMPLATE}
RAY = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [{"groupName": "g", **ROLE, "numOfHosts": 2}]}
LWS = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}}
JOBSET = {
    "replicatedJobs": [{"name": "j", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": TEMPLATE}}}]
}

CASES = [
    ("Deployment", "apps/v1", ROLE, [1, 1]),
    ("StatefulSet", "apps/v1", ROLE, [2]),
    ("ReplicaSet", "apps/v1", {"template": TEMPLATE}, [1]),
    ("Notebook", "kubeflow.org/v1", {"template": TEMPLATE}, [1]),
    ("Job", "batch/v1", {"parallelism": 3, "completions": 2, "template": TEMPLATE}, [2]),
    ("Job", "batch/v1", {"suspend": True, "template": TEMPLATE}, []),
    ("PyTorchJob", "kubeflow.org/v1", {"pytorchReplicaSpecs": {"Master": ROLE | {"replicas": 1}, "Worker": ROLE}}, [3]),
    ("MPIJob", "kubeflow.org/v1", {"mpiReplicaSpecs": {"Launcher": ROLE, "Worker": ROLE}}, [4]),
    ("RayCluster", "ray.io/v1", RAY, [5]),
    ("RayJob", "ray.io/v1", {"rayClusterSpec": RAY}, [5]),
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", LWS, [3, 3]),
    ("JobSet", "jobset.x-k8s.io/v1alpha2", JOBSET, [4]),
]


@pytest.mark.parametrize(("kind", "api", "spec", "sizes"), CASES, ids=[f"{case[0]}-{case[3]}" for case in CASES])
def test_pending_pods_are_made_of_templates(
    build: Any, kind: str, api: str, spec: dict[str, Any], sizes: list[int]
) -> None:
    found = build.read(manifest(kind, api, spec))
    assert [len(gang.pods) for gang in found.gangs] == sizes
    pods = [pod for gang in found.gangs for pod in gang.pods]
    assert len({pod.key for pod in pods}) == sum(sizes)
    assert all(pod.gpu.devices == 2 and pod.labels["app"] == "x" for pod in pods)
    assert all(_is_complete(gang) for gang in found.gangs)
    assert any(f"{kind} ns/w: is a manifest without pods" in text for text in build.texts(found, "warning"))


def _is_complete(gang: Gang) -> bool:
    """Every podset has as many pods as it needs."""
    return all(sum(pod.podset == leaf.name for pod in gang.pods) >= leaf.min_member for leaf in gang.root.podsets())


def test_a_workload_from_a_cluster_is_no_manifest(build: Any) -> None:
    assert build.read(manifest("Job", "batch/v1", {"template": TEMPLATE}, uid="u")).gangs == ()


def test_a_manifest_that_has_pods_makes_no_more(build: Any) -> None:
    pod = build.pod("p", owner={"apiVersion": "batch/v1", "kind": "Job", "name": "w", "controller": True})
    assert len(build.one_gang(manifest("Job", "batch/v1", {"template": TEMPLATE, "parallelism": 5}), pod).pods) == 1


@pytest.mark.parametrize("replicas", [-1, "3", 10**9, 2.5])
def test_impossible_replicas_are_set_aside_by_field(build: Any, replicas: Any) -> None:
    found = build.read(manifest("Deployment", "apps/v1", {"replicas": replicas, "template": TEMPLATE}))
    assert found.gangs == ()
    assert any(text.startswith("Deployment ns/w: spec.replicas") for text in build.texts(found, "set-aside"))


def test_objects_that_say_nothing_to_a_scheduler_are_named(build: Any) -> None:
    found = build.read(*({"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{i}"}} for i in range(7)))
    assert any(text.startswith("Service: ") and "s0" in text and "2 more" in text for text in build.texts(found))


def test_lists_are_opened_at_any_depth() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    bare = {"metadata": {"name": "m"}}
    documents = [
        ("a.yaml", {"apiVersion": "v1", "kind": "List", "items": [node, {"kind": "List", "items": [node]}]}),
        ("b.yaml", {"apiVersion": "v1", "kind": "NodeList", "items": [bare]}),
        ("c.json", [node, None]),
        ("d.yaml", None),
    ]
    found = objects_from_documents(documents)
    assert [value["metadata"]["name"] for value in found.nodes] == ["n", "n", "m", "n"]
    assert found.notices == ()


@pytest.mark.parametrize(
    "document", [3, "text", {"a": 1}, {"kind": ""}, {"kind": "Pod"}, {"kind": "Pod", "metadata": []}]
)
def test_what_is_no_object_is_named_with_its_file(document: Any) -> None:
    found = objects_from_documents([("odd.yaml", document)])
    (notice,) = found.notices
    assert (notice.kind, notice.object) == ("set-aside", "odd.yaml")
    assert "indentation" in notice.text


def test_a_kind_of_another_group_is_not_taken_for_ours() -> None:
    queue = {"apiVersion": "example.com/v1", "kind": "Queue", "metadata": {"name": "q"}}
    found = objects_from_documents([("f", queue)])
    assert (found.queues, len(found.other)) == ((), 1)


def test_a_manifest_without_a_creation_time_is_as_new_as_the_snapshot(build: Any) -> None:
    old = build.pod("old", {"metadata": {"creationTimestamp": "1970-01-02T00:00:00Z"}}, gpus=1)
    found = build.read(old, manifest("Job", "batch/v1", {"template": TEMPLATE}), build.pod("bare", gpus=1))
    created_s = {gang.pods[0].name: gang.created_s for gang in found.gangs}
    assert created_s == {"old": 86_400.0, "w-0": build.now_s, "bare": build.now_s}
