"""Which namespaces may use which queues and spare nodes: the scheduler keeps to it, with or without admission."""

from typing import Any

import pytest

from kai_solver.kubeobjects import KubeSettings
from kai_solver.kubeobjects.access import Access, Allowance
from kai_solver.kubeobjects.recall import Recall
from tests.kubeobjects.conftest import Build

QUEUES = Access(queues=(Allowance(("rich-*",), ("team-*",)), Allowance(("people",), ("none",), groups=("leads",))))
SPARES = Access(spares=(Allowance(namespaces=("operations",)),))
QUEUE = "kai.scheduler/queue"


def work(build: Build, namespace: str, queue: str, **fields: Any) -> dict[str, Any]:
    return build.pod(more={"metadata": {"namespace": namespace}}, labels={QUEUE: queue}, **fields)


@pytest.mark.parametrize(
    ("namespace", "queue", "may"),
    [("team-a", "rich-1", True), ("ns", "rich-1", False), ("ns", "open", True), ("ns", "people", True)],
)
def test_work_waits_in_a_queue_that_its_namespace_may_use(build: Build, namespace: str, queue: str, may: bool) -> None:
    settings = KubeSettings(access=QUEUES)
    gang = build.one_gang(work(build, namespace, queue), settings=settings)
    assert gang.queue == queue
    assert gang.set_aside == ("" if may else f"namespace {namespace} may not use queue {queue}")


def test_the_label_of_an_owner_is_no_way_around(build: Build) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u-owner", "labels": {QUEUE: "rich-1"}},
    }
    gang = build.one_gang(build.pod(owner=build.owner("Job", "j")), job, settings=KubeSettings(access=QUEUES))
    assert gang.set_aside


def test_what_runs_in_a_queue_of_others_counts_in_the_default_queue(build: Build) -> None:
    snapshot = build.read(work(build, "ns", "rich-1", node="n", phase="Running"), settings=KubeSettings(access=QUEUES))
    (gang,) = snapshot.gangs
    assert (gang.queue, gang.set_aside) == ("default-queue", ""), "set aside it could never be evicted"
    assert any("may not use queue rich-1" in text for text in build.texts(snapshot))


@pytest.mark.parametrize(("namespace", "may"), [("operations", True), ("ns", False)])
def test_spare_nodes_are_for_namespaces_that_may_use_them(build: Build, namespace: str, may: bool) -> None:
    wanting = work(build, namespace, "q", annotations={"kai-solver/may-use-spares": "true"})
    assert build.one_gang(wanting, settings=KubeSettings(access=SPARES)).may_use_spares == may
    assert build.one_gang(wanting).may_use_spares


PEOPLE = Access(queues=(Allowance(("people",), ("team-*",), groups=("leads",)),), spares=(Allowance(users=("jo",)),))
"""Rules about users: admission judges the authors of pods."""


def a_job(namespace: str = "ns", labels: dict[str, str] | None = None, **annotations: str) -> dict[str, Any]:
    metadata = {"name": "j", "namespace": namespace, "uid": "u-owner", "labels": labels or {}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata | {"annotations": annotations}}


def pod_of_the_job(build: Build, namespace: str = "ns", **fields: Any) -> dict[str, Any]:
    return build.pod(owner=build.owner("Job", "j"), more={"metadata": {"namespace": namespace}}, **fields)


@pytest.mark.parametrize("key", [QUEUE, "project"])
@pytest.mark.parametrize(
    ("namespace", "of_pods", "may"),
    [("ns", "", False), ("ns", "people", True), ("ns", "open", False), ("team-a", "", True)],
    ids=["by the owner alone", "by the pods, too", "another one by the pods", "of a namespace that may use it"],
)
def test_a_queue_that_only_an_owner_names_is_judged_by_namespace(
    build: Build, key: str, namespace: str, of_pods: str, may: bool
) -> None:
    """Admission sees no owners, so no user was judged for it."""
    pod = pod_of_the_job(build, namespace, labels={key: of_pods} if of_pods else {})
    job, settings = a_job(namespace, {key: "people"}), KubeSettings(access=PEOPLE)
    gang = build.one_gang(pod, job, settings=settings)
    assert gang.queue == "people"
    assert gang.set_aside == ("" if may else "namespace ns may not use queue people, which an owner names and no pod")
    recall = Recall()
    build.read(pod, job, settings=settings, recall=recall)
    assert bool(recall.own_groups) == may, "a PodGroup of ours would keep the queue, whatever its owner names later"


def test_what_runs_in_a_queue_that_only_an_owner_names_counts_in_the_default_queue(build: Build) -> None:
    pod = pod_of_the_job(build, node="n", phase="Running")
    snapshot = build.read(pod, a_job(labels={QUEUE: "people"}), settings=KubeSettings(access=PEOPLE))
    (gang,) = snapshot.gangs
    assert (gang.queue, gang.set_aside) == ("default-queue", "")


def test_a_queue_that_the_namespace_names_is_the_administrators_word(build: Build) -> None:
    labels = {"metadata": {"name": "ns", "labels": {QUEUE: "people"}}}
    namespace = {"apiVersion": "v1", "kind": "Namespace"} | labels
    gang = build.one_gang(pod_of_the_job(build), a_job(), namespace, settings=KubeSettings(access=PEOPLE))
    assert (gang.queue, gang.set_aside) == ("people", "")


@pytest.mark.parametrize(("by_pods", "may"), [(True, True), (False, False)])
def test_spare_nodes_that_only_an_owner_asks_for_are_not_used(build: Build, by_pods: bool, may: bool) -> None:
    wish = {"kai-solver/may-use-spares": "true"}
    pod, settings = pod_of_the_job(build, annotations=wish if by_pods else {}), KubeSettings(access=PEOPLE)
    recall = Recall()
    snapshot = build.read(pod, a_job("ns", None, **wish), settings=settings, recall=recall)
    (gang,) = snapshot.gangs
    assert (gang.may_use_spares, gang.set_aside) == (may, "")
    assert any("may not use spare nodes" in text for text in build.texts(snapshot)) != may
    (own,) = recall.own_groups.values()
    assert ("kai-solver/may-use-spares" in own.document["metadata"]["annotations"]) == may
