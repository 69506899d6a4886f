"""Where features meet: each found by random clusters that cross them, told here in its smallest form."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.actions import Actions
from kai_solver.actions.reclaim_replay import reclaims_hold
from kai_solver.actions.sharing import VictimGroup, share_out
from kai_solver.check import check_plan
from kai_solver.domain import Plan
from kai_solver.engine import cycle
from kai_solver.instances_io import snapshot_from_native
from kai_solver.modelfiles import load_model
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.search.oracle import SolverActions

Document = dict[str, Any]
MODELS = pytest.mark.parametrize("model", ["greedy-only", "default"])


def a_node(name: str, gpus: int, **more: Any) -> Document:
    return {"name": name, "gpus": gpus, "cpu": 16, "gpuMemory": 80_000, "labels": {"host": name}} | more


def a_queue(name: str, gpus: int | str, **more: Any) -> Document:
    quota = {"cpu": "unlimited", "memory": "unlimited", "gpu": gpus}
    return {"name": name, "quota": quota, "weight": 0} | more


def a_gang(name: str, queue: str, *pods: Document, **more: Any) -> Document:
    made = [{"name": f"{name}-{i}", "cpu": "100m", "order": [0, float(i), ""]} | pod for i, pod in enumerate(pods)]
    made = [pod | ({"status": "Running"} if "node" in pod else {}) for pod in made]
    start = {"lastStart": 500.0} if any("node" in pod for pod in pods) else {}
    return {"name": name, "queue": queue, "pods": made, "priority": 50, "created": 1.0} | start | more


def on(node: str, gpus: float = 1, **more: Any) -> Document:
    return {"gpus": gpus, "node": node} | more


def decided(model: str, nodes: list[Document], queues: list[Document], gangs: list[Document], **more: Any) -> Plan:
    document: Document = {"format": "kai-solver/v1", "now": 1000.0, "nodes": nodes, "queues": queues, "gangs": gangs}
    snapshot = snapshot_from_native(document | more)
    plan = cycle(snapshot, load_model(model), budget_s=5.0)
    assert check_plan(snapshot, plan) == ()
    assert not [note for note in plan.notes if "refused" in note], plan.notes
    return plan


@MODELS
@pytest.mark.parametrize(("least_s", "pays"), [(600, False), (400, True)])
def test_while_protected_what_is_short_of_its_minimum_has_no_surplus(model: str, least_s: int, pays: bool) -> None:
    """One group lacks its pod, and the pods of the other are beyond their minimum of none."""
    groups = [{"name": "lead", "minMember": 1}, {"name": "rest", "minMember": 0}]
    torn = a_gang("torn", "b", {"gpus": 4, "group": "lead"}, on("n", 2, group="rest"), groups=groups)
    queues = [a_queue("a", 2), a_queue("b", 0, reclaimMinRuntime=least_s)]
    plan = decided(model, [a_node("n", 2)], queues, [torn, a_gang("late", "a", {"gpus": 2}, minMember=1)])
    assert [eviction.pod for eviction in plan.evictions] == ["default/torn-1"] * pays


@MODELS
def test_stale_pods_stay_while_the_spread_of_newcomers_counts_on_them(model: str) -> None:
    """The newcomer may lie on n0 as n1 has a pod like it, which would go at the end of the same cycle."""
    spread = [{"selector": [{"key": "app", "operator": "In", "values": ["x"]}], "topologyKey": "host"}]
    like: Document = {"labels": {"app": "x"}}
    stale = a_gang("stale", "a", on("n1", 1, **like), {"gpus": 4}, minMember=2, staleSince=100.0)
    there = a_gang("there", "a", on("n0", 1, **like), minMember=1)
    late = a_gang("late", "a", {"gpus": 1, "spread": spread} | like, minMember=1)
    plan = decided(model, [a_node("n0", 2), a_node("n1", 1)], [a_queue("a", 9)], [stale, there, late])
    assert [bind.node for bind in plan.binds if bind.gang == "default/late"] == ["n0"]
    assert plan.evictions == ()


@MODELS
def test_nothing_moves_to_where_its_queue_would_pass_its_limit(model: str) -> None:
    """A request by GPU memory costs twice as much on n1, and its queue is at its limit."""
    small = a_gang("small", "b", {"gpuMemory": 40_000, "node": "n0"}, minMember=1)
    wide = a_gang("wide", "a", {"gpus": 1}, minMember=1)
    limit = {"limit": {"cpu": "unlimited", "memory": "unlimited", "gpu": 0.5}}
    nodes = [a_node("n0", 1), a_node("n1", 1, gpuMemory=40_000, taints=[{"key": "t", "effect": "NoSchedule"}])]
    small["pods"][0]["tolerations"] = [{"operator": "Exists"}]
    plan = decided(model, nodes, [a_queue("a", 0, priority=101), a_queue("b", 1, **limit)], [small, wide])
    assert plan.moves == ()
    small["pods"][0]["gpuMemory"] = 20_000
    assert [move.target for move in decided(model, nodes, [a_queue("a", 0), a_queue("b", 1)], [small, wide]).moves]


def test_victims_that_no_reclaim_may_take_are_not_taken() -> None:
    """As chosen by the greedy all is well; with a pod of a queue within its quota in place of one above, it is not."""
    rich = [a_gang(f"rich{i}", "b", on("n"), minMember=1) for i in range(3)]
    poor = a_gang("poor", "c", on("n"), minMember=1)
    queues = [a_queue("a", 1), a_queue("b", 2), a_queue("c", 1)]
    gangs = [*rich, poor, a_gang("late", "a", {"gpus": 1}, minMember=1)]
    document = {"format": "kai-solver/v1", "now": 1000.0, "nodes": [a_node("n", 4)], "queues": queues, "gangs": gangs}
    problem = build_problem(snapshot_from_native(document))
    outcome = Actions(problem, load_model("greedy-only").actions, SolverActions(None)).run()
    assert outcome.pool is not None
    (admission,) = outcome.admissions
    assert [problem.gangs[outcome.pool.units[u].gang].gang.queue for u in admission.units] == ["b"]
    assert reclaims_hold(outcome)
    (other,) = (u.index for u in outcome.pool.units if problem.gangs[u.gang].gang.name == "poor")
    outcome.pool.leave(other)
    outcome.admissions[:] = [replace(admission, units=(other,))]
    assert not reclaims_hold(outcome)


def test_victims_are_for_the_last_reclaim_that_may_take_them_or_for_nothing() -> None:
    """Queues b and c are one GPU above their quota each: one of each may go, a second one of b may not.

    Queue e holds less than its quota. However few of its victims were taken, none could be: nothing is short.
    """
    running = [a_gang(f"{queue}{i}", queue, on("n"), minMember=1) for queue in "bc" for i in range(3)]
    running.append(a_gang("e0", "e", on("n"), minMember=1))
    late = [a_gang(f"late{i}", queue, {"gpus": 1}, minMember=1, created=i) for i, queue in enumerate("ad")]
    queues = [a_queue("a", 1), a_queue("b", 2), a_queue("c", 2), a_queue("d", 1), a_queue("e", 2)]
    document = {"format": "kai-solver/v1", "now": 1000.0, "nodes": [a_node("n", 7)], "queues": queues}
    problem = build_problem(snapshot_from_native(document | {"gangs": [*running, *late]}))
    outcome = Actions(problem, load_model("greedy-only").actions, SolverActions(None)).run()
    assert outcome.pool is not None
    names = [problem.gangs[a.allocation_unit.gang].gang.name for a in outcome.admissions]
    assert names == ["late0", "late1"]
    unit_of = {problem.gangs[u.gang].gang.name: u.index for u in outcome.pool.units}

    def shared_out(**able: set[int]) -> tuple[list[tuple[int, ...]], int, Mapping[int, tuple[int, int]]]:
        shared = share_out(outcome, [VictimGroup((unit_of[name],), frozenset(may)) for name, may in able.items()])
        return [a.units for a in shared.admissions], len(shared.left), shared.short

    b0, c0 = unit_of["b0"], unit_of["c0"]
    assert shared_out(b0={0, 1}, c0={0, 1}) == ([(), (b0, c0)], 0, {})
    assert shared_out(b0={0, 1}, c0={0}) == ([(c0,), (b0,)], 0, {})
    (b,) = (q for q, name in enumerate(problem.queues.names) if name == "b")
    assert shared_out(b0={0, 1}, b1={0}) == ([(), ()], 2, {b: (2, 1)})
    assert shared_out(b0={0, 1}, b1={0, 1}) == ([(), ()], 2, {b: (2, 1)})
    assert shared_out(e0={0, 1}) == ([(), ()], 1, {})


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_three_pods_share_three_devices_two_by_two_beside_whole_ones(taken: int) -> None:
    """Only as a triangle do they fit, which the solver finds; whole devices, new or running, leave room for it."""
    halves: Document = {"gpus": 0.5, "gpuDevices": 2}
    there = [a_gang(f"there{i}", "a", on("n", devices=[i]), minMember=1) for i in range(taken)]
    more: list[Document] = [{"gpus": 1}] * (2 - taken)
    late = a_gang("late", "a", *more, halves, halves, halves, minMember=5 - taken)
    plan = decided("deterministic", [a_node("n", 5)], [a_queue("a", 9)], [*there, late])
    assert [gang for gang, _ in plan.admitted] == ["default/late"]


def test_surplus_that_stays_without_its_core_leaves_as_a_whole() -> None:
    gang = a_gang("g", "a", *[on("n")] * 4, minMember=2)
    document = {"format": "kai-solver/v1", "now": 1000.0, "nodes": [a_node("n", 4)], "queues": [a_queue("a", 4)]}
    pool = VictimPool.of_running(State(build_problem(snapshot_from_native(document | {"gangs": [gang]}))))
    first, second, core = pool.of_gang[0]
    assert pool.closure([first]) == [first]
    pool.leave(core)
    assert set(pool.closure([first])) == {first, second}


@pytest.mark.parametrize(
    ("model", "evicted", "stage"),
    [("default", "new-0", ("evicted-work/50", 240)), ("least-gpus", "old-0", ("evicted-gpus/50", 1000))],
)
def test_whether_work_or_gpus_are_counted_says_what_is_evicted(
    model: str, evicted: str, stage: tuple[str, int]
) -> None:
    """Of 4 GPUs for a minute and 1 GPU for 15, on nodes of their own, one makes room for a pod of 1 GPU."""
    old = a_gang("old", "b", on("small", 1), minMember=1) | {"lastStart": 100.0}
    new = a_gang("new", "b", on("large", 4), minMember=1) | {"lastStart": 940.0}
    late = a_gang("late", "a", {"gpus": 1}, minMember=1)
    nodes, queues = [a_node("small", 1), a_node("large", 4)], [a_queue("a", 1), a_queue("b", 4)]
    plan = decided(model, nodes, queues, [old, new, late])
    assert [eviction.pod for eviction in plan.evictions] == [f"default/{evicted}"]
    found = next(s for s in plan.stages if s.name == stage[0])
    assert (found.value, found.optimal) == (stage[1], True)
