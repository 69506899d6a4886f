"""Each step of docs/hand-over.md, there and back, with KAI's objects and stand-ins for its components."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.resources import BIND_REQUESTS, POD_GROUPS, PODS, QUEUES, VALIDATING_WEBHOOKS, Resource
from tests.cluster.plane.checker import GPU
from tests.cluster.plane.cluster import SPACE, STAYS_S, Cluster, Replica, pod, scheduled_condition
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.kai import GROUP, Kai
from tests.cluster.plane.kai_itself import KaiItself
from tests.cluster.plane.plane import free_ports, wait_for
from tests.cluster.plane.rehearsal import EXTERNAL, WORDS, rehearse
from tests.kai.oracle import Oracle, kais_programs

ALL_BUT_SCHEDULER = "pod grouper", "binder", "queue controller", "pod-group controller"


@pytest.fixture
def cluster(make_cluster: Make, requesting: None) -> Cluster:
    found = make_cluster()
    found.nodes(4)
    found.queues(research=32)
    return found


@pytest.fixture(params=["stand-ins", "itself"])
def kai(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Kai]:
    """KAI's components: stand-ins, and KAI 0.12 itself."""
    found = Kai(cluster) if request.param == "stand-ins" else KaiItself(cluster, programs=kais_programs())
    yield found
    found.end()


def waits_for_kai(replica: Replica) -> None:
    """Start beside KAI's scheduler."""
    replica.component.start()
    wait_for("it waits", lambda: "is renewed; this replica decides nothing" in replica.said_by("/readyz"))


def bound_uids(cluster: Cluster) -> set[str]:
    return {str(found["metadata"]["uid"]) for found in cluster.bound()}


def queue_sum(cluster: Cluster, name: str = "research") -> str:
    status = cluster.plane.api.get(QUEUES, "", name).get("status", {})
    return str(status.get("allocated", {}).get(GPU, ""))


def made_by_us(cluster: Cluster) -> list[Object]:
    groups = cluster.plane.api.page(POD_GROUPS, namespace=SPACE, limit=1000).items
    return [one for one in groups if "kai-solver/created" in str(one["metadata"].get("annotations", {}))]


# -- the scheduler -----------------------------------------------------------------------------------------------------


def test_the_scheduler_alone_is_exchanged_and_back(cluster: Cluster, kai: Kai) -> None:
    """All others of KAI's components go on: they group, bind and count as before."""
    kai.start("scheduler", *ALL_BUT_SCHEDULER)
    cluster.job("before", "research", 4, gpus=2)
    cluster.wait_bound(4, "before")
    replica = cluster.controller(start=False, **EXTERNAL)
    waits_for_kai(replica)
    cluster.pod("still-kais", "research")
    cluster.wait_bound(1, "still-kais")
    kai.stop("scheduler")
    cluster.job("meanwhile", "research", 4, gpus=2)
    kai.delete_lease()
    cluster.wait_bound(4, "meanwhile")
    wait_for("it is ready", replica.is_ready)
    cluster.job("large", "research", 2, gpus=9)
    assert cluster.stays_pending("large", 2)
    assert made_by_us(cluster) == []
    wait_for("KAI's queue controller counts", lambda: queue_sum(cluster) == "17")
    written = cluster.plane.api.get(QUEUES, "", "research")["metadata"]["managedFields"]
    assert len({one["manager"] for one in written if one.get("subresource") == "status"}) == 1, "we write no sums"
    before = bound_uids(cluster)
    assert replica.component.stop() == 0
    cluster.pod("on-the-way-back", "research")
    kai.start("scheduler")
    cluster.wait_bound(1, "on-the-way-back")
    assert before <= bound_uids(cluster)
    assert not cluster.checker.evicted


def test_an_operator_that_starts_kais_scheduler_again_only_makes_us_wait(cluster: Cluster, kai: Kai) -> None:
    kai.start("pod grouper", "binder")
    replica = cluster.controller(**EXTERNAL)
    cluster.pod("first", "research")
    cluster.wait_bound(1, "first")
    kai.start("scheduler")
    wait_for("we wait", lambda: "is renewed; this replica decides nothing" in replica.said_by("/readyz"))
    cluster.pod("second", "research")
    cluster.wait_bound(1, "second")
    asked = cluster.plane.api.get(BIND_REQUESTS, SPACE, "second")
    assert asked["spec"].get("receivedGPU", {}).get("portion") == "1.00"
    kai.stop("scheduler")
    kai.delete_lease()
    cluster.pod("third", "research")
    cluster.wait_bound(1, "third")


def test_a_scheduler_that_was_killed_and_left_its_lease_is_waited_for_six_seconds(cluster: Cluster, kai: Kai) -> None:
    kai.start("scheduler", "binder", "pod grouper")
    replica = cluster.controller(start=False, **EXTERNAL)
    waits_for_kai(replica)
    kai.stop("scheduler")
    cluster.pod("waits", "research")
    cluster.wait_bound(1, "waits")


def test_what_we_know_is_decided_by_kai_as_its_scheduler_decides(make_cluster: Make, requesting: None) -> None:
    """A snapshot of ours, from /get-snapshot while KAI's scheduler is away, and what that one does once it is back."""
    cluster = make_cluster()
    cluster.nodes(2)
    cluster.queues(lender=8, borrower=8)
    kai = KaiItself(cluster, programs=kais_programs())
    try:
        kai.start("scheduler", *ALL_BUT_SCHEDULER)
        cluster.pods(16, "borrower", "borrows")
        cluster.wait_bound(16, "borrows")
        replica = cluster.controller(dry_run=True, **EXTERNAL)
        kai.stop("scheduler")
        cluster.pods(4, "lender", "entitled")
        wait_for("we know of them", lambda: len(waiting_in(replica, "entitled")) == 4)
        with Oracle(kai.programs / "kai-decides", cluster.folder) as oracle:
            decided = {pod: state.status for pod, state in oracle.decide(replica.snapshot()).items()}
        takes = {pod.split("/")[1] for pod, status in decided.items() if status == "Pipelined"}
        loses = {pod.split("/")[1] for pod, status in decided.items() if status == "Releasing"}
        assert takes == {f"entitled-{index}" for index in range(4)}
        assert len(loses) == 4
        kai.start("scheduler")
        cluster.wait_bound(4, "entitled")
        wait_for("four are gone", lambda: len(cluster.bound("borrows")) == 12)
    finally:
        kai.end()


def waiting_in(replica: Replica, prefix: str) -> list[Object]:
    """Pods that have a PodGroup and no node, as far as the replica knows."""
    return [
        one
        for one in replica.objects()["pods"]
        if one["metadata"]["name"].startswith(prefix)
        and GROUP in one["metadata"].get("annotations", {})
        and not one["spec"].get("nodeName")
    ]


# -- the binder --------------------------------------------------------------------------------------------------------


def test_the_binder_is_exchanged_once_it_has_answered_all_requests(cluster: Cluster, kai: Kai) -> None:
    kai.start("pod grouper", "binder")
    replica = cluster.controller(**EXTERNAL)
    cluster.job("first", "research", 4)
    cluster.wait_bound(4, "first")
    assert replica.component.stop() == 0
    wait_for("no request is open", lambda: kai.open_requests() == [])
    kai.stop("binder")
    own = cluster.controller(**{**EXTERNAL, "binding": "own"})
    cluster.job("second", "research", 4)
    cluster.wait_bound(4, "second")
    assert not [one for one in kai.open_requests() if one["spec"]["podName"].startswith("second")]
    assert own.component.stop() == 0
    kai.start("binder")
    cluster.controller(**EXTERNAL)
    cluster.job("third", "research", 4)
    cluster.wait_bound(4, "third")
    assert not cluster.checker.evicted


def test_a_request_that_the_binder_left_holds_its_pod_until_it_is_deleted(cluster: Cluster, kai: Kai) -> None:
    """KAI's binder was stopped too early. The room stays promised, so that nothing is given twice."""
    kai.start("pod grouper", "scheduler")
    cluster.pod("left", "research", 8)
    wait_for("KAI asks its binder", lambda: len(kai.open_requests()) == 1)
    kai.stop("scheduler")
    kai.delete_lease()
    cluster.controller(grouping="external", accounting="external")
    cluster.pods(3, "research", "others", gpus=8)
    cluster.wait_bound(3, "others")
    assert cluster.stays_unbound("left", STAYS_S)
    cluster.plane.api.delete(BIND_REQUESTS, SPACE, "left")
    cluster.wait_bound(1, "left")


# -- the pod grouper ---------------------------------------------------------------------------------------------------


def test_the_pod_grouper_is_exchanged_and_gangs_of_both_stay_whole(cluster: Cluster, kai: Kai) -> None:
    kai.start("pod grouper")
    replica = cluster.controller(grouping="external", accounting="external")
    cluster.job("theirs", "research", 4)
    cluster.wait_bound(4, "theirs")
    kai.stop("pod grouper")
    cluster.job("ungrouped", "research", 4)
    wait_for("its pods are there", lambda: len(cluster.names("ungrouped")) == 4)
    assert all(cluster.stays_unbound(name, 0.0) for name in cluster.names("ungrouped"))
    assert replica.component.stop() == 0
    cluster.controller(accounting="external")
    cluster.wait_bound(4, "ungrouped")
    cluster.job("ours", "research", 4)
    cluster.wait_bound(4, "ours")
    groups = {str(one["metadata"]["name"]) for one in cluster.plane.api.page(POD_GROUPS, namespace=SPACE).items}
    wait_for("ours is written", lambda: len(made_by_us(cluster)) == 2)
    assert any(name.startswith("pg-theirs-") for name in groups)


def test_the_pod_grouper_comes_back_and_finds_the_groups_that_we_wrote(cluster: Cluster, kai: Kai) -> None:
    replica = cluster.controller()
    cluster.job("ours", "research", 4)
    cluster.wait_bound(4, "ours")
    wait_for("it is written", lambda: len(made_by_us(cluster)) == 1)
    (group,) = made_by_us(cluster)
    wait_for("its name is on its pods", lambda: set(grouped(cluster, "ours")) == {group["metadata"]["name"]})
    assert replica.component.stop() == 0
    kai.start("pod grouper", "scheduler", "binder")
    cluster.job("theirs", "research", 4)
    cluster.wait_bound(4, "theirs")
    if kai.makes_a_group_of_a_job:
        assert set(grouped(cluster, "ours")) == {group["metadata"]["name"]}
        assert len(cluster.plane.api.page(POD_GROUPS, namespace=SPACE).items) == 2
    assert len(cluster.bound("ours")) == 4
    assert not cluster.checker.evicted


def grouped(cluster: Cluster, prefix: str) -> list[str]:
    return [str((one["metadata"].get("annotations") or {}).get(GROUP)) for one in cluster.bound(prefix)]


# -- queue controller, pod-group controller ----------------------------------------------------------------------------


def test_the_controllers_of_queues_and_pod_groups_are_exchanged(cluster: Cluster, kai: Kai) -> None:
    kai.start("pod grouper", "queue controller", "pod-group controller")
    replica = cluster.controller(grouping="external", accounting="external")
    cluster.job("work", "research", 4)
    cluster.wait_bound(4, "work")
    wait_for("KAI counts", lambda: queue_sum(cluster) == "4")
    kai.stop("queue controller", "pod-group controller")
    cluster.job("more", "research", 4)
    cluster.wait_bound(4, "more")
    assert queue_sum(cluster) == "4", "nothing counts"
    assert replica.component.stop() == 0
    cluster.controller(grouping="external")
    wait_for("we count", lambda: queue_sum(cluster) == "8")
    status = cluster.plane.api.get(QUEUES, "", "research")["status"]
    assert {"requested", "childQueues"} <= set(status)


# -- admission ---------------------------------------------------------------------------------------------------------


@contextmanager
def dead_webhook(cluster: Cluster, name: str, kind: Resource) -> Iterator[None]:
    """A webhook of KAI whose server was scaled to 0, while its configuration stayed."""
    rule = {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "resources": [kind.plural],
        "operations": ["CREATE"],
    }
    url = f"https://127.0.0.1:{free_ports(1)[0]}/"
    hook: dict[str, Any] = {
        "name": f"{name}.kai.scheduler",
        "clientConfig": {"url": url},
        "rules": [rule],
        "failurePolicy": "Fail",
    }
    hook |= {"sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1}
    scope = {"matchLabels": {"kubernetes.io/metadata.name": SPACE}}
    body = {"metadata": {"name": name}, "webhooks": [hook | {"namespaceSelector": scope}]}
    cluster.plane.api.create(VALIDATING_WEBHOOKS, "", body)
    try:
        yield
    finally:
        cluster.plane.api.delete(VALIDATING_WEBHOOKS, "", name)


def is_refused(cluster: Cluster) -> bool:
    try:
        cluster.pod("probe", "research")
    except ApiError as error:
        return "failed calling webhook" in str(error)
    cluster.plane.api.delete(PODS, SPACE, "probe", grace_s=0)
    return False


def test_admission_that_is_scaled_down_refuses_pods_until_its_configuration_is_deleted(cluster: Cluster) -> None:
    cluster.controller()
    cluster.pod("before", "research")
    cluster.wait_bound(1, "before")
    with dead_webhook(cluster, "validating-kai-admission", PODS):
        wait_for("pods are refused", lambda: is_refused(cluster))
    wait_for("pods are taken again", lambda: not is_refused(cluster))
    cluster.pod("after", "research")
    cluster.wait_bound(1, "after")


def test_a_dead_webhook_for_pod_groups_keeps_no_gang_from_its_places(cluster: Cluster) -> None:
    with dead_webhook(cluster, "kai-podgroup-validation-v2alpha2", POD_GROUPS):
        cluster.controller()
        cluster.job("gang", "research", 4)
        cluster.wait_bound(4, "gang")
        assert made_by_us(cluster) == []
    wait_for("its PodGroup is written later", lambda: len(made_by_us(cluster)) == 1)


# -- node scale adjuster -----------------------------------------------------------------------------------------------


def test_a_pod_with_a_part_of_a_gpu_gets_the_condition_that_the_node_scale_adjuster_reads(cluster: Cluster) -> None:
    cluster.pods(4, "research", "full", gpus=8)
    cluster.controller()
    cluster.wait_bound(4, "full")
    body: dict[str, Any] = pod("part", "research", 0, annotations={"gpu-fraction": "0.5"})
    cluster.plane.api.create(PODS, SPACE, body)

    def reason() -> str:
        return str(scheduled_condition(cluster.plane.api.get(PODS, SPACE, "part")).get("reason", ""))

    wait_for("it is unschedulable", lambda: reason() == "Unschedulable")


# -- all of it ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["stand-ins", "itself"])
def test_the_rehearsal_there_and_back(make_cluster: Make, requesting: None, by: str) -> None:
    """As ``make rehearsal`` with its 200 nodes, on 20. How long pods wait is for that to say, on a quiet machine."""
    cluster = make_cluster()
    cluster.nodes(20)
    cluster.queues(research=160)
    kai = Kai(cluster) if by == "stand-ins" else KaiItself(cluster, programs=kais_programs())
    found = rehearse(cluster, kai, pods=24, every_s=0.5)
    assert found.restarted == 0
    assert found.running == 24
    assert {phase for phase, _, _ in found.waits} <= WORDS.keys()
    assert len(found.waits) > 4
    assert found.complaints == ""
