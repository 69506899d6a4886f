"""Rules of single kinds of workloads, as KAI's pod grouper has them (docs/kai-behaviour.md#kinds)."""

from typing import Any

import pytest

from kai_solver.domain import Gang, SubGroup, TopologyConstraint
from kai_solver.kubeobjects import KubeSettings
from kai_solver.kubeobjects.kinddefaults import KindDefault

Object = dict[str, Any]
QUEUE = "kai.scheduler/queue"
MINIMUM = "kai.scheduler/batch-min-member"
LEVEL = "kai.scheduler/topology-required-placement"
LEAF = {"kai.scheduler/topology": "t", LEVEL: "rack"}


def made(
    kind: str, api: str, name: str = "x", spec: Object | None = None, by: Object | None = None, **more: Any
) -> Object:
    """An object with the uid ``u-<name>``, made by another one."""
    references = [reference(by)] if by else []
    metadata = {"name": name, "namespace": "ns", "uid": f"u-{name}", "ownerReferences": references, **more}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec or {}}


def reference(owner: Object) -> Object:
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    return named | {field: owner["metadata"][field] for field in ("name", "uid")}


def shape(gang: Gang) -> dict[str, int]:
    return {leaf.name: leaf.min_member for leaf in gang.root.podsets()}


# -- what stands above the owner that is grouped by --------------------------------------------------------------------


def test_steps_of_a_workflow_are_plain_pods_with_the_workflows_queue(build: Any) -> None:
    flow = made("Workflow", "argoproj.io/v1alpha1", labels={QUEUE: "team", "priorityClassName": "build"})
    own = build.pod("b", owner=reference(flow), labels={QUEUE: "own"})
    found = build.read(build.pod("a", owner=reference(flow)), own, flow).gangs
    assert [(gang.name, gang.queue, gang.priority, shape(gang)) for gang in found] == [
        ("pg-a-uid-a", "team", 100, {"default": 1}),
        ("pg-b-uid-b", "own", 100, {"default": 1}),
    ]
    assert found[0].queue_source == f"label {QUEUE} of Workflow x"


def test_a_train_job_is_its_job_set_with_what_the_train_job_states(build: Any) -> None:
    train = made("TrainJob", "trainer.kubeflow.org/v1alpha1", "t", labels={QUEUE: "team"}, annotations=LEAF)
    spec = {"replicatedJobs": [{"name": "node", "template": {"spec": {"parallelism": 2}}}]}
    job_set = made("JobSet", "jobset.x-k8s.io/v1alpha2", "s", spec, by=train)
    job = made("Job", "batch/v1", "j", by=job_set)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "0", QUEUE: "pods"}
    gang = build.one_gang(build.pod("p", owner=reference(job), labels=labels), train, job_set, job)
    assert (gang.name, gang.queue, shape(gang)) == ("pg-s-u-s", "team", {"node-replica-0": 2})
    assert gang.root.topology == TopologyConstraint("t", "rack")


def test_the_job_sets_own_word_comes_before_the_train_jobs(build: Any) -> None:
    train = made("TrainJob", "trainer.kubeflow.org/v1alpha1", "t", labels={QUEUE: "train"})
    job_set = made("JobSet", "jobset.x-k8s.io/v1alpha2", "s", {"replicatedJobs": [{"name": "n"}]}, by=train)
    job_set["metadata"]["labels"] = {QUEUE: "set"}
    assert build.one_gang(build.pod("p", owner=reference(job_set)), train, job_set).queue == "set"


def test_defaults_of_the_kind_above_count_too(build: Any) -> None:
    flow = made("Workflow", "argoproj.io/v1alpha1")
    defaults = (KindDefault("Workflow", "argoproj.io", "inference", "preemptible"), KindDefault("Pod", "", "build"))
    gang = build.one_gang(build.pod("a", owner=reference(flow)), settings=KubeSettings(kind_defaults=defaults))
    assert (gang.priority, gang.preemptible) == (125, True)


def test_a_cron_jobs_labels_are_not_its_jobs(build: Any) -> None:
    cron = made("CronJob", "batch/v1", "c", labels={QUEUE: "cron"})
    job = made("Job", "batch/v1", "j", by=cron)
    gang = build.one_gang(build.pod("p", owner=reference(job)), cron, job)
    assert (gang.name, gang.queue) == ("pg-j-u-j", "default-queue")


def test_kinds_of_another_group_that_have_the_same_name_are_strangers(build: Any) -> None:
    flow = made("Workflow", "flows.example.org/v1", "f")
    assert build.one_gang(build.pod("a", owner=reference(flow)), flow).name == "pg-f-u-f"
    job = made("Job", "batch.volcano.sh/v1alpha1", "j", annotations={MINIMUM: "3"})
    assert shape(build.one_gang(build.pod("a", owner=reference(job)), job)) == {"default": 1}


# -- unknown owners ----------------------------------------------------------------------------------------------------


def test_an_unknown_owner_that_is_there_decides(build: Any) -> None:
    mine = made("Mine", "example.org/v1", "m", labels={QUEUE: "mine"})
    job = made("PyTorchJob", "kubeflow.org/v1", "j", {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}, by=mine)
    gang = build.one_gang(build.pod("p", owner=reference(job)), mine, job)
    assert (gang.name, gang.queue, shape(gang)) == ("pg-m-u-m", "mine", {"default": 1})


def test_an_unknown_owner_of_which_nothing_can_be_known_does_not(build: Any) -> None:
    mine = made("Mine", "example.org/v1", "m")
    job = made("PyTorchJob", "kubeflow.org/v1", "j", {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}, by=mine)
    gang = build.one_gang(build.pod("p", owner=reference(job)), job)
    assert (gang.name, shape(gang)) == ("pg-j-u-j", {"worker": 3})


# -- pods that own pods ------------------------------------------------------------------------------------------------


def test_workers_of_a_leader_worker_set_belong_to_the_set_of_their_leader(build: Any) -> None:
    lws = made("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "s", {"leaderWorkerTemplate": {"size": 2}})
    lws["metadata"]["labels"] = {QUEUE: "team"}
    leaders = made("StatefulSet", "apps/v1", "s", by=lws)
    leaders["metadata"]["uid"] = "u-leaders"

    def labels(index: int) -> dict[str, str]:
        prefix = "leaderworkerset.sigs.k8s.io/"
        return {prefix + "name": "s", prefix + "group-index": "0", prefix + "worker-index": str(index)}

    leader = build.pod("s-0", owner=reference(leaders), labels=labels(0))
    workers = made("StatefulSet", "apps/v1", "s-0", by=leader)
    worker = build.pod("s-0-1", owner=reference(workers), labels=labels(1))
    gang = build.one_gang(leader, worker, lws, leaders, workers)
    assert (gang.name, gang.queue, shape(gang)) == ("pg-s-u-s-group-0", "team", {"leader": 1, "workers": 1})
    assert {pod.name: pod.podset for pod in gang.pods} == {"s-0": "leader", "s-0-1": "workers"}


def test_a_pods_children_are_in_its_gang(build: Any) -> None:
    parent = build.pod("parent", labels={QUEUE: "team"})
    gang = build.one_gang(parent, build.pod("child", owner=reference(parent)))
    assert (gang.name, gang.queue, len(gang.pods)) == ("pg-parent-uid-parent", "team", 2)


def test_an_owner_pod_that_cannot_be_read_says_nothing(build: Any) -> None:
    parent = build.pod("parent")
    parent["metadata"]["labels"] = {QUEUE: 7}
    assert build.one_gang(build.pod("child", owner=reference(parent)), parent).queue == "default-queue"


SPARK = {"spark-app-name": "app", "spark-app-selector": "spark-123"}


def test_executors_and_driver_of_spark_are_one_gang(build: Any) -> None:
    driver = build.pod("driver", labels=SPARK)
    gang = build.one_gang(driver, build.pod("exec", owner=reference(driver), labels=SPARK))
    assert (gang.name, len(gang.pods)) == ("spark-123", 2)


@pytest.mark.parametrize(("is_there", "name"), [(True, "pg-app-u-app"), (False, "spark-123")])
def test_what_the_operator_of_spark_makes_goes_by_its_application_where_that_is_there(
    build: Any, is_there: bool, name: str
) -> None:
    app = made("SparkApplication", "sparkoperator.k8s.io/v1beta2", "app")
    driver = build.pod("driver", owner=reference(app), labels=SPARK)
    executor = build.pod("exec", owner=reference(driver), labels=SPARK)
    assert build.one_gang(driver, executor, *([app] if is_there else [])).name == name


# -- kind by kind ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["many", "0", "-1", ""])
def test_a_job_with_an_impossible_minimum_is_set_aside(build: Any, text: str) -> None:
    job = made("Job", "batch/v1", annotations={MINIMUM: text})
    assert "is not a number above 0" in build.one_gang(build.pod("p", owner=reference(job)), job).set_aside


def test_the_minimum_is_the_jobs_and_not_its_templates(build: Any) -> None:
    job = made("Job", "batch/v1")
    pod = build.pod("p", owner=reference(job), annotations={MINIMUM: "3"})
    assert shape(build.one_gang(pod, job)) == {"default": 1}


def job_set_pod(build: Any, job_set: Object) -> list[Object]:
    job = made("Job", "batch/v1", "j", by=job_set, annotations={MINIMUM: "2"})
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "0"}
    return [build.pod("p", owner=reference(job), labels=labels), job, job_set]


def test_a_replicas_minimum_is_not_the_job_sets(build: Any) -> None:
    jobs = [{"name": name, "template": {"metadata": {"annotations": {MINIMUM: "2"}}}} for name in "abc"]
    gang = build.one_gang(
        *job_set_pod(build, made("JobSet", "jobset.x-k8s.io/v1alpha2", "s", {"replicatedJobs": jobs}))
    )
    assert gang.root.min_subgroups == 3
    assert shape(gang) == {f"{name}-replica-0": 2 for name in "abc"}


def test_a_replica_keeps_to_the_topology_of_its_template(build: Any) -> None:
    jobs = [
        {"name": "a", "template": {"metadata": {"annotations": LEAF}}},
        {"name": "b", "template": {"metadata": {"annotations": {LEVEL: "rack"}}}},
    ]
    gang = build.one_gang(
        *job_set_pod(build, made("JobSet", "jobset.x-k8s.io/v1alpha2", "s", {"replicatedJobs": jobs}))
    )
    levels = {leaf.name: leaf.topology for leaf in gang.root.podsets()}
    assert levels == {"a-replica-0": TopologyConstraint("t", "rack"), "b-replica-0": None}


def mpi_job() -> Object:
    specs = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}
    spec = {"mpiReplicaSpecs": specs, "launcherCreationPolicy": "WaitForWorkersReady"}
    return made("MPIJob", "kubeflow.org/v2beta1", "m", spec)


@pytest.mark.parametrize(("leaves", "needed"), [(False, 3), (True, 2)])
def test_a_launcher_that_came_late_is_needed_from_then_on(build: Any, leaves: bool, needed: int) -> None:
    labels = {"training.kubeflow.org/job-role": "launcher"}
    stamp = {"metadata": {"deletionTimestamp": "1970-01-12T13:46:39Z"}} if leaves else {}
    running = {"node": "n", "phase": "Running"}
    launcher = build.pod("l", stamp, owner=reference(mpi_job()), labels=labels, **running)
    worker = build.pod("w", owner=reference(mpi_job()))
    assert shape(build.one_gang(worker, mpi_job())) == {"default": 2}
    assert shape(build.one_gang(launcher, worker, mpi_job())) == {"default": needed}


def test_a_pytorch_job_may_have_a_master_alone(build: Any) -> None:
    job = made("PyTorchJob", "kubeflow.org/v1", spec={"pytorchReplicaSpecs": {"Master": {"replicas": 1}}})
    gang = build.one_gang(build.pod("m", owner=reference(job)), job)
    assert (shape(gang), gang.pods[0].podset) == ({"master": 1}, "master")


def ray_cluster(**group: Any) -> Object:
    return made("RayCluster", "ray.io/v1", "c", {"workerGroupSpecs": [{"groupName": "g", **group}]})


def test_a_suspended_group_of_ray_is_not_waited_for(build: Any) -> None:
    cluster = ray_cluster(replicas=3, minReplicas=2, suspended=True)
    pod = build.pod("h", owner=reference(cluster), labels={"ray.io/node-type": "head"})
    assert shape(build.one_gang(pod, cluster)) == {"headgroup": 1, "g": 0}


def test_rays_own_priority_class_comes_first(build: Any) -> None:
    cluster = ray_cluster(replicas=1)
    cluster["metadata"]["labels"] = {"ray.io/priority-class-name": "inference", "priorityClassName": "build"}
    pod = build.pod("h", owner=reference(cluster), labels={"ray.io/node-type": "head"})
    assert build.one_gang(pod, cluster).priority == 125


def test_who_hands_a_ray_job_in_waits_for_nobody(build: Any) -> None:
    ray_job = made("RayJob", "ray.io/v1", "r", labels={QUEUE: "team"})
    cluster = {**ray_cluster(replicas=1)}
    cluster["metadata"]["ownerReferences"] = [reference(ray_job)]
    job = made("Job", "batch/v1", "r-submit", by=ray_job)
    head = build.pod("h", owner=reference(cluster), labels={"ray.io/node-type": "head"})
    found = build.read(head, build.pod("s", owner=reference(job)), ray_job, cluster, job).gangs
    assert [(gang.name, gang.queue, shape(gang)) for gang in found] == [
        ("pg-r-u-r", "team", {"headgroup": 1, "g": 1}),
        ("pg-r-submit-u-r-submit", "team", {"default": 1}),
    ]


def knative(scale: str | None) -> list[Object]:
    """The chain of a Knative service, the pod's ReplicaSet in front."""
    group = "serving.knative.dev/v1"
    service = made("Service", group, "svc", labels={QUEUE: "service"})
    configuration = made("Configuration", group, "svc", by=service)
    revision = made("Revision", group, "svc-1", by=configuration, labels={QUEUE: "revision"})
    revision["metadata"]["annotations"] = {"autoscaling.knative.dev/min-scale": scale} if scale is not None else {}
    deployment = made("Deployment", "apps/v1", "svc-1-deployment", by=revision)
    return [made("ReplicaSet", "apps/v1", "svc-1-rs", by=deployment), deployment, revision, configuration, service]


@pytest.mark.parametrize(("scale", "needed"), [("3", 3), (None, 1), ("some", 1), ("0", 0)])
def test_a_knative_revision_is_a_gang_of_its_least_scale(build: Any, scale: str | None, needed: int) -> None:
    replica_set, *above = knative(scale)
    labels = {"pod-template-hash": "h", "serving.knative.dev/revision": "svc-1"}
    pods = [build.pod(f"p{index}", owner=reference(replica_set), labels=labels) for index in range(2)]
    gang = build.one_gang(*pods, replica_set, *above)
    assert (gang.name, len(gang.pods), shape(gang)) == ("pg-svc-1-u-svc-1", 2, {"default": needed})
    assert (gang.queue, gang.priority) == ("revision", 125)


def test_a_knative_pod_whose_owners_are_not_there_goes_by_its_label(build: Any) -> None:
    replica_set, *_ = knative(None)
    labels = {"pod-template-hash": "h", "serving.knative.dev/revision": "svc-1"}
    pods = [build.pod(f"p{index}", owner=reference(replica_set), labels=labels) for index in range(2)]
    assert build.one_gang(*pods).name == "pg-revision-svc-1"


def test_an_aml_job_needs_its_nodes(build: Any) -> None:
    envs = {"AZUREML_NODE_COUNT": 2}
    job = made("AmlJob", "amlarc.azureml.com/v1alpha1", "a", {"job": {"options": {"envs": envs}}})
    assert shape(build.one_gang(build.pod("p", owner=reference(job)), job)) == {"default": 2}
    bare = made("AmlJob", "amlarc.azureml.com/v1alpha1", "a")
    assert "AZUREML_NODE_COUNT" in build.one_gang(build.pod("p", owner=reference(bare)), bare).set_aside
    pods = [build.pod(f"p{index}", owner=reference(bare)) for index in range(3)]
    assert shape(build.one_gang(*pods)) == {"default": 3}


def test_replicas_of_a_runai_job_are_gangs_of_their_own(build: Any) -> None:
    job = made("RunaiJob", "run.ai/v1", "j")
    pods = [build.pod(name, owner=reference(job)) for name in ("j-0-abc", "j-0-def", "j-1-xyz")]
    found = build.read(*pods, job).gangs
    assert [(gang.name, len(gang.pods)) for gang in found] == [("pg-j-0-u-j", 2), ("pg-j-1-u-j", 1)]


@pytest.mark.parametrize("group", ["nvidia.com/v1beta1", "nvidia.com/v1alpha1"])
def test_a_dynamo_graph_states_the_queue_of_its_pods(build: Any, group: str) -> None:
    graph = made("DynamoGraphDeployment", group, "d", labels={QUEUE: "team"})
    mine = made("DynamoComponentDeployment", "nvidia.com/v1alpha1", "part", by=graph)
    gang = build.one_gang(build.pod("p", owner=reference(mine)), graph, mine)
    assert (gang.name, gang.queue) == ("pg-part-u-part", "team")


@pytest.mark.parametrize("stated", [{"labels": {"priorityClassName": "gone"}}, {"annotations": {}}])
def test_a_priority_class_that_does_not_exist_is_as_none(build: Any, stated: Object) -> None:
    notebook = made("Notebook", "kubeflow.org/v1beta1", **stated)
    assert build.one_gang(build.pod("p", owner=reference(notebook)), notebook).priority == 100


# -- Grove -------------------------------------------------------------------------------------------------------------


def pack(required: str = "", preferred: str = "") -> Object:
    return {"topologyConstraint": {"packConstraint": {"required": required, "preferred": preferred}}}


def pod_gang(**spec: Any) -> Object:
    def part(name: str, least: int, *pods: str, **more: Any) -> Object:
        return {
            "name": name,
            "minReplicas": least,
            "podReferences": [{"namespace": "ns", "name": p} for p in pods],
            **more,
        }

    parts = [part("prefill", 2, "a", "b", **pack("node")), part("decode", 1, "c"), part("router", 1, "d")]
    named = {"grove.io/topology-name": "hall"}
    return made("PodGang", "scheduler.grove.io/v1alpha1", "g", {"podgroups": parts, **spec}, annotations=named)


def grove(build: Any, *objects: Object, names: str = "abcd", **labels: str) -> list[Object]:
    """Pods of a PodCliqueSet and what they belong to."""
    cliques = made("PodCliqueSet", "grove.io/v1alpha1", "set", labels=labels)
    clique = made("PodClique", "grove.io/v1alpha1", "router", by=cliques)
    pods = [build.pod(name, owner=reference(clique), labels={"grove.io/podgang": "g"}) for name in names]
    return [*pods, clique, cliques, *objects]


def test_a_pod_gang_says_what_is_needed_at_once(build: Any) -> None:
    gang = build.one_gang(*grove(build, pod_gang(priorityClassName="build"), names="abcde"))
    assert (gang.name, shape(gang), gang.priority) == ("pg-g-u-g", {"prefill": 2, "decode": 1, "router": 1}, 100)
    seats = {"a": "prefill", "b": "prefill", "c": "decode", "d": "router", "e": "router"}
    assert {pod.name: pod.podset for pod in gang.pods} == seats


def test_what_the_clique_set_states_counts_for_its_pod_gangs(build: Any) -> None:
    stated = {QUEUE: "team", "priorityClassName": "inference"}
    gang = build.one_gang(*grove(build, pod_gang(priorityClassName="build"), **stated))
    assert (gang.queue, gang.priority) == ("team", 125)


def test_pod_groups_of_a_pod_gang_may_share_a_topology(build: Any) -> None:
    shared = [{"name": "pd", "podGroupNames": ["prefill", "decode"], **pack("rack", "node")}, {"name": "nobody"}]
    gang = build.one_gang(*grove(build, pod_gang(topologyConstraintGroupConfigs=shared, **pack("zone"))))
    assert gang.root.topology == TopologyConstraint("hall", "zone")
    both, router = gang.root.children
    assert isinstance(both, SubGroup)
    assert (both.name, both.topology, router.name) == ("pd", TopologyConstraint("hall", "rack", "node"), "router")
    assert [(part.name, part.topology) for part in both.children] == [
        ("prefill", TopologyConstraint("hall", "node")),
        ("decode", None),
    ]


def test_pods_wait_for_their_pod_gang(build: Any) -> None:
    assert "waits for PodGang g, which does not exist" in build.one_gang(*grove(build)).set_aside


def test_a_pod_gang_that_needs_nothing_is_set_aside(build: Any) -> None:
    gang = pod_gang()
    gang["spec"]["podgroups"][0]["minReplicas"] = 0
    assert "podgroups[0].minReplicas" in build.one_gang(*grove(build, gang)).set_aside


# -- pods that others group, and when plain pods began -----------------------------------------------------------------


def test_pods_wait_for_another_pod_grouper_where_that_is_how_it_is(build: Any) -> None:
    settings = KubeSettings(groups_pods=False)
    job = made("Job", "batch/v1", "j")
    waiting = [build.pod(f"p{index}", owner=reference(job)) for index in range(7)]
    labelled = build.pod("labelled", labels={"kai.nvidia.com/job-id": "x"})
    runs = build.pod("runs", gpus=1, node="n", phase="Running")
    named = build.pod("named", annotations={"pod-group-name": "pg"})
    found = build.read(*waiting, labelled, runs, named, build.pod_group(), settings=settings)
    assert [(gang.name, [pod.name for pod in gang.pods]) for gang in found.gangs] == [("pg", ["named"])]
    assert [pod.name for pod in found.foreign] == ["runs"], "it is load all the same"
    (text,) = [text for text in build.texts(found, "warning") if "pod grouper" in text]
    assert text.endswith("ns/p0, ns/p1, ns/p2, ns/p3, ns/p4 and 3 more")


def running(build: Any, name: str, started: str = "", **more: Any) -> Object:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": started}
    status = {"phase": "Running", "conditions": [scheduled] if started else [], **more.pop("status", {})}
    pod: Object = build.pod(name, {"status": status}, node="n", **more)
    return pod


def test_a_plain_pod_began_when_it_was_bound(build: Any) -> None:
    assert build.one_gang(running(build, "p", "1970-01-12T13:00:00Z")).last_start_s == 997_200.0
    late = {"startTime": "1970-01-12T13:00:01Z"}
    assert build.one_gang(running(build, "p", status=late)).last_start_s == 997_201.0
    assert build.one_gang(running(build, "p")).last_start_s is None
    assert build.one_gang(build.pod("p")).last_start_s is None
    broken = {"conditions": [7]}
    assert build.one_gang(running(build, "p", status=broken)).last_start_s is None


def test_a_gang_without_a_pod_group_began_with_the_first_that_runs(build: Any) -> None:
    job = made("Job", "batch/v1", "j")
    pods = [running(build, f"p{second}", f"1970-01-12T13:00:0{second}Z", owner=reference(job)) for second in (5, 3)]
    assert build.one_gang(*pods, job).last_start_s == 997_203.0


def test_a_pod_group_has_the_last_word_on_when_its_gang_began(build: Any) -> None:
    named = running(build, "p", "1970-01-12T13:00:00Z", annotations={"pod-group-name": "pg"})
    assert build.one_gang(named, build.pod_group()).last_start_s is None
    stated = {"metadata": {"annotations": {"kai.scheduler/last-start-timestamp": "1970-01-12T12:00:00Z"}}}
    assert build.one_gang(named, build.pod_group(more=stated)).last_start_s == 993_600.0
