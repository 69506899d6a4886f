"""Pods without PodGroups: one test at least per family."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kai_solver.domain import Gang, PodSet, SubGroup
from kai_solver.errors import InputError
from kai_solver.kubeobjects import KubeSettings
from kai_solver.kubeobjects.grouping import BUILT_IN, Group, Member, by_priority, registry


def shape(gang: Gang) -> dict[str, int]:
    return {leaf.name: leaf.min_member for leaf in gang.root.podsets()}


def thing(kind: str, api: str, spec: dict[str, Any], name: str = "owner", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "uid": "u-owner", **metadata},
    } | {"spec": spec}


def test_a_plain_pod_is_a_gang_of_its_own(build: Any) -> None:
    found = build.read(build.pod("a"), build.pod("b"))
    assert [(gang.name, len(gang.pods), shape(gang)) for gang in found.gangs] == [
        ("pg-a-uid-a", 1, {"default": 1}),
        ("pg-b-uid-b", 1, {"default": 1}),
    ]


def test_a_static_pod_of_a_node_is_plain(build: Any) -> None:
    assert build.one_gang(build.pod("a", owner=build.owner("Node", "n", "v1"))).name == "pg-a-uid-a"


def test_the_name_of_a_pod_group_is_one_that_servers_take(build: Any) -> None:
    uid = "0" * 36
    for name, kept in (("a" * 213, "a" * 213), ("a" * 253, "a" * 213), ("a" * 211 + "-.b", "a" * 211)):
        pod = build.pod(name, {"metadata": {"uid": uid}})
        assert build.one_gang(pod).name == f"pg-{kept}-{uid}"


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "SomethingOfMine"])
def test_any_other_owner_makes_one_gang_that_needs_one_pod(build: Any, kind: str) -> None:
    owner = build.owner(kind, "set", "apps/v1")
    gang = build.one_gang(*(build.pod(f"p{i}", owner=owner) for i in range(3)))
    assert (gang.name, len(gang.pods), shape(gang)) == ("pg-set-u-owner", 3, {"default": 1})
    assert gang.priority == 50


@pytest.mark.parametrize("with_deployment", [True, False], ids=["chain known", "by template hash"])
def test_a_deployments_pods_are_gangs_of_their_own_with_the_priority_of_inference(
    build: Any, with_deployment: bool
) -> None:
    owner = build.owner("ReplicaSet", "rs", "apps/v1", "u-rs")
    labels = {} if with_deployment else {"pod-template-hash": "x"}
    pods = [build.pod(f"p{i}", owner=owner, labels=labels) for i in range(2)]
    reference = {"ownerReferences": [build.owner("Deployment", "d", "apps/v1", "u-d")]}
    replica_set = thing("ReplicaSet", "apps/v1", {}, "rs", **reference) | {}
    replica_set["metadata"]["uid"] = "u-rs"
    found = build.read(*pods, *([replica_set] if with_deployment else []))
    assert [(gang.name, gang.priority, gang.preemptible) for gang in found.gangs] == [
        ("pg-p0-uid-p0", 125, False),
        ("pg-p1-uid-p1", 125, False),
    ]


def test_a_job_needs_one_pod_or_its_batch_minimum(build: Any) -> None:
    owner = build.owner("Job", "j")
    plain = build.one_gang(build.pod("a", owner=owner), build.pod("b", owner=owner))
    assert (plain.name, shape(plain)) == ("pg-j-u-owner", {"default": 1})
    asked = {"kai.scheduler/batch-min-member": "2"}
    assert shape(build.one_gang(build.pod("a", owner=owner, annotations=asked))) == {"default": 2}


def test_jobs_of_one_cron_job_are_gangs_of_their_own(build: Any) -> None:
    reference = {"ownerReferences": [build.owner("CronJob", "cron", uid="u-cron")]}
    jobs = [thing("Job", "batch/v1", {}, f"j{i}", **reference) for i in range(2)]
    for index, job in enumerate(jobs):
        job["metadata"]["uid"] = f"u{index}"
    pods = [build.pod(f"p{i}", owner=build.owner("Job", f"j{i}", uid=f"u{i}")) for i in range(2)]
    assert [gang.name for gang in build.read(*pods, *jobs).gangs] == ["pg-j0-u0", "pg-j1-u1"]


@pytest.mark.parametrize(("members", "size"), [(4, "4"), (3, "4")], ids=["complete", "too few"])
def test_job_size_is_needed_at_once_also_while_pods_are_missing(build: Any, members: int, size: str) -> None:
    labels = {"kai.nvidia.com/job-id": "j", "kai.nvidia.com/job-size": size, "kai.nvidia.com/job-index": "0"}
    gang = build.one_gang(*(build.pod(f"p{i}", labels=labels) for i in range(members)))
    assert (gang.name, len(gang.pods), shape(gang), gang.set_aside) == ("j", members, {"default": 4}, "")


def test_a_job_id_wins_over_owners_and_stays_in_its_namespace(build: Any) -> None:
    labels = {"kai.nvidia.com/job-id": "j"}
    pods = [
        build.pod("a", labels=labels, owner=build.owner("Job", "x")),
        build.pod("b", labels=labels, owner=build.owner("Job", "y")),
        build.pod("c", {"metadata": {"namespace": "other"}}, labels=labels),
    ]
    assert [(g.key, shape(g)) for g in build.read(*pods).gangs] == [
        ("ns/j", {"default": 2}),
        ("other/j", {"default": 1}),
    ]


@pytest.mark.parametrize("sizes", [("3", "4"), ("many", "many"), ("0", "0")])
def test_a_job_that_contradicts_itself_is_set_aside_with_the_reason(build: Any, sizes: Sequence[str]) -> None:
    pods = [
        build.pod(f"p{i}", labels={"kai.nvidia.com/job-id": "j", "kai.nvidia.com/job-size": size})
        for i, size in enumerate(sizes)
    ]
    found = build.read(*pods)
    (gang,) = found.gangs
    assert "job size" in gang.set_aside
    assert len(gang.pods) == 2
    assert any("PodGroup ns/j: " in text for text in build.texts(found, "set-aside"))


def replicas(**counts: int) -> dict[str, Any]:
    return {role: {"replicas": count} for role, count in counts.items()}


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("PyTorchJob", {"pytorchReplicaSpecs": replicas(Master=1, Worker=3)}, {"master": 1, "worker": 3}),
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs": replicas(Master=1, Worker=3), "elasticPolicy": {"minReplicas": 2}},
            {"master": 1, "worker": 1},
        ),
        ("PyTorchJob", {"pytorchReplicaSpecs": replicas(Worker=3)}, {"worker": 3}),
        ("TFJob", {"tfReplicaSpecs": replicas(PS=2, Worker=4)}, {"default": 6}),
        (
            "TFJob",
            {
                "tfReplicaSpecs": replicas(PS=2, Worker=4),
                "runPolicy": {"schedulingPolicy": {"minAvailable": 5}},
            },
            {"default": 5},
        ),
        ("XGBoostJob", {"xgbReplicaSpecs": replicas(Master=1, Worker=2)}, {"default": 3}),
        ("JAXJob", {"jaxReplicaSpecs": replicas(Worker=2)}, {"default": 2}),
        ("MPIJob", {"mpiReplicaSpecs": replicas(Launcher=1, Worker=2)}, {"default": 3}),
        (
            "MPIJob",
            {"mpiReplicaSpecs": replicas(Launcher=1, Worker=2), "launcherCreationPolicy": "WaitForWorkersReady"},
            {"default": 2},
        ),
    ],
)
def test_kubeflow_jobs_by_their_replicas(build: Any, kind: str, spec: dict[str, Any], expected: dict[str, int]) -> None:
    pod = build.pod("w", owner=build.owner(kind, api="kubeflow.org/v1"))
    gang = build.one_gang(pod, thing(kind, "kubeflow.org/v1", spec))
    assert shape(gang) == expected
    assert gang.pods[0].podset in expected


def test_a_training_job_without_its_owner_needs_the_pods_that_are_there(build: Any) -> None:
    owner = build.owner("PyTorchJob", api="kubeflow.org/v1")
    label = "training.kubeflow.org/replica-type"
    pods = [build.pod("m", owner=owner, labels={label: "master"})]
    pods += [build.pod(f"w{i}", owner=owner, labels={label: "worker"}) for i in range(2)]
    gang = build.one_gang(*pods)
    assert shape(gang) == {"master": 1, "worker": 2}
    assert {pod.name: pod.podset for pod in gang.pods} == {"m": "master", "w0": "worker", "w1": "worker"}


def test_workers_in_segments(build: Any) -> None:
    owner = build.owner("PyTorchJob", api="kubeflow.org/v1")
    asked = {
        "kai.scheduler/segment-size": "2",
        "kai.scheduler/segment-topology-required-placement": "rack",
        "kai.scheduler/topology": "t",
    }
    spec = {"pytorchReplicaSpecs": replicas(Master=1, Worker=6), "elasticPolicy": {"minReplicas": 4}}
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "3"}
    pod = build.pod("w3", owner=owner, labels=labels, annotations=asked)
    gang = build.one_gang(pod, thing("PyTorchJob", "kubeflow.org/v1", spec))
    assert shape(gang) == {"master": 1, "worker-0": 2, "worker-1": 1, "worker-2": 0}
    assert gang.pods[0].podset == "worker-1"
    workers = gang.root.children[1]
    assert isinstance(workers, SubGroup)
    first = workers.children[0]
    assert isinstance(first, PodSet)
    assert first.topology is not None
    assert (first.topology.topology, first.topology.required) == ("t", "rack")


RAY = {
    "workerGroupSpecs": [
        {"groupName": "big", "replicas": 3, "minReplicas": 2, "numOfHosts": 2},
        {"groupName": "small", "replicas": 3},
    ]
}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("RayCluster", RAY), ("RayJob", {"rayClusterSpec": RAY}), ("RayService", {"rayClusterConfig": RAY})],
)
def test_ray_needs_its_head_and_the_minimum_of_every_group(build: Any, kind: str, spec: dict[str, Any]) -> None:
    owner = build.owner(kind, api="ray.io/v1")
    pods = [
        build.pod("h", owner=owner, labels={"ray.io/node-type": "head"}),
        build.pod("w", owner=owner, labels={"ray.io/node-type": "worker", "ray.io/group": "big"}),
    ]
    gang = build.one_gang(*pods, thing(kind, "ray.io/v1", spec))
    assert shape(gang) == {"headgroup": 1, "big": 4, "small": 3}
    assert {pod.name: pod.podset for pod in gang.pods} == {"h": "headgroup", "w": "big"}


def test_ray_without_its_owner_counts_its_pods(build: Any) -> None:
    owner = build.owner("RayCluster", api="ray.io/v1")
    pods = [build.pod("h", owner=owner, labels={"ray.io/node-type": "head"})]
    pods += [build.pod(f"w{i}", owner=owner, labels={"ray.io/group": "g"}) for i in range(2)]
    assert shape(build.one_gang(*pods)) == {"g": 2, "headgroup": 1}


LWS = "leaderworkerset.sigs.k8s.io/"


def lws_pod(build: Any, group: int, index: int, **more: Any) -> dict[str, Any]:
    labels = {LWS + "name": "set", LWS + "group-index": str(group), LWS + "worker-index": str(index)}
    owner = build.owner("LeaderWorkerSet", "set", "leaderworkerset.x-k8s.io/v1")
    pod: dict[str, Any] = build.pod(f"p{group}-{index}", labels=labels, owner=owner, **more)
    return pod


def test_each_replica_of_a_leader_worker_set_is_a_gang(build: Any) -> None:
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 3}}
    owner = thing("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", spec, "set")
    pods = [lws_pod(build, group, index) for group in range(2) for index in range(3)]
    found = build.read(*pods, owner)
    assert [gang.name for gang in found.gangs] == ["pg-set-u-owner-group-0", "pg-set-u-owner-group-1"]
    assert [shape(gang) for gang in found.gangs] == [{"leader": 1, "workers": 2}] * 2
    assert {pod.name: pod.podset for pod in found.gangs[0].pods} == {
        "p0-0": "leader",
        "p0-1": "workers",
        "p0-2": "workers",
    }


@pytest.mark.parametrize(("phase", "workers"), [("Pending", 0), ("Running", 2)])
def test_a_set_that_starts_with_its_leader_needs_the_workers_once_it_runs(build: Any, phase: str, workers: int) -> None:
    spec = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3}}
    owner = thing("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", spec, "set")
    leader = lws_pod(build, 0, 0, phase=phase, **({"node": "n"} if phase == "Running" else {}))
    assert shape(build.one_gang(leader, lws_pod(build, 0, 1), owner)) == {"leader": 1, "workers": workers}


JOBSET = "jobset.sigs.k8s.io/"


def jobset_pod(build: Any, job: str, index: int, pod: int) -> dict[str, Any]:
    labels = {JOBSET + "jobset-name": "set", JOBSET + "replicatedjob-name": job, JOBSET + "job-index": str(index)}
    found: dict[str, Any] = build.pod(f"{job}-{index}-{pod}", labels=labels, owner=build.owner("Job", f"{job}-{index}"))
    return found


def test_a_job_set_is_one_gang_with_a_leaf_per_replica(build: Any) -> None:
    pods = [jobset_pod(build, "w", index, pod) for index in range(2) for pod in range(3)]
    pods.append(jobset_pod(build, "driver", 0, 0))
    gang = build.one_gang(*pods)
    assert gang.name == "pg-jobset-set"
    assert shape(gang) == {"driver-replica-0": 1, "w-replica-0": 3, "w-replica-1": 3}
    assert gang.root.min_subgroups == 2
    assert {pod.podset for pod in gang.pods} == set(shape(gang))


@pytest.mark.parametrize(
    ("spec", "annotations", "at_once"),
    [
        ({}, {}, 2),
        ({"startupPolicy": {"startupPolicyOrder": "InOrder"}}, {}, 1),
        ({}, {"kai.scheduler/batch-min-member": "1"}, 1),
        ({}, {"kai.scheduler/batch-min-member": "9"}, 2),
    ],
)
def test_a_job_set_by_its_spec(build: Any, spec: dict[str, Any], annotations: dict[str, str], at_once: int) -> None:
    jobs = [
        {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 3}}},
        {"name": "d", "template": {"metadata": {"annotations": {"kai.scheduler/batch-min-member": "2"}}, "spec": {}}},
    ]
    job_set = thing("JobSet", "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": jobs, **spec}, annotations=annotations)
    job = thing(
        "Job", "batch/v1", {}, "w-0", ownerReferences=[build.owner("JobSet", "owner", "jobset.x-k8s.io/v1alpha2")]
    )
    job["metadata"]["uid"] = "u-job"
    labels = {JOBSET + "jobset-name": "owner", JOBSET + "replicatedjob-name": "w", JOBSET + "job-index": "1"}
    gang = build.one_gang(build.pod("p", labels=labels, owner=build.owner("Job", "w-0", uid="u-job")), job_set, job)
    assert shape(gang) == {"w-replica-0": 3, "w-replica-1": 3, "d-replica-0": 2}
    assert gang.root.min_subgroups == at_once
    assert gang.pods[0].podset == "w-replica-1"


def test_a_spark_application_is_one_gang(build: Any) -> None:
    labels = {"spark-app-name": "app", "spark-app-selector": "spark-123"}
    gang = build.one_gang(build.pod("driver", labels=labels), build.pod("exec", labels=labels))
    assert (gang.name, len(gang.pods), shape(gang)) == ("spark-123", 2, {"default": 1})


def test_an_owner_that_cannot_be_read_sets_its_gang_aside(build: Any) -> None:
    pod = build.pod("w", owner=build.owner("TFJob", api="kubeflow.org/v1"))
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": "three"}}}
    gang = build.one_gang(pod, thing("TFJob", "kubeflow.org/v1", spec))
    assert "tfReplicaSpecs.Worker.replicas" in gang.set_aside


def test_the_queue_is_the_owners_then_the_pods_then_the_projects_then_the_namespaces(build: Any) -> None:
    label = "kai.scheduler/queue"
    owner = thing("Job", "batch/v1", {}, labels={label: "of-owner"})
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": {label: "of-namespace"}}}

    def queue(labels: dict[str, str], *more: Any, settings: KubeSettings | None = None) -> str:
        gang: Gang = build.one_gang(build.pod(labels=labels, owner=build.owner("Job")), *more, settings=settings)
        return gang.queue

    both = {label: "of-pod", "project": "team"}
    assert queue(both, owner, namespace) == "of-owner"
    assert queue(both, namespace) == "of-pod"
    assert queue({"project": "team"}, namespace) == "team"
    assert queue({}, namespace) == "of-namespace"
    assert queue({}) == "default-queue"
    settings = KubeSettings(queue_label_key="my/queue", default_queue="rest")
    assert queue({"my/queue": "mine", label: "x"}, settings=settings) == "mine"
    assert queue({label: "x"}, settings=settings) == "rest"


def test_who_named_the_queue_is_kept_for_people(build: Any) -> None:
    by_label = build.one_gang(build.pod(labels={"kai.scheduler/queue": "x"}))
    assert by_label.queue_source == "label kai.scheduler/queue of the pods"
    assert build.one_gang(build.pod_group()).queue_source == "spec.queue of its PodGroup"
    assert build.one_gang(build.pod()).queue_source == "no object names one"


def test_a_pod_without_a_queue_is_told_so(build: Any) -> None:
    assert any("queue default-queue" in text for text in build.texts(build.read(build.pod()), "warning"))


def test_priority_preemptibility_topology_and_delays_come_from_owner_or_pod(build: Any) -> None:
    labels = {"priorityClassName": "build", "kai.scheduler/preemptibility": "preemptible"}
    annotations = {
        "kai.scheduler/topology": "t",
        "kai.scheduler/topology-required-placement": "rack",
        "kai.scheduler/preemption-delay": "30s",
        "kai.scheduler/staleness-grace-period": "-1s",
    }
    owner = thing("Job", "batch/v1", {}, labels=labels, annotations=annotations)
    gang = build.one_gang(build.pod(owner=build.owner("Job")), owner)
    assert (gang.priority, gang.preemptible, gang.preemption_delay_s, gang.staleness_grace_s) == (100, True, 30.0, -1.0)
    assert gang.root.topology is not None
    assert (gang.root.topology.topology, gang.root.topology.required) == ("t", "rack")
    by_pod = build.one_gang(build.pod("p", {"spec": {"priorityClassName": "inference"}}, owner=build.owner("Job")))
    assert by_pod.priority == 125


def test_a_pod_that_skips_the_grouper_waits_for_a_group(build: Any) -> None:
    found = build.read(build.pod(annotations={"kai.scheduler/skip-podgrouper": "true"}))
    assert found.gangs == ()
    assert any("waits for a PodGroup" in text for text in build.texts(found))


class PairGrouper:
    """What another package might bring: pods of one pair wait for each other."""

    name = "pairs"
    priority = 1500

    def claim(self, member: Member) -> str | None:
        return member.pod.labels.get("example.com/pair")

    def group(self, members: Sequence[Member]) -> Group:
        return Group(min_member=2)


class Point:
    """An entry point that loads ``what``."""

    def __init__(self, what: Any) -> None:
        self.value, self.what = "example:grouper", what

    def load(self) -> Any:
        return self.what


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(what: Any) -> None:
        monkeypatch.setattr(registry, "entry_points", lambda group: [Point(what)])
        registry.groupers.cache_clear()

    yield install
    registry.groupers.cache_clear()


def test_another_package_can_bring_a_grouper(build: Any, entry_points: Any) -> None:
    entry_points(PairGrouper)
    labels = {"example.com/pair": "x", "kai.nvidia.com/job-id": "j"}
    gang = build.one_gang(build.pod("a", labels=labels), build.pod("b", labels=labels))
    assert (gang.name, shape(gang)) == ("x", {"default": 2})


def explode() -> Any:
    raise RuntimeError("broken package")


@pytest.mark.parametrize("what", [explode, dict])
def test_a_broken_grouper_is_refused_by_name(build: Any, entry_points: Any, what: Any) -> None:
    entry_points(what)
    with pytest.raises(InputError, match="example:grouper"):
        build.read(build.pod())


def test_groupers_are_asked_by_priority_whatever_their_order() -> None:
    assert by_priority(tuple(reversed(BUILT_IN))) == by_priority(BUILT_IN)
    asked = [grouper.name for grouper in by_priority(BUILT_IN)]
    assert (asked[0], asked[-1]) == ("job-id", "default")


def configured(types: Any, name: str = "defaults") -> list[dict[str, Any]]:
    args = {"defaultPrioritiesConfigMapName": "defaults", "defaultPrioritiesConfigMapNamespace": "kai"}
    config = {"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"}}
    text = types if isinstance(types, str) else json.dumps(types)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kai"}}
    return [config | {"spec": {"podGrouper": {"args": args}}}, config_map | {"data": {"types": text}}]


def test_kinds_may_be_given_priority_and_preemptibility(build: Any) -> None:
    types = [
        {"typeName": "Job", "group": "batch", "priorityName": "build", "preemptibility": "preemptible"},
        {"typeName": "Job", "priorityName": "inference"},
        {"typeName": "Deployment", "group": "apps", "priorityName": "train"},
    ]
    objects = configured(types)

    def of(owner: dict[str, Any], **more: Any) -> tuple[int, bool]:
        gang = build.one_gang(build.pod("p", owner=owner, **more), *objects)
        return gang.priority, gang.preemptible

    assert of(build.owner("Job")) == (100, True)
    assert of(build.owner("Job", api="other.io/v1")) == (125, False)
    assert of(build.owner("Deployment", api="apps/v1")) == (50, True)
    assert of(build.owner("Notebook", api="kubeflow.org/v1")) == (100, False)
    stated = {"priorityClassName": "train", "kai.scheduler/preemptibility": "non-preemptible"}
    assert of(build.owner("Job"), labels=stated) == (50, False)


@pytest.mark.parametrize(
    ("objects", "level", "said"),
    [
        (configured([], "another"), "warning", "ConfigMap kai/defaults: is named for default priorities and does not"),
        (configured("[{"), "set-aside", "ConfigMap kai/defaults: data.types: is not JSON"),
        (configured([{"priorityName": "build"}]), "set-aside", "data.types[0].typeName: is missing"),
        (configured({"Job": "build"}), "set-aside", "is not a list"),
    ],
)
def test_default_priorities_that_cannot_be_read_change_nothing(
    build: Any, objects: list[dict[str, Any]], level: str, said: str
) -> None:
    found = build.read(build.pod("p", owner=build.owner("Job")), *objects)
    assert found.gangs[0].priority == 50
    assert any(said in text for text in build.texts(found, level))


@pytest.mark.parametrize(("kind", "api"), [("SPOTRequest", "egx.nvidia.io/v1"), ("Revision", "serving.knative.dev/v1")])
def test_services_of_other_kinds_have_the_priority_of_inference(build: Any, kind: str, api: str) -> None:
    assert build.one_gang(build.pod("p", owner=build.owner(kind, api=api))).priority == 125


def test_each_group_of_a_ray_cluster_has_the_topology_of_its_template(build: Any) -> None:
    level = "kai.scheduler/topology-required-placement"
    asked = {"kai.scheduler/topology": "t", level: "rack"}
    groups = [
        {"groupName": "big", "replicas": 2, "template": {"metadata": {"annotations": asked}}},
        {"groupName": "small", "replicas": 1},
    ]
    cluster = thing("RayCluster", "ray.io/v1", {"workerGroupSpecs": groups}, annotations={})
    owner = build.owner("RayCluster", api="ray.io/v1")
    pods = [build.pod(f"w{i}", owner=owner, labels={"ray.io/group": "big"}, annotations=asked) for i in range(2)]
    gang = build.one_gang(*pods, cluster)
    levels = {leaf.name: leaf.topology and leaf.topology.required for leaf in gang.root.podsets()}
    assert levels == {"headgroup": None, "big": "rack", "small": None}
    assert gang.root.topology is None
    whole = thing("RayCluster", "ray.io/v1", {"workerGroupSpecs": groups}, annotations=asked | {level: "zone"})
    root = build.one_gang(*pods, whole).root
    assert root.topology is not None
    assert root.topology.required == "zone"
