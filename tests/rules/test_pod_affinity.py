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
    Taint,
)
from kai_solver.predicates import CLUSTER_KEY, Placed, clashes_with_pods, kept_off, ports_clash
from kai_solver.rules.pod_relations.index import PodAffinityIndex

ZONES = ("a", "a", "b", "")
TAINTED = 1
NODES = tuple(
    Node(
        f"n{i}",
        (0, 0, 0, 110),
        labels={"host": f"n{i}"} | ({"zone": zone} if zone else {}),
        taints=(Taint("kept", "", "NoSchedule"),) if i == TAINTED else (),
    )
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


def test_with_too_few_domains_the_emptiest_counts_as_empty(index: PodAffinityIndex) -> None:
    wide = Constraints(spread=(SpreadConstraint(WEB, "zone", min_domains=3),))
    index.place(pod("p", app="web"), 0)
    index.place(pod("r", app="web"), 2)
    assert not index.mask(pod("q", wide, app="web")).any()
    narrow = Constraints(spread=(SpreadConstraint(WEB, "zone", min_domains=2),))
    assert index.mask(pod("q", narrow, app="web")).tolist() == [True, True, True, False]


def test_node_affinity_may_be_left_out_of_the_domains(index: PodAffinityIndex) -> None:
    only_a = (((Requirement("zone", "In", ("a",)),),),)
    index.place(pod("p", app="web"), 0)
    asking = Constraints(spread=(SpreadConstraint(WEB, "zone", honours_affinity=False),), node_terms=only_a)
    assert index.mask(pod("q", asking, app="web")).tolist() == [False, False, True, False]


def test_tainted_nodes_are_domains_unless_taints_are_honoured(index: PodAffinityIndex) -> None:
    """The tainted node is empty: as a domain it is what the others are measured by."""
    for node in (0, 2, 3):
        index.place(pod(f"p{node}", app="web"), node)
    ignoring = Constraints(spread=(SpreadConstraint(WEB, "host"),))
    honouring = Constraints(spread=(SpreadConstraint(WEB, "host", honours_taints=True),))
    assert index.mask(pod("q", ignoring, app="web")).tolist() == [False, True, False, False]
    assert index.mask(pod("q", honouring, app="web")).all()


def test_several_spread_rules_hold_at_once(index: PodAffinityIndex) -> None:
    both = Constraints(spread=(SpreadConstraint(WEB, "zone", 2), SpreadConstraint(WEB, "host")))
    index.place(pod("p", app="web"), 0)
    assert index.mask(pod("q", both, app="web")).tolist() == [False, True, True, False]


def test_later_pods_keep_to_the_spread_of_those_that_were_placed_anew(index: PodAffinityIndex) -> None:
    even = Constraints(spread=(SpreadConstraint(WEB, "zone"),))
    index.place(pod("p", even, app="web"), 0, new=True)
    assert index.mask(pod("free", app="web")).tolist() == [False, False, True, True]
    index.remove(pod("p", even, app="web"), 0)
    index.place(pod("p", even, app="web"), 0)
    assert index.mask(pod("free", app="web")).all()


def test_pods_that_match_come_later_to_a_new_pod_that_came_as_the_first(index: PodAffinityIndex) -> None:
    first, second = pod("p", NEAR_WEB, app="web"), pod("q", app="web")
    index.place(first, 0, new=True)
    assert index.mask(second).tolist() == [True, True, False, False]
    index.place(second, 1)
    assert index.mask(pod("r", app="web")).all()


@pytest.mark.parametrize(("app", "new"), [("db", True), ("web", False)])
def test_others_come_where_they_like(index: PodAffinityIndex, app: str, new: bool) -> None:
    """Strangers of a new pod that came as the first, and friends of one that was there before."""
    index.place(pod("p", NEAR_WEB, app="web"), 0, new=new)
    assert index.mask(pod("q", app=app)).all()


def test_friends_of_a_new_pod_that_has_company_come_where_they_like(index: PodAffinityIndex) -> None:
    index.place(pod("r", app="web"), 0)
    index.place(pod("p", NEAR_WEB, app="db"), 0, new=True)
    assert index.mask(pod("q", app="web")).all()


def test_a_pod_is_sought_that_a_pod_with_a_new_place_requires(index: PodAffinityIndex) -> None:
    friend, stranger, asking = pod("q", app="web"), pod("r", app="db"), pod("p", NEAR_WEB)
    index.place(friend, 0)
    index.place(asking, 0)
    assert not index.is_sought(friend)
    index.remove(asking, 0)
    index.place(asking, 0, new=True)
    assert index.is_sought(friend)
    assert not index.is_sought(stranger)


def test_agreeing_is_about_the_others_and_changes_nothing(index: PodAffinityIndex) -> None:
    one, other = pod("p", FAR_FROM_WEB, app="web"), pod("r", app="web")
    index.place(one, 0, new=True)
    assert index.agrees(one, 0)
    index.place(other, 1)
    assert not index.agrees(one, 0)
    index.remove(other, 1)
    assert index.agrees(one, 0)


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
KEYS = st.sampled_from(["zone", "host", "absent", CLUSTER_KEY])
TERMS = st.lists(st.builds(PodAffinityTerm, SELECTORS, KEYS, st.sampled_from([(), ("ns",), ("*",)])), max_size=2).map(
    tuple
)
CONSTRAINTS = st.builds(
    Constraints,
    affinity=TERMS,
    anti_affinity=TERMS,
    spread=st.lists(
        st.builds(
            SpreadConstraint, SELECTORS, KEYS, st.integers(1, 2), st.integers(1, 4), st.booleans(), st.booleans()
        ),
        max_size=2,
    ).map(tuple),
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
    assert index.clear(asked).tolist() == [kept_off(asked, node, placed) is None for node in NODES]
    plain = [clashes_with_pods(asked, node, placed, NODES) is None for node in NODES]
    assert index.mask(asked).tolist() == plain


@given(st.lists(st.tuples(PODS, st.integers(0, 3), st.booleans()), max_size=6))
def test_pods_that_come_later_break_no_rule_of_those_with_new_places(history: list[tuple[Pod, int, bool]]) -> None:
    index = PodAffinityIndex(NODES)
    placed: list[Placed] = []
    come: list[Placed] = []
    for number, (drawn, node, new) in enumerate(history):
        member = replace(drawn, name=f"p{number}")
        if new and not index.mask(member)[node]:
            continue
        if not new and come:  # Those who are there already were there before.
            continue
        index.place(member, node, new=new)
        placed.append(Placed(member, NODES[node]))
        if new:
            come.append(placed[-1])
    assert [clashes_with_pods(one.pod, one.node, placed, NODES) for one in come] == [None] * len(come)
