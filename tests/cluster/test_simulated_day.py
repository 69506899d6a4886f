"""A day of a cluster in a minute: the controller's own parts over an API server in memory, on a clock that jumps.

Gangs come by day and by night, queues want more than their share, nodes go and come back. The checker of the tests on
a real control plane watches.
"""

import copy
import gc
import math
import random
import time
from pathlib import Path
from typing import Any

import pytest

from kai_solver.cluster import memory, statuses
from kai_solver.cluster.api import Object, key_of, meta
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import NODES, PODS, PRIORITY_CLASSES, QUEUES
from kai_solver.controller.settings import ControllerSettings
from kai_solver.controller.wiring import wire
from tests.cluster.plane.checker import Checker
from tests.cluster.plane.cluster import SPACE
from tests.cluster.workload import RUNS_FOR, Workload
from tests.support.clusters import WHOLE

DAY_S = 86_400.0
TICK_S = 120.0
QUOTAS = {"research": 64, "product": 32, "students": 16}
NODE_COUNT, GPUS = 16, 8
GARBAGE_S = 120.0
"""How long Kubernetes leaves pods of a node that is gone."""


class Day:
    """The cluster, everybody who acts in it, and the time."""

    def __init__(self, seed: int) -> None:
        self.now_s = 1_800_000_000.0
        self.draw = random.Random(seed)
        self.api = MemoryApi(now=self.clock)
        stated: dict[str, Any] = {"model": "greedy-only", "leadership": {"enabled": False}, "status_rate": 1e4}
        self.parts = wire(self.api, ControllerSettings(**stated), (), self.clock)
        self.parts.known.store.listen(self.parts.scheduler.stranded)
        self.checker = Checker("", Path(), "", lambda pod: True, partly_s=3 * GARBAGE_S, clock=self.clock)
        self.work = Workload(self.api, self.draw, tuple(QUOTAS), (60.0, 300.0))
        self.seen = "0"
        self.began_s: dict[str, float] = {}
        self.lost_s: dict[str, float] = {}
        self.cycles = 0
        for kind in self.parts.known.kinds:
            self.parts.known.store.replace(kind, ())
        self.build()

    def clock(self) -> float:
        return self.now_s

    def build(self) -> None:
        for index in range(NODE_COUNT):
            self.node(f"node-{index}")
        for name, quota in (("all", -1), *QUOTAS.items()):
            free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
            spec: dict[str, Any] = {"resources": {"gpu": free | {"quota": quota}, "cpu": free, "memory": free}}
            spec |= {"parentQueue": "all"} if name != "all" else {}
            self.api.create(QUEUES, "", {"metadata": {"name": name}, "spec": spec})
        for name, value in (("train", 50), ("build", 100)):
            self.api.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})

    def node(self, name: str) -> None:
        room = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS)}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        self.api.create(NODES, "", {"metadata": metadata, "spec": {}, "status": {"allocatable": room}})

    def pods(self) -> list[Object]:
        return self.api.page(PODS, limit=100_000).items

    def look(self) -> None:
        """Controller and checker see what changed, the checker every single change."""
        upto = self.api.page(NODES, limit=1).resource_version
        for kind in self.parts.known.kinds:
            for event in self.api.watch(kind, self.seen, 0.0):
                if kind in (PODS, NODES):
                    see = self.checker.see_pod if kind == PODS else self.checker.see_node
                    see(event.kind, copy.deepcopy(event.object))  # the store trims what it keeps
                self.parts.known.store.apply(kind, event)
        self.seen = upto
        self.checker.look(self.now_s)

    def schedule(self) -> None:
        """One cycle, all that it binds, all that it tells."""
        self.look()
        scheduler = self.parts.scheduler
        scheduler.stranded.release(self.parts.known.store, scheduler.binder, scheduler.gangs)
        scheduler.step()
        ends_s = time.monotonic() + 30
        while scheduler.binder.open:
            assert time.monotonic() < ends_s, "a binding did not end"
            time.sleep(0.0005)
        assert self.parts.status_reporter is not None
        self.parts.status_reporter.drain(30.0)
        self.cycles += 1
        self.look()

    def kubelets(self) -> None:
        """Bound pods run, succeed after their time, and go when they are told to; so do those without a node."""
        nodes = {key_of(node) for node in self.api.page(NODES, limit=1000).items}
        for pod in self.pods():
            name, uid, node = str(meta(pod)["name"]), str(meta(pod)["uid"]), pod["spec"].get("nodeName")
            phase = pod["status"]["phase"]
            if meta(pod).get("deletionTimestamp"):
                self.api.delete(PODS, SPACE, name, grace_s=0)
            elif node and node not in nodes:
                if self.now_s - self.lost_s.setdefault(uid, self.now_s) > GARBAGE_S:
                    self.api.delete(PODS, SPACE, name, grace_s=0)
            elif node and phase == "Pending":
                self.began_s[uid] = self.now_s
                self.phase(name, "Running")
            elif phase == "Running" and self.now_s - self.began_s[uid] >= float(
                meta(pod)["annotations"][RUNS_FOR].rstrip("s")
            ):
                self.phase(name, "Succeeded")

    def phase(self, name: str, phase: str) -> None:
        self.api.patch(PODS, SPACE, name, {"status": {"phase": phase}}, subresource="status")

    def fail(self) -> None:
        """Now and then a node goes, and comes back an hour later under the same name."""
        names = {key_of(node) for node in self.api.page(NODES, limit=1000).items}
        if self.draw.random() < TICK_S / 7200 and len(names) > NODE_COUNT - 2:
            self.api.delete(NODES, "", self.draw.choice(sorted(names)))
        for index in range(NODE_COUNT):
            if f"node-{index}" not in names and self.draw.random() < TICK_S / 3600:
                self.node(f"node-{index}")

    def tick(self, per_hour: float) -> None:
        """Two minutes: who arrives, who fails, who ends; then cycles until nothing changes."""
        self.now_s += TICK_S
        rate = per_hour * TICK_S / 3600
        while (rate := rate + math.log(1 - self.draw.random())) > 0:
            self.work.arrive()
        self.fail()
        self.kubelets()
        self.work.tend(self.pods())
        self.schedule()


@pytest.mark.slow
@pytest.mark.campaign
def test_a_day_passes_and_nothing_is_promised_twice() -> None:
    """A day of six hours, half as busy again, for queues to lend and take back; of 24 where campaigns run whole."""
    day, length_s, more = (Day(seed=6), DAY_S, 1.0) if WHOLE else (Day(seed=6), DAY_S / 4, 1.5)
    for tick in range(int(length_s / TICK_S)):
        busy = 1.0 - math.cos(2 * math.pi * tick * TICK_S / length_s)  # little by night, much by day
        day.tick(per_hour=more * (15 + 75 * busy))
    assert day.work.arrived > 2000 * length_s / DAY_S
    assert day.checker.evicted, "queues took back what they had lent"
    waited_s = 0.0
    while day.work.gangs and waited_s < DAY_S:
        day.tick(per_hour=0)
        waited_s += TICK_S
    assert not day.work.gangs, "every gang ran to its end"
    assert day.checker.complaints == []


@pytest.mark.slow
def test_what_the_controller_keeps_does_not_grow_with_the_work_that_came_and_went(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The collector rests: cycles of references count, as it hardly ever looks for them in a controller either."""
    monkeypatch.setattr(statuses, "BEHIND_S", 0.0)
    monkeypatch.setattr(memory, "KEPT_EVENTS", 1000)
    monkeypatch.setattr(memory, "EVENT_OBJECTS", 100)
    day = Day(seed=6)
    assert day.parts.status_reporter is not None
    day.parts.status_reporter.writer.monotonic = day.clock
    sizes, arrived = [], []
    gc.collect()
    gc.disable()
    try:
        for _ in range(180):
            day.tick(per_hour=70)
            sizes.append(len(gc.get_objects()))
            arrived.append(day.work.arrived)
    finally:
        gc.enable()
    more = min(sizes[-20:]) - min(sizes[60:80])
    assert arrived[-20] - arrived[60] > 150
    assert more < 15 * (arrived[-20] - arrived[60]), "objects for each gang that came and went"
