"""For each guard of the controller: with it the checker is silent, without it the checker objects.

The replica runs in this process, so that a test can break one guard of it; all else is real.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object, WatchEvent, meta
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.binding import Binder
from kai_solver.cluster.evicting import Evictor
from kai_solver.cluster.lease import Lease
from kai_solver.cluster.resources import PODS, Resource
from kai_solver.cluster.rest import RestApi
from kai_solver.cluster.store import Store
from kai_solver.domain import Plan, Snapshot
from tests.cluster.plane.cluster import LEADERSHIP, Cluster
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.inside import inside
from tests.cluster.plane.plane import wait_for

LONG_S = 120.0
broken = pytest.mark.parametrize("is_broken", [False, True], ids=["whole", "broken"])


@contextmanager
def objecting(cluster: Cluster, is_broken: bool, text: str) -> Iterator[None]:
    """After the block the checker objects with these words if the guard is broken; else to nothing."""
    cluster.wanted = text if is_broken else ""
    yield
    if is_broken:
        wait_for(f"the checker says: {text}", lambda: any(text in one for one in cluster.checker.complaints), LONG_S)


@broken
def test_the_fence(make_cluster: Make, monkeypatch: pytest.MonkeyPatch, is_broken: bool) -> None:
    """A leader stands still between its plan and its binds; another one takes over and gives the GPU away."""
    if is_broken:
        monkeypatch.setattr(Lease, "is_held", property(lambda self: True))
    stands, go_on = threading.Event(), threading.Event()
    attempt = Lease.attempt

    def paused(self: Lease) -> bool:
        while stands.is_set() and not go_on.is_set():
            go_on.wait(0.1)
        return attempt(self)

    monkeypatch.setattr(Lease, "attempt", paused)
    cluster = make_cluster(partly_s=60)
    cluster.nodes(1, gpus=1)
    cluster.queues(research=1)
    with inside(cluster, leadership=LEADERSHIP) as replica:
        decide = replica.scheduler.decide

        def stand_still(snapshot: Snapshot) -> Plan:
            plan = decide(snapshot)
            if plan.binds and not go_on.is_set():
                stands.set()
                go_on.wait(LONG_S)
            return plan

        replica.scheduler.decide = stand_still
        wait_for("it leads", lambda: replica.fence() and not stands.is_set())
        cluster.pod("first", "research")
        wait_for("it stands still", stands.is_set)
        cluster.pod("second", "research", priority="build")
        cluster.controller(leadership=LEADERSHIP)
        cluster.wait_bound(1, "second", limit_s=LONG_S)
        with objecting(cluster, is_broken, "has 1 GPUs and promised 2"):
            go_on.set()
            if not is_broken:
                wait_for("it ended by itself", lambda: replica.lost, LONG_S)
                assert cluster.stays_unbound("first", 3)


@broken
def test_what_is_assumed_until_it_is_seen(make_cluster: Make, monkeypatch: pytest.MonkeyPatch, is_broken: bool) -> None:
    """The watch is behind: it shows a new pod, and not yet that the other one was bound."""
    if is_broken:
        monkeypatch.setattr(Assumed, "overlay", lambda self, pods, now_s: tuple(pods))
    behind = threading.Event()
    behind.set()
    apply = Store.apply

    def late(self: Store, resource: Resource, event: WatchEvent) -> None:
        if not (resource == PODS and behind.is_set() and event.object.get("spec", {}).get("nodeName")):
            apply(self, resource, event)

    monkeypatch.setattr(Store, "apply", late)
    cluster = make_cluster()
    cluster.nodes(1, gpus=1)
    cluster.queues(research=2)
    with inside(cluster):
        cluster.pod("first", "research", priority="build")
        cluster.wait_bound(1, "first")
        with objecting(cluster, is_broken, "has 1 GPUs and promised 2"):
            cluster.pod("second", "research", priority="inference")
            assert is_broken or cluster.stays_unbound("second", 4)


@broken
def test_the_rest_of_a_gang_is_released(make_cluster: Make, monkeypatch: pytest.MonkeyPatch, is_broken: bool) -> None:
    """One pod of the gang is refused for good."""
    if is_broken:
        monkeypatch.setattr(Binder, "_release", lambda self, placement: None)
    refused: set[str] = set()
    create = RestApi.create

    def refuse(self: RestApi, resource: Resource, namespace: str, body: Mapping[str, Any], **options: Any) -> Object:
        if options.get("subresource") == "binding":
            name = str(meta(body)["name"])
            refused.update({name} if not refused else ())
            if name in refused:
                raise ApiError(422, "Invalid", "refused for good")
        return create(self, resource, namespace, body, **options)

    monkeypatch.setattr(RestApi, "create", refuse)
    cluster = make_cluster(may_leave=lambda found: True, partly_s=10)
    cluster.nodes(1)
    cluster.queues(research=8)
    with inside(cluster), objecting(cluster, is_broken, "gang gang runs in part"):
        cluster.job("gang", "research", 4)
        wait_for("one was refused", lambda: bool(refused))
        time.sleep(0 if is_broken else 15)  # it is bound and released, again and again


def borrowed(cluster: Cluster) -> None:
    """Four pods on what is another queue's."""
    cluster.nodes(1, gpus=4)
    cluster.queues(borrower=0, lender=4)
    cluster.pods(4, "borrower", "victim")


@broken
def test_the_rate_of_evictions(make_cluster: Make, monkeypatch: pytest.MonkeyPatch, is_broken: bool) -> None:
    """One pod a cycle, and cycles begin six seconds apart."""
    if is_broken:
        monkeypatch.setattr(Evictor, "within_rates", lambda self, departures: (list(departures), []))
    cluster = make_cluster(may_leave=lambda found: found["metadata"]["name"].startswith("victim"), rate=(1, 2.0))
    borrowed(cluster)
    with inside(cluster, evictions={"per_cycle": 1}, period=6.0):
        cluster.wait_bound(4, "victim")
        with objecting(cluster, is_broken, "pods were evicted within 2 s, 1 may be"):
            cluster.pods(4, "lender", "back")
            cluster.wait_bound(4, "back", limit_s=LONG_S)


@broken
def test_the_cause_before_the_eviction(make_cluster: Make, monkeypatch: pytest.MonkeyPatch, is_broken: bool) -> None:
    if is_broken:
        monkeypatch.setattr(Evictor, "_announce", lambda self, departure: None)
    cluster = make_cluster(may_leave=lambda found: found["metadata"]["name"].startswith("victim"))
    borrowed(cluster)
    with inside(cluster):
        cluster.wait_bound(4, "victim")
        with objecting(cluster, is_broken, "evicted without a word"):
            cluster.pod("back", "lender")
            cluster.wait_bound(1, "back", limit_s=LONG_S)
