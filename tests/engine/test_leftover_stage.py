"""The stage ``leftover``: its value and bound against trying every place, and what it does for who comes next."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kai_solver.bounds.outlook import outlook_of
from kai_solver.check import check_plan
from kai_solver.domain import Plan, PodStatus, Snapshot, SolverModel, UsualPod
from kai_solver.engine import Engine, cycle
from kai_solver.instances_io import load_instance, snapshot_from_native
from kai_solver.leftover import Guest
from kai_solver.modelfiles import load_model
from kai_solver.problem import build_problem

Document = dict[str, Any]
INSTANCE = Path(__file__).parents[2] / "instances" / "solver" / "leftover-cores-beside-the-gpus.yaml"
Rest = dict[str, tuple[int, int]]
"""Free thousandths of a core, and free GPUs, by node."""


def exact() -> SolverModel:
    model = load_model("leftover")
    return replace(model, search=replace(model.search, workers=1, deterministic=True, question_s=5.0), budget_s=60.0)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(exact()) as found:
        assert found.wait(60.0)
        yield found


def a_cluster(seed: int) -> Snapshot:
    """Up to four nodes of whole GPUs, some pods running, up to four gangs of one pod that come."""
    rng = random.Random(seed)
    nodes: list[Document] = [
        {"name": f"n{i}", "gpus": rng.randint(1, 4), "cpu": rng.choice([8, 16, 32])} for i in range(rng.randint(2, 4))
    ]
    sizes = [(rng.randint(1, 2), rng.choice([1, 4, 8, 12])) for _ in range(3)]
    gangs: list[Document] = []
    for node in nodes:
        gpus, cpu = rng.choice(sizes)
        if rng.random() < 0.6 and gpus <= node["gpus"] and cpu <= node["cpu"]:
            gangs.append({"name": f"on-{node['name']}", "pods": [{"gpus": gpus, "cpu": cpu, "node": node["name"]}]})
    for i in range(rng.randint(1, 4)):
        gpus, cpu = rng.choice(sizes)
        gangs.append({"name": f"new-{i}", "pods": [{"gpus": gpus, "cpu": cpu}]})
    gangs = [{"queue": "team", "priority": 100, **gang} for gang in gangs]
    queues = [{"name": "team", "quota": 100}]
    return snapshot_from_native({"format": "kai-solver/v1", "nodes": nodes, "queues": queues, "gangs": gangs})


def rest_of(snapshot: Snapshot, plan: Plan | None = None) -> Rest:
    """What is free, by the snapshot's and the plan's own words."""
    rest = {node.name: (node.allocatable[0], node.gpus) for node in snapshot.nodes}
    target = {} if plan is None else {bind.pod: bind.node for bind in plan.binds}
    for pod in (pod for gang in snapshot.gangs for pod in gang.pods):
        node = pod.node or target.get(pod.key, "")
        if node:
            rest[node] = rest[node][0] - pod.request[0], rest[node][1] - pod.gpu.devices
    return rest


def worth(guests: tuple[Guest, ...], cpu: int, gpus: int) -> int:
    """The most that usual pods are worth on a node with so much free, by trying all counts."""
    needs = [(dict(g.asked).get(0, 0), g.devices, g.worth) for g in guests]
    counts = itertools.product(*(range(gpus // max(devices, 1) + 1) for _, devices, _ in needs))
    fits = (
        c
        for c in counts
        if sum(n * need[0] for n, need in zip(c, needs, strict=True)) <= cpu
        and sum(n * need[1] for n, need in zip(c, needs, strict=True)) <= gpus
    )
    return max(sum(n * need[2] for n, need in zip(c, needs, strict=True)) for c in fits)


def lost(guests: tuple[Guest, ...], before: Rest, after: Rest) -> int:
    return sum(worth(guests, *before[node]) - worth(guests, *after[node]) for node in before)


def least(guests: tuple[Guest, ...], before: Rest, pods: list[tuple[int, int]]) -> int:
    """The least that placing all of ``pods`` (CPU, GPUs) can take, by trying every node for each."""
    found: list[int] = []
    for nodes in itertools.product(before, repeat=len(pods)):
        after = dict(before)
        for node, (cpu, gpus) in zip(nodes, pods, strict=True):
            after[node] = after[node][0] - cpu, after[node][1] - gpus
        if all(cpu >= 0 and gpus >= 0 for cpu, gpus in after.values()):
            found.append(lost(guests, before, after))
    return min(found)


@pytest.mark.parametrize("seed", range(12))
def test_the_value_is_the_least_that_any_places_take(seed: int, engine: Engine) -> None:
    snapshot = a_cluster(seed)
    outlook = outlook_of(build_problem(snapshot))
    plan = engine.cycle(snapshot)
    assert check_plan(snapshot, plan) == ()
    (stage,) = (stage for stage in plan.stages if stage.name == "worth-lost")
    assert outlook is not None
    assert stage.value == lost(outlook.guests, rest_of(snapshot), rest_of(snapshot, plan))
    bound = {bind.pod for bind in plan.binds}
    pods = [(p.request[0], p.gpu.devices) for gang in snapshot.gangs for p in gang.pods if p.key in bound]
    assert stage.value == stage.bound == least(outlook.guests, rest_of(snapshot), pods)
    assert stage.optimal


@pytest.mark.parametrize("seed", range(12))
def test_greedy_alone_tells_what_its_places_take_and_bounds_it(seed: int) -> None:
    model = exact()
    model = replace(model, search=replace(model.search, enabled=False))
    snapshot = a_cluster(seed)
    outlook = outlook_of(build_problem(snapshot))
    plan = cycle(snapshot, model)
    (stage,) = (stage for stage in plan.stages if stage.name == "worth-lost")
    assert outlook is not None
    assert stage.bound <= stage.value == lost(outlook.guests, rest_of(snapshot), rest_of(snapshot, plan))


def later(snapshot: Snapshot, plan: Plan, comes: str) -> Snapshot:
    """The next cycle: what was bound runs, and the gang ``comes`` arrives."""
    target = {bind.pod: bind.node for bind in plan.binds}
    gangs = [
        replace(
            gang,
            pods=tuple(
                replace(pod, node=target[pod.key], status=PodStatus.RUNNING) if pod.key in target else pod
                for pod in gang.pods
            ),
        )
        for gang in snapshot.gangs
    ]
    late = [gang for gang in load_instance(INSTANCE).snapshot.gangs if gang.name == comes]
    return replace(snapshot, gangs=(*gangs, *late))


@pytest.mark.parametrize(("model", "is_served"), [("leftover", True), ("default", False), ("greedy-only", False)])
def test_what_comes_next_finds_room(model: str, is_served: bool) -> None:
    """By packing the first arrival takes the cores that the next needs; nobody there may be moved or evicted."""
    whole = load_instance(INSTANCE).snapshot
    first = replace(whole, gangs=tuple(gang for gang in whole.gangs if gang.name != "chats"))
    with Engine(load_model(model)) as engine:
        assert engine.wait(60.0)
        plan = engine.cycle(first)
        assert [bind.node for bind in plan.binds] == ["lean" if is_served else "rich-1"]
        after = engine.cycle(later(first, plan, "chats"))
    assert [gang for gang, _ in after.admitted] == (["default/chats"] if is_served else [])


@pytest.mark.parametrize("gpus", [1, 4])
def test_what_is_usual_may_be_declared(gpus: int) -> None:
    """Where whole nodes are asked for, the eval opens none; where single GPUs with many cores are, it saves cores."""
    whole = load_instance(INSTANCE).snapshot
    first = replace(whole, gangs=tuple(gang for gang in whole.gangs if gang.name != "chats"))
    model = replace(load_model("leftover"), usual=(UsualPod(16_000 if gpus == 4 else 32_000, 0, gpus, 1000),))
    model = replace(model, search=replace(model.search, enabled=False))
    assert [bind.node for bind in cycle(first, model).binds] == ["rich-1" if gpus == 4 else "lean"]


def test_models_of_gpus_are_heeded() -> None:
    """Usual pods need an H100: the newcomer, who does not, leaves it alone although that node is fuller."""
    label = "nvidia.com/gpu.product"
    nodes = [
        {"name": "a100", "gpus": 4, "labels": {label: "A100"}},
        {"name": "h100", "gpus": 2, "labels": {label: "H100"}},
    ]
    gangs = [{"name": "new", "queue": "team", "pods": [{"gpus": 1}]}]
    document = {"format": "kai-solver/v1", "nodes": nodes, "queues": [{"name": "team", "quota": 9}], "gangs": gangs}
    snapshot = snapshot_from_native(document)
    model = load_model("leftover")
    model = replace(model, search=replace(model.search, enabled=False))
    assert [b.node for b in cycle(snapshot, load_model("greedy-only")).binds] == ["h100"]
    picky = replace(model, usual=(UsualPod(1000, 0, 1, 1000, ("H100",)),))
    assert [b.node for b in cycle(snapshot, picky).binds] == ["a100"]


def test_without_gpus_nothing_is_priced() -> None:
    nodes = [{"name": "n", "cpu": 8}]
    gangs = [{"name": "new", "queue": "team", "pods": [{"cpu": 1}]}]
    document = {"format": "kai-solver/v1", "nodes": nodes, "queues": [{"name": "team"}], "gangs": gangs}
    snapshot = snapshot_from_native(document)
    assert outlook_of(build_problem(snapshot)) is None
    plan = cycle(snapshot, replace(exact(), search=replace(exact().search, enabled=False)))
    assert [bind.node for bind in plan.binds] == ["n"]
    assert [stage.name for stage in plan.stages][-1] == "nodes-opened"


def test_a_place_where_more_is_left_over_is_worth_no_delay(engine: Engine) -> None:
    """``new`` starts where the GPUs beside it fit no usual pod of four: on ``small``, another pod still holds two."""
    nodes = [
        {"name": "big", "gpus": 4, "cpu": 16},
        {"name": "small", "gpus": 2, "cpu": 16},
        {"name": "other", "gpus": 4, "cpu": 4},
    ]
    gangs: list[Document] = [
        {"name": "leaving", "pods": [{"gpus": 2, "cpu": 4, "node": "small", "status": "Releasing"}]},
        {"name": "usual", "pods": [{"gpus": 4, "cpu": 4}]},
        {"name": "new", "pods": [{"gpus": 2, "cpu": 4}]},
    ]
    gangs = [{"queue": "team", "priority": 100, **gang} for gang in gangs]
    document = {"format": "kai-solver/v1", "nodes": nodes, "queues": [{"name": "team", "quota": 100}], "gangs": gangs}
    plan = engine.cycle(snapshot_from_native(document))
    assert {(bind.gang, bind.node, bind.nominated) for bind in plan.binds} == {
        ("default/usual", "big", False),
        ("default/new", "other", False),
    }
    (stage,) = (stage for stage in plan.stages if stage.name == "worth-lost")
    assert stage.value > stage.bound
