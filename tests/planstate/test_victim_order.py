"""Whose turn it is to leave, against sorting everybody anew; and whether a reclaim would last."""

from copy import deepcopy
from dataclasses import replace
from functools import cmp_to_key

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.actions.survival import survives
from kai_solver.domain import Gang, Queue, Snapshot
from kai_solver.engine import cycle
from kai_solver.fairness import compare_queues, gang_order_key, queue_key
from kai_solver.modelfiles import load_model
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import Placer
from kai_solver.planstate.allocation_units import AllocationUnits
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

GREEDY = load_model("greedy-only")


def order_of(snapshot: Snapshot) -> list[str]:
    """Names of the first pods of all units, first victim first."""
    pool = VictimPool.of_running(State(build_problem(snapshot)))
    units = sorted(pool.units, key=lambda unit: pool.rank[unit.index])
    return [pool.state.problem.pods[unit.pods[0]].name for unit in units]


# -- literal orders --------------------------------------------------------------------------------------------------


def test_the_youngest_gang_goes_first() -> None:
    gangs = [a_gang(name, on="n", created_s=born) for name, born in (("old", 1.0), ("young", 3.0), ("mid", 2.0))]
    assert order_of(a_cluster([a_node("n", 4)], gangs, [a_queue("q", 0)])) == ["young-0", "mid-0", "old-0"]


def test_lower_priority_goes_before_youth() -> None:
    gangs = [a_gang("young", on="n", created_s=3.0), a_gang("low", on="n", created_s=1.0)]
    gangs[1] = replace(gangs[1], priority=10)
    assert order_of(a_cluster([a_node("n", 4)], gangs, [a_queue("q", 0)])) == ["low-0", "young-0"]


def test_surplus_goes_last_in_first_out_and_before_any_core() -> None:
    elastic = a_gang("elastic", pods=3, on="n", created_s=1.0, need=1)
    plain = a_gang("plain", on="n", created_s=2.0)
    found = order_of(a_cluster([a_node("n", 4)], [elastic, plain], [a_queue("q", 0)]))
    assert found == ["elastic-2", "elastic-1", "plain-0", "elastic-0"]


def test_a_queue_without_any_share_goes_before_one_within_its_own() -> None:
    queues = [a_queue("entitled", 2), a_queue("none", 0, weight=0.0)]
    gangs = [a_gang("a", queue="entitled", on="n"), a_gang("b", queue="none", on="n")]
    assert order_of(a_cluster([a_node("n", 2)], gangs, queues)) == ["b-0", "a-0"]


def test_the_queue_of_higher_priority_goes_last() -> None:
    queues = [a_queue("high", 1, priority=101), a_queue("low", 1)]
    gangs = [a_gang(f"{q}{i}", queue=q, on="n", created_s=float(i)) for q in ("high", "low") for i in range(2)]
    found = order_of(a_cluster([a_node("n", 4)], gangs, queues))
    assert found.index("low1-0") < found.index("high1-0")


# -- against the slow way --------------------------------------------------------------------------------------------


@st.composite
def running_clusters(draw: st.DrawFn) -> Snapshot:
    queues: list[Queue] = []
    for parent in "ab"[: draw(st.integers(1, 2))]:
        queues.append(a_queue(parent, draw(st.integers(0, 3)), priority=draw(st.sampled_from([100, 101]))))
        for child in "xyz"[: draw(st.integers(0, 3))]:
            weight = float(draw(st.integers(0, 2)))
            queues.append(a_queue(parent + child, draw(st.integers(0, 2)), parent=parent, weight=weight))
    parents = {queue.parent for queue in queues}
    leaves = [queue.name for queue in queues if queue.name not in parents]
    gangs = []
    for number in range(draw(st.integers(1, 8))):
        pods = draw(st.integers(1, 3))
        gang = a_gang(
            f"g{number}",
            queue=draw(st.sampled_from(leaves)),
            pods=pods,
            gpus=draw(st.integers(0, 2)),
            on="n",
            need=draw(st.integers(1, pods)),
            created_s=float(draw(st.integers(0, 2))),
        )
        gangs.append(replace(gang, priority=draw(st.sampled_from([50, 60]))))
    return a_cluster([a_node("n", 60)], gangs, queues)


def slow_order(pool: VictimPool) -> list[int]:
    """Every key of every level computed anew for each victim, and all sorted."""
    problem = pool.state.problem
    tree = problem.queues
    left = {gang: list(units) for gang, units in pool.of_gang.items() if units}
    lost = [[0, 0, 0] for _ in tree.names]
    found: list[int] = []

    def job_key(gang: int) -> tuple[int, int, float, str]:
        shape = problem.gangs[gang]
        active = sum(len(pool.units[u].pods) for u in left[gang])
        minimum = sum(leaf.min_member for leaf in shape.leaves)
        return gang_order_key(shape.gang.priority, active, minimum, shape.gang.created_s, shape.gang.key)

    def below(queue: int) -> list[int]:
        return [gang for gang in left if queue in tree.path[problem.gangs[gang].queue]]

    def order(one: int, other: int) -> int:
        keys = [
            queue_key(
                tree, problem.share, problem.allocatable, problem.total, q, problem.allocated[q], (0, 0, 0), lost[q]
            )
            for q in (one, other)
        ]
        return compare_queues(tree, problem.allocatable, one, keys[0], other, keys[1])

    while left:
        level = tree.roots
        while True:
            queue = max((q for q in level if below(q)), key=cmp_to_key(order))
            if not tree.children[queue]:
                break
            level = tree.children[queue]
        gang = max(below(queue), key=job_key)
        unit = left[gang].pop(0)
        if not left[gang]:
            del left[gang]
        for ancestor in tree.path[queue]:
            lost[ancestor] = [a + c for a, c in zip(lost[ancestor], pool.units[unit].charge, strict=True)]
        found.append(unit)
    return found


@pytest.mark.slow
@given(snapshot=running_clusters())
@settings(max_examples=150, deadline=None)
def test_victims_come_as_if_all_were_sorted_anew(snapshot: Snapshot) -> None:
    pool = VictimPool.of_running(State(build_problem(snapshot)))
    assert sorted(range(len(pool.units)), key=pool.rank.__getitem__) == slow_order(pool)


# -- does a reclaim last ---------------------------------------------------------------------------------------------


def two_queues(*waiting: Gang) -> Snapshot:
    """Queue a holds three of four GPUs, b one; each deserves two."""
    gangs = [
        a_gang("a0", queue="a", gpus=2, on="n", created_s=1.0),
        a_gang("a1", queue="a", on="n", created_s=2.0),
        a_gang("b0", queue="b", on="n", created_s=1.0),
        *waiting,
    ]
    return a_cluster([a_node("n", 4)], gangs, [a_queue("a", 2), a_queue("b", 2)])


def test_a_queue_takes_back_what_it_deserves() -> None:
    plan = cycle(two_queues(a_gang("b1", queue="b", created_s=5.0)), GREEDY)
    assert [e.gang for e in plan.evictions] == ["ns/a1"]


def test_nothing_is_evicted_for_a_place_that_the_next_cycle_gives_back() -> None:
    """An older gang of b asks for more than b deserves: b would be served after a, and a1 would have its GPU again."""
    older = a_gang("b-large", queue="b", gpus=3, created_s=4.0)
    plan = cycle(two_queues(older, a_gang("b1", queue="b", created_s=5.0)), GREEDY)
    assert not plan.evictions
    assert {p.gang for p in plan.pending} == {"ns/b-large", "ns/b1"}


def test_the_question_leaves_the_state_as_it_was() -> None:
    problem = build_problem(
        two_queues(a_gang("b-large", queue="b", gpus=3, created_s=4.0), a_gang("b1", queue="b", created_s=5.0))
    )
    state = State(problem)
    gang_units = [AllocationUnits(gang, kept) for gang, kept in zip(problem.gangs, state.gangs, strict=True)]
    names = [gang.gang.name for gang in problem.gangs]
    victim, comer = problem.gangs[names.index("a1")].active[0], gang_units[names.index("b1")].next()
    assert comer is not None
    fits = FitTable(state)
    state.evict(victim)
    assert Placer(state, fits=fits).place_unit(comer)
    future, pending, places = state.future.copy(), [g.pending for g in deepcopy(state.gangs)], dict(state.places)
    waiting = [names.index("b-large"), names.index("b1")]
    assert not survives(state, fits, gang_units, comer, [victim], waiting)
    assert survives(state, fits, gang_units, comer, [victim], waiting[1:])
    assert (state.future == future).all()
    assert [g.pending for g in state.gangs] == pending
    assert state.places == places
