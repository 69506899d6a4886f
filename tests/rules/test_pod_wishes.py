"""What pods prefer of their neighbours: weights, both ways, scaled as kube-scheduler does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import Constraints, Node, Pod, PodAffinityTerm, Requirement, SpreadConstraint
from kai_solver.rules.pod_relations.index import PodAffinityIndex
from kai_solver.rules.pod_relations.wishes import affinity_score, spread_score

WEB = (Requirement("app", "In", ("web",)),)
NODES = tuple(
    Node(f"n{i}", (0, 0, 0, 110), labels={"host": f"n{i}"} | ({"zone": zone} if zone else {}))
    for i, zone in enumerate(("a", "a", "b", ""))
)
ALL = np.ones(4, dtype=np.bool_)


def pod(name: str, constraints: Constraints | None = None, **labels: str) -> Pod:
    return Pod("ns", name, (0, 0, 0, 1), constraints=constraints or Constraints(), labels=labels)


def likes(weight: int, key: str) -> Constraints:
    return Constraints(preferred_pods=((weight, PodAffinityTerm(WEB, key)),))


@pytest.fixture
def index() -> PodAffinityIndex:
    return PodAffinityIndex(NODES)


def test_without_pods_to_prefer_all_nodes_are_equal(index: PodAffinityIndex) -> None:
    assert affinity_score(index, pod("q", likes(10, "zone")), ALL).tolist() == [0, 0, 0, 0]


def test_every_liked_pod_counts_its_weight_in_its_domain(index: PodAffinityIndex) -> None:
    index.place(pod("p0", app="web"), 0)
    index.place(pod("p1", app="web"), 1)
    index.place(pod("p2", app="web"), 2)
    assert affinity_score(index, pod("q", likes(10, "zone")), ALL).tolist() == [100, 100, 50, 0]
    assert affinity_score(index, pod("q", likes(10, "host")), ALL).tolist() == [100, 100, 100, 0]


def test_disliked_pods_push_away(index: PodAffinityIndex) -> None:
    index.place(pod("p", app="web"), 2)
    assert affinity_score(index, pod("q", likes(-10, "zone")), ALL).tolist() == [100, 100, 0, 100]


def test_weights_add_up_and_only_candidates_set_the_scale(index: PodAffinityIndex) -> None:
    index.place(pod("p", app="web"), 0)
    both = Constraints(preferred_pods=((30, PodAffinityTerm(WEB, "zone")), (10, PodAffinityTerm(WEB, "host"))))
    assert affinity_score(index, pod("q", both), ALL).tolist() == [100, 75, 0, 0]
    without_the_best = np.array([False, True, True, True])
    assert affinity_score(index, pod("q", both), without_the_best).tolist() == [0, 100, 0, 0]


def test_placed_pods_pull_too_by_preference_and_by_what_they_require(index: PodAffinityIndex) -> None:
    index.place(pod("fan", likes(4, "host")), 0)
    near = Constraints(affinity=(PodAffinityTerm(WEB, "zone"),))
    index.place(pod("needs", near), 2)
    newcomer = pod("q", app="web")
    assert affinity_score(index, newcomer, ALL).tolist() == [100, 0, 25, 0]
    index.remove(pod("fan", likes(4, "host")), 0)
    assert affinity_score(index, newcomer, ALL).tolist() == [0, 0, 100, 0]


def test_emptier_domains_are_preferred_where_spread_should_hold(index: PodAffinityIndex) -> None:
    wish = Constraints(preferred_spread=(SpreadConstraint(WEB, "zone"),))
    index.place(pod("p", app="web"), 0)
    score = spread_score(index, pod("q", wish, app="web"), ALL)
    assert score.tolist() == [0, 0, 100, 0]
    assert spread_score(index, pod("q", wish, app="web"), np.array([True, True, False, True])).tolist() == [
        100,
        100,
        0,
        0,
    ]


def test_a_preference_keeps_no_pod_out(index: PodAffinityIndex) -> None:
    wish = Constraints(
        preferred_spread=(SpreadConstraint(WEB, "zone"),), preferred_pods=((-9, PodAffinityTerm(WEB, "zone")),)
    )
    for node in (0, 0, 0):
        index.place(pod(f"p{node}", app="web"), node)
    assert index.mask(pod("q", wish, app="web")).all()


KINDS = (
    Constraints(),
    likes(10, "zone"),
    likes(-3, "host"),
    Constraints(affinity=(PodAffinityTerm(WEB, "zone"),)),
    Constraints(anti_affinity=(PodAffinityTerm(WEB, "host"),)),
    Constraints(spread=(SpreadConstraint(WEB, "zone"),)),
)
STEP = st.tuples(st.integers(0, len(KINDS) - 1), st.integers(0, 3), st.booleans(), st.booleans())
"""What a pod says of others, its node, whether it is new, and whether it bears the label that others speak of."""


def seen(index: PodAffinityIndex) -> list[list[object]]:
    asked = [pod("q", kind, **labels) for kind in KINDS for labels in ({}, {"app": "web"})]
    wish = Constraints(preferred_spread=(SpreadConstraint(WEB, "zone"),))
    spread = spread_score(index, pod("q", wish, app="web"), ALL).tolist()
    scores = [[index.mask(one).tolist(), affinity_score(index, one, ALL).tolist()] for one in asked]
    return [*scores, [spread, index.is_crossed()]]


def take(index: PodAffinityIndex, steps: list[tuple[int, int, bool, bool]], prefix: str) -> None:
    """Place the pods of ``steps``."""
    for number, (kind, node, is_new, is_web) in enumerate(steps):
        labels = {"app": "web"} if is_web else {}
        index.place(pod(f"{prefix}{number}", KINDS[kind], **labels), node, new=is_new)


STEPS = st.lists(STEP, max_size=6)


@given(STEPS, STEPS, STEPS, st.booleans())
def test_a_copy_is_the_same_and_changes_apart(
    before: list[tuple[int, int, bool, bool]],
    copied_gets: list[tuple[int, int, bool, bool]],
    first_gets: list[tuple[int, int, bool, bool]],
    is_asked: bool,
) -> None:
    first, both = PodAffinityIndex(NODES), (PodAffinityIndex(NODES), PodAffinityIndex(NODES))
    for index in (first, *both):
        take(index, before, "b")
    if is_asked:
        seen(first)
    copied = first.copy()
    for index in (copied, both[0]):
        take(index, copied_gets, "c")
        for number, (kind, node, _, is_web) in enumerate(before[:2]):
            index.remove(pod(f"b{number}", KINDS[kind], **({"app": "web"} if is_web else {})), node)
    for index in (first, both[1]):
        take(index, first_gets, "f")
    assert seen(copied) == seen(both[0])
    assert seen(first) == seen(both[1])
