"""Domains that are cleared of another tenant: whose units leave, in which order, and that it suffices."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from kai_solver.domain import Snapshot
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.problem.rules import ClearedDomains
from kai_solver.rules.one_tenant.clearing import DOMAINS_TRIED
from tests.engine.test_tenants import a_cluster, a_gang

Way = tuple[set[str], set[str], int]
"""Gangs whose units leave, nodes of the domains, and how many of these there are."""
TWO = [0, 0, 1, 1]
NEWCOMER = a_gang("w", "b", pods=2)


def asked(snapshot: Snapshot) -> tuple[VictimPool, AllocationUnit]:
    """Who could leave, and what gang ``w`` asks for."""
    state = State(build_problem(snapshot))
    number = next(gang.index for gang in state.problem.gangs if gang.gang.name == "w")
    allocation_unit = AllocationUnits(state.problem.gangs[number], state.gangs[number]).next()
    assert allocation_unit is not None
    return VictimPool.of_running(state), allocation_unit


def found(pool: VictimPool, allocation_unit: AllocationUnit, staying: Collection[str] = ()) -> list[ClearedDomains]:
    names = [pool.state.problem.gangs[unit.gang].gang.name for unit in pool.units]
    eligible = np.array([name not in staying for name in names], dtype=np.bool_)
    return [way for rule in pool.state.problem.rules for way in rule.clearings(pool, eligible, allocation_unit)]


def ways(snapshot: Snapshot, staying: Collection[str] = ()) -> list[Way]:
    pool, allocation_unit = asked(snapshot)
    problem = pool.state.problem
    return [
        (
            {problem.gangs[pool.units[unit].gang].gang.name for unit in way.units},
            {node.name for node, inside in zip(problem.nodes, way.nodes, strict=True) if inside},
            way.domains,
        )
        for way in found(pool, allocation_unit, staying)
    ]


def running(name: str, at: str, queue: str = "a", gpus: float = 1, **more: Any) -> dict[str, Any]:
    return a_gang(name, queue, gpus=gpus, at=at, **{"lastStart": "1h", **more})


R0, R1 = {"n0", "n1"}, {"n2", "n3"}


def test_the_cheapest_domain_comes_first_and_all_together_last() -> None:
    for young, old in (("v0", "v1"), ("v1", "v0")):
        gangs = [running("v0", "n0"), running("v1", "n2")]
        times = {young: "1m", old: "10h"}
        stated = [gang | {"lastStart": times[gang["name"]]} for gang in gangs]
        first, last = (R0, R1) if young == "v0" else (R1, R0)
        assert ways(a_cluster(*stated, NEWCOMER, racks=TWO)) == [
            ({young}, first, 1),
            ({old}, last, 1),
            ({"v0", "v1"}, R0 | R1, 2),
        ]


def test_a_domain_in_which_a_pod_may_not_leave_is_left_out() -> None:
    pair = [running("v0", "n0"), running("v1", "n2")]
    assert ways(a_cluster(*pair, NEWCOMER, racks=TWO), staying=["v0"]) == [({"v1"}, R1, 1)]
    fixed = running("f", "n1", priority=100)
    assert ways(a_cluster(*pair, fixed, NEWCOMER, racks=TWO)) == [({"v1"}, R1, 1)]
    with_other = a_cluster(*pair, running("s", "n1"), NEWCOMER, racks=TWO)
    others = tuple(gang for gang in with_other.gangs if gang.name != "s")
    unidentified = tuple(pod for gang in with_other.gangs if gang.name == "s" for pod in gang.pods)
    assert ways(replace(with_other, gangs=others, foreign=unidentified)) == [({"v1"}, R1, 1)]


def test_pods_of_its_own_tenant_and_those_without_gpus_stay() -> None:
    beside = [running("own", "n0", "b"), running("tool", "n1", gpus=0)]
    assert ways(a_cluster(running("v0", "n0"), *beside, NEWCOMER, racks=TWO)) == [({"v0"}, R0, 1)]


def test_a_gang_in_two_domains_leaves_both_for_either() -> None:
    spread = {
        "name": "v",
        "queue": "a",
        "minMember": 2,
        "pods": [{"replicas": 2, "gpus": 1, "running": {"n0": 1, "n2": 1}}],
    }
    assert ways(a_cluster(spread, NEWCOMER, racks=TWO)) == [({"v"}, R0, 1), ({"v"}, R1, 1), ({"v"}, R0 | R1, 2)]


def test_surplus_goes_before_the_core_that_has_to_go() -> None:
    """The core of an elastic gang is in one rack, its surplus in the other."""
    pods = [{"replicas": 2, "gpus": 1, "running": {"n0": 1, "n2": 1}}]
    pool, allocation_unit = asked(
        a_cluster({"name": "v", "queue": "a", "minMember": 1, "pods": pods}, NEWCOMER, racks=TWO)
    )
    assert [len(way.units) for way in found(pool, allocation_unit)] == [1, 2, 2]


def test_what_minds_no_tenants_clears_nothing() -> None:
    tools = {"name": "w", "queue": "b", "pods": [{"cpu": 1}]}
    assert ways(a_cluster(running("v0", "n0"), tools, racks=TWO)) == []
    assert ways(a_cluster(running("v0", "n0", "b"), NEWCOMER, racks=TWO)) == []


def test_only_so_many_domains_are_tried() -> None:
    many = DOMAINS_TRIED + 4
    gangs = [running(f"v{i}", f"n{i}") for i in range(many)]
    here = ways(a_cluster(*gangs, NEWCOMER, racks=list(range(many))))
    assert [count for _, _, count in here] == [1] * DOMAINS_TRIED + list(range(2, DOMAINS_TRIED + 1))


def test_what_is_cleared_is_open_to_the_newcomer() -> None:
    gangs = [running("v0", "n0"), running("v1", "n1"), running("v2", "n2"), running("own", "n3", "b")]
    pool, allocation_unit = asked(a_cluster(*gangs, NEWCOMER, racks=TWO))
    for way in found(pool, allocation_unit):
        mark = pool.state.mark()
        before = pool.state.admitting(allocation_unit.pods[0], None)
        for unit in way.units:
            pool.leave(unit)
        after = pool.state.admitting(allocation_unit.pods[0], None)
        assert before is not None
        assert after is not None
        assert not before[way.nodes].any()
        assert after[way.nodes].all()
        pool.state.rollback(mark)
