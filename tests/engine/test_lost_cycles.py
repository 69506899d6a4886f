"""One gang's trouble, a user's odd request or a broken solver never costs the others their cycle."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver.check import Violation, check_plan
from kai_solver.domain import (
    Plan,
    Queue,
    Snapshot,
)
from kai_solver.engine import Engine, cycle, plan_maker
from kai_solver.engine.progress import Fault
from kai_solver.model.spec import SpecAnswer
from kai_solver.modelfiles import load_model
from kai_solver.problem import build_problem
from kai_solver.problem.devices import DeviceLedger
from kai_solver.search.child import SolverChild
from kai_solver.units import UNLIMITED
from kai_solver.units.shares import WHOLE
from tests.support.builders import a_cluster, a_gang, a_node, a_pod, a_queue, only_on

ENDLESS = (UNLIMITED, UNLIMITED, UNLIMITED)


def admitted(plan: Plan) -> set[str]:
    return {gang for gang, _ in plan.admitted}


def pending(plan: Plan) -> set[str]:
    return {entry.gang for entry in plan.pending}


@pytest.fixture
def two_gangs() -> Snapshot:
    return a_cluster([a_node("a", 4)], [a_gang("w", a_pod("w0", 2)), a_gang("x", a_pod("x0", 2))], [a_queue("q")])


def refuse(monkeypatch: pytest.MonkeyPatch, gang: str) -> None:
    """The checker disputes every plan that serves ``gang``."""

    def check(snapshot: Snapshot, plan: Plan, **more: Any) -> tuple[Violation, ...]:
        dispute = (Violation("gang", gang, "made up"),) if gang in admitted(plan) else ()
        return (*dispute, *check_plan(snapshot, plan, **more))

    monkeypatch.setattr(plan_maker, "check_plan", check)


@pytest.mark.parametrize("model", ["greedy-only", "default"])
def test_a_disputed_gang_waits_and_the_others_are_served(
    two_gangs: Snapshot, engine: Engine, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "ns/w")
    faults: list[Fault] = []
    plan = cycle(two_gangs, load_model(model), child=engine.child, on_fault=faults.append)
    assert admitted(plan) == {"ns/x"}
    assert [bind.pod for bind in plan.binds] == ["ns/x0"]
    assert pending(plan) == {"ns/w"}
    assert plan.pending[0].proof.state != "proven"
    assert any("refused" in note for note in plan.notes)
    assert faults


def test_a_second_plan_gets_time_of_its_own(
    two_gangs: Snapshot, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def check(snapshot: Snapshot, plan: Plan, **more: Any) -> tuple[Violation, ...]:
        if now[0] == 0.0:
            now[0] = 60.0  # far beyond the budget
            return (Violation("gang", "ns/w", "made up"),)
        return check_plan(snapshot, plan, **more)

    monkeypatch.setattr(plan_maker, "check_plan", check)
    plan = cycle(two_gangs, engine.model, budget_s=2.0, clock=lambda: now[0], child=engine.child)
    assert "ns/x" in admitted(plan)


def test_running_pods_of_a_gang_set_aside_pay_for_their_queue(engine: Engine) -> None:
    aside = a_gang("aside", a_pod("s0", 2, "a", devices=(0, 1)), set_aside="two sizes in one job")
    more, other = a_gang("w", a_pod("w0", 2)), a_gang("x", a_pod("x0", 1), queue="other")
    queues = [a_queue("q", limit=2), a_queue("other")]
    plan = engine.cycle(a_cluster([a_node("a", 8)], [aside, more, other], queues))
    assert admitted(plan) == {"ns/x"}
    assert plan.notes == ()


def test_a_running_pod_of_no_podset_pays_for_its_queue(engine: Engine) -> None:
    stray = a_gang("stray", a_pod("t0", 2, "a", devices=(0, 1), podset="nowhere"), a_pod("t1", 1), need=1)
    more, other = a_gang("w", a_pod("w0", 2)), a_gang("x", a_pod("x0", 1), queue="other")
    queues = [a_queue("q", limit=2), a_queue("other")]
    plan = engine.cycle(a_cluster([a_node("a", 8)], [stray, more, other], queues))
    assert admitted(plan) == {"ns/x"}
    assert plan.notes == ()


def test_shares_on_unknown_devices_are_not_added_up_across_devices(engine: Engine) -> None:
    """Two pods of 0.7 leave 0.3 on each device: the victim of 0.5 could not have stayed."""
    victim = a_gang("r", a_pod("r0", 1, "a", milli=500))
    claimant = a_gang("w", a_pod("w0", milli=700), a_pod("w1", milli=700), priority=60)
    plan = engine.cycle(a_cluster([a_node("a", 2)], [victim, claimant], [a_queue("q")]))
    assert admitted(plan) == {"ns/w"}
    assert [eviction.pod for eviction in plan.evictions] == ["ns/r0"]
    assert plan.notes == ()


@pytest.mark.parametrize("model", ["greedy-only", "default"])
def test_a_core_whose_surplus_was_admitted_by_moves_can_be_asked_for(engine: Engine, model: str) -> None:
    """Consolidation moves u for the surplus of g; reclaim then looks at g's core and at u's old home."""
    moved = a_gang("u", a_pod("u0", 1, "a", devices=(0,), cpu=1000), queue="given")
    pods = a_pod("g0", 1, "b", devices=(0,), cpu=8000), a_pod("g1", 2)
    elastic = a_gang("g", *pods, need=1, queue="given")
    first = a_gang("w1", a_pod("w10", 1, cpu=5000, constraints=only_on("b")), created_s=1.0, queue="taking")
    second = a_gang("w2", a_pod("w20", 2, constraints=only_on("a")), created_s=2.0, queue="taking")
    claimants = [replace(gang, priority=100, preemptible=False) for gang in (first, second)]
    nodes = [a_node("a", 2, cpu=4000, labels={"n": "a"}), a_node("b", 2, cpu=10_000, labels={"n": "b"})]
    queues = [a_queue("given", 0), a_queue("taking", 3)]
    snapshot = a_cluster(nodes, [moved, elastic, *claimants], queues)
    plan = cycle(snapshot, load_model(model), child=engine.child)
    assert plan.notes == ()
    assert plan.admitted
    assert admitted(plan) | pending(plan) == {"ns/g", "ns/w1", "ns/w2"}


def test_memory_beyond_all_measure_keeps_to_64_bits(engine: Engine) -> None:
    """Of two queues of 900 pods of 8 PiB, the sum is beyond 64 bits."""
    gangs = [
        a_gang(f"w{j}", *(replace(a_pod(f"w{j}-{i}"), request=(100, 2**53, 0, 1)) for i in range(1100)), queue=f"q{j}")
        for j in range(2)
    ]
    queues = [Queue("top", quota=ENDLESS), *(replace(a_queue(f"q{j}"), parent="top") for j in range(2))]
    snapshot = a_cluster([a_node("a", 2)], [*gangs, a_gang("x", a_pod("x0", 2), queue="q0")], queues)
    problem = build_problem(snapshot)
    assert (problem.request >= 0).all()
    assert (problem.request[:, 1] >= 2**53).all(), "the demand is still enormous"
    plan = engine.cycle(snapshot)
    assert admitted(plan) == {"ns/x"}
    assert pending(plan) == {"ns/w0", "ns/w1"}


@pytest.mark.parametrize("model", ["greedy-only", "default"])
def test_a_gang_whose_surplus_waits_is_in_some_list(engine: Engine, model: str) -> None:
    """The surplus is admitted on b; the preemptor wants the core's place on a."""
    core, surplus = a_pod("e0", 1, "a", devices=(0,), constraints=only_on("a")), a_pod("e1", constraints=only_on("b"))
    elastic = a_gang("e", core, surplus, need=1, priority=40)
    claimant = a_gang("h", a_pod("h0", constraints=only_on("a")), priority=60)
    nodes = [a_node(name, 1, labels={"n": name}) for name in "ab"]
    plan = cycle(a_cluster(nodes, [elastic, claimant], [a_queue("q")]), load_model(model), child=engine.child)
    assert admitted(plan) | pending(plan) == {"ns/e", "ns/h"}
    assert plan.notes == ()


class Crashing(SolverChild):
    """Fails on every question."""

    def solve(self, *_: Any, **__: Any) -> SpecAnswer:
        return SpecAnswer("unknown", error="made-up crash")


def test_faults_of_the_stages_are_reported() -> None:
    victim = a_gang("v", a_pod("v0", 4, "a", devices=(0, 1, 2, 3)), priority=40)
    snapshot = a_cluster([a_node("a", 4)], [victim, a_gang("p", a_pod("p0", 4), priority=60)], [a_queue("q")])
    faults: list[Fault] = []
    with Crashing() as child:
        plan = cycle(snapshot, load_model("default"), child=child, on_fault=faults.append)
    assert admitted(plan) == {"ns/p"}
    assert [fault.error for fault in faults] == ["made-up crash"]


def test_faults_of_the_admission_of_most_gpus_are_reported_and_noted() -> None:
    gangs = [a_gang(f"g{n}-{i}", a_pod(f"g{n}-{i}", n), created_s=float(i)) for i, n in enumerate((5, 4, 4))]
    faults: list[Fault] = []
    with Crashing() as child:
        snapshot = a_cluster([a_node("a", 8)], gangs, [a_queue("q")])
        plan = cycle(snapshot, load_model("max-utilization"), child=child, on_fault=faults.append)
    assert admitted(plan)
    assert any("made-up crash" in fault.error for fault in faults)
    assert any("made-up crash" in note for note in plan.notes)
    assert not any("most GPUs" in entry.proof.method for entry in plan.pending)


def test_a_budget_of_zero_seconds_is_not_the_models(two_gangs: Snapshot, engine: Engine) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.001
        return now[0]

    plan = cycle(two_gangs, engine.model, budget_s=0.0, clock=clock, child=engine.child)
    assert any("stopped before every gang was asked" in note for note in plan.notes)
    assert check_plan(two_gangs, plan) == ()


def test_a_device_below_zero_is_no_device() -> None:
    ledger = DeviceLedger(a_node("a", 4))
    assert -1 not in ledger.assign(a_pod("r0", 2, "a", devices=(0, -1)))
    assert ledger.free[3] == WHOLE, "the last device is not charged for it"


def test_a_pod_of_two_groups_sits_on_two_devices() -> None:
    """Also where no device is whole any more."""
    ledger = DeviceLedger(a_node("a", 2))
    for i in range(2):
        ledger.assign(a_pod(f"r{i}", 1, "a", milli=300, devices=(i,)))
    seats = ledger.assign(a_pod("s0", 2, "a", milli=200, gpu_groups=("x", "y")))
    assert sorted(seats) == [0, 1]
