"""Rules between pods: affinity, anti-affinity both ways, spread, host ports; index and plain way agree."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import (
    Constraints,
    Node,
    Pod,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
)
from kai_solver.predicates import Placed, PodAffinityIndex, clashes_with_pods, ports_clash

ZONES = ("a", "a", "b", "")
NODES = tuple(
    Node(f"n{i}", (0, 0, 0, 110), labels={"host": f"n{i}"} | ({"zone": zone} if zone else {}))
    for i, zone in enumerate(ZONES)
)
WEB = (Requirement("app", "In", ("web",)),)
NEAR_WEB = Constraints(affinity=(PodAffinityTerm(WEB, "zone"),))
FAR_FROM_WEB = Constraints(anti_affinity=(PodAffinityTerm(WEB, "zone"),))


def pod(name: str, constraints: Constraints | None = None, namespace: str = "ns", **labels: str) -> Pod:
    return Pod(namespace, name, (0, 0, 0, 1), constraints=constraints or Constraints(), labels=labels)


@pytest.fixture
def index() -> PodAffinityIndex:
    return PodAffinityIndex(NODES)


def test_without_rules_everything_is_open(index: PodAffinityIndex) -> None:
    index.place(pod("p", app="web"), 0)
    assert index.mask(pod("q", app="web")).all()


def test_affinity_asks_for_a_matching_pod_in_the_domain(index: PodAffinityIndex) -> None:
    asking = pod("q", NEAR_WEB)
    assert not index.mask(asking).any()
    index.place(pod("p", app="web"), 0)
    assert index.mask(asking).tolist() == [True, True, False, False]
    index.remove(pod("p", app="web"), 0)
    assert not index.mask(asking).any()


def test_the_first_of_a_self_affine_gang_may_start_a_domain_and_the_others_follow(index: PodAffinityIndex) -> None:
    first, second = pod("g-0", NEAR_WEB, app="web"), pod("g-1", NEAR_WEB, app="web")
    assert index.mask(first).tolist() == [True, True, True, False]
    index.place(first, 2)
    assert index.mask(second).tolist() == [False, False, True, False]


def test_a_pod_that_would_not_match_itself_may_not_start(index: PodAffinityIndex) -> None:
    assert not index.mask(pod("q", NEAR_WEB, app="db")).any()


def test_affinity_looks_at_the_own_namespace_unless_told(index: PodAffinityIndex) -> None:
    index.place(pod("p", namespace="other", app="web"), 0)
    assert not index.mask(pod("q", NEAR_WEB)).any()
    for scope in (("other",), ("*",)):
        wide = Constraints(affinity=(PodAffinityTerm(WEB, "zone", scope),))
        assert index.mask(pod("q", wide)).tolist() == [True, True, False, False]


def test_a_friend_must_match_all_terms_at_once(index: PodAffinityIndex) -> None:
    both = Constraints(
        affinity=(PodAffinityTerm(WEB, "zone"), PodAffinityTerm((Requirement("tier", "In", ("x",)),), "host"))
    )
    index.place(pod("half", app="web"), 0)
    index.place(pod("other-half", tier="x"), 0)
    assert not index.mask(pod("q", both)).any()
    index.place(pod("whole", app="web", tier="x"), 1)
    assert index.mask(pod("q", both)).tolist() == [False, True, False, False]


def test_anti_affinity_keeps_out_of_the_domain_but_not_off_nodes_without_one(index: PodAffinityIndex) -> None:
    index.place(pod("p", app="web"), 0)
    assert index.mask(pod("q", FAR_FROM_WEB)).tolist() == [False, False, True, True]


def test_placed_pods_anti_affinity_holds_against_newcomers(index: PodAffinityIndex) -> None:
    loner = pod("loner", FAR_FROM_WEB, app="db")
    index.place(loner, 2)
    assert index.mask(pod("q", app="web")).tolist() == [True, True, False, True]
    assert index.mask(pod("q", app="db")).all()
    index.remove(loner, 2)
    assert index.mask(pod("q", app="web")).all()


def test_removing_a_pod_that_was_never_placed_changes_nothing(index: PodAffinityIndex) -> None:
    index.remove(pod("loner", FAR_FROM_WEB), 2)
    index.place(pod("loner", FAR_FROM_WEB), 2)
    assert not index.mask(pod("q", app="web"))[2]


def test_spread_keeps_the_skew(index: PodAffinityIndex) -> None:
    even = Constraints(spread=(SpreadConstraint(WEB, "zone"),))
    index.place(pod("p", app="web"), 0)
    assert index.mask(pod("q", even, app="web")).tolist() == [False, False, True, False]
    index.place(pod("r", app="web"), 2)
    assert index.mask(pod("q", even, app="web")).tolist() == [True, True, True, False]


def test_a_larger_skew_allows_more(index: PodAffinityIndex) -> None:
    loose = Constraints(spread=(SpreadConstraint(WEB, "zone", 2),))
    index.place(pod("p", app="web"), 0)
    assert index.mask(pod("q", loose, app="web")).tolist() == [True, True, True, False]


def test_a_pod_that_the_spread_does_not_count_adds_nothing_to_it(index: PodAffinityIndex) -> None:
    even = Constraints(spread=(SpreadConstraint(WEB, "zone"),))
    index.place(pod("p", app="web"), 0)
    assert index.mask(pod("q", even, app="db")).tolist() == [True, True, True, False]


def test_spread_counts_only_domains_that_the_node_affinity_admits(index: PodAffinityIndex) -> None:
    in_a = Constraints(spread=(SpreadConstraint(WEB, "zone"),), node_terms=(((Requirement("zone", "In", ("a",)),),),))
    index.place(pod("p", app="web"), 0)
    assert index.mask(pod("q", in_a, app="web"))[:2].tolist() == [True, True]


def test_host_ports_exclude_each_other_on_a_node(index: PodAffinityIndex) -> None:
    index.place(pod("p", Constraints(host_ports=("80/TCP", "53/UDP"))), 0)
    assert index.mask(pod("q", Constraints(host_ports=("80/TCP",)))).tolist() == [False, True, True, True]
    assert index.mask(pod("q", Constraints(host_ports=("53/TCP",)))).all()


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("80/TCP", "80/TCP", True),
        ("80/TCP", "80/UDP", False),
        ("80/TCP", "81/TCP", False),
        ("80/TCP/10.0.0.1", "80/TCP", True),
        ("80/TCP/10.0.0.1", "80/TCP/10.0.0.2", False),
        ("80/TCP/10.0.0.1", "80/TCP/10.0.0.1", True),
        ("80", "80/TCP", True),
    ],
)
def test_ports_clash(one: str, other: str, clash: bool) -> None:
    assert ports_clash(one, other) is ports_clash(other, one) is clash


SELECTORS = st.sampled_from([WEB, (Requirement("app", "In", ("db",)),), (Requirement("app", "Exists"),), ()])
KEYS = st.sampled_from(["zone", "host", "absent"])
TERMS = st.lists(st.builds(PodAffinityTerm, SELECTORS, KEYS, st.sampled_from([(), ("ns",), ("*",)])), max_size=2).map(
    tuple
)
CONSTRAINTS = st.builds(
    Constraints,
    affinity=TERMS,
    anti_affinity=TERMS,
    spread=st.lists(st.builds(SpreadConstraint, SELECTORS, KEYS, st.integers(1, 2)), max_size=2).map(tuple),
    host_ports=st.lists(st.sampled_from(["80/TCP", "80/TCP/10.0.0.1"]), max_size=1).map(tuple),
    node_terms=st.sampled_from([(), (((Requirement("zone", "Exists"),),),)]),
)
PODS = st.builds(
    lambda constraints, namespace, app: pod("p", constraints, namespace, **({"app": app} if app else {})),
    CONSTRAINTS,
    st.sampled_from(["ns", "other"]),
    st.sampled_from(["web", "db", ""]),
)


@given(st.lists(st.tuples(PODS, st.integers(0, 3), st.booleans()), max_size=5), PODS)
def test_the_index_and_the_plain_way_agree_after_any_history(
    history: list[tuple[Pod, int, bool]], newcomer: Pod
) -> None:
    index, placed = PodAffinityIndex(NODES), []
    for number, (drawn, node, leaves) in enumerate(history):
        member = replace(drawn, name=f"p{number}")
        index.mask(member)
        index.place(member, node)
        if leaves:
            index.remove(member, node)
        else:
            placed.append(Placed(member, NODES[node]))
    asked = replace(newcomer, name="new")
    plain = [clashes_with_pods(asked, node, placed, NODES) is None for node in NODES]
    assert index.mask(asked).tolist() == plain
