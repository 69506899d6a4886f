"""What blocks: every proof against an exhaustive search, and every element of a blocking set eased in turn.

Easing an element lets the gang run, or something else blocks: else the element was none.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import (
    Blocker,
    Gang,
    GpuRequest,
    Node,
    Pending,
    Plan,
    Pod,
    PodStatus,
    Queue,
    Snapshot,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
)
from kai_solver.engine import Engine
from kai_solver.explaining.easing import eased
from kai_solver.units import CPU, UNLIMITED, ResourceSchema
from tests.engine.conftest import Engines
from tests.engine.test_proofs import GIB, RUNGS, Rules, small_clusters
from tests.support.clusters import some


@st.composite
def mixed_clusters(draw: st.DrawFn) -> Snapshot:
    """Small clusters in which nodes have more or less CPU, and the pods of the gang that waits may differ."""
    cluster = draw(small_clusters())
    nodes = tuple(
        replace(node, allocatable=(node.allocatable[CPU] * draw(st.sampled_from([1, 1, 2])), *node.allocatable[1:]))
        for node in cluster.nodes
    )
    waiting = cluster.gangs[-1]
    if draw(st.integers(0, 2)) == 0:
        first = replace(waiting.pods[0], request=(draw(st.sampled_from([100, 4000])), *waiting.pods[0].request[1:]))
        waiting = replace(waiting, pods=(first, *waiting.pods[1:]))
    return replace(cluster, nodes=nodes, gangs=(*cluster.gangs[:-1], waiting))


def waits(plan: Plan, gang: Gang) -> Pending | None:
    return next((entry for entry in plan.pending if entry.gang == gang.key), None)


def is_needed(engine: Engine, cluster: Snapshot, gang: Gang, entry: Pending, blocker: Blocker) -> bool:
    """With ``blocker`` eased the gang runs, or another set blocks it; true also where nobody can say how to ease it."""
    easier = eased(cluster, gang.key, blocker)
    if easier is None:
        return True
    still = waits(engine.cycle(easier), gang)
    return still is None or set(still.proof.blocking) != set(entry.proof.blocking)


def check_blocking_set(engine: Engine, cluster: Snapshot) -> None:
    gang = cluster.gangs[-1]
    plan = engine.cycle(cluster)
    assert not any("refused" in note for note in plan.notes), plan.notes
    entry = waits(plan, gang)
    rules = Rules(cluster, gang)
    possible = [action for action in RUNGS if rules.can(action)]
    if entry is None:
        assert set(dict(plan.admitted).values()) <= set(possible)
        return
    if entry.proof.state == "proven":
        assert not possible, entry
        assert entry.proof.blocking
        assert all(is_needed(engine, cluster, gang, entry, blocker) for blocker in entry.proof.blocking), entry.proof


def crowded(*asked: tuple[int, int]) -> Snapshot:
    """Two nodes of one GPU and 4 cores, and a gang whose pods ask for (milli of a GPU, milli of CPU)."""
    nodes = tuple(Node(f"n{i}", (4000, 64 * GIB, 1000, 20), gpus=1, gpu_memory_mib=100) for i in range(2))
    pods = tuple(
        Pod("ns", f"w-{i}", (cpu, GIB, 0, 1), GpuRequest(int(milli > 0), milli or 1000), order=(0, float(i), ""))
        for i, (milli, cpu) in enumerate(asked)
    )
    endless = (UNLIMITED, UNLIMITED, UNLIMITED)
    queues = (Queue("q", quota=endless, limit=endless),)
    return Snapshot(1000.0, ResourceSchema(), nodes, queues, (Gang("ns", "w", "q", flat_gang(len(pods)), pods),))


@pytest.mark.parametrize(
    ("asked", "resource"),
    [
        (((0, 3000), (0, 3000), (0, 2000)), "cpu"),
        (((600, 100), (600, 200), (300, 300), (500, 400)), "gpu"),
    ],
)
def test_what_only_the_model_refutes_has_a_smallest_set(
    engines: Engines, asked: tuple[tuple[int, int], ...], resource: str
) -> None:
    """There is enough of everything in all, but the pieces do not fit."""
    cluster = crowded(*asked)
    engine, gang = engines["deterministic"], cluster.gangs[0]
    entry = waits(engine.cycle(cluster), gang)
    assert entry is not None
    assert entry.proof.method.startswith("allocate: cp-sat")
    found = [blocker for blocker in entry.proof.blocking if blocker.kind == "resource"]
    assert [blocker.name for blocker in found] == [resource]
    easier = eased(cluster, gang.key, found[0])
    assert easier is not None
    assert waits(engine.cycle(easier), gang) is None


def idle_blockers(engine: Engine, cluster: Snapshot) -> list[str]:
    """Resources of the proof that the last gang waits which it does not help to ease."""
    gang = cluster.gangs[-1]
    entry = waits(engine.cycle(cluster), gang)
    assert entry is not None
    resources = [blocker for blocker in entry.proof.blocking if blocker.kind == "resource"]
    assert {blocker.name for blocker in resources} >= {"cpu", "gpu"}
    assert entry.proof.minimal
    return [blocker.name for blocker in resources if not is_needed(engine, cluster, gang, entry, blocker)]


@pytest.mark.parametrize("model", ["deterministic", "greedy-only"])
def test_of_two_racks_one_may_lack_gpus_and_the_other_cores(engines: Engines, model: str) -> None:
    rack = TopologyConstraint(topology="dc", required="rack")
    pods = tuple(Pod("ns", f"w-{i}", (3000, GIB, 0, 1), GpuRequest(1), order=(0, float(i), "")) for i in range(2))
    gang = Gang("ns", "w", "q", flat_gang(2, rack), pods)
    nodes = tuple(
        Node(f"n{i}", (cores * 1000, 64 * GIB, gpus * 1000, 20), gpus, labels={"rack": f"r{i}"})
        for i, (cores, gpus) in enumerate([(8, 1), (4, 2)])
    )
    cluster = replace(crowded(), nodes=nodes, gangs=(gang,), topologies=(Topology("dc", (TopologyLevel("rack"),)),))
    (entry,) = engines[model].cycle(cluster).pending
    told = {blocker.name: blocker.where for blocker in entry.proof.blocking if blocker.kind == "resource"}
    assert told == {"gpu": "r0", "cpu": "r1"}
    assert idle_blockers(engines[model], cluster) == []


@pytest.mark.parametrize(
    ("asked", "wanted_gib", "gpus", "method"),
    [(GpuRequest(1), 40, (2, 2), "flow"), (GpuRequest(2, 500), 1, (2, 3), "cp-sat")],
)
def test_room_for_those_that_would_move_is_part_of_what_is_short(
    engines: Engines, asked: GpuRequest, wanted_gib: int, gpus: tuple[int, int], method: str
) -> None:
    """Two GPUs of a node are free once the pod there has moved, and where it would go there are too few cores."""
    held = tuple(range(asked.devices))
    here = tuple(
        Pod("ns", f"r-{i}", (3000, GIB, 0, 1), asked, PodStatus.RUNNING, node=f"n{i}", devices=held) for i in range(2)
    )
    wanted = Pod("ns", "w-0", (500, wanted_gib * GIB, 0, 1), GpuRequest(2))
    nodes = tuple(
        Node(f"n{i}", (4000, gib * GIB, 1000 * count, 20), count)
        for i, (gib, count) in enumerate(zip((64, 32), gpus, strict=True))
    )
    gangs = (Gang("ns", "r", "q", flat_gang(2), here), Gang("ns", "w", "q", flat_gang(1), (wanted,)))
    cluster = replace(crowded(), nodes=nodes, gangs=gangs)
    (entry,) = engines["deterministic"].cycle(cluster).pending
    assert f"consolidation: {method}" in entry.proof.method
    assert idle_blockers(engines["deterministic"], cluster) == []


@given(cluster=mixed_clusters())
@some(100, campaign=2000)
def test_easing_what_blocks_helps(engines: Engines, cluster: Snapshot) -> None:
    check_blocking_set(engines["deterministic"], cluster)


@given(cluster=mixed_clusters())
@some(60, campaign=2000)
def test_easing_what_the_bounds_alone_found_helps(engines: Engines, cluster: Snapshot) -> None:
    check_blocking_set(engines["greedy-only"], cluster)


@pytest.mark.slow
@given(cluster=small_clusters())
@some(40)
def test_a_plan_that_nothing_reads_is_the_same_without_its_sets(engines: Engines, cluster: Snapshot) -> None:
    told, brief = (engines["greedy-only"].cycle(cluster, explain=explain) for explain in (True, False))
    parts = (told.binds, told.moves, told.evictions, told.admitted, told.stages)
    assert (brief.binds, brief.moves, brief.evictions, brief.admitted, brief.stages) == parts
    assert not any(entry.proof.minimal for entry in brief.pending)
    states = [(entry.gang, entry.reason, entry.proof.state) for entry in told.pending]
    assert [(entry.gang, entry.reason, entry.proof.state) for entry in brief.pending] == states
