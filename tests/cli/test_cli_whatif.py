"""``kai-solver whatif``: what a workload would do, before it is submitted."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from kai_solver.cli.app import app
from kai_solver.cli.exits import Exit

PATIENT = ("--budget", "60s", "--quiet")
CLUSTER = {
    "format": "kai-solver/v1",
    "nodes": [{"name": "n0", "gpus": 4}, {"name": "n1", "gpus": 6}],
    "queues": [{"name": "team", "quota": 10}],
    "gangs": [
        {"name": "low", "queue": "team", "priority": 50, "pods": [{"gpus": 4, "node": "n0", "status": "Running"}]},
        {"name": "stays", "queue": "team", "priority": 100, "pods": [{"gpus": 3, "node": "n1", "status": "Running"}]},
        {"name": "next", "queue": "team", "priority": 50, "created": "1m", "pods": [{"gpus": 1}]},
    ],
}
"""``low`` fills n0, and may be evicted. ``next`` starts on n1, and leaves two GPUs free."""


URGENT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 75,
}


def job(gpus: int, queue: str = "team", priority: str = "") -> dict[str, Any]:
    container = {"name": "main", "image": "app", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    labels = {"kai.scheduler/queue": queue} | ({"priorityClassName": priority} if priority else {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "mine", "namespace": "default", "labels": labels},
        "spec": {
            "template": {
                "metadata": {"labels": labels},
                "spec": {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [container]},
            }
        },
    }


@pytest.fixture(params=["native", "kubernetes", "snapshot"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same cluster in each form."""
    native = tmp_path / "cluster.yaml"
    native.write_text(yaml.safe_dump(CLUSTER))
    if request.param == "native":
        return native
    other = tmp_path / ("cluster.zip" if request.param == "snapshot" else "objects.yaml")
    done = CliRunner().invoke(app, ["convert", str(native), str(other), "--to", request.param, "-q"])
    assert done.exit_code == Exit.FINE, done.output
    return other


def asked(cluster: Path, *manifests: dict[str, Any], more: tuple[str, ...] = PATIENT) -> Result:
    file = cluster.parent / "manifest.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    return CliRunner().invoke(app, ["whatif", str(cluster), str(file), *more], env={"COLUMNS": "100"})


def answer(cluster: Path, *manifests: dict[str, Any]) -> dict[str, Any]:
    done = asked(cluster, *manifests, more=(*PATIENT, "--json"))
    assert done.exit_code == Exit.FINE, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_job_that_finds_room_changes_nothing_for_others(cluster: Path) -> None:
    found = answer(cluster, job(2))
    (mine,) = found["gangs"]
    assert mine["state"] == "placed"
    assert [effect["text"] for effect in mine["effects"]] == ["1 pod gets n1"]
    assert found["others"] == []
    assert found["with"]["admitted"] == found["without"]["admitted"] + 1


def test_a_job_that_evicts_names_what_leaves_for_it(cluster: Path) -> None:
    found = answer(cluster, URGENT, job(4, priority="urgent"))
    (mine,) = found["gangs"]
    assert mine["state"] == "placed"
    assert {"without": "stays", "with": "is evicted", "gangs": ["default/low"]} in found["others"]
    assert any("evicted by preempt" in effect["text"] for effect in mine["effects"])


def test_a_job_that_waits_says_why(cluster: Path) -> None:
    found = answer(cluster, job(5))
    (mine,) = found["gangs"]
    assert mine["state"] == "pending"
    assert mine["proof"]["state"] == "proven"
    assert found["others"] == []


def test_it_is_told_in_words(cluster: Path) -> None:
    done = asked(cluster, URGENT, job(4, priority="urgent"))
    assert done.exit_code == Exit.FINE
    words = " ".join(done.stdout.split())
    assert "What the plan does 1 pod gets n0" in words
    assert "Other gangs that fare differently" in words
    assert "stays is evicted 1 default/low" in words
    words = " ".join(asked(cluster, job(2)).stdout.split())
    assert "All other gangs fare as they would without it." in words


def test_progress_says_of_which_plan_it_is(cluster: Path) -> None:
    lines = asked(cluster, job(2), more=("--budget", "60s")).stderr.splitlines()
    assert [line for line in lines if line.startswith("with")] == ["without it, 60 s", "with it, 60 s"]


def test_an_object_that_exists_is_replaced(cluster: Path) -> None:
    queue = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "team"},
        "spec": {"resources": {"gpu": {"quota": 4, "limit": 6}}},
    }
    (mine,) = answer(cluster, queue, job(2))["gangs"]
    assert mine["state"] == "pending"
    assert mine["queues"][0]["limit"]["gpu"] == 6000


def test_a_job_without_a_queue_is_still_told_of(cluster: Path) -> None:
    (mine,) = answer(cluster, job(2, queue="teem"))["gangs"]
    assert mine["reason"] == "QueueDoesNotExist"


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (CLUSTER, "is no Kubernetes manifest. Give what kubectl apply takes"),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}},
            "adds no pod that is to be scheduled. Give a workload",
        ),
    ],
)
def test_what_adds_no_workload_is_refused(cluster: Path, manifest: dict[str, Any], said: str) -> None:
    done = asked(cluster, manifest)
    assert done.exit_code == Exit.INPUT
    assert "manifest.yaml" in done.stderr
    assert said in done.stderr
