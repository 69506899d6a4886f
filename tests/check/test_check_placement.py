from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import (
    Action,
    Constraints,
    Device,
    Eviction,
    Gang,
    Move,
    PodAffinityTerm,
    Requirement,
    Snapshot,
    SpreadConstraint,
    Taint,
    Toleration,
)
from tests.check.support import bind, broken, plan
from tests.support.builders import a_cluster, a_gang, a_node

IS_WEB = (Requirement("app", "In", ("web",)),)
WEB = {"app": "web"}
NEAR = PodAffinityTerm(IS_WEB, "zone")


def zones(*gangs: Gang, taints: tuple[Taint, ...] = ()) -> Snapshot:
    nodes = [
        a_node("n1", labels={"zone": "x"}, gpus=2),
        a_node("n2", labels={"zone": "x"}, gpus=2),
        a_node("n3", labels={"zone": "y"}, gpus=2),
    ]
    return a_cluster([*nodes[:2], replace(nodes[2], taints=taints)], gangs)


def web(name: str, size: int = 1, *, on: Sequence[str] = (), **constraints: Any) -> Gang:
    return a_gang(
        name, pods=size, on=on, gpus=0, need=1, each={"labels": WEB, "constraints": Constraints(**constraints)}
    )


@pytest.mark.parametrize(("target", "rules"), [("n1", []), ("n3", ["predicates"])])
def test_a_node_selector_holds(target: str, rules: list[str]) -> None:
    in_x = Constraints(node_terms=(((Requirement("zone", "In", ("x",)),),),))
    assert broken(zones(a_gang("g", each={"constraints": in_x})), plan(bind("g", 0, target, 0))) == rules


def test_a_taint_must_be_tolerated() -> None:
    taint = Taint("gpu", "true")
    patient = Constraints(tolerations=(Toleration("gpu", "Exists"),))
    assert broken(zones(a_gang("g"), taints=(taint,)), plan(bind("g", 0, "n3", 0))) == ["predicates"]
    tolerant = a_gang("g", each={"constraints": patient})
    assert broken(zones(tolerant, taints=(taint,)), plan(bind("g", 0, "n3", 0))) == []


def test_a_cordoned_node_gets_no_pods() -> None:
    here = a_cluster([a_node("n1", schedulable=False, gpus=2)], [a_gang("g")])
    assert broken(here, plan(bind("g", 0, "n1", 0))) == ["predicates"]


def test_a_blocked_pod_goes_nowhere() -> None:
    one = a_gang("g", each={"constraints": Constraints(blocked=("the claim is lost",))})
    found = check_plan(zones(one), plan(bind("g", 0, "n1", 0)))
    assert [violation.rule for violation in found] == ["predicates"]
    assert "the claim is lost" in found[0].text


def test_predicates_hold_for_moves_too() -> None:
    gangs = [a_gang("g", gpus=2), a_gang("r", on=["n1"]), a_gang("s", on=["n2"])]
    here = a_cluster([a_node("n1", 2), a_node("n2", taints=(Taint("gpu"),), gpus=2)], gangs)
    moved = Move("ns/r-0", "ns/r", "n1", "n2", (Device(0, 1000),), ("ns/g",))
    entry = bind("g", 0, "n1", 0, 1, nominated=True, action=Action.CONSOLIDATION)
    assert broken(here, plan(entry, moves=(moved,))) == ["predicates"]


@pytest.mark.parametrize(("target", "rules"), [("n3", []), ("n2", ["predicates"])])
def test_new_pods_keep_away_from_those_that_they_forbid(target: str, rules: list[str]) -> None:
    here = zones(web("g", anti_affinity=(NEAR,)), web("r", on=["n1"]))
    assert broken(here, plan(bind("g", 0, target))) == rules


@pytest.mark.parametrize(("target", "rules"), [("n3", []), ("n2", ["predicates"])])
def test_running_pods_keep_others_away(target: str, rules: list[str]) -> None:
    here = zones(web("g"), web("r", on=["n1"], anti_affinity=(NEAR,)))
    assert broken(here, plan(bind("g", 0, target))) == rules


def test_new_pods_keep_away_from_one_another() -> None:
    here = zones(web("g", 2, anti_affinity=(NEAR,)))
    assert broken(here, plan(bind("g", 0, "n1"), bind("g", 1, "n3"))) == []
    assert broken(here, plan(bind("g", 0, "n1"), bind("g", 1, "n2"))) == ["predicates"] * 2


def test_a_gang_with_affinity_to_itself_starts_in_one_place() -> None:
    here = zones(web("g", 2, affinity=(NEAR,)))
    assert broken(here, plan(bind("g", 0, "n1"), bind("g", 1, "n2"))) == []
    assert broken(here, plan(bind("g", 0, "n1"), bind("g", 1, "n3"))) == ["predicates"] * 2


def test_affinity_to_running_pods_holds() -> None:
    here = zones(a_gang("g", gpus=0, each={"constraints": Constraints(affinity=(NEAR,))}), web("r", on=["n1"]))
    assert broken(here, plan(bind("g", 0, "n2"))) == []
    assert broken(here, plan(bind("g", 0, "n3"))) == ["predicates"]


def test_pods_spread_evenly() -> None:
    even = SpreadConstraint(IS_WEB, "zone")
    here = zones(web("g", 2, spread=(even,)))
    assert broken(here, plan(bind("g", 0, "n1"), bind("g", 1, "n3"))) == []
    assert broken(here, plan(bind("g", 0, "n1"), bind("g", 1, "n2"))) == ["predicates"] * 2


def test_a_port_is_free_when_its_holder_has_gone() -> None:
    port: dict[str, Any] = {"host_ports": ("80/TCP",)}
    victim = replace(web("v", on=["n1"], **port), priority=10)
    here = zones(web("g", **port), victim)
    eviction = Eviction("ns/v-0", "ns/v", "n1", "preempt", ("ns/g",))
    waiting = bind("g", 0, "n1", nominated=True, action=Action.PREEMPT)
    assert broken(here, plan(waiting, evictions=(eviction,))) == []
    assert broken(here, plan(replace(waiting, nominated=False), evictions=(eviction,))) == ["predicates"]
    assert broken(here, plan(bind("g", 0, "n1"))) == ["predicates"]
    assert broken(here, plan(bind("g", 0, "n2"))) == []
