"""The checker objects where it should: who trusts a silent guard must have heard it once."""

import time

from kai_solver.cluster.resources import PODS
from tests.cluster.plane.checker import GANG, LEAST
from tests.cluster.plane.cluster import SPACE, Cluster, checker_of, pod
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import Plane, wait_for


def evict(cluster: Cluster, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": SPACE}}
    cluster.plane.api.create(PODS, SPACE, body, subresource="eviction")


def objection(cluster: Cluster, text: str) -> None:
    """Wait until it objects with these words, which is wanted."""
    cluster.wanted = text
    wait_for(f"the checker says: {text}", lambda: any(text in found for found in cluster.checker.complaints), 20)


def test_it_objects_to_a_gpu_promised_twice(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1, gpus=2)
    for name in ("a", "b"):
        cluster.pod(name, "research", 2)
        cluster.bind(name, "node-0")
    objection(cluster, "has 2 GPUs and promised")


def test_it_objects_to_a_gang_in_part(make_cluster: Make) -> None:
    cluster = make_cluster(partly_s=0.5)
    cluster.nodes(1)
    for name in ("a", "b"):
        made = pod(name, "research", labels={GANG: "g", LEAST: "2"})
        cluster.plane.api.create(PODS, SPACE, made)
    cluster.bind("a", "node-0")
    wait_for("it is seen", lambda: len(cluster.bound()) == 1)
    time.sleep(0.6)
    cluster.checker.look(time.monotonic())
    objection(cluster, "runs in part")
    cluster.bind("b", "node-0")


def test_it_blames_nothing_for_the_time_without_a_server(make_cluster: Make, plane: Plane) -> None:
    cluster = make_cluster(partly_s=15)
    cluster.nodes(1)
    for name in ("a", "b"):
        cluster.plane.api.create(PODS, SPACE, pod(name, "research", labels={GANG: "g", LEAST: "2"}))
    checker, now = cluster.checker, [time.monotonic()]
    checker.clock = lambda: now[0]

    def later() -> bool:
        now[0] += 16
        checker.look(now[0])
        return bool(checker.complaints)

    cluster.bind("a", "node-0")
    wait_for("it is seen", lambda: len(cluster.bound()) == 1)
    plane.apiserver.kill()
    wait_for("it is missed", lambda: checker.away_since_s <= now[0])
    now[0] += 1000
    checker.look(now[0])
    plane.apiserver.start()
    plane.wait_ready()
    wait_for("it is back", lambda: checker.away_since_s > now[0])
    checker.look(now[0])
    assert checker.complaints == []
    wait_for("it is blamed again", later)
    objection(cluster, "gang g runs in part")
    cluster.bind("b", "node-0")


def test_it_objects_to_an_eviction_without_a_cause(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1)
    cluster.pod("a", "research")
    cluster.bind("a", "node-0")
    evict(cluster, "a")
    objection(cluster, "evicted without a cause")


def test_it_objects_to_an_eviction_that_says_not_why(make_cluster: Make) -> None:
    cluster = make_cluster(may_leave=lambda found: True)
    cluster.nodes(1)
    cluster.pod("a", "research")
    cluster.bind("a", "node-0")
    evict(cluster, "a")
    objection(cluster, "evicted without a word")


def test_it_objects_to_evictions_above_their_rate(make_cluster: Make) -> None:
    cluster = make_cluster(may_leave=lambda found: True, rate=(1, 30.0))
    cluster.nodes(1)
    said = {"reason": "PreemptionByScheduler", "message": "preempt: Pod work/a was preempted by workload work/g"}
    for name in ("a", "b"):
        cluster.pod(name, "research")
        cluster.bind(name, "node-0")
        body = {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", **said}]}}
        cluster.plane.api.patch(PODS, SPACE, name, body, kind="strategic", subresource="status")
        evict(cluster, name)
    objection(cluster, "2 pods were evicted within 30 s")


def test_it_sees_what_was_there_and_goes_on_over_a_restart(make_cluster: Make, plane: Plane) -> None:
    cluster = make_cluster()
    cluster.nodes(1, gpus=1)
    cluster.pod("a", "research")
    cluster.bind("a", "node-0")
    late = checker_of(plane, lambda found: False, 15.0)
    late.start()
    assert len(late.bound()) == 1
    plane.apiserver.kill()
    plane.apiserver.start()
    plane.wait_ready()
    cluster.pod("b", "research")
    cluster.bind("b", "node-0")
    objection(cluster, "has 1 GPUs and promised")
    wait_for("the late one says so, too", lambda: bool(late.complaints), 20)
    late.stop()
