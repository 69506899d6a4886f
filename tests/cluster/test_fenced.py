"""Who does not lead asks for nothing, whatever it is."""

import inspect
from typing import Any

import pytest

from kai_solver.cluster.api import Api, FenceError
from kai_solver.cluster.fenced import FencedApi
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import PODS

CONNECTIONS = {"within", "hang_up", "close"}


def methods(kind: type) -> dict[str, list[inspect.Parameter]]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: list(inspect.signature(f).parameters.values()) for name, f in found if not name.startswith("_")}


def test_it_has_every_method_of_an_api() -> None:
    assert methods(FencedApi) == methods(Api)


@pytest.mark.parametrize("name", sorted(methods(Api).keys() - CONNECTIONS))
def test_every_request_is_fenced(name: str) -> None:
    api = MemoryApi()
    api.create(PODS, "n", {"metadata": {"name": "p"}, "spec": {}})
    before = api.page(PODS)
    given: dict[str, Any] = {"resource": PODS, "namespace": "n", "name": "p", "body": {"metadata": {"name": "q"}}}
    given |= {"resource_version": "0", "timeout_s": 0.0, "api_version": "v1"}
    wanted = {parameter.name for parameter in methods(Api)[name]}
    with pytest.raises(FenceError, match="no longer leads"):
        getattr(FencedApi(api, lambda: False), name)(**{key: value for key, value in given.items() if key in wanted})
    assert api.page(PODS) == before


def test_what_the_leader_asks_for_goes_through() -> None:
    api = MemoryApi()
    leads = FencedApi(api, lambda: True)
    leads.create(PODS, "n", {"metadata": {"name": "p"}, "spec": {}})
    leads.patch(PODS, "n", "p", {"metadata": {"labels": {"a": "b"}}})
    assert leads.get(PODS, "n", "p")["metadata"]["labels"] == {"a": "b"}
    assert len(leads.within(1.0).page(PODS).items) == 1
    assert [event.kind for event in leads.watch(PODS, "0", 0.0)] == ["ADDED", "MODIFIED"]
    assert PODS in leads.installed() & leads.served("v1")
    leads.delete(PODS, "n", "p")
    assert leads.page(PODS).items == []
    leads.hang_up()
    leads.close()
