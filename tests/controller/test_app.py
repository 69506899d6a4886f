"""A replica as a whole, over an API server in memory."""

import io
import itertools
import json
import math
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

import pytest
import structlog
import urllib3

from kai_solver import __version__
from kai_solver.cluster.api import ApiError, Object, Page, WatchEvent
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import EVENTS, LEASES, NODES, POD_GROUPS, PODS, QUEUES, SECRETS, Resource
from kai_solver.controller import keeper, rival
from kai_solver.controller.app import Controller
from kai_solver.controller.settings import ControllerSettings
from tests.cluster.plane.plane import free_ports
from tests.conftest import Caught
from tests.controller.replicas import QUICK, bound, cluster, cluster_of, pod, running, until
from tests.support.leases import holder_of


def test_a_replica_leads_and_schedules_and_lets_go() -> None:
    api = cluster()
    pod(api, "p")
    with running(api) as replica:
        until(lambda: bound(api) == {"p"})
        assert replica.fence()
    assert holder_of(api, "kai-solver", "kai-solver-kai-scheduler") == "", "the next one may begin at once"


def test_the_settings_of_the_loops_pace_arrive() -> None:
    with running(cluster(), period=3.0, settle=0.2, idle=7.0) as replica:
        pace = replica.scheduler.pace
    assert (pace.period_s, pace.settle_s, pace.idle_s) == (3.0, 0.2, 7.0)


def test_what_is_left_to_say_is_said_on_a_graceful_stop() -> None:
    api = cluster()
    limits = {"nvidia.com/gpu": "9"}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": {"limits": limits}}]}
    api.create(PODS, "n", {"metadata": {"name": "p", "labels": {"kai.scheduler/queue": "q"}}, "spec": spec})
    with running(api, status_rate=1.0) as replica:
        until(lambda: replica.metrics.registry.get_sample_value("kai_queue_depth_total") == 1.0)
    (condition,) = api.get(PODS, "n", "p")["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    assert {event["reason"] for event in api.page(EVENTS).items} == {"Unschedulable"}
    assert api.get(QUEUES, "", "q")["status"]["requested"]["nvidia.com/gpu"] == "9"


class Slow(MemoryApi):
    """Bindings take until ``go``."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = threading.Event(), threading.Event()

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        if subresource == "binding":
            self.asked.set()
            assert self.go.wait(20)
        return super().create(resource, namespace, body, subresource=subresource)


def test_a_stop_in_mid_binding_finishes_the_gang_and_begins_nothing_new() -> None:
    api = cluster_of(Slow())
    group = {"metadata": {"name": "g"}, "spec": {"queue": "q", "minMember": 3}}
    api.create(POD_GROUPS, "n", group)
    for name in ("a", "b", "c"):
        pod(api, name)
        api.patch(PODS, "n", name, {"metadata": {"annotations": {"pod-group-name": "g"}}})
    with running(api) as replica:
        assert api.asked.wait(20)
        replica.stop.set()
        pod(api, "late")
        assert bound(api) == set()
        assert holder_of(api, "kai-solver", "kai-solver-kai-scheduler"), "nobody else begins while it binds"
        api.go.set()
    assert bound(api) == {"a", "b", "c"}
    assert holder_of(api, "kai-solver", "kai-solver-kai-scheduler") == ""


def test_of_two_replicas_one_acts_and_the_other_follows() -> None:
    api = cluster()
    first, second = Controller(api, ControllerSettings(**QUICK)), Controller(api, ControllerSettings(**QUICK))
    threads = [threading.Thread(target=replica.run) for replica in (first, second)]
    threads[0].start()
    until(first.fence)
    threads[1].start()
    until(lambda: not second.not_ready())
    assert not second.fence()
    pod(api, "p")
    until(lambda: bound(api) == {"p"})
    first.api = second.api  # what they share stays open
    first._parts.lease.release()
    first.stop.set()
    until(second.fence)
    pod(api, "q")
    until(lambda: bound(api) == {"p", "q"})
    second.stop.set()
    for thread in threads:
        thread.join(20)


def test_a_part_that_fails_is_started_again_and_the_replica_goes_on(
    faults: list[Caught], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Strange(MemoryApi):
        is_strange = True

        def watch(self, resource: Resource, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
            if resource == PODS and self.is_strange:
                raise KeyError("nobody thought of this")
            return super().watch(resource, resource_version, timeout_s)

    monkeypatch.setattr(keeper, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(keeper, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(keeper, "WELL_S", 0.2)
    api = cluster_of(Strange())
    with running(api) as replica:
        until(lambda: "watch of pods fails: KeyError" in replica.not_ready())
        assert replica.not_healthy() == "", "a restart would cure nothing"
        counted = partial(replica.metrics.registry.get_sample_value, "kai_solver_faults_total", {"where": "running"})
        assert (counted() or 0) >= 3
        api.is_strange = False
        pod(api, "p")
        until(lambda: bound(api) == {"p"})
        until(lambda: replica.not_ready() == "")
    assert {fault.what for fault in faults} == {"watch of pods"}


def test_two_scheduler_names_take_their_own_pods() -> None:
    api = cluster()
    pod(api, "ours")
    pod(api, "theirs", scheduler="another")
    with running(api):
        until(lambda: bound(api) == {"ours"})
        time.sleep(0.3)
        assert bound(api) == {"ours"}


def test_workloads_in_our_own_namespace_wait_and_are_told_why() -> None:
    api = cluster()
    pod(api, "misplaced", namespace="kai-solver")
    pod(api, "fine")

    def said() -> str:
        conditions = api.get(PODS, "kai-solver", "misplaced").get("status", {}).get("conditions", [{}])
        return str(conditions[0].get("message", ""))

    with running(api):
        until(lambda: bound(api) == {"fine"} and bool(said()))
    assert "namespace kai-solver is the scheduler's own" in said()
    assert bound(api) == {"fine"}


def agents(api: MemoryApi, stop: threading.Event) -> None:
    """What runs in reservation pods: each writes which device it got; leaving ones are gone."""
    while not stop.wait(0.02):
        for found in api.page(PODS, namespace="kai-resource-reservation").items:
            name = found["metadata"]["name"]
            if "deletionTimestamp" in found["metadata"]:
                api.delete(PODS, "kai-resource-reservation", name, grace_s=0)
                continue
            body = {"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": "5"}}}
            api.patch(PODS, "kai-resource-reservation", name, body)


def test_pods_share_a_device_and_give_it_back() -> None:
    api, stop = cluster(), threading.Event()
    thread = threading.Thread(target=agents, args=(api, stop))
    thread.start()

    def half(name: str) -> None:
        metadata = {"name": name, "labels": {"kai.scheduler/queue": "q"}, "annotations": {"gpu-fraction": "0.5"}}
        spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}]}
        api.create(PODS, "n", {"metadata": metadata, "spec": spec})

    def groups() -> list[str]:
        found = api.page(PODS, namespace="n").items
        return [item["metadata"]["labels"].get("runai-gpu-group", "") for item in found]

    def reservations() -> int:
        return len(api.page(PODS, namespace="kai-resource-reservation").items)

    half("first")
    half("second")
    with running(api, sharing={"image": "agent"}):
        until(lambda: {"first", "second"} <= bound(api))
        assert len(set(groups())) == 1, "both fit on one device"
        half("third")
        until(lambda: "third" in bound(api))
        assert len(set(groups())) == 2
        assert reservations() == 2
        for name in ("first", "second", "third"):
            api.delete(PODS, "n", name, grace_s=0)
        until(lambda: reservations() == 0)
    stop.set()
    thread.join(5)


def test_a_dry_run_needs_no_lease_and_writes_nothing() -> None:
    api = cluster()
    pod(api, "p")
    before = api.page(PODS).resource_version
    with running(api, dry_run=True) as replica:
        until(
            lambda: (
                replica.metrics.registry.get_sample_value("kai_solver_cycles_total", {"source": "bound"}) is not None
                or replica.scheduler._number > 0
            )
        )
    assert api.page(PODS).resource_version == before


def test_probes_metrics_and_snapshot_are_served() -> None:
    api = cluster()
    api.accounts["operator"] = frozenset({"/get-snapshot"})
    pod(api, "p")
    health, answers = (f"127.0.0.1:{port}" for port in free_ports(2))
    stated: dict[str, Any] = {
        "health_bind_address": health,
        "metrics_bind_address": health,
        "answers_bind_address": answers,
    }
    with running(api, **stated):
        until(lambda: bound(api) == {"p"})

        def get(path: str, address: str = health, token: str = "") -> urllib3.BaseHTTPResponse:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return urllib3.request("GET", f"http://{address}{path}", headers=headers, retries=False)

        assert get("/healthz").status == get("/readyz").status == 200
        assert b"kai_solver_leader 1.0" in get("/metrics").data
        assert get("/get-snapshot").status == 404, "probes and answers are listeners of their own"
        assert get("/get-snapshot", answers).status == 401
        assert get("/get-snapshot", answers, "somebody").status == 401
        assert get("/explain", answers, "operator").status == 403
        archive = zipfile.ZipFile(io.BytesIO(get("/get-snapshot", answers, "operator").data))
        members = json.loads(archive.read("snapshot.json"))["rawObjects"]
        assert [item["metadata"]["name"] for item in members["pods"]] == ["p"]


def test_metrics_are_open_unless_told_otherwise() -> None:
    api = cluster()
    api.accounts["prometheus"] = frozenset({"/metrics"})
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    with running(api, metrics_bind_address=address, metrics_authorization=True) as replica:
        until(lambda: not replica.not_ready())
        url, shown = f"http://{address}/metrics", {"Authorization": "Bearer prometheus"}
        assert urllib3.request("GET", url, retries=False).status == 401
        assert b"kai_solver_leader" in urllib3.request("GET", url, headers=shown, retries=False).data


def test_admission_is_served_by_every_replica_but_not_in_a_dry_run() -> None:
    admission = {"enabled": True, "bind_address": "127.0.0.1:0"}
    with running(cluster(), admission=admission) as replica:
        until(lambda: not replica.not_ready())
        assert replica.webhook is not None
    api = cluster()
    with running(api, admission=admission, dry_run=True) as replica:
        until(lambda: not replica.not_ready())
        assert replica.webhook is None
        assert api.page(SECRETS).items == []


def test_a_loop_that_is_stuck_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Controller(cluster(), ControllerSettings(**{**QUICK, "budget": 2.0, "stuck_after": 5.0}))

    def still_s() -> float:
        return time.time() - (replica.metrics.registry.get_sample_value("kai_solver_loop_timestamp_seconds") or 0.0)

    assert math.isnan(still_s()), "it has not begun"
    assert not replica.not_healthy()
    replica.scheduler.beat_s = time.monotonic()
    assert not replica.not_healthy()
    assert still_s() < 50
    replica.scheduler.beat_s -= 100
    assert "has not moved" in replica.not_healthy()
    assert 100 <= still_s() < 150
    replica._drain()


class Renewing(MemoryApi):
    """While ``times`` go on whoever looks at Leases finds that KAI's scheduler has renewed its own meanwhile."""

    times: Iterator[int] = itertools.repeat(0)

    def page(self, resource: Resource, **words: Any) -> Page:
        found = super().page(resource, **words)
        if resource == LEASES and found.items:
            self.patch(LEASES, rival.KAI, "kai-scheduler", {"spec": {"renewTime": str(next(self.times))}})
        return super().page(resource, **words)


def test_beside_kais_scheduler_it_starts_and_waits_for_it_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is listed by then, so that the first decision follows at once."""
    for name, seconds in (("WATCH_S", 0.05), ("JUDGED_S", 0.5)):
        monkeypatch.setattr(rival, name, seconds)
    api = cluster_of(Renewing())
    api.create(LEASES, rival.KAI, {"metadata": {"name": "kai-scheduler"}, "spec": {"holderIdentity": "theirs"}})
    api.times = itertools.count()
    pod(api, "p")
    with running(api) as replica:
        until(lambda: "is renewed; this replica decides nothing" in replica.not_ready())
        assert bound(api) == set()
        api.times = itertools.repeat(0)
        api.delete(LEASES, rival.KAI, "kai-scheduler")
        until(lambda: bound(api) == {"p"})


def test_while_kais_scheduler_is_at_work_nothing_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LOOK_S", 0.05), ("WATCH_S", 0.05), ("JUDGED_S", 0.3)):
        monkeypatch.setattr(rival, name, seconds)
    api = cluster_of(Renewing())
    api.create(LEASES, rival.KAI, {"metadata": {"name": "kai-scheduler"}, "spec": {"holderIdentity": "theirs"}})

    def beside(replica: Controller) -> float | None:
        return replica.metrics.registry.get_sample_value("kai_solver_beside_kai")

    with running(api) as replica:
        until(lambda: not replica.not_ready())
        api.times = itertools.count()
        until(lambda: "kai-scheduler/kai-scheduler is renewed; this replica decides nothing" in replica.not_ready())
        until(lambda: beside(replica) == 1)
        pod(api, "p")
        time.sleep(0.5)
        assert bound(api) == set()
        api.times = itertools.repeat(0)
        until(lambda: bound(api) == {"p"})
        assert not replica.not_ready()
        until(lambda: beside(replica) == 0)


def test_what_runs_and_which_replica_leads_can_be_seen() -> None:
    api = cluster()
    versions = {"version": __version__, "ortools": version("ortools")}
    with running(api) as first:
        until(first.fence)
        assert first.metrics.registry.get_sample_value("kai_solver_build_info", versions) == 1.0
        leader = holder_of(api, "kai-solver", "kai-solver-kai-scheduler")
        with structlog.testing.capture_logs() as lines, running(api):
            until(lambda: any(line["event"] == "this replica waits to lead" for line in lines))
    assert [line["leader"] for line in lines if line["event"] == "this replica waits to lead"] == [leader]


@pytest.mark.parametrize(("status", "level"), [(410, "debug"), (500, "warning")])
def test_a_watch_that_expired_is_no_warning(monkeypatch: pytest.MonkeyPatch, status: int, level: str) -> None:
    api, faults = cluster(), [ApiError(status, "Fault")]
    watch = api.watch

    def faulty(resource: Resource, *args: Any) -> Any:
        if resource is NODES and faults:
            raise faults.pop()
        return watch(resource, *args)

    monkeypatch.setattr(api, "watch", faulty)
    with structlog.testing.capture_logs() as lines, running(api):
        until(lambda: any(line["event"] == "list or watch failed" for line in lines))
    found = [line for line in lines if line["event"] == "list or watch failed"]
    assert [(line["resource"], line["log_level"]) for line in found] == [(NODES.name, level)]
