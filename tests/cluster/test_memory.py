"""The API server in memory keeps the promises that a scheduler leans on."""

from typing import Any

import pytest

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import DISRUPTION_BUDGETS, EVENTS, NODES, PODS, QUEUES


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec}


def bind(api: MemoryApi, name: str, node: str, uid: str = "") -> None:
    metadata = {"name": name} | ({"uid": uid} if uid else {})
    api.create(PODS, "n", {"metadata": metadata, "target": {"name": node}}, subresource="binding")


def test_a_pod_is_bound_once() -> None:
    api = MemoryApi()
    api.create(PODS, "n", pod())
    bind(api, "p", "n1")
    with pytest.raises(ApiError) as caught:
        bind(api, "p", "n2")
    assert caught.value.is_conflict
    assert api.get(PODS, "n", "p")["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize("spec", [{"schedulingGates": [{"name": "x"}]}])
def test_a_gated_pod_and_a_pod_of_another_uid_are_not_bound(spec: dict[str, Any]) -> None:
    api = MemoryApi()
    api.create(PODS, "n", pod(**spec))
    api.create(PODS, "n", pod("q"))
    with pytest.raises(ApiError):
        bind(api, "p", "n1")
    with pytest.raises(ApiError):
        bind(api, "q", "n1", uid="somebody else's")


def test_a_name_is_taken_once_and_a_stale_patch_is_refused() -> None:
    api = MemoryApi()
    made = api.create(PODS, "n", pod())
    with pytest.raises(ApiError) as caught:
        api.create(PODS, "n", pod())
    assert caught.value.reason == "AlreadyExists"
    version = made["metadata"]["resourceVersion"]
    label = {"metadata": {"resourceVersion": version, "labels": {"a": "b"}}}
    api.patch(PODS, "n", "p", label)
    with pytest.raises(ApiError) as caught:
        api.patch(PODS, "n", "p", label)
    assert caught.value.is_conflict


def test_status_is_written_by_its_subresource_alone() -> None:
    api = MemoryApi()
    api.create(QUEUES, "", {"metadata": {"name": "q"}, "spec": {"priority": 1}})
    api.patch(QUEUES, "", "q", {"spec": {"priority": 2}, "status": {"x": 1}}, subresource="status")
    api.patch(QUEUES, "", "q", {"status": {"y": 1}})
    found = api.get(QUEUES, "", "q")
    assert (found["spec"], found["status"]) == ({"priority": 1}, {"x": 1})


def test_a_patch_that_changes_nothing_is_no_event() -> None:
    api = MemoryApi()
    before = api.create(QUEUES, "", {"metadata": {"name": "q"}, "spec": {"priority": 1}})
    after = api.patch(QUEUES, "", "q", {"spec": {"priority": 1}})
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_a_running_pod_leaves_with_grace_and_a_waiting_one_at_once() -> None:
    api = MemoryApi()
    api.create(PODS, "n", pod("runs", nodeName="n1"))
    api.create(PODS, "n", pod("waits"))
    api.delete(PODS, "n", "runs")
    api.delete(PODS, "n", "waits")
    assert "deletionTimestamp" in api.get(PODS, "n", "runs")["metadata"]
    with pytest.raises(ApiError) as caught:
        api.get(PODS, "n", "waits")
    assert caught.value.is_missing
    api.delete(PODS, "n", "runs", grace_s=0)
    assert not api.page(PODS).items


def test_an_eviction_heeds_the_budget() -> None:
    api = MemoryApi()
    api.create(PODS, "n", pod(nodeName="n1"))
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}
    api.create(DISRUPTION_BUDGETS, "n", budget | {"status": {"disruptionsAllowed": 0}})
    with pytest.raises(ApiError) as caught:
        api.create(PODS, "n", {"metadata": {"name": "p"}}, subresource="eviction")
    assert caught.value.status == 429
    api.patch(DISRUPTION_BUDGETS, "n", "b", {"status": {"disruptionsAllowed": 1}}, subresource="status")
    api.create(PODS, "n", {"metadata": {"name": "p"}}, subresource="eviction")
    assert "deletionTimestamp" in api.get(PODS, "n", "p")["metadata"]


def test_a_watch_goes_on_from_where_a_list_stood() -> None:
    api = MemoryApi()
    api.create(NODES, "", {"metadata": {"name": "before"}})
    page = api.page(NODES)
    api.create(NODES, "", {"metadata": {"name": "a"}})
    api.create(PODS, "n", pod())
    api.patch(NODES, "", "a", {"metadata": {"labels": {"x": "y"}}})
    api.delete(NODES, "", "a")
    events = list(api.watch(NODES, page.resource_version, 0.0))
    assert [event.kind for event in events] == ["ADDED", "MODIFIED", "DELETED"]


def test_what_is_too_old_must_be_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_solver.cluster.memory.KEPT_EVENTS", 5)
    api = MemoryApi()
    for index in range(10):
        api.create(NODES, "", {"metadata": {"name": f"n{index}"}})
    with pytest.raises(ApiError) as caught:
        next(api.watch(NODES, "1", 0.0))
    assert caught.value.is_gone
    assert len(list(api.watch(NODES, "5", 0.0))) == 5


def test_lists_come_in_pages() -> None:
    api = MemoryApi()
    for index in range(5):
        api.create(NODES, "", {"metadata": {"name": f"n{index}"}})
    names, continue_ = [], ""
    while True:
        page = api.page(NODES, limit=2, continue_=continue_)
        names += [item["metadata"]["name"] for item in page.items]
        continue_ = page.continue_
        if not continue_:
            break
    assert names == ["n0", "n1", "n2", "n3", "n4"]


def test_a_kind_that_is_not_installed_is_missing() -> None:
    with pytest.raises(ApiError) as caught:
        MemoryApi(served=(PODS,)).page(NODES)
    assert caught.value.is_missing


def test_only_the_newest_events_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_solver.cluster.memory.EVENT_OBJECTS", 2)
    api = MemoryApi()
    for name in "abc":
        api.create(EVENTS, "n", {"metadata": {"name": name}})
    assert [item["metadata"]["name"] for item in api.page(EVENTS).items] == ["b", "c"]
