"""Node predicates: expressions, taints, cordons, reasons, and agreement of the fast and the plain way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import Constraints, Node, Pod, Requirement, Taint, Toleration
from kai_solver.domain.gpus import shares_elsewhere
from kai_solver.predicates import (
    AFFINITY_MISMATCH,
    NOT_SHARED,
    UNSCHEDULABLE,
    NodePredicates,
    fits_node,
    tolerated,
    value_matches,
)

VECTOR = (0, 0, 0, 110)


def node(name: str, *taints: Taint, schedulable: bool = True, **labels: str) -> Node:
    return Node(name, VECTOR, labels=labels, taints=taints, schedulable=schedulable)


def wants(*requirements: Requirement) -> Constraints:
    return Constraints(node_terms=((requirements,),))


@pytest.mark.parametrize(
    ("operator", "values", "on_a", "on_b", "absent"),
    [
        ("In", ("a", "c"), True, False, False),
        ("NotIn", ("a", "c"), False, True, True),
        ("Exists", (), True, True, False),
        ("DoesNotExist", (), False, False, True),
    ],
)
def test_operators_on_sets(operator: str, values: tuple[str, ...], on_a: bool, on_b: bool, absent: bool) -> None:
    requirement = Requirement("k", operator, values)  # type: ignore[arg-type]
    assert [value_matches(requirement, value) for value in ("a", "b", None)] == [on_a, on_b, absent]


@pytest.mark.parametrize(
    ("operator", "bound", "value", "holds"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "-4", True),
        ("Lt", "5", "5", False),
        ("Gt", "5", "many", False),
        ("Gt", "few", "6", False),
        ("Lt", "5", "4.5", False),
        ("Gt", "5", "9" * 5000, False),
    ],
)
def test_gt_and_lt_compare_integers_only(operator: str, bound: str, value: str, holds: bool) -> None:
    assert value_matches(Requirement("k", operator, (bound,)), value) is holds  # type: ignore[arg-type]


def test_every_entry_needs_one_of_its_terms() -> None:
    nodes = (node("n0", disk="ssd", zone="a"), node("n1", disk="ssd", zone="b"), node("n2", disk="hdd", zone="a"))
    ssd, zone_b, zone_c = (
        (Requirement("disk", "In", ("ssd",)),),
        (Requirement("zone", "In", ("b",)),),
        (Requirement("zone", "In", ("c",)),),
    )
    predicates = NodePredicates(nodes)
    assert predicates.node_mask(Constraints(node_terms=((ssd,),))).tolist() == [True, True, False]
    assert predicates.node_mask(Constraints(node_terms=((ssd,), (zone_b, zone_c)))).tolist() == [False, True, False]
    assert predicates.node_mask(Constraints(node_terms=((ssd,), (zone_c,)))).tolist() == [False] * 3


def test_an_entry_without_terms_and_a_term_without_requirements_match_nothing() -> None:
    predicates = NodePredicates((node("n0"),))
    assert predicates.node_mask(Constraints(node_terms=((),))).tolist() == [False]
    assert predicates.node_mask(Constraints(node_terms=(((),),))).tolist() == [False]


def test_metadata_name_stands_for_the_node_name() -> None:
    predicates = NodePredicates((node("n0"), node("n1")))
    assert predicates.node_mask(wants(Requirement("metadata.name", "In", ("n1",)))).tolist() == [False, True]


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (Toleration("gpu", "Equal", "yes"), True),
        (Toleration("gpu", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("cpu", "Exists"), False),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("", "Equal", "yes"), False),
    ],
)
def test_tolerations(toleration: Toleration, covers: bool) -> None:
    assert tolerated(Taint("gpu", "yes"), (toleration,)) is covers


def test_taints_bind_unless_they_are_preferences() -> None:
    nodes = (
        node("n0", Taint("a")),
        node("n1", Taint("a", effect="NoExecute")),
        node("n2", Taint("a", effect="PreferNoSchedule")),
    )
    predicates = NodePredicates(nodes)
    assert predicates.node_mask(Constraints()).tolist() == [False, False, True]
    tolerant = Constraints(tolerations=(Toleration("a", "Exists"),))
    assert predicates.node_mask(tolerant).tolist() == [True, True, True]


def test_nothing_new_goes_to_a_cordoned_node_whatever_it_tolerates() -> None:
    predicates = NodePredicates((node("n0", schedulable=False),))
    assert predicates.node_mask(Constraints(tolerations=(Toleration("", "Exists"),))).tolist() == [False]


def test_nodes_whose_gpus_are_not_shared_have_a_reason_of_their_own() -> None:
    predicates = NodePredicates((node("n0", disk="ssd"), node("n1"), node("n2", disk="ssd"), node("n3")))
    asked = ((Requirement("disk", "In", ("ssd",)),),)
    constraints = Constraints(node_terms=(asked, shares_elsewhere(["n0", "n1"])))
    assert predicates.node_mask(constraints).tolist() == [False, False, True, False]
    assert predicates.reasons(constraints) == {NOT_SHARED: 2, AFFINITY_MISMATCH: 1}
    assert [predicates.reason(constraints, i) for i in range(4)] == [NOT_SHARED, NOT_SHARED, "", AFFINITY_MISMATCH]


def test_reasons_count_each_node_once_in_kubernetes_words() -> None:
    nodes = (
        node("n0", Taint("gpu", "yes"), schedulable=False),
        node("n1", Taint("gpu", "yes")),
        node("n2", Taint("gpu", "yes"), disk="ssd"),
        node("n3", disk="hdd"),
        node("n4", disk="ssd"),
    )
    predicates, constraints = NodePredicates(nodes), wants(Requirement("disk", "In", ("ssd",)))
    assert predicates.reasons(constraints) == {
        UNSCHEDULABLE: 1,
        "node(s) had untolerated taint {gpu: yes}": 2,
        AFFINITY_MISMATCH: 1,
    }
    assert predicates.reason(constraints, 1) == "node(s) had untolerated taint {gpu: yes}"
    assert predicates.reason(constraints, 4) == ""


def test_a_blocked_pod_fits_nowhere_and_says_why() -> None:
    predicates, constraints = NodePredicates((node("n0"), node("n1"))), Constraints(blocked=("claim x is missing",))
    assert not predicates.node_mask(constraints).any()
    assert predicates.reasons(constraints) == {"claim x is missing": 2}


def test_preferred_terms_add_their_weights_and_are_scaled_over_the_candidates() -> None:
    constraints = Constraints(
        preferred=((10, (Requirement("disk", "In", ("ssd",)),)), (3, (Requirement("zone", "Exists"),)))
    )
    predicates = NodePredicates((node("n0", disk="ssd", zone="a"), node("n1", zone="b"), node("n2")))
    assert predicates.preference(constraints, np.array([True, True, True])).tolist() == [200, 46, 0]
    assert predicates.preference(constraints, np.array([False, True, True]))[1:].tolist() == [200, 0]
    assert predicates.node_mask(constraints).all()


def test_taints_that_ask_to_stay_away_are_heard_where_others_are_free() -> None:
    quiet = Taint("quiet", "yes", "PreferNoSchedule")
    predicates = NodePredicates((Node("n0", (), taints=(quiet, Taint("b", "", "PreferNoSchedule"))), Node("n1", ())))
    everywhere = np.array([True, True])
    assert predicates.node_mask(Constraints()).all()
    assert predicates.preference(Constraints(), everywhere).tolist() == [0, 300]
    one = Constraints(tolerations=(Toleration("quiet", "Exists", effect="PreferNoSchedule"),))
    assert predicates.preference(one, everywhere).tolist() == [0, 300]
    both = Constraints(tolerations=(Toleration("", "Exists"),))
    assert predicates.preference(both, everywhere).tolist() == [0, 0]
    assert not NodePredicates((Node("n0", ()),)).has_preference(Constraints())


def test_equal_constraints_share_one_read_only_mask() -> None:
    predicates = NodePredicates((node("n0"),))
    one = predicates.node_mask(wants(Requirement("a", "Exists")))
    assert predicates.node_mask(wants(Requirement("a", "Exists"))) is one
    with pytest.raises(ValueError, match="read-only"):
        one[0] = True


def test_no_nodes_no_answers() -> None:
    predicates = NodePredicates(())
    assert predicates.node_mask(wants(Requirement("a", "Exists"))).shape == (0,)
    assert predicates.reasons(wants(Requirement("a", "Exists"))) == {}


KEYS, VALUES = st.sampled_from(["a", "b"]), st.sampled_from(["1", "2", "x"])
REQUIREMENTS = st.builds(
    Requirement,
    st.sampled_from(["a", "b", "metadata.name"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(st.sampled_from(["1", "2", "x", "n0", "n1"]), min_size=1, max_size=2).map(tuple),
)
TERMS = st.lists(REQUIREMENTS, max_size=2).map(tuple)
TAINTS = st.builds(Taint, KEYS, VALUES, st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]))
TOLERATIONS = st.builds(
    Toleration, st.sampled_from(["", "a", "b"]), st.sampled_from(["Equal", "Exists"]), VALUES, st.just("")
)
CONSTRAINTS = st.builds(
    Constraints,
    node_terms=st.lists(st.lists(TERMS, max_size=2).map(tuple), max_size=2).map(tuple),
    tolerations=st.lists(TOLERATIONS, max_size=2).map(tuple),
)
NODES = st.lists(
    st.tuples(st.dictionaries(KEYS, VALUES), st.lists(TAINTS, max_size=2).map(tuple), st.booleans()), max_size=4
)


@given(NODES, CONSTRAINTS)
def test_the_vectorised_and_the_plain_way_agree(
    drawn: list[tuple[dict[str, str], tuple[Taint, ...], bool]], constraints: Constraints
) -> None:
    nodes = [Node(f"n{i}", VECTOR, labels=lab, taints=t, schedulable=s) for i, (lab, t, s) in enumerate(drawn)]
    predicates = NodePredicates(nodes)
    pod = Pod("ns", "p", VECTOR, constraints=constraints)
    plain = [fits_node(pod, candidate) for candidate in nodes]
    assert predicates.node_mask(constraints).tolist() == [why is None for why in plain]
    assert [predicates.reason(constraints, i) or None for i in range(len(nodes))] == plain
    assert sum(predicates.reasons(constraints).values()) == int(np.sum([why is not None for why in plain]))
