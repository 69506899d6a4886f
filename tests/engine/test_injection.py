"""Errors thrown from every public function that a decision calls cost at most the gang that they are about.

The functions are found at run time. A sample of them, the same in each run, is tried here;
``KAI_SOLVER_INJECTIONS=all`` tries all (a few minutes).
"""

import os
import random
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Gang, Plan, Snapshot
from kai_solver.engine import Engine, cycle
from kai_solver.engine.isolating import set_aside
from kai_solver.errors.barrier import listening
from kai_solver.instances_io.native import load_native
from kai_solver.modelfiles import load_model
from tests.conftest import Caught
from tests.engine.conftest import START_S
from tests.fuzz.clusters import cluster
from tests.support.engines import PATIENT_S
from tests.support.injection import Counted, Point, Thrower, ThrownError, hooked, points

SEED, BAD = 20, 1
"""A cluster of 4 nodes and 12 gangs with all features, of which several are served; and which of these is bad."""

SAMPLE = 48
CHANCE = int(os.environ.get("KAI_SOLVER_INJECTION_SEED", 1))
"""Which call of a function throws, where one does."""

NO_GANG = frozenset(("the solver", "the cycle", "the first plan"))
"""What else an error may cost: a step for the better, or the way by which a plan was made."""

ROOMS = (
    "problem", "predicates", "fairness", "topology", "links", "claims", "leftover", "planstate", "placement", "reasons",
    "actions", "model", "bounds", "rules", "check", "search", "planning", "engine",
)  # fmt: skip


@cache
def snapshot() -> Snapshot:
    return load_native(cluster(SEED, "small")).snapshot


def decided(model: str = "greedy-only") -> Plan:
    return cycle(snapshot(), load_model(model), budget_s=PATIENT_S)


@cache
def clean() -> Plan:
    return decided()


def admitted(plan: Plan) -> set[str]:
    return {gang for gang, _ in plan.admitted}


@cache
def without(left_out: frozenset[str]) -> set[str]:
    """Whom a decision serves where these gangs are set aside: others may have counted on room that these would free."""
    gangs = (set_aside(gang, "bad") if gang.key in left_out else gang for gang in snapshot().gangs)
    return admitted(cycle(replace(snapshot(), gangs=tuple(gangs)), load_model("greedy-only"), budget_s=PATIENT_S))


@cache
def bad() -> Gang:
    key = sorted(admitted(clean()))[BAD]
    return next(gang for gang in snapshot().gangs if gang.key == key)


def keys_of(gang: Gang) -> frozenset[str]:
    return frozenset((gang.key, *(pod.key for pod in gang.pods)))


@cache
def called(model: str = "greedy-only") -> Counted:
    found = Counted(keys_of(bad()))
    with listening(lambda *_: None), hooked(points(ROOMS), found):
        assert admitted(decided(model))
    return found


def sample(found: list[Point], size: int) -> list[Point]:
    if os.environ.get("KAI_SOLVER_INJECTIONS") == "all" or len(found) <= size:
        return found
    return sorted(random.Random(0).sample(found, size), key=str)


def in_order(found: list[Point], size: int = SAMPLE) -> list[Point]:
    return sample(sorted(found, key=str), size)


def broken(point: Point, thrower: Thrower, faults: list[Caught], model: str = "greedy-only") -> tuple[Plan, list[str]]:
    """The plan (of the next cycle if the first fails as a whole), and the gangs that barriers name."""
    faults.clear()
    with hooked([point], thrower):
        try:
            plan = decided(model)
        except Exception as error:  # the entry itself: the loop of the controller tries again
            faults.append(Caught("running", "the cycle", error))
            plan = decided(model)
    return plan, [fault.what for fault in faults]


def test_most_public_functions_that_a_decision_calls_are_known() -> None:
    assert len(called().calls) > 300
    assert len(called().about) > 20
    rooms = {point.room for point in called().calls}
    assert rooms >= {
        "problem",
        "predicates",
        "fairness",
        "planstate",
        "actions",
        "rules",
        "check",
        "planning",
        "engine",
    }


def test_an_error_thrown_once_costs_one_gang_one_cycle(faults: list[Caught]) -> None:
    calls, chance, wrong = called().calls, random.Random(CHANCE), list[str]()
    for point in in_order(list(calls)):
        thrower = Thrower(point, at=chance.randint(1, calls[point]))
        plan, named = broken(point, thrower, faults)
        if not thrower.thrown:
            continue  # remembered from an earlier cycle
        if not named or len(set(named) - NO_GANG) > 1 or not admitted(plan) >= without(frozenset(named)):
            wrong.append(f"{point}: {named}, {plan.notes}")
        if check_plan(snapshot(), plan):
            wrong.append(f"{point}: the plan offends")
    assert wrong == []


def test_errors_about_one_gang_cost_that_gang_alone(faults: list[Caught]) -> None:
    """Or, where nothing tells which gang it is about, one other that the error does not come without: seldom."""
    wrong, others, tried = list[str](), list[str](), 0
    for point in in_order(list(called().about)):
        thrower = Thrower(point, keys_of(bad()))
        plan, named = broken(point, thrower, faults)
        if not thrower.thrown:
            continue
        tried += 1
        blamed = set(named) - NO_GANG
        if not named or len(blamed) > 1 or not admitted(plan) >= without(frozenset(named)):
            wrong.append(f"{point}: {named}, {plan.notes}")
        elif not blamed <= {bad().key}:
            others.append(f"{point}: {named}")
    assert wrong == []
    assert len(others) <= tried / 10, others


def test_a_function_that_always_fails_costs_no_more_than_a_cycle(faults: list[Caught]) -> None:
    wrong: list[str] = []
    for point in in_order(list(called().calls), SAMPLE // 4):
        thrower = Thrower(point)
        faults.clear()
        is_entry = True  # then the loop of the controller stops it
        with hooked([point], thrower), suppress(ThrownError):
            decided()
            is_entry = False
        if thrower.thrown and not faults and not (is_entry and point.room == "engine"):
            wrong.append(f"{point}: nobody heard of it")
    assert wrong == []


@pytest.mark.slow
def test_an_error_in_the_solvers_steps_leaves_the_greedys_plan(faults: list[Caught]) -> None:
    with Engine(load_model("default")) as engine:
        engine.wait(START_S)

        def solved() -> Plan:
            return engine.cycle(snapshot(), budget_s=2.0)

        found = Counted(keys_of(bad()))
        with hooked(points(("search", "model", "bounds", "rules")), found):
            solved()
        chance = random.Random(CHANCE)
        for point in in_order([p for p in found.calls if p not in called().calls], SAMPLE // 4):
            thrower = Thrower(point, at=chance.randint(1, found.calls[point]))
            faults.clear()
            with hooked([point], thrower):
                plan = solved()
            assert faults or not thrower.thrown, f"{point}: nobody heard of it"
            assert admitted(plan) >= without(frozenset(fault.what for fault in faults)), f"{point}: {plan.notes}"
            assert check_plan(snapshot(), plan) == (), point
