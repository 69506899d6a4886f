"""Finished Jobs and PodGroups, as kubectl prints them."""

import json
from pathlib import Path
from typing import Any

import pytest

from kai_solver.errors import InputError
from kai_solver.lab.history import History, read_history, read_mapping


def a_pod_spec(gpus: int = 4) -> dict[str, Any]:
    requests = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": str(gpus)}
    return {"containers": [{"name": "main", "resources": {"requests": requests}}]}


def a_job(name: str, start: str = "10:00", end: str | None = "12:00", **more: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"startTime": f"2026-11-09T{start}:00Z"}
    if end is not None:
        status |= {"completionTime": f"2026-11-09T{end}:00Z"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-09T09:50:00Z",
            "labels": {"kai.scheduler/queue": "research", "user": "ana"},
        },
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": a_pod_spec()}},
        "status": status,
    } | more


def a_group(name: str, **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": "2026-11-09T09:00:00Z"} | meta,
        "spec": {"queue": "vision", "minMember": 2},
    }


def a_pod(name: str, group: str, start: str, end: str | None) -> dict[str, Any]:
    ended = {"terminated": {"finishedAt": f"2026-11-09T{end}:00Z"}} if end else {"running": {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "annotations": {"pod-group-name": group}},
        "spec": a_pod_spec(1),
        "status": {"startTime": f"2026-11-09T{start}:00Z", "containerStatuses": [{"state": ended}]},
    }


def read(tmp_path: Path, *items: Any) -> History:
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    return read_history(path, read_mapping(None))


def test_a_finished_job(tmp_path: Path) -> None:
    [job] = read(tmp_path, a_job("train")).jobs
    assert (job.start_s - job.submit_s, job.end_s) == (600.0, job.start_s + 7200)
    assert (job.pods, job.gpu_milli, job.cpu_milli, job.memory_bytes) == (2, 4000, 8000, 64 * 2**30)
    assert (job.queue, job.user, job.place) == ("research", "ana", "Job team/train")


def test_a_failed_job_ends_when_it_failed_and_one_that_runs_has_no_end(tmp_path: Path) -> None:
    failed = a_job("failed", end=None)
    failed["status"]["conditions"] = [
        {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-09T10:30:00Z"}
    ]
    jobs = {job.name: job for job in read(tmp_path, failed, a_job("runs", end=None)).jobs}
    assert jobs["failed"].end_s == jobs["failed"].start_s + 1800
    assert jobs["runs"].end_s is None


def test_a_pod_group_has_the_times_of_its_pods(tmp_path: Path) -> None:
    pods = [a_pod("a", "pg", "10:00", "11:00"), a_pod("b", "pg", "10:05", "12:00")]
    [job] = read(tmp_path, a_group("pg"), *pods).jobs
    assert (job.pods, job.gpu_milli, job.queue) == (2, 1000, "vision")
    assert (job.start_s - job.submit_s, (job.end_s or 0) - job.start_s) == (3900.0, 6900.0)


def test_a_pod_group_of_a_job_counts_once_and_gives_its_queue(tmp_path: Path) -> None:
    job = a_job("train")
    del job["metadata"]["labels"]
    [found] = read(tmp_path, job, a_group("pg-train", ownerReferences=[{"kind": "Job", "uid": "uid-train"}])).jobs
    assert (found.name, found.queue) == ("train", "vision")


def test_what_cannot_be_used_is_set_aside_with_its_name(tmp_path: Path) -> None:
    backwards = a_job("backwards", start="13:00")
    odd = a_job("odd") | {"spec": {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}}}}
    text = a_job("text") | {"metadata": "none"}
    history = read(tmp_path, a_job("good"), backwards, odd, text, a_group("gone"), a_job("never") | {"status": {}})
    assert [job.name for job in history.jobs] == ["good"]
    said = {notice.object.removeprefix("jobs.json: "): notice.text for notice in history.notices}
    assert "time goes backwards" in said["Job team/backwards"]
    assert "its pods are gone" in said["PodGroup team/gone"]
    assert "never started" in said["Job team/never"]
    assert set(said) == {"Job team/backwards", "Job team/odd", "Job default/?", "PodGroup team/gone", "Job team/never"}


@pytest.mark.parametrize("items", [[], [{"kind": "Pod"}], [a_job("never") | {"status": {}}]])
def test_a_file_without_a_job(tmp_path: Path, items: list[Any]) -> None:
    with pytest.raises(InputError, match=r"jobs\.json") as caught:
        read(tmp_path, *items)
    assert "kubectl get jobs,podgroups,pods" in caught.value.cure
