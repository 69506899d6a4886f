"""Identical gangs are asked for together: the same gangs are admitted as one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import Gang, Plan, Snapshot, flat_gang
from kai_solver.engine import Engine
from kai_solver.model.spec import SpecAnswer
from kai_solver.modelfiles import load_model
from kai_solver.search.child import SolverChild
from kai_solver.units import MILLI, UNLIMITED
from tests.support.builders import RACK, RACKS, a_cluster, a_gang, a_node, a_pod, a_queue, told_apart
from tests.support.clusters import some

CORES = 32

PUZZLES = ((18, 12, 7, 6, 15, 5), (5, 6, 15, 7, 10, 19), (7, 5, 9, 13, 12, 16), (11, 11, 7, 10, 19, 5))
"""Cores of pods which just fit two nodes, in a way that the greedy does not find."""


class CountingChild(SolverChild):
    """Counts the questions that it is asked."""

    asked = 0

    def solve(self, *arguments: Any, **options: Any) -> SpecAnswer:
        self.asked += 1
        return super().solve(*arguments, **options)


class CountingEngine(Engine):
    """Counts the questions of each cycle."""

    def asked(self, snapshot: Snapshot) -> tuple[Plan, int]:
        assert isinstance(self.child, CountingChild)
        before = self.child.asked
        return self.cycle(snapshot, explain=False), self.child.asked - before


@pytest.fixture(scope="module")
def engine() -> Iterator[CountingEngine]:
    with CountingEngine(load_model("deterministic"), child=CountingChild()) as engine:
        yield engine


def of_cores(name: str, cores: Sequence[int], born: float, in_queue: str = "a", *, root: Any = None) -> Gang:
    pods = tuple(a_pod(f"{name}-{i}", 0, cpu=each * MILLI, order=i) for i, each in enumerate(cores))
    return a_gang(name, *pods, queue=in_queue, created_s=born, root=root or flat_gang(len(pods), RACK))


def racks(count: int, gangs: Sequence[Gang], limit_cores: int = UNLIMITED) -> Snapshot:
    """Racks of two nodes with 32 cores each."""
    nodes = [a_node(f"n{i}", 0, cpu=CORES * MILLI, rack=f"r{i // 2}") for i in range(2 * count)]
    cores = limit_cores if limit_cores == UNLIMITED else limit_cores * MILLI
    queues = [replace(a_queue("a"), limit=(cores, UNLIMITED, UNLIMITED)), a_queue("b")]
    return a_cluster(nodes, gangs, queues, topologies=(RACKS,))


def proofs(plan: Plan) -> dict[str, str]:
    return {pending.gang: pending.proof.state for pending in plan.pending}


@pytest.mark.slow
def test_the_greedy_finds_no_way_for_a_puzzle(engine: CountingEngine) -> None:
    with Engine(load_model("greedy-only")) as greedy:
        for cores in PUZZLES:
            snapshot = racks(1, [of_cores("w", cores, 0.0)])
            assert not greedy.cycle(snapshot).admitted
            assert engine.cycle(snapshot).admitted


@pytest.mark.slow
def test_identical_gangs_take_fewer_questions_than_gangs_that_differ(engine: CountingEngine) -> None:
    snapshot = racks(8, [of_cores(f"w{i}", PUZZLES[0], float(i)) for i in range(8)])
    together, few = engine.asked(snapshot)
    alone, many = engine.asked(told_apart(snapshot))
    assert together.admitted == alone.admitted
    assert len(together.admitted) == 8
    assert few < many


def test_the_first_in_order_are_admitted_where_there_is_no_room_for_all(engine: CountingEngine) -> None:
    plan, _ = engine.asked(racks(3, [of_cores(f"w{i}", PUZZLES[0], float(i)) for i in range(9)]))
    assert [name for name, _ in plan.admitted] == [f"ns/w{i}" for i in range(3)]
    assert set(proofs(plan).values()) == {"proven"}


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to four racks, some of whose cores are taken, and runs of identical gangs of two queues."""
    count = draw(st.integers(1, 4))
    gangs = []
    for i in range(draw(st.integers(0, 2))):
        seat = a_pod(f"r{i}", 0, f"n{draw(st.integers(0, 2 * count - 1))}", cpu=draw(st.integers(1, 16)) * MILLI)
        gangs.append(a_gang(f"r{i}", seat, queue=draw(st.sampled_from("ab")), priority=draw(st.sampled_from([50, 60]))))
    for kind in range(draw(st.integers(1, 2))):
        cores = draw(st.sampled_from(PUZZLES))
        for i in range(draw(st.integers(1, 5))):
            born = float(draw(st.integers(0, 9)))
            gangs.append(of_cores(f"w{kind}{i}", cores, born, draw(st.sampled_from("aab"))))
    return racks(count, gangs, draw(st.sampled_from([UNLIMITED, UNLIMITED, 130])))


@given(snapshot=clusters())
@some(20, campaign=300)
def test_the_same_gangs_are_admitted_as_one_by_one(engine: CountingEngine, snapshot: Snapshot) -> None:
    together, _ = engine.asked(snapshot)
    alone, _ = engine.asked(told_apart(snapshot))
    assert not [note for note in (*together.notes, *alone.notes) if "checker" in note]
    if "unknown" not in {*proofs(together).values(), *proofs(alone).values()}:
        assert sorted(together.admitted) == sorted(alone.admitted)
        assert proofs(together) == proofs(alone)
