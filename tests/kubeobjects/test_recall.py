"""Reading with a memory gives what reading without one gives, whatever changes in between."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.domain import Snapshot
from kai_solver.kubeobjects import RawObjects, Recall, names, snapshot_from_objects
from kai_solver.kubeobjects.grouping import Claimed
from kai_solver.kubeobjects.podgroups import GangReader
from kai_solver.kubeobjects.pods import PodReader

NOW_S = 1_800_000_000.0
Object = dict[str, Any]


def node(name: str, **labels: str) -> Object:
    allocatable = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4", "pods": "50"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    return {"kind": "Node", "metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}}


def queue(name: str) -> Object:
    amounts = {"quota": 4, "limit": -1, "overQuotaWeight": 1}
    return {"metadata": {"name": name}, "spec": {"resources": dict.fromkeys(("cpu", "memory", "gpu"), amounts)}}


def pod(name: str, owner: Object | None = None, **spec: Any) -> Object:
    metadata: Object = {"namespace": "ns", "name": name, "uid": f"u-{name}", "labels": {"kai.scheduler/queue": "q"}}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    if owner is not None:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [reference | {part: owner["metadata"][part] for part in ("name", "uid")}]
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}}}
    whole = {"schedulerName": "kai-scheduler", "containers": [container], **spec}
    return {"kind": "Pod", "metadata": metadata, "spec": whole, "status": {"phase": "Pending"}}


JOB: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "namespace": "ns",
        "name": "job",
        "uid": "u-job",
        "annotations": {"kai.scheduler/batch-min-member": "2"},
    },
}
VOLUME = [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]


def shared(name: str) -> Object:
    made = pod(name, containers=[{"name": "c"}])
    made["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    return made


class World:
    """Objects of a small cluster, changed as an API server changes them: the changed object is a new one."""

    def __init__(self) -> None:
        self.kinds: dict[str, dict[str, Object]] = {
            "nodes": {name: node(name) for name in ("n1", "n2")},
            "queues": {"q": queue("q")},
            "namespaces": {"ns": {"kind": "Namespace", "metadata": {"name": "ns", "labels": {}}}},
            "other": {"job": JOB},
            "pod_groups": {},
            "persistent_volume_claims": {},
            "pods": {
                "plain": pod("plain"),
                "j0": pod("j0", JOB),
                "j1": pod("j1", JOB),
                "stored": pod("stored", volumes=VOLUME),
                "shared": shared("shared"),
            },
        }
        self.made = 0

    def snapshot(self, recall: Recall | None, now_s: float = NOW_S) -> Snapshot:
        objects = replace(RawObjects(), **{kind: tuple(found.values()) for kind, found in self.kinds.items()})  # type: ignore[arg-type]
        return snapshot_from_objects(objects, now_s=now_s, recall=recall)

    def change(self, kind: str, name: str, edit: Callable[[Object], object]) -> None:
        if name in self.kinds[kind]:
            fresh = copy.deepcopy(self.kinds[kind][name])
            edit(fresh)
            self.kinds[kind][name] = fresh

    def add_pod(self) -> None:
        self.made += 1
        self.kinds["pods"][f"new{self.made}"] = pod(f"new{self.made}", JOB if self.made % 2 else None)

    def add_claim(self) -> None:
        claim = {"metadata": {"namespace": "ns", "name": "claim"}, "spec": {"volumeName": "gone"}}
        self.kinds["persistent_volume_claims"]["claim"] = claim

    def add_pod_group(self) -> None:
        metadata = {"namespace": "ns", "name": "pg-job-u-job", "uid": "g"}
        self.kinds["pod_groups"]["g"] = {"metadata": metadata, "spec": {"queue": "q", "minMember": 3}}

    def add_maker(self, kind: str, group: str) -> None:
        """Somebody who made the job; the job says so from now on."""
        maker = {
            "apiVersion": f"{group}/v1",
            "kind": kind,
            "metadata": {"namespace": "ns", "name": "above", "uid": "a"},
        }
        self.kinds["other"]["above"] = maker
        reference = {"apiVersion": maker["apiVersion"], "kind": kind, "name": "above", "uid": "a", "controller": True}
        self.change("other", "job", lambda job: job["metadata"].update(ownerReferences=[reference]))

    def add_worker(self, leader: str) -> None:
        """A pod that another pod made, as workers of a LeaderWorkerSet."""
        if leader in self.kinds["pods"]:
            metadata = self.kinds["pods"][leader]["metadata"]
            self.kinds["pods"]["worker"] = pod("worker", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata})


FUTURE = "2027-01-15T09:00:00Z"
"""An hour after `NOW_S`."""

NAMES = ("plain", "j0", "j1", "stored", "shared", "new1", "new2")
SKIP, POOL = "kai.scheduler/skip-podgrouper", "kai.scheduler/node-pool"
SHARED_ON = {"runai-gpu-group": "device"}
WRITTEN = {names.OWN_CREATED: "2026-01-01T00:00:00Z"}
STRAY = {names.OWN_CREATED: "no time", names.OWN_DRAIN_AT: "2026-01-01T00:00:00Z"}

EDITS: dict[str, Callable[[World, str], object]] = {
    "bind": lambda w, n: w.change("pods", n, lambda p: p["spec"].update(nodeName="n1")),
    "run": lambda w, n: w.change(
        "pods", n, lambda p: (p["spec"].update(nodeName="n2"), p.update(status={"phase": "Running"}))
    ),
    "start": lambda w, n: w.change(
        "pods", n, lambda p: p.update(status={"phase": "Running", "startTime": "2026-01-01T00:00:00Z"})
    ),
    "finish": lambda w, n: w.change("pods", n, lambda p: p.update(status={"phase": "Succeeded"})),
    "nonsense": lambda w, n: w.change("pods", n, lambda p: p.update(status={"phase": "Dancing"})),
    "nominate": lambda w, n: w.change("pods", n, lambda p: p["status"].update(nominatedNodeName="n2")),
    "gate": lambda w, n: w.change("pods", n, lambda p: p["spec"].update(schedulingGates=[{"name": "g"}])),
    "end": lambda w, n: w.change("pods", n, lambda p: p["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z")),
    "relabel": lambda w, n: w.change(
        "pods", n, lambda p: p["metadata"]["labels"].update(priorityClassName="inference")
    ),
    "share": lambda w, n: w.change("pods", n, lambda p: p["metadata"]["labels"].update(SHARED_ON)),
    "break": lambda w, n: w.change("pods", n, lambda p: p["spec"].update(containers=7)),
    "delete": lambda w, n: w.kinds["pods"].pop(n, None),
    "add": lambda w, _: w.add_pod(),
    "claim": lambda w, _: w.add_claim(),
    "pod-group": lambda w, _: w.add_pod_group(),
    "no-pod-group": lambda w, _: w.kinds["pod_groups"].clear(),
    "group-queue": lambda w, _: w.change("pod_groups", "g", lambda g: g["spec"].update(queue="q2")),
    "group-pool": lambda w, _: w.change("pod_groups", "g", lambda g: g["metadata"].update(labels={POOL: "another"})),
    "group-own": lambda w, _: w.change("pod_groups", "g", lambda g: g["metadata"].update(annotations=WRITTEN)),
    "group-stray": lambda w, _: w.change("pod_groups", "g", lambda g: g["metadata"].update(annotations=STRAY)),
    "group-typo": lambda w, _: w.change("pod_groups", "g", lambda g: g["spec"].update(preemptibility="perhaps")),
    "group-future": lambda w, _: w.change(
        "pod_groups", "g", lambda g: g["metadata"].update(annotations={names.LAST_EVICTION: FUTURE})
    ),
    "group-broken": lambda w, _: w.change("pod_groups", "g", lambda g: g["metadata"].update(annotations=7)),
    "group-nameless": lambda w, _: w.change("pod_groups", "g", lambda g: g["metadata"].pop("name", None)),
    "pod-typo": lambda w, n: w.change(
        "pods", n, lambda p: p["metadata"].update(annotations={names.OWN_RUN_TIME: "long"})
    ),
    "job-typo": lambda w, _: w.change(
        "other", "job", lambda j: j["metadata"].update(annotations={"kai.scheduler/batch-min-member": "many"})
    ),
    "job": lambda w, _: w.change("other", "job", lambda j: j["metadata"].update(annotations={})),
    "no-job": lambda w, _: w.kinds["other"].pop("job", None),
    "job-again": lambda w, _: w.kinds["other"].update(job=copy.deepcopy(JOB)),
    "job-set": lambda w, _: w.add_maker("JobSet", "jobset.x-k8s.io"),
    "cron-job": lambda w, _: w.add_maker("CronJob", "batch"),
    "no-maker": lambda w, _: w.kinds["other"].pop("above", None),
    "worker": lambda w, n: w.add_worker(n),
    "skip": lambda w, _: w.change("other", "job", lambda j: j["metadata"].update(labels={SKIP: "true"})),
    "pool": lambda w, _: w.change("other", "job", lambda j: j["metadata"].update(labels={POOL: "another"})),
    "by-hand": lambda w, n: w.change(
        "pods", n, lambda p: p["metadata"].update(annotations={"pod-group-name": "pg-job-u-job"})
    ),
    "node": lambda w, _: w.change(
        "nodes", "n1", lambda x: x["metadata"]["labels"].update({"nvidia.com/mig.strategy": "single"})
    ),
    "namespace": lambda w, _: w.change(
        "namespaces", "ns", lambda x: x["metadata"]["labels"].update({"kai.scheduler/queue": "q2"})
    ),
    "queue": lambda w, _: w.kinds["queues"].update(q2=queue("q2")),
    "extended": lambda w, _: w.change(
        "nodes", "n2", lambda x: x["status"]["allocatable"].update({"example.com/x": "2"})
    ),
}


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(sorted(EDITS)), st.sampled_from(NAMES)), min_size=1, max_size=12))
def test_a_memory_makes_no_difference(edits: list[tuple[str, str]]) -> None:
    world, recall = World(), Recall()
    assert world.snapshot(recall) == world.snapshot(None)
    for edit, name in edits:
        EDITS[edit](world, name)
        fresh = world.snapshot(None)
        assert world.snapshot(recall) == fresh
        assert world.snapshot(recall) == fresh, "nothing changed"


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit.startswith("group-")])
def test_a_pod_group_that_changed_is_read_again(edit: str) -> None:
    world, recall = World(), Recall()
    world.add_pod_group()
    for change in ("by-hand", edit, "group-queue", "no-pod-group"):
        EDITS[change](world, "j0")
        assert world.snapshot(recall) == world.snapshot(None)


def test_what_did_not_change_is_the_very_same_object() -> None:
    world, recall = World(), Recall()
    before = {p.key: p for gang in world.snapshot(recall).gangs for p in gang.pods}
    EDITS["run"](world, "j0")
    after = {p.key: p for gang in world.snapshot(recall).gangs for p in gang.pods}
    assert after["ns/plain"] is before["ns/plain"]
    assert after["ns/j1"] is before["ns/j1"]
    assert after["ns/j0"].node == "n2"


@pytest.mark.parametrize("edit", ["run", "start", "end"])
def test_what_changes_while_a_pod_lives_is_read_again(edit: str) -> None:
    world, recall = World(), Recall()
    world.snapshot(recall)
    for change in ("bind", edit):
        EDITS[change](world, "plain")
        assert world.snapshot(recall) == world.snapshot(None)


def test_a_pod_that_is_being_deleted_is_the_very_same_object_until_it_hangs() -> None:
    world, recall = World(), Recall()
    for edit in ("run", "end"):
        EDITS[edit](world, "j0")
    deleted_s = 1_767_225_600.0  # 2026-01-01T00:00:00Z
    read = [world.snapshot(recall, deleted_s + later_s) for later_s in (0.0, 1.0, 100.0, 1000.0)]
    found = [next(p for gang in one.gangs for p in gang.pods if p.name == "j0") for one in read]
    assert [pod.status.name for pod in found] == ["RELEASING", "RELEASING", "RELEASING", "STUCK_IN_RELEASING"]
    assert found[0] is found[1] is found[2]


def test_what_is_gone_is_forgotten() -> None:
    world, recall = World(), Recall()
    world.snapshot(recall)
    world.kinds["pods"].clear()
    world.snapshot(recall)
    assert not recall._pods
    assert recall._made.keys() <= {"owners"}


def test_pods_that_ask_for_the_same_share_the_object_that_says_so_from_reading_to_reading() -> None:
    """Problems know kinds of pods by these objects, and hold on to a pod for each of them."""
    world, recall = World(), Recall()
    known = {id(found.request): found.request for gang in world.snapshot(recall).gangs for found in gang.pods}
    before = len(known)
    for _ in range(20):
        del world.kinds["pods"][next(reversed(world.kinds["pods"]))]
        world.add_pod()
        known |= {id(found.request): found.request for gang in world.snapshot(recall).gangs for found in gang.pods}
    assert len(known) == before == len(set(known.values()))


def test_owners_are_looked_for_again_only_where_one_of_them_changed() -> None:
    world, recall = World(), Recall()

    def members() -> dict[str, object]:
        world.snapshot(recall)
        return {known.member.pod.key: known.member for known in recall.members._before.values()}

    before = members()
    EDITS["job"](world, "")
    after = members()
    assert after["ns/plain"] is before["ns/plain"]
    assert after["ns/j0"] is not before["ns/j0"]
    assert members()["ns/j0"] is after["ns/j0"], "nothing changed"


def test_a_node_that_did_not_change_is_the_very_same_object() -> None:
    world, recall = World(), Recall()
    before = {found.name: found for found in world.snapshot(recall).nodes}
    EDITS["node"](world, "")
    after = {found.name: found for found in world.snapshot(recall).nodes}
    assert after["n2"] is before["n2"]
    assert after["n1"] is not before["n1"]


@pytest.mark.parametrize("edit", ["pod-typo", "job-typo", "group-typo"])
def test_what_gave_a_notice_is_not_read_again(monkeypatch: pytest.MonkeyPatch, edit: str) -> None:
    world, recall = World(), Recall()
    del world.kinds["pods"]["stored"], world.kinds["pods"]["shared"]  # read each time, as they depend on others
    world.add_pod_group()
    for change in ("by-hand", edit):
        EDITS[change](world, "plain")
    before = world.snapshot(recall)
    assert any(word in notice.text for notice in before.notices for word in ("'long'", "'many'", "'perhaps'"))
    read: list[str] = []
    for reader, method in ((PodReader, "read"), (GangReader, "read"), (Claimed, "group")):
        monkeypatch.setattr(reader, method, lambda *_, **__: read.append("again"))
    assert world.snapshot(recall) == before
    assert not read


def test_what_the_time_says_is_read_again() -> None:
    world, recall = World(), Recall()
    world.add_pod_group()
    for edit in ("by-hand", "group-future"):
        EDITS[edit](world, "plain")
    assert any("is in the future" in notice.text for notice in world.snapshot(recall).notices)
    (gang,) = (gang for gang in world.snapshot(recall, NOW_S + 7200).gangs if gang.key == "ns/pg-job-u-job")
    assert gang.last_eviction_s == NOW_S + 3600


def test_of_queues_without_gangs_nothing_is_remembered() -> None:
    world, recall = World(), Recall()
    for at in range(3):
        EDITS["add"](world, "")
        world.change("pods", f"new{at + 1}", lambda p: p["metadata"]["labels"].update({"kai.scheduler/queue": "gone"}))
    world.snapshot(recall)
    assert recall.identical.keys() == {"q", "gone"}
    for at in range(3):
        EDITS["delete"](world, f"new{at + 1}")
    world.snapshot(recall)
    assert recall.identical.keys() == {"q"}
