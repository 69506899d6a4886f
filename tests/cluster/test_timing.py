"""Requests are timed by verb, also those that fail; everything else goes through."""

import inspect
import itertools

import pytest

from kai_solver.cluster.api import Api, ApiError
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import NODES, PODS
from kai_solver.cluster.timing import TimedApi


def test_each_request_is_told_with_its_verb_and_time() -> None:
    told: list[tuple[str, float]] = []
    ticks = itertools.count()
    memory = MemoryApi()
    api: Api = TimedApi(memory, lambda verb, seconds: told.append((verb, seconds)), lambda: float(next(ticks)))
    api.create(PODS, "n", {"metadata": {"name": "p"}, "spec": {}})
    api.create(PODS, "n", {"metadata": {"name": "p"}, "target": {"name": "node"}}, subresource="binding")
    assert api.get(PODS, "n", "p")["spec"] == {"nodeName": "node"}
    assert len(api.page(PODS, namespace="n").items) == 1
    assert api.page(PODS, namespace="other").items == []
    api.patch(PODS, "n", "p", {"status": {"phase": "Running"}}, subresource="status")
    assert memory.get(PODS, "n", "p")["status"]["phase"] == "Running"
    with pytest.raises(ApiError):
        api.delete(PODS, "n", "p", uid="another")
    verbs = ["create", "binding", "get", "list", "list", "patch", "delete"]
    assert told == [(verb, 1.0) for verb in verbs]


def test_watches_and_discovery_are_not_timed() -> None:
    told: list[str] = []
    memory = MemoryApi((NODES,))
    api = TimedApi(memory, lambda verb, _: told.append(verb))
    memory.create(NODES, "", {"metadata": {"name": "a"}})
    assert [event.kind for event in api.watch(NODES, "0", 0.0)] == ["ADDED"]
    assert api.installed() == api.served("v1") == {NODES}
    assert told == []
    api.within(1.0).get(NODES, "", "a")
    assert told == ["get"], "a connection of its own is timed, too"
    api.close()


def test_it_has_every_method_of_an_api() -> None:
    def methods(kind: type) -> dict[str, list[inspect.Parameter]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        signatures = {name: inspect.signature(method) for name, method in found if not name.startswith("_")}
        return {name: list(signature.parameters.values()) for name, signature in signatures.items()}

    assert methods(TimedApi) == methods(Api)
