"""Rule ``budgets``: each of the Eviction API's rules alone; and the checker against what the engine counts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check.budgets import judge_budgets
from kai_solver.check.scene import set_scene
from kai_solver.domain import DisruptionBudget, Eviction, Move, Plan, PodStatus, Requirement, Snapshot
from kai_solver.problem import build_problem
from tests.check.support import evict
from tests.support.builders import a_cluster, a_gang, a_node

APP = (Requirement("app", "In", ("x",)),)


def cluster(*budgets: DisruptionBudget, refused: Sequence[str] = (), **pod: Any) -> Snapshot:
    """Three running pods ``ns/g-0`` to ``ns/g-2``, labelled ``app: x``."""
    pod = {"labels": {"app": "x"}, **pod}
    running = a_gang("g", pods=3, on=["n1", "n1", "n2"], each=pod)
    return a_cluster([a_node("n1", 2), a_node("n2", 2)], [running], budgets=budgets, refused=frozenset(refused))


def budget(allowed: int, **fields: Any) -> DisruptionBudget:
    return replace(DisruptionBudget("ns", "b", APP, allowed), **fields)


def texts(here: Snapshot, *leaving: Eviction | Move) -> list[str]:
    evictions = tuple(entry for entry in leaving if isinstance(entry, Eviction))
    moves = tuple(entry for entry in leaving if isinstance(entry, Move))
    return [violation.text for violation in judge_budgets(set_scene(here, Plan(evictions=evictions, moves=moves)))]


def test_no_more_leave_than_a_budget_allows() -> None:
    two = (evict("g", 0, "n1", "h"), evict("g", 1, "n1", "h"))
    assert texts(cluster(budget(2)), *two) == []
    assert texts(cluster(budget(1)), *two) == [
        "disruption budget ns/b: allows 1 to leave, and more do, among them ns/g-1"
    ]


def test_what_moves_and_what_is_stale_counts_too() -> None:
    move = Move("ns/g-0", "ns/g", "n1", "n2")
    stale = evict("g", 2, "n2", reason="stale")
    assert texts(cluster(budget(2)), move, stale) == []
    assert len(texts(cluster(budget(1)), move, stale)) == 1


@pytest.mark.parametrize(
    ("fields", "is_counted"),
    [
        ({}, True),
        ({"selector": ()}, True),
        ({"namespace": "other"}, False),
        ({"selector": (Requirement("app", "NotIn", ("x",)),)}, False),
    ],
)
def test_a_budget_counts_what_it_matches_in_its_namespace(fields: dict[str, Any], is_counted: bool) -> None:
    assert len(texts(cluster(budget(0, **fields)), evict("g", 0, "n1"))) == is_counted


def test_what_is_not_ready_goes_free_where_the_budget_says_so() -> None:
    leaving = evict("g", 0, "n1")
    assert texts(cluster(budget(0, spares_unready=True), ready=False), leaving) == []
    assert len(texts(cluster(budget(0, spares_unready=True)), leaving)) == 1
    assert len(texts(cluster(budget(0), ready=False), leaving)) == 1


def test_what_two_budgets_match_never_leaves() -> None:
    both = budget(9, spares_unready=True), budget(9, name="c", selector=())
    (text,) = texts(cluster(*both, ready=False), evict("g", 0, "n1"))
    assert text == "pod ns/g-0: leaves, though several disruption budgets match it (ns/b, ns/c)"


def test_whose_eviction_was_refused_lately_stays() -> None:
    here = cluster(refused=["ns/g-1"])
    assert texts(here, evict("g", 0, "n1")) == []
    assert texts(here, evict("g", 1, "n1")) == ["pod ns/g-1: leaves, though its eviction was refused lately"]


def test_what_has_not_begun_to_run_leaves_freely() -> None:
    here = cluster(budget(0), refused=["ns/g-0"])
    bound = replace(here.gangs[0], pods=tuple(replace(p, status=PodStatus.BOUND) for p in here.gangs[0].pods))
    assert texts(replace(here, gangs=(bound,)), evict("g", 0, "n1")) == []


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Six pods with any labels, states and readiness, under up to three budgets."""
    values = st.sampled_from(["x", "y", ""])
    pods = []
    for pod in a_gang("g", pods=6, on=["n1"] * 6).pods:
        labels = {key: value for key in ("app", "tier") if (value := draw(values))}
        status = draw(st.sampled_from([PodStatus.RUNNING, PodStatus.RUNNING, PodStatus.BOUND]))
        pods.append(replace(pod, labels=labels, status=status, ready=draw(st.booleans())))
    selectors = st.sampled_from(
        [
            (),
            APP,
            (Requirement("tier", "Exists"),),
            (*APP, Requirement("tier", "In", ("x",))),
            (Requirement("z", "Exists"),),
        ]
    )
    budgets = [
        DisruptionBudget(
            draw(st.sampled_from(["ns", "ns", "other"])),
            f"b{i}",
            draw(selectors),
            draw(st.integers(0, 4)),
            draw(st.booleans()),
        )
        for i in range(draw(st.integers(0, 3)))
    ]
    refused = frozenset(draw(st.sets(st.sampled_from([pod.key for pod in pods]), max_size=1)))
    running = replace(a_gang("g", pods=6, on=["n1"] * 6), pods=tuple(pods))
    return a_cluster([a_node("n1", 6)], [running], budgets=tuple(budgets), refused=refused)


@pytest.mark.slow
@given(here=clusters(), leaving=st.sets(st.integers(0, 5), min_size=1))
@settings(max_examples=400, deadline=None)
def test_the_checker_and_the_engine_count_alike(here: Snapshot, leaving: set[int]) -> None:
    problem = build_problem(here)
    is_gone = np.zeros(len(problem.pods), dtype=np.bool_)
    is_gone[[i for i, pod in enumerate(problem.pods) if int(pod.name.removeprefix("g-")) in leaving]] = True
    holds = all(rule.may_be_gone(is_gone) for rule in problem.rules)
    found = texts(here, *(evict("g", index, "n1") for index in sorted(leaving)))
    assert holds == (not found), (found, here.budgets)
