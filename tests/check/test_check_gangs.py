from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import (
    Bind,
    Gang,
    Pod,
    PodSet,
    PodStatus,
    Snapshot,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
)
from tests.check.support import bind, broken, plan
from tests.support.builders import GIB, a_cluster, a_gang, a_node


def pods_of(name: str, podset: str, size: int, *, on: Sequence[str] = ()) -> tuple[Pod, ...]:
    return tuple(
        Pod(
            "ns",
            f"{name}-{podset}{i}",
            (1000, GIB, 0, 1),
            podset=podset,
            status=PodStatus.RUNNING if i < len(on) else PodStatus.PENDING,
            node=on[i] if i < len(on) else "",
        )
        for i in range(size)
    )


def place(name: str, pod: str, target: str = "n1", **fields: Any) -> Bind:
    return Bind(f"ns/{name}-{pod}", f"ns/{name}", target, **fields)


# --- gang, readiness -------------------------------------------------------------------------------------------------


def test_half_a_gang_is_refused() -> None:
    here = a_cluster([a_node("n1", 2)], [a_gang("g", pods=2)])
    found = check_plan(here, plan(bind("g", 0, "n1", 0)))
    assert [violation.rule for violation in found] == ["gang"]
    assert "ns/g" in found[0].text


def test_an_elastic_gang_needs_its_minimum_only() -> None:
    assert broken(a_cluster([a_node("n1", 2)], [a_gang("g", pods=3, need=1)]), plan(bind("g", 2, "n1", 0))) == []


def test_running_pods_count_toward_the_minimum() -> None:
    assert broken(a_cluster([a_node("n1", 2)], [a_gang("g", pods=2, on=["n1"])]), plan(bind("g", 1, "n1", 0))) == []


def test_a_gated_pod_is_not_bound() -> None:
    one = a_gang("g", pods=2, need=1, gpus=0)
    gated = replace(one, pods=(one.pods[0], replace(one.pods[1], status=PodStatus.GATED)))
    assert broken(a_cluster([a_node("n1", 2)], [gated]), plan(bind("g", 0, "n1"))) == []
    assert broken(a_cluster([a_node("n1", 2)], [gated]), plan(bind("g", 0, "n1"), bind("g", 1, "n1"))) == ["readiness"]


def test_a_gang_whose_pods_do_not_all_exist_waits() -> None:
    assert broken(a_cluster([a_node("n1", 2)], [a_gang("g", pods=2, need=3)]), plan(bind("g", 0, "n1", 0))) == [
        "readiness"
    ]


# --- subgroup --------------------------------------------------------------------------------------------------------


def two_podsets(needed: int | None, **fields: Any) -> Gang:
    root = SubGroup(children=(PodSet("x", 2), PodSet("y", 2)), min_subgroups=needed)
    return Gang("ns", "g", "a", root, (*pods_of("g", "x", 3), *pods_of("g", "y", 2)), **fields)


@pytest.mark.parametrize(
    ("needed", "pods", "rules"),
    [
        (None, ["x0", "x1", "y0", "y1"], []),
        (None, ["x0", "x1"], ["gang"]),
        (1, ["x0", "x1"], []),
        (1, ["x0", "y0"], ["gang"]),
        (1, ["x0", "x1", "y0"], ["subgroup"]),
        (0, ["x0"], ["subgroup"]),
        (0, ["y0", "y1"], []),
    ],
)
def test_the_tree_says_how_many_subgroups_are_needed(needed: int | None, pods: list[str], rules: list[str]) -> None:
    here = a_cluster([a_node("n1", 2)], [two_podsets(needed)])
    assert broken(here, plan(*(place("g", pod) for pod in pods))) == rules


def test_a_subgroup_inside_a_subgroup_needs_its_own_minimum() -> None:
    inner = SubGroup("inner", (PodSet("x", 1), PodSet("y", 2)), min_subgroups=1)
    one = Gang("ns", "g", "a", SubGroup(children=(inner,)), (*pods_of("g", "x", 1), *pods_of("g", "y", 2)))
    here = a_cluster([a_node("n1", 2)], [one])
    assert broken(here, plan(place("g", "x0"))) == []
    assert broken(here, plan(place("g", "x0"), place("g", "y0"))) == ["subgroup"]
    assert broken(here, plan(place("g", "y0"))) == ["gang"]


def test_a_pod_of_no_known_podset_is_not_bound() -> None:
    one = two_podsets(1)
    one = replace(one, pods=(*one.pods, *pods_of("g", "z", 1)))
    here = a_cluster([a_node("n1", 2)], [one])
    assert broken(here, plan(place("g", "x0"), place("g", "x1"), place("g", "z0"))) == ["subgroup"]


# --- nomination ------------------------------------------------------------------------------------------------------


def test_a_first_minimum_starts_or_waits_as_a_whole() -> None:
    here = a_cluster([a_node("n1", 2)], [a_gang("g", pods=2)])
    first, second = bind("g", 0, "n1", 0), bind("g", 1, "n1", 1)
    assert broken(here, plan(first, replace(second, nominated=True))) == ["nomination"]
    assert broken(here, plan(replace(first, nominated=True), replace(second, nominated=True))) == []


def test_surplus_may_wait_while_the_minimum_starts() -> None:
    here = a_cluster([a_node("n1", 2)], [a_gang("g", pods=2, need=1)])
    assert broken(here, plan(bind("g", 0, "n1", 0), bind("g", 1, "n1", 1, nominated=True))) == []


# --- topology --------------------------------------------------------------------------------------------------------

RACKS = Topology("t", (TopologyLevel("zone"), TopologyLevel("rack", alias="r")))
IN_A_RACK = TopologyConstraint("t", required="r")


def racks(*gangs: Gang) -> Snapshot:
    nodes = [
        a_node(f"{rack}{i}", labels={"zone": "z", "rack": rack}, gpus=2) for rack in ("r1", "r2") for i in range(2)
    ]
    return a_cluster([*nodes, a_node("bare", labels={"zone": "z"}, gpus=2)], gangs, topologies=(RACKS,))


@pytest.mark.parametrize(
    ("targets", "rules"), [(("r10", "r11"), []), (("r10", "r20"), ["topology"]), (("bare", "bare"), ["topology"])]
)
def test_a_gang_stays_within_its_required_domain(targets: tuple[str, str], rules: list[str]) -> None:
    one = a_gang("g", pods=2, root=flat_gang(2, IN_A_RACK))
    binds = [bind("g", i, target, i) for i, target in enumerate(targets)]
    assert broken(racks(one), plan(*binds)) == rules


def test_new_pods_join_the_domain_of_the_running_ones() -> None:
    one = a_gang("g", pods=2, on=["r10"], root=flat_gang(1, IN_A_RACK))
    assert broken(racks(one), plan(bind("g", 1, "r11", 0))) == []
    assert broken(racks(one), plan(bind("g", 1, "r20", 0))) == ["topology"]


def test_a_gang_that_is_spread_already_may_grow_where_it_runs() -> None:
    one = a_gang("g", pods=3, on=["r10", "r20"], root=flat_gang(1, IN_A_RACK))
    assert broken(racks(one), plan(bind("g", 2, "r11", 0))) == []


def test_each_podset_has_a_domain_of_its_own() -> None:
    root = SubGroup(children=(PodSet("x", 2, IN_A_RACK), PodSet("y", 2, IN_A_RACK)))
    one = Gang("ns", "g", "a", root, (*pods_of("g", "x", 2), *pods_of("g", "y", 2)))
    good = [place("g", "x0", "r10"), place("g", "x1", "r11"), place("g", "y0", "r20"), place("g", "y1", "r21")]
    assert broken(racks(one), plan(*good)) == []
    assert broken(racks(one), plan(*good[:3], replace(good[3], node="r11"))) == ["topology"]


def test_a_topology_that_does_not_exist_admits_no_pod() -> None:
    one = a_gang("g", pods=1, root=flat_gang(1, TopologyConstraint("nowhere", required="rack")))
    assert broken(racks(one), plan(bind("g", 0, "r10", 0))) == ["topology"]
