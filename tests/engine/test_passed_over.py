"""A gang which only CP-SAT can place is asked for before the gangs that come after it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Gang, Plan, Snapshot, flat_gang
from kai_solver.engine import Engine, cycle
from kai_solver.modelfiles import load_model
from kai_solver.units import MILLI
from tests.support.builders import RACK, RACKS, a_cluster, a_gang, a_node, a_pod, a_queue
from tests.support.clusters import some
from tests.support.garbage import left_to_the_collector, ours

PUZZLES = ((18, 12, 7, 6, 15, 5), (5, 6, 15, 7, 10, 19), (7, 5, 9, 13, 12, 16), (11, 11, 7, 10, 19, 5))
"""Cores of pods which just fit two nodes of 32, in a way that the greedy does not find."""
TOO_MANY = (17, 17, 10, 10, 10)
"""As many cores as the two nodes have, which no two nodes can take."""
CORES = 32


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(load_model("deterministic")) as engine:
        assert engine.wait(60.0), "no test fails because the machine is slow to start the solver"
        yield engine


def of_cores(name: str, cores: Sequence[int], *, queue: str = "a", priority: int = 50, born: float = 0.0) -> Gang:
    """A gang of a pod for each number of cores, in one rack."""
    pods = (a_pod(f"{name}-{i}", 0, cpu=each * MILLI, order=i) for i, each in enumerate(cores))
    root = flat_gang(len(cores), RACK)
    return a_gang(name, *pods, queue=queue, created_s=born, root=root, priority=priority)


def racks(count: int, *gangs: Gang) -> Snapshot:
    """Racks of two nodes with 32 cores each."""
    nodes = [a_node(f"n{i}", 0, cpu=CORES * MILLI, rack=f"r{i // 2}") for i in range(2 * count)]
    quota = (CORES * MILLI * 2 * count, -1, -1)
    queues = [replace(a_queue("a"), quota=quota), replace(a_queue("b"), quota=(0, 0, 0))]
    return a_cluster(nodes, gangs, queues, topologies=(RACKS,))


def admitted(plan: Plan) -> set[str]:
    return {name.removeprefix("ns/") for name, _ in plan.admitted}


def decided(engine: Engine, snapshot: Snapshot) -> Plan:
    plan = engine.cycle(snapshot)
    assert check_plan(snapshot, plan) == ()
    return plan


@pytest.mark.parametrize("cores", PUZZLES)
def test_a_gang_of_lower_priority_does_not_keep_the_room_of_one_that_only_cp_sat_can_place(
    engine: Engine, cores: Sequence[int]
) -> None:
    low = of_cores("low", (20,), priority=10, born=2.0)
    snapshot = racks(1, of_cores("urgent", cores, priority=90, born=1.0), low)
    plan = decided(engine, snapshot)
    assert admitted(plan) == {"urgent"}
    assert [(entry.proof.state, entry.proof.beside) for entry in plan.pending] == [("proven", "earlier")]


def test_the_second_run_leaves_no_object_of_ours_to_the_collector(engine: Engine) -> None:
    snapshot = racks(1, of_cores("urgent", PUZZLES[0], priority=90, born=1.0), of_cores("low", (20,), priority=10))
    assert admitted(decided(engine, snapshot)) == {"urgent"}
    with left_to_the_collector() as found:
        engine.cycle(snapshot)
    assert ours(found) == set()


def test_several_small_gangs_do_not_pay_for_a_larger_one_before_them(engine: Engine) -> None:
    small = [of_cores(f"small{i}", (5,), priority=10, born=2.0 + i) for i in range(8)]
    plan = decided(engine, racks(1, of_cores("urgent", PUZZLES[0], priority=90), *small))
    assert admitted(plan) == {"urgent"}
    assert {entry.proof.state for entry in plan.pending} == {"proven"}


def test_gangs_after_one_that_cannot_run_stay_admitted(engine: Engine) -> None:
    plan = decided(engine, racks(1, of_cores("urgent", TOO_MANY, priority=90), of_cores("low", (20,), priority=10)))
    assert admitted(plan) == {"low"}
    assert [(entry.gang, entry.proof.state, entry.proof.beside) for entry in plan.pending] == [
        ("ns/urgent", "proven", "earlier")
    ]


def test_the_gangs_after_it_get_the_room_that_is_left(engine: Engine) -> None:
    """Two racks: the urgent gang fills one of them, wherever the greedy would have put the others."""
    later = [of_cores(f"later{i}", (20,), priority=10, born=2.0 + i) for i in range(4)]
    plan = decided(engine, racks(2, of_cores("urgent", PUZZLES[1], priority=90), *later))
    assert admitted(plan) == {"urgent", "later0", "later1"}


@pytest.mark.parametrize("cores", PUZZLES)
def test_in_reclaim_too(engine: Engine, cores: Sequence[int]) -> None:
    """The urgent gang needs all that the other queue took, in an order that the greedy does not find."""
    taken = [a_gang(f"b{i}", a_pod(f"b{i}-0", 0, f"n{i}", cpu=CORES * MILLI), queue="b") for i in range(2)]
    low = of_cores("low", (20,), priority=10, born=2.0)
    plan = decided(engine, racks(1, of_cores("urgent", cores, priority=90, born=1.0), low, *taken))
    assert admitted(plan) == {"urgent"}
    assert {eviction.gang for eviction in plan.evictions} == {"ns/b0", "ns/b1"}


def test_in_reclaim_nothing_is_evicted_for_one_that_cannot_run(engine: Engine) -> None:
    taken = [a_gang(f"b{i}", a_pod(f"b{i}-0", 0, f"n{i}", cpu=CORES * MILLI), queue="b") for i in range(2)]
    low = of_cores("low", (20,), priority=10, born=2.0)
    plan = decided(engine, racks(1, of_cores("urgent", TOO_MANY, priority=90, born=1.0), low, *taken))
    assert admitted(plan) == {"low"}
    assert len(plan.evictions) == 1


def test_without_time_for_questions_the_greedys_plan_stands() -> None:
    model = load_model("default")
    no_time = replace(model, search=replace(model.search, questions_share=0.0))
    plan = cycle(racks(1, of_cores("urgent", PUZZLES[0], priority=90), of_cores("low", (20,), priority=10)), no_time)
    assert admitted(plan) == {"low"}


def fits(racks: int, gangs: Sequence[Sequence[int]]) -> bool:
    """Whether all ``gangs`` find places, each in one rack: tried exhaustively."""

    def placed(free: list[list[int]], pods: list[tuple[int, int]], homes: dict[int, int]) -> bool:
        if not pods:
            return True
        (gang, cores), rest = pods[0], pods[1:]
        for rack in [homes[gang]] if gang in homes else range(racks):
            for node in sorted({free[rack].index(room) for room in free[rack] if room >= cores}):
                free[rack][node] -= cores
                if placed(free, rest, {**homes, gang: rack}):
                    return True
                free[rack][node] += cores
        return False

    return placed([[CORES, CORES] for _ in range(racks)], [(i, c) for i, g in enumerate(gangs) for c in g], {})


@st.composite
def one_queue(draw: st.DrawFn) -> tuple[int, list[tuple[int, ...]]]:
    """One or two racks, and gangs in their order."""
    small = st.lists(st.integers(4, 24), min_size=1, max_size=3).map(tuple)
    gang = st.one_of(st.sampled_from((*PUZZLES, TOO_MANY)), small)
    return draw(st.integers(1, 2)), draw(st.lists(gang, min_size=2, max_size=4))


@given(drawn=one_queue())
@some(25, campaign=500)
def test_each_gang_runs_that_can_beside_those_before_it(
    engine: Engine, drawn: tuple[int, list[tuple[int, ...]]]
) -> None:
    count, cores = drawn
    gangs = [of_cores(f"w{i}", each, priority=90 - i, born=float(i)) for i, each in enumerate(cores)]
    plan = decided(engine, racks(count, *gangs))
    expected: list[int] = []
    for number in range(len(cores)):
        if fits(count, [cores[i] for i in (*expected, number)]):
            expected.append(number)
    assert admitted(plan) == {f"w{i}" for i in expected}
    assert {entry.proof.state for entry in plan.pending} <= {"proven"}
