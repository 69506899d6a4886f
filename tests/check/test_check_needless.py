"""Needless victims beside domains of one tenant and spare nodes: who could have stayed, against replays of plans."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import (
    Action,
    Bind,
    Device,
    Gang,
    Move,
    Node,
    OneTenant,
    Plan,
    Snapshot,
    SpareNodes,
    Topology,
    TopologyLevel,
)
from tests.check.support import bind, evict, plan
from tests.support.builders import a_cluster, a_gang, a_node

X, Y = {"labels": {"team": "x"}}, {"labels": {"team": "y"}}
LEVELS = (TopologyLevel("rack"),)
TENANTS = Topology("racks", LEVELS, one_tenant=OneTenant("rack", "label:team"))
GPUS = 2


def racked(name: str, rack: str = "", gpus: int = GPUS) -> Node:
    return a_node(name, gpus=gpus, labels={"rack": rack} if rack else {})


def spares(kept: int) -> Topology:
    return Topology("racks", LEVELS, spares=SpareNodes("rack", kept))


def needless(here: Snapshot, one: Plan) -> dict[str, str]:
    """Texts by gang."""
    return {found.object: found.text for found in check_plan(here, one) if found.rule == "needless"}


def coming(target: str) -> Bind:
    return bind("g", 0, target, 0, action=Action.PREEMPT, nominated=True)


def test_a_needless_victim_is_found_beside_a_reclaim_that_gets_nothing() -> None:
    here = a_cluster([a_node("n0", gpus=2)], [a_gang("g"), a_gang("h"), a_gang("r", on="n0")])
    admitted = (("ns/h", Action.RECLAIM), ("ns/g", Action.RECLAIM))
    one = plan(bind("g", 0, "n0", 1, action=Action.RECLAIM), admitted=admitted)
    one = replace(one, evictions=(evict("r", 0, "n0", "g", reason="reclaim"),))
    assert {found.rule for found in check_plan(here, one)} == {"order", "needless"}


# -- one tenant at a time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newcomer", "target", "victim", "at", "could_stay"),
    [
        (Y, "n0", X, "n1", False),
        (X, "n0", X, "n1", True),
        (Y, "n2", X, "n1", True),
        (Y, "n3", X, "n1", True),
        (Y, "n0", X, "n3", True),
        (Y, "n0", {}, "n1", False),
    ],
    ids=["other's", "own", "other rack", "comes outside", "was outside", "no label"],
)
def test_what_leaves_a_rack_for_another_tenant_had_to(
    newcomer: Any, target: str, victim: Any, at: str, could_stay: bool
) -> None:
    nodes = [racked("n0", "r0"), racked("n1", "r0"), racked("n2", "r1"), racked("n3")]
    gangs = [a_gang("g", each=newcomer), a_gang("v", on=[at], priority=10, each=victim)]
    here = a_cluster(nodes, gangs, topologies=(TENANTS,))
    one = plan(coming(target), evictions=(evict("v", 0, at, "g"),))
    assert (list(needless(here, one)) == ["ns/v"]) is could_stay


def test_a_victim_without_gpus_disturbs_no_tenant() -> None:
    here = a_cluster(
        [racked("n0", "r0")],
        [a_gang("g", each=Y), a_gang("v", on=["n0"], gpus=0, priority=10, each=X)],
        topologies=(TENANTS,),
    )
    assert list(needless(here, plan(coming("n0"), evictions=(evict("v", 0, "n0", "g"),)))) == ["ns/v"]


def test_what_moves_out_for_another_tenant_had_to() -> None:
    nodes, moved = [racked("n0", "r0"), racked("n1", "r1")], a_gang("v", on=["n0"], each=X)
    one = plan(bind("g", 0, "n0", 0, action=Action.CONSOLIDATION, nominated=True), moves=(a_move("v", "n0", "n1"),))
    for newcomer, told in ((Y, []), (X, ["ns/v"])):
        here = a_cluster(nodes, [a_gang("g", each=newcomer), moved], topologies=(TENANTS,))
        assert list(needless(here, one)) == told


def a_move(name: str, source: str, target: str) -> Move:
    return Move(f"ns/{name}-0", f"ns/{name}", source, target, (Device(0, 1000),), ("ns/g",))


# -- spare nodes -------------------------------------------------------------------------------------------------------


def kept(topology: Topology, *gangs: Gang, **newcomer: Any) -> Snapshot:
    """Four nodes of one rack; ``v`` runs on the first."""
    nodes = [racked(f"n{i}", "r0") for i in range(4)]
    return a_cluster(nodes, [a_gang("g", **newcomer), *gangs], topologies=(topology,))


VICTIM = a_gang("v", on=["n0"], priority=10)
AWAY = (evict("v", 0, "n0", "g"),)


@pytest.mark.parametrize(("number", "could_stay"), [(0, True), (1, True), (2, True), (3, False), (9, False)])
def test_what_leaves_a_node_that_takes_the_place_of_a_spare_had_to(number: int, could_stay: bool) -> None:
    """Of four nodes three are free; ``g`` takes one of them."""
    topology = spares(number) if number else replace(TENANTS, one_tenant=None)
    found = needless(kept(topology, VICTIM), plan(coming("n1"), evictions=AWAY))
    assert (list(found) == ["ns/v"]) is could_stay


def test_what_comes_to_a_spare_by_right_needs_nothing_gone() -> None:
    one = plan(coming("n1"), evictions=AWAY)
    assert not needless(kept(spares(3), VICTIM), one)
    assert list(needless(kept(spares(3), VICTIM, may_use_spares=True), one)) == ["ns/v"]


def test_what_leaves_a_node_that_stays_in_use_gives_no_spare() -> None:
    other = a_gang("u", on=["n0"])
    one = plan(coming("n0"), evictions=AWAY)
    here = kept(spares(3), VICTIM, other)
    roomy = replace(here, nodes=(racked("n0", "r0", gpus=3), *here.nodes[1:]))
    assert not needless(here, one)
    assert list(needless(roomy, one)) == ["ns/v"]


@pytest.mark.parametrize(("number", "spared"), [(1, "2 of 2 pods"), (2, "1 of 2 pods")])
def test_of_several_on_nodes_that_are_kept_some_could_stay(number: int, spared: str) -> None:
    """Two of four nodes are free; ``g`` takes one, both pods of an elastic gang leave theirs."""
    elastic = a_gang("v", pods=2, on=["n0", "n1"], need=0, priority=10)
    one = plan(coming("n2"), evictions=(evict("v", 0, "n0", "g"), evict("v", 1, "n1", "g")))
    assert spared in needless(kept(spares(number), elastic), one)["ns/v"]


# -- replays -----------------------------------------------------------------------------------------------------------


@st.composite
def plans(draw: st.DrawFn) -> tuple[Snapshot, Plan]:
    """Gangs of one pod anywhere; one comes to a node that has room for it once the victims are gone."""
    racks = draw(st.lists(st.sampled_from(["r0", "r1", ""]), min_size=2, max_size=4))
    nodes = [racked(f"n{i}", rack) for i, rack in enumerate(racks)]
    teams = st.sampled_from(["x", "y"])
    free = [GPUS] * len(nodes)
    gangs, evictions = [], []
    for number in range(draw(st.integers(1, 4))):
        at, gpus = draw(st.integers(0, len(nodes) - 1)), draw(st.integers(0, GPUS))
        if free[at] >= gpus:
            free[at] -= gpus
            pod = {"labels": {"team": draw(teams)}}
            gangs.append(a_gang(f"v{number}", on=[f"n{at}"], gpus=gpus, priority=10, each=pod))
            evictions += [evict(f"v{number}", 0, f"n{at}", "g")] if draw(st.booleans()) else []
    at, gpus = draw(st.integers(0, len(nodes) - 1)), draw(st.integers(1, GPUS))
    uses = draw(st.booleans())
    gangs.append(a_gang("g", gpus=gpus, each={"labels": {"team": draw(teams)}}, may_use_spares=uses))
    topology = replace(TENANTS, spares=SpareNodes("rack", draw(st.integers(1, 2))))
    here = a_cluster(nodes, gangs, topologies=(draw(st.sampled_from([topology, replace(topology, one_tenant=None)])),))
    one = plan(bind("g", 0, f"n{at}", *range(gpus), action=Action.PREEMPT, nominated=True), evictions=tuple(evictions))
    return here, one


RULES = {"capacity", "devices", "tenants", "spares"}


def broken(here: Snapshot, one: Plan) -> set[str]:
    return RULES & {violation.rule for violation in check_plan(here, one)}


@pytest.mark.slow
@given(plans())
def test_a_victim_is_needless_where_the_plan_holds_without_it(drawn: tuple[Snapshot, Plan]) -> None:
    """Where the plan is right as it is: each of its gangs has one pod, so that each is judged alone."""
    here, one = drawn
    if broken(here, one):
        return
    told = set(needless(here, one))
    for eviction in one.evictions:
        rest = tuple(other for other in one.evictions if other is not eviction)
        assert (eviction.gang in told) is not bool(broken(here, replace(one, evictions=rest)))
