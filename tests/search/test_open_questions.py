"""Gangs that wait without a proof are asked for once more, in policy order, by rules, bounds and CP-SAT."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.actions import Actions
from kai_solver.check import check_plan
from kai_solver.domain import Action, Gang, Plan, SearchSpec, Snapshot, SolverModel, flat_gang
from kai_solver.engine import Engine
from kai_solver.model.spec import SpecAnswer
from kai_solver.modelfiles import load_model
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import build_problem
from kai_solver.search.budget import Budget
from kai_solver.search.child import SolverChild
from kai_solver.search.open_questions import OpenQuestions
from kai_solver.search.oracle import UNKNOWN, SolverActions
from kai_solver.search.solver_client import SolverClient
from kai_solver.units import MILLI
from tests.support.builders import RACK, RACKS, a_cluster, a_gang, a_node, a_pod, a_queue, told_apart
from tests.support.clusters import some

MODEL = SolverModel("test", search=SearchSpec(workers=1, presolve="none", question_s=5.0))
PUZZLES = ((18, 12, 7, 6, 15, 5), (5, 6, 15, 7, 10, 19), (7, 5, 9, 13, 12, 16), (11, 11, 7, 10, 19, 5))
"""Cores of pods which just fit two nodes of 32, in a way that the greedy does not find."""


class CountingChild(SolverChild):
    """Counts its questions."""

    asked = 0

    def solve(self, *arguments: Any, **options: Any) -> SpecAnswer:
        self.asked += 1
        return super().solve(*arguments, **options)


@pytest.fixture(scope="module")
def child() -> Iterator[CountingChild]:
    with CountingChild() as child:
        assert child.wait(60.0), "no test fails because the machine is slow to start it"
        yield child


@pytest.fixture(scope="module")
def engine(child: CountingChild) -> Engine:
    return Engine(load_model("deterministic"), child=child)


def of_cores(name: str, cores: Sequence[int], born: float = 0.0, *, queue: str = "a", priority: int = 50) -> Gang:
    pods = (a_pod(f"{name}-{i}", 0, cpu=each * MILLI, order=i) for i, each in enumerate(cores))
    root = flat_gang(len(cores), RACK)
    return a_gang(name, *pods, queue=queue, created_s=born, root=root, priority=priority)


def racks(count: int, gangs: Sequence[Gang]) -> Snapshot:
    """Racks of two nodes with 32 cores each."""
    nodes = [a_node(f"n{i}", 0, cpu=32 * MILLI, rack=f"r{i // 2}") for i in range(2 * count)]
    return a_cluster(nodes, gangs, [a_queue("a"), a_queue("b")], topologies=(RACKS,))


def asked(
    snapshot: Snapshot, child: SolverChild, is_late: Callable[[], bool] = lambda: False, model: SolverModel = MODEL
) -> tuple[Outcome, int]:
    """What the greedy left open, asked again; how many were admitted."""
    outcome = Actions(build_problem(snapshot), (Action.ALLOCATE,), SolverActions(None, UNKNOWN)).run()
    client = SolverClient(model, child, Budget(60.0, time.monotonic, time.monotonic()))
    questions = OpenQuestions(outcome, (Action.ALLOCATE,), SolverActions(client, UNKNOWN))
    return outcome, questions.run(is_late)


def proofs(plan: Plan) -> dict[str, str]:
    return {pending.gang: pending.proof.state for pending in plan.pending}


@pytest.mark.parametrize("cores", PUZZLES)
def test_a_gang_gets_the_room_that_the_greedy_does_not_find(child: CountingChild, cores: Sequence[int]) -> None:
    """The greedy alone admits none: all that is admitted is by the solver."""
    outcome, admitted = asked(racks(1, [of_cores("w", cores)]), child)
    assert admitted == 1
    assert [a.by_solver for a in outcome.admissions] == [True]


def test_the_first_in_order_are_admitted_where_there_is_no_room_for_all(engine: Engine) -> None:
    snapshot = racks(3, [of_cores(f"w{i}", PUZZLES[0], float(9 - i)) for i in range(9)])
    plan = engine.cycle(snapshot)
    assert {name for name, _ in plan.admitted} == {"ns/w8", "ns/w7", "ns/w6"}
    assert set(proofs(plan).values()) == {"proven"}
    assert check_plan(snapshot, plan) == ()


def test_a_higher_priority_comes_before_an_older_gang(engine: Engine) -> None:
    gangs = [of_cores("old", PUZZLES[0], 1.0), of_cores("urgent", PUZZLES[1], 2.0, priority=60)]
    plan = engine.cycle(racks(1, gangs))
    assert [name for name, _ in plan.admitted] == ["ns/urgent"]
    assert proofs(plan) == {"ns/old": "proven"}


def test_equal_gangs_share_a_no(child: CountingChild) -> None:
    snapshot = racks(1, [of_cores(f"w{i}", (17, 17, 10, 10, 10), float(i)) for i in range(4)])
    questions = []
    for one in (snapshot, told_apart(snapshot)):
        before = child.asked
        outcome, admitted = asked(one, child)
        assert admitted == 0
        assert {refusals[Action.ALLOCATE].proof.state for refusals in outcome.refusals.values()} == {"proven"}
        questions.append(child.asked - before)
    assert questions[1] == 4 * questions[0]


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to four racks, and runs of identical gangs of two queues."""
    gangs = []
    for kind in range(draw(st.integers(1, 2))):
        cores = draw(st.sampled_from(PUZZLES))
        for i in range(draw(st.integers(1, 5))):
            born, queue = float(draw(st.integers(0, 9))), draw(st.sampled_from("aab"))
            gangs.append(of_cores(f"w{kind}{i}", cores, born, queue=queue))
    return racks(draw(st.integers(1, 4)), gangs)


@given(snapshot=clusters())
@some(15, campaign=300)
def test_the_same_gangs_are_admitted_as_if_all_differed(engine: Engine, snapshot: Snapshot) -> None:
    plan, apart = engine.cycle(snapshot), engine.cycle(told_apart(snapshot))
    assert check_plan(snapshot, plan) == ()
    if "unknown" not in {*proofs(plan).values(), *proofs(apart).values()}:
        assert (sorted(plan.admitted), proofs(plan)) == (sorted(apart.admitted), proofs(apart))


def test_a_gang_with_a_proof_is_not_asked_for(child: CountingChild) -> None:
    before = child.asked
    _, admitted = asked(racks(1, [of_cores("w", (33,))]), child)
    assert (admitted, child.asked) == (0, before)


def test_nothing_is_asked_once_the_time_has_ended(child: CountingChild) -> None:
    before = child.asked
    outcome, admitted = asked(racks(1, [of_cores("w", PUZZLES[0])]), child, lambda: True)
    assert (admitted, child.asked) == (0, before)
    assert outcome.refusals[0][Action.ALLOCATE].proof.state == "unknown"


def test_a_proof_says_beside_what_it_holds(child: CountingChild) -> None:
    """Found before others may come in it holds beside what was admitted before; at the end, beside the whole plan."""
    snapshot = racks(1, [of_cores("w", (17, 17, 10, 10, 10))])
    outcome, _ = asked(snapshot, child)
    assert outcome.refusals[0][Action.ALLOCATE].proof.beside == "earlier"
    client = SolverClient(MODEL, child, Budget(math.inf, time.monotonic, time.monotonic()))
    again = Actions(build_problem(snapshot), (Action.ALLOCATE,), SolverActions(None, UNKNOWN)).run()
    OpenQuestions(again, (Action.ALLOCATE,), SolverActions(client, UNKNOWN)).run(lambda: False, beside="plan")
    assert again.refusals[0][Action.ALLOCATE].proof.beside == "plan"


@pytest.mark.parametrize("low", [(), (of_cores("low", (20,), 2.0, priority=10),)])
def test_a_proof_beside_a_gang_of_later_order_says_so(engine: Engine, low: tuple[Gang, ...]) -> None:
    """The greedy does not find room for the urgent gang, and gives it to the other one."""
    urgent = of_cores("urgent", PUZZLES[0] if low else (17, 17, 10, 10, 10), 1.0, priority=90)
    plan = engine.cycle(racks(1, [urgent, *low]))
    found = {pending.gang: pending.proof for pending in plan.pending}
    if "ns/urgent" in found:
        assert found["ns/urgent"].state == "proven"
        assert found["ns/urgent"].beside == ("plan" if low else "earlier")
    else:
        assert [name for name, _ in plan.admitted] == ["ns/urgent"]
