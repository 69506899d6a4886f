"""Room that was sought in vain for some pods is not sought for more pods of the same kind."""

from dataclasses import replace

import pytest

from kai_solver.actions.disrupt import search_of
from kai_solver.domain import Action, Gang, GpuRequest, PodSet, SubGroup, TopologyConstraint
from kai_solver.placement.fit import FitTable
from kai_solver.planstate.allocation_units import AllocationUnit, GangUnitsOf
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.problem import build_problem
from kai_solver.reasons.refusals import consolidation_is_off
from kai_solver.units import MILLI
from tests.support.builders import a_cluster, a_gang, a_node

HALF = GpuRequest(1, MILLI // 2)
ASKS_IN_VAIN = a_gang("w", HALF, HALF, HALF)


def is_vain(other: Gang, action: Action = Action.CONSOLIDATION, *, admits: bool = False) -> bool:
    """Whether ``action`` needs not seek room for ``other`` after it sought in vain for three half GPUs.

    ``admits``: a gang was admitted since.
    """
    problem = build_problem(a_cluster([a_node("n0")], [ASKS_IN_VAIN, other]))
    state = State(problem)
    units_of = GangUnitsOf(state)
    search = search_of(action, Outcome(state), FitTable(state), units_of)

    def of(name: str) -> tuple[Preemptor, AllocationUnit]:
        unit = next(units_of[gang.index].next() for gang in problem.gangs if gang.gang.name == name)
        assert unit is not None
        return Preemptor.of(problem, unit), unit

    search.remember(*of("w"), ("three halves",), consolidation_is_off())
    if admits:
        search.forget()
    return search.is_vain(*of("other"))


IN_ONE_RACK = SubGroup(children=(PodSet("main", 4, TopologyConstraint("dc", required="rack")),))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (a_gang("other", HALF, HALF, HALF, HALF), True),
        (a_gang("other", HALF, HALF), False),
        (a_gang("other", 1, 1, 1, 1), False),
        (a_gang("other", HALF, HALF, HALF, 1), False),
        (a_gang("other", HALF, HALF, HALF, HALF, root=IN_ONE_RACK), False),
    ],
    ids=["more", "fewer", "whole", "mixed", "in-one-rack"],
)
def test_only_more_of_identical_pods_are_in_vain(other: Gang, expected: bool) -> None:
    assert is_vain(other) is expected


def test_other_rights_may_make_room() -> None:
    """In preemption a higher priority has other victims; all gangs may have the same others moved."""
    urgent = a_gang("other", HALF, HALF, HALF, HALF, priority=100)
    assert is_vain(urgent)
    assert not is_vain(urgent, Action.PREEMPT)
    assert is_vain(a_gang("other", HALF, HALF, HALF, HALF), Action.PREEMPT)


def test_an_admission_may_have_left_room_but_not_where_others_only_moved() -> None:
    more = a_gang("other", HALF, HALF, HALF, HALF)
    assert not is_vain(more, Action.PREEMPT, admits=True)
    assert is_vain(more, Action.CONSOLIDATION, admits=True)


def test_a_larger_reclaim_may_have_victims_that_a_smaller_one_has_not() -> None:
    """Beyond its quota a queue may take from others that hold too much of anything, within it of what it asks for."""
    assert not is_vain(a_gang("other", HALF, HALF, HALF, HALF), Action.RECLAIM)


@pytest.mark.parametrize(("schedulable", "is_refused"), [(False, True), (True, False)], ids=["cordoned", "open"])
def test_gpus_that_no_gang_may_use_are_not_free_for_moves(schedulable: bool, is_refused: bool) -> None:
    """A node that is cordoned has all its GPUs free: they make no room for the wanted ones, whatever moves."""
    nodes = [a_node("n0", gpus=1), replace(a_node("n1", gpus=4), schedulable=schedulable)]
    problem = build_problem(a_cluster(nodes, [a_gang("w", 1, 1)]))
    state = State(problem)
    search = search_of(Action.CONSOLIDATION, Outcome(state), FitTable(state), GangUnitsOf(state))
    unit = GangUnitsOf(state)[0].next()
    assert unit is not None
    refusal = search.refusal(Preemptor.of(problem, unit))
    assert (refusal is not None) is is_refused
