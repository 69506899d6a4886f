"""Who made a pod, and who groups it, as a whole replica sees it."""

import time
from typing import Any

import pytest

from kai_solver.cluster import owner_resolver
from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.memory import BUILT_IN, MemoryApi
from kai_solver.cluster.resources import JOBS, NODES, POD_GROUPS, PODS, QUEUES, Resource
from tests.controller.replicas import bound, cluster, running, until

TORCH = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
MINE = Resource("example.org", "v1", "mines", "Mine")


def copied(served: tuple[Resource, ...]) -> MemoryApi:
    """The usual cluster, with other kinds."""
    api, usual = MemoryApi(served), cluster()
    for resource in (NODES, QUEUES):
        for item in usual.page(resource).items:
            api.create(resource, "", item)
    return api


def made(api: MemoryApi, owner: Object, name: str, queue: str = "q", **annotations: str) -> None:
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {"kai.scheduler/queue": queue} if queue else {},
        "annotations": annotations,
        "ownerReferences": [named | {field: owner["metadata"][field] for field in ("name", "uid")}],
    }
    containers = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    api.create(PODS, "n", {"metadata": metadata, "spec": {"schedulerName": "kai-scheduler", "containers": containers}})


def test_with_external_grouping_pods_wait_for_their_pod_group() -> None:
    api = cluster()
    job = api.create(JOBS, "n", {"metadata": {"name": "j"}})
    with running(api, grouping="external") as replica:
        made(api, job, "p")
        until(lambda: replica.scheduler._number > 0)
        time.sleep(0.5)
        assert bound(api) == set()
        assert api.page(POD_GROUPS).items == []
        assert JOBS not in replica._parts.known.kinds, "nobody is asked who made a pod"
        api.create(POD_GROUPS, "n", {"metadata": {"name": "pg"}, "spec": {"queue": "q", "minMember": 1}})
        time.sleep(0.5)
        assert bound(api) == set()
        api.patch(PODS, "n", "p", {"metadata": {"annotations": {"pod-group-name": "pg"}}})
        until(lambda: bound(api) == {"p"})


def test_a_kind_that_is_installed_while_we_run_makes_gangs() -> None:
    api = copied(BUILT_IN)
    with running(api) as replica:
        until(lambda: replica.scheduler._number > 0)
        api.install(TORCH)
        spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}
        job = api.create(TORCH, "n", {"metadata": {"name": "t"}, "spec": spec})
        made(api, job, "w-0")
        until(lambda: TORCH in replica._parts.known.kinds)
        time.sleep(0.5)
        assert bound(api) == set(), "it waits for the other worker"
        made(api, job, "w-1")
        until(lambda: bound(api) == {"w-0", "w-1"})


class Forbidding(MemoryApi):
    """No owner of our own kind may be read."""

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        if resource == MINE:
            raise ApiError(403, "Forbidden", "mines.example.org is forbidden")
        return super().get(resource, namespace, name)


def test_an_owner_of_an_unknown_kind_names_the_queue() -> None:
    api = copied((*BUILT_IN, MINE))
    mine = api.create(MINE, "n", {"metadata": {"name": "m", "labels": {"kai.scheduler/queue": "q"}}})
    with running(api):
        made(api, mine, "p", queue="")
        until(lambda: bound(api) == {"p"})


def test_a_missing_right_to_read_an_owner_is_told_once_and_holds_nothing_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_resolver, "DOUBTED_S", 0.0)
    api, usual = Forbidding((*BUILT_IN, MINE)), cluster()
    for resource in (NODES, QUEUES):
        for item in usual.page(resource).items:
            api.create(resource, "", item)
    with running(api):
        for index in range(3):
            mine = api.create(MINE, "n", {"metadata": {"name": f"m{index}"}})
            made(api, mine, f"p{index}")
        until(lambda: len(bound(api)) == 3)
    assert capsys.readouterr().out.count("owners of this kind cannot be read") == 1


def test_a_plain_pod_has_a_pod_group_unless_that_is_switched_off() -> None:
    api = cluster()
    containers = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    spec = {"schedulerName": "kai-scheduler", "containers": containers}
    body = {"metadata": {"name": "p", "labels": {"kai.scheduler/queue": "q"}}, "spec": spec}
    api.create(PODS, "n", body)
    with running(api, write_pod_groups=False):
        until(lambda: bound(api) == {"p"})
    assert api.page(POD_GROUPS).items == []
    with running(api):
        until(lambda: len(api.page(POD_GROUPS).items) == 1)
