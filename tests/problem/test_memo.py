"""A memo changes nothing: whatever becomes of a cluster, the problem with it is the problem without it."""

import gc
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.domain import (
    NO_CONSTRAINTS,
    NO_PLACEMENT,
    Constraints,
    Container,
    DisruptionBudget,
    Gang,
    GpuRequest,
    Node,
    NumaTopology,
    NumaZone,
    OneTenant,
    Placement,
    Pod,
    PodAffinityTerm,
    PodSet,
    PodStatus,
    Queue,
    Requirement,
    Snapshot,
    SubGroup,
    Taint,
    Toleration,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    ZoneShare,
    flat_gang,
)
from kai_solver.predicates import NodePredicates
from kai_solver.problem import Memo, Problem, build_problem
from kai_solver.problem.columns import PodColumns
from kai_solver.problem.gang_columns import GangColumns, GangShapes
from kai_solver.problem.rules import RuleFacts
from kai_solver.problem.shapes import ShapeTable
from kai_solver.rules.maintenance.problem import DrainTimes
from kai_solver.rules.numa_zones.table import ZoneTable
from kai_solver.units import MILLI, ResourceSchema

GIB = 2**30
RACKS = Topology("dc", (TopologyLevel("zone"), TopologyLevel("rack")))
OWNED = replace(RACKS, one_tenant=OneTenant("rack"))
ZONES = NumaTopology(
    "restricted", "pod", (NumaZone("0", (4000, 16 * GIB, 0, 0)), NumaZone("1", (4000, 16 * GIB, 0, 0))), (0,)
)
TERM = ((Requirement("rack", "In", ("r0",)),),)
APART = PodAffinityTerm((Requirement("app", "Exists"),), "rack")
RULES = (
    NO_CONSTRAINTS,
    NO_CONSTRAINTS,
    Constraints(node_terms=(TERM,)),
    Constraints(tolerations=(Toleration("dedicated", "Exists"),)),
    Constraints(blocked=("waits for a ConfigMap",)),
    Constraints(anti_affinity=(APART,)),
    Constraints(host_ports=("80/TCP",)),
)
GPUS = (GpuRequest(), GpuRequest(1), GpuRequest(2), GpuRequest(1, 500), GpuRequest(1, 0, 20_000))
NODES = ("n0", "n1", "n2", "n3")
LEAVES = ("a", "b", "c")

Draw = Random
Change = Callable[[Any, Draw], Any]


def one_of(*values: object) -> Change:
    return lambda _, draw: draw.choice(values)


def renamed(old: str, draw: Draw) -> str:
    return f"{old.partition('~')[0]}~{draw.random()}"


POD: dict[str, Change] = {
    "namespace": one_of("ns", "other"),
    "name": renamed,
    "request": one_of((1000, GIB, 0, 1), (3000, 2 * GIB, 0, 1), (1 << 60, GIB, 0, 1)),
    "gpu": one_of(*GPUS),
    "status": one_of(*PodStatus),
    "podset": one_of("default", "s0", "s1", "none"),
    "node": one_of("", *NODES, "gone"),
    "devices": one_of((), (0,), (1,), (0, 1), (7,)),
    "gpu_groups": one_of((), ("g",)),
    "nominated_node": one_of("", *NODES),
    "quota_gpu_milli": one_of(0, 1000),
    "constraints": one_of(*RULES),
    "labels": one_of({}, {"app": "x"}, {"app": "y", "tier": "z"}),
    "order": lambda _, draw: (draw.randint(-1, 1), 0.0, str(draw.randint(0, 3))),
    "guaranteed": one_of(False, True),
    "containers": one_of((), (Container((1000, GIB, 0, 1)), Container((1000, 0, 0, 0)))),
    "zones": one_of((), (ZoneShare("0", (("cpu", 1000),)),)),
    "claims": one_of((), ("ns/claim",)),
    "claims_gpus": lambda value, _: not value,
    "ready": one_of(True, False),
    "wished": one_of((), (1,), (1, 2)),
    "is_replaced": one_of(True, False),
    "run_time_s": one_of(None, 60.0, 7200.0),
    "started_s": one_of(None, -30.0, -7000.0),
    "grace_s": one_of(30.0, 0.0, 3600.0),
}
GANG: dict[str, Change] = {
    "namespace": one_of("ns", "other"),
    "name": renamed,
    "queue": one_of(*LEAVES, "root", "none"),
    "root": one_of(
        flat_gang(1),
        flat_gang(2, TopologyConstraint("dc", "rack")),
        SubGroup(children=(PodSet("s0", 1), SubGroup("sub", (PodSet("s1", 1), PodSet("default", 0)), 1))),
    ),
    "pods": lambda old, draw: tuple(draw.sample(old, len(old) - (len(old) > 1))),
    "priority": one_of(50, 100),
    "preemptible": one_of(True, False),
    "never_preempts": one_of(True, False),
    "may_use_spares": one_of(True, False),
    "created_s": one_of(0.0, 5.0),
    "last_start_s": one_of(None, 5.0),
    "last_eviction_s": one_of(None, 5.0),
    "stale_since_s": one_of(None, 5.0),
    "preemption_delay_s": one_of(0.0, 5.0),
    "staleness_grace_s": one_of(None, 5.0),
    "placement": one_of(NO_PLACEMENT, Placement(nodes="spread"), Placement(max_pods_per_node=1)),
    "workload": one_of("", "w"),
    "set_aside": one_of("", "", "its tree is broken"),
    "uid": one_of("", "u"),
    "queue_source": one_of("", "label"),
}
NODE: dict[str, Change] = {
    "name": one_of("n0", "n1", "n4", "a9"),
    "allocatable": one_of((8000, 32 * GIB, 4 * MILLI, 20), (8000, 32 * GIB, 0, 20), (2000, GIB, 2 * MILLI, 5)),
    "gpus": one_of(4, 2, 0),
    "gpu_memory_mib": one_of(40_000, 80_000, 0),
    "labels": one_of({}, {"zone": "z0", "rack": "r0"}, {"zone": "z1", "rack": "r1"}),
    "taints": one_of((), (Taint("dedicated", "x"),), (Taint("busy", "", "PreferNoSchedule"),)),
    "schedulable": one_of(True, False),
    "gpu_uuids": one_of((), ("u0", "u1", "u2", "u3")),
    "numa": one_of(None, ZONES),
    "gpu_topology": one_of("", "a100-pcie-nvlink-pairs-4"),
    "drain_at_s": one_of(None, 100.0, 3600.0),
}
QUEUE: dict[str, Change] = {
    "name": one_of(*LEAVES, "d"),
    "parent": one_of("root", "root", "", "none"),
    "priority": one_of(100, 101),
    "created_s": one_of(0.0, 1.0),
    "quota": one_of((-1, -1, -1), (-1, -1, 2000), (0, 0, 0)),
    "limit": one_of((-1, -1, -1), (-1, -1, 3000)),
    "weight": one_of((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "reclaim_min_runtime_s": one_of(None, 5.0),
    "preempt_min_runtime_s": one_of(None, 5.0),
    "usage": one_of((0.0, 0.0, 0.0), (0.1, 0.1, 0.5)),
    "placement": one_of(NO_PLACEMENT, Placement(nodes="spread"), Placement(max_gpus_per_node=2)),
    "rules": one_of((), (("no-such-rule", "1"),)),
    "display_name": one_of("", "Queue"),
    "uid": one_of("", "u"),
}
POLICY: dict[str, Change] = {
    "gpu_placement": one_of("binpack", "spread"),
    "cpu_placement": one_of("binpack", "spread"),
    "gpu_sharing_placement": one_of("binpack", "spread"),
    "full_hierarchy": one_of(True, False),
    "k_value": one_of(0.0, 1.0),
    "restrict_node_scheduling": one_of(False, True),
    "reclaim_resolve": one_of("lca", "queue"),
    "drain_lead_s": one_of(600.0, 0.0, 50.0),
}


@pytest.mark.parametrize(("kind", "changes"), [(Pod, POD), (Gang, GANG), (Node, NODE), (Queue, QUEUE)])
def test_every_field_is_changed_below(kind: type, changes: dict[str, Change]) -> None:
    assert {field.name for field in fields(kind) if field.init} == changes.keys()


def a_pod(name: str, draw: Draw) -> Pod:
    node = draw.choice(("", "", *NODES))
    running = PodStatus.RELEASING if draw.random() < 0.1 else PodStatus.RUNNING
    status = running if node else PodStatus.PENDING
    gpu, rules = (
        draw.choice((*GPUS, GPUS[1], GPUS[1], GPUS[2])),
        draw.choice(RULES if draw.random() < 0.03 else RULES[:5]),
    )
    guaranteed = draw.random() < 0.5
    return Pod(
        "ns",
        name,
        (1000, GIB, 0, 1),
        gpu,
        status,
        node=node,
        constraints=rules,
        order=(0, 0.0, name),
        guaranteed=guaranteed,
    )


def a_gang(name: str, draw: Draw) -> Gang:
    pods = tuple(a_pod(f"{name}-{i}", draw) for i in range(draw.randint(0, 4)))
    return Gang("ns", name, draw.choice(LEAVES), flat_gang(len(pods)), pods)


def a_node(name: str, draw: Draw) -> Node:
    labels = {"zone": "z0", "rack": f"r{draw.randint(0, 1)}"}
    return Node(name, (8000, 32 * GIB, 4 * MILLI, 20), 4, draw.choice((40_000, 80_000)), labels)


def a_cluster(draw: Draw) -> Snapshot:
    queues = (Queue("root", quota=(-1, -1, -1)), *(Queue(name, "root", weight=(1.0, 1.0, 1.0)) for name in LEAVES))
    gangs = tuple(a_gang(f"g{i}", draw) for i in range(draw.randint(0, 8)))
    nodes = tuple(a_node(name, draw) for name in NODES)
    foreign = tuple(replace(a_pod(f"f{i}", draw), namespace="system") for i in range(draw.randint(0, 2)))
    return Snapshot(
        0.0, ResourceSchema(), nodes, queues, gangs, (draw.choice((RACKS, OWNED)),), foreign, budgets=a_budget(draw)
    )


def a_budget(draw: Draw) -> tuple[DisruptionBudget, ...]:
    """Of all pods of a namespace, more often than not."""
    return (DisruptionBudget("ns", "b", (), draw.randint(0, 2), draw.random() < 0.5),) if draw.random() < 0.7 else ()


def touched(thing: Any, changes: dict[str, Change], draw: Draw, name: str = "") -> Any:
    """``thing`` with one field changed, any or the one of that name."""
    name = name or draw.choice(sorted(changes))
    return replace(thing, **{name: changes[name](getattr(thing, name), draw)})


def with_one(things: tuple[Any, ...], changes: dict[str, Change], draw: Draw, name: str = "") -> tuple[Any, ...]:
    if not things:
        return things
    at = draw.randrange(len(things))
    changed = touched(things[at], changes, draw, name)
    key = getattr(changed, "key", changed.name)
    others = things[:at] + things[at + 1 :]
    if any(getattr(other, "key", other.name) == key for other in others):
        return things  # Names stay unique.
    return (*things[:at], changed, *things[at + 1 :])


def pod_changed(snapshot: Snapshot, draw: Draw, name: str = "") -> Snapshot:
    if not snapshot.gangs:
        return snapshot
    at = draw.randrange(len(snapshot.gangs))
    gang = snapshot.gangs[at]
    changed = replace(gang, pods=with_one(gang.pods, POD, draw, name))
    return replace(snapshot, gangs=(*snapshot.gangs[:at], changed, *snapshot.gangs[at + 1 :]))


def shuffled(snapshot: Snapshot, draw: Draw) -> Snapshot:
    return replace(
        snapshot,
        gangs=tuple(draw.sample(snapshot.gangs, len(snapshot.gangs))),
        nodes=tuple(draw.sample(snapshot.nodes, len(snapshot.nodes))),
    )


def come_and_gone(snapshot: Snapshot, draw: Draw) -> Snapshot:
    new = a_gang(f"new{draw.random()}", draw)
    return replace(snapshot, gangs=(new, *snapshot.gangs[: max(0, len(snapshot.gangs) - draw.randint(0, 2))]))


def fewer_nodes(snapshot: Snapshot, draw: Draw) -> Snapshot:
    return replace(snapshot, nodes=tuple(draw.sample(snapshot.nodes, draw.randint(0, len(snapshot.nodes)))))


def made_anew(snapshot: Snapshot, _: Draw) -> Snapshot:
    """Equal objects, none of them the same."""
    gangs = tuple(replace(gang, pods=tuple(replace(pod) for pod in gang.pods)) for gang in snapshot.gangs)
    return replace(snapshot, gangs=gangs, nodes=tuple(replace(node) for node in snapshot.nodes))


STEPS: tuple[Callable[[Snapshot, Draw], Snapshot], ...] = (
    pod_changed,
    pod_changed,
    pod_changed,
    lambda s, draw: replace(s, gangs=with_one(s.gangs, GANG, draw)),
    lambda s, draw: replace(s, gangs=with_one(s.gangs, GANG, draw)),
    lambda s, draw: replace(s, nodes=with_one(s.nodes, NODE, draw)),
    lambda s, draw: replace(s, queues=with_one(s.queues, QUEUE, draw)),
    lambda s, draw: replace(s, foreign=with_one(s.foreign, POD, draw)),
    lambda s, draw: replace(s, policy=touched(s.policy, POLICY, draw)),
    lambda s, _: replace(s, topologies=() if s.topologies else (RACKS,)),
    lambda s, _: replace(s, now_s=s.now_s + 1),
    lambda s, draw: replace(s, budgets=a_budget(draw)),
    shuffled,
    come_and_gone,
    fewer_nodes,
    made_anew,
)


def plain(value: Any) -> Any:
    """``value`` in lists, numbers and texts, with everything that a problem says when it is asked."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return [(plain(key), plain(entry)) for key, entry in value.items()]
    if isinstance(value, list | tuple | GangShapes):
        return [plain(entry) for entry in value]
    if isinstance(value, DrainTimes):
        return plain(value.at_s)
    if isinstance(value, RuleFacts | ZoneTable):
        return plain(vars(value))
    if is_dataclass(value) and not isinstance(value, Snapshot | Gang | Pod | Node | Queue | type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value


def told(problem: Problem) -> dict[str, Any]:
    """All that a problem says."""
    found: dict[str, Any] = {}
    for field in fields(problem):
        value = getattr(problem, field.name)
        if isinstance(value, ShapeTable):
            found[field.name] = [
                (s, value.mask(i).tolist(), value.milli(i).tolist()) for i, s in enumerate(value.shapes)
            ]
        elif isinstance(value, NodePredicates):
            rules = [shape.constraints for shape in problem.shapes.shapes]
            found[field.name] = [(plain(value.refusals(c)), value.node_mask(c).tolist()) for c in rules]
        elif isinstance(value, PodColumns):
            columns = (
                value.node,
                value.shape,
                value.gang,
                value.charge,
                value.devices,
                value.shares,
                value.is_replaced,
            )
            found[field.name] = [column.tolist() for column in columns]
        elif isinstance(value, GangColumns):
            found[field.name] = columns_of(value)
        else:
            found[field.name] = plain(value)
    return found


def columns_of(columns: GangColumns) -> dict[str, Any]:
    """All that columns say of gangs; times as texts, since no NaN is like another."""
    said = {name: value for name, value in vars(columns).items() if not name.startswith("_")}
    said |= {"start_s": columns.start_s, "lies": columns.lies, "active_pods": columns.active_pods}
    return {name: str(plain(value)) for name, value in said.items()}


FIELDS: tuple[tuple[str, Callable[[Snapshot, Draw, str], Snapshot]], ...] = (
    *((name, pod_changed) for name in POD),
    *((name, lambda s, draw, name: replace(s, gangs=with_one(s.gangs, GANG, draw, name))) for name in GANG),
    *((name, lambda s, draw, name: replace(s, nodes=with_one(s.nodes, NODE, draw, name))) for name in NODE),
    *((name, lambda s, draw, name: replace(s, queues=with_one(s.queues, QUEUE, draw, name))) for name in QUEUE),
    *((name, lambda s, draw, name: replace(s, policy=touched(s.policy, POLICY, draw, name))) for name in POLICY),
)


@pytest.mark.parametrize(("name", "change"), FIELDS)
def test_a_field_changes(name: str, change: Callable[[Snapshot, Draw, str], Snapshot]) -> None:
    for seed in range(16):
        draw, memo = Random(seed), Memo()
        before = a_cluster(draw)
        build_problem(before, memo)
        after = change(before, draw, name)
        assert told(build_problem(after, memo)) == told(build_problem(after))


@pytest.mark.parametrize("fails", ["kai_solver.problem.problem.PodTable", "kai_solver.problem.memo.Occupancy.update"])
def test_a_cycle_that_fails_midway_leaves_a_memo_that_is_right(fails: str) -> None:
    draw, memo = Random(1), Memo()
    before = a_cluster(draw)
    build_problem(before, memo)
    after = come_and_gone(before, draw)
    with patch(fails, side_effect=MemoryError), pytest.raises(MemoryError):
        build_problem(after, memo)
    assert told(build_problem(after, memo)) == told(build_problem(after))


@pytest.mark.slow
@given(seed=st.integers(0, 2**32), steps=st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=12))
@settings(max_examples=150)
def test_the_problem_with_a_memo_is_the_problem_without(seed: int, steps: list[int]) -> None:
    draw, memo = Random(seed), Memo()
    snapshot = a_cluster(draw)
    build_problem(snapshot, memo)
    for step in steps:
        snapshot = STEPS[step](snapshot, draw)
        problem = build_problem(snapshot, memo)
        if draw.random() < 0.5:  # A cycle asks for some gangs only: the others keep numbers of earlier cycles.
            some = draw.sample(range(len(problem.gangs)), draw.randrange(len(problem.gangs) + 1))
            assert [problem.gangs[gang].index for gang in some] == some
        else:
            assert told(problem) == told(build_problem(snapshot))


def test_rules_for_tenants_are_written_into_what_is_new_alone() -> None:
    """Pods of other schedulers too: equal ones that are other objects are looked at anew by all that follows."""
    draw, memo = Random(3), Memo()
    foreign = tuple(replace(a_pod(f"f{i}", draw), namespace="system", gpu=GpuRequest(1)) for i in range(3))
    snapshot = replace(a_cluster(draw), topologies=(OWNED,), foreign=foreign)
    first, again = memo.ruled(snapshot).foreign, memo.ruled(replace(snapshot, now_s=1.0)).foreign
    assert all(pod.constraints.alone for pod in first)
    assert all(one is other for one, other in zip(first, again, strict=True))
    changed = replace(snapshot, foreign=(*foreign[:2], replace(foreign[2], ready=False)))
    after = memo.ruled(changed).foreign
    assert [one is other for one, other in zip(first, after, strict=True)] == [True, True, False]
    assert after == Memo().ruled(changed).foreign


def crowd(name: str, size: int) -> tuple[Gang, ...]:
    """Gangs of which no two ask for the same."""
    rules = [Constraints(host_ports=(f"{name}/{i}",)) for i in range(size)]
    pods = [Pod("ns", f"{name}-{i}", (1000, GIB, 0, 1), constraints=own) for i, own in enumerate(rules)]
    return tuple(Gang("ns", pod.name, "a", flat_gang(1), (pod,)) for pod in pods)


def rules_of(name: str) -> int:
    """Constraints of that crowd in memory."""
    found = [thing for thing in gc.get_objects() if isinstance(thing, Constraints)]
    return sum(rules.host_ports[0].startswith(f"{name}/") for rules in found if rules.host_ports)


@pytest.mark.slow
def test_what_left_is_forgotten() -> None:
    memo, nodes = Memo(), a_cluster(Random(0)).nodes
    for name in ("first", "second", "third", "fourth", "fifth", "last"):
        problem = build_problem(Snapshot(0.0, ResourceSchema(), nodes, (Queue("a"),), crowd(name, 800)), memo)
        assert len([problem.shapes.mask(shape) for shape in range(len(problem.shapes.shapes))]) == 800
    gc.collect()
    assert rules_of("last") == 800
    assert rules_of("first") <= 1  # One may stand for the room of all pods like it.
