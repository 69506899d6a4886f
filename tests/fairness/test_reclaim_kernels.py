"""The kernels of reclaim say what `fairness.reclaim` says, of drawn trees and holdings."""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import Policy, Queue
from kai_solver.fairness import QueueTree, ReclaimRight, exceeds, kept_amounts, levelled
from kai_solver.fairness import kernels as k
from kai_solver.fairness.queue_tables import tree_of
from kai_solver.fairness.reclaim import saturation_bound

UNLIMITED = -1
PARENTS = ("", "", "A", "A", "B", "a", "a")
"""Of the queues A, B, and those below them; queues of three levels."""
NAMES = ("A", "B", "a", "b", "c", "x", "y")
LEAVES = (3, 4, 5, 6)

amounts = st.tuples(*[st.integers(0, 4)] * 3)
bounds = st.tuples(*[st.sampled_from([UNLIMITED, 0, 1, 2, 3, 5])] * 3)


class Case(NamedTuple):
    tree: k.Tree
    right: ReclaimRight
    held: list[list[int]]
    fixed: list[list[int]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    quotas = draw(st.lists(bounds, min_size=7, max_size=7))
    queues = [Queue(name, parent, quota=q) for name, parent, q in zip(NAMES, PARENTS, quotas, strict=True)]
    tree = QueueTree.from_queues(queues, Policy())
    share, allocatable = (draw(st.lists(bounds, min_size=7, max_size=7)) for _ in range(2))
    held, fixed = ([list(draw(amounts)) for _ in NAMES] for _ in range(2))
    multiplier = draw(st.sampled_from([0.5, 1.0, 1.5]))
    right = ReclaimRight(tree, share, allocatable, held, draw(st.sampled_from(LEAVES)), draw(amounts), multiplier)
    rows = tree_of(tree, share, allocatable, multiplier, list)
    return Case(rows, right, held, fixed)


@given(cases())
def test_levelled_queues_and_the_right(case: Case) -> None:
    tree, right, held, fixed = case
    for leaf in LEAVES:
        assert k.levelled(tree, right.leaf, leaf) == levelled(right.tree, right.leaf, leaf)
    for preemptible in (True, False):
        allowed = right.refusal(fixed, preemptible=preemptible) is None
        assert k.has_right(tree, held, fixed, right.leaf, right.request, not preemptible) == allowed


@given(cases(), amounts)
def test_victim_queues_and_what_they_keep(case: Case, left: Sequence[int]) -> None:
    tree, right, held, _ = case
    for leaf in LEAVES:
        mine, theirs = levelled(right.tree, right.leaf, leaf)
        guaranteed = right.is_guaranteed(mine)
        assert k.is_guaranteed(tree, mine, held[mine], right.request) == guaranteed
        assert k.may_look_at(tree, theirs, held[theirs], right.request, guaranteed) == right.may_look_at(leaf)
        kept = kept_amounts(right.allocatable[theirs], right.tree.quotas[theirs], guaranteed)
        assert tuple(k.kept(tree, theirs, at, guaranteed) for at in range(3)) == kept
        assert k.exceeds(tree, theirs, left, guaranteed) == exceeds(left, kept)


@given(cases(), amounts, amounts)
def test_saturation(case: Case, ours: Sequence[int], left: Sequence[int]) -> None:
    tree, right, _, _ = case
    for leaf in LEAVES:
        mine, theirs = levelled(right.tree, right.leaf, leaf)
        for at in range(3):
            bound = saturation_bound(ours, right.share[mine], right.share[theirs], (at,), right.multiplier)
            assert k.is_fair(tree, mine, theirs, at, ours[at], left[at]) == bound.holds(left)


@given(cases(), amounts, st.sampled_from([-1, 1]))
def test_what_a_leaf_holds_all_above_it_hold(case: Case, charge: tuple[int, int, int], sign: int) -> None:
    tree, right, held, _ = case
    before = [list(row) for row in held]
    k.add(tree, held, right.leaf, charge, sign)
    for queue in range(len(NAMES)):
        times = sign if queue in right.tree.path[right.leaf] else 0
        expected = [had + times * more for had, more in zip(before[queue], charge, strict=True)]
        assert held[queue] == expected
