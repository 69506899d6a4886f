"""The API server goes away at any request of a scenario: the process ends when told to, writes nothing without the
lead, leaves no gang half bound, and when the server is back all gangs run.

The requests are found by a run without a fault, and the stages (verb and kind) from them.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import (
    DEVICE_CLASSES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kai_solver.controller import app
from kai_solver.controller.app import Controller
from kai_solver.controller.embedded import Kubelets
from kai_solver.controller.settings import ControllerSettings
from tests.controller.pausing import Outage, PausingClient, PausingServer
from tests.controller.replicas import QUICK, cluster, until
from tests.controller.test_app import agents

WANTED = {"g-0", "g-1", "g-2", "claims", "half", "urgent-0", "urgent-1"}
DRIVER = "gpu.example.org"


def scenario() -> MemoryApi:
    """Two nodes: a gang, a pod with a claim, one with half a GPU, and a gang for which others must leave."""
    api = cluster()
    room = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "2", "pods": "100"}
    api.create(
        NODES, "", {"metadata": {"name": "small", "labels": {"s": "s"}}, "spec": {}, "status": {"allocatable": room}}
    )
    for name, value in (("low", 10), ("high", 90)):
        api.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})
    for name in ("victim-0", "victim-1"):
        made(api, name, "low", gpus=1, nodeSelector={"s": "s"})
        api.create(PODS, "n", {"metadata": {"name": name}, "target": {"name": "small"}}, subresource="binding")
        api.patch(PODS, "n", name, {"status": {"phase": "Running"}}, subresource="status")
    gang(api, "urgent", 2, "high", nodeSelector={"s": "s"})
    gang(api, "g", 3, "low")
    api.create(DEVICE_CLASSES, "", {"metadata": {"name": "special"}, "spec": {"selectors": []}})
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    slice_ = {"driver": DRIVER, "nodeName": "a", "pool": pool, "devices": [{"name": "d-0"}, {"name": "d-1"}]}
    api.create(RESOURCE_SLICES, "", {"metadata": {"name": "a"}, "spec": slice_})
    request = {"name": "r", "exactly": {"deviceClassName": "special"}}
    api.create(RESOURCE_CLAIMS, "n", {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})
    made(api, "claims", "low", gpus=0, resourceClaims=[{"name": "x", "resourceClaimName": "c"}])
    made(api, "half", "low", gpus=0, annotations={"gpu-fraction": "0.5"})
    return api


def gang(api: MemoryApi, name: str, size: int, priority: str, **spec: Any) -> None:
    stated = {"queue": "q", "minMember": size, "priorityClassName": priority}
    api.create(POD_GROUPS, "n", {"metadata": {"name": name}, "spec": stated})
    for index in range(size):
        made(api, f"{name}-{index}", priority, annotations={"pod-group-name": name}, **spec)


def made(
    api: MemoryApi, name: str, priority: str, gpus: int = 1, annotations: dict[str, str] | None = None, **spec: Any
) -> None:
    limits = {"cpu": "1"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    metadata = {"name": name, "labels": {"kai.scheduler/queue": "q"}, "annotations": annotations or {}}
    containers = [{"name": "c", "resources": {"limits": limits}}]
    whole = {"schedulerName": "kai-scheduler", "priorityClassName": priority, "containers": containers, **spec}
    api.create(PODS, "n", {"metadata": metadata, "spec": whole})


class Clock:
    """Of the Lease: a lead ends when a test says so, and never because a machine is slow."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    """The scenario, the other actors in it, and a replica."""

    at: int = 0
    outage: Outage = Outage.STOPPED
    truth: MemoryApi = field(default_factory=scenario)
    clock: Clock = field(default_factory=Clock)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.server = PausingServer(self.truth, self.at, self.outage)
        for work in (lambda: Kubelets(self.truth, 0.0, 0.0).run(self.over), lambda: agents(self.truth, self.over)):
            threading.Thread(target=work, daemon=True).start()

    @contextmanager
    def replica(self) -> Iterator[tuple[Controller, threading.Thread]]:
        stated = {**QUICK, "sharing": {"image": "agent"}, "leadership": {"retry": "50ms"}, "status_rate": 1e4}
        found = Controller(PausingClient(self.server), ControllerSettings(**stated))
        found._parts.lease._monotonic = self.clock
        self.server.is_fenced = lambda: not found.fence()
        thread = threading.Thread(target=found.run, daemon=True)
        thread.start()
        try:
            yield found, thread
        finally:
            found.stop.set()
            thread.join(30)
            assert not thread.is_alive(), f"it does not end; the server went away at {self.where}"

    @property
    def where(self) -> str:
        return f"request {self.at} ({self.server.stages[self.at - 1]}), {self.outage.name}" if self.at else "none"

    def pods(self) -> dict[str, Object]:
        return {item["metadata"]["name"]: item for item in self.truth.page(PODS, namespace="n").items}

    def runs(self) -> set[str]:
        return {name for name, found in self.pods().items() if found["spec"].get("nodeName")}

    def all_run(self) -> bool:
        return self.runs() >= WANTED

    def check(self) -> None:
        """All pods are on nodes with room for them, and no replica wrote without the lead."""
        assert self.server.faults == [], self.where
        found = [item for item in self.pods().values() if item["spec"].get("nodeName") == "small"]
        assert sorted(item["metadata"]["name"] for item in found) == ["urgent-0", "urgent-1"], self.where
        claim = self.truth.get(RESOURCE_CLAIMS, "n", "c")["status"]
        assert [user["name"] for user in claim["reservedFor"]] == ["claims"], self.where


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (
        ("DRAIN_S", 0.2),
        ("REPORT_S", 0.1),
        ("END_S", 0.5),
        ("MEET_S", 0.05),
        ("LONGEST_MEET_S", 0.1),
    ):
        monkeypatch.setattr(app, name, seconds)


def stages() -> list[str]:
    """What is asked from the start until all run, request by request."""
    bench = Bench()
    with bench.replica():
        until(bench.all_run, 60)
        asked = list(bench.server.stages)
    bench.check()
    bench.over.set()
    return asked


def points(asked: list[str]) -> list[int]:
    """The first and the last request of each stage."""
    firsts = {stage: number for number, stage in reversed(list(enumerate(asked, 1)))}
    lasts = {stage: number for number, stage in enumerate(asked, 1)}
    return sorted({*firsts.values(), *lasts.values()})


def lose_the_lead(bench: Bench, replica: Controller) -> None:
    """The outage lasts longer than the lead; all work in progress ends, without an answer."""
    lease = replica._parts.lease
    led = lease._leads
    bench.clock.now += 11.0
    assert not replica.fence()
    if led:
        until(lambda: not lease._leads, 30)
    until(lambda: replica.scheduler.is_idle, 30)


def outage(bench: Bench, is_long: bool, is_ended: bool) -> None:
    """The scenario with an outage: a long one costs the lead; the process may be told to end meanwhile."""
    with bench.replica() as (replica, thread):
        until(lambda: bench.server.is_away or bench.all_run(), 60)
        if is_long and bench.server.is_away:  # there may be fewer requests than in the first run
            lose_the_lead(bench, replica)
        if is_ended:
            replica.stop.set()
            thread.join(30)
            assert not thread.is_alive(), f"it does not end; the server went away at {bench.where}"
        bench.server.heal()
        if not is_ended:
            until(bench.all_run, 60)
            assert not replica.lost
    if is_ended:
        with bench.replica():
            until(bench.all_run, 60)
    bench.check()
    bench.over.set()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_long", [False, True], ids=["short", "longer than the lead"])
def test_the_server_may_go_away_at_any_stage(is_long: bool) -> None:
    asked = stages()
    kinds = list(Outage)
    found = points(asked)
    assert len({asked[at - 1] for at in found}) > 10, "binding, evicting, leading, listing, preparing are among them"
    for index, at in enumerate(found):
        if not is_long and index % 2:
            continue
        kind = kinds[(index + is_long) % len(kinds)]
        outage(Bench(at, kind), is_long, is_ended=index % 5 == 4)
