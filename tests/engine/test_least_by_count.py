"""Sums that prove a plan the least disruptive: never more than the best choice of victims, and the stages agree."""

from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.actions import Actions
from kai_solver.domain import Action, GpuRequest, Plan, Snapshot
from kai_solver.engine import Engine, counted
from kai_solver.engine.counted import WORK, proven_by_count
from kai_solver.engine.stages import measured_stages
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import build_problem
from kai_solver.search.oracle import SolverActions
from kai_solver.search.rights import rights_of
from kai_solver.units import UNLIMITED
from tests.support.builders import a_cluster, a_gang, a_node, a_pod, a_queue

NAMES = ("disruption", "preference", "victim-order")


def ran(snapshot: Snapshot) -> Outcome:
    return Actions(
        build_problem(snapshot), (Action.ALLOCATE, Action.RECLAIM, Action.PREEMPT), SolverActions(None)
    ).run()


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to eight gangs run, of two priorities and several sizes and ages; some wait with a higher one."""
    nodes = [a_node(f"n{index}", 4) for index in range(draw(st.integers(1, 3)))]
    free, gangs = {node.name: 4 for node in nodes}, []
    for number in range(draw(st.integers(1, 8))):
        pods, gpus = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (3, 1)]))
        node = next((name for name, left in free.items() if left >= pods * gpus), "")
        if node:
            free[node] -= pods * gpus
            need = draw(st.integers(1, pods))
            gang = a_gang(f"old-{number}", pods=pods, gpus=gpus, on=node, need=need, priority=50 + 5 * (number % 2))
            gangs.append(replace(gang, last_start_s=draw(st.sampled_from([0.0, 500.0, 990.0]))))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    gangs += [a_gang(f"new-{number}", gpus=gpus, priority=90) for number, gpus in enumerate(sizes)]
    return a_cluster(nodes, gangs, [a_queue("q", UNLIMITED)])


@pytest.mark.slow
@given(snapshot=clusters())
@settings(max_examples=100, deadline=None)
def test_no_choice_of_victims_is_below_the_sums(snapshot: Snapshot) -> None:
    outcome = ran(snapshot)
    if outcome.pool is None:
        return
    evictable = rights_of(outcome).by_action.get(Action.PREEMPT, frozenset())
    sums = counted._Sums(outcome, outcome.pool, np.array(sorted(evictable), dtype=np.int64))
    strata = np.unique(sums.stratum)[::-1].tolist()
    best: tuple[int, ...] | None = None
    for choice in product((False, True), repeat=len(sums.work)):
        gone = np.array(choice, dtype=np.bool_)
        if (sums.held[:, gone].sum(axis=1) < sums.need).any():
            continue
        work = [int(sums.work[gone & (sums.stratum == stratum)].sum()) for stratum in strata]
        cost = (*work, int((gone & sums.is_core).sum()), int(sums.pods[gone].sum()))
        best = cost if best is None else min(best, cost)
    assert best is not None
    names = [*(f"{WORK}{stratum}" for stratum in strata), "gangs-broken", "evicted-pods"]
    bounds = sums.bounds(dict(zip(names, best, strict=True)))
    assert all(bounds[name] <= value for name, value in zip(names, best, strict=True))


def many(takers: int, gpus: int = 1, *, of: int = 160) -> Snapshot:
    """Takers of so many GPUs, owed to their queue, and full nodes of four one-GPU pods of another."""
    nodes = [a_node(f"n{index:02}", 4) for index in range(of // 4)]
    gangs = [a_gang(f"old-{index}", queue="theirs", on=nodes[index // 4].name) for index in range(of)]
    gangs += [a_gang(f"new-{index}", queue="mine", gpus=gpus, created_s=1.0) for index in range(takers)]
    return a_cluster(nodes, gangs, [a_queue("mine", takers * gpus), a_queue("theirs", 0)])


def test_the_stages_find_nothing_better_where_sums_prove_the_plan(engine: Engine) -> None:
    snapshot = many(12)
    by_count = engine.cycle(snapshot, budget_s=60.0)
    assert by_count.source == "bound"
    assert "first" not in by_count.timing_s  # Nothing was asked.
    with patch.object(counted, "MOST_RANKED", 1000):
        searched = engine.cycle(snapshot, budget_s=60.0)
    assert "first" in searched.timing_s
    assert _said(searched) == _said(by_count)


def _said(plan: Plan) -> list[object]:
    return [[(s.name, s.value, s.bound, s.optimal) for s in plan.stages], plan.evictions, plan.binds, plan.moves]


def test_sums_prove_nothing_where_what_is_free_lies_apart_unless_the_taker_needs_most_of_a_node() -> None:
    for gpus, left, is_proven in ((3, {"old-0"}, True), (2, {"old-0", "old-4"}, False), (3, {"old-0", "old-4"}, True)):
        full = many(1, gpus)
        cluster = replace(full, gangs=tuple(gang for gang in full.gangs if gang.name not in left))
        outcome = ran(cluster)
        assert len(outcome.admissions) == 1
        found = proven_by_count(outcome, rights_of(outcome), NAMES, measured_stages(outcome))
        assert (found is not None) is is_proven


def test_sums_bound_what_leaves_where_they_do_not_prove_what_moves() -> None:
    """Of eight nodes half full, five are needed empty: ten pods leave, and four of them have no place elsewhere."""
    nodes = [a_node(f"n{index}", 4) for index in range(8)]
    gangs = [a_gang(f"old-{index}", queue="theirs", on=nodes[index // 2].name) for index in range(16)]
    snapshot = a_cluster(nodes, gangs, [a_queue("mine", 20), a_queue("theirs", 0)])
    newcomers = tuple(a_gang(f"new-{index}", queue="mine", gpus=4, created_s=1.0) for index in range(5))
    outcome = ran(replace(snapshot, gangs=(*snapshot.gangs, *newcomers)))
    measured = measured_stages(outcome)
    values = {stage.name: int(stage.value) for stage in measured}
    assert values["evicted-pods"] >= 4
    bounds = counted.bounds_by_count(outcome, rights_of(outcome), values)
    assert bounds is not None
    assert bounds["evicted-pods"] == bounds["gangs-broken"] == 4
    assert bounds["moved-pods"] == max(0, 10 - values["evicted-pods"])
    assert counted.bounds_by_count(outcome, rights_of(outcome), values | {"evicted-pods": 4})["moved-pods"] == 6  # type: ignore[index]
    assert proven_by_count(outcome, rights_of(outcome), NAMES, measured) is None


def test_sums_prove_nothing_of_pods_that_take_less_elsewhere_or_gangs_that_could_give_up_others() -> None:
    full = many(2)
    assert _is_proven(full)
    for gpus in (1, 0):
        gang = a_gang("old-0", queue="theirs", pods=3, on="n00", need=2)
        gang = replace(gang, pods=(*gang.pods[:2], a_pod("old-0-2", gpus, "n00", order=2)))
        assert _is_proven(replace(full, gangs=(gang, *full.gangs[2 + gpus :]))) is (gpus == 1)
    by_memory = replace(full.gangs[0].pods[0], gpu=GpuRequest(1, 0, memory_mib=100))
    assert not _is_proven(replace(full, gangs=(replace(full.gangs[0], pods=(by_memory,)), *full.gangs[1:])))


def _is_proven(snapshot: Snapshot) -> bool:
    outcome = ran(snapshot)
    return proven_by_count(outcome, rights_of(outcome), NAMES, measured_stages(outcome)) is not None


def test_few_victims_and_stages_of_ones_own_are_searched() -> None:
    outcome = ran(many(2, of=40))
    assert proven_by_count(outcome, rights_of(outcome), NAMES, measured_stages(outcome)) is None
    outcome = ran(many(2))
    assert proven_by_count(outcome, rights_of(outcome), NAMES, measured_stages(outcome)) is not None
    for other in ("mine", "leftover"):
        assert proven_by_count(outcome, rights_of(outcome), (other, *NAMES), measured_stages(outcome)) is None
