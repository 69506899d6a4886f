"""Replicas that run in threads, over an API server in memory with one node and one queue."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import NODES, PODS, QUEUES
from kai_solver.controller.app import Controller
from kai_solver.controller.loop import Reporter
from kai_solver.controller.settings import ControllerSettings
from tests.support.engines import PATIENT_S

QUICK: dict[str, Any] = {
    "model": "greedy-only",
    "budget": PATIENT_S,
    "period": 0.05,
    "settle": 0.01,
    "metrics_bind_address": "",
    "health_bind_address": "",
    "answers_bind_address": "",
}
"""The Lease lives as long as it does when installed, and decisions have time: a machine may stand still for seconds."""


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "never came true"
        time.sleep(0.01)


Some = TypeVar("Some", bound=MemoryApi)


def cluster_of(api: Some) -> Some:
    """One node with eight GPUs and one queue."""
    allocatable = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "100"}
    api.create(NODES, "", {"metadata": {"name": "a"}, "spec": {}, "status": {"allocatable": allocatable}})
    amounts = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    api.create(
        QUEUES, "", {"metadata": {"name": "q"}, "spec": {"resources": dict.fromkeys(("cpu", "memory", "gpu"), amounts)}}
    )
    return api


def cluster() -> MemoryApi:
    return cluster_of(MemoryApi())


def pod(
    api: MemoryApi,
    name: str,
    scheduler: str = "kai-scheduler",
    namespace: str = "n",
    gpus: int = 1,
    labels: dict[str, str] | None = None,
) -> None:
    limits = {"nvidia.com/gpu": str(gpus)}
    spec = {"schedulerName": scheduler, "containers": [{"name": "c", "resources": {"limits": limits}}]}
    named = {"kai.scheduler/queue": "q"} | (labels or {})
    api.create(PODS, namespace, {"metadata": {"name": name, "labels": named}, "spec": spec})


def bound(api: MemoryApi) -> set[str]:
    return {item["metadata"]["name"] for item in api.page(PODS).items if item["spec"].get("nodeName")}


@contextmanager
def running(api: MemoryApi, reporters: tuple[Reporter, ...] = (), **settings: Any) -> Iterator[Controller]:
    replica = Controller(api, ControllerSettings(**{**QUICK, **settings}), reporters)
    outcome: list[bool] = []
    thread = threading.Thread(target=lambda: outcome.append(replica.run()))
    thread.start()
    try:
        yield replica
    finally:
        replica.stop.set()
        thread.join(20)
        assert not thread.is_alive()
