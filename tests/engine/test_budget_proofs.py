"""Disruption budgets against an exhaustive search: no false proof, no plan beyond a budget, no idle blocker."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Action, DisruptionBudget, Gang, Pod, Requirement, Snapshot
from kai_solver.engine import Engine
from tests.engine.conftest import Engines
from tests.engine.test_blocking_sets import is_needed, waits
from tests.engine.test_proofs import RUNGS, Puzzle, Rules, _scopes, _seatings, small_clusters
from tests.engine.test_random_cycles import check_one_cycle, clusters
from tests.support.builders import a_cluster, a_gang, a_node, a_pod
from tests.support.clusters import some


@st.composite
def budgeted(draw: st.DrawFn, cluster: Snapshot) -> Snapshot:
    """``cluster`` with budgets over some of its gangs, of which two may match the same pods, and evictions refused."""
    names = ("x", "y")

    def labelled(gang: Gang) -> Gang:
        under = draw(st.sampled_from([(), ("x",), ("x",), ("y",), ("x", "y")]))
        labels = dict.fromkeys(under, "1")
        ready = draw(st.sampled_from([True, True, True, False]))
        return replace(gang, pods=tuple(replace(pod, labels=labels, ready=ready) for pod in gang.pods))

    gangs = tuple(map(labelled, cluster.gangs))
    budgets = tuple(
        DisruptionBudget(
            "ns",
            name,
            (Requirement(name, "Exists"),),
            draw(st.sampled_from([0, 1, 1, 2, 3])),
            spares_unready=draw(st.booleans()),
        )
        for name in names
    )
    running = [pod.key for gang in gangs for pod in gang.pods if pod.node]
    refused = draw(st.sampled_from(running)) if running and draw(st.integers(0, 5)) == 0 else ""
    return replace(cluster, gangs=gangs, budgets=budgets, refused=frozenset([refused] if refused else []))


def budget_of(snapshot: Snapshot, pod: Pod) -> tuple[int, ...]:
    """Budgets that count the pod when it leaves; all twice where it may never leave."""
    found = tuple(i for i, b in enumerate(snapshot.budgets) if b.name in pod.labels)
    if len(found) > 1 or pod.key in snapshot.refused:
        return (-1,)
    return tuple(i for i in found if pod.ready or not snapshot.budgets[i].spares_unready)


@dataclass
class BudgetPuzzle(Puzzle):
    """Who runs on a whole device, or on none, and gets it on its own node again, stays; all others are moved."""

    snapshot: Snapshot

    def __post_init__(self) -> None:
        super().__init__(self.snapshot)

    def left_by(self, pods: Iterable[Pod], left: tuple[int, ...]) -> tuple[int, ...] | None:
        counts = list(left)
        for pod in pods:
            for budget in budget_of(self.snapshot, pod):
                if budget < 0 or not counts[budget]:
                    return None
                counts[budget] -= 1
        return tuple(counts)

    def seats(self, fixed: Sequence[Gang], loose: Sequence[Gang], left: tuple[int, ...]) -> bool:
        free = [[node.allocatable[0], *[1000] * node.gpus] for node in self.nodes]
        index = {node.name: i for i, node in enumerate(self.nodes)}
        for pod in (pod for gang in fixed for pod in gang.pods):
            row = free[index[pod.node]]
            row[0] -= pod.request[0]
            for device in pod.devices:
                row[1 + device] -= pod.gpu.milli
        jobs = [(gang, pod) for gang in loose for pod in gang.pods]
        return self._seat(jobs, tuple((row[0], *sorted(row[1:])) for row in free), {}, left, set())

    def _seat(
        self,
        jobs: Sequence[tuple[Gang, Pod]],
        free: tuple[tuple[int, ...], ...],
        domains: dict[tuple[str, str], str],
        left: tuple[int, ...],
        dead: set[tuple[object, ...]],
    ) -> bool:
        if not jobs:
            return True
        key = (len(jobs), free, tuple(sorted(domains.items())), left)
        if key in dead:
            return False
        gang, pod = jobs[0]
        for node, rack in enumerate(self.racks):
            stays = pod.node == self.nodes[node].name and not pod.gpu.is_shared
            after = left if stays or not pod.node else self.left_by([pod], left)
            bound = dict.fromkeys(_scopes(gang, pod), rack)
            if after is None or any(domains.get(name, rack) != rack for name in bound):
                continue
            for row in _seatings(free[node], pod):
                rest = (*free[:node], row, *free[node + 1 :])
                if self._seat(jobs[1:], rest, {**domains, **bound}, after, dead):
                    return True
        dead.add(key)
        return False


class BudgetRules(Rules):
    """The rules of the actions with budgets."""

    def __init__(self, snapshot: Snapshot, gang: Gang) -> None:
        super().__init__(snapshot, gang)
        self.seating = BudgetPuzzle(snapshot)
        self.left = tuple(budget.allowed for budget in snapshot.budgets)

    def _can_consolidate(self) -> bool:
        if not super()._can_consolidate():
            return False
        stay = [g for g in self.running if not g.preemptible]
        return self._can_move(stay, [g for g in self.running if g.preemptible], self.left)

    def _can_evict(self, action: Action, eligible: Sequence[Gang], victims: Sequence[Gang]) -> bool:
        left = self.seating.left_by((pod for gang in victims for pod in gang.pods), self.left)
        if left is None or not super()._can_evict(action, eligible, victims):
            return False
        rest = [g for g in eligible if g not in victims] if self.snapshot.policy.consolidating_reclaim else []
        return self._can_move([g for g in self.running if g not in victims and g not in rest], rest, left)

    def _can_move(self, stay: Sequence[Gang], movable: Sequence[Gang], left: tuple[int, ...]) -> bool:
        subsets = chain.from_iterable(combinations(movable, n) for n in range(len(movable) + 1))
        return any(
            self.seating.seats([*stay, *(g for g in movable if g not in loose)], [*loose, self.gang], left)
            for loose in subsets
        )


def check_budgets(engine: Engine, cluster: Snapshot) -> None:
    gang = cluster.gangs[-1]
    plan = engine.cycle(cluster)
    assert not any("refused:" in note or "nothing is done" in note for note in plan.notes), plan.notes
    assert check_plan(cluster, plan) == ()
    rules = BudgetRules(cluster, gang)
    possible = {action for action in RUNGS if rules.can(action)}
    assert {action for _, action in plan.admitted} <= possible
    entry = waits(plan, gang)
    if entry is not None and entry.proof.state == "proven":
        assert not possible, (entry, possible)
        assert all(is_needed(engine, cluster, gang, entry, blocker) for blocker in entry.proof.blocking), entry.proof


@given(cluster=small_clusters().flatmap(budgeted))
@some(80, campaign=2000)
def test_no_false_proof_under_budgets(engines: Engines, cluster: Snapshot) -> None:
    check_budgets(engines["deterministic"], cluster)


@given(cluster=small_clusters().flatmap(budgeted))
@some(60, campaign=2000)
def test_no_false_proof_of_the_bounds_under_budgets(engines: Engines, cluster: Snapshot) -> None:
    check_budgets(engines["greedy-only"], cluster)


@given(cluster=clusters().flatmap(budgeted))
@some(20, campaign=200)
def test_plans_of_random_clusters_keep_budgets(engines: Engines, cluster: Snapshot) -> None:
    check_one_cycle(engines, cluster)


@pytest.mark.parametrize("model", ["deterministic", "greedy-only"])
def test_what_could_move_in_part_is_no_proof_and_the_budget_is_told(engines: Engines, model: str) -> None:
    """One of two pods could move to where the other one is, but gangs are moved whole."""
    nodes = [a_node(f"n{i}", 2) for i in range(2)]
    spread = a_gang("g", a_pod("g0", on="n0"), a_pod("g1", on="n1", order=1))
    here = a_cluster(nodes, [spread, a_gang("w", a_pod("w0", 2))])
    (entry,) = engines[model].cycle(replace(here, budgets=(DisruptionBudget("ns", "b", (), 1),))).pending
    assert entry.proof.state != "proven"
    assert "Disruption budgets hold pods that could make room: ns/b (1 of 2 pods may leave now)" in entry.message
    free = engines[model].cycle(here)
    assert len(free.moves) == 1
    assert not free.pending


@pytest.mark.parametrize("model", ["deterministic", "greedy-only"])
def test_what_waits_for_a_budget_is_told_its_name_with_a_proof(engines: Engines, model: str) -> None:
    held = a_gang("g", a_pod("g0", 2, on="n0"))
    here = a_cluster([a_node("n0", 2)], [held, a_gang("w", a_pod("w0", 2), priority=60)])
    (entry,) = engines[model].cycle(replace(here, budgets=(DisruptionBudget("ns", "b", (), 0),))).pending
    assert entry.proof.state == "proven"
    assert entry.message.endswith("Disruption budgets hold pods that could make room: ns/b (0 of 1 pod may leave now)")
    assert [b.name for b in entry.proof.blocking if b.kind == "disruption-budget"] == ["ns/b"]
    assert engines[model].cycle(here).admitted == (("ns/w", Action.PREEMPT),)
