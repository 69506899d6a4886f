"""What may still be taken, asked unit by unit, against the judgement of the whole set."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.actions.allowance import Allowance
from kai_solver.fairness import ReclaimLedger
from kai_solver.planstate.allocation_units import AllocationUnits
from kai_solver.planstate.eligibility import Preemptor, reclaim_allowed
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

NODES = 6


@st.composite
def contested(draw: st.DrawFn) -> State:
    """A queue that asks, and others of two levels whose gangs of one pod fill the nodes."""
    queues = [
        a_queue("root", -1),
        a_queue("asks", draw(st.integers(0, 6)), parent="root", weight=draw(st.sampled_from([0, 1]))),
    ]
    leaves = ["asks"]
    for name in "ab"[: draw(st.integers(1, 2))]:
        quota = st.sampled_from([-1, 0, 1, 3])
        queues.append(a_queue(name, draw(quota), parent="root", weight=draw(st.sampled_from([0.0, 1.0]))))
        leaves += [name + leaf for leaf in "xy"]
        queues += [a_queue(name + leaf, draw(quota), parent=name, weight=1.0) for leaf in "xy"]
    gangs = [
        a_gang(f"r{n}", queue=draw(st.sampled_from(leaves)), gpus=draw(st.integers(1, 3)), on=f"n{n}")
        for n in range(NODES)
    ]
    gangs.append(a_gang("w", queue="asks", gpus=draw(st.integers(1, 3))))
    nodes = [a_node(f"n{n}", 3) for n in range(NODES)]
    return State(build_problem(a_cluster(nodes, gangs, queues)))


@pytest.mark.slow
@given(state=contested(), order=st.permutations(range(NODES)))
@settings(max_examples=150, deadline=None)
def test_unit_by_unit_allows_what_the_whole_set_is_allowed(state: State, order: list[int]) -> None:
    problem, pool = state.problem, VictimPool.of_running(state)
    number = next(g.index for g in problem.gangs if g.pending)
    allocation_unit = AllocationUnits(problem.gangs[number], state.gangs[number]).next()
    assert allocation_unit is not None
    who = Preemptor.of(problem, allocation_unit)
    leaves = {int(queue) for queue in pool.queue_of if queue != who.queue}
    before = problem.reclaim_right([list(row) for row in state.allocated], who.queue, who.charge)
    eligible = set(filter(before.may_look_at, leaves))
    allowance = Allowance(state, pool, who.queue, who.charge, eligible)
    taken: list[int] = []
    for unit in (u for u in order if pool.queue_of[u] in eligible):
        spent = allowance.spent(taken)
        exhausted = allowance.exhausted(spent)
        allows = allowance.allows(spent, [unit])
        pool.leave(unit)
        assert allows == reclaim_allowed(state, pool, ReclaimLedger(before), [*taken, unit])
        assert not allows or allowance.open_units(exhausted)[unit]
        if allows:
            taken.append(unit)
        else:
            state.restore(pool.units[unit].pods[0])


@given(state=contested(), order=st.permutations(range(NODES)))
@settings(max_examples=60, deadline=None)
def test_a_queue_that_may_not_lose_so_many_gpus_may_lose_no_set_that_holds_them(state: State, order: list[int]) -> None:
    problem, pool = state.problem, VictimPool.of_running(state)
    number = next(g.index for g in problem.gangs if g.pending)
    allocation_unit = AllocationUnits(problem.gangs[number], state.gangs[number]).next()
    assert allocation_unit is not None
    who = Preemptor.of(problem, allocation_unit)
    before = problem.reclaim_right([list(row) for row in state.allocated], who.queue, who.charge)
    for queue in {int(queue) for queue in pool.queue_of if queue != who.queue}:
        mark, taken, lost = state.mark(), list[int](), 0
        for unit in (u for u in order if pool.queue_of[u] == queue):
            pool.leave(unit)
            taken.append(unit)
            lost += pool.units[unit].charge[2]
            if reclaim_allowed(state, pool, ReclaimLedger(before), taken):
                assert before.may_lose_gpus(queue, lost)
        state.rollback(mark)
