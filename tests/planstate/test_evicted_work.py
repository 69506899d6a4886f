"""What evicted work is worth: at least a minute, so that no gang is broken for a second's work."""

import numpy as np
import pytest

from kai_solver.domain import Snapshot
from kai_solver.engine import Engine
from kai_solver.modelfiles import load_model
from kai_solver.planstate.eviction_units import works_lost
from kai_solver.problem import build_problem
from tests.support.builders import NOW_S, a_cluster, a_gang, a_node, a_queue


def elastic_gangs(*ran_s: float) -> Snapshot:
    """Gangs of two pods, of which one is enough, have run for so long; an urgent pod wants two of their GPUs."""
    running = [
        a_gang(f"low-{index}", pods=2, need=1, on="n", priority=50, last_start_s=NOW_S - seconds)
        for index, seconds in enumerate(ran_s)
    ]
    urgent = a_gang("urgent", 2, priority=125, preemptible=False)
    return a_cluster([a_node("n", 2 * len(ran_s))], [*running, urgent], [a_queue("q", 2 * len(ran_s), 2 * len(ran_s))])


@pytest.mark.parametrize("model", ["greedy-only", "default"])
@pytest.mark.parametrize("ran_s", [(3.0, 2.0), (2.0, 3.0), (59.0, 1.0)])
def test_surplus_of_two_gangs_leaves_and_not_the_younger_gang(model: str, ran_s: tuple[float, ...]) -> None:
    with Engine(load_model(model)) as engine:
        plan = engine.cycle(elastic_gangs(*ran_s), budget_s=5.0)
    assert sorted(eviction.gang for eviction in plan.evictions) == ["ns/low-0", "ns/low-1"]


@pytest.mark.parametrize(("ran_s", "counted_s"), [(0.0, 60.0), (59.0, 60.0), (61.0, 61.0), (3_629.0, 3_629.0)])
def test_work_counts_from_a_minute_on(ran_s: float, counted_s: float) -> None:
    problem = build_problem(elastic_gangs(ran_s, ran_s))
    charge = np.array([[0, 0, 1000]])
    assert works_lost(problem, np.array([0]), charge).tolist() == [counted_s]
