"""One workload of each kind: what is done until it is all there, step by step. Pods are needed at once, or alone."""

from collections.abc import Callable, Iterator
from typing import Any

from kai_solver.cluster.resources import DEPLOYMENTS, JOBS, POD_GROUPS, REPLICA_SETS, STATEFUL_SETS
from tests.cluster.plane.kinds import CRON_JOBS, QUEUE, QUEUED, Maker, Step, steps, uid_of

Workload = Callable[[Maker], Iterator[Step]]
MINIMUM = "kai.scheduler/batch-min-member"


def replicas(**counts: int) -> dict[str, Any]:
    return {role: {"replicas": count} for role, count in counts.items()}


def plain_pod(make: Maker) -> Iterator[Step]:
    return steps(make.pod("0", labels=QUEUED))


def job_by_labels(make: Maker) -> Iterator[Step]:
    said = {"job/job-id": "together", "job/job-size": "2", **QUEUED}
    return steps(make.pod("0", labels=said), make.pod("1", labels=said))


def external_pod_group(make: Maker) -> Iterator[Step]:
    make.one(POD_GROUPS, {"queue": QUEUE, "minMember": 2})
    said = {"kai.scheduler/skip-podgrouper": "true", "pod-group-name": make.name}
    return steps(make.pod("0", annotations=said), make.pod("1", annotations=said))


def spark(make: Maker) -> Iterator[Step]:
    labels = {"spark-app-name": "app", "spark-app-selector": f"spark-{make.name}", **QUEUED}

    def executor() -> None:
        make.pod("1", uid_of(make, f"{make.name}-driver"), labels)()

    return steps(make.pod("driver", labels=labels), executor)


def job(make: Maker) -> Iterator[Step]:
    spec = {"parallelism": 1, "completions": 2, "template": make.template()}
    make.one(JOBS, spec, labels=QUEUED, annotations={MINIMUM: "2"})
    return steps(lambda: make.plane.api.patch(JOBS, "work", make.name, {"spec": {"parallelism": 2}}))


def cron_job(make: Maker) -> Iterator[Step]:
    template = {"spec": {"template": make.template()}}
    cron = make.one(CRON_JOBS, {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": template})
    return steps(lambda: make.one(JOBS, {"template": make.template()}, by=cron, labels=QUEUED))


def deployment(make: Maker) -> Iterator[Step]:
    return steps(lambda: make.one(DEPLOYMENTS, make.replicated(2), labels=QUEUED))


def replica_set(make: Maker) -> Iterator[Step]:
    return steps(lambda: make.one(REPLICA_SETS, make.replicated(2), labels=QUEUED))


def stateful_set(make: Maker) -> Iterator[Step]:
    return steps(lambda: make.one(STATEFUL_SETS, make.replicated(2), labels=QUEUED))


def kubeflow(version: str, kind: str, field: str, late: bool = False, **counts: int) -> Workload:
    """A training job with one pod of each role."""

    def workload(make: Maker) -> Iterator[Step]:
        if late:
            make.install("kubeflow.org", kind)
        owner = make.thing(f"kubeflow.org/{version}", kind, {field: replicas(**counts)}, labels=QUEUED)
        roles = [role.lower() for role, count in counts.items() for _ in range(count)]
        index = {role: roles.count(role) for role in roles}
        return steps(*(make.pod(f"{role}-{at}", owner, _role(role, index, at)) for at, role in enumerate(roles)))

    return workload


def _role(role: str, counts: dict[str, int], at: int) -> dict[str, str]:
    return {"kf/replica-type": role, "kf/replica-index": str(at % counts[role]), "kf/job-role": role}


def mpi_that_waits(make: Maker) -> Iterator[Step]:
    """The launcher is made when the workers run, so the gang is two workers."""
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": replicas(Launcher=1, Worker=2)}
    owner = make.thing("kubeflow.org/v2beta1", "MPIJob", spec, labels=QUEUED)
    return steps(*(make.pod(f"worker-{at}", owner, {"kf/job-role": "worker"}) for at in range(2)))


def notebook(make: Maker) -> Iterator[Step]:
    owner = make.thing("kubeflow.org/v1beta1", "Notebook", labels=QUEUED)
    return steps(lambda: make.one(STATEFUL_SETS, make.replicated(1), by=owner))


def job_set(make: Maker) -> Iterator[Step]:
    return _replicated_jobs(make, make.thing("jobset.x-k8s.io/v1alpha2", "JobSet", _JOBS, labels=QUEUED))


def train_job(make: Maker) -> Iterator[Step]:
    train = make.thing("trainer.kubeflow.org/v1alpha1", "TrainJob", labels=QUEUED)
    return _replicated_jobs(make, make.thing("jobset.x-k8s.io/v1alpha2", "JobSet", _JOBS, by=train))


_JOBS = {"replicatedJobs": [{"name": "node", "replicas": 2, "template": {"spec": {"parallelism": 1}}}]}


def _replicated_jobs(make: Maker, owner: dict[str, Any]) -> Iterator[Step]:
    def one(index: int) -> Step:
        labels = {"jobset-name": owner["metadata"]["name"], "replicatedjob-name": "node", "job-index": str(index)}
        template = make.template({f"jobset.sigs.k8s.io/{name}": value for name, value in labels.items()})
        return lambda: make.one(JOBS, {"template": template}, by=owner, name=f"{make.name}-node-{index}")

    return steps(one(0), one(1))


def leader_worker_set(make: Maker) -> Iterator[Step]:
    """A StatefulSet of leaders, and one of each leader's workers."""
    owner = make.thing(
        "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 2}}, labels=QUEUED
    )

    def labels(index: int) -> dict[str, str]:
        found = {"name": make.name, "group-index": "0", "worker-index": str(index)}
        return {f"leaderworkerset.sigs.k8s.io/{name}": value for name, value in found.items()}

    def workers() -> None:
        leader = uid_of(make, f"{make.name}-0")
        spec = {**make.replicated(1, labels(1)), "ordinals": {"start": 1}}
        make.one(STATEFUL_SETS, spec, by=leader, name=f"{make.name}-0")

    return steps(lambda: make.one(STATEFUL_SETS, make.replicated(1, labels(0)), by=owner), workers)


_RAY = {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "small", "replicas": 1, "minReplicas": 1}]}


def _ray_cluster(make: Maker, by: dict[str, Any] | None = None) -> Iterator[Step]:
    owner = make.thing("ray.io/v1", "RayCluster", _RAY, by=by, labels={} if by else QUEUED)
    head = make.pod("head", owner, {"ray/node-type": "head", "ray/group": "headgroup"})
    return steps(head, make.pod("worker", owner, {"ray/node-type": "worker", "ray/group": "small"}))


def ray_cluster(make: Maker) -> Iterator[Step]:
    return _ray_cluster(make)


def ray_job(make: Maker) -> Iterator[Step]:
    return _ray_cluster(make, make.thing("ray.io/v1", "RayJob", {"rayClusterSpec": _RAY}, labels=QUEUED))


def ray_service(make: Maker) -> Iterator[Step]:
    return _ray_cluster(make, make.thing("ray.io/v1", "RayService", {"rayClusterConfig": _RAY}, labels=QUEUED))


def knative(make: Maker) -> Iterator[Step]:
    group = "serving.knative.dev/v1"
    configuration = make.thing(group, "Configuration", by=make.thing(group, "Service"))
    scale = {"autoscaling.knative.dev/min-scale": "2"}
    revision = make.thing(group, "Revision", by=configuration, labels=QUEUED, annotations=scale)
    labels = {"serving.knative.dev/revision": make.name}
    return steps(lambda: make.one(DEPLOYMENTS, make.replicated(1, labels), by=revision), make.scaled(DEPLOYMENTS, 2))


def workflow(make: Maker) -> Iterator[Step]:
    owner = make.thing("argoproj.io/v1alpha1", "Workflow", labels=QUEUED)
    return steps(make.pod("0", owner), make.pod("1", owner))


def grove(make: Maker, by: dict[str, Any] | None = None) -> Iterator[Step]:
    cliques = make.thing("grove.io/v1alpha1", "PodCliqueSet", by=by, labels={} if by else QUEUED)
    parts = [
        {"name": role, "minReplicas": 1, "podReferences": [{"namespace": "work", "name": f"{make.name}-{role}"}]}
        for role in ("prefill", "decode")
    ]
    make.thing("scheduler.grove.io/v1alpha1", "PodGang", {"podgroups": parts}, by=cliques)

    def one(role: str) -> Step:
        clique = make.thing("grove.io/v1alpha1", "PodClique", by=cliques, name=f"{make.name}-{role}")
        return make.pod(role, clique, {"grove/podgang": make.name})

    return steps(one("prefill"), one("decode"))


def dynamo(make: Maker) -> Iterator[Step]:
    return grove(make, make.thing("nvidia.com/v1alpha1", "DynamoGraphDeployment", labels=QUEUED))


def aml_job(make: Maker) -> Iterator[Step]:
    spec = {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": 2}}}}
    owner = make.thing("amlarc.azureml.com/v1alpha1", "AmlJob", spec, labels=QUEUED)
    return steps(make.pod("0", owner), make.pod("1", owner))


def of_one(api_version: str, kind: str) -> Workload:
    """An owner whose pods need one another not."""

    def workload(make: Maker) -> Iterator[Step]:
        return steps(make.pod("0-a", make.thing(api_version, kind, labels=QUEUED)))

    return workload


def unknown(make: Maker) -> Iterator[Step]:
    """We may not read it: its pods state their queue themselves."""
    return steps(make.pod("0", make.thing("example.org/v1", "Mine"), QUEUED))


TOGETHER: dict[str, Workload] = {
    "labels": job_by_labels,
    "external": external_pod_group,
    "job": job,
    "jobset": job_set,
    "trainjob": train_job,
    "pytorchjob": kubeflow("v1", "PyTorchJob", "pytorchReplicaSpecs", Master=1, Worker=1),
    "tfjob": kubeflow("v1", "TFJob", "tfReplicaSpecs", PS=1, Worker=1),
    "xgboostjob": kubeflow("v1", "XGBoostJob", "xgbReplicaSpecs", Master=1, Worker=1),
    "jaxjob": kubeflow("v1", "JAXJob", "jaxReplicaSpecs", late=True, Worker=2),
    "mpijob-v1": kubeflow("v1", "MPIJob", "mpiReplicaSpecs", Launcher=1, Worker=1),
    "mpijob-v2beta1": mpi_that_waits,
    "leaderworkerset": leader_worker_set,
    "raycluster": ray_cluster,
    "rayjob": ray_job,
    "rayservice": ray_service,
    "knative": knative,
    "grove": grove,
    "dynamo": dynamo,
    "amljob": aml_job,
}
"""Two pods at once, or none."""

ALONE: dict[str, tuple[Workload, int]] = {
    "pod": (plain_pod, 1),
    "cronjob": (cron_job, 1),
    "deployment": (deployment, 2),
    "replicaset": (replica_set, 2),
    "statefulset": (stateful_set, 2),
    "notebook": (notebook, 1),
    "spark": (spark, 2),
    "workflow": (workflow, 2),
    "runaijob": (of_one("run.ai/v1", "RunaiJob"), 1),
    "spotrequest": (of_one("egx.nvidia.io/v1", "SPOTRequest"), 1),
    "unknown": (unknown, 1),
}
"""Each pod by itself, and how many there are."""
