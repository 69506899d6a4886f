"""Who does not lead writes nothing, whatever asks for it."""

import inspect
from typing import Any

import pytest

from kai_solver.cluster.api import Api, FenceError
from kai_solver.cluster.fenced import FencedApi
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import PODS

READS = {"page", "watch", "get", "installed", "served", "within", "hang_up", "close"}


def methods(kind: type) -> dict[str, list[inspect.Parameter]]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: list(inspect.signature(f).parameters.values()) for name, f in found if not name.startswith("_")}


def test_it_has_every_method_of_an_api() -> None:
    assert methods(FencedApi) == methods(Api)


@pytest.mark.parametrize("name", sorted(methods(Api).keys() - READS))
def test_every_method_that_is_no_read_is_fenced(name: str) -> None:
    api = MemoryApi()
    api.create(PODS, "n", {"metadata": {"name": "p"}, "spec": {}})
    before = api.page(PODS)
    given: dict[str, Any] = {"resource": PODS, "namespace": "n", "name": "p", "body": {"metadata": {"name": "q"}}}
    wanted = {parameter.name for parameter in methods(Api)[name]}
    with pytest.raises(FenceError, match="no longer leads"):
        getattr(FencedApi(api, lambda: False), name)(**{key: value for key, value in given.items() if key in wanted})
    assert api.page(PODS) == before


def test_reads_and_the_writes_of_the_leader_go_through() -> None:
    api = MemoryApi()
    leads = FencedApi(api, lambda: True)
    leads.create(PODS, "n", {"metadata": {"name": "p"}, "spec": {}})
    leads.patch(PODS, "n", "p", {"metadata": {"labels": {"a": "b"}}})
    follows = FencedApi(api, lambda: False)
    assert follows.get(PODS, "n", "p")["metadata"]["labels"] == {"a": "b"}
    assert len(follows.within(1.0).page(PODS).items) == 1
    assert [event.kind for event in follows.watch(PODS, "0", 0.0)] == ["ADDED", "MODIFIED"]
    assert PODS in follows.installed() & follows.served("v1")
    leads.delete(PODS, "n", "p")
    assert follows.page(PODS).items == []
