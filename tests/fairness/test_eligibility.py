"""Which running work an action may take, as the page of KAI's behaviour words it, for arrays and for one item."""

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.domain import Action, Gang, SubGroup
from kai_solver.fairness import (
    MINRUNTIME,
    NEVER_STARTED_S,
    PREEMPTIBLE,
    PRIORITY,
    RunningWork,
    eligible,
)

NOW_S = 100.0


class Item(NamedTuple):
    """One unit or gang, with what the preemptor may do to its queue."""

    gang: int
    queue: int
    priority: int
    preemptible: bool
    may_move: bool
    started_s: float
    surplus: bool
    reclaimable: bool
    min_runtime_s: float


items = st.builds(
    Item,
    gang=st.integers(0, 2),
    queue=st.integers(0, 2),
    priority=st.sampled_from([10, 50, 100]),
    preemptible=st.booleans(),
    may_move=st.booleans(),
    started_s=st.sampled_from([NEVER_STARTED_S, 40.0, 60.0, 99.0]),
    surplus=st.booleans(),
    reclaimable=st.booleans(),
    min_runtime_s=st.sampled_from([0.0, 0.0, 40.0, 60.0]),
)


def may_be_taken(action: Action, asking: Gang, item: Item, dropped: frozenset[str]) -> bool:
    """Transcribed: the preemptor is gang 0 of queue 0."""
    if action is Action.ALLOCATE:
        return False
    if not item.preemptible and PREEMPTIBLE not in dropped:
        return False
    if action is Action.CONSOLIDATION:
        return item.gang != 0 and item.may_move
    if action is Action.RECLAIM and not item.reclaimable:
        return False
    if action is Action.PREEMPT:
        if item.gang == 0 or item.queue != 0:
            return False
        if PRIORITY not in dropped and (asking.never_preempts or item.priority >= asking.priority):
            return False
    is_protected = item.min_runtime_s > 0 and item.started_s + item.min_runtime_s > NOW_S
    return MINRUNTIME in dropped or not is_protected or item.surplus


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([Action.ALLOCATE, Action.CONSOLIDATION, Action.RECLAIM, Action.PREEMPT]),
    st.sampled_from([10, 50, 100]),
    st.booleans(),
    st.lists(items, min_size=1, max_size=6),
    st.frozensets(st.sampled_from([MINRUNTIME, PREEMPTIBLE, PRIORITY])),
)
def test_arrays_and_single_items_follow_the_page(
    action: Action, priority: int, never_preempts: bool, given_items: list[Item], dropped: frozenset[str]
) -> None:
    asking = Gang("default", "asking", "q", SubGroup(""), priority=priority, never_preempts=never_preempts)
    columns = {name: np.array([getattr(item, name) for item in given_items]) for name in Item._fields}
    work = RunningWork(
        columns["gang"],
        columns["queue"],
        columns["priority"],
        columns["preemptible"],
        columns["may_move"],
        columns["started_s"],
        surplus=lambda: columns["surplus"],
    )
    found = eligible(
        action,
        0,
        asking,
        0,
        work,
        reclaimable=columns["reclaimable"],
        min_runtime_s=columns["min_runtime_s"],
        now_s=NOW_S,
        dropped=dropped,
    )
    expected = [may_be_taken(action, asking, item, dropped) for item in given_items]
    assert np.asarray(found).tolist() == expected

    def alone(item: Item) -> bool:
        work = RunningWork(
            item.gang,
            item.queue,
            item.priority,
            item.preemptible,
            item.may_move,
            item.started_s,
            surplus=lambda: item.surplus,
        )
        return bool(
            eligible(
                action,
                0,
                asking,
                0,
                work,
                reclaimable=item.reclaimable,
                min_runtime_s=item.min_runtime_s,
                now_s=NOW_S,
                dropped=dropped,
            )
        )

    assert list(map(alone, given_items)) == expected
