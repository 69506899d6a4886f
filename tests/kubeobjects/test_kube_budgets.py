"""PodDisruptionBudgets: what the Eviction API would let go, by their status and by who is still healthy."""

import io
import json
import zipfile
from typing import Any

import pytest

from kai_solver.domain import DisruptionBudget, Requirement, Snapshot
from kai_solver.kubeobjects import (
    Recall,
    export_kai_snapshot,
    load_kai_snapshot,
    objects_from_documents,
    objects_from_snapshot,
    snapshot_from_objects,
)

LABELS = {"app": "x"}


def pdb(status: Any = None, **spec: Any) -> dict[str, Any]:
    found = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "ns", "generation": 2},
        "spec": {"selector": {"matchLabels": LABELS}} | spec,
    }
    return found if status is None else found | {"status": {"observedGeneration": 2} | status}


def running(build: Any, count: int, **status: Any) -> list[dict[str, Any]]:
    more = {"status": status}
    return [build.pod(f"p{i}", more, node="n", phase="Running", labels=LABELS) for i in range(count)]


def one(snapshot: Snapshot) -> DisruptionBudget:
    (found,) = snapshot.budgets
    return found


def test_a_budget_says_how_many_may_go(build: Any) -> None:
    found = one(build.read(pdb({"disruptionsAllowed": 2, "desiredHealthy": 1}), *running(build, 3)))
    assert found == DisruptionBudget("ns", "b", (Requirement("app", "In", ("x",)),), 2)


def test_a_status_older_than_the_spec_lets_nothing_go(build: Any) -> None:
    assert one(build.read(pdb({"disruptionsAllowed": 2, "observedGeneration": 1}))).allowed == 0


def test_without_a_status_nothing_goes_and_that_is_told(build: Any) -> None:
    read = build.read(pdb())
    assert one(read).allowed == 0
    assert any(line.startswith("PodDisruptionBudget ns/b: has no status") for line in build.texts(read, "warning"))


@pytest.mark.parametrize(
    ("lost", "disrupted", "allowed"),
    [(0, {}, 2), (1, {}, 1), (3, {}, 0), (0, {"p0": "2026-01-01T00:00:00Z"}, 1)],
)
def test_what_left_since_is_taken_off(build: Any, lost: int, disrupted: Any, allowed: int) -> None:
    pods = running(build, 5)
    for pod in pods[:lost]:
        pod["metadata"]["deletionTimestamp"] = "1970-01-12T13:46:35Z"
    status = {"disruptionsAllowed": 2, "desiredHealthy": 3, "currentHealthy": 5, "disruptedPods": disrupted}
    assert one(build.read(pdb(status), *pods)).allowed == allowed


@pytest.mark.parametrize(
    ("spec", "status", "spares"),
    [
        ({}, {"currentHealthy": 2, "desiredHealthy": 2}, True),
        ({}, {"currentHealthy": 1, "desiredHealthy": 2}, False),
        ({}, {"currentHealthy": 1, "desiredHealthy": 0}, False),
        ({"unhealthyPodEvictionPolicy": "IfHealthyBudget"}, {"currentHealthy": 1, "desiredHealthy": 2}, False),
        ({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, {"currentHealthy": 1, "desiredHealthy": 2}, True),
    ],
)
def test_pods_that_are_not_ready_go_by_the_policy(build: Any, spec: Any, status: Any, spares: bool) -> None:
    assert one(build.read(pdb(status, **spec))).spares_unready is spares


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "PodScheduled", "status": "True"}], True),
        ([], True),
    ],
)
def test_a_pod_is_ready_as_its_condition_says(build: Any, conditions: Any, ready: bool) -> None:
    (pod,) = running(build, 1, conditions=conditions)
    assert build.one_pod(pod).ready is ready


def test_a_change_of_readiness_is_read_again(build: Any) -> None:
    recall = Recall()

    def read(status: str) -> bool:
        (pod,) = running(build, 1, conditions=[{"type": "Ready", "status": status}])
        raw = objects_from_documents([("f", build.node()), ("f", pod)])
        snapshot = snapshot_from_objects(raw, now_s=build.now_s, recall=recall)
        return snapshot.gangs[0].pods[0].ready

    assert [read("True"), read("False"), read("True")] == [True, False, True]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, ()),
        (None, (Requirement("metadata.name", "In", ()),)),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, (Requirement("a", "Exists"),)),
    ],
)
def test_an_empty_selector_matches_all_and_a_missing_one_nothing(build: Any, selector: Any, expected: Any) -> None:
    assert one(build.read(pdb({}, selector=selector))).selector == expected


def test_a_budget_that_cannot_be_read_is_set_aside(build: Any) -> None:
    read = build.read(pdb({"disruptionsAllowed": "many"}))
    assert read.budgets == ()
    assert any("disruptionsAllowed" in line for line in build.texts(read, "set-aside"))


def test_budgets_survive_an_export(build: Any) -> None:
    pods = running(build, 2, conditions=[{"type": "Ready", "status": "False"}])
    read = build.read(pdb({"disruptionsAllowed": 1}, unhealthyPodEvictionPolicy="AlwaysAllow"), *pods)
    objects, settings, now_s = load_kai_snapshot(_unzipped(export_kai_snapshot(objects_from_snapshot(read))))
    again = snapshot_from_objects(objects, now_s=now_s, settings=settings)
    assert again.budgets == read.budgets
    assert not any(pod.ready for gang in again.gangs for pod in gang.pods)


def _unzipped(archive: bytes) -> Any:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return json.loads(opened.read("snapshot.json"))
