"""The family ``gpurows``: what each of its rules allows and forbids, and that nodes without rows have none of it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import FAMILIES, Action, Gang, GpuRequest, Plan, PodStatus, Snapshot
from kai_solver.model.build import formulate
from kai_solver.model.decode import expand
from kai_solver.rules.gpu_rows import rows as gpurows
from kai_solver.search.child import SolverChild
from kai_solver.search.parameters import SolverParameters
from kai_solver.units import ResourceSchema
from tests.model.test_families import Case, a_gang, a_node, a_queue, honest_plan, in_rows, wish

FIXED: dict[str, Any] = {"priority": 100, "preemptible": False}
LOW: dict[str, Any] = {"priority": 50}


@pytest.fixture(scope="module")
def child() -> Iterator[SolverChild]:
    with SolverChild() as child:
        yield child


def holds(name: str, *devices: int, at: str = "n0", milli: int = 1000, known: bool = True, **more: Any) -> Gang:
    """A pod that runs and holds ``devices``; nobody can tell where they are not ``known``."""
    gang = a_gang(name, len(devices), on=at, **more)
    gpu = GpuRequest(len(devices), milli)
    return replace(gang, pods=tuple(replace(pod, gpu=gpu, devices=devices if known else ()) for pod in gang.pods))


def cluster(gpus: Sequence[int], *gangs: Gang) -> Snapshot:
    """Nodes of so many GPUs; the last gang waits."""
    nodes = tuple(a_node(f"n{i}", count) for i, count in enumerate(gpus))
    return Snapshot(1000.0, ResourceSchema(), nodes, (a_queue("a", quota=64),), gangs)


def wants(*gpus: int, rows: Sequence[str] = (), **more: Any) -> Gang:
    return in_rows(a_gang("w", *gpus, **({"priority": 60} | more)), *(rows or ["contiguous"] * len(gpus)))


def solved(child: SolverChild, snapshot: Snapshot, action: Action) -> Plan | None:
    """The plan of the model, put into effect; None where it has no solution."""
    form, answer = Case(snapshot, action).solve(child)
    if answer.values is None:
        assert answer.status == "infeasible"
        return None
    plan = honest_plan(Case(snapshot, action), form, answer)
    assert check_plan(snapshot, plan) == ()
    return plan


def starts(snapshot: Snapshot, action: Action = Action.ALLOCATE) -> int:
    """Rows that the model chooses among."""
    made = formulate(Case(snapshot, action).joint(), FAMILIES, ()).variables.of_rule.get("gpurows", {})
    return sum(len(rows) for kinds in made.values() for rows in kinds.values())


def test_nothing_asks_for_a_row_and_there_is_nothing_of_it() -> None:
    joint = Case(cluster([8], holds("r", 1, **LOW), wants(2, 2, rows=["", ""])), Action.PREEMPT).joint()
    form = formulate(joint, FAMILIES, ())
    assert form.spec.count("gpurows") == 0
    assert not form.variables.has_devices
    assert [origin[1] for group in form.variables.classes for origin in group.members] == [()]


def test_pods_in_the_row_leave(child: SolverChild) -> None:
    """Two may leave, and only beside the second one two are free."""
    sits = [holds("f", 0, 2, 4, **FIXED), holds("far", 1, 3, **LOW), holds("near", 5, **LOW)]
    plan = solved(child, cluster([7], *sits, wants(2)), Action.PREEMPT)
    assert plan is not None
    assert [eviction.pod for eviction in plan.evictions] == ["ns/near-0"]
    assert solved(child, cluster([7], *sits[:2], replace(sits[2], **FIXED), wants(2)), Action.PREEMPT) is None


def test_two_rows_are_not_the_same(child: SolverChild) -> None:
    sits = [holds("f", 2, 5, **FIXED), holds("r", 6, **LOW)]
    assert solved(child, cluster([8], *sits, wants(2, 2, 2)), Action.PREEMPT) is not None
    assert solved(child, cluster([8], *sits, wants(2, 2, 2, 2)), Action.PREEMPT) is None


def test_shares_keep_to_other_devices(child: SolverChild) -> None:
    """Two halves share the device beside the row, one that stays keeps both away from its own."""
    halves = in_rows(a_gang("w", 2, 1, 1, priority=60), "contiguous", "", "")
    half = GpuRequest(1, 500)
    halves = replace(halves, pods=(halves.pods[0], *(replace(pod, gpu=half) for pod in halves.pods[1:])))
    assert solved(child, cluster([3], halves), Action.ALLOCATE) is not None
    assert solved(child, cluster([4], holds("f", 1, milli=500, **FIXED), halves), Action.ALLOCATE) is not None
    assert solved(child, cluster([3], holds("f", 1, milli=500, **FIXED), halves), Action.ALLOCATE) is None
    plan = solved(child, cluster([4], holds("r", 1, milli=500, **LOW), halves), Action.PREEMPT)
    assert plan is not None
    assert not plan.evictions


def test_pods_with_unidentified_gpus_leave_for_a_row(child: SolverChild) -> None:
    known = holds("known", 0, 1, **FIXED)
    unknown = [holds(name, 7, known=False, **LOW) for name in ("s", "t")]
    plan = solved(child, cluster([8], known, *unknown, wants(2)), Action.PREEMPT)
    assert plan is not None
    assert {eviction.pod for eviction in plan.evictions} == {"ns/s-0", "ns/t-0"}
    stays = holds("t", 7, known=False, **FIXED)
    assert solved(child, cluster([8], known, unknown[0], stays, wants(2)), Action.PREEMPT) is None
    assert solved(child, cluster([8], known, unknown[0], stays, wants(2, rows=[""])), Action.PREEMPT) is not None


def test_what_starts_among_them_waits_for_the_row_too(child: SolverChild) -> None:
    """The single pod could start at once, on a GPU that nobody could name."""
    gangs = holds("known", 0, 1, **FIXED), holds("s", 7, known=False, **LOW)
    plan = solved(child, cluster([8], *gangs, wants(1, 5, rows=["", "contiguous"])), Action.PREEMPT)
    assert plan is not None
    assert all(bind.nominated for bind in plan.binds)


def test_nothing_changes_devices_in_place(child: SolverChild) -> None:
    sits = [holds("f", 0, 3, **FIXED), holds("r", 1, **LOW)]
    assert solved(child, cluster([5], *sits, wants(2)), Action.CONSOLIDATION) is None
    plan = solved(child, cluster([5, 1], *sits, wants(2)), Action.CONSOLIDATION)
    assert plan is not None
    assert [(move.pod, move.target) for move in plan.moves] == [("ns/r-0", "n1")]


def test_of_several_that_leave_a_node_those_move_that_find_another(child: SolverChild) -> None:
    """Two nodes, one mover on each: each may go to the other's node, and neither is sent to its own."""
    sits = [holds(f"f{i}", 0, 3, at=f"n{i}", **FIXED) for i in range(2)]
    moves = [holds(f"r{i}", 1, at=f"n{i}", **LOW) for i in range(2)]
    plan = solved(child, cluster([5, 5], *sits, *moves, wants(2, 2)), Action.CONSOLIDATION)
    assert plan is not None
    assert {(move.source, move.target) for move in plan.moves} == {("n0", "n1"), ("n1", "n0")}


@pytest.mark.parametrize(
    ("gpus", "asked", "rows", "fits"),
    [
        (8, (2, 2, 4), ["aligned"] * 3, True),
        (7, (2, 2, 4), ["aligned"] * 3, False),
        (7, (2, 4, 1), ["aligned", "aligned", ""], True),
        (7, (3, 4), ["contiguous"] * 2, True),
        (7, (4, 4), ["contiguous"] * 2, False),
        (12, (6, 3, 3), ["aligned"] * 3, True),
        (11, (6, 3, 3), ["aligned"] * 3, False),
    ],
)
def test_where_nothing_may_leave_counts_do(
    child: SolverChild, gpus: int, asked: tuple[int, ...], rows: list[str], fits: bool
) -> None:
    snapshot = cluster([gpus], wants(*asked, rows=rows))
    assert starts(snapshot) == 0
    assert (solved(child, snapshot, Action.ALLOCATE) is not None) is fits


@pytest.mark.parametrize(
    ("held", "asked", "rows", "fits"),
    [
        ((3,), (3, 2), ["contiguous"] * 2, True),  # Two stretches: three and four.
        ((3,), (4, 3), ["contiguous"] * 2, True),
        ((2,), (3, 3), ["contiguous", "aligned"], False),  # The aligned one can only begin at 3.
        ((7,), (3, 4), ["contiguous", "aligned"], True),
        ((0,), (2, 3), ["aligned"] * 2, True),
        ((1, 4), (2, 2), ["contiguous", "aligned"], True),
        ((1, 4, 7), (2, 2), ["contiguous", "aligned"], True),
        ((1, 4, 6), (2, 2), ["contiguous", "aligned"], False),
    ],
)
def test_several_kinds_of_rows_find_places_beside_each_other(
    child: SolverChild, held: tuple[int, ...], asked: tuple[int, ...], rows: list[str], fits: bool
) -> None:
    snapshot = cluster([8], holds("f", *held, **FIXED), wants(*asked, rows=rows))
    assert (solved(child, snapshot, Action.ALLOCATE) is not None) is fits


def test_pods_that_only_differ_otherwise_share_the_rows(child: SolverChild) -> None:
    """Two shapes, one kind of row: together they are no more than there are rows."""
    waiting = wants(4, 4, rows=["aligned"] * 2)
    more = tuple(n * 2 for n in waiting.pods[1].request)
    waiting = replace(waiting, pods=(waiting.pods[0], replace(waiting.pods[1], request=more)))
    assert solved(child, cluster([8], waiting), Action.ALLOCATE) is not None
    held = holds("f", 3, **FIXED)
    assert solved(child, cluster([9], held, waiting), Action.ALLOCATE) is None


def test_beyond_the_largest_number_of_rows_the_model_asks_for_less(
    child: SolverChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = cluster([5], holds("f", 0, **FIXED), wants(2, 2, rows=["contiguous", "aligned"]))
    monkeypatch.setattr(gpurows, "MOST_STARTS", 3)
    assert starts(snapshot) == 0
    form = formulate(Case(snapshot, Action.ALLOCATE).joint(), FAMILIES, ())
    form.spec.minimize(wish(form))
    answer = child.solve(form.spec, SolverParameters(workers=1, presolve="none"), inf)
    assert answer.values is not None
    assert not expand(form.variables, answer.values).devices


def test_a_pod_that_is_leaving_counts_as_gone(child: SolverChild) -> None:
    going = holds("g", 1, 2, known=False, **LOW)
    going = replace(going, pods=tuple(replace(pod, status=PodStatus.RELEASING) for pod in going.pods))
    plan = solved(child, cluster([4], holds("k", 0, **FIXED), going, wants(3)), Action.ALLOCATE)
    assert plan is not None
    assert [bind.nominated for bind in plan.binds] == [True]
