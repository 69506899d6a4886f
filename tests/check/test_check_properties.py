"""Random clusters, plans of a trivial first fit, and plans with one field spoilt."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check import RULES, check_plan
from kai_solver.domain import (
    Action,
    Bind,
    Device,
    Gang,
    GpuRequest,
    Node,
    Plan,
    Pod,
    PodStatus,
    Queue,
    Snapshot,
    flat_gang,
)
from kai_solver.units import ResourceSchema

CPU_OF_A_NODE = 4000
FREE = (-1, -1, -1)


def a_pod(gang: str, index: int, cpu: int, gpus: int) -> Pod:
    return Pod("ns", f"{gang}-{index}", (cpu, 1, 0, 1), GpuRequest(gpus))


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    nodes = tuple(
        Node(f"n{i}", (CPU_OF_A_NODE, 100, gpus * 1000, 100), gpus=gpus, gpu_memory_mib=100)
        for i, gpus in enumerate(sizes)
    )
    gangs = []
    for node in nodes:
        # One gang runs on the first devices of each node.
        held = draw(st.integers(0, node.gpus))
        pods = tuple(
            replace(a_pod(f"r-{node.name}", i, 100, 1), status=PodStatus.RUNNING, node=node.name, devices=(i,))
            for i in range(held)
        )
        gangs.append(Gang("ns", f"r-{node.name}", "q", flat_gang(held), pods))
    for index in range(draw(st.integers(0, 5))):
        size, cpu, gpus = draw(st.integers(1, 3)), draw(st.sampled_from([100, 1500])), draw(st.integers(0, 2))
        pods = tuple(a_pod(f"g{index}", i, cpu, gpus) for i in range(size))
        gangs.append(Gang("ns", f"g{index}", "q", flat_gang(size), pods))
    return Snapshot(0.0, ResourceSchema(), nodes, (Queue("q", quota=FREE),), tuple(gangs))


def first_fit(snapshot: Snapshot) -> Plan:
    cpu = {node.name: CPU_OF_A_NODE for node in snapshot.nodes}
    devices = {node.name: list(range(node.gpus)) for node in snapshot.nodes}
    for gang in snapshot.gangs:
        for pod in gang.pods:
            if pod.node:
                cpu[pod.node] -= pod.request[0]
                devices[pod.node].remove(pod.devices[0])
    binds: list[Bind] = []
    for gang in snapshot.gangs:
        found: list[Bind] = []
        for pod in gang.pods:
            fitting = [n for n in cpu if cpu[n] >= pod.request[0] and len(devices[n]) >= pod.gpu.devices]
            if pod.node or not fitting:
                break
            name = fitting[0]
            cpu[name] -= pod.request[0]
            taken = [devices[name].pop() for _ in range(pod.gpu.devices)]
            found.append(Bind(pod.key, gang.key, name, tuple(Device(index, 1000) for index in taken)))
        # What half a gang took is not given back: the fit is trivial.
        if len(found) == len(gang.pods):
            binds.extend(found)
    admitted = dict.fromkeys(bind.gang for bind in binds)
    return Plan(tuple(binds), admitted=tuple((gang, Action.ALLOCATE) for gang in admitted))


def holds(snapshot: Snapshot, plan: Plan) -> bool:
    """The rules that matter on these clusters, counted pod by pod."""
    pods = {pod.key: (pod, gang) for gang in snapshot.gangs for pod in gang.pods}
    nodes = {node.name: node for node in snapshot.nodes}
    cpu: Counter[str] = Counter()
    taken: Counter[tuple[str, int]] = Counter()
    for pod, _ in pods.values():
        if pod.node:
            cpu[pod.node] += pod.request[0]
            taken.update((pod.node, index) for index in pod.devices)
    for bind in plan.binds:
        if bind.pod not in pods or bind.node not in nodes:
            return False
        pod, gang = pods[bind.pod]
        cpu[bind.node] += pod.request[0]
        taken.update((bind.node, device.index) for device in bind.devices)
        exact = len(bind.devices) == pod.gpu.devices and all(device.milli == 1000 for device in bind.devices)
        if not exact or pod.node or bind.gang != gang.key:
            return False
        if any(not 0 <= device.index < nodes[bind.node].gpus for device in bind.devices):
            return False
    if any(used > CPU_OF_A_NODE for used in cpu.values()) or any(count > 1 for count in taken.values()):
        return False
    bound = Counter(bind.pod for bind in plan.binds)
    per_gang = Counter(bind.gang for bind in plan.binds)
    waits = Counter(bind.gang for bind in plan.binds if bind.nominated)
    sizes = {gang.key: len(gang.pods) for gang in snapshot.gangs}
    return (
        all(count == 1 for count in bound.values())
        and all(sizes[gang] == count and waits[gang] in (0, count) for gang, count in per_gang.items())
        and set(plan.admitted) == {(bind.gang, bind.action) for bind in plan.binds}
    )


@given(clusters())
@settings(max_examples=60, deadline=None)
def test_a_first_fit_plan_holds(snapshot: Snapshot) -> None:
    plan = first_fit(snapshot)
    assert holds(snapshot, plan)
    assert check_plan(snapshot, plan) == ()


Spoil = Callable[[Bind, st.DrawFn, Snapshot], Bind]

SPOILS: dict[str, Spoil] = {
    "pod": lambda b, draw, s: replace(b, pod=draw(st.sampled_from([p.key for g in s.gangs for p in g.pods] + ["x/y"]))),
    "gang": lambda b, draw, s: replace(b, gang=draw(st.sampled_from([g.key for g in s.gangs]))),
    "node": lambda b, draw, s: replace(b, node=draw(st.sampled_from([n.name for n in s.nodes] + ["nowhere"]))),
    "devices": lambda b, draw, s: replace(
        b,
        devices=tuple(
            Device(draw(st.integers(-1, 4)), draw(st.sampled_from([0, 500, 1000, 2000])))
            for _ in range(draw(st.integers(0, 2)))
        ),
    ),
    "nominated": lambda b, draw, s: replace(b, nominated=not b.nominated),
    "action": lambda b, draw, s: replace(b, action=draw(st.sampled_from(list(Action)))),
}


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[Snapshot, Plan]:
    snapshot = draw(clusters().filter(lambda cluster: bool(first_fit(cluster).binds)))
    plan = first_fit(snapshot)
    place = draw(st.integers(0, len(plan.binds) - 1))
    how = draw(st.sampled_from([*SPOILS, "dropped", "doubled", "not admitted"]))
    binds = list(plan.binds)
    if how == "not admitted":
        return snapshot, replace(plan, admitted=plan.admitted[1:])
    if how == "dropped":
        del binds[place]
    elif how == "doubled":
        binds.append(binds[place])
    else:
        binds[place] = SPOILS[how](binds[place], draw, snapshot)
    return snapshot, replace(plan, binds=tuple(binds))


@pytest.mark.slow
@given(spoilt())
@settings(max_examples=200, deadline=None)
def test_a_spoilt_plan_is_caught_exactly_where_it_does_not_hold(case: tuple[Snapshot, Plan]) -> None:
    snapshot, plan = case
    violations = check_plan(snapshot, plan)
    assert (violations == ()) == holds(snapshot, plan)
    assert all(violation.rule in RULES and violation.object and violation.text for violation in violations)
