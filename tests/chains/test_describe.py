"""The arrays say what the state says, and leave out what they cannot say."""

import numpy as np
import pytest
from numpy.typing import NDArray

from kai_solver.chains.arrays import NONE, check_arrays
from kai_solver.domain import Action, Constraints, GpuRequest, PodAffinityTerm, Requirement, Snapshot, flat_gang
from kai_solver.problem.rules import Ledger
from kai_solver.units import MILLI, PODS
from tests.chains.test_effect import Case, halves, victims
from tests.support.builders import RACK, a_cluster, a_gang, a_node, a_queue, labelled

HALF = GpuRequest(1, MILLI // 2)


def names(case: Case) -> set[str]:
    description = case.described()
    return {case.problem.pods[pod].name for pod in description.pods.tolist()}


@pytest.mark.parametrize("snapshot", [halves(), victims()])
def test_with_all_pods_in_place_the_room_is_that_of_the_state(snapshot: Snapshot) -> None:
    case = Case(snapshot)
    arrays = case.described().problem
    room, devices = arrays.room.copy(), arrays.device_room.copy()
    for pod, node in enumerate(arrays.start.tolist()):
        if node != NONE:
            room[node] -= arrays.request[arrays.shape[pod]]
            for device in arrays.start_devices[pod].tolist():
                if device != NONE:
                    devices[node, device] -= arrays.parts[arrays.shape[pod], arrays.kind[node]]
    assert (room == case.state.future.T).all()
    assert (devices == case.state.device_future).all()


def test_a_device_of_which_all_sharers_may_go_has_room_for_the_reservation_pod_too() -> None:
    gangs = [a_gang("a", HALF, on="n0"), a_gang("b", HALF, on="n0"), a_gang("wide", 2)]
    case = Case(a_cluster([a_node("n0", 2), a_node("n1", 1)], gangs))
    arrays = case.described().problem
    assert arrays.sharers.sum() == 0
    assert arrays.slots == PODS
    assert arrays.room[0, PODS] == case.state.future[PODS, 0] + 2 + 1


def test_work_that_moved_already_may_move_on_or_come_home() -> None:
    case = Case(halves(a_gang("huge", 4, 4, 4)), (Action.ALLOCATE, Action.CONSOLIDATION))
    moved = set(case.where()) - {"wide-0"}
    assert len(moved) == 1
    arrays, described = case.described().problem, names(case)
    assert moved < described
    assert ((arrays.home != NONE) & (arrays.start != arrays.home)).sum() == 1


def test_what_carries_a_rule_about_other_pods_stays() -> None:
    near = PodAffinityTerm((Requirement("app", "In", ("x",)),), "host")
    ruled = a_gang("ruled", 1, 1, on="n0", each={"constraints": Constraints(preferred_pods=((1, near),))})
    nodes = [a_node(f"n{i}", 4, labels={"host": f"n{i}"}) for i in range(2)]
    case = Case(a_cluster(nodes, [labelled(ruled, app="x"), a_gang("b", 2, on="n1"), a_gang("wide", 4)]))
    assert names(case) == {"b-0", "wide-0"}


@pytest.mark.parametrize(("limited", "left"), [([False, True], {"a-0", "wide-0"}), (None, {"wide-0"})])
def test_work_stays_on_nodes_where_an_optional_rule_limits_what_fits(
    limited: list[bool] | None, left: set[str]
) -> None:
    class Limiting(Ledger):
        def counts_alike(self, shape: int, /) -> bool:
            return True

        def limits(self, shape: int, /) -> bool:
            return True

        def limited_nodes(self, shape: int, /) -> NDArray[np.bool_] | None:
            return None if limited is None else np.array(limited)

    case = Case(halves())
    case.state.rules = (*case.state.rules, Limiting())
    assert names(case) == left
    assert case.described().problem.allowed.any(axis=0).tolist() == [not tied for tied in limited or [True, True]]


def test_parts_of_a_gang_that_ask_for_domains_of_their_own_stay() -> None:
    nodes = [a_node(f"n{i}", 4, rack="r") for i in range(2)]
    own = a_gang("own", 2, on="n0", root=flat_gang(1, RACK))
    case = Case(a_cluster(nodes, [own, a_gang("b", 2, on="n1"), a_gang("wide", 4)]))
    arrays = case.described().problem
    assert arrays.domain.shape == (1, 2)
    assert arrays.level.tolist().count(0) == 1


def test_surplus_leaves_before_its_core() -> None:
    gangs = [a_gang("many", 1, 1, 1, on="n0", need=1), a_gang("b", 2, on="n1"), a_gang("wide", 4)]
    case = Case(a_cluster([a_node("n0", 4), a_node("n1", 4)], gangs))
    description = case.described()
    steps = {group.unit: number for number, group in enumerate(description.groups) if group.unit != NONE}
    units = [unit for unit in case.pool.units if len(case.pool.of_gang[unit.gang]) > 1]
    assert len(units) == 3
    for unit in units:
        required = description.problem.requires[steps[unit.index]]
        assert required == (NONE if unit.is_core else steps[unit.index + 1])


def test_a_limit_is_what_is_left_beside_the_work_that_stays() -> None:
    gangs = [a_gang("a", 2, on="n0", queue="tight"), a_gang("fixed", 1, on="n1", queue="tight", preemptible=False)]
    gangs += [a_gang("b", 1, on="n1"), a_gang("wide", 4)]
    queues = [a_queue("q"), a_queue("tight", limit=5)]
    case = Case(a_cluster([a_node("n0", 4), a_node("n1", 4)], gangs, queues))
    arrays = case.described().problem
    assert arrays.ledger_limit.tolist()[0][2] == 4 * MILLI
    assert (arrays.in_ledgers[:, 0] == 0).sum() == 1


def test_work_of_a_higher_priority_outweighs_all_below_and_moves() -> None:
    gangs = [
        *(a_gang(f"low{i}", 1, on=f"n{i}", priority=40) for i in range(3)),
        a_gang("high", 1, on="n0", priority=50, last_start_s=999.0),
        a_gang("urgent", 4, priority=60),
        a_gang("huge", 4, 4, 4, 4),
    ]
    case = Case(a_cluster([a_node(f"n{i}", 4) for i in range(3)], gangs), (Action.ALLOCATE, Action.PREEMPT))
    description = case.described()
    arrays = description.problem
    check_arrays(arrays)
    cost = {
        case.problem.gangs[case.pool.units[group.unit].gang].gang.name: int(arrays.cost[number])
        for number, group in enumerate(description.groups)
        if group.unit != NONE
    }
    assert cost["high"] > sum(own for name, own in cost.items() if name != "high") + int(arrays.price.sum())
    assert np.all(arrays.price[arrays.home == NONE] == 0)
