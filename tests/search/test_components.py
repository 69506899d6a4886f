"""Parts of the stages' problem that share nothing are solved apart: the same values and bounds, part by part."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kai_solver.domain import Gang, GpuRequest, Node, Plan, Pod, PodStatus, Queue, Snapshot, flat_gang
from kai_solver.domain.constraints import Constraints, NodeTerm, Requirement
from kai_solver.engine import Engine, prices
from kai_solver.model.joint import Joint
from kai_solver.modelfiles import load_model
from kai_solver.search import components as parting
from kai_solver.search import refine
from kai_solver.units import MILLI, UNLIMITED, ResourceSchema

GIB = 2**30
FREE = (UNLIMITED,) * 3


def to_pool(pool: str) -> Constraints:
    return Constraints(node_terms=((NodeTerm((Requirement("pool", "In", (pool,)),)),),))


ONLY = {"x": to_pool("x"), "y": to_pool("y"), "": Constraints()}


def a_node(pool: str, index: int, gpus: int) -> Node:
    labels = {"pool": pool}
    return Node(f"{pool}{index}", (32_000, 64 * GIB, gpus * MILLI, 20), gpus=gpus, gpu_memory_mib=100, labels=labels)


def a_gang(name: str, pool: str, *gpus: int, on: str = "", **more: Any) -> Gang:
    status = PodStatus.RUNNING if on else PodStatus.PENDING
    pods = tuple(
        Pod(
            "ns",
            f"{name}-{i}",
            (100, GIB, 0, 1),
            GpuRequest(g),
            status=status,
            node=on,
            order=(0, float(i), ""),
            constraints=ONLY[pool],
        )
        for i, g in enumerate(gpus)
    )
    fields = {"queue": f"q{pool}", "last_start_s": 0.0 if on else None} | more
    return replace(Gang("ns", name, "q", flat_gang(len(pods)), pods), **fields)


def a_half(pool: str) -> tuple[list[Node], list[Gang]]:
    """Two nodes of 4 GPUs, 6 of the 8 in use; a gang of 4 makes somebody of lower priority leave."""
    nodes = [a_node(pool, i, 4) for i in range(2)]
    running = [a_gang(f"{pool}r{i}", pool, 2, on=f"{pool}{i % 2}", last_start_s=100.0 * i) for i in range(3)]
    return nodes, [*running, a_gang(f"{pool}w", pool, 4, priority=60)]


def a_cluster(*halves: tuple[Sequence[Node], Sequence[Gang]], queues: Sequence[Queue] = ()) -> Snapshot:
    nodes = [node for half in halves for node in half[0]]
    gangs = [gang for half in halves for gang in half[1]]
    names = dict.fromkeys(gang.queue for gang in gangs)
    queues = queues or [Queue(name, created_s=float(i), quota=FREE) for i, name in enumerate(names)]
    return Snapshot(1000.0, ResourceSchema(), tuple(nodes), tuple(queues), tuple(gangs))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(load_model("deterministic")) as engine:
        yield engine


def planned(engine: Engine, cluster: Snapshot, *, apart: bool, fails: int = -1) -> tuple[Plan, list[int]]:
    """The plan, and in how many parts its stages were solved; part ``fails`` (by number) has no answer in time."""
    parts: list[int] = []
    searched: list[int] = []
    search = refine.StageOptimizer._search_part

    def split(joint: Joint) -> list[Joint]:
        found = parting.components(joint) if apart else [joint]
        parts.append(len(found))
        return found

    def hurried(self: refine.StageOptimizer, *of: Any, is_of_all: bool) -> Any:
        found = search(self, *of, is_of_all=is_of_all)
        searched.append(len(searched))
        if searched[-1] == fails:
            stages = tuple(replace(stage, bound=0, optimal=not stage.value) for stage in found.result.stages)
            found.result = replace(found.result, stages=stages)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refine, "PARTED_FROM", 0)
        patch.setattr(refine, "components", split)
        if fails >= 0:  # The bounds by prices and by sums would hide it.
            patch.setattr(prices.Prices, "_ask", lambda *_: None)
            patch.setattr(prices, "bounds_by_count", lambda *_: None)
        patch.setattr(refine.StageOptimizer, "_search_part", hurried)
        plan = engine.cycle(cluster)
    assert not [note for note in plan.notes if "checker" in note]
    return plan, parts


def told(plan: Plan) -> dict[str, tuple[float, float, bool]]:
    return {stage.name: (stage.value, stage.bound, stage.optimal) for stage in plan.stages}


def test_two_pools_with_queues_of_their_own_are_two_parts(engine: Engine) -> None:
    cluster = a_cluster(a_half("x"), a_half("y"))
    ours, parts = planned(engine, cluster, apart=True)
    whole, _ = planned(engine, cluster, apart=False)
    assert parts == [2]
    assert told(ours) == told(whole)
    assert all(stage.optimal for stage in ours.stages)


def test_a_part_that_is_not_proven_leaves_the_other_its_bounds(engine: Engine) -> None:
    cluster = a_cluster(a_half("x"), a_half("y"))
    whole, _ = planned(engine, cluster, apart=False)
    ours, _ = planned(engine, cluster, apart=True, fails=0)
    name, (value, _, _) = next((n, s) for n, s in told(whole).items() if s[0] > 0)
    assert told(ours)[name] == (value, value / 2, False)


def test_a_limit_over_both_pools_that_may_bind_makes_them_one(engine: Engine) -> None:
    halves = a_half("x"), a_half("y")
    names = [Queue("qx", "top", quota=FREE), Queue("qy", "top", quota=FREE)]
    for gpus, parts in ((17, 1), (100, 2)):
        top = Queue("top", quota=FREE, limit=(UNLIMITED, UNLIMITED, gpus * MILLI))
        _, found = planned(engine, a_cluster(*halves, queues=[top, *names]), apart=True)
        assert found == [parts]


def test_a_pod_that_may_go_to_both_pools_makes_them_one(engine: Engine) -> None:
    nodes, gangs = a_half("y")
    anywhere = a_gang("any", "", 1, on="y0", queue="qy")
    nodes[0] = a_node("y", 0, 5)
    _, parts = planned(engine, a_cluster(a_half("x"), (nodes, [*gangs, anywhere])), apart=True)
    assert parts == [1]


@st.composite
def halves(draw: st.DrawFn, pool: str) -> tuple[list[Node], list[Gang]]:
    nodes = [a_node(pool, i, gpus) for i, gpus in enumerate(draw(st.lists(st.integers(2, 4), min_size=2, max_size=4)))]
    free = {node.name: node.gpus for node in nodes}
    gangs: list[Gang] = []
    for i in range(draw(st.integers(2, 6))):
        node, gpus = draw(st.sampled_from(nodes)), draw(st.integers(1, 2))
        if free[node.name] >= gpus:
            free[node.name] -= gpus
            since = draw(st.sampled_from([100.0, 500.0, 900.0]))
            gang = a_gang(f"{pool}r{i}", pool, gpus, on=node.name, last_start_s=since)
            gangs.append(replace(gang, priority=draw(st.sampled_from([40, 50])), queue=draw(queue_of(pool))))
    for i in range(draw(st.integers(1, 3))):
        pods = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
        gangs.append(a_gang(f"{pool}w{i}", pool, *pods, priority=draw(st.sampled_from([50, 60])), created_s=float(i)))
    return nodes, gangs


def queue_of(pool: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"q{pool}", f"q{pool}", f"other{pool}"])


@pytest.mark.slow
@given(cluster=st.builds(a_cluster, halves("x"), halves("y")))
@settings(max_examples=25, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
def test_parts_have_the_values_and_bounds_of_the_whole(engine: Engine, cluster: Snapshot) -> None:
    quota = (UNLIMITED, UNLIMITED, 3 * MILLI)
    cluster = replace(cluster, queues=tuple(replace(queue, quota=quota) for queue in cluster.queues))
    ours, parts = planned(engine, cluster, apart=True)
    whole, _ = planned(engine, cluster, apart=False)
    assert ours.admitted == whole.admitted
    assume(parts and all(stage.optimal for stage in whole.stages[1:]))
    assert told(ours) == told(whole)
