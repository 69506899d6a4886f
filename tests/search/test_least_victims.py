"""The bound on what victims cost, held against all ways to choose them on small random clusters."""

import math
import time
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations, product
from random import Random
from typing import Any

import pytest

from kai_solver.actions import Actions
from kai_solver.actions.reclaim_replay import reclaims_hold
from kai_solver.domain import FAMILIES, Action
from kai_solver.instances_io import snapshot_from_native
from kai_solver.model.build import formulate
from kai_solver.model.victim_model import add_rows, formulate_victim_model
from kai_solver.modelfiles import load_model
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import build_problem
from kai_solver.search import victims
from kai_solver.search.budget import Budget
from kai_solver.search.child import SolverChild
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.oracle import SolverActions
from kai_solver.search.parameters import SolverParameters
from kai_solver.search.pricing import Pricing
from kai_solver.search.refine import joint_of
from kai_solver.search.rights import Rights, rights_of
from kai_solver.search.solver_client import SolverClient
from kai_solver.search.victims import VictimChoice

SEEDS = range(40)


@pytest.fixture(scope="module")
def child() -> Iterator[SolverChild]:
    with SolverChild() as child:
        yield child


def drawn(seed: int) -> Outcome:
    """Two or three nodes of 4 GPUs, full of gangs of one pod of 1 or 2 GPUs; some more wait. Queues of two levels."""
    rng = Random(seed)
    queues: list[dict[str, Any]] = [{"name": name, "quota": _quota(rng.randint(1, 5))} for name in ("x", "y")]
    leaves = ["xa", "xb", "ya", "yb"]
    queues += [{"name": leaf, "parent": leaf[0], "quota": _quota(rng.randint(0, 3))} for leaf in leaves]
    gangs: list[dict[str, Any]] = []
    nodes = [f"n{i}" for i in range(rng.choice((2, 3)))]
    for node in nodes:
        free = 4
        while free:
            gpus = rng.choice((1, 2)) if free > 1 else 1
            free -= gpus
            start = float(rng.randint(1, 900))
            gangs.append(_gang(f"run{len(gangs)}", rng.choice(leaves), {"gpus": gpus, "node": node}, lastStart=start))
    for late in range(rng.randint(1, 3)):
        pod = {"gpus": rng.choice((1, 2, 4))}
        gangs += [_gang(f"late{late}", rng.choice(leaves), pod, priority=rng.choice((50, 60)))]
    made = [{"name": name, "gpus": 4, "cpu": 64, "gpuMemory": 80_000} for name in nodes]
    document = {"format": "kai-solver/v1", "now": 1000.0, "nodes": made, "queues": queues, "gangs": gangs}
    problem = build_problem(snapshot_from_native(document))
    return Actions(problem, load_model("greedy-only").actions, SolverActions(None)).run()


def _quota(gpus: int) -> dict[str, Any]:
    return {"cpu": "unlimited", "memory": "unlimited", "gpu": gpus}


def _gang(name: str, queue: str, pod: dict[str, Any], **more: Any) -> dict[str, Any]:
    status = {"status": "Running"} if "node" in pod else {}
    pods = [{"name": f"{name}-0", "cpu": "100m"} | pod | status]
    return {"name": name, "queue": queue, "pods": pods, "priority": 50, "created": 1.0, "minMember": 1} | more


@dataclass
class OnlyGone:
    """A pool of which just these units have left."""

    pool: Any
    gone: frozenset[int]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)

    def has_left(self, unit: int) -> bool:
        return unit in self.gone

    def is_moved(self, _unit: int) -> bool:
        return False


@dataclass
class WithGone:
    """A state in which just these pods are gone."""

    state: Any
    gone: frozenset[int]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.state, name)


def takers_of(outcome: Outcome, rights: Rights, gone: Sequence[int]) -> bool:
    """Is there any way to give each of ``gone`` to an admission so that every reclaim is allowed?"""
    numbered = list(enumerate(zip(outcome.admissions, rights.takers, strict=True)))
    able = [[n for n, (a, takes) in numbered if unit in takes or unit in a.units] for unit in gone]
    tried = copy(outcome)
    tried.pool = OnlyGone(outcome.pool, frozenset(gone))  # type: ignore[assignment]
    pods = frozenset(pod for unit in gone for pod in outcome.pool.units[unit].pods) if outcome.pool else frozenset()
    tried.state = WithGone(outcome.state, pods)  # type: ignore[assignment]
    for takers in product(*able):
        given = [tuple(u for u, t in zip(gone, takers, strict=True) if t == n) for n, _ in numbered]
        tried.admissions = [replace(a, units=units) for a, units in zip(outcome.admissions, given, strict=True)]
        if reclaims_hold(tried):
            return True
    return False


def has_seats(outcome: Outcome, rights: Rights, gone: Sequence[int]) -> bool:
    """Can all who came and all others run, where only those move who may be disturbed?"""
    problem, pool = outcome.state.problem, outcome.pool
    assert pool is not None
    room = [4] * len(problem.nodes)
    loose = [problem.charges[p][2] // 1000 for a in outcome.admissions for p in a.allocation_unit.pods]
    for unit in (u for u in pool.units if u.index not in gone):
        if unit.index in rights.movable:
            loose.append(unit.charge[2] // 1000)
        else:
            room[problem.pod_node[unit.pods[0]]] -= unit.charge[2] // 1000
    return _packs(sorted(loose, reverse=True), room)


def _packs(sizes: list[int], room: list[int]) -> bool:
    if not sizes:
        return True
    for node in {free: node for node, free in enumerate(room) if free >= sizes[0]}.values():
        room[node] -= sizes[0]
        done = _packs(sizes[1:], room)
        room[node] += sizes[0]
        if done:
            return True
    return False


def a_choice(child: SolverChild, outcome: Outcome) -> VictimChoice:
    """A choice of victims with time."""
    rights, model_input = rights_of(outcome), JointModelInput(outcome)
    assert outcome.pool is not None
    client = SolverClient(load_model("default"), child, Budget(60.0, time.monotonic, time.monotonic()))
    joint = joint_of(model_input, rights)
    return VictimChoice(client, outcome, outcome.pool, rights, model_input, joint, estimate=1)


def chosen(child: SolverChild, outcome: Outcome, *, asks_for_places: bool = False) -> VictimChoice:
    """Victims and places as in a large cycle, which may change the outcome."""
    choice = a_choice(child, outcome)
    choice.improve({}, asks_for_places=asks_for_places)
    return choice


@pytest.mark.parametrize("seed", SEEDS)
def test_places_of_the_solver_cost_no_more_than_those_found_one_after_the_other(child: SolverChild, seed: int) -> None:
    outcome = drawn(seed)
    if outcome.pool is None or not any(a.units for a in outcome.admissions):
        pytest.skip("nobody is disturbed")
    quickly = chosen(child, outcome).costs
    asked = chosen(child, again := drawn(seed), asks_for_places=True)
    assert asked.costs <= quickly
    assert reclaims_hold(again)


@pytest.mark.parametrize("small", [victims.SMALL, 0])
def test_places_of_the_least_victims_are_found_by_a_move(
    child: SolverChild, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The greedy evicts the youngest, of 3 GPUs. Two of 1 GPU are enough if what runs beside one moves to the other.

    Where no pod is small, all may move, and no more than one does.
    """
    monkeypatch.setattr(victims, "SMALL", small)
    running = {"young": ("b", 3, "n2", 900.0), "v": ("b", 1, "n0", 890.0), "w": ("b", 1, "n1", 890.0)}
    running |= {name: ("c", 1, node, 500.0) for name, node in (("s", "n0"), ("t", "n1"), ("x", "n3"), ("y", "n3"))}
    gangs = [
        _gang(name, queue, {"gpus": gpus, "node": node}, lastStart=start)
        for name, (queue, gpus, node, start) in running.items()
    ]
    gangs.append(_gang("late", "a", {"gpus": 2}))
    nodes = [{"name": f"n{i}", "gpus": 3 if i == 2 else 2, "cpu": 64, "gpuMemory": 80_000} for i in range(4)]
    queues = [{"name": name, "quota": _quota(gpus), "weight": 0} for name, gpus in (("a", 2), ("b", 2), ("c", 4))]
    document = {"format": "kai-solver/v1", "now": 1000.0, "nodes": nodes, "queues": queues, "gangs": gangs}
    problem = build_problem(snapshot_from_native(document))
    outcome = Actions(problem, load_model("greedy-only").actions, SolverActions(None)).run()
    pool = outcome.pool
    assert pool is not None
    unit_of = {problem.gangs[unit.gang].gang.name: unit.index for unit in pool.units}
    assert [admission.units for admission in outcome.admissions] == [(unit_of["young"],)]
    choice = a_choice(child, outcome)
    assert choice.costs[0] == 300
    add_rows(choice._variables, choice._victim_model)
    least = frozenset((unit_of["v"], unit_of["w"]))
    assert choice._seat(dict.fromkeys(least, Action.RECLAIM), choice._shared(least))
    assert choice.costs[0] == 220
    assert len([unit for unit in pool.units if pool.is_moved(unit.index)]) == 1
    assert reclaims_hold(outcome)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_choice_of_victims_costs_less_than_the_bound(child: SolverChild, seed: int) -> None:
    outcome = drawn(seed)
    pool = outcome.pool
    if pool is None or not any(a.units for a in outcome.admissions):
        pytest.skip("nobody is disturbed")
    rights = rights_of(outcome)
    model_input = JointModelInput(outcome)
    reclaim, preempt = (rights.by_action.get(action, frozenset()) for action in (Action.RECLAIM, Action.PREEMPT))
    allocation_units = [(a.allocation_unit, a.action) for a in outcome.admissions]
    form = formulate(
        model_input.join(allocation_units, rights.movable, reclaim, preempt, rights.surplus, may_move=True),
        FAMILIES,
        ["disruption"],
    )
    victim_model = formulate_victim_model(form.variables, form.objectives)
    add_rows(form.variables, victim_model)
    bounds = []
    for spec, objective in ((victim_model.spec, victim_model.objectives[0]), (form.spec, form.objectives[0])):
        spec.minimize(objective.terms, objective.constant)
        answer = child.solve(spec, SolverParameters(workers=1, presolve="none"), math.inf)
        assert answer.status == "optimal"
        bounds.append(answer.objective)
    pricing = Pricing(child, by_gpus=False, should_stop=lambda: False)
    pricing.begin(outcome, rights, {}, math.inf)
    bounds.append(sum(pricing.bounds({}, math.inf).values()))
    known = chosen(child, drawn(seed)).bounds
    assert known
    bounds.append(sum(bound for name, bound in known.items() if name.startswith("evicted-work")))
    work = {u.index: max(1, round(u.work)) for u in pool.units}
    mine = sorted(reclaim | preempt)
    sets = [gone for size in range(len(mine) + 1) for gone in combinations(mine, size)]
    cheapest = next(
        sum(work[u] for u in gone)
        for gone in sorted(sets, key=lambda gone: sum(work[u] for u in gone))
        if has_seats(outcome, rights, gone) and takers_of(outcome, rights, gone)
    )
    assert max(bound for bound in bounds if bound is not None) <= cheapest
