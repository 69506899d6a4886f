"""Ledgers of all rules after any steps: they say what they will say once the plan has been carried out."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kai_solver.domain import Pod, PodStatus
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.placement.fit import FitTable
from kai_solver.planstate.state import State
from kai_solver.problem import build_problem
from tests.fuzz.clusters import cluster

BoolArray = NDArray[np.bool_]
SEEDS = 60


def state_of(seed: int) -> State:
    return State(build_problem(snapshot_from_native(cluster(seed, "small"))))


def steps(state: State, fits: FitTable, pod: int) -> list[Callable[[], object]]:
    """What may be done with ``pod`` now."""
    problem = state.problem
    is_active = problem.pods[pod].status is PodStatus.RUNNING
    if pod in state.places:
        return [lambda: state.lift(pod)]
    if is_active and pod not in state.gone:
        return [lambda: state.evict(pod)]
    if not is_active and problem.pods[pod].status is not PodStatus.PENDING:
        return []
    now, later = fits.counts(problem.pod_shape[pod])
    allowed = state.admitting(pod, later > 0)
    nodes = [] if allowed is None else np.flatnonzero(allowed).tolist()
    found: list[Callable[[], object]] = []
    for node in nodes:
        starts = bool(now[node]) and not is_active
        found.append(lambda node=node, starts=starts: state.put(pod, node, now=starts))  # type: ignore[misc]
    if is_active:
        found.append(lambda: state.returns_to_origin([pod]))
    return found


def sayings(state: State) -> dict[str, object]:
    """What rules say of every pod that waits, and of the plan."""
    waiting = [pod for gang in state.gangs for pods in gang.pending for pod in pods]
    masks = {pod: state.admitting(pod, np.ones(len(state.problem.nodes), dtype=np.bool_)) for pod in waiting}
    starts = {
        (pod, node): [rule.may_start(state.problem.pod_shape[pod], pod, node) for rule in state.rules]
        for pod in waiting
        for node in range(len(state.problem.nodes))
    }
    gangs = range(len(state.problem.gangs))
    return {
        "masks": {pod: None if mask is None else mask.tolist() for pod, mask in masks.items()},
        "starts": starts,
        "keeps": [rule.holds() for rule in state.rules],
        "spacing": [state.keeps_spacing(gang) for gang in gangs],
        "company": [[rule.has_company(gang) for rule in state.rules] for gang in gangs],
    }


def after(state: State) -> State:
    """A state at the beginning of a cycle in which all that was decided has been done."""
    problem, snapshot = state.problem, state.problem.snapshot
    number = {pod.key: index for index, pod in enumerate(problem.pods)}

    def moved(pod: Pod) -> Pod:
        index = number.get(pod.key, -1)
        place = state.places.get(index)
        if place is not None:
            return replace(pod, node=problem.nodes[place.node].name, devices=place.devices, status=PodStatus.RUNNING)
        is_gone = index in state.gone or pod.status is PodStatus.RELEASING
        return replace(pod, node="", devices=(), status=PodStatus.PENDING) if is_gone else pod

    gangs = tuple(replace(gang, pods=tuple(map(moved, gang.pods))) for gang in snapshot.gangs)
    foreign = tuple(pod for pod in snapshot.foreign if pod.status is not PodStatus.RELEASING)
    return State(build_problem(replace(snapshot, gangs=gangs, foreign=foreign)))


def open_by_rule(state: State, pod: int) -> dict[str, BoolArray]:
    """(N,) nodes that each rule leaves to ``pod``, by its kind."""
    masks = {rule.kind: rule.mask(state.problem.pod_shape[pod], pod) for rule in state.rules}
    return {kind: mask for kind, mask in masks.items() if mask is not None}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, SEEDS), st.data())
def test_ledgers_say_what_they_will_say_after_the_plan_and_a_rollback_brings_them_back(
    seed: int, data: st.DataObject
) -> None:
    """Affinity and spread of new pods must hold when the next ones come: so they may leave less open, never more."""
    state = state_of(seed)
    before, fits = sayings(state), FitTable(state)
    pods = [pod for gang in state.problem.gangs for leaf in gang.leaves for pod in (*leaf.active, *leaf.pending)]
    for _ in range(12 if pods else 0):
        choices = steps(state, fits, data.draw(st.sampled_from(pods)))
        if choices:
            data.draw(st.sampled_from(choices))()
    then = after(state)
    number = {pod.key: index for index, pod in enumerate(then.problem.pods)}
    for pod in (pod for gang in state.gangs for pods in gang.pending for pod in pods):
        now, later = open_by_rule(state, pod), open_by_rule(then, number[state.problem.pods[pod].key])
        every = np.ones(len(state.problem.nodes), dtype=np.bool_)
        for kind in ("tenants", "ports", "placement"):
            assert now.get(kind, every).tolist() == later.get(kind, every).tolist(), (kind, pod)
        assert not (now.get("affinity", every) & ~later.get("affinity", every)).any()
    state.rollback(0)
    assert sayings(state) == before


@pytest.mark.slow
def test_these_clusters_have_rules_of_all_kinds() -> None:
    """Of those that have a ledger; else the test before says less than it seems to."""
    met = {rule.kind for seed in range(SEEDS) for rule in state_of(seed).rules}
    assert met >= {"affinity", "tenants", "placement", "ports", "spares", "numa", "row"}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, SEEDS), st.data())
def test_states_of_one_problem_see_nothing_of_each_other(seed: int, data: st.DataObject) -> None:
    """What rules keep for all states of a problem is as it was, whatever one of them does."""
    first = state_of(seed)
    expected, is_crossed = sayings(first), first.is_crossed
    fits = FitTable(first)
    pods = [pod for gang in first.gangs for pods in (*gang.pending, *gang.active) for pod in pods]
    for _ in range(min(6, len(pods))):
        may = steps(first, fits, data.draw(st.sampled_from(pods)))
        if may:
            data.draw(st.sampled_from(may))()
    other = State(first.problem)
    assert sayings(other) == expected
    assert other.is_crossed is is_crossed
