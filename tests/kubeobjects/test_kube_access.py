"""Which namespaces may use which queues and spare nodes: the scheduler keeps to it, with or without admission."""

from typing import Any

import pytest

from kai_solver.kubeobjects import KubeSettings
from kai_solver.kubeobjects.access import Access, Allowance
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
