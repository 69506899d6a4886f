"""Jobs that ran, of what ``kubectl get jobs,podgroups,pods -A -o json`` prints.

A Job says itself when it started and ended. A PodGroup does not: its pods do, where they are still there. A PodGroup
that belongs to a Job of the file is that Job.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from kai_solver.domain import Policy
from kai_solver.errors import InputError
from kai_solver.instances_io.history_schema import HistoryReadingDoc
from kai_solver.instances_io.scenario_schema import MOST_PODS
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.gpus import gpu_request
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.resources import pod_request
from kai_solver.lab.history.past_jobs import PastJob, times_fault
from kai_solver.units import MILLI

_ENDS = ("Complete", "Failed")
"""Conditions of a Job that has ended."""


def kubernetes_jobs(
    documents: Sequence[Mapping[str, Any]], file: str, doc: HistoryReadingDoc
) -> tuple[list[PastJob], list[tuple[str, str]]]:
    """Jobs of Kubernetes objects, and (object, reason) of each that was set aside.

    Raises
    ------
    InputError
        There is neither a Job nor a PodGroup, or none of them can be used.
    """
    items = [item for document in documents for item in _items(document)]
    kinds: dict[str, list[Raw]] = defaultdict(list)
    for item in items:
        kinds[str(item.get("kind", ""))].append(Raw(item))
    if not kinds["Job"] and not kinds["PodGroup"]:
        found = ", ".join(sorted(filter(None, kinds))) or "nothing"
        cure = "Write it with kubectl get jobs,podgroups,pods -A -o json"
        raise InputError(f"has neither Jobs nor PodGroups, but {found[:200]}", file=file, cure=cure)
    jobs: list[PastJob] = []
    aside: list[tuple[str, str]] = []
    queues = _queues_of_owners(kinds["PodGroup"])
    known: set[str] = set()
    for raw in kinds["Job"]:
        try:
            known.add(raw.text("metadata.uid"))
            jobs.append(_job(raw, queues, doc))
        except InputError as error:
            aside.append((_place("Job", raw), str(error)))
    pods = _pods_by_group(kinds["Pod"])
    for raw in kinds["PodGroup"]:
        try:
            if known.isdisjoint(owner.text("uid") for owner in raw.items("metadata.ownerReferences")):
                jobs.append(_group(raw, pods, doc))
        except InputError as error:
            aside.append((_place("PodGroup", raw), str(error)))
    if aside and not jobs:
        problem = f"has nothing that can be used; the first, {aside[0][0]}: {aside[0][1]}"
        raise InputError(problem, file=file, cure="Write it with kubectl get jobs,podgroups,pods -A -o json")
    return jobs, aside


def _items(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    inner = document.get("items") if str(document.get("kind", "")).endswith("List") else None
    return [item for item in inner if isinstance(item, dict)] if isinstance(inner, list) else [document]


def _job(raw: Raw, queues: Mapping[str, str], doc: HistoryReadingDoc) -> PastJob:
    start_s = raw.time_s("status.startTime")
    if start_s is None:
        raise InputError("never started")
    ends = [
        condition.time_s("lastTransitionTime")
        for condition in raw.items("status.conditions")
        if condition.text("type") in _ENDS and condition.text("status") == "True"
    ]
    end_s = raw.time_s("status.completionTime") or max(filter(None, ends), default=None)
    pods = raw.count("spec.parallelism", 1, MOST_PODS)
    if raw.get("spec.completions"):
        pods = min(pods, raw.count("spec.completions", 1))
    if not pods:
        raise InputError("has no pods", field="spec.parallelism")
    template = raw.get("spec.template")
    labels = template.strings("metadata.labels") | raw.strings("metadata.labels")
    queue = labels.get(names.QUEUE, "") or queues.get(raw.text("metadata.uid"), "")
    return _past(raw, "Job", (raw.time_s("metadata.creationTimestamp"), start_s, end_s), [template] * pods, queue, doc)


def _group(raw: Raw, pods: Mapping[tuple[str, str], list[Raw]], doc: HistoryReadingDoc) -> PastJob:
    mine = pods.get((raw.text("metadata.namespace"), raw.text("metadata.name")), [])
    starts = [start for pod in mine if (start := pod.time_s("status.startTime")) is not None]
    if not starts:
        raise InputError("its pods are gone or never started: nothing says when it ran")
    ends = [_pod_end_s(pod) for pod in mine if pod.time_s("status.startTime") is not None]
    end_s = None if None in ends else max(filter(None, ends))
    times = raw.time_s("metadata.creationTimestamp"), max(starts), end_s
    return _past(raw, "PodGroup", times, mine, raw.text("spec.queue"), doc)


def _past(
    raw: Raw,
    kind: str,
    times: tuple[float | None, float, float | None],
    pods: Sequence[Raw],
    queue: str,
    doc: HistoryReadingDoc,
) -> PastJob:
    """The job whose pods are like the first of ``pods``; ``times``: created, started, ended."""
    created_s, start_s, end_s = times
    submit_s = start_s if created_s is None else created_s
    if fault := times_fault(submit_s, start_s, end_s):
        raise InputError(fault)
    policy = Policy()
    amounts = pod_request(pods[0].get("spec"), policy.gpu_resources)
    gpu = gpu_request(amounts.get("gpu", 0), pods[0].strings("metadata.annotations"))
    labels = pods[0].strings("metadata.labels")
    return PastJob(
        place=_place(kind, raw),
        name=raw.text("metadata.name"),
        submit_s=submit_s,
        start_s=start_s,
        end_s=end_s,
        pods=len(pods),
        gpu_milli=gpu.devices * (gpu.milli or MILLI),
        cpu_milli=amounts.get("cpu", doc.cpu),
        memory_bytes=amounts.get("memory", doc.memory),
        queue=queue,
        user=labels.get(doc.user_label, "") or raw.strings("metadata.labels").get(doc.user_label, ""),
    )


def _pod_end_s(pod: Raw) -> float | None:
    """When its last container ended; None: one still runs."""
    ends = [status.time_s("state.terminated.finishedAt") for status in pod.items("status.containerStatuses")]
    return max((end for end in ends if end is not None), default=None) if ends and None not in ends else None


def _queues_of_owners(groups: Sequence[Raw]) -> dict[str, str]:
    """Queue of each PodGroup by the uid of its owner; one that cannot be read has none."""
    found: dict[str, str] = {}
    for group in groups:
        try:
            for owner in group.items("metadata.ownerReferences"):
                found[owner.text("uid")] = group.text("spec.queue")
        except InputError:
            continue  # It is set aside, with this reason, when it has its turn.
    return found


def _pods_by_group(pods: Sequence[Raw]) -> dict[tuple[str, str], list[Raw]]:
    found: dict[tuple[str, str], list[Raw]] = defaultdict(list)
    for pod in pods:
        try:
            group = pod.strings("metadata.annotations").get(names.POD_GROUP, "")
            found[pod.text("metadata.namespace"), group].append(pod)
        except InputError:
            continue  # A pod that cannot be read belongs to no group; the group is set aside if it has no other.
    return found


def _place(kind: str, raw: Raw) -> str:
    metadata = raw.value.get("metadata") if isinstance(raw.value, dict) else None
    known = metadata if isinstance(metadata, dict) else {}
    return f"{kind} {known.get('namespace', 'default')}/{known.get('name', '?')}"
