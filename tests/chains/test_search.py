"""The chain search on small random problems: results keep the rules, and are near the best there is."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.chains.arrays import NONE, ChainProblem, ChainResult
from kai_solver.chains.search import ChainSearch
from tests.support.chain_problems import faults, least_cost, random_problem

SEEDS = st.integers(0, 10**6)


def cost_at_start(problem: ChainProblem) -> int:
    return ChainSearch(problem, 0).result().cost


def searched(problem: ChainProblem, seed: int, *, leaving: bool = False) -> ChainResult:
    search = ChainSearch(problem, seed)
    search.admit(len(problem.turn), leaving=leaving)
    search.lessen(40)
    search.again()
    search.admit(len(problem.turn), leaving=leaving)
    return search.result()


@given(SEEDS, st.booleans())
@settings(max_examples=150, deadline=None)
def test_results_keep_all_rules(seed: int, leaving: bool) -> None:
    problem = random_problem(seed)
    assert faults(problem, searched(problem, seed, leaving=leaving)) == []


@given(SEEDS)
@settings(max_examples=50, deadline=None)
def test_without_turns_what_is_in_stays_and_nothing_gets_dearer(seed: int) -> None:
    problem = random_problem(seed)
    search = ChainSearch(problem, seed)
    before = search.result()
    assert before.node.tolist() == problem.start.tolist()
    costs = [before.cost]
    for _ in range(3):
        search.lessen(10)
        costs.append(search.result().cost)
    assert costs == sorted(costs, reverse=True)


@given(SEEDS)
@settings(max_examples=50, deadline=None)
def test_in_turns_where_nothing_may_leave_all_that_is_in_stays_in(seed: int) -> None:
    problem = random_problem(seed)
    search = ChainSearch(problem, seed)
    search.admit(len(problem.turn))
    result = search.result()
    first = problem.first[:-1]
    assert result.is_in[problem.start[first] != NONE].all()
    if problem.moves_per_turn >= 0:
        assert result.moves <= problem.moves_per_turn * len(problem.turn)


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_no_result_is_better_than_the_best(seed: int) -> None:
    problem = random_problem(seed, groups=5)
    result = searched(problem, seed)
    waits = np.zeros(len(problem.cost), dtype=np.bool_)
    waits[problem.turn] = result.is_in[problem.turn]
    assert result.cost >= least_cost(problem, waits)
