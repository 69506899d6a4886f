"""An unexpected error in a decision costs the gang or node that it is about; all others are decided about."""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.check import check_plan, checker
from kai_solver.check.columns import Census
from kai_solver.domain import Gang, GpuRequest, Node, Plan, Pod, PodStatus, Queue, Reason, Snapshot, flat_gang
from kai_solver.engine import cycle, improving, isolating, plan_maker, run
from kai_solver.engine.progress import Fault
from kai_solver.errors.culprits import MOST_CULPRITS
from kai_solver.modelfiles import load_model
from kai_solver.placement.placing import Placer
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.state import State
from kai_solver.problem import Memo, known_pods
from kai_solver.reasons import evictions, pending
from kai_solver.search import linking
from kai_solver.search.refine import StageOptimizer
from kai_solver.units import MILLI, ResourceSchema
from tests.conftest import Caught
from tests.support.engines import PATIENT_S

ASSEMBLE, SEQUENCE, STALE = (
    sys.modules[f"kai_solver.{name}"] for name in ("planning.assemble", "actions.sequence", "actions.stale")
)
GREEDY = load_model("greedy-only")
GIB = 2**30


def node(name: str) -> Node:
    return Node(name, (64_000, 256 * GIB, 8 * MILLI, 100), gpus=8, gpu_memory_mib=100)


def gang(name: str, pods: int = 1, gpus: int = 1, on: str = "", **more: Any) -> Gang:
    made = tuple(
        Pod("n", f"{name}-{i}", (100 + i, GIB, 0, 1), GpuRequest(gpus), order=(0, float(i), f"uid-{name}-{i}"))
        for i in range(pods)
    )
    if on:
        made = tuple(replace(pod, status=PodStatus.RUNNING, node=on) for pod in made)
    return replace(Gang("n", name, "q", flat_gang(pods), made), **more)


def cluster(*gangs: Gang, nodes: int = 4) -> Snapshot:
    found = tuple(node(f"node-{i}") for i in range(nodes))
    return Snapshot(1000.0, ResourceSchema(), found, (Queue("q", quota=(-1, -1, -1)),), gangs)


MANY = cluster(*(gang(f"g{i}", pods=2 + i % 2) for i in range(9)), gang("bad", pods=2))
"""Pods of one gang differ, so that none is placed together with others that are alike."""


def decided(snapshot: Snapshot, **options: Any) -> Plan:
    return cycle(snapshot, GREEDY, budget_s=PATIENT_S, **options)


def admitted(plan: Plan) -> set[str]:
    return {key for key, _ in plan.admitted}


class Strange:
    """Replaces functions by ones that raise where ``about`` says so of their arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, about: Callable[..., bool]) -> None:
        self.monkeypatch, self.about, self.times, self.thrown, self.calls = monkeypatch, about, math.inf, 0, 0

    def __call__(self, owner: Any, name: str) -> "Strange":
        original = getattr(owner, name)

        def strange(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.thrown < self.times and self.about(*args, **options):
                self.thrown += 1
                raise KeyError("nobody thought of this")
            return original(*args, **options)

        self.monkeypatch.setattr(owner, name, strange)
        return self


def unit_of_bad(self: Placer, allocation_unit: AllocationUnit, *_: Any, **__: Any) -> bool:
    return self.state.problem.gangs[allocation_unit.gang].gang.name == "bad"


def put_of_bad(self: State, pod: int, *_: Any, **__: Any) -> bool:
    return self.problem.pods[pod].name.startswith("bad")


@pytest.mark.parametrize(
    ("owner", "name", "about"),
    [
        (Placer, "place_unit", unit_of_bad),
        (State, "put", put_of_bad),
        (known_pods, "gang_row", lambda found, *_: found.name == "bad" and not found.set_aside),
        (
            ASSEMBLE,
            "_binds",
            lambda problem, outcome, seats: any(problem.pods[p].name.startswith("bad") for p in seats.places),
        ),
    ],
)
def test_a_gang_that_fails_is_left_out_and_the_others_are_served(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught], owner: Any, name: str, about: Callable[..., bool]
) -> None:
    Strange(monkeypatch, about)(owner, name)
    reports: list[Fault] = []
    plan = decided(MANY, on_fault=reports.append, memo=Memo())
    assert admitted(plan) == {f"n/g{i}" for i in range(9)}
    (left,) = plan.pending
    assert (left.gang, left.reason) == ("n/bad", Reason.SET_ASIDE)
    assert "an unexpected error stopped the decision about it (KeyError: 'nobody thought of this')" in left.message
    assert any("n/bad" in note for note in plan.notes)
    assert [(fault.where, fault.what) for fault in faults] == [("deciding", "n/bad")]
    assert "KeyError" in reports[0].error
    monkeypatch.undo()
    assert check_plan(MANY, plan) == ()


def test_an_error_between_turns_costs_no_gang_that_had_its_turn_before(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    """It is blamed on the gang whose turn was the last, until the others are found to be innocent."""
    few = cluster(gang("bad", pods=2), gang("g0", pods=2), gang("g1", pods=2))

    def fails(context: Any) -> bool:
        return any(g.gang.name == "bad" and not g.gang.set_aside for g in context.problem.gangs)

    Strange(monkeypatch, fails)(SEQUENCE, "evict_stale_gangs")
    plan = decided(few)
    assert [fault.what for fault in faults] == ["n/bad"]
    assert admitted(plan) == {"n/g0", "n/g1"}


def test_an_error_about_a_gang_that_may_be_stale_is_blamed_on_it(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    stale = gang("bad", pods=2, on="node-0", stale_since_s=1.0)
    some = cluster(stale, *(gang(f"g{i}", pods=2) for i in range(9)))
    Strange(monkeypatch, lambda _, found, *__: found.gang.name == "bad")(STALE, "_is_over")
    monkeypatch.setattr(STALE, "_holds_minimum", lambda *_: False)
    monkeypatch.setattr("kai_solver.planstate.allocation_units.AllocationUnits.is_satisfied", lambda *_: False)
    plan = decided(some)
    assert [fault.what for fault in faults] == ["n/bad"]
    assert admitted(plan) == {f"n/g{i}" for i in range(9)}


@pytest.mark.parametrize("name", ["n/g4", "node-2"])
def test_what_only_the_whole_is_about_is_found_by_leaving_out(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught], name: str
) -> None:
    def fails(snapshot: Snapshot, *_: Any) -> bool:
        aside = {g.key for g in snapshot.gangs if g.set_aside} | {n.name for n in snapshot.nodes if not n.schedulable}
        return name not in aside

    Strange(monkeypatch, fails)(run, "build_problem")
    plan = decided(MANY)
    others = {g.key for g in MANY.gangs} - {name}
    assert admitted(plan) == others
    assert [fault.what for fault in faults] == [name]
    assert not any(bind.node == name for bind in plan.binds)


def test_a_gang_whose_pods_fail_even_where_it_is_set_aside_keeps_what_it_holds(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    bad = gang("bad", pods=2, gpus=4, on="node-0")
    bad = replace(bad, pods=tuple(replace(pod, labels={"a": "b"}) for pod in bad.pods))
    Strange(monkeypatch, lambda found, *_: bool(found.pods[0].labels))(known_pods, "gang_row")
    plan = decided(cluster(bad, *(gang(f"g{i}", gpus=8) for i in range(4))))
    assert len(admitted(plan)) == 3, "its node is full"
    assert {fault.what for fault in faults} == {"n/bad"}


def test_a_gang_whose_waiting_pods_fail_the_checker_whatever_is_left_of_them_is_as_if_it_was_not_there(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    Strange(monkeypatch, lambda _, found, *__: found.name == "bad")(Census, "count")
    plan = decided(MANY)
    assert admitted(plan) == {f"n/g{i}" for i in range(9)}
    assert [(entry.gang, entry.reason) for entry in plan.pending] == [("n/bad", Reason.SET_ASIDE)]
    monkeypatch.undo()
    assert check_plan(MANY, plan) == ()


@pytest.mark.parametrize(
    ("owner", "name", "about"),
    [
        (Placer, "place_unit", lambda self, unit, *_, **__: is_bad(self.state.problem.gangs[unit.gang].gang)),
        (known_pods, "gang_row", lambda found, *_: is_bad(found) and not found.set_aside),
    ],
)
def test_many_gangs_that_fail_stop_no_other(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught], owner: Any, name: str, about: Callable[..., bool]
) -> None:
    Strange(monkeypatch, about)(owner, name)
    bad = [gang(f"bad{i}", pods=2) for i in range(10)]
    plan = decided(cluster(*bad, *(gang(f"g{i}", pods=3) for i in range(9))))
    assert admitted(plan) == {f"n/g{i}" for i in range(9)}
    names = {f"n/bad{i}" for i in range(10)}
    assert {entry.gang for entry in plan.pending if entry.reason is Reason.SET_ASIDE} == names
    assert {fault.what for fault in faults} == names


def is_bad(found: Gang) -> bool:
    return found.name.startswith("bad")


def test_many_more_gangs_that_fail_cost_few_attempts(monkeypatch: pytest.MonkeyPatch, faults: list[Caught]) -> None:
    """Those that are not found in this cycle are not blamed."""
    Strange(monkeypatch, lambda self, unit, *_, **__: is_bad(self.state.problem.gangs[unit.gang].gang))(
        Placer, "place_unit"
    )
    built = Strange(monkeypatch, lambda *_: False)(run, "build_problem")
    plan = decided(cluster(*(gang(f"bad{i}", pods=2) for i in range(60)), *(gang(f"g{i}", pods=3) for i in range(9))))
    assert built.calls < 60
    assert {f"n/g{i}" for i in range(9)} <= admitted(plan)
    assert 0 < len(faults) < 60
    assert "there was no time to find whether they are the cause" in plan.notes[-1]


def test_a_cycle_that_nothing_saves_does_nothing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    Strange(monkeypatch, lambda *_: True)(run, "build_problem")
    plan = decided(MANY)
    assert (plan.binds, plan.admitted) == ((), ())
    assert {entry.gang for entry in plan.pending} == {g.key for g in MANY.gangs}
    assert all("nothing is decided in this cycle" in entry.message for entry in plan.pending)
    assert [fault.what for fault in faults] == [isolating.CYCLE]


def test_where_all_that_evicts_or_moves_fails_gangs_start_on_free_room(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    """Of every gang that asks for it, so that no gang is the cause."""
    Strange(monkeypatch, lambda *_: True)(SEQUENCE, "disrupt")
    snapshot = cluster(gang("large", pods=40), *MANY.gangs)
    plan = decided(snapshot)
    assert admitted(plan) == {g.key for g in MANY.gangs}
    assert [entry.gang for entry in plan.pending] == ["n/large"]
    assert plan.pending[0].reason is not Reason.SET_ASIDE
    assert plan.notes[0].startswith("decided on free room alone")
    assert [fault.what for fault in faults] == [isolating.CYCLE]


def test_without_time_to_find_the_cause_gangs_start_on_free_room(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    """Each of eight gangs that ask for more is a cause, and the time ends before all are found."""

    now = [0.0]

    def asks_for_more(_: Any, __: Any, gangs: Any) -> bool:
        now[0] += 300.0 if gangs else 0.0
        return bool(gangs)

    Strange(monkeypatch, asks_for_more)(SEQUENCE, "disrupt")
    snapshot = cluster(*(gang(f"large-{number}", pods=40) for number in range(8)), *MANY.gangs)
    plan = cycle(snapshot, GREEDY, budget_s=1_000.0, clock=lambda: now[0], should_stop=lambda: False)
    assert plan.notes[0].startswith("decided on free room alone")
    assert admitted(plan) == {g.key for g in MANY.gangs}
    assert {fault.what for fault in faults} == {isolating.CYCLE}


def test_an_error_that_does_not_come_again_costs_nothing(monkeypatch: pytest.MonkeyPatch, faults: list[Caught]) -> None:
    strange = Strange(monkeypatch, lambda *_, **__: True)(plan_maker, "check_plan")
    strange.times = 1
    plan = decided(MANY)
    assert admitted(plan) == {g.key for g in MANY.gangs}
    assert [fault.what for fault in faults] == [isolating.CYCLE]


def test_a_checker_that_fails_over_a_gang_lets_no_plan_pass_unchecked(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    def fails(scene: Any) -> bool:
        return any(bind.gang == "n/bad" for bind in scene.plan.binds)

    Strange(monkeypatch, fails)(checker, "judge_gangs")
    plan = decided(MANY)
    assert admitted(plan) == {f"n/g{i}" for i in range(9)}
    monkeypatch.undo()
    assert check_plan(MANY, plan) == ()


def test_without_time_to_find_the_cause_all_that_may_be_it_are_left_out(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    def fails(snapshot: Snapshot, *_: Any) -> bool:
        return not any(g.set_aside for g in snapshot.gangs if g.name == "g4")

    Strange(monkeypatch, fails)(run, "build_problem")
    now = [0.0]

    def clock() -> float:
        now[0] += 0.001
        return now[0]

    plan = cycle(MANY, GREEDY, budget_s=1e-6, clock=clock)
    assert plan.binds == ()
    assert "there was no time to find which" in plan.notes[0]
    assert len(faults) == len(MANY.gangs) + len(MANY.nodes)


@pytest.mark.parametrize("name", ["_pending", "blocking_set"])
def test_words_that_fail_cost_the_words_alone(monkeypatch: pytest.MonkeyPatch, faults: list[Caught], name: str) -> None:
    snapshot = cluster(gang("large", gpus=9), gang("fits"))
    whole = decided(snapshot)
    Strange(monkeypatch, lambda *_, **__: True)(pending, name)
    plan = decided(snapshot)
    assert admitted(plan) == admitted(whole) == {"n/fits"}
    (entry,), (known,) = plan.pending, whole.pending
    assert (entry.gang, entry.reason) == (known.gang, known.reason)
    assert entry.message
    assert {(fault.where, fault.what) for fault in faults} == {("explaining", "n/large")}


def test_an_eviction_without_its_words_still_says_which_action(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    low = gang("low", pods=1, gpus=8, on="node-0", priority=40, last_start_s=0.0)
    Strange(monkeypatch, lambda *_, **__: True)(evictions.EvictionTexts, "_text")
    plan = decided(cluster(low, gang("high", gpus=8, priority=60), nodes=1))
    assert [(e.gang, e.message) for e in plan.evictions] == [("n/low", "Pod n/low-0 was evicted by preempt")]


@pytest.mark.parametrize(("owner", "name"), [(StageOptimizer, "refine"), (linking, "link_stage"), (improving, "spare")])
def test_a_step_of_the_solver_that_fails_leaves_what_the_greedy_decided(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught], owner: Any, name: str
) -> None:
    strange = Strange(monkeypatch, lambda *_, **__: True)(owner, name)
    low = [gang(f"low{i}", gpus=2, on=f"node-{i}", priority=40, last_start_s=0.0) for i in range(4)]
    snapshot = cluster(*low, gang("high", gpus=8, priority=60))
    plan = cycle(snapshot, load_model("default"), budget_s=PATIENT_S)
    monkeypatch.undo()
    greedy = decided(snapshot)
    assert (admitted(plan), len(plan.moves) + len(plan.evictions)) == (
        admitted(greedy),
        len(greedy.moves) + len(greedy.evictions),
    )
    assert check_plan(snapshot, plan) == ()
    assert strange.thrown == len(faults)
    assert all("the greedy's plan is used" in note for note in plan.notes if "unexpected" in note)


def test_the_memo_is_not_trusted_after_an_error(monkeypatch: pytest.MonkeyPatch, faults: list[Caught]) -> None:
    kept = Memo()
    decided(MANY, memo=kept)
    assert kept.problem
    Strange(monkeypatch, unit_of_bad)(Placer, "place_unit")
    decided(MANY, memo=kept)
    assert getattr(kept, "problem", ...) is None
    monkeypatch.undo()
    assert decided(MANY, memo=kept).binds == decided(MANY).binds


def test_a_gang_that_takes_more_than_its_share_is_told_where_others_had_no_turn() -> None:
    slow: list[tuple[str, float]] = []
    decided(MANY, on_slow=lambda key, seconds: slow.append((key, seconds)))
    assert slow == [], "all had their turns"


def test_gangs_that_ask_for_more_than_fits_any_number_stop_no_other() -> None:
    """More of them than are left out of a cycle one by one."""
    huge = [GpuRequest(10**12 - 1, 0, 80_000), GpuRequest(1, 0, 10**15 - 1)]
    asking = [replace_gpus(gang(f"huge{number}"), huge[number % 2]) for number in range(2 * MOST_CULPRITS + 2)]
    plan = decided(cluster(gang("good"), *asking))
    assert admitted(plan) == {"n/good"}
    assert not plan.notes


def replace_gpus(asking: Gang, request: GpuRequest) -> Gang:
    return replace(asking, pods=tuple(replace(pod, gpu=request) for pod in asking.pods))
