"""``kai-solver shadow BEFORE AFTER``: two exports of a cluster, and the report on them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.instances_io.pod_objects import pod_objects
from tests.support.engines import GREEDY

NINE, LATER = "2026-11-23T09:00:00Z", "2026-11-23T09:10:00Z"
PARAMETERS = {"schedulerName": "kai-scheduler", "fullHierarchyFairness": True}
FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def pod(name: str, queue: str, node: str = "", **times: str) -> dict[str, Any]:
    """A pod of a GPU; it runs where a node is named, bound at ``since``."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "creationTimestamp": "2026-11-23T08:00:00Z",
    }
    limits = {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": {"limits": limits}}]}
    status: dict[str, Any] = {"phase": "Pending"}
    if node:
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": times.get("since", NINE)}
        spec["nodeName"], status = node, {"phase": "Running", "conditions": [condition]}
    metadata |= {"labels": {"kai.scheduler/queue": queue}, "annotations": {"pod-group-name": f"pg-{name}"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def group(name: str) -> dict[str, Any]:
    """The PodGroup of a pod."""
    metadata = {"name": f"pg-{name}", "namespace": "ns", "creationTimestamp": "2026-11-23T08:00:00Z"}
    spec = {"minMember": 1, "queue": "q"}
    return {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}


def cluster(at: str, *pods: dict[str, Any]) -> list[dict[str, Any]]:
    """Two nodes of a GPU each, and a queue."""
    room = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1", "pods": "110"}
    heard = {"type": "Ready", "status": "True", "lastHeartbeatTime": at, "lastTransitionTime": at}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "creationTimestamp": "2026-11-23T07:00:00Z"},
            "status": {"allocatable": room, "conditions": [heard]},
        }
        for name in ("a", "b")
    ]
    resources = {"gpu": FREE, "cpu": FREE, "memory": FREE}
    queue = {"metadata": {"name": "q"}, "spec": {"resources": resources}}
    groups = [group(found["metadata"]["name"]) for found in pods]
    return [*nodes, {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", **queue}, *groups, *pods]


def write(path: Path, form: str, items: list[dict[str, Any]]) -> Path:
    """As a list of kubectl, or as KAI's snapshot."""
    document: dict[str, Any] = {"apiVersion": "v1", "kind": "List", "items": items}
    if form == "kai":
        members = {"Pod": "pods", "Node": "nodes", "Queue": "queues", "PodGroup": "podGroups"}
        raw = {member: [one for one in items if one["kind"] == kind] for kind, member in members.items()}
        document = {"config": {}, "schedulerParams": PARAMETERS, "rawObjects": raw}
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("form", ["kubectl", "kai"])
def test_the_second_snapshot_says_what_was_done_with_the_gangs_of_the_first(form: str, tmp_path: Path) -> None:
    """Both wait at nine; the other scheduler binds one of them after five minutes."""
    before = write(tmp_path / "before.json", form, cluster(NINE, pod("one", "q"), pod("two", "q")))
    bound = pod("one", "q", "a", since="2026-11-23T09:05:00Z")
    after = write(tmp_path / "after.json", form, cluster(LATER, bound, pod("two", "q")))
    assert set(pod_objects(after)) == {"ns/one", "ns/two"}
    page, words = tmp_path / "report.html", [str(before), str(after), *GREEDY, "--quiet"]
    asked = CliRunner().invoke(app, ["shadow", *words, "--json", "--html", str(page)])
    assert asked.exit_code == 0, asked.output
    found = json.loads(asked.stdout)
    by_gang = {one["gang"]: one for one in found["by_gang"]}
    assert {name: one["verdict"] for name, one in by_gang.items()} == {"ns/pg-one": "better", "ns/pg-two": "better"}
    assert by_gang["ns/pg-one"]["waits"][0]["saved_s"] == pytest.approx(300, abs=60)
    assert by_gang["ns/pg-two"]["why"].endswith("was pending to the end")
    assert "2 gangs compared" in page.read_text()


def test_the_wrong_order_is_an_error(tmp_path: Path) -> None:
    before = write(tmp_path / "before.json", "kubectl", cluster(NINE, pod("one", "q")))
    after = write(tmp_path / "after.json", "kubectl", cluster(LATER, pod("one", "q")))
    asked = CliRunner().invoke(app, ["shadow", str(after), str(before), *GREEDY, "--quiet"])
    assert asked.exit_code == 2
    assert "not later than the first" in asked.stderr


def test_snapshots_of_two_clusters_are_an_error_before_anything_is_decided(tmp_path: Path) -> None:
    before = write(tmp_path / "before.json", "kubectl", cluster(NINE, pod("one", "q")))
    other = json.loads(json.dumps(cluster(LATER, pod("one", "q"))))
    for one in other:
        if one["kind"] == "Node":
            one["metadata"]["name"] += "-of-another"
    after = write(tmp_path / "after.json", "kubectl", other)
    asked = CliRunner().invoke(app, ["shadow", str(before), str(after), *GREEDY])
    assert asked.exit_code == 2
    assert "not of one cluster" in asked.stderr
    assert "greedy" not in asked.stderr, "no progress of a decision"
