"""What may be reclaimed: the reclaimer's own right, the victims' queues, part by part, saturation."""

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import Policy, Queue
from kai_solver.fairness import QueueTree, ReclaimLedger, ReclaimRight

FREE = (-1, -1, -1)
Row = list[int]
Amounts = Sequence[int]


def gpus(amount: float) -> Row:
    return [0, 0, int(amount * 1000)]


def quota(amount: float) -> tuple[int, int, int]:
    return (-1, -1, int(amount * 1000))


def pair(mine: float, theirs: float) -> QueueTree:
    """Two leaf queues, reclaimer 0 and victim 1, with GPU quotas and unlimited CPU and memory."""
    return QueueTree.from_queues([Queue("mine", quota=quota(mine)), Queue("theirs", quota=quota(theirs))], Policy())


# -- the reclaimer's own right ---------------------------------------------------------------------------------------


def test_a_queue_may_reclaim_up_to_its_fair_share() -> None:
    tree = pair(0, 0)
    share, held, fixed = [gpus(4), gpus(4)], [gpus(3), gpus(5)], [gpus(0), gpus(0)]
    assert ReclaimRight(tree, share, share, held, 0, gpus(1)).refusal(fixed, preemptible=True) is None
    blocker = ReclaimRight(tree, share, share, held, 0, gpus(2)).refusal(fixed, preemptible=True)
    assert blocker is not None
    assert (blocker.kind, blocker.name, blocker.need) == ("fair-share", "mine", "2 GPUs")


def test_a_queue_over_its_share_of_cpu_may_not_reclaim_gpus() -> None:
    share, held = [[1000, 0, 4000]] * 2, [[2000, 0, 0]] * 2
    right = ReclaimRight(pair(0, 0), share, share, held, 0, gpus(1))
    blocker = right.refusal([gpus(0)] * 2, preemptible=True)
    assert blocker is not None
    assert blocker.have == "1 CPU core, with 2 CPU cores in use"


def test_non_preemptible_work_reclaims_within_the_quota_of_every_ancestor_only() -> None:
    queues = [Queue("leaf", "root", quota=quota(4)), Queue("root", quota=quota(2))]
    tree = QueueTree.from_queues(queues, Policy())
    share, fixed = [gpus(8), gpus(8)], [gpus(1), gpus(1)]
    held = [gpus(1), gpus(1)]
    one, two = (ReclaimRight(tree, share, share, held, 0, gpus(asked)) for asked in (1, 2))
    assert one.refusal(fixed, preemptible=False) is None
    blocker = two.refusal(fixed, preemptible=False)
    assert blocker is not None
    assert (blocker.kind, blocker.name) == ("queue-quota", "root")
    assert two.refusal(fixed, preemptible=True) is None


# -- whose work may be looked at -------------------------------------------------------------------------------------


def may_look_at(
    tree: QueueTree, allocatable: Sequence[Amounts], held: list[Row], leaf: int, victim: int, asked: Row
) -> bool:
    return ReclaimRight(tree, allocatable, allocatable, held, leaf, asked).may_look_at(victim)


@pytest.mark.parametrize(("held", "eligible"), [(5, True), (4, False)])
def test_beyond_its_quota_a_queue_takes_only_what_exceeds_the_allocatable_share(held: float, eligible: bool) -> None:
    tree, allocatable = pair(0, 2), [gpus(4), [-1, -1, 4000]]
    assert may_look_at(tree, allocatable, [gpus(0), gpus(held)], 0, 1, gpus(1)) is eligible


def test_within_its_quota_a_queue_takes_what_exceeds_the_quota_of_a_requested_resource() -> None:
    tree, allocatable = pair(4, 2), [FREE, FREE]
    assert may_look_at(tree, allocatable, [gpus(0), gpus(3)], 0, 1, gpus(1))
    assert not may_look_at(tree, allocatable, [gpus(0), gpus(1)], 0, 1, gpus(1))


def test_within_its_quota_a_queue_may_look_at_one_that_is_exactly_at_quota() -> None:
    """Unlimited quantities are skipped (behaviour case action_reclaim 070: such victims may be moved)."""
    assert may_look_at(pair(2, 3), [FREE, FREE], [gpus(0), gpus(3)], 0, 1, gpus(2))


def test_a_victim_queue_under_quota_of_an_unrequested_resource_is_still_taken_from_where_it_is_over() -> None:
    queues = [Queue("mine", quota=quota(4)), Queue("theirs", quota=(5000, -1, 1000))]
    tree = QueueTree.from_queues(queues, Policy())
    assert may_look_at(tree, [FREE, FREE], [gpus(0), [1000, 0, 2000]], 0, 1, gpus(1))
    assert not may_look_at(tree, [FREE, FREE], [gpus(0), [1000, 0, 1000]], 0, 1, gpus(1))


def test_levelled_queues_decide_not_leaves() -> None:
    queues = [
        Queue("a", quota=quota(4)),
        Queue("b", quota=quota(4)),
        Queue("a1", "a", quota=quota(4)),
        Queue("b1", "b", quota=quota(0)),
    ]
    tree = QueueTree.from_queues(queues, Policy())
    held = [gpus(0), gpus(3), gpus(0), gpus(3)]  # b1 is over its quota, b is not
    assert not may_look_at(tree, [FREE] * 4, held, 2, 3, gpus(1))


# -- part by part ----------------------------------------------------------------------------------------------------


def ledger(tree: QueueTree, held: list[Row], request: Row, allocatable: list[Row], share: list[Row]) -> ReclaimLedger:
    return ReclaimLedger(ReclaimRight(tree, share, allocatable, held, 0, request))


def test_the_last_chunk_may_take_a_queue_below_its_share_and_no_further_one_is_allowed() -> None:
    account = ledger(pair(0, 0), [gpus(0), gpus(5)], gpus(4), [gpus(4)] * 2, [gpus(4)] * 2)
    assert account.allows(1)
    account.take(1, gpus(4))
    assert not account.allows(1)


def test_within_quota_the_reclaimer_takes_down_to_the_victims_quota() -> None:
    held, allocatable = [gpus(0), gpus(5)], [gpus(8), gpus(8)]
    rich = ledger(pair(1, 4), held, gpus(1), allocatable, [gpus(8)] * 2)
    assert rich.allows(1)
    rich.take(1, gpus(1))
    assert not rich.allows(1)
    poor = ledger(pair(0, 4), held, gpus(1), allocatable, [gpus(8)] * 2)
    assert not poor.allows(1)


def test_what_is_taken_counts_at_every_ancestor() -> None:
    queues = [Queue("mine"), Queue("theirs"), Queue("t1", "theirs"), Queue("t2", "theirs")]
    tree = QueueTree.from_queues(queues, Policy())
    held = [gpus(0), gpus(5), gpus(4), gpus(1)]
    account = ledger(tree, held, gpus(1), [gpus(4)] * 4, [gpus(4)] * 4)
    assert account.allows(2)
    account.take(2, gpus(1))
    assert not account.allows(3)


def test_the_ledger_does_not_change_the_queues_and_does_not_see_later_changes() -> None:
    held = [gpus(0), gpus(5)]
    account = ledger(pair(0, 0), held, gpus(4), [gpus(4)] * 2, [gpus(4)] * 2)
    account.take(1, gpus(1))
    assert held == [gpus(0), gpus(5)]
    held[1][2] = 99_000
    assert not account.allows(1)


# -- saturation ------------------------------------------------------------------------------------------------------


def parents(
    share_mine: float, share_theirs: float, held_mine: float, held_theirs: float, multiplier: float = 1.0
) -> ReclaimLedger:
    """Reclaimer leaf 0 below queue 2, victim leaf 1 below queue 3; one GPU asked for."""
    queues = [Queue("m1", "mine"), Queue("t1", "theirs"), Queue("mine"), Queue("theirs")]
    tree = QueueTree.from_queues(queues, Policy())
    share = [gpus(9), gpus(9), gpus(share_mine), gpus(share_theirs)]
    held = [gpus(0), gpus(held_theirs), gpus(held_mine), gpus(held_theirs)]
    return ReclaimLedger(ReclaimRight(tree, share, share, held, 0, gpus(1), multiplier))


def test_a_queue_within_its_share_is_not_compared() -> None:
    account = parents(4, 4, 3, 6)
    account.take(1, gpus(5))
    assert account.saturation_ok()


def test_a_queue_above_its_share_must_stay_less_saturated_than_the_sibling_it_took_from() -> None:
    account = parents(4, 4, 4, 7)
    account.take(1, gpus(1))
    assert account.saturation_ok()  # 5/4 < 6/4
    account.take(1, gpus(1))
    assert not account.saturation_ok()  # 5/4 against 5/4


def test_the_multiplier_makes_reclaim_harder_and_never_easier() -> None:
    account = parents(4, 4, 4, 7, 1.2)
    account.take(1, gpus(1))
    assert not account.saturation_ok()
    account = parents(4, 4, 4, 7, 0.1)
    account.take(1, gpus(2))
    assert not account.saturation_ok()


def test_resources_of_the_victims_are_compared_too() -> None:
    queues = [Queue("m1", "mine"), Queue("t1", "theirs"), Queue("mine"), Queue("theirs")]
    tree = QueueTree.from_queues(queues, Policy())
    share = [[1000, 0, 9000]] * 4
    held = [[0, 0, 0], [1000, 0, 9000], [2000, 0, 0], [1000, 0, 9000]]
    account = ReclaimLedger(ReclaimRight(tree, share, share, held, 0, gpus(1)))
    account.take(1, gpus(1))
    assert account.saturation_ok()  # the reclaimer's parent is over in CPU, but nobody asks for CPU or gives any
    account.take(1, (500, 0, 0))
    assert not account.saturation_ok()


def test_siblings_from_which_nothing_was_taken_do_not_count() -> None:
    assert parents(4, 4, 4, 1).saturation_ok()


def test_a_sibling_without_any_share_does_not_count() -> None:
    account = parents(4, 0, 4, 2)
    account.take(1, gpus(1))
    assert account.saturation_ok()


# -- by sums ---------------------------------------------------------------------------------------------------------


def surplus(tree: QueueTree, allocatable: Sequence[Amounts], held: list[Row]) -> Amounts:
    return ReclaimRight(tree, allocatable, allocatable, held, 0, gpus(1)).surplus(1).amounts


def test_surplus_is_measured_from_the_allocatable_share_or_the_quota_where_that_is_guaranteed() -> None:
    allocatable = [FREE, (-1, -1, 4000)]
    held = [gpus(0), [9000, 9, 6000]]
    assert surplus(pair(0, 3), allocatable, held) == (0, 0, 2000)
    assert surplus(pair(1, 3), allocatable, held) == (0, 0, 3000)
    assert surplus(pair(0, 3), [FREE, FREE], held) == (0, 0, 0)


AMOUNT = st.integers(0, 4)
CHUNKS = st.lists(st.tuples(AMOUNT, AMOUNT, AMOUNT), min_size=1, max_size=4)
BOUND = st.integers(-1, 8)


@given(
    CHUNKS,
    st.tuples(BOUND, BOUND, BOUND),
    st.tuples(BOUND, BOUND, BOUND),
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)),
    st.booleans(),
)
def test_surplus_allows_a_set_exactly_where_the_ledger_allows_some_order(
    parts: list[tuple[int, int, int]],
    deserved: tuple[int, int, int],
    bound: tuple[int, int, int],
    held: tuple[int, int, int],
    rich: bool,
) -> None:
    tree = QueueTree.from_queues(
        [Queue("mine", quota=FREE if rich else (0, 0, 0)), Queue("v", quota=deserved)], Policy()
    )
    allocated, allocatable = [(0, 0, 0), held], [FREE, bound]
    right = ReclaimRight(tree, allocatable, allocatable, allocated, 0, (1, 1, 1))

    def in_order(order: tuple[tuple[int, int, int], ...]) -> bool:
        account = ReclaimLedger(right)
        for part in order:
            if not account.allows(1):
                return False
            account.take(1, part)
        return True

    left = right.surplus(1).amounts
    sums = [sum(part[r] for part in parts) for r in range(3)]
    by_sum = any(sums[r] - last[r] < left[r] for last in parts for r in range(3))
    assert by_sum is any(in_order(order) for order in permutations(parts))
