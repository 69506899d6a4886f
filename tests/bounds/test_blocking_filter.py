"""The filter for blocking sets: minimal, and smallest up to three elements; bounds before any victim is looked at."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.actions import Actions
from kai_solver.bounds import Refuted, lacks_rights
from kai_solver.bounds.blocking import _filter
from kai_solver.domain import Action, Gang, GpuRequest, Node, Pod, PodStatus, Queue, Snapshot, flat_gang
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import build_problem
from kai_solver.search.oracle import SolverActions
from kai_solver.units import UNLIMITED, ResourceSchema

NAMES = tuple("abcdefg")
GIB = 2**30


def suffices(conflicts: list[frozenset[str]], kept: frozenset[str]) -> bool:
    return any(conflict <= kept for conflict in conflicts)


conflict_lists = st.lists(st.frozensets(st.sampled_from(NAMES), min_size=1, max_size=5), min_size=1, max_size=4)


@pytest.mark.slow
@given(conflicts=conflict_lists)
@settings(max_examples=300, deadline=None)
def test_nothing_can_be_left_out_and_three_are_the_fewest(conflicts: list[frozenset[str]]) -> None:
    every = frozenset(NAMES)

    def ask(dropped: frozenset[str]) -> Refuted | None:
        return Refuted("count") if suffices(conflicts, every - dropped) else None

    kept = _filter(ask, NAMES, every)
    assert suffices(conflicts, kept)
    assert not any(suffices(conflicts, kept - {name}) for name in kept)
    smaller = [frozenset(found) for size in (1, 2) for found in combinations(NAMES, size) if size < len(kept)]
    assert not any(suffices(conflicts, found) for found in smaller)


@given(conflicts=conflict_lists, others=st.frozensets(st.sampled_from(NAMES)))
@settings(max_examples=200, deadline=None)
def test_what_blocked_another_question_changes_nothing_but_how_much_is_asked(
    conflicts: list[frozenset[str]], others: frozenset[str]
) -> None:
    every, enough, asked = frozenset(NAMES), conflicts[0] | others, 0

    def ask(dropped: frozenset[str]) -> Refuted | None:
        nonlocal asked
        asked += 1
        return Refuted("count") if suffices(conflicts, every - dropped) else None

    kept = _filter(ask, NAMES, every)
    asked = 0
    assert _filter(ask, NAMES, enough) == kept
    if enough == kept < every and all(kept <= conflict for conflict in conflicts):
        assert asked == len(kept)


def a_gang(name: str, queue: str, count: int, node: str = "") -> Gang:
    status = PodStatus.RUNNING if node else PodStatus.PENDING
    pods = tuple(
        Pod("ns", f"{name}-{i}", (100, GIB, 0, 1), GpuRequest(1), status, node=node, devices=(i,) if node else ())
        for i in range(count)
    )
    return Gang("ns", name, queue, flat_gang(count), pods, last_start_s=1.0 if node else None)


CORDONED = Node("b", (64_000, 512 * GIB, 4000, 110), gpus=4, gpu_memory_mib=100, schedulable=False)


@pytest.mark.parametrize(
    ("others", "blocking"),
    [((), {"surplus", "resource"}), ((CORDONED,), {"surplus", "resource", "rule"})],
    ids=["alone", "beside free GPUs that no gang may use"],
)
def test_a_gang_that_no_right_can_help_costs_no_pool_of_victims(others: tuple[Node, ...], blocking: set[str]) -> None:
    """Its queue is owed two GPUs, of which one may be taken: the victim's queue holds its quota but for one part."""
    outcome = reclaimed(others)
    assert outcome.pool is None
    (refusals,) = outcome.refusals.values()
    assert refusals[Action.RECLAIM].proof.state == "proven"
    evidence = refusals[Action.RECLAIM].evidence
    assert evidence is not None
    assert {blocker.kind for blocker in evidence.blocking()} == blocking


def test_free_gpus_that_a_gang_may_use_count() -> None:
    outcome = reclaimed((replace(CORDONED, schedulable=True),))
    assert not outcome.refusals
    assert outcome.admissions


def reclaimed(others: tuple[Node, ...]) -> Outcome:
    """Reclaim alone, on a full node of four GPUs and on ``others``."""
    quotas = {"rich": 3000, "poor": 4000}
    queues = tuple(
        Queue(name, quota=(UNLIMITED, UNLIMITED, quota), weight=(0.0, 0.0, 0.0)) for name, quota in quotas.items()
    )
    running = [a_gang(f"r{i}", "rich", 1, "a") for i in range(4)]
    running = [
        Gang(g.namespace, g.name, g.queue, g.root, tuple(_on(pod, i) for pod in g.pods), last_start_s=1.0)
        for i, g in enumerate(running)
    ]
    node = Node("a", (64_000, 512 * GIB, 4000, 110), gpus=4, gpu_memory_mib=100)
    snapshot = Snapshot(9.0, ResourceSchema(), (node, *others), queues, (*running, a_gang("w", "poor", 3)))
    return Actions(build_problem(snapshot), (Action.RECLAIM,), SolverActions(None)).run()


def _on(pod: Pod, device: int) -> Pod:
    return Pod(pod.namespace, pod.name, pod.request, pod.gpu, pod.status, node=pod.node, devices=(device,))


@pytest.mark.parametrize(("milli", "said"), [(79_999, "less than 80 GPUs"), (79_500, "79.5 GPUs"), (0, "0 GPUs")])
def test_what_may_be_had_is_said_in_gpus_that_there_are(milli: int, said: str) -> None:
    blocker = lacks_rights(80_000, milli)
    assert blocker.have == said
    assert blocker.need.startswith("80 GPUs that are free")
    assert blocker.short == 80_000 - milli
