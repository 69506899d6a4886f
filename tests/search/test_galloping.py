"""Asking for many at once, and sharing what was refused, must admit whom asking one by one admits."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_solver.actions import Actions
from kai_solver.actions import sequence as actions_run
from kai_solver.actions.allocating import Allocation
from kai_solver.actions.batch_probe import BatchProbe
from kai_solver.actions.disruption import Disruption
from kai_solver.actions.runs import Runs
from kai_solver.domain import (
    Action,
    Gang,
    GpuRequest,
    Node,
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
from kai_solver.modelfiles import load_model
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Outcome
from kai_solver.search.dominance import Refusals
from kai_solver.search.oracle import SolverActions
from kai_solver.search.question import Question
from kai_solver.units import MILLI, UNLIMITED, ResourceSchema

GIB = 2**30
RACKS = Topology("dc", (TopologyLevel("rack"),))
RACK = TopologyConstraint("dc", "rack")


def a_node(index: int, gpus: int, rack: int = 0) -> Node:
    labels = {"rack": f"r{rack}"}
    return Node(f"n{index}", (32_000, 64 * GIB, gpus * MILLI, 40), gpus=gpus, gpu_memory_mib=100, labels=labels)


def a_gang(name: str, gpus: Sequence[int], queue: str = "a", *, on: str = "", **more: object) -> Gang:
    status = PodStatus.RUNNING if on else PodStatus.PENDING
    pods = tuple(
        Pod("ns", f"{name}-{i}", (100, GIB, 0, 1), GpuRequest(g), status=status, node=on, order=(0, float(i), ""))
        for i, g in enumerate(gpus)
    )
    gang = Gang("ns", name, queue, flat_gang(len(pods)), pods, last_start_s=0.0 if on else None)
    return replace(gang, **more)  # type: ignore[arg-type]


def a_cluster(nodes: Sequence[Node], gangs: Sequence[Gang], limit: int = UNLIMITED) -> Snapshot:
    queues = tuple(
        Queue(name, created_s=float(at), quota=(UNLIMITED,) * 3, limit=(UNLIMITED, UNLIMITED, limit))
        for at, name in enumerate("ab")
    )
    return Snapshot(1000.0, ResourceSchema(), tuple(nodes), queues, tuple(gangs), (RACKS,))


class Counting:
    """How many questions were asked for one and for several, and how many of them an earlier "no" answered."""

    def __init__(self) -> None:
        self.alone = 0
        self.together: list[int] = []
        self.shared = 0


@contextmanager
def asked(*, one_by_one: bool) -> Iterator[Counting]:
    """The solver is asked for everything that it can decide: the greedy finds no way for anybody."""
    count = Counting()
    place, place_together, cover = SolverActions.place, SolverActions.place_together, Refusals.cover

    def alone(
        self: SolverActions,
        outcome: Outcome,
        allocation_unit: AllocationUnit,
        action: Action,
        disruption: Disruption | None,
    ) -> object:
        count.alone += self.solver_client is not None
        return place(self, outcome, allocation_unit, action, disruption)

    def several(
        self: SolverActions, outcome: Outcome, allocation_units: Sequence[AllocationUnit], *rest: object
    ) -> object:
        count.together.append(len(allocation_units))
        return place_together(self, outcome, allocation_units, *rest)  # type: ignore[arg-type]

    def shares(self: Refusals, question: object) -> bool:
        is_shared = not one_by_one and cover(self, question)  # type: ignore[arg-type]
        count.shared += is_shared
        return is_shared

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runs, "admit", lambda *_: False)
        patch.setattr(Question, "has_choice", True)
        patch.setattr(
            Allocation, "_seat", lambda self, allocation_unit: self.context.ask(allocation_unit, Action.ALLOCATE, None)
        )
        patch.setattr(actions_run, "solve", lambda *_: None)
        patch.setattr(Actions, "_without_victims", lambda *_: None)
        patch.setattr(SolverActions, "place", alone)
        patch.setattr(SolverActions, "place_together", several)
        patch.setattr(Refusals, "cover", shares)
        if one_by_one:
            patch.setattr(BatchProbe, "after", lambda *_: None)
        yield count


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(load_model("deterministic")) as engine:
        yield engine


def plans(engine: Engine, cluster: Snapshot) -> tuple[Plan, Plan, Counting]:
    """The plan with everything, and the one of asking one by one; what the first one asked."""
    with asked(one_by_one=False) as count:
        ours = engine.cycle(cluster)
    with asked(one_by_one=True):
        plain = engine.cycle(cluster)
    return ours, plain, count


def served(plan: Plan) -> list[str]:
    return sorted(gang for gang, _ in plan.admitted)


def said(plan: Plan) -> dict[str, str]:
    return {pending.gang: pending.proof.state for pending in plan.pending}


def test_a_run_of_alike_gangs_is_asked_for_in_growing_numbers(engine: Engine) -> None:
    gangs = [a_gang(f"w{i}", [2], created_s=float(i)) for i in range(9)]
    ours, plain, count = plans(engine, a_cluster([a_node(i, 4) for i in range(5)], gangs))
    assert served(ours) == served(plain) == [gang.key for gang in gangs]
    assert (count.alone, count.together) == (1, [2, 4, 2])


def test_after_a_no_the_half_is_asked_and_the_first_in_order_are_served(engine: Engine) -> None:
    gangs = [a_gang(f"w{i}", [2, 1], created_s=float(i)) for i in range(9)]
    running = [a_gang(f"r{i}", [1], on=f"n{i}") for i in range(4)]
    ours, plain, count = plans(engine, a_cluster([a_node(i, 4) for i in range(4)], [*running, *gangs]))
    assert served(ours) == served(plain) == [f"ns/w{i}" for i in range(4)]
    assert count.together
    assert set(said(ours).values()) == {"proven"}


def of_cpu(gang: Gang, *cores: int) -> Gang:
    pods = tuple(replace(pod, request=(1000 * cpu, GIB, 0, 1)) for pod, cpu in zip(gang.pods, cores, strict=True))
    return replace(gang, pods=pods)


@pytest.mark.parametrize(("more", "shared"), [((1,), 1), ((), 0)])
def test_a_larger_gang_shares_the_refusal_of_a_smaller_one(engine: Engine, more: tuple[int, ...], shared: int) -> None:
    """96 cores in three nodes; 95 are asked for, in pieces that do not fit, then one more, or three less."""
    tight = (17, 17, 17, 10, 10, 10, 14)
    second = (*tight, *more) if more else (*tight[:6], 11)
    gangs = [of_cpu(a_gang("w0", [0] * 7), *tight), of_cpu(a_gang("w1", [0] * len(second), created_s=1.0), *second)]
    ours, plain, count = plans(engine, a_cluster([a_node(i, 0) for i in range(3)], gangs))
    assert said(ours) == said(plain) == {"ns/w0": "proven", "ns/w1": "proven"}
    assert (count.shared > 0) == (shared > 0)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=4))
    nodes = [a_node(i, gpus, i % 2) for i, gpus in enumerate(sizes)]
    free = {node.name: node.gpus for node in nodes}
    gangs = []
    for i in range(draw(st.integers(0, 4))):
        node, gpus = draw(st.sampled_from(nodes)), draw(st.integers(1, 3))
        if free[node.name] >= gpus:
            free[node.name] -= gpus
            priority = draw(st.sampled_from([50, 60]))
            gangs.append(a_gang(f"r{i}", [gpus], draw(st.sampled_from("ab")), on=node.name, priority=priority))
    for kind in range(draw(st.integers(1, 3))):
        pods = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2).map(lambda p: sorted(p, reverse=True)))
        top = draw(st.sampled_from([None, None, RACK]))
        for i in range(draw(st.integers(1, 6))):
            root, queue = flat_gang(len(pods), top), draw(st.sampled_from("aab"))
            created_s = float(draw(st.integers(0, 9)))
            gangs.append(a_gang(f"w{kind}{i}", pods, queue, root=root, created_s=created_s))
    return a_cluster(nodes, gangs, draw(st.sampled_from([UNLIMITED, UNLIMITED, 4 * MILLI])))


@given(cluster=clusters())
@settings(max_examples=25, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
def test_the_same_gangs_are_admitted_as_one_by_one(engine: Engine, cluster: Snapshot) -> None:
    ours, plain, _ = plans(engine, cluster)
    assert not [note for note in (*ours.notes, *plain.notes) if "checker" in note]
    if "unknown" not in {*said(ours).values(), *said(plain).values()}:
        assert sorted(ours.admitted) == sorted(plain.admitted)
        assert said(ours) == said(plain)
