"""Which admissions may take which victims, held against all of them; and what is done where some have no taker."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, cast

import pytest

from kai_solver.actions.sharing import Shared, VictimGroup
from kai_solver.domain import Action
from kai_solver.model.decode import Decision
from kai_solver.model.victim_model import Spared, sparing
from kai_solver.modelfiles import load_model
from kai_solver.planstate.outcome import Outcome
from kai_solver.search import attribution, victims
from kai_solver.search.attribution import EVICTING, Evictors, share_victims
from kai_solver.search.budget import Budget
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.refine import joint_of
from kai_solver.search.rights import Rights, rights_of
from kai_solver.search.seats import Seats
from kai_solver.search.solver_client import SolverClient
from kai_solver.search.victims import Row, VictimChoice
from kai_solver.units import GPU
from tests.search.test_least_victims import drawn, takers_of

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_takers_are_all_that_may_take_a_unit(seed: int) -> None:
    outcome = drawn(seed)
    rights = rights_of(outcome)
    numbered = list(enumerate(zip(outcome.admissions, rights.takers, strict=True)))
    evictors = Evictors(outcome.admissions, rights.takers)
    for unit in rights.movable:
        for actions in ((Action.RECLAIM,), (Action.PREEMPT,), EVICTING):
            may = {n for n, (a, takes) in numbered if a.action in actions and (unit in takes or unit in a.units)}
            assert evictors.by(unit, actions) == may


@pytest.mark.parametrize("seed", SEEDS)
def test_a_move_is_for_any_that_may_take_the_unit_or_consolidates(seed: int) -> None:
    outcome = drawn(seed)
    if not outcome.admissions or outcome.pool is None:
        pytest.skip("no gang came in")
    rights, first = rights_of(outcome), outcome.admissions[0]
    joint = joint_of(JointModelInput(outcome), rights)
    outcome.admissions[0] = replace(first, action=Action.CONSOLIDATION, units=())
    movers = {mover.unit: mover for mover in joint.movers}
    moved = sorted(movers)
    able = attribution._able(outcome, Decision(moved=moved), movers, rights.takers)
    for unit in moved:
        may = [
            n
            for n, (a, takes) in enumerate(zip(outcome.admissions, rights.takers, strict=True))
            if (a.action in EVICTING and (unit in takes or unit in a.units))
            or (a.action is Action.CONSOLIDATION and movers[unit].gang != a.allocation_unit.gang)
        ]
        assert able[unit] == may


@pytest.mark.parametrize("seed", SEEDS)
def test_victims_that_all_find_takers_may_be_taken_so(seed: int) -> None:
    """Of all sets of up to three victims. A way to take several may be missed (`actions.sharing`), but none for one."""
    outcome = drawn(seed)
    if not outcome.admissions or outcome.pool is None:
        pytest.skip("no gang came in")
    rights = rights_of(outcome)
    movers = {mover.unit: mover for mover in joint_of(JointModelInput(outcome), rights).movers}
    evictors = Evictors(outcome.admissions, rights.takers)
    units = sorted(unit for action in EVICTING for unit in rights.by_action.get(action, ()))
    for count in (1, 2, 3):
        for gone in combinations(dict.fromkeys(units), count):
            shared = share_victims(outcome, [movers[unit] for unit in gone], evictors)
            assert sorted(u for group in shared.left for u in group.units) == sorted(
                set(gone).difference(*(a.units for a in shared.admissions))
            )
            is_takable = takers_of(outcome, rights, gone)
            assert is_takable if not shared.left else count > 1 or not is_takable


def a_choice(outcome: Outcome, takers: Callable[[Rights], tuple[frozenset[int], ...]]) -> VictimChoice:
    """A choice of victims with time and no solver, where admissions may take what ``takers`` says of their rights."""
    assert outcome.pool is not None
    rights = rights_of(outcome)
    model_input = JointModelInput(outcome)
    joint = joint_of(model_input, rights)
    client = SolverClient(load_model("default"), cast("Any", None), Budget(60.0, lambda: 0.0, 0.0))
    rights = replace(rights, takers=takers(rights))
    return VictimChoice(client, outcome, outcome.pool, rights, model_input, joint, estimate=1)


def disturbed() -> Outcome:
    """The first drawn outcome for which some work leaves, and more could."""
    for seed in SEEDS:
        outcome = drawn(seed)
        if outcome.pool is not None and outcome.pool.have_left().any() and len(rights_of(outcome).movable) > 3:
            return outcome
    raise AssertionError("no drawn outcome evicts")


def test_what_a_plan_costs_is_known_without_rows() -> None:
    outcome = disturbed()
    choice = a_choice(outcome, lambda rights: rights.takers)
    assert outcome.pool is not None
    left = [unit for unit in outcome.pool.units if outcome.pool.has_left(unit.index)]
    assert choice.costs[0] == sum(max(1, round(unit.work)) for unit in left)
    assert not choice._victim_model.has_rows


def test_a_leaf_is_spared_itself_where_that_of_its_parent_was_in_vain() -> None:
    outcome = disturbed()
    choice = a_choice(outcome, lambda rights: rights.takers)
    movers, queues = [m for m in choice.joint.movers if not m.preemptable], outcome.state.problem.queues
    leaf = movers[0].queue
    parent = queues.path[leaf][1]
    gpus = {queue: sum(m.charge[GPU] for m in movers if queue in queues.path[m.queue]) for queue in (leaf, parent)}
    left, short = {m.unit for m in movers}, {parent: (GPU, 1), leaf: (GPU, 2)}
    leaves = frozenset(m.queue for m in movers if parent in queues.path[m.queue])
    first = [row for row in sparing(queues.path, movers, movers, left, short) if leaf in row.leaves]
    assert first == [Spared(leaves, GPU, gpus[parent] - 1, 1)]
    again = [row for row in sparing(queues.path, movers, movers, left, short, again=True) if row.leaves == {leaf}]
    assert again == [Spared(frozenset((leaf,)), GPU, gpus[leaf] - 2, 2)]


@pytest.mark.parametrize(("missing", "at_the_latest", "less"), [(1, 2, 1), (2, 1, 1), (2, 3, 2)])
def test_less_is_taken_by_the_answer_which_asks_for_less(missing: int, at_the_latest: int, less: int) -> None:
    outcome = disturbed()
    choice = a_choice(outcome, lambda rights: rights.takers)
    leaf = next(mover.queue for mover in choice.joint.movers if not mover.preemptable)
    movers = [mover for mover in choice.joint.movers if mover.queue == leaf]
    left = [VictimGroup((mover.unit,), frozenset()) for mover in movers]
    latest = left, {leaf: (GPU, at_the_latest)}
    shared = Shared(outcome.admissions, left, {leaf: (GPU, missing)}, latest=latest)
    assert [row.less for row in choice._spared(movers, shared, again=False)] == [less]


def test_a_programme_after_which_as_many_have_no_taker_is_not_followed() -> None:
    """As where it had no time to make its units whole: then many leave in parts."""
    outcome = disturbed()
    choice = a_choice(outcome, lambda rights: tuple(frozenset[int]() for _ in rights.takers))
    outcome.replace_admissions([replace(admission, units=()) for admission in outcome.admissions])
    every = frozenset(choice.rights.movable)
    asked: list[object] = []

    def more_leave(rows: object, _deadline_s: float) -> frozenset[int]:
        asked.append(rows)
        return every

    choice.leaving_by = more_leave
    some = frozenset(sorted(every)[:2])
    leaving, tight = choice._with_takers(some)
    assert len(asked) == 1 + victims.REPLACING
    assert leaving <= some
    assert tight == {mover.queue for mover in choice.joint.movers if mover.unit in some}


@pytest.mark.parametrize("have_takers", [True, False])
def test_others_leave_in_place_of_those_without_a_taker(have_takers: bool) -> None:
    """They are of other queues, and what has takers leaves as well; as long as all have some."""
    outcome = disturbed()
    assert outcome.pool is not None
    wanted = frozenset(unit.index for unit in outcome.pool.units if outcome.pool.has_left(unit.index))
    if not have_takers:
        outcome.replace_admissions([replace(admission, units=()) for admission in outcome.admissions])
    nothing = frozenset[int]()
    choice = a_choice(outcome, lambda rights: tuple(takes if have_takers else nothing for takes in rights.takers))
    without = next(mover for mover in choice.joint.movers if mover.unit in wanted)
    taken = wanted - {without.unit}
    asked: list[tuple[frozenset[int], frozenset[int]]] = []

    def others(rows: Sequence[Row], _deadline_s: float) -> frozenset[int]:
        (staying, _, none), (going, weights, most) = rows
        assert (none, weights, most) == (0, [-1] * len(going), -len(going))
        asked.append((frozenset(staying), frozenset(going)))
        return wanted

    choice.leaving_by = others
    assert choice._replaced(taken, wanted, {without.queue}) == (wanted if have_takers else taken)
    hers = frozenset(m.unit for m in choice.joint.movers if m.queue == without.queue and m.may_leave)
    assert asked[0] == (hers - taken | {without.unit}, taken)
    assert len(asked) == (1 if have_takers else victims.REPLACING)
    assert choice._replaced(wanted, wanted, {without.queue}) == wanted
    assert len(asked) == (1 if have_takers else victims.REPLACING)


def test_tight_queues_lose_more_only_where_there_is_no_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = disturbed()
    choice = a_choice(outcome, lambda rights: rights.takers)
    asked: list[set[int]] = []

    class NoSeats:
        may_be_better = False

        def __init__(self, *_: object) -> None:
            pass

        def seat(self, _leaving: Collection[int], staying: Collection[int]) -> Seats | None:
            asked.append(set(staying))
            return None

    monkeypatch.setattr(victims, "SeatSearch", NoSeats)
    movers = choice.joint.movers
    queue, leaving = movers[0].queue, frozenset({movers[0].unit})
    assert not choice._seated(leaving, {queue})
    assert asked == [{mover.unit for mover in movers if mover.queue == queue} - leaving, set()]
    asked.clear()
    assert not choice._seated(leaving, ())
    assert asked == [set()]
