"""Cycles over a cluster in memory: what is waiting gets its place, and nothing twice."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kai_solver.cluster import resources
from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.binding import Binder, GangBound
from kai_solver.cluster.evicting import Departed, Evictor
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.promises import Promises
from kai_solver.cluster.reflector import Reflector
from kai_solver.cluster.resources import NODES, POD_GROUPS, PODS, QUEUES, Resource
from kai_solver.cluster.store import Store
from kai_solver.cluster.view import FIELDS, View
from kai_solver.controller import stranded
from kai_solver.controller.loop import Cycle, Evicted, Pace, Scheduler
from kai_solver.domain import Plan, Snapshot
from kai_solver.engine import Engine
from kai_solver.kubeobjects import names
from kai_solver.modelfiles import load_model
from tests.support.engines import PATIENT_S


class Notes:
    def __init__(self) -> None:
        self.cycles: list[Cycle] = []
        self.outcomes: list[GangBound] = []
        self.departed: list[Departed] = []

    def cycle(self, cycle: Cycle) -> None:
        self.cycles.append(cycle)

    def bound(self, outcome: GangBound) -> None:
        self.outcomes.append(outcome)

    def evicted(self, evicted: Evicted) -> None:
        self.departed += evicted.outcomes


class World:
    """A scheduler over an API server in memory, reflectors running."""

    def __init__(self, **options: Any) -> None:
        self.api, self.store, self.assumed, self.notes = MemoryApi(), Store(), Assumed(), Notes()
        self.stop, self.leads = threading.Event(), True
        self.promises = Promises()
        self.evictor = Evictor(self.api, self.assumed, self.fence)
        engine = Engine(load_model("greedy-only"))
        binding, writes = ThreadPoolExecutor(4), ThreadPoolExecutor(8)
        self.scheduler = Scheduler(
            store=self.store,
            view=View(self.store, self.assumed, overlays=(self.promises.overlay,), refused=self.evictor.protected),
            decide=partial(engine.cycle, budget_s=PATIENT_S),
            binder=Binder(
                self.api,
                self.assumed,
                writes,
                self.fence,
                self.notes.bound,
                has_node=lambda name: self.store.get(NODES, name) is not None,
            ),
            evictor=self.evictor,
            promises=self.promises,
            reporter=self.notes,
            fence=self.fence,
            gangs=binding,
            evictions=writes,
            pace=Pace(period_s=0.05, settle_s=0.01, idle_s=0.2),
            **options,
        )
        self.threads = [
            threading.Thread(target=Reflector(self.api, resource, self.store, self.stop).run) for resource in FIELDS
        ]
        for thread in self.threads:
            thread.start()
        self.until(lambda: self.store.is_synced(FIELDS))

    def fence(self) -> bool:
        return self.leads

    def start(self) -> None:
        thread = threading.Thread(target=self.scheduler.run, args=(self.stop,))
        thread.start()
        self.threads.append(thread)

    def close(self) -> None:
        self.stop.set()
        self.api.close()
        for thread in self.threads:
            thread.join(10)

    def until(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end_s, "never came true"
            time.sleep(0.01)

    def seen(self) -> None:
        """Wait until the store has what the API server has."""
        self.until(lambda: all(self.api.page(r).items == list(self.store.all(r)) for r in (PODS, NODES, QUEUES)))

    def node(self, name: str, gpus: int = 8) -> None:
        allocatable = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": str(gpus), "pods": "100"}
        self.api.create(NODES, "", {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": allocatable}})

    def queue(self, name: str, quota: int = -1) -> None:
        amounts = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
        body = {"metadata": {"name": name}, "spec": {"resources": dict.fromkeys(("cpu", "memory", "gpu"), amounts)}}
        self.api.create(QUEUES, "", body)

    def pod(self, name: str, gpus: int = 8, queue: str = "q", group: str = "") -> None:
        container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        metadata: dict[str, Any] = {"name": name, "labels": {"kai.scheduler/queue": queue}}
        if group:
            metadata["annotations"] = {"pod-group-name": group}
        self.api.create(
            PODS, "n", {"metadata": metadata, "spec": {"schedulerName": "kai-scheduler", "containers": [container]}}
        )

    def gang(self, name: str, size: int, queue: str = "q") -> None:
        spec = {"minMember": size, "queue": queue}
        self.api.create(resources.POD_GROUPS, "n", {"metadata": {"name": name}, "spec": spec})
        for index in range(size):
            self.pod(f"{name}-{index}", queue=queue, group=name)

    def places(self) -> dict[str, str]:
        return {
            p["metadata"]["name"]: p["spec"]["nodeName"] for p in self.api.page(PODS).items if "nodeName" in p["spec"]
        }


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.queue("q")
    yield made
    made.close()


def test_waiting_pods_get_places(world: World) -> None:
    world.node("a")
    world.node("b")
    world.gang("g", 2)
    world.start()
    world.until(lambda: len(world.places()) == 2)
    assert set(world.places().values()) == {"a", "b"}
    world.until(lambda: bool(world.notes.outcomes))
    assert world.notes.outcomes[0].gang == "n/g"


def test_what_could_not_be_bound_rests_and_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    clock_s = [0.0]
    create = world.api.create

    def refuse(resource: Resource, namespace: str, body: Any, *, subresource: str = "") -> Object:
        if subresource == "binding":
            tries.append(body["metadata"]["name"])
            if tries == ["unlucky"]:
                raise ApiError(422, "Invalid", "no")
        return create(resource, namespace, body, subresource=subresource)

    monkeypatch.setattr(world.api, "create", refuse)
    world.scheduler.binder.resting.clock = lambda: clock_s[0]
    world.node("a", gpus=16)
    world.pod("unlucky")
    world.start()
    world.until(lambda: bool(world.scheduler.binder.resting.now()))
    world.pod("lucky")
    world.until(lambda: set(world.places()) == {"lucky"})
    assert tries == ["unlucky", "lucky"]
    clock_s[0] = 1.0
    world.until(lambda: set(world.places()) == {"lucky", "unlucky"})


def test_a_gang_waits_for_its_last_node(world: World) -> None:
    world.node("a")
    world.gang("g", 2)
    world.start()
    world.until(lambda: len(world.notes.cycles) > 0)
    assert not world.places()
    world.node("b")
    world.until(lambda: len(world.places()) == 2)


def test_the_successor_of_a_lost_pod_runs_though_others_of_its_gang_have_succeeded(world: World) -> None:
    world.node("a", gpus=16)
    world.gang("g", 2)
    world.start()
    world.until(lambda: len(world.places()) == 2)
    world.api.patch(PODS, "n", "g-0", {"status": {"phase": "Succeeded"}}, subresource="status")
    world.api.delete(PODS, "n", "g-1", grace_s=0)
    world.pod("g-2", group="g")
    world.until(lambda: world.places().get("g-2") == "a")


def test_a_cycle_before_the_watch_has_caught_up_gives_nothing_twice(world: World) -> None:
    world.node("a")
    world.pod("first")
    world.seen()
    world.close()  # the reflectors see nothing from here on
    world.scheduler.step()
    world.until(lambda: len(world.places()) == 1)
    world.store.replace(
        PODS,
        [
            *world.store.all(PODS),
            world.api.create(
                PODS,
                "n",
                {
                    "metadata": {"name": "second", "labels": {"kai.scheduler/queue": "q"}},
                    "spec": {
                        "schedulerName": "kai-scheduler",
                        "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
                    },
                },
            ),
        ],
    )
    cycle = world.scheduler.step()
    assert not cycle.orders.binds
    assert [pending.gang.split("/")[1][:9] for pending in cycle.plan.pending] == ["pg-second"]


def test_pods_on_a_node_that_went_before_they_began_start_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stranded, "GONE_S", 0.1)
    for name in "ab":
        world.node(name)
    world.gang("g", 2)
    world.start()
    world.until(lambda: len(world.places()) == 2)
    lost = next(name for name, node in world.places().items() if node == "b")
    (stays,) = world.places().keys() - {lost}
    world.api.delete(NODES, "", "b")
    world.until(lambda: lost not in {item["metadata"]["name"] for item in world.api.page(PODS).items})
    assert set(world.places()) == {stays}
    world.until(lambda: any("node is gone" in why for done in world.notes.outcomes for _, why in done.failed))


def test_pods_that_run_on_a_node_that_went_are_the_garbage_collectors(world: World) -> None:
    world.node("a")
    world.gang("g", 1)
    world.start()
    world.until(lambda: len(world.places()) == 1)
    world.api.patch(PODS, "n", "g-0", {"status": {"phase": "Running"}}, subresource="status")
    world.seen()
    done = len(world.notes.cycles)
    world.api.delete(NODES, "", "a")
    world.until(lambda: len(world.notes.cycles) > done + 1 or not world.scheduler.news.wait(0.3))
    assert len(world.places()) == 1


def test_a_gang_in_part_is_looked_at_though_nothing_waits(world: World) -> None:
    world.node("a")
    world.gang("g", 2)
    world.start()
    world.api.create(PODS, "n", {"metadata": {"name": "g-0"}, "target": {"name": "a"}}, subresource="binding")
    world.api.delete(PODS, "n", "g-1")
    world.until(lambda: len(world.notes.cycles) > 0 and not world.notes.cycles[-1].plan.pending)
    world.seen()
    done = len(world.notes.cycles)
    world.until(lambda: len(world.notes.cycles) > done + 3)


def test_a_replica_that_does_not_lead_decides_nothing(world: World) -> None:
    world.leads = False
    world.node("a")
    world.pod("p")
    world.start()
    time.sleep(0.5)
    assert not world.notes.cycles
    world.leads = True
    world.until(lambda: len(world.places()) == 1)


def settled(world: World) -> int:
    """How many cycles there were, once no more come."""
    done = -1
    while done != len(world.notes.cycles):
        done = len(world.notes.cycles)
        time.sleep(0.5)
    return done


def with_one_pod(world: World) -> None:
    """Start with a node and a pod that is bound; from then on only news causes cycles."""
    world.scheduler.pace = Pace(period_s=0.05, settle_s=0.01, late_s=1000, idle_s=1000)
    world.node("a")
    world.pod("p")
    world.seen()
    world.start()
    world.until(lambda: len(world.places()) == 1)


def test_a_quiet_cluster_has_no_cycles(world: World) -> None:
    with_one_pod(world)
    for beat in range(5):
        world.api.patch(NODES, "", "a", {"status": {"images": [str(beat)]}}, subresource="status")
    version = world.api.get(NODES, "", "a")["metadata"]["resourceVersion"]
    world.until(lambda: version in {node["metadata"]["resourceVersion"] for node in world.store.all(NODES)})
    assert settled(world) == 1


def test_what_was_expected_is_worth_no_cycle_of_its_own(world: World) -> None:
    with_one_pod(world)
    world.seen()
    assert settled(world) == 1, "its own binding is no news"
    world.api.patch(PODS, "n", "p", {"status": {"phase": "Running"}}, subresource="status")
    assert settled(world) == 1, "nor that the pod runs where it was bound to"
    world.api.patch(PODS, "n", "p", {"status": {"phase": "Succeeded"}}, subresource="status")
    world.until(lambda: len(world.notes.cycles) == 2)


def test_a_pod_group_is_news_unless_we_made_it(world: World) -> None:
    with_one_pod(world)
    ours = {"metadata": {"name": "ours", "annotations": {names.OWN_CREATED: "pod"}}, "spec": {"queue": "q"}}
    world.api.create(POD_GROUPS, "n", ours)
    world.until(lambda: world.store.get(POD_GROUPS, "n/ours") is not None)
    assert settled(world) == 1
    world.api.delete(POD_GROUPS, "n", "ours")
    world.until(lambda: world.store.get(POD_GROUPS, "n/ours") is None)
    assert settled(world) == 1, "nor when it is collected"
    world.api.create(POD_GROUPS, "n", {"metadata": {"name": "others"}, "spec": {"queue": "q"}})
    world.until(lambda: len(world.notes.cycles) == 2)
    world.api.delete(POD_GROUPS, "n", "others")
    world.until(lambda: len(world.notes.cycles) == 3)


def test_what_was_expected_is_looked_at_late(world: World) -> None:
    world.scheduler.pace = Pace(period_s=0.05, settle_s=0.01, late_s=0.5, idle_s=1000)
    world.node("a")
    world.pod("p")
    world.seen()
    world.start()
    world.until(lambda: len(world.notes.cycles) == 2)
    assert [pod.node for gang in world.notes.cycles[1].snapshot.gangs for pod in gang.pods] == ["a"]
    assert settled(world) == 2


def test_a_pod_that_came_while_its_gang_was_being_bound_has_its_turn_after_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.scheduler.pace = Pace(period_s=0.05, settle_s=0.01, late_s=1000, idle_s=1000)
    create, go_on = world.api.create, threading.Event()

    def slow(resource: Resource, namespace: str, body: Any, *, subresource: str = "") -> Object:
        if subresource == "binding":
            go_on.wait(20)
        return create(resource, namespace, body, subresource=subresource)

    monkeypatch.setattr(world.api, "create", slow)
    world.node("a", gpus=16)
    world.gang("g", 1)
    world.seen()
    world.start()
    world.until(lambda: bool(world.scheduler.binder.open))
    world.pod("late", group="g")
    world.until(lambda: any("n/g" in cycle.busy for cycle in world.notes.cycles))
    assert settled(world) == 2
    go_on.set()
    world.until(lambda: len(world.places()) == 2)


def test_a_dry_run_changes_nothing() -> None:
    world = World(dry_run=True)
    try:
        world.queue("q")
        world.node("a")
        world.pod("p")
        world.seen()
        cycle = world.scheduler.step()
        assert [placements.gang[:6] for placements in cycle.orders.binds] == ["n/pg-p"]
        assert not world.places()
        assert len(world.assumed) == 0
    finally:
        world.close()


def test_an_eviction_that_a_dry_run_does_not_carry_out_is_no_news() -> None:
    """Else a cycle would follow another for as long as the eviction is due."""
    world = World(dry_run=True)
    try:
        world.queue("rich", quota=0)
        world.queue("poor", quota=8)
        world.node("a")
        world.pod("taken", queue="rich")
        named = {"metadata": {"name": "taken"}, "target": {"kind": "Node", "name": "a"}}
        world.api.create(PODS, "n", named, subresource="binding")
        world.api.patch(PODS, "n", "taken", {"status": {"phase": "Running"}}, subresource="status")
        world.pod("taker", queue="poor")
        world.seen()
        world.scheduler.news.take()
        cycle = world.scheduler.step()
        assert [eviction.pod for eviction in cycle.plan.evictions] == ["n/taken"]
        assert cycle.put_off == ()
        assert not world.scheduler.news.wait(0)
        assert world.places()
    finally:
        world.close()


def reclaiming(world: World) -> None:
    """One node, taken by a pod of a queue without quota; a pod of a queue that is entitled to it comes."""
    world.node("a")
    world.queue("rich", quota=0)
    world.queue("poor", quota=8)
    world.pod("taken", queue="rich")
    world.start()
    world.until(lambda: len(world.places()) == 1)
    world.api.patch(PODS, "n", "taken", {"status": {"phase": "Running"}}, subresource="status")
    world.seen()
    world.pod("entitled", queue="poor")


def test_a_webhook_that_takes_its_time_for_evictions_holds_up_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go, create = list[str](), threading.Event(), world.api.create

    def slow(resource: Resource, namespace: str, body: Any, *, subresource: str = "") -> Object:
        if subresource == "eviction":
            asked.append(body["metadata"]["name"])
            assert go.wait(20)
        return create(resource, namespace, body, subresource=subresource)

    monkeypatch.setattr(world.api, "create", slow)
    reclaiming(world)
    world.until(lambda: asked == ["taken"])
    world.node("b")
    world.pod("another")
    world.until(lambda: world.places().get("another") == "b")
    asked_s = time.monotonic()
    world.until(lambda: world.scheduler.beat_s > asked_s)
    cycles = len(world.notes.cycles)
    world.pod("later")
    world.until(lambda: len(world.notes.cycles) > cycles)
    assert asked == ["taken"], "cycles know that it is leaving"
    assert world.notes.cycles[-1].orders.nominations["n/entitled"][1] == "a"
    go.set()
    world.until(lambda: bool(world.notes.departed))
    assert not world.notes.departed[0].refused


def test_while_places_are_promised_cycles_leave_half_of_the_time(world: World) -> None:
    """Whatever news comes: what they wait for may need the same cores."""
    slow_s, begun, decide = 0.2, list[float](), world.scheduler.decide

    def slow(snapshot: Snapshot) -> Plan:
        begun.append(time.monotonic())
        time.sleep(slow_s)
        return decide(snapshot)

    reclaiming(world)
    world.until(lambda: bool(world.notes.departed))
    world.scheduler.decide = slow
    for _ in range(3):
        world.scheduler.news.notify()
        done = len(begun)
        world.until(lambda done=done: len(begun) > done)  # type: ignore[misc]
    assert world.notes.cycles[-1].orders.nominations
    assert all(later - earlier >= 2 * slow_s for earlier, later in pairwise(begun))


def test_a_victim_that_leaves_is_news_once_it_is_the_last_that_a_gang_waits_for(world: World) -> None:
    world.scheduler.pace = Pace(period_s=0.05, settle_s=0.01, late_s=1000, idle_s=1000)
    world.queue("rich", quota=0)
    world.queue("poor", quota=16)
    for node in ("a", "b"):
        world.node(node)
        world.pod(f"taken-{node}", queue="rich")
    world.start()
    world.until(lambda: len(world.places()) == 2)
    for node in ("a", "b"):
        world.api.patch(PODS, "n", f"taken-{node}", {"status": {"phase": "Running"}}, subresource="status")
    world.seen()
    world.gang("entitled", 2, queue="poor")
    world.until(lambda: len(world.notes.departed) == 2)
    world.seen()
    before = settled(world)
    world.api.delete(PODS, "n", "taken-a", grace_s=0)
    world.seen()
    assert settled(world) == before, "the gang still waits for the other"
    world.api.patch(PODS, "n", "taken-b", {"status": {"phase": "Failed"}}, subresource="status")
    world.until(lambda: len(world.places()) == 3)
    assert not world.scheduler.news.awaited


def test_what_may_stay_after_all_is_counted_again_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    create = world.api.create

    def refuse(resource: Resource, namespace: str, body: Any, *, subresource: str = "") -> Object:
        if subresource == "eviction":
            raise ApiError(403, "Forbidden", "a webhook says no")
        return create(resource, namespace, body, subresource=subresource)

    monkeypatch.setattr(world.api, "create", refuse)
    reclaiming(world)
    world.until(lambda: bool(world.notes.departed))
    done = len(world.notes.cycles)
    world.until(lambda: len(world.notes.cycles) > done)
    assert world.notes.cycles[-1].snapshot.refused == {"n/taken"}
    assert len(world.assumed) == 0


def test_victims_leave_and_their_place_is_promised() -> None:
    world = World()
    try:
        reclaiming(world)
        world.until(lambda: "deletionTimestamp" in world.api.get(PODS, "n", "taken")["metadata"])
        world.until(lambda: bool(world.notes.departed))
        (outcome,) = world.notes.departed
        assert outcome.departure.rule == "reclaim"
        assert not outcome.refused
        world.api.delete(PODS, "n", "taken", grace_s=0)
        world.until(lambda: world.places() == {"entitled": "a"})
    finally:
        world.close()
