"""Gauges of queues and nodes, ends of evicted pods and of finished gangs, names of priority classes."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.evicting import Departed, Departure
from kai_solver.cluster.resources import PODS
from kai_solver.cluster.store import Store
from kai_solver.controller import gauges
from kai_solver.controller.endings import Endings
from kai_solver.controller.gauges import ClusterGauges, held_gpus
from kai_solver.controller.loop import Cycle, Evicted
from kai_solver.controller.orders import Orders
from kai_solver.controller.reporting import reporters
from kai_solver.controller.reporting.reporters import MetricReporter
from kai_solver.domain import (
    Action,
    Eviction,
    Gang,
    Notice,
    Pending,
    Plan,
    Pod,
    PodStatus,
    Proof,
    Queue,
    Reason,
    Snapshot,
    flat_gang,
)
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.metrics import Metrics
from kai_solver.problem import build_problem
from kai_solver.units import ResourceSchema
from tests.controller.reporting_world import World


def cycle(
    gangs: tuple[Gang, ...] = (),
    notices: tuple[Notice, ...] = (),
    pending: tuple[Pending, ...] = (),
) -> Cycle:
    snapshot = Snapshot(1000.0, ResourceSchema(), (), (), gangs, notices=notices)
    return Cycle(1, snapshot, Plan(pending=pending), Orders(), (), frozenset(), 0.0, 0.0)


def evicted(outcomes: tuple[Departed, ...], *gangs: Gang) -> Evicted:
    return Evicted(Snapshot(1000.0, ResourceSchema(), (), (), gangs), Plan(), outcomes)


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def measured(world: World) -> Metrics:
    metrics = Metrics()
    ClusterGauges(metrics, lambda: world.engine.memo.problem).cycle(world.cycle())
    return metrics


def test_queues_have_kais_gauges_and_those_of_the_articles() -> None:
    world = World()
    world.queue("q", quota=4)
    world.node("a")
    world.pod("p", gpus=2)
    world.round()
    metrics = measured(world)
    labels = {"queue_name": "q", "queue_metadata_name": "q", "queue_display_name": ""}
    assert sample(metrics, "kai_queue_info", **labels) == 1
    assert sample(metrics, "kai_queue_deserved_gpus", **labels) == 4
    assert sample(metrics, "kai_queue_allocated_gpus", **labels) == 2
    assert sample(metrics, "kai_queue_fair_share_gpu", **labels) == 2, "no more than it asks for"
    assert sample(metrics, "kai_queue_gpu_usage", **labels) == 0
    assert sample(metrics, "kai_quota_usage_percent", team="q") == 50
    assert sample(metrics, "kai_fairshare_quota_usage", team="q") == 1


def test_unlimited_quota_is_minus_one() -> None:
    world = World()
    world.queue("q")
    world.node("a")
    labels = {"queue_name": "q", "queue_metadata_name": "q", "queue_display_name": ""}
    assert sample(measured(world), "kai_queue_quota_memory_bytes", **labels) == -1


def test_the_largest_free_row_of_gpus_is_told_by_node() -> None:
    world = World()
    world.queue("q")
    world.node("a")
    world.node("cpu-only", gpus=0)
    for _ in range(3):
        world.pod(f"p{_}", gpus=1)
    world.round()
    metrics = measured(world)
    assert sample(metrics, "kai_solver_largest_free_block_gpus", node="a") == 5
    assert sample(metrics, "kai_solver_largest_free_block_gpus", node="cpu-only") is None


def test_gpus_are_told_by_how_it_is_known_which_they_are() -> None:
    """Facts of whatever writes them on the node, our own wishes, and pods of which nobody says anything."""
    here = {"status": "Running", "node": "a"}
    pods = [
        here | {"gpus": 2, "devices": [0, 1]},
        here | {"gpus": 3, "wishedDevices": [2, 3, 4]},
        here | {"gpus": 1},
        here | {"gpus": 0.5, "devices": [7]},
        {"gpus": 1},
    ]
    document = {
        "format": "kai-solver/v1",
        "nodes": [{"name": "a", "gpus": 8}],
        "queues": [{"name": "q"}],
        "gangs": [{"name": f"g{at}", "queue": "q", "pods": [pod]} for at, pod in enumerate(pods)],
    }
    found = held_gpus(build_problem(snapshot_from_native(document)))
    assert found == {("fact",): 2.5, ("wish",): 3, ("unknown",): 1}


def test_what_is_gone_is_no_longer_measured_and_what_is_counted_elsewhere_grows() -> None:
    metrics, expired = Metrics(), [2]
    gauges = ClusterGauges(metrics, lambda: None, {metrics.assumed_expired: lambda: expired[0]})
    gauges.cycle(cycle(notices=(Notice("set-aside", "Pod n/p", "x"), Notice("warning", "Node a", "x"))))
    assert sample(metrics, "kai_solver_objects_set_aside", kind="Pod") == 1
    assert sample(metrics, "kai_solver_objects_set_aside", kind="Node") is None
    expired[0] = 5
    gauges.cycle(cycle())
    assert sample(metrics, "kai_solver_objects_set_aside", kind="Pod") is None
    assert sample(metrics, "kai_solver_assumptions_expired_total") == 5


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pod(uid: str = "u", **spec: Any) -> Object:
    return {"metadata": {"namespace": "n", "name": "p", "uid": uid}, "spec": spec}


@pytest.mark.parametrize(("took_s", "how"), [(9.0, "gracefully"), (11.0, "killed")])
def test_what_left_within_its_grace_was_not_killed(took_s: float, how: str) -> None:
    metrics, store, clock = Metrics(), Store(), Clock()
    endings = Endings(metrics, store, clock)
    store.listen(endings)
    store.replace(PODS, [pod(terminationGracePeriodSeconds=10)])
    endings.evicted(evicted((Departed(Departure("n", "p", "u", "n/g", "q", "reclaim")),)))
    clock.now = took_s
    store.replace(PODS, [pod(terminationGracePeriodSeconds=10)])
    store.replace(PODS, [pod("another of that name")])
    store.replace(PODS, [])
    assert sample(metrics, "kai_solver_evicted_pods_ended_total", how=how) == 1
    assert sample(metrics, "kai_preemption_grace_period_seconds_sum") == took_s


def test_what_is_gone_before_the_last_eviction_of_its_cycle_ended_left_when_it_left() -> None:
    metrics, store, clock = Metrics(), Store(), Clock()
    endings = Endings(metrics, store, clock)
    store.listen(endings)
    store.replace(PODS, [pod()])
    clock.now = 7.0
    store.replace(PODS, [])
    clock.now = 60.0
    endings.evicted(evicted((Departed(Departure("n", "p", "u", "n/g", "q", "reclaim"), at_s=5.0),)))
    assert sample(metrics, "kai_preemption_grace_period_seconds_sum") == 2.0
    assert sample(metrics, "kai_solver_evicted_pods_ended_total", how="gracefully") == 1


def test_what_is_seen_to_be_gone_before_the_answer_took_no_time() -> None:
    metrics, store, clock = Metrics(), Store(), Clock()
    endings = Endings(metrics, store, clock)
    store.listen(endings)
    store.replace(PODS, [pod()])
    clock.now = 4.9
    store.replace(PODS, [])
    endings.evicted(evicted((Departed(Departure("n", "p", "u", "n/g", "q", "reclaim"), at_s=5.0),)))
    assert sample(metrics, "kai_preemption_grace_period_seconds_sum") == 0.0
    assert sample(metrics, "kai_solver_evicted_pods_ended_total", how="gracefully") == 1


def test_evictions_count_by_outcome() -> None:
    metrics, going = Metrics(), Departure("n", "p", "u", "n/g", "q", "reclaim")
    outcomes = (Departed(going), Departed(going, "no"), Departed(going, "late", put_off=True))
    MetricReporter(metrics).evicted(evicted(outcomes, gang(PodStatus.RUNNING)))
    counted = [sample(metrics, "kai_solver_evictions_total", outcome=name) for name in ("done", "refused", "put-off")]
    assert counted == [1, 1, 1]
    assert sample(metrics, "kai_total_preemption_attempts_total") == 1


def test_what_was_refused_or_is_not_known_does_not_count() -> None:
    metrics, store = Metrics(), Store()
    endings = Endings(metrics, store)
    store.listen(endings)
    store.replace(PODS, [pod()])
    endings.evicted(evicted((Departed(Departure("n", "p", "u", "n/g", "q", "reclaim"), "no"),)))
    store.replace(PODS, [])
    assert sample(metrics, "kai_preemption_grace_period_seconds_count") == 0


def test_what_is_gone_before_we_look_has_ended() -> None:
    metrics = Metrics()
    Endings(metrics, Store(), Clock()).evicted(evicted((Departed(Departure("n", "p", "u", "n/g", "q", "reclaim")),)))
    assert sample(metrics, "kai_solver_evicted_pods_ended_total", how="gracefully") == 1


def gang(*statuses: PodStatus) -> Gang:
    pods = tuple(Pod("n", f"p{at}", (0, 0, 0, 1), status=status) for at, status in enumerate(statuses))
    return Gang("n", "g", "team", flat_gang(1), pods, created_s=400.0, priority=75)


def test_a_finished_gang_counts_once() -> None:
    metrics = Metrics()
    endings = Endings(metrics, Store())
    endings.cycle(of_team(gang(PodStatus.SUCCEEDED, PodStatus.RUNNING)))
    assert sample(metrics, "kai_gang_job_completion_time_seconds_count", team="team") is None
    for _ in range(3):
        endings.cycle(of_team(gang(PodStatus.SUCCEEDED, PodStatus.SUCCEEDED)))
    assert sample(metrics, "kai_gang_job_completion_time_seconds_count", team="team") == 1
    assert sample(metrics, "kai_gang_job_completion_time_seconds_sum", team="team") == 600


def test_finished_gangs_make_series_of_queues_that_exist_alone() -> None:
    metrics = Metrics()
    endings = Endings(metrics, Store())
    done = gang(PodStatus.SUCCEEDED)
    for at in range(3):
        endings.cycle(of_team(replace(done, name=f"g{at}", queue=f"no-such-queue-{at}")))
    assert not [found for found in series(metrics) if found]
    endings.cycle(of_team(done))
    assert series(metrics) == {"team"}
    endings.cycle(cycle())
    endings.cycle(cycle())
    assert series(metrics) == set()


def series(metrics: Metrics) -> set[str]:
    """Queues that have series of finished gangs."""
    families = (found for found in metrics.registry.collect() if found.name == "kai_gang_job_completion_time_seconds")
    return {entry.labels["team"] for family in families for entry in family.samples}


def of_team(*gangs: Gang) -> Cycle:
    """A cycle that sees the queue ``team``."""
    found = cycle(gangs)
    return replace(found, snapshot=replace(found.snapshot, queues=(Queue("team"),)))


def acted(metrics: Metrics) -> dict[str, float]:
    found = {
        action: sample(metrics, "kai_podgroups_acted_on_by_action_total", action=action.value) for action in Action
    }
    return {action.value: count for action, count in found.items() if count}


def test_a_gang_acts_on_every_rung_up_to_the_one_that_serves_it() -> None:
    metrics = Metrics()
    reporter = MetricReporter(metrics)
    here = (gang(PodStatus.PENDING),)
    admitted = (("n/g", Action.CONSOLIDATION), ("n/g", Action.RECLAIM))
    reporter.cycle(replace(cycle(here), plan=Plan(admitted=admitted)))
    assert acted(metrics) == {"allocate": 1, "consolidation": 1}
    reporter.cycle(cycle(here, pending=(Pending("n/g", Reason.OVER_LIMIT, "", Proof("proven")),)))
    assert acted(metrics) == {"allocate": 2, "consolidation": 2, "reclaim": 1, "preempt": 1}
    reporter.cycle(cycle(here, pending=(Pending("n/g", Reason.PREEMPTION_DELAY, "", Proof("proven")),)))
    assert acted(metrics) == {"allocate": 3, "consolidation": 2, "reclaim": 1, "preempt": 1}
    for reason in (Reason.NOT_READY, Reason.SET_ASIDE):
        reporter.cycle(cycle(here, pending=(Pending("n/g", reason, "", Proof("proven")),)))
    assert acted(metrics)["allocate"] == 3
    stale = tuple(Eviction(f"n/p{at}", "n/g", "a", "stale") for at in range(2))
    reporter.cycle(replace(cycle(here), plan=Plan(evictions=stale)))
    assert acted(metrics)["stalegangeviction"] == 1


def test_only_rungs_of_the_model_are_acted_on() -> None:
    metrics = Metrics()
    reporter = MetricReporter(metrics, actions=lambda: (Action.ALLOCATE, Action.RECLAIM))
    reporter.cycle(cycle((gang(PodStatus.PENDING),), pending=(Pending("n/g", Reason.OVER_LIMIT, "", Proof("proven")),)))
    assert acted(metrics) == {"allocate": 1, "reclaim": 1}


def test_actions_that_the_policy_disables_are_not_acted_on() -> None:
    metrics = Metrics()
    found = cycle((gang(PodStatus.PENDING),), pending=(Pending("n/g", Reason.OVER_LIMIT, "", Proof("proven")),))
    policy = replace(found.snapshot.policy, disabled_actions=frozenset({Action.CONSOLIDATION, Action.PREEMPT}))
    MetricReporter(metrics).cycle(replace(found, snapshot=replace(found.snapshot, policy=policy)))
    assert acted(metrics) == {"allocate": 1, "reclaim": 1}


def test_evicted_gangs_are_not_shown_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporters, "_EVICTED", 2)
    metrics = Metrics()
    reporter = MetricReporter(metrics)
    for uid in ("u1", "u2", "u1", "u3"):
        gone = (Departed(Departure("n", "p", "u", "n/g", "q", "reclaim")),)
        reporter.evicted(evicted(gone, replace(gang(PodStatus.RUNNING), uid=uid)))
    labels = {"podgroup": "g", "namespace": "n", "nodepool": "default", "action": "reclaim"}
    shown = [sample(metrics, "kai_pod_group_evicted_pods_total", uid=uid, **labels) for uid in ("u1", "u2", "u3")]
    assert shown == [2, None, 1]


@pytest.mark.parametrize(("is_gone", "shown"), [(True, None), (False, 1)])
def test_evicted_pods_are_shown_as_long_as_their_gang_is_there_and_for_a_while(
    is_gone: bool, shown: float | None
) -> None:
    metrics, now = Metrics(), [1000.0]
    reporter, here = MetricReporter(metrics, clock=lambda: now[0]), gang(PodStatus.RUNNING)
    reporter.evicted(evicted((Departed(Departure("n", "p", "u", "n/g", "q", "reclaim")),), here))
    labels = {"podgroup": "g", "namespace": "n", "uid": "", "nodepool": "default", "action": "reclaim"}
    for later_s, wanted in ((300.0, 1), (400.0, shown)):
        now[0] += later_s
        reporter.cycle(cycle(() if is_gone else (here,)))
        assert sample(metrics, "kai_pod_group_evicted_pods_total", **labels) == wanted


def test_evicted_pods_are_of_our_node_pool() -> None:
    metrics = Metrics()
    gone = (Departed(Departure("n", "p", "u", "n/g", "q", "reclaim")),)
    MetricReporter(metrics, pool="a100").evicted(evicted(gone, gang(PodStatus.RUNNING)))
    labels = {"podgroup": "g", "namespace": "n", "uid": "", "nodepool": "a100", "action": "reclaim"}
    assert sample(metrics, "kai_pod_group_evicted_pods_total", **labels) == 1


def test_priorities_bear_the_names_of_their_classes() -> None:
    metrics = Metrics()
    waits = (Pending("n/g", Reason.NOT_ENOUGH_RESOURCES, "", Proof("proven")),)
    MetricReporter(metrics, classes=lambda: {75: "build"}).cycle(cycle((gang(PodStatus.PENDING),), pending=waits))
    assert sample(metrics, "kai_queue_depth", priority="build") == 1
    MetricReporter(metrics).cycle(cycle((gang(PodStatus.PENDING),), pending=waits))
    assert sample(metrics, "kai_queue_depth", priority="75") == 1


def pending_since(metrics: Metrics) -> dict[tuple[str, str, str], float]:
    (family,) = (one for one in metrics.registry.collect() if one.name == "kai_solver_pending_since_timestamp_seconds")
    return {
        (sample.labels["gang"], sample.labels["queue"], sample.labels["reason"]): sample.value
        for sample in family.samples
    }


def test_the_gangs_that_wait_longest_have_a_series_each_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "LONGEST", 2)
    metrics = Metrics()
    reporter = ClusterGauges(metrics, lambda: None)
    ages = {"young": 900.0, "oldest": 100.0, "old": 200.0, "undated": 0.0}
    gangs = tuple(replace(gang(PodStatus.PENDING), name=name, created_s=at_s) for name, at_s in ages.items())
    waits = tuple(Pending(one.key, Reason.OVER_LIMIT, "", Proof("proven")) for one in gangs)
    reporter.cycle(cycle(gangs, pending=waits))
    assert pending_since(metrics) == {("n/oldest", "team", "OverLimit"): 100.0, ("n/old", "team", "OverLimit"): 200.0}
    reporter.cycle(replace(cycle(gangs, pending=waits), busy=frozenset({"n/oldest"})))
    assert pending_since(metrics) == {("n/old", "team", "OverLimit"): 200.0, ("n/young", "team", "OverLimit"): 900.0}
    reporter.cycle(cycle(gangs))
    assert pending_since(metrics) == {}
