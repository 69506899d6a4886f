"""What is known of a cluster, and what of it is news."""

from typing import Any

import pytest

from kai_solver.cluster.api import WatchEvent
from kai_solver.cluster.resources import (
    BIND_REQUESTS,
    CONFIG_MAPS,
    CSI_STORAGE_CAPACITIES,
    JOBS,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    Resource,
)
from kai_solver.cluster.store import Store, is_as_expected, is_over, is_worth_a_cycle


def pod(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": name, "resourceVersion": "1"}, "spec": {}, **more}


def test_a_list_replaces_and_a_watch_adds_changes_and_removes() -> None:
    store = Store()
    store.replace(PODS, [pod("a"), pod("b")])
    store.apply(PODS, WatchEvent("DELETED", pod("a")))
    store.apply(PODS, WatchEvent("MODIFIED", pod("b", status={"phase": "Running"})))
    store.apply(PODS, WatchEvent("ADDED", pod("c")))
    assert [item["metadata"]["name"] for item in store.all(PODS)] == ["b", "c"]
    found = store.get(PODS, "n/b")
    assert found is not None
    assert found["status"]["phase"] == "Running"
    store.replace(PODS, [pod("d")])
    assert [item["metadata"]["name"] for item in store.all(PODS)] == ["d"]


def test_listeners_hear_each_change_with_what_was_before() -> None:
    store = Store()
    heard: list[tuple[str, bool, bool]] = []
    store.listen(lambda _resource, key, before, after: heard.append((key, before is not None, after is not None)))
    store.replace(PODS, [pod("a")])
    store.replace(PODS, [pod("b")])
    store.apply(PODS, WatchEvent("DELETED", pod("b")))
    assert heard[0] == ("n/a", False, True)
    assert set(heard[1:3]) == {("n/a", True, False), ("n/b", False, True)}
    assert heard[3] == ("n/b", True, False)


@pytest.mark.parametrize("bad", [{}, {"metadata": []}, {"metadata": {"name": 7}}, "text", None])
def test_what_has_no_name_is_counted_and_spoils_nothing(bad: Any) -> None:
    store = Store()
    store.replace(PODS, [pod("a"), bad])
    assert len(store.all(PODS)) == 1
    assert store.malformed == {PODS: 1}
    (notice,) = store.notices()
    assert (notice.kind, notice.object) == ("set-aside", "Pod without a name")
    store.replace(PODS, [pod("a"), bad])
    assert store.malformed == {PODS: 1}, "a list begins anew"
    store.apply(PODS, WatchEvent("ADDED", bad))
    assert store.malformed == {PODS: 2}
    store.replace(PODS, [pod("a")])
    assert store.notices() == ()


def test_synced_is_every_kind_listed_once() -> None:
    store = Store()
    store.replace(PODS, [])
    assert store.is_synced([PODS])
    assert not store.is_synced([PODS, NODES])


def node(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1"}, "spec": {}, "status": {"allocatable": {"cpu": "8"}, **status}}


@pytest.mark.parametrize(
    ("resource", "before", "after", "worth"),
    [
        (NODES, None, node(), True),
        (NODES, node(), None, True),
        (
            NODES,
            node(conditions=[{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}]),
            node(conditions=[{"type": "Ready", "status": "True", "lastHeartbeatTime": "2"}]),
            False,
        ),
        (
            NODES,
            node(conditions=[{"type": "Ready", "status": "True"}]),
            node(conditions=[{"type": "Ready", "status": "False"}]),
            True,
        ),
        (NODES, node(), node(allocatable={"cpu": "4"}), True),
        (NODES, node(), node(images=["large"]), False),
        (PODS, pod("a"), pod("a", status={"conditions": [{"type": "PodScheduled", "status": "False"}]}), False),
        (PODS, pod("a", status={"phase": "Pending"}), pod("a", status={"phase": "Running"}), True),
        (PODS, pod("a"), pod("a", spec={"nodeName": "n1"}), True),
        (QUEUES, {"spec": {"priority": 1}, "status": {}}, {"spec": {"priority": 1}, "status": {"allocated": 1}}, False),
        (QUEUES, {"spec": {"priority": 1}}, {"spec": {"priority": 2}}, True),
        (POD_GROUPS, {"spec": {"minMember": 1}}, {"spec": {"minMember": 1}, "status": {"phase": "Running"}}, False),
        (BIND_REQUESTS, {"spec": {}, "status": {}}, {"spec": {}, "status": {"phase": "Failed"}}, True),
        (CSI_STORAGE_CAPACITIES, {"capacity": "1Gi"}, {"capacity": "2Gi"}, False),
        (CONFIG_MAPS, {"metadata": {}}, {"metadata": {"annotations": {"leader": "somebody"}}}, False),
        (CONFIG_MAPS, None, {"metadata": {}}, True),
        (CSI_STORAGE_CAPACITIES, None, {"capacity": "2Gi"}, False),
        (PODS, {"status": "nonsense"}, {"status": 3}, True),
    ],
)
def test_heartbeats_and_notes_are_no_news(resource: Resource, before: Any, after: Any, worth: bool) -> None:
    assert is_worth_a_cycle(resource, before, after) is worth


def on(node: str, phase: str = "Pending", **more: Any) -> dict[str, Any]:
    return pod("a", spec={"nodeName": node} if node else {}, status={"phase": phase, **more})


def leaving(at: int, phase: str = "Running") -> dict[str, Any]:
    return on("n1", phase) | {"metadata": {"name": "a", "deletionTimestamp": f"2026-01-01T00:00:{at:02}Z"}}


@pytest.mark.parametrize(
    ("expected", "after", "is_so"),
    [
        (on("n1"), on("n1"), True),
        (on("n1"), on("n1", "Running"), True),
        (on("n1", nominatedNodeName="n1"), on("n1", "Running"), True),
        (pod("a", spec={"nodeName": "n1"}), on("n1", "Running"), True),
        (on(""), on("n1"), False),
        (on("n1"), on("n2"), False),
        (on(""), on("", "Running"), False),
        (on("n1"), on("n1", "Failed"), False),
        (on("n1", "Running"), on("n1", "Succeeded"), False),
        (on("n1", "Running"), on("n1"), False),
        (on("n1"), on("n1") | {"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        (leaving(0), leaving(30), True),
        (leaving(0), leaving(30, "Failed"), False),
        (leaving(0), on("n1", "Running"), False),
        (on("n1"), on("n1") | {"metadata": {"name": "a", "labels": {"app": "other"}}}, False),
        (on("n1"), pod("a", spec={"nodeName": "n1", "priority": 7}), False),
        (on("n1"), {"metadata": {"name": "a"}, "spec": 3}, False),
        ({"metadata": 7}, on("n1"), False),
    ],
)
def test_a_pod_is_as_expected_where_it_was_bound_to_or_begins_there_or_leaves(
    expected: Any, after: Any, is_so: bool
) -> None:
    assert is_as_expected(expected, after) is is_so


@pytest.mark.parametrize(
    ("before", "after", "is_so"),
    [
        (on("n1", "Failed"), None, True),
        (on("n1", "Succeeded"), None, True),
        (on("n1", "Running"), None, False),
        (on("n1", "Failed"), on("n1", "Failed") | {"metadata": {"name": "a", "labels": {"app": "other"}}}, True),
        (on("n1", "Failed"), on("n1", "Running"), False),
        (on("n1", "Running"), on("n1", "Failed"), False),
        (None, on("n1", "Failed"), False),
        ({"status": 3}, None, False),
    ],
)
def test_a_pod_that_had_ended_frees_nothing_when_it_changes_or_is_gone(before: Any, after: Any, is_so: bool) -> None:
    assert is_over(before, after) is is_so


def test_how_far_an_owner_is_is_no_news_and_what_it_asks_for_is() -> None:
    store, news = Store(), []
    store.listen(lambda resource, _key, before, after: news.append(is_worth_a_cycle(resource, before, after)))
    store.replace(JOBS, [pod("job", status={"active": 1})])
    store.apply(JOBS, WatchEvent("MODIFIED", pod("job", status={"active": 2})))
    store.apply(JOBS, WatchEvent("MODIFIED", pod("job", spec={"parallelism": 2})))
    assert news == [True, False, True]
