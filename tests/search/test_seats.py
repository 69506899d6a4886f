"""Places for all that was admitted, one after the other, whatever it is that leaves."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from kai_solver.actions import Actions
from kai_solver.actions.caps import within_limits
from kai_solver.domain import Action, Gang, Node, Snapshot
from kai_solver.instances_io.bench_schema import LoadedDoc
from kai_solver.lab.bench import loaded_snapshot
from kai_solver.modelfiles import load_model
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import Placer
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import build_problem
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.oracle import SolverActions
from kai_solver.search.refine import joint_of
from kai_solver.search.rights import rights_of
from kai_solver.search.seats import SeatSearch
from kai_solver.units import GPU, UNLIMITED
from tests.support.builders import a_cluster, a_gang, a_node, a_queue


def loaded(seed: int) -> Snapshot:
    return loaded_snapshot(LoadedDoc(kind="loaded", nodes=25, gangs=12, contested=0.1), seed)[0]


def decided(seed: int) -> Outcome:
    return decided_of(loaded(seed))


def decided_of(snapshot: Snapshot) -> Outcome:
    return Actions(build_problem(snapshot), load_model("greedy-only").actions, SolverActions(None)).run()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("part", [0.0, 0.3, 1.0])
def test_all_have_places_or_nothing_is_changed(seed: int, part: float) -> None:
    """Of what may leave a ``part``, drawn by chance, is to leave."""
    outcome, draw = decided(seed), Random(seed)
    pool, state = outcome.pool, outcome.state
    if pool is None or not any(admission.units for admission in outcome.admissions):
        pytest.skip("nothing is disturbed")
    movers = joint_of(JointModelInput(outcome), rights_of(outcome)).movers
    leaving = {mover.unit for mover in movers if draw.random() < part and not mover.bears}
    places, gone = dict(state.places), set(state.gone)
    found = SeatSearch(outcome, pool, movers, lambda: False).seat(leaving)
    if found is None:
        assert (state.places, state.gone) == (places, gone)
        return
    admitted = [pod for admission in outcome.admissions for pod in admission.allocation_unit.pods]
    assert all(pod in state.places for pod in admitted)
    assert (state.future >= 0).all()
    assert (state.device_future >= 0).all()
    left = {mover.unit for mover in movers if pool.has_left(mover.unit)}
    assert left == found.leaving
    assert {mover.unit for mover in movers if pool.is_moved(mover.unit)} == set(found.moved)
    assert not [mover.unit for mover in movers if mover.unit in left and not mover.may_leave]


def test_most_of_them_are_served() -> None:
    """With what the greedy let leave, all have places again."""
    served = 0
    for seed in range(8):
        outcome = decided(seed)
        if outcome.pool is None:
            continue
        movers = joint_of(JointModelInput(outcome), rights_of(outcome)).movers
        leaving = {mover.unit for mover in movers if outcome.pool.has_left(mover.unit)}
        served += SeatSearch(outcome, outcome.pool, movers, lambda: False).seat(leaving) is not None
    assert served >= 6


@pytest.mark.parametrize("part", [0.5, 1.0])
def test_what_must_stay_leaves_in_no_plan(part: float) -> None:
    """A ``part`` of what the greedy let stay must stay: others leave for it, or there are no places for all."""
    served = extra = 0
    for seed in range(8):
        outcome, draw = decided(seed), Random(seed)
        assert outcome.pool is not None
        movers = joint_of(JointModelInput(outcome), rights_of(outcome)).movers
        leaving = {mover.unit for mover in movers if outcome.pool.has_left(mover.unit) and draw.random() < 0.8}
        staying = {mover.unit for mover in movers if mover.unit not in leaving and draw.random() < part}
        found = SeatSearch(outcome, outcome.pool, movers, lambda: False).seat(leaving, staying)
        if found is None:
            continue
        served += 1
        extra += len(found.leaving - leaving)
        assert not found.leaving & staying
        assert not [mover.unit for mover in movers if mover.unit in staying and outcome.pool.has_left(mover.unit)]
    assert served
    assert extra or part == 1.0


def test_where_it_is_late_nothing_is_changed() -> None:
    outcome = decided(0)
    assert outcome.pool is not None
    places, gone = dict(outcome.state.places), set(outcome.state.gone)
    movers = joint_of(JointModelInput(outcome), rights_of(outcome)).movers
    assert SeatSearch(outcome, outcome.pool, movers, lambda: True).seat(()) is None
    assert (outcome.state.places, outcome.state.gone) == (places, gone)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_leaves_that_has_room(seed: int) -> None:
    """If all leaves that may, what is not in the way comes back, or moves."""
    outcome = decided(seed)
    pool, state = outcome.pool, outcome.state
    assert pool is not None
    movers = joint_of(JointModelInput(outcome), rights_of(outcome)).movers
    leaving = {mover.unit for mover in movers if not mover.bears and mover.may_leave}
    found = SeatSearch(outcome, pool, movers, lambda: False).seat(leaving)
    assert found is not None
    placer = Placer(state, fits=FitTable(state), later=True)
    for mover in movers:
        if mover.unit in found.leaving and mover.may_move and not mover.scopes:
            mark = state.mark()
            pods = [pod for piece in mover.pieces for pod in piece.pods]
            has_room = all(map(placer.place_pod, pods))
            assert not has_room or not within_limits(state, state.problem.gangs[mover.gang].queue)
            state.rollback(mark)


@pytest.mark.parametrize("seed", [3, 8, 9])
def test_more_leaves_of_a_queue_at_its_limit(seed: int) -> None:
    """Every queue has as its limit what it holds: for what comes to it, as much leaves it, whatever was to leave."""
    snapshot = loaded(seed)
    problem = build_problem(snapshot)
    holds = {queue.name: held[GPU] for queue, held in zip(problem.queues.queues, problem.allocated, strict=True)}
    limits = {name: (UNLIMITED, UNLIMITED, held or UNLIMITED) for name, held in holds.items()}
    outcome = decided_of(replace(snapshot, queues=tuple(replace(q, limit=limits[q.name]) for q in snapshot.queues)))
    preempting = [a.allocation_unit.gang for a in outcome.admissions if a.action is Action.PREEMPT]
    assert preempting
    assert outcome.pool is not None
    movers = joint_of(JointModelInput(outcome), rights_of(outcome)).movers
    found = SeatSearch(outcome, outcome.pool, movers, lambda: False).seat(())
    assert found is not None
    assert found.leaving
    assert all(within_limits(outcome.state, outcome.state.problem.gangs[gang].queue) for gang in preempting)


def seats_of(*gangs: Gang, nodes: Sequence[Node]) -> tuple[SeatSearch, dict[str, int]]:
    """The search on what the greedy admits for queue ``b``, which queue ``a`` owes all; units by the name of a gang."""
    outcome = decided_of(a_cluster(nodes, gangs, [a_queue("a", 0), a_queue("b", 100)]))
    assert outcome.pool is not None
    movers = joint_of(JointModelInput(outcome), rights_of(outcome)).movers
    names = {outcome.state.problem.gangs[mover.gang].gang.name: mover.unit for mover in movers}
    return SeatSearch(outcome, outcome.pool, movers, lambda: False), names


def test_cheaper_work_leaves_for_what_lost_its_place() -> None:
    """``dear`` goes away for the large pod, since n2 has room; the smaller pod takes that."""
    seats, unit = seats_of(
        a_gang("dear", 4, on="n0", queue="a", priority=75),
        a_gang("also-dear", 4, 4, on="n1", queue="a", priority=75),
        a_gang("cheap", 4, on="n2", queue="a"),
        a_gang("large", 8, queue="b"),
        a_gang("small", 4, queue="b"),
        nodes=[a_node(f"n{number}", gpus=8) for number in range(3)],
    )
    found = seats.seat(())
    assert found is not None
    assert found.leaving == {unit["cheap"]}
    assert found.moved == (unit["dear"],)


def test_shares_of_gpus_get_room_where_other_shares_leave() -> None:
    """CPU and memory would suffice on every node; a GPU is free to be shared where the cheap halves leave."""
    each = {"milli": 500}
    seats, unit = seats_of(
        a_gang("whole", 2, on="n0", queue="a", priority=75),
        a_gang("halves", 1, 1, on="n1", queue="a", each=each),
        a_gang("other", 1, on="n1", queue="a", priority=75),
        a_gang("arriving", 1, 1, queue="b", each=each),
        nodes=[a_node(f"n{number}", gpus=2) for number in range(2)],
    )
    found = seats.seat(())
    assert found is not None
    assert found.leaving == {unit["halves"]}


@pytest.mark.parametrize(("surplus", "holds"), [(0, True), (1, False), (3, False), (4, True)])
def test_of_a_gang_whose_core_leaves_as_many_stay_as_it_needs_or_none(surplus: int, *, holds: bool) -> None:
    """A gang of eight pods needs four of them: without its core, four others go on, and fewer may not."""
    elastic = a_gang("elastic", pods=8, need=4, on="n0", queue="a")
    taker = a_gang("taker", 1, 1, 1, 1, queue="b", created_s=1.0)
    outcome = decided_of(a_cluster([a_node("n0", 8)], [elastic, taker], [a_queue("a", 0), a_queue("b", 100)]))
    assert outcome.pool is not None
    assert outcome.has_admitted()
    movers = joint_of(JointModelInput(outcome), rights_of(outcome)).movers
    core = next(mover for mover in movers if mover.bears)
    assert core.quorum == len(core.bears) == 4
    found = SeatSearch(outcome, outcome.pool, movers, lambda: False).seat({core.unit, *core.bears[:surplus]})
    assert (found is not None) == holds
