"""Segments of PyTorchJobs and LeaderWorkerSets (docs/kai-behaviour.md#segments)."""

from types import ModuleType
from typing import Any, NoReturn

import pytest

from kai_solver.domain import Gang, PodSet, SubGroup
from kai_solver.kubeobjects import Recall, membership, objects_from_documents, snapshot_from_objects
from kai_solver.kubeobjects.grouping import Claimed, jobset, lws, segments

LWS = "leaderworkerset.sigs.k8s.io/"
SIZE = "kai.scheduler/segment-size"
LEVELS = {"kai.scheduler/segment-topology-required-placement": "rack", "kai.scheduler/topology": "t"}


def leaves(gang: Gang) -> dict[str, int]:
    return {leaf.name: leaf.min_member for leaf in gang.root.podsets()}


def tops(gang: Gang) -> list[str]:
    return [child.name for child in gang.root.children]


def constraint(gang: Gang, name: str) -> tuple[str, str, str]:
    part = next(child for child in gang.root.children if child.name == name)
    assert part.topology is not None
    return part.topology.topology, part.topology.required, part.topology.preferred


def job_of(completions: int, name: str = "job", namespace: str = "ns") -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "uid": f"u-{name}"},
        "spec": {
            "completionMode": "Indexed",
            "completions": completions,
            "template": {"metadata": {"annotations": {SIZE: "2"}}},
        },
    }


def job_set(*replicas: int) -> dict[str, Any]:
    jobs = [{"name": f"r{index}", "replicas": number} for index, number in enumerate(replicas)]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "ns", "uid": "u-owner"},
        "spec": {"replicatedJobs": jobs},
    }


def reference(owner: dict[str, Any]) -> dict[str, Any]:
    metadata = owner["metadata"]
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True} | {
        name: metadata[name] for name in ("name", "uid")
    }


def leader_worker_set(
    size: int, segment: int | None, kind: str = "", *, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    policy: dict[str, Any] = {"subGroupSize": segment} if segment else {}
    policy |= {"subGroupPolicyType": kind} if kind else {}
    template = {"metadata": {"annotations": spec.pop("template", LEVELS)}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "set", "namespace": "ns", "uid": "u-owner", "annotations": annotations or {}},
        "spec": {"leaderWorkerTemplate": {"size": size, "subGroupPolicy": policy, "workerTemplate": template}, **spec},
    }


def group_of(build: Any, owner: dict[str, Any], **leader: Any) -> Gang:
    reference = build.owner("LeaderWorkerSet", "set", "leaderworkerset.x-k8s.io/v1")
    pods = []
    for index in range(owner["spec"]["leaderWorkerTemplate"]["size"]):
        labels = {LWS + "name": "set", LWS + "group-index": "0", LWS + "worker-index": str(index)}
        pods.append(build.pod(f"p{index}", labels=labels, owner=reference, **(leader if index == 0 else {})))
    gang: Gang = build.one_gang(*pods, owner)
    return gang


def seats(gang: Gang) -> str:
    return " ".join(pod.podset.replace("segment-", "") for pod in sorted(gang.pods, key=lambda pod: pod.name))


def test_the_leader_is_an_extra_pod_of_the_first_segment_where_workers_fill_segments(build: Any) -> None:
    gang = group_of(build, leader_worker_set(5, 2))
    assert leaves(gang) == {"leader": 1, "workers": 2, "segment-1": 2}
    assert tops(gang) == ["segment-0", "segment-1"]
    assert seats(gang) == "leader workers workers 1 1"
    assert constraint(gang, "segment-0") == constraint(gang, "segment-1") == ("t", "rack", "")


def test_the_leader_has_a_place_of_the_first_segment_where_all_pods_fill_segments(build: Any) -> None:
    gang = group_of(build, leader_worker_set(6, 2, "LeaderWorker"))
    assert leaves(gang) == {"leader": 1, "workers": 1, "segment-1": 2, "segment-2": 2}
    assert seats(gang) == "leader workers 1 1 2 2"


def test_the_last_segment_may_be_smaller(build: Any) -> None:
    gang = group_of(build, leader_worker_set(6, 4))
    assert leaves(gang) == {"leader": 1, "workers": 3, "segment-1": 2}


def test_an_excluded_leader_is_a_part_of_its_own(build: Any) -> None:
    gang = group_of(build, leader_worker_set(5, 2, "LeaderExcluded"))
    assert leaves(gang) == {"leader": 1, "segment-0": 2, "segment-1": 2}
    assert seats(gang) == "leader 0 0 1 1"
    assert tops(gang) == ["leader", "segment-0", "segment-1"]


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (leader_worker_set(6, 2, "LeaderExcluded"), "LeaderExcluded with 5 workers in segments of 2"),
        (leader_worker_set(4, 1), "1 is not a segment size for 4 replicas"),
        (leader_worker_set(4, 5), "5 is not a segment size for 4 replicas"),
        (leader_worker_set(4, None, annotations={SIZE: "two"}), "'two' is not a number"),
        (leader_worker_set(4, None, template={SIZE: "half"}), "'half' is not a segment size"),
    ],
)
def test_impossible_segments_set_the_gang_aside(build: Any, owner: dict[str, Any], said: str) -> None:
    gang = group_of(build, owner)
    assert said in gang.set_aside
    assert len(gang.pods) == owner["spec"]["leaderWorkerTemplate"]["size"]


@pytest.mark.parametrize(
    ("owner", "module"),
    [
        (job_of(completions=20_000), segments),
        (leader_worker_set(20_000, 2), lws),
        (job_set(*[2000] * 50), jobset),
        ({**job_set(), "spec": {}}, jobset),
    ],
)
def test_more_subgroups_than_are_read_are_not_made_either(
    build: Any, monkeypatch: pytest.MonkeyPatch, owner: dict[str, Any], module: ModuleType
) -> None:
    """Nor is a gang that was set aside looked into again while it is the same."""

    def made(*_: object, **__: object) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(module, "Part", made)
    labels = {f"{LWS}name": "set"} if module is lws else {jobset.JOB_INDEX: "9999"}
    replicas = [{**labels, jobset.REPLICATED_JOB: f"r{i}"} for i in range(3)]
    pods = [build.pod(f"p{i}", labels=stated, owner=reference(owner)) for i, stated in enumerate(replicas)]
    objects, recall = objects_from_documents(("f", one) for one in (build.node(), *pods, owner)), Recall()
    snapshot = snapshot_from_objects(objects, now_s=build.now_s, recall=recall)
    (gang,) = snapshot.gangs
    assert "at most 2,000 are read" in gang.set_aside
    assert len(gang.pods) == 3
    monkeypatch.setattr(Claimed, "group", made)
    assert snapshot_from_objects(objects, now_s=build.now_s, recall=recall) == snapshot


def test_workloads_of_a_namespace_share_what_subgroups_may_be_empty(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each Job here has 11 subgroups, of which nine are too many for its pod."""
    monkeypatch.setattr(membership, "MOST_EMPTY_SUBGROUPS", 20)
    recall, jobs = Recall(), [job_of(20, name) for name in "abcd"]
    pods = {job["metadata"]["name"]: build.pod(f"p{job['metadata']['name']}", owner=reference(job)) for job in jobs}
    elsewhere = job_of(20, "e", "other")
    pods["e"] = build.pod("pe", {"metadata": {"namespace": "other"}}, owner=reference(elsewhere))

    def aside() -> str:
        """Names of the Jobs that are set aside, the same with a memory and without one."""
        objects = objects_from_documents(("f", one) for one in (build.node(), *pods.values(), *jobs, elsewhere))
        snapshot = snapshot_from_objects(objects, now_s=build.now_s, recall=recall)
        assert snapshot == snapshot_from_objects(objects, now_s=build.now_s)
        told = [gang for gang in snapshot.gangs if "have no pods yet" in gang.set_aside]
        assert len([notice for notice in snapshot.notices if notice.kind == "set-aside"]) == len(told)
        return "".join(gang.pods[0].name.removeprefix("p") for gang in told)

    assert aside() == aside() == "cd"
    pods["d"] = build.pod("pd", owner=reference(jobs[3]), node="n", phase="Running")
    assert aside() == "c", "what runs has its place"
    del pods["a"]
    assert aside() == "", "there is room again"


def test_the_sets_own_size_wins_then_its_annotation_then_the_templates(build: Any) -> None:
    both: dict[str, Any] = {"annotations": {SIZE: "3"}, "template": {SIZE: "4"}}
    assert "segment-2" in leaves(group_of(build, leader_worker_set(6, 2, **both)))
    assert leaves(group_of(build, leader_worker_set(6, None, **both)))["segment-1"] == 3
    assert leaves(group_of(build, leader_worker_set(6, None, template={SIZE: "4"})))["segment-1"] == 2


def test_without_a_topology_segments_are_held_to_nothing(build: Any) -> None:
    levels = {key: value for key, value in LEVELS.items() if key != "kai.scheduler/topology"}
    gang = group_of(build, leader_worker_set(5, 2, template=levels))
    assert [child.topology for child in gang.root.children] == [None, None]


@pytest.mark.parametrize(("leader", "workers"), [({}, 0), ({"phase": "Running", "node": "n"}, 2)])
def test_a_set_that_awaits_its_leader_needs_segments_once_it_runs(
    build: Any, leader: dict[str, Any], workers: int
) -> None:
    gang = group_of(build, leader_worker_set(5, 2, startupPolicy="LeaderReady"), **leader)
    assert leaves(gang) == {"leader": 1, "workers": workers, "segment-1": workers}


def pytorch(build: Any, workers: int, template: dict[str, str], *, masters: int = 1, least: int | None = None) -> Gang:
    specs: dict[str, Any] = {"Worker": {"replicas": workers, "template": {"metadata": {"annotations": template}}}}
    specs |= {"Master": {"replicas": masters}} if masters else {}
    elastic = {"elasticPolicy": {"minReplicas": least}} if least else {}
    metadata = {"name": "job", "namespace": "ns", "uid": "u", "annotations": {"kai.scheduler/topology": "of-the-job"}}
    api = "kubeflow.org/v1"
    job = {"apiVersion": api, "kind": "PyTorchJob", "metadata": metadata}
    job["spec"] = {"pytorchReplicaSpecs": specs, **elastic}
    kind = "training.kubeflow.org/"
    owner = build.owner("PyTorchJob", "job", api, "u")
    pods = [build.pod("m", labels={kind + "replica-type": "master"}, owner=owner)] if masters else []
    for index in range(workers):
        labels = {kind + "replica-type": "worker", kind + "replica-index": str(index)}
        pods.append(build.pod(f"w{index}", labels=labels, owner=owner, annotations=template))
    gang: Gang = build.one_gang(*pods, job)
    return gang


def test_segments_beyond_the_minimum_are_not_needed(build: Any) -> None:
    gang = pytorch(build, 20, {SIZE: "4"}, least=13)
    counts = {"worker-0": 4, "worker-1": 4, "worker-2": 4, "worker-3": 0, "worker-4": 0}
    assert leaves(gang) == {"master": 1, **counts}
    assert {pod.podset for pod in gang.pods if pod.name in ("w16", "w19")} == {"worker-4"}


def test_the_templates_topology_comes_before_the_jobs(build: Any) -> None:
    (workers,) = (c for c in pytorch(build, 4, {SIZE: "2", **LEVELS}).root.children if isinstance(c, SubGroup))
    assert {(s.topology.topology, s.topology.required) for s in workers.children if s.topology} == {("t", "rack")}
    levels = {key: value for key, value in LEVELS.items() if "required" in key}
    (workers,) = (c for c in pytorch(build, 4, {SIZE: "2", **levels}).root.children if isinstance(c, SubGroup))
    assert {s.topology.topology for s in workers.children if s.topology} == {"of-the-job"}


def test_workers_without_a_master_are_segmented_too(build: Any) -> None:
    assert leaves(pytorch(build, 4, {SIZE: "2"}, masters=0)) == {"worker-0": 2, "worker-1": 2}
    assert leaves(pytorch(build, 4, {}, masters=0)) == {"worker": 4}


@pytest.mark.parametrize("size", ["1", "5", "0", "-2", "two"])
def test_an_impossible_size_sets_the_job_aside(build: Any, size: str) -> None:
    gang = pytorch(build, 4, {SIZE: size})
    assert f"'{size}' is not a segment size for 4 replicas" in gang.set_aside


def test_a_size_on_the_master_is_not_the_workers(build: Any) -> None:
    gang = pytorch(build, 4, {})
    assert leaves(gang) == {"master": 1, "worker": 4}
    assert all(isinstance(child, PodSet) for child in gang.root.children)


def indexed_job(build: Any, count: int, mode: str = "Indexed", **annotations: str) -> Gang:
    template = {"metadata": {"annotations": LEVELS | {SIZE: "2"}}, "spec": {}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": "ns", "uid": "u-owner", "annotations": annotations},
        "spec": {"completions": count, "parallelism": count, "completionMode": mode, "template": template},
    }
    reference = build.owner("Job", "job", "batch/v1")
    index = "batch.kubernetes.io/job-completion-index"
    pods = [build.pod(f"p{i}", labels={index: str(i)}, owner=reference) for i in range(count)]
    gang: Gang = build.one_gang(*pods, job)
    return gang


def test_an_indexed_job_has_segments_in_order_of_its_index(build: Any) -> None:
    gang = indexed_job(build, 5, **{"kai.scheduler/batch-min-member": "5"})
    assert leaves(gang) == {"worker-0": 2, "worker-1": 2, "worker-2": 1}
    assert [pod.podset for pod in sorted(gang.pods, key=lambda pod: pod.name)] == [
        "worker-0", "worker-0", "worker-1", "worker-1", "worker-2",
    ]  # fmt: skip
    [worker] = gang.root.children
    assert isinstance(worker, SubGroup)
    assert all(leaf.topology is not None and leaf.topology.required == "rack" for leaf in worker.children)


def test_segments_of_a_job_beyond_its_minimum_need_no_pod(build: Any) -> None:
    assert leaves(indexed_job(build, 4)) == {"worker-0": 1, "worker-1": 0}


def test_a_job_without_an_index_has_no_segments(build: Any) -> None:
    assert leaves(indexed_job(build, 4, mode="NonIndexed")) == {"default": 1}
