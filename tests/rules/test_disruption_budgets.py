"""Disruption budgets where a second rule protects running pods too: hosts keep both, and name neither."""

from dataclasses import replace

import numpy as np

from kai_solver.bounds import Bounds
from kai_solver.domain import DisruptionBudget, Requirement, Snapshot
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import Problem, build_problem
from kai_solver.rules.disruption_budgets import BudgetFacts
from tests.support.builders import a_cluster, a_gang, a_node


class _OtherFacts(BudgetFacts):
    """The same of a rule by another name."""

    name, kind = "others", "other-rule"


def _snapshot(*budgets: DisruptionBudget) -> Snapshot:
    """Three gangs of one pod each, labelled ``one: yes``, ``two: yes``, and both."""
    labels = ({"one": "yes"}, {"two": "yes"}, {"one": "yes", "two": "yes"})
    gangs = [a_gang(f"g{i}", pods=1, on=["n1"], each={"labels": each}) for i, each in enumerate(labels)]
    return a_cluster([a_node("n1", 3)], gangs, budgets=budgets)


def _facts(label: str, allowed: int) -> BudgetFacts:
    budget = DisruptionBudget("ns", label, (Requirement(label, "Exists"),), allowed)
    (facts,) = build_problem(_snapshot(budget)).rules
    assert isinstance(facts, BudgetFacts)
    return facts


def _problem(one: int, two: int) -> Problem:
    """Both rules, each of which lets so many of its pods go."""
    facts = _facts("one", one), _OtherFacts(_facts("two", two).budgets)
    return replace(build_problem(_snapshot()), rules=facts)


def _pool(problem: Problem) -> VictimPool:
    return VictimPool.of_running(State(problem))


def test_units_leave_together_only_if_each_rule_lets_them() -> None:
    releases = _pool(_problem(1, 1)).releases
    assert [releases.fits(units) for units in ([0], [1], [2], [0, 1], [0, 2], [1, 2])] == [True] * 4 + [False] * 2
    assert releases.use(2) == ((("budgets", 0), 1), (("others", 0), 1))
    assert releases.left() == {("budgets", 0): 1, ("others", 0): 1}


def test_a_unit_that_one_rule_holds_never_leaves() -> None:
    releases = _pool(_problem(0, 1)).releases
    assert releases.held is not None
    assert releases.held.tolist() == [True, False, True]
    everything = np.ones(3, dtype=np.bool_)
    assert [blocker.name for blocker in releases.binding(everything)] == ["ns/one", "ns/two"]


def test_what_has_left_is_counted_by_both_rules() -> None:
    pool = _pool(_problem(1, 1))
    assert pool.releases.exhausted() == ()
    pool.leave(2)
    exhausted = pool.releases.exhausted()
    assert exhausted == (frozenset({0}), frozenset({0}))
    assert not pool.releases.open_units(exhausted).any()
    assert pool.state.may_be_gone()
    pool.leave(0)
    assert not pool.state.may_be_gone()


def test_bounds_hold_a_pod_that_two_rules_hold_once() -> None:
    bounds = Bounds(_problem(0, 0))
    barred = bounds.barred()
    assert barred is not None
    assert barred.all()
    only = bounds.barred(frozenset({"other-rule"}))
    assert only is not None
    assert only.tolist() == [True, False, True]
    assert bounds.barred(bounds.protections) is None
