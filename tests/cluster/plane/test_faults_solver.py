"""Numbered faults of replicas and their solver: clocks that disagree, a solver that is killed, one that hangs."""

import os
import random
import signal
import threading
import time

import pytest

from kai_solver.cluster.lease import Lease
from kai_solver.cluster.resources import LEASES
from kai_solver.kubeobjects.raw import parse_time_s
from tests.cluster.plane.cluster import LEADERSHIP, LEASE, Cluster, Replica
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.inside import inside
from tests.cluster.plane.plane import cpu_s, wait_for
from tests.support.leases import holder_of

LONG_S = 120.0
HOUR_S = 3600.0
SOLVER = "search/worker.py"


def holder(cluster: Cluster) -> str:
    return holder_of(cluster.plane.api, "kai-solver", LEASE)


def ahead_s(cluster: Cluster) -> float:
    """How far the clock of whoever renewed the Lease last is ahead of ours."""
    return (parse_time_s(cluster.plane.api.get(LEASES, "kai-solver", LEASE)["spec"]["renewTime"]) or 0.0) - time.time()


@pytest.mark.parametrize("skew_s", [HOUR_S, -HOUR_S], ids=["12-ahead", "12-behind"])
def test_clocks_disagree(make_cluster: Make, monkeypatch: pytest.MonkeyPatch, skew_s: float) -> None:
    """A leader with a wrong clock is waited for while it renews, followed when it is silent, and follows others."""
    monkeypatch.setattr(Lease, "release", lambda self: self._stop.set())  # it ends without letting go
    cluster = make_cluster(partly_s=40)
    cluster.nodes(2)
    cluster.queues(research=16)
    with inside(cluster, skew_s, leadership=LEADERSHIP) as first:
        wait_for("it leads", first.fence)
        second = cluster.controller(leadership=LEADERSHIP)
        cluster.job("gang-0", "research", 4)
        cluster.wait_bound(4)
        leader = holder(cluster)
        time.sleep(10)  # longer than the Lease lives
        assert holder(cluster) == leader, "a leader that renews is followed by nobody"
        assert abs(ahead_s(cluster) - skew_s) < 300
    cluster.job("gang-1", "research", 4)
    cluster.wait_bound(8, limit_s=LONG_S)
    assert holder(cluster) != leader
    with inside(cluster, -skew_s, leadership=LEADERSHIP) as third:
        second.component.kill()
        cluster.job("gang-2", "research", 4)
        cluster.wait_bound(12, limit_s=LONG_S)
        assert third.fence()


def only_the_solver_helps(cluster: Cluster) -> None:
    """Two pods in a chain must move for a third; the greedy moves nobody to a place that is still taken."""
    for name, kind in (("a", "h100"), ("b", "h100"), ("c", "a100")):
        cluster.node(name, 4, gpu=kind)
    cluster.wait_nodes(3)
    cluster.queues(research=8, serving=4)
    for name, queue, node, more in (
        ("on-h100", "research", "a", {"nodeSelector": {"gpu": "h100"}}),
        ("anywhere", "research", "b", {}),
        ("pinned-b", "serving", "b", {"priority": "build"}),
        ("pinned-c", "serving", "c", {"priority": "build"}),
    ):
        cluster.job(name, queue, 1, gpus=2, more=more)
        wait_for(f"the pod of {name} is there", lambda name=name: len(cluster.names(name)) == 1)  # type: ignore[misc]
        cluster.bind(cluster.names(name)[0], node)
    cluster.wait_bound(4)


def ask(cluster: Cluster) -> None:
    cluster.job("wants-a-node", "research", 1, gpus=4, more={"nodeSelector": {"gpu": "h100"}})


def failures(replica: Replica) -> int:
    return sum(str(line.get("event")).startswith("the solver failed") for line in replica.said())


def solvers(replica: Replica) -> list[int]:
    return replica.component.children(SOLVER)


def rests(pid: int) -> bool:
    """Whether it does nothing for a while."""
    before_s = cpu_s(pid)
    time.sleep(1)
    return before_s == cpu_s(pid)


def test_13_solver_child_killed(make_cluster: Make) -> None:
    """Again and again while it works: cycles go on, and what only it finds is found when it may live."""
    cluster = make_cluster(may_leave=lambda found: True, partly_s=60)
    only_the_solver_helps(cluster)
    replica = cluster.controller(budget="2s")
    over, draw = threading.Event(), random.Random(13)

    def kill() -> None:
        while not over.wait(draw.uniform(0.0, 0.04)):  # To start it needs 0.05 s, and then it has to answer.
            for pid in solvers(replica):
                os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        ask(cluster)
        wait_for("the solver failed", lambda: failures(replica) > 1, LONG_S)
    finally:
        over.set()
        thread.join()
    cluster.wait_bound(5, limit_s=LONG_S)
    assert replica.answers("/healthz")


def test_14_solver_child_hung(make_cluster: Make) -> None:
    """It does not move any more: it is given up at the deadline, and another takes its place.

    It hangs in the middle of its life; one that does not come up is given more time (half a minute).
    """
    cluster = make_cluster(may_leave=lambda found: True, partly_s=60)
    only_the_solver_helps(cluster)
    replica = cluster.controller(budget="2s")
    wait_for("the solver is there", lambda: len(solvers(replica)) == 1)
    (hung,) = solvers(replica)
    wait_for("it has come up", lambda: rests(hung))
    os.kill(hung, signal.SIGSTOP)
    ask(cluster)
    wait_for("it was given up", lambda: hung not in solvers(replica), LONG_S)
    cluster.wait_bound(5, limit_s=LONG_S)
    assert failures(replica) > 0
    assert replica.answers("/healthz")
