"""The API server is away: at the start, while gangs bind, for longer than the Lease lives. The process waits."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from kai_solver.cluster.resources import LEASES
from tests.cluster.plane.cluster import LEADERSHIP, Cluster, Replica
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import wait_for
from tests.cluster.plane.proxy import Fault
from tests.cluster.plane.test_faults import LONG_S, proxied, work

AWAY_S = 40.0
"""Longer than a request may take (`kai_solver.cluster.rest.READ_S`)."""

ENDS_S = 28.0
"""What `kai_solver.cli.interrupt` promises; a kubelet kills after 30 s."""


class Stopping:
    """A rule of a proxy: the API server stops dead when it is asked for the so-many-th binding."""

    def __init__(self, cluster: Cluster, bindings: int) -> None:
        self._server = cluster.plane.apiserver
        self._left = bindings
        self.asked_s: list[float] = []
        """When bindings were asked for."""

    def __call__(self, _method: str, path: str) -> Fault | None:
        if path.endswith("/binding"):
            self.asked_s.append(time.monotonic())
            self._left -= 1
            if self._left == 0:
                self._server.pause()
        return None


def began_to_bind(cluster: Cluster, bindings: int = 6, **settings: Any) -> tuple[Replica, Stopping]:
    """A replica in the midst of binding six gangs of four pods, when the API server stops dead.

    All pods are there before: the Job controller is slow to come back.
    """
    work(cluster)
    wait_for("all pods are there", lambda: len(cluster.names("gang")) == 24)
    replica, rule = cluster.controller(proxied=True, start=False, **settings), Stopping(cluster, bindings)
    proxied(cluster).rule = rule
    replica.component.start()
    wait_for("it stopped", lambda: not is_answering(cluster))
    return replica, rule


def is_answering(cluster: Cluster) -> bool:
    return not re.search(r"\nState:\s+T", status_of(cluster))


def status_of(cluster: Cluster) -> str:
    process = cluster.plane.apiserver.process
    assert process is not None
    return Path(f"/proc/{process.pid}/status").read_text()


def metric(replica: Replica, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", replica.said_by("/metrics"), re.MULTILINE)
    assert found, name
    return float(found[1])


def test_20_a_server_that_hangs_while_gangs_bind_is_waited_for(
    make_cluster: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGSTOP for 40 seconds: the lead is lost, nothing is half done for long, and the same process goes on.

    With four control planes on two cores a gang was whole again 40.3 s after that (2026-12-01), alone within 5 s.
    """
    cluster = make_cluster(partly_s=AWAY_S + 60, may_leave=lambda found: True)
    replica, rule = began_to_bind(cluster)
    process = replica.component.process
    try:
        time.sleep(AWAY_S / 2)
        assert "the API server has not answered for" in replica.said_by("/readyz")
        assert replica.answers("/healthz"), "it is not to be killed"
        assert metric(replica, "kai_solver_api_silent_seconds") > 10
        assert metric(replica, "kai_solver_leader") == 0
        time.sleep(AWAY_S / 2)
    finally:
        cluster.plane.apiserver.resume()
    began_s = time.monotonic()
    cluster.wait_bound(24, limit_s=LONG_S)
    seconds, later_s = time.monotonic() - began_s, [at_s - began_s for at_s in rule.asked_s if at_s > began_s]
    wait_for("it is ready again", replica.is_ready)
    assert replica.component.process is process
    assert replica.component.runs
    with capsys.disabled():
        asked = f"{min(later_s):.1f} s to the next binding" if later_s else "no binding was asked for again"
        print(f"\nfrom SIGCONT: {asked}, {seconds:.1f} s to the last pod's")


@pytest.mark.parametrize("after_s", [1.0, 10.0], ids=["while it leads", "after the lead"])
def test_21_it_ends_in_time_while_the_server_hangs(
    make_cluster: Make, capsys: pytest.CaptureFixture[str], after_s: float
) -> None:
    cluster = make_cluster(partly_s=AWAY_S + 40, may_leave=lambda found: True)
    replica, _ = began_to_bind(cluster, leadership=LEADERSHIP)
    try:
        time.sleep(after_s)
        began_s = time.monotonic()
        code = replica.component.stop(2 * ENDS_S)
        seconds = time.monotonic() - began_s
    finally:
        cluster.plane.apiserver.resume()
    assert seconds < ENDS_S
    assert code == 0
    cluster.plane.wait_ready()
    cluster.controller()
    cluster.wait_bound(24, limit_s=LONG_S)
    with capsys.disabled():
        print(f"\nSIGTERM {after_s:.0f} s into the hang: ended after {seconds:.1f} s")


@pytest.mark.parametrize("how", ["hangs", "hangs up", "does not know our rights yet"])
def test_22_no_server_at_the_start(make_cluster: Make, how: str) -> None:
    """The process waits, answers probes, and says what it waits for."""
    cluster = make_cluster()
    work(cluster, gangs=2)
    replica = cluster.controller(proxied=True, start=False)
    proxy = proxied(cluster)
    if how == "hangs":
        proxy.frozen.set()
    else:
        fault = Fault(hang_up=True) if how == "hangs up" else Fault(403)
        proxy.rule = lambda _method, _path: fault
    replica.component.start()
    what = "not listed yet" if fault_is_an_answer(how) else "the API server has not answered for"
    wait_for("it says so", lambda: what in replica.said_by("/readyz"))
    wait_for("it tried", lambda: any("waiting for" in line.get("event", "") for line in replica.said()))
    assert replica.answers("/healthz")
    assert replica.component.runs
    proxy.heal()
    wait_for("it is ready", replica.is_ready)
    cluster.wait_bound(8, limit_s=LONG_S)


def fault_is_an_answer(how: str) -> bool:
    return "rights" in how


def test_23_a_half_open_connection_is_waited_out(make_cluster: Make) -> None:
    """Nothing passes for longer than the Lease lives, and no other replica is there: the same process goes on."""
    cluster = make_cluster(partly_s=40)
    replica = cluster.controller(proxied=True, leadership=LEADERSHIP)
    work(cluster, gangs=3)
    cluster.wait_bound(12)
    proxied(cluster).frozen.set()
    cluster.job("gang-3", "research", 4)
    wait_for("it says so", lambda: "the API server has not answered for" in replica.said_by("/readyz"), LONG_S)
    proxied(cluster).heal()
    cluster.wait_bound(16, limit_s=LONG_S)
    assert replica.component.runs


def test_24_a_container_that_is_killed_is_followed_by_the_next_one_at_once(
    make_cluster: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same pod does not wait for the end of its own Lease, which here is five minutes away."""
    cluster = make_cluster()
    replica = cluster.controller(leadership={"live": "300s", "renew": "200s"})
    work(cluster, gangs=1)
    cluster.wait_bound(4)
    (lease,) = cluster.plane.api.page(LEASES, namespace="kai-solver").items
    replica.component.kill()
    cluster.job("gang-1", "research", 4)
    began_s = time.monotonic()
    replica.component.start()

    def transitions() -> int:
        (found,) = cluster.plane.api.page(LEASES, namespace="kai-solver").items
        assert found["spec"]["holderIdentity"] == lease["spec"]["holderIdentity"]
        return int(found["spec"]["leaseTransitions"])

    wait_for("it leads", lambda: transitions() > lease["spec"]["leaseTransitions"], LONG_S, look_s=0.02)
    seconds = time.monotonic() - began_s
    cluster.wait_bound(8)
    with capsys.disabled():
        print(f"\nfrom the start of the process to its lead: {seconds:.1f} s")
