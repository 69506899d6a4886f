"""Queue order (3.2), limits (3.14) and reclaim (3.5) as the reference words them, against ours on random queues.

Transcribed slowly, in KAI's units and with -1 spelled out, without anything of the room under test.
"""

from fractions import Fraction
from itertools import pairwise, permutations
from math import inf
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kai_solver.domain import Policy, Queue
from kai_solver.fairness import (
    QueueTree,
    ReclaimLedger,
    ReclaimRight,
    compare_queues,
    over_limit,
    over_quota,
    queue_key,
)

Triple = tuple[int, int, int]
RESOURCES = range(3)
UNITS = (1, 1, 1000)
NAMES = ("a", "b", "c", "d", "e", "f")

SMALL = st.integers(0, 3)
HALVES = st.integers(0, 5).map(lambda half: half * 500)
FREE = st.just(-1)
amounts = st.tuples(SMALL, SMALL, HALVES)
bounds = st.tuples(FREE | SMALL, FREE | SMALL, FREE | HALVES)
requests = st.sampled_from([(1, 1, 1000), (0, 0, 1000), (2, 0, 0), (1, 1, 500), (0, 3, 4000)])


class State(NamedTuple):
    """Queues and what is known of each, by index in the tree."""

    tree: QueueTree
    share: list[Triple]
    allocatable: list[Triple]
    allocated: list[list[int]]
    fixed: list[list[int]]


@st.composite
def states(draw: st.DrawFn, flat: bool = False) -> State:
    queues: list[Queue] = []
    for name in NAMES[: draw(st.integers(2, len(NAMES)))]:
        parents = [""] if flat else ["", *(queue.name for queue in queues)]
        queues.append(
            Queue(
                name,
                draw(st.sampled_from(parents)),
                priority=draw(st.sampled_from([100, 100, 200])),
                created_s=draw(st.sampled_from([0.0, 1.0])),
                quota=draw(bounds),
                limit=draw(bounds),
                uid=name,
            )
        )
    tree = QueueTree.from_queues(queues, Policy())
    rows = [draw(st.tuples(amounts, bounds, amounts, amounts)) for _ in queues]
    held, fixed = [[0, 0, 0] for _ in queues], [[0, 0, 0] for _ in queues]
    for queue, (_, _, own, own_fixed) in enumerate(rows):
        if tree.is_leaf[queue]:
            for above in tree.path[queue]:
                for r in RESOURCES:
                    held[above][r] += own[r]
                    fixed[above][r] += min(own[r], own_fixed[r])
    return State(tree, [row[0] for row in rows], [row[1] for row in rows], held, fixed)


# -- 3.2: the queue order --


def reference_order(state: State, total: Triple, jobs: list[Triple], victims: list[Triple], one: int, two: int) -> int:
    """-1 where ``one`` is served first: the first rule in which they differ."""
    tree = state.tree

    def with_job(q: int) -> list[int]:
        return [state.allocated[q][r] + jobs[q][r] for r in RESOURCES]

    def over_utilised(q: int) -> bool:
        return all(state.share[q][r] < state.allocated[q][r] for r in RESOURCES)

    def starved_with_job(q: int) -> bool:
        deserved = tree.queues[q].quota
        return all(deserved[r] == -1 or with_job(q)[r] <= deserved[r] for r in RESOURCES)

    def unentitled(q: int) -> bool:
        return any(with_job(q)[r] > 0 and state.allocatable[q][r] == 0 for r in RESOURCES)

    def dominant(q: int, job: Triple) -> Fraction:
        parts = []
        for r in RESOURCES:
            value = Fraction(state.allocated[q][r] - victims[q][r] + job[r], UNITS[r])
            bound = total[r] if state.allocatable[q][r] == -1 else state.allocatable[q][r]
            parts.append(value * 1000 if bound == 0 else value / Fraction(bound, UNITS[r]))
        return max(parts)

    def weaker(q: int, than: int) -> bool:
        pairs = [
            (inf if a == -1 else a, inf if b == -1 else b)
            for a, b in zip(state.allocatable[q], state.allocatable[than], strict=True)
        ]
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    rules = [
        (over_utilised(one), over_utilised(two)),
        (not starved_with_job(one), not starved_with_job(two)),
        (-tree.queues[one].priority, -tree.queues[two].priority),
        (unentitled(one), unentitled(two)),
        (dominant(one, jobs[one]), dominant(two, jobs[two])),
        (dominant(one, (0, 0, 0)), dominant(two, (0, 0, 0))),
        (not weaker(one, two), not weaker(two, one)),
        (tree.queues[one].created_s, tree.queues[two].created_s),
        (tree.queues[one].uid, tree.queues[two].uid),
    ]
    for mine, theirs in rules:
        if mine != theirs:
            return -1 if mine < theirs else 1  # type: ignore[operator]
    return 0


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(states(flat=True), st.lists(requests, min_size=6, max_size=6), amounts, st.data())
def test_queue_order(state: State, jobs: list[Triple], total: Triple, data: st.DataObject) -> None:
    tree = state.tree
    victims = [tuple(data.draw(st.sampled_from([0, held])) for held in state.allocated[q]) for q in range(tree.size)]
    taken: list[Triple] = [(v[0], v[1], v[2]) for v in victims]
    keys = [
        queue_key(tree, state.share, state.allocatable, total, q, state.allocated[q], jobs[q], taken[q])
        for q in range(tree.size)
    ]
    for one in range(tree.size):
        for two in range(tree.size):
            ours = compare_queues(tree, state.allocatable, one, keys[one], two, keys[two])
            assert ours == reference_order(state, total, jobs, taken, one, two)


# -- 3.14: limits, and the quota of non-preemptible work --


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(states(), requests)
def test_limits(state: State, request: Triple) -> None:
    tree = state.tree
    for leaf in range(tree.size):
        chain = [leaf, *above(tree, leaf)]
        over = any(
            request[r] > 0
            and tree.queues[q].limit[r] != -1
            and tree.queues[q].limit[r] < state.allocated[q][r] + request[r]
            for q in chain
            for r in RESOURCES
        )
        assert (over_limit(tree, state.allocated, leaf, request) is not None) == over
        over = any(
            request[r] > 0
            and tree.queues[q].quota[r] != -1
            and tree.queues[q].quota[r] < state.fixed[q][r] + request[r]
            for q in chain
            for r in RESOURCES
        )
        assert (over_quota(tree, state.fixed, leaf, request) is not None) == over


def above(tree: QueueTree, queue: int) -> list[int]:
    names = [tree.queues[queue].parent]
    while names[-1]:
        names.append(tree.queues[tree.index[names[-1]]].parent)
    return [tree.index[name] for name in names[:-1]]


# -- 3.5: reclaim --


def within(held: list[int], bound: Triple, request: Triple = (0, 0, 0)) -> bool:
    """Component-wise <= with -1 = infinity."""
    return all(bound[r] == -1 or held[r] + request[r] <= bound[r] for r in RESOURCES)


def leveled(tree: QueueTree, mine: int, theirs: int) -> tuple[int, int]:
    """First differing ancestors from the root; where one path is a prefix of the other, the last common index."""
    one, two = [mine, *above(tree, mine)][::-1], [theirs, *above(tree, theirs)][::-1]
    for a, b in zip(one, two, strict=False):
        if a != b:
            return a, b
    shared = min(len(one), len(two)) - 1
    return one[shared], two[shared]


def victim_accepted(state: State, mine: int, theirs: int, request: Triple) -> bool:
    """Step 2, with the correction that an unlimited quantity is skipped in both halves."""
    reclaimer, victim = leveled(state.tree, mine, theirs)
    quotas = [queue.quota for queue in state.tree.queues]
    held = state.allocated[victim]
    if not within(state.allocated[reclaimer], quotas[reclaimer], request):
        return not within(held, state.allocatable[victim])
    limited = [r for r in RESOURCES if quotas[victim][r] != -1]
    over = any(request[r] > 0 and held[r] > quotas[victim][r] for r in limited)
    return over or not any(held[r] < quotas[victim][r] for r in limited)


Chunks = list[tuple[int, Triple]]


def chunks_allowed(state: State, mine: int, request: Triple, parts: Chunks) -> bool:
    """Step 3: every allocation unit in order, tested before it is subtracted."""
    tree, remaining = state.tree, [list(row) for row in state.allocated]
    for theirs, part in parts:
        reclaimer, victim = leveled(tree, mine, theirs)
        quota = tree.queues[victim].quota
        maintains = not within(remaining[victim], state.allocatable[victim])
        guaranteed = within(state.allocated[reclaimer], tree.queues[reclaimer].quota, request)
        if not maintains and not (guaranteed and not within(remaining[victim], quota)):
            return False
        subtract(tree, remaining, theirs, part)
    return True


def saturation_allowed(state: State, mine: int, request: Triple, parts: Chunks, multiplier: Fraction) -> bool:
    """Step 3, saturation: r > 1 and Fair_S > 0 and r * mult >= s fails, at every level of the reclaimer's path."""
    tree, remaining = state.tree, [list(row) for row in state.allocated]
    touched: set[int] = set()
    for theirs, part in parts:
        touched |= subtract(tree, remaining, theirs, part)
    involved = [r for r in RESOURCES if request[r] > 0 or any(part[r] > 0 for _, part in parts)]
    for queue in [mine, *above(tree, mine)]:
        for sibling in touched - {queue}:
            if tree.queues[sibling].parent != tree.queues[queue].parent:
                continue
            for r in involved:
                ours = ratio(remaining[queue][r] + request[r], state.share[queue][r])
                other = ratio(remaining[sibling][r], state.share[sibling][r])
                if ours > 1 and state.share[sibling][r] > 0 and ours * multiplier >= other:
                    return False
    return True


def subtract(tree: QueueTree, remaining: list[list[int]], leaf: int, part: Triple) -> set[int]:
    """Take ``part`` from the leaf and all its ancestors, which are returned."""
    chain = {leaf, *above(tree, leaf)}
    for queue in chain:
        for r in RESOURCES:
            remaining[queue][r] -= part[r]
    return chain


def ratio(amount: int, fair: int) -> Fraction | float:
    if fair == 0:
        return inf if amount > 0 else Fraction(0)
    return Fraction(amount, fair)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(states(), requests, st.booleans())
def test_which_queue_may_reclaim_and_from_which(state: State, request: Triple, fixed: bool) -> None:
    tree = state.tree
    leaves = [q for q in range(tree.size) if tree.is_leaf[q]]
    quotas = [queue.quota for queue in tree.queues]
    for mine in leaves:
        # The leaf's own right, and what the validator asks of non-preemptible work at every ancestor: ours at once.
        can = within(state.allocated[mine], state.share[mine], request)
        chain = [mine, *above(tree, mine)] if fixed else []
        can = can and all(within(state.fixed[q], quotas[q], request) for q in chain)
        right = ReclaimRight(tree, state.share, state.allocatable, state.allocated, mine, request)
        assert (right.refusal(state.fixed, preemptible=not fixed) is None) == can
        for theirs in leaves:
            if theirs != mine:
                assert right.may_look_at(theirs) == victim_accepted(state, mine, theirs, request)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(states(), requests, st.sampled_from([Fraction(1), Fraction(3, 2), Fraction(2)]), st.data())
def test_what_may_be_reclaimed(state: State, request: Triple, multiplier: Fraction, data: st.DataObject) -> None:
    tree = state.tree
    leaves = [q for q in range(tree.size) if tree.is_leaf[q]]
    assume(len(leaves) > 1)
    for mine in leaves:
        others = [leaf for leaf in leaves if leaf != mine]
        parts = data.draw(st.lists(st.tuples(st.sampled_from(others), requests), min_size=1, max_size=3))
        shares = (state.share, state.allocatable, state.allocated)
        ledger = ReclaimLedger(ReclaimRight(tree, *shares, mine, request, float(multiplier)))
        allowed = True
        for theirs, part in parts:
            allowed = allowed and ledger.allows(theirs)
            ledger.take(theirs, part)
        assert allowed == chunks_allowed(state, mine, request, parts)
        assert ledger.saturation_ok() == saturation_allowed(state, mine, request, parts, multiplier)


@settings(max_examples=150, deadline=None)
@given(
    states(),
    st.sampled_from([1.0, 1.5]),
    st.lists(st.tuples(st.integers(1, 2), st.integers(1, 2), st.sampled_from([500, 1000])), min_size=1, max_size=3),
)
def test_sums_allow_what_some_order_allows(state: State, multiplier: float, parts: list[Triple]) -> None:
    """With victims of one queue that have every resource: then sums say all, rule 4 included."""
    tree = state.tree
    leaves = [q for q in range(tree.size) if tree.is_leaf[q]]
    total = (sum(part[0] for part in parts), sum(part[1] for part in parts), sum(part[2] for part in parts))
    for mine, theirs in permutations(leaves, 2):
        right = ReclaimRight(tree, state.share, state.allocatable, state.allocated, mine, (1, 1, 1000), multiplier)

        def in_order(order: tuple[Triple, ...], right: ReclaimRight = right, leaf: int = theirs) -> bool:
            ledger = ReclaimLedger(right)
            for part in order:
                if not ledger.allows(leaf):
                    return False
                ledger.take(leaf, part)
            return ledger.saturation_ok()

        allowance = right.allowance(theirs)
        by_sum = any(allowance.permits(total, last) for last in parts)
        assert by_sum == any(map(in_order, permutations(parts)))


def test_the_transcription_reads_paths_as_the_tree_does() -> None:
    queues = [Queue("a"), Queue("b", "a"), Queue("c", "b"), Queue("d", "a")]
    tree = QueueTree.from_queues(queues, Policy())
    assert [tree.names[q] for q in above(tree, tree.index["c"])] == ["b", "a"]
    assert all(tree.queues[low].parent == tree.names[high] for low, high in pairwise([2, *above(tree, 2)]))
