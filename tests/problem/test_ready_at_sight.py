"""Gangs of which columns say that they are ready are those of which nothing more has to be asked."""

from dataclasses import replace

import pytest

from kai_solver.domain import Constraints, Gang, PodSet, PodStatus, SubGroup, Topology, TopologyLevel
from kai_solver.planstate.allocation_units import GangUnitsOf
from kai_solver.planstate.state import State
from kai_solver.problem import build_problem
from kai_solver.reasons.refusals import not_ready
from tests.support.builders import RACK, a_cluster, a_gang, a_node

TWO_PARTS = SubGroup("", (PodSet("x", 1), PodSet("y", 1)))
BLOCKED = {"constraints": Constraints(blocked=("a volume is missing",))}
DC = Topology("dc", (TopologyLevel("rack"),))


def gated(gang: Gang, count: int) -> Gang:
    pods = gang.pods
    return replace(gang, pods=tuple(replace(pod, status=PodStatus.GATED) for pod in pods[:count]) + pods[count:])


@pytest.mark.parametrize(
    ("gang", "is_ready_at_sight"),
    [
        (a_gang("g"), True),
        (a_gang("g", pods=3, need=2, on=["n"]), True),
        (gated(a_gang("g", pods=3, need=2), 1), True),
        (gated(a_gang("g", pods=3, need=2), 2), False),
        (a_gang("g", pods=2, need=3), False),
        (a_gang("g", each=BLOCKED), False),
        (a_gang("g", pods=2, root=TWO_PARTS), False),
        (a_gang("g", root=replace(a_gang("g").root, topology=RACK)), False),
        (a_gang("g", on="n"), False),
    ],
    ids=[
        "waits", "may grow", "enough are not gated", "too many are gated", "too few exist",
        "blocked", "two podsets", "one rack", "runs",
    ],
)  # fmt: skip
def test_what_is_ready_at_sight_is_ready(gang: Gang, is_ready_at_sight: bool) -> None:
    problem = build_problem(a_cluster([a_node("n", rack="r")], [gang], topologies=(DC,)))
    shape, units = problem.gangs[0], GangUnitsOf(State(problem))
    assert bool(problem.gang_columns.is_ready[0]) == is_ready_at_sight
    if is_ready_at_sight:
        assert shape.pending
        assert not_ready(problem, shape, units[0]) is None
