"""A cluster in memory with some queues, as admission looks at it."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import NAMESPACES, QUEUES, Resource
from kai_solver.cluster.store import Store
from kai_solver.controller.admission.lookup import Lookup


def make_queue(name: str, parent: str = "", quota: float = 0, **spec: Any) -> Object:
    amounts = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
    resources = dict.fromkeys(("cpu", "memory", "gpu"), amounts)
    return {"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources} | spec}


class Cluster(MemoryApi):
    """What the store knows is what was there when `listed` was last called.

    ``broken`` answers nothing; once it `hang`s no object is given, and nobody waits for one for long.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.broken = False
        self.hangs = threading.Event()
        self.hangs.set()
        self.lookup = Lookup(self, self.store, patience_s=20.0)

    def hang(self) -> None:
        self.hangs.clear()
        self.lookup.close()
        self.lookup = Lookup(self, self.store, patience_s=0.2)

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        self.hangs.wait(10)
        if self.broken:
            raise ApiError(0, "Refused")
        return super().get(resource, namespace, name)

    def page(self, resource: Resource, **options: Any) -> Any:
        if self.broken:
            raise ApiError(0, "Refused")
        return super().page(resource, **options)

    def listed(self) -> None:
        for resource in (QUEUES, NAMESPACES):
            self.store.replace(resource, self.page(resource).items)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """root with research and training; the namespace ``team`` is labelled."""
    found = Cluster()
    for value in (make_queue("root"), make_queue("research", "root"), make_queue("training", "root")):
        found.create(QUEUES, "", value)
    labels = {"kai-solver/inject": "enabled", "kai.scheduler/queue": "training"}
    found.create(NAMESPACES, "", {"metadata": {"name": "team", "labels": labels}})
    found.create(NAMESPACES, "", {"metadata": {"name": "plain"}})
    found.listed()
    yield found
    found.hangs.set()
    found.lookup.close()


@pytest.fixture
def make_pod() -> Callable[..., Object]:
    def make(
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        limits: dict[str, str] | None = None,
        namespace: str = "team",
        **spec: Any,
    ) -> Object:
        container = {"name": "main", "resources": {"limits": limits or {}}}
        metadata = {"namespace": namespace, "name": "p", "annotations": annotations or {}, "labels": labels or {}}
        return {"metadata": metadata, "spec": {"schedulerName": "kai-scheduler", "containers": [container]} | spec}

    return make
