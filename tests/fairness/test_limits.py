"""Limits and non-preemptible quota at every ancestor, and KAI's words for them."""

from kai_solver.domain import Policy, Queue
from kai_solver.fairness import QueueTree, over_limit, over_limit_message, over_quota, over_quota_message

GB = 10**9
FREE = (-1, -1, -1)
NONE = [[0, 0, 0], [0, 0, 0]]


def family(**of_root: object) -> QueueTree:
    leaf = Queue("leaf", "root", quota=FREE, display_name="Team")
    root = Queue("root", **{"quota": FREE, "limit": FREE, **of_root})  # type: ignore[arg-type]
    return QueueTree.from_queues([leaf, root], Policy())


def test_an_amount_up_to_the_limit_is_allowed_and_one_more_is_not() -> None:
    tree = family(limit=(-1, -1, 4000))
    held = [[0, 0, 1000], [0, 0, 3000]]
    assert over_limit(tree, held, 0, (0, 0, 1000)) is None
    blocker = over_limit(tree, held, 0, (0, 0, 2000))
    assert blocker is not None
    assert (blocker.kind, blocker.name, blocker.need) == ("queue-limit", "root", "2 GPUs")
    assert blocker.have == "4 GPUs, with 3 GPUs in use"


def test_a_limit_that_is_already_broken_does_not_bind_other_resources() -> None:
    tree = family(limit=(1000, -1, 4000))
    held = [[5000, 0, 0], [5000, 0, 0]]
    assert over_limit(tree, held, 0, (0, 0, 1000)) is None
    assert over_limit(tree, held, 0, (1, 0, 1000)) is not None


def test_limit_zero_allows_nothing_that_is_asked_for() -> None:
    tree = family(limit=(0, -1, -1))
    assert over_limit(tree, NONE, 0, (1, 0, 0)) is not None
    assert over_limit(tree, NONE, 0, (0, 1, 1)) is None


def test_non_preemptible_work_stays_within_quota_at_every_ancestor() -> None:
    tree = family(quota=(-1, -1, 2000))
    assert over_quota(tree, NONE, 0, (0, 0, 2000)) is None
    blocker = over_quota(tree, [[0, 0, 0], [0, 0, 500]], 0, (0, 0, 2000))
    assert blocker is not None
    assert (blocker.kind, blocker.name) == ("queue-quota", "root")


def test_the_lowest_queue_that_blocks_is_named_by_its_title() -> None:
    leaf = Queue("leaf", "root", limit=(-1, -1, 0), display_name="Team")
    tree = QueueTree.from_queues([leaf, Queue("root", limit=(-1, -1, 0))], Policy())
    blocker = over_limit(tree, NONE, 0, (0, 0, 1))
    assert blocker is not None
    assert blocker.name == "Team"


def test_limit_messages_are_kais() -> None:
    tree = family(limit=(2500, 8 * GB, 4000))
    held = [[0, 0, 0], [1000, 7 * GB, 3500]]
    assert over_limit_message(tree, held, 0, (0, 0, 1000)) == (
        "root quota has reached the allowable limit of GPUs. Limit is 4 GPUs, currently 3.5 GPUs allocated and "
        "workload requested 1 GPUs"
    )
    assert over_limit_message(tree, held, 0, (2000, 0, 0)) == (
        "root quota has reached the allowable limit of CPU cores. Limit is 2.5 cores, currently 1 cores allocated and "
        "workload requested 2 cores"
    )
    assert over_limit_message(tree, held, 0, (0, 2 * GB, 0)) == (
        "root quota has reached the allowable limit of memory. Limit is 8 GB, currently 7 GB allocated and "
        "workload requested 2 GB"
    )
    assert over_limit_message(tree, held, 0, (0, 0, 0)) == ""


def test_quota_messages_are_kais() -> None:
    tree = family(quota=(1000, 4 * GB, 2000))
    held = [[0, 0, 0], [0, 3 * GB, 1000]]
    assert over_quota_message(tree, held, 0, (0, 0, 2000)) == (
        "Non-preemptible workload is over quota. Workload requested 2 GPUs, but root quota is 2 GPUs, while 1 GPUs "
        "are already allocated for non-preemptible pods. Use a preemptible workload to go over quota."
    )
    assert over_quota_message(tree, held, 0, (2000, 0, 0)) == (
        "Non-preemptible workload is over quota. Workload requested 2 CPU cores, but root quota is 1 cores, while 0 "
        "cores are already allocated for non-preemptible pods. Use a preemptible workload to go over quota."
    )
    assert over_quota_message(tree, held, 0, (0, 2 * GB, 0)) == (
        "Non-preemptible workload is over quota. Workload requested 2 GB memory, but root quota is 4 GB, while 3 GB "
        "are already allocated for non-preemptible pods. Use a preemptible workload to go over quota."
    )
    assert over_quota_message(tree, held, 0, (1000, 0, 0)) == ""
