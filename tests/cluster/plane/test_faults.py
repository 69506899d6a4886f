"""Numbered faults. After each: nothing twice, nothing in part for long, everybody placed in the end."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kai_solver.cluster.resources import NODES, POD_GROUPS, PODS, REPLICA_SETS
from tests.cluster.plane.checker import GANG, LEAST
from tests.cluster.plane.cluster import LEADERSHIP, SPACE, Cluster, pod
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import wait_for
from tests.cluster.plane.proxy import Fault, Proxy

LONG_S = 120.0


def work(cluster: Cluster, gangs: int = 6, size: int = 4, nodes: int = 4) -> None:
    """Nodes for half of the work, queues, and a part of it at once; the rest comes with `more`."""
    cluster.nodes(nodes)
    cluster.queues(research=8 * nodes)
    for index in range(gangs):
        cluster.job(f"gang-{index}", "research", size)


def proxied(cluster: Cluster) -> Proxy:
    return cluster.proxies[-1]


@pytest.mark.parametrize("name", ["apiserver", "etcd"], ids=["01-api-server", "02-etcd"])
def test_a_server_is_killed_and_restarted(make_cluster: Make, name: str) -> None:
    """In the midst of binding; all pods are there before, as the Job controller is slow to come back."""
    cluster = make_cluster(partly_s=40)
    work(cluster, gangs=8)
    wait_for("all pods are there", lambda: len(cluster.names("gang")) == 32)
    cluster.controller(kept=True)
    wait_for("it began", lambda: len(cluster.bound()) > 0, look_s=0.01)
    server = getattr(cluster.plane, name)
    server.kill()
    time.sleep(2)
    server.start()
    cluster.plane.wait_ready()
    cluster.wait_bound(32, limit_s=LONG_S)


def test_03_watch_dropped(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.controller(proxied=True)
    work(cluster, gangs=2)
    cluster.wait_bound(8)
    assert proxied(cluster).drop_watches() > 3
    for index in range(2, 6):
        cluster.job(f"gang-{index}", "research", 4)
        proxied(cluster).drop_watches()
    cluster.wait_bound(24, limit_s=LONG_S)


def test_04_history_expired(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.controller(proxied=True)
    work(cluster, gangs=2)
    cluster.wait_bound(8)
    proxied(cluster).rule = lambda method, path: Fault(410) if "watch=1" in path and "pods" in path else None
    proxied(cluster).drop_watches()
    cluster.job("gang-2", "research", 4)
    wait_for("it was told so", lambda: proxied(cluster).faults["410"] > 2)
    proxied(cluster).heal()
    cluster.wait_bound(12, limit_s=LONG_S)


@pytest.mark.parametrize(
    ("number", "status"), [("05", 429), ("06", 500), ("07", 409)], ids=["05-429", "06-500", "07-409"]
)
def test_writes_refused_at_random(make_cluster: Make, number: str, status: int) -> None:
    cluster = make_cluster(partly_s=40)
    cluster.controller(proxied=True)
    draw = random.Random(int(number))

    def rule(method: str, path: str) -> Fault | None:
        return Fault(status) if path.endswith("/binding") and draw.random() < 0.4 else None

    proxied(cluster).rule = rule
    work(cluster)
    wait_for("some were refused", lambda: proxied(cluster).faults[str(status)] > 2)
    proxied(cluster).heal()
    cluster.wait_bound(24, limit_s=LONG_S)


def test_08_slow_answers(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.controller(proxied=True, kept=True)
    proxied(cluster).rule = lambda method, path: Fault(wait_s=1.0) if "lease" not in path else None
    work(cluster)
    cluster.wait_bound(24, limit_s=LONG_S)
    assert proxied(cluster).faults["wait"] > 10


def test_09_half_open_connection(make_cluster: Make) -> None:
    """Nothing passes for longer than the lease lives: another replica leads, and this one ends when it learns of it."""
    cluster = make_cluster(partly_s=40)
    cluster.controller(leadership=LEADERSHIP, proxied=True)
    first = cluster.replicas[-1]
    work(cluster, gangs=3)
    cluster.wait_bound(12)
    cluster.controller(leadership=LEADERSHIP)
    proxied(cluster).frozen.set()
    cluster.job("gang-3", "research", 4)
    cluster.wait_bound(16, limit_s=LONG_S)
    assert first.component.runs, "it waits for the API server"
    proxied(cluster).heal()
    wait_for("it ended by itself", lambda: not first.component.runs, LONG_S)


def test_09b_answers_of_binds_lost(make_cluster: Make) -> None:
    """The server binds, and the scheduler never hears of it."""
    cluster = make_cluster(partly_s=40)
    cluster.controller(proxied=True)
    draw = random.Random(9)

    def rule(method: str, path: str) -> Fault | None:
        lost = path.endswith("/binding") and draw.random() < 0.4
        return Fault(hang_up=True, after=True) if lost else None

    proxied(cluster).rule = rule
    work(cluster)
    cluster.wait_bound(24, limit_s=LONG_S)
    assert proxied(cluster).faults["hang up"] > 2


def test_10_leader_killed(make_cluster: Make) -> None:
    """Between evictions and binds, with a second replica waiting."""
    cluster = make_cluster(may_leave=lambda found: found["metadata"]["name"].startswith("big"), partly_s=60)
    first = cluster.controller(leadership=LEADERSHIP)
    cluster.nodes(2, gpus=4)
    cluster.queues(borrower=0, lender=8)
    cluster.job("big", "borrower", 8, least=1)
    cluster.wait_bound(8, "big")
    cluster.controller(leadership=LEADERSHIP)
    cluster.job("back", "lender", 8)
    wait_for("evictions began", lambda: len(cluster.checker.evicted) > 0)
    first.component.kill()
    cluster.wait_bound(8, "back", limit_s=LONG_S)


def test_11_leader_paused_beyond_its_lease(make_cluster: Make) -> None:
    cluster = make_cluster(partly_s=60)
    first = cluster.controller(leadership=LEADERSHIP)
    work(cluster, gangs=2)
    cluster.wait_bound(8)
    cluster.controller(leadership=LEADERSHIP)
    first.component.pause()
    for index in range(2, 5):
        cluster.job(f"gang-{index}", "research", 4)
    cluster.wait_bound(20, limit_s=LONG_S)
    first.component.resume()
    cluster.job("gang-5", "research", 4)
    cluster.wait_bound(24, limit_s=LONG_S)
    wait_for("the one that slept ended by itself", lambda: not first.component.runs, LONG_S)


def test_15_malformed_object(make_cluster: Make) -> None:
    """What the API server lets through and makes no sense: it is set aside and spares the rest."""
    cluster = make_cluster()
    cluster.controller()
    work(cluster, gangs=1)
    odd: list[dict[str, Any]] = [
        pod("odd-fraction", "research", 0, annotations={"gpu-fraction": "many"}),
        pod("odd-least", "research", annotations={"kai.scheduler/batch-min-member": "-x"}),
        pod("odd-queue", "no-such-queue"),
        pod("odd-topology", "research", annotations={"kai.scheduler/topology-required-placement": "nowhere"}),
    ]
    for one in odd:
        cluster.plane.api.create(PODS, SPACE, one)
    cluster.job("gang-1", "research", 4)
    cluster.wait_bound(8, "gang")


def test_16_hostile_object(make_cluster: Make) -> None:
    """Huge labels, absurd quantities."""
    cluster = make_cluster()
    cluster.controller()
    work(cluster, gangs=1)
    big = "9" * 12
    hostile = [
        pod("huge", "research", annotations={f"x{index}": "y" * 40_000 for index in range(6)}),
        pod("labels", "research", labels={f"l{index}": "z" * 63 for index in range(500)}),
        pod("absurd", "research", int(big)),
    ]
    hostile[0]["spec"]["nodeSelector"] = {"nowhere": "at-all"}
    hostile[1]["spec"]["nodeSelector"] = {"nowhere": "at-all"}
    for one in hostile:
        cluster.plane.api.create(PODS, SPACE, one)
    room = {"cpu": big, "memory": "1Ei", "pods": big, "nvidia.com/gpu": "0"}
    cluster.plane.api.create(NODES, "", {"metadata": {"name": "odd"}, "status": {"allocatable": room}})
    cluster.job("gang-1", "research", 4)
    cluster.wait_bound(8, "gang")
    assert cluster.stays_pending("absurd")


def test_17_thousands_of_events_at_once(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.controller()
    work(cluster, gangs=1, nodes=8)
    api = cluster.plane.api

    def make(name: str) -> None:
        api.create(PODS, SPACE, pod(name, "research", scheduler="another"))

    def change(name: str) -> None:
        for value in range(3):
            api.patch(PODS, SPACE, name, {"metadata": {"annotations": {"n": str(value)}}})
        api.delete(PODS, SPACE, name, grace_s=0)

    names = [f"noise-{index}" for index in range(500)]
    with ThreadPoolExecutor(16) as threads:  # 2,500 changes: pods of another scheduler made, changed and removed
        list(threads.map(make, names))
        cluster.job("gang-1", "research", 8)
        list(threads.map(change, names))
    cluster.wait_bound(12, "gang", limit_s=LONG_S)


def test_19_a_bind_that_fails_for_good_in_mid_gang(make_cluster: Make) -> None:
    """One pod of the gang is refused for ever: the others are released, and go when the cause is gone.

    The gang is a ReplicaSet's, which makes a released pod again at once; a Job waits 40 s after three of them.
    """
    cluster = make_cluster(may_leave=lambda found: True, partly_s=40)
    cluster.controller(proxied=True)
    refused: set[str] = set()

    def rule(method: str, path: str) -> Fault | None:
        if not path.endswith("/binding"):
            return None
        if not refused:
            refused.add(path)
        return Fault(422, message="refused for good") if path in refused else None

    proxied(cluster).rule = rule
    work(cluster, gangs=0)
    replicated_gang(cluster, "gang", 4)
    wait_for("it was refused twice", lambda: proxied(cluster).faults["422"] > 1)
    proxied(cluster).heal()
    cluster.wait_bound(4, "gang", limit_s=LONG_S)


def replicated_gang(cluster: Cluster, name: str, size: int) -> None:
    """A ReplicaSet whose pods name a PodGroup."""
    spec = {"queue": "research", "minMember": size}
    body = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    cluster.plane.api.create(POD_GROUPS, SPACE, body)
    stated = {"kai.scheduler/skip-podgrouper": "true", "pod-group-name": name}
    template = pod("", "research", labels={"app": name, GANG: name, LEAST: str(size)}, annotations=stated)
    template["spec"]["restartPolicy"] = "Always"
    replicas = {"replicas": size, "selector": {"matchLabels": {"app": name}}, "template": template}
    cluster.plane.api.create(REPLICA_SETS, SPACE, {"metadata": {"name": name}, "spec": replicas})
