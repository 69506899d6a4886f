"""Workloads given as manifests: the pods that their controllers would make of them.

Only objects without a uid are manifests; one that has a uid comes from a cluster, where its controller makes the pods.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping import jobset, kubeflow, lws, ray
from kai_solver.kubeobjects.notices import Notices, object_name
from kai_solver.kubeobjects.objects import Object, RawObjects, kind_of
from kai_solver.kubeobjects.raw import Raw
from kai_solver.units import counted

MOST_PODS = 100_000
"""Pods that one workload may have."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """Identical pods: how many, from which template; labels of the n-th."""

    suffix: str
    count: int
    template: Raw
    labels: Callable[[int], Mapping[str, str]] = field(default=lambda _: {})


def manifest_pods(objects: RawObjects, notices: Notices) -> tuple[Object, ...]:
    """Pending pods of all workloads that are manifests and have no pods in the input; each workload is noticed."""
    owned = functools.cache(lambda: _owned(objects.pods))  # a cluster has no manifests and need not know
    made: list[Object] = []
    for value in objects.other:
        raw = Raw(value)
        kind = kind_of(value)
        try:
            if kind not in TEMPLATES or raw.text("metadata.uid") or _identity(raw, kind) in owned():
                continue
            pods = list(_pods(raw, kind, TEMPLATES[kind](raw)))
        except Exception as error:
            notices.set_aside(object_name(kind, raw), error)
            continue
        made += pods
        notices.warn(
            object_name(kind, raw),
            f"is a manifest without pods: {counted(len(pods), 'pending pod is', 'pending pods are')} made of it",
        )
    return tuple(made)


def _identity(raw: Raw, kind: str) -> tuple[str, str, str]:
    return kind, raw.text("metadata.namespace") or "default", raw.required("metadata.name")


def _owned(pods: tuple[Object, ...]) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of every owner that has pods."""
    found = set()
    for value in pods:
        raw = Raw(value)
        try:
            namespace = raw.text("metadata.namespace") or "default"
            for owner in raw.items("metadata.ownerReferences"):
                found.add((owner.text("kind"), namespace, owner.text("name")))
        except InputError:
            continue  # the pod is set aside where pods are read
    return found


def _pods(owner: Raw, kind: str, parts: list[Replicas]) -> Iterator[Object]:
    if sum(part.count for part in parts) > MOST_PODS:
        raise InputError("asks for too many pods", field="spec", cure=f"Ask for at most {MOST_PODS}")
    for part in parts:
        for index in range(part.count):
            yield _pod(owner, kind, part, index)


def _pod(owner: Raw, kind: str, part: Replicas, index: int) -> dict[str, Any]:
    name = owner.required("metadata.name")
    reference = {"apiVersion": owner.text("apiVersion"), "kind": kind, "name": name, "controller": True}
    template = part.template
    return {
        "metadata": {
            "name": "-".join(filter(None, (name, part.suffix, str(index)))),
            "namespace": owner.text("metadata.namespace") or "default",
            "creationTimestamp": owner.get("metadata.creationTimestamp").value,
            "labels": {**template.strings("metadata.labels"), **part.labels(index)},
            "annotations": template.strings("metadata.annotations"),
            "ownerReferences": [reference],
        },
        "spec": template.get("spec").value,
        "status": {"phase": "Pending"},
    }


def _replicas(raw: Raw) -> list[Replicas]:
    return [Replicas("", raw.count("spec.replicas", 1, MOST_PODS), raw.get("spec.template"))]


def _job(raw: Raw) -> list[Replicas]:
    """As many as run at once; a suspended Job has none."""
    at_once = raw.count("spec.parallelism", 1, MOST_PODS)
    count = min(at_once, raw.count("spec.completions", at_once))
    return [] if raw.flag("spec.suspend") else [Replicas("", count, raw.get("spec.template"))]


def _jobset(raw: Raw) -> list[Replicas]:
    parts = []
    for job in raw.items("spec.replicatedJobs"):
        name = job.required("name")
        pods = job.count("template.spec.parallelism", 1, MOST_PODS)
        for index in range(job.count("replicas", 1, jobset.MOST_REPLICAS)):
            labels = {
                jobset.NAME: raw.required("metadata.name"),
                jobset.REPLICATED_JOB: name,
                jobset.JOB_INDEX: str(index),
            }
            parts.append(Replicas(f"{name}-{index}", pods, job.get("template.spec.template"), _constant(labels)))
    return parts


def _kubeflow(raw: Raw) -> list[Replicas]:
    return [
        Replicas(role.lower(), spec.count("replicas", 1, MOST_PODS), spec.get("template"), _training(role.lower()))
        for role, spec in raw.get("spec").fields(kubeflow.REPLICA_SPECS[raw.text("kind")])
    ]


def _training(role: str) -> Callable[[int], Mapping[str, str]]:
    leads = {names.JOB_ROLE: role} if role in ("master", "launcher") else {}
    return lambda index: {names.REPLICA_TYPE: role, kubeflow.REPLICA_INDEX: str(index), **leads}


def _lws(raw: Raw) -> list[Replicas]:
    template = raw.get("spec.leaderWorkerTemplate")
    workers = template.get("workerTemplate")
    leader = template.get("leaderTemplate") or workers
    size = template.count("size", 1, MOST_PODS)
    parts = []
    for group in range(raw.count("spec.replicas", 1, MOST_PODS)):
        labels = {lws.NAME: raw.required("metadata.name"), lws.GROUP_INDEX: str(group)}
        parts.append(Replicas(f"{group}-leader", 1, leader, _constant({**labels, lws.WORKER_INDEX: "0"})))
        parts.append(Replicas(str(group), max(size - 1, 0), workers, _workers(labels)))
    return parts


def _workers(labels: Mapping[str, str]) -> Callable[[int], Mapping[str, str]]:
    return lambda index: {**labels, lws.WORKER_INDEX: str(index + 1)}


def _ray(raw: Raw) -> list[Replicas]:
    cluster = ray.cluster_spec(raw.text("kind"), raw)
    head = {names.RAY_NODE_TYPE: "head", names.RAY_GROUP: ray.HEAD}
    parts = [Replicas("head", 1, cluster.get("headGroupSpec.template"), _constant(head))]
    for group in cluster.items("workerGroupSpecs"):
        name = group.required("groupName")
        count = group.count("replicas", 1, MOST_PODS) * group.count("numOfHosts", 1, MOST_PODS)
        labels = {names.RAY_NODE_TYPE: "worker", names.RAY_GROUP: name}
        parts.append(Replicas(name, count, group.get("template"), _constant(labels)))
    return parts


def _constant(labels: Mapping[str, str]) -> Callable[[int], Mapping[str, str]]:
    return lambda _: labels


TEMPLATES: dict[str, Callable[[Raw], list[Replicas]]] = {
    "Deployment": _replicas,
    "ReplicaSet": _replicas,
    "StatefulSet": _replicas,
    "Job": _job,
    "JobSet": _jobset,
    **dict.fromkeys(kubeflow.REPLICA_SPECS, _kubeflow),
    "Notebook": _replicas,
    "LeaderWorkerSet": _lws,
    **dict.fromkeys(ray.KINDS, _ray),
}
"""How the pods of each kind are made."""
