"""Victims of a finished cycle find the reclaims that may take them, also where some of them have to leave first."""

from collections.abc import Sequence

import pytest

from kai_solver.actions import Actions
from kai_solver.actions.sharing import Shared, Tries, VictimGroup, share_out
from kai_solver.domain import Action
from kai_solver.fairness import ReclaimLedger
from kai_solver.instances_io import snapshot_from_native
from kai_solver.modelfiles import load_model
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.problem import build_problem
from kai_solver.problem.charges import Charge, sum_of
from kai_solver.search.attribution import EVICTING, Evictors
from kai_solver.search.oracle import SolverActions
from kai_solver.search.rights import rights_of
from kai_solver.units import GPU
from tests.engine.test_crossed_features import a_gang, a_node, a_queue, on
from tests.search.test_least_victims import drawn


def two_parents() -> tuple[Outcome, dict[str, int]]:
    """A and B have 6 GPUs each of 12, of which a2 below A holds 5, and b1 below B holds 7; C has no bound, and one pod.

    With the units by gang. Admitted: two gangs of a1 by reclaim, with 1 and 2 GPUs, then one of a2 by preemption.
    """
    queues = [a_queue("A", 6), a_queue("B", 6), a_queue("a1", 3, parent="A"), a_queue("a2", 3, parent="A")]
    queues += [a_queue("b1", 6, parent="B"), a_queue("C", "unlimited")]
    running = [a_gang(f"a2-{i}", "a2", on("n"), minMember=1) for i in range(5)]
    running += [a_gang(f"b1-{i}", "b1", on("n"), minMember=1) for i in range(7)]
    running.append(a_gang("c", "C", on("m"), minMember=1))
    pending = [a_gang("one", "a1", {"gpus": 1}, minMember=1), a_gang("two", "a1", {"gpus": 2}, minMember=1, created=2)]
    pending.append(a_gang("three", "a2", {"gpus": 1}, minMember=1, created=3, priority=75))
    document = {"format": "kai-solver/v1", "now": 1000.0, "nodes": [a_node("n", 12), a_node("m", 1)]}
    problem = build_problem(snapshot_from_native(document | {"queues": queues, "gangs": [*running, *pending]}))
    outcome = Actions(problem, load_model("greedy-only").actions, SolverActions(None)).run()
    assert outcome.pool is not None
    actions = [(problem.gangs[a.allocation_unit.gang].gang.name, a.action) for a in outcome.admissions]
    assert actions == [("one", Action.RECLAIM), ("two", Action.RECLAIM), ("three", Action.PREEMPT)]
    return outcome, {problem.gangs[unit.gang].gang.name: unit.index for unit in outcome.pool.units}


def shared(outcome: Outcome, units: dict[str, int], able: dict[str, set[int]], tries: Tries | None = None) -> Shared:
    return share_out(outcome, [VictimGroup((units[name],), frozenset(may)) for name, may in able.items()], tries)


def test_victims_leave_early_where_a_later_reclaim_would_be_too_saturated() -> None:
    """With both of a2 gone for "one", A holds 6 GPUs when "two" has come, its share; else 8, and B may lose nothing."""
    outcome, units = two_parents()
    able = {"a2-0": {0, 2}, "a2-1": {0, 2}, "b1-0": {1}}
    late = shared(outcome, units, able)
    assert [group.units for group in late.left] == [(units["b1-0"],)]
    assert late.early == frozenset()
    early = shared(outcome, units, able, Tries())
    assert early.left == []
    assert [a.units for a in early.admissions] == [(units["a2-0"], units["a2-1"]), (units["b1-0"],), ()]
    names = outcome.state.problem.queues.names
    assert {names[queue] for queue in early.early} == {"a2"}


def test_what_only_moves_is_for_a_reclaim_whatever_its_queue_keeps() -> None:
    """Reclaim asks for no part of it, and may look at a queue without a bound."""
    outcome, units = two_parents()
    groups = [VictimGroup((units[name],), frozenset({0, 2})) for name in ("a2-0", "a2-1")]
    groups += [VictimGroup((units["b1-0"],), frozenset({1})), VictimGroup((units["c"],), frozenset({0}), evicted=False)]
    found = share_out(outcome, groups, Tries())
    assert found.left == []
    assert units["c"] in found.admissions[0].units


def test_what_a_queue_may_not_lose_is_left_however_often_it_is_tried() -> None:
    """Of three of a2, the first reclaim may take two, and the third has no other."""
    outcome, units = two_parents()
    able = {"a2-0": {0}, "a2-1": {0}, "a2-2": {0}, "b1-0": {1}}
    found = shared(outcome, units, able, Tries())
    assert [group.units for group in found.left] == [(units["a2-2"],)]
    assert [a.units for a in found.admissions] == [(units["a2-0"], units["a2-1"]), (units["b1-0"],), ()]


@pytest.mark.parametrize("tries", [None, Tries(0), Tries(is_late=lambda: True)])
def test_without_time_the_first_answer_counts(tries: Tries | None) -> None:
    outcome, units = two_parents()
    able = {"a2-0": {0, 2}, "a2-1": {0, 2}, "b1-0": {1}}
    assert shared(outcome, units, able, tries) == shared(outcome, units, able)


def test_the_queues_that_were_early_before_are_tried_first() -> None:
    outcome, units = two_parents()
    able = {"a2-0": {0, 2}, "a2-1": {0, 2}, "b1-0": {1}}
    tries = Tries()
    assert not shared(outcome, units, able, tries).left
    assert tries.first == shared(outcome, units, able, Tries()).early
    assert tries.made > 0
    assert tries.left == Tries().left  # None was in vain.
    assert shared(outcome, units, able, Tries(1)).left
    tries.left = 0
    assert not shared(outcome, units, able, tries).left


def test_tries_in_vain_are_no_more_for_others() -> None:
    outcome, units = two_parents()
    tries = Tries()
    assert shared(outcome, units, {"a2-0": {0}, "a2-1": {0}, "a2-2": {0}, "b1-0": {1}}, tries).left
    assert tries.left < Tries().left


def is_allowed(outcome: Outcome, taken: Sequence[Admission]) -> bool:
    """Whether each reclaim may take its units in the state that the admissions before it left, whatever runs now."""
    problem, pool = outcome.state.problem, outcome.pool
    assert pool is not None
    held = [list(row) for row in problem.allocated]
    fixed = [list(row) for row in problem.allocated_fixed]

    def book(queue: int, charge: Charge, sign: int, *tables: list[list[int]]) -> None:
        for above in problem.queues.path[queue]:
            for table in tables:
                table[above] = [amount + sign * more for amount, more in zip(table[above], charge, strict=True)]

    for admission in taken:
        gang = problem.gangs[admission.allocation_unit.gang]
        charge = sum_of(problem.charges[pod] for pod in admission.allocation_unit.pods)
        units = [pool.units[unit] for unit in admission.units]
        queues = [problem.gangs[unit.gang].queue for unit in units]
        if admission.action is Action.RECLAIM and units:
            right = problem.reclaim_right(held, gang.queue, charge)
            parts = sorted(zip(queues, (u.charge for u in units), strict=True), key=lambda part: part[1][::-1])
            has_right = right.refusal(fixed, preemptible=gang.gang.preemptible) is None
            if not has_right or not ReclaimLedger(right).take_all(queues, parts):
                return False
        book(gang.queue, charge, +1, held, *([] if gang.gang.preemptible else [fixed]))
        for queue, unit in zip(queues, units, strict=True):
            book(queue, unit.charge, -1, held)
    return True


@pytest.mark.parametrize("seed", range(60))
def test_all_that_is_assigned_is_allowed_and_tries_leave_no_more(seed: int) -> None:
    """Any victims of drawn clusters, each for any of the admissions that may take it."""
    outcome = drawn(seed)
    pool = outcome.pool
    if not outcome.admissions or pool is None:
        pytest.skip("no gang came in")
    rights = rights_of(outcome)
    evictors = Evictors(outcome.admissions, rights.takers)
    units = sorted({unit for action in EVICTING for unit in rights.by_action.get(action, ())})
    for gone in (units, units[::2], units[1::2], units[::3], units[1::3]):
        groups = [VictimGroup((unit,), evictors.by(unit, EVICTING)) for unit in gone]
        late, early = share_out(outcome, groups), share_out(outcome, groups, Tries())
        assert late.left or is_allowed(outcome, late.admissions)
        assert is_allowed(outcome, early.admissions)
        gpus = [
            sum(pool.units[unit].charge[GPU] for group in one.left for unit in group.units) for one in (early, late)
        ]
        assert gpus[0] <= gpus[1]
        taken = [unit for admission in early.admissions for unit in admission.units]
        assert sorted([*taken, *(unit for group in early.left for unit in group.units)]) == list(gone)
