"""Every kind of event alone, by hand: what happens when, and what it costs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kai_solver.domain import Bind, Device, Eviction, Move, Plan, Snapshot
from kai_solver.errors import InternalError
from kai_solver.lab.simulate import Result, Scenario, load_scenario, replay, summarize
from kai_solver.lab.simulate.jobs import State

Make = Callable[..., Scenario]
Run = Callable[..., Result]
JobOf = Callable[..., dict[str, Any]]


def only(result: Result) -> Any:
    [job] = result.jobs
    return job


class Script:
    """A policy that does what it is told, cycle by cycle; nothing where it is told nothing."""

    name = "script"

    def __init__(self, plans: dict[float, Plan], begin_s: float = 1_700_000_000.0) -> None:
        self._plans = plans
        self._begin_s = begin_s
        self.asked: list[float] = []

    def decide(self, snapshot: Snapshot) -> Plan:
        at_s = snapshot.now_s - self._begin_s
        self.asked.append(at_s)
        return self._plans.get(at_s, Plan())


def bind(pod: str, node: str, gpus: int, first: int = 0) -> Bind:
    devices = tuple(Device(first + i, 1000) for i in range(gpus))
    return Bind(f"sim/{pod}", f"sim/{pod.rsplit('-', 1)[0]}", node, devices)


def test_a_job_starts_at_the_first_cycle_after_it_arrives_and_leaves_when_its_work_is_done(
    make: Make, run: Run, job: JobOf
) -> None:
    found = only(run(make(job(at=2.5))))
    assert (found.job.arrival_s, found.first_start_s, found.end_s) == (2.5, 3.0, 103.0)
    assert found.useful_gpu_s == 800
    assert found.state.value == "done"


def test_the_period_says_when_cycles_come(make: Make, run: Run, job: JobOf) -> None:
    assert only(run(make(job(at=2.5), period=10))).first_start_s == 10.0


def test_a_departure_lets_the_next_one_in(make: Make, run: Run, job: JobOf) -> None:
    two = [job("first", pods=2, runtime={"distribution": "fixed", "typical": 50.5}), job("second", at=1, pods=2)]
    first, second = run(make(*two)).jobs
    assert first.end_s == 50.5
    assert second.first_start_s == 51.0


def test_quiet_cycles_are_counted_and_not_computed(make: Make, run: Run, job: JobOf) -> None:
    result = run(make(job(), duration=1000))
    assert result.cycles == 1001
    assert len(result.records.solve_times) == 1


def test_an_eviction_costs_the_work_since_the_last_checkpoint_and_a_restart(make: Make, job: JobOf) -> None:
    ticks = [job(f"tick-{at}", at=at, gpus=0) for at in (40, 45)]  # arrivals, so that cycles are asked for
    scenario = make(job(checkpoint=30, restart=7), *ticks, duration=500)
    plans = {
        0.0: Plan(binds=(bind("w-00000-0", "n-0", 8),)),
        40.0: Plan(evictions=(Eviction("sim/w-00000-0", "sim/w-00000", "n-0", "reclaim"),)),
        45.0: Plan(binds=(bind("w-00000-0", "n-1", 8),)),
    }
    found = replay(scenario, Script(plans)).jobs[0]
    assert (found.evictions, found.starts) == (1, 2)
    assert found.ledger.lost == 10 * 8  # 40 s done, 30 s saved
    assert found.ledger.releasing == 5 * 8
    assert found.ledger.restarting == 7 * 8
    assert found.end_s == 45 + 7 + 70
    assert found.useful_gpu_s == 800
    assert found.gang.last_eviction_s == 1_700_000_040.0


def test_without_a_checkpoint_all_work_is_lost(make: Make, run: Run, job: JobOf) -> None:
    outage = {"outages": [{"node": "n-0", "at": 60, "lasts": 10}]}
    scenario = make(job(), cluster={"nodes": [{"name": "n-0", "gpus": 8}], "queues": [{"name": "a"}]}, failures=outage)
    found = only(run(scenario))
    assert found.ledger.lost == 60 * 8
    assert (found.failures, found.evictions) == (1, 0)
    assert found.end_s == 170.0
    assert found.ledger.releasing == 0


def test_a_node_that_is_down_is_no_capacity(make: Make, run: Run, job: JobOf) -> None:
    outages = {"outages": [{"node": "n-0", "at": 10, "lasts": 20}, {"node": "n-0", "at": 20, "lasts": 30}]}
    result = run(make(failures=outages, duration=100))
    assert result.up_gpu_s == 8 * 100 + 8 * 60  # down from 10 to 50: outages of one node may overlap
    assert [row.is_down for row in result.records.nodes if row.node == "n-0"] == [False, True, False]


def test_a_gang_below_its_minimum_holds_its_gpus_idle_until_it_is_stale(make: Make, run: Run, job: JobOf) -> None:
    cluster = {"nodes": [{"name": "n-{i}", "count": 2, "gpus": 8}], "queues": [{"name": "a", "quota": 16}]}
    outage = {"outages": [{"node": "n-1", "at": 10, "lasts": 1000}]}
    result = run(make(job(pods=2), cluster=cluster, failures=outage, duration=200))
    found = only(result)
    assert found.ledger.lost == 10 * 16
    assert found.ledger.idle == pytest.approx(60 * 8, abs=8)  # the policy's grace, then the stale eviction
    assert found.evictions == 1
    assert found.state.value == "pending"


def test_a_moved_pod_leaves_waits_for_its_promised_place_and_counts_as_moved(make: Make, job: JobOf) -> None:
    plans = {
        0.0: Plan(binds=(bind("w-00000-0", "n-0", 4),)),
        1.0: Plan(moves=(Move("sim/w-00000-0", "sim/w-00000", "n-0", "n-1"),)),
    }
    seen: list[str] = []

    class Watch(Script):
        def decide(self, snapshot: Snapshot) -> Plan:
            [pod] = [pod for gang in snapshot.gangs if gang.name == "w-00000" for pod in gang.pods]
            seen.append(pod.nominated_node)
            return super().decide(snapshot)

    dummy = job("dummy", gpus=8, pods=9)  # waits for ever, so that cycles are asked for
    found = replay(make(job(gpus=4, checkpoint=1), dummy, duration=30), Watch(plans)).jobs[1]
    assert (found.moves, found.evictions) == (1, 0)
    assert found.ledger.releasing == 5 * 4
    assert seen[-1] == "n-1"
    assert found.gang.pods[0].node == ""


def test_an_elastic_gang_works_as_fast_as_it_has_gpus(make: Make, run: Run, job: JobOf) -> None:
    cluster = {"nodes": [{"name": "n-0", "gpus": 8}], "queues": [{"name": "a", "quota": 8}]}
    found = only(run(make(job(pods=4, gpus=4, minPods=2), cluster=cluster)))
    assert found.end_s == 200.0  # half of its pods fit
    assert found.ledger.lost == 0


def test_a_policy_that_binds_what_cannot_be_ends_the_replay(make: Make, job: JobOf) -> None:
    twice = Plan(binds=(bind("w-00000-0", "n-0", 8), bind("v-00000-0", "n-0", 8)))
    with pytest.raises(InternalError, match="held for more than itself"):
        replay(make(job(), job("v")), Script({0.0: twice}))


def test_an_interrupted_replay_has_what_there_was(make: Make, run: Run, job: JobOf) -> None:
    asked = iter([False, False, True])
    result = run(make(job(), job("late", at=50)), should_stop=lambda: next(asked))
    assert result.interrupted
    assert result.end_s == 50.0
    assert [found.state.value for found in result.jobs] == ["running", "running"]
    assert result.jobs[0].useful_gpu_s == 50 * 8
    assert summarize(result).interrupted


def test_progress_is_told(make: Make, run: Run, job: JobOf) -> None:
    told: list[Any] = []
    run(make(job()), progress=told.append)
    assert (told[0].policy, told[0].running, told[0].done) == ("greedy-only", 1, 0)


def test_one_move_settles_a_scenario_that_moved_for_ever(run: Run) -> None:
    """The moved job goes where it was promised, though another domain is tighter."""
    scenario = load_scenario(Path("instances/scenarios/one-move.yaml"))
    assert sum(job.moves for job in run(scenario).jobs) <= 1


@pytest.mark.slow
def test_a_large_gang_starves_among_small_jobs(run: Run) -> None:
    """Kept for the day on which a model reserves room over time: then the gang starts."""
    scenario = load_scenario(Path("instances/scenarios/starvation.yaml"))
    big = next(job for job in run(scenario).jobs if job.job.key.split("/")[-1].startswith("big"))
    assert big.state is State.PENDING
