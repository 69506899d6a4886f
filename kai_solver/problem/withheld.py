"""GPUs that a node has and that may not be had, as when some failed: the node states how many, and not which.

Free ones are taken for them: so much as may be had beside what pods hold is what newcomers get, however pods sit.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kai_solver.units.shares import WHOLE

IntArray = NDArray[np.int64]

Holder = tuple[tuple[int, ...], int]
"""Devices of a pod that stays, and parts that it holds of each."""


def withhold(free: IntArray, releasing: IntArray, missing: int, holders: Iterable[Holder]) -> None:
    """Take ``missing`` devices out of what is ``free`` now and what is ``releasing``, (D,) parts each.

    Whole ones first, those free now before those that get free, the highest index first; then parts. What is free now
    only because pods are still to leave gets free with them.
    """
    room_now = max(int(free.sum()) - missing * WHOLE, 0)
    later = free + releasing
    left = missing * WHOLE
    order = sorted(range(len(free)), key=lambda d: (later[d] < WHOLE, free[d] < WHOLE, -d))
    for device in order:
        taken = min(left, max(int(later[device]), 0))
        now = min(taken, max(int(free[device]), 0))
        free[device] -= now
        releasing[device] -= taken - now
        left -= taken
    _defer(free, releasing, room_now)
    if left:
        _charge(free, left, holders)


def _defer(free: IntArray, releasing: IntArray, room: int) -> None:
    """Let newcomers wait for all that is free beyond ``room``, from the highest index down."""
    excess = int(np.maximum(free, 0).sum()) - room
    for device in range(len(free) - 1, -1, -1):
        if excess <= 0:
            return
        waits = min(excess, max(int(free[device]), 0))
        free[device] -= waits
        releasing[device] += waits
        excess -= waits


def _charge(free: IntArray, debt: int, holders: Iterable[Holder]) -> None:
    """Pods hold more than there is: pods that leave make good the ``debt`` before anything of theirs can be had.

    Each of them is charged all of it, as any may be the only one to leave: exact where one pod leaves, and never too
    generous where several do.
    """
    for devices, parts in holders:
        left = debt
        for device in sorted(devices, reverse=True):
            free[device] -= min(left, parts)
            left -= min(left, parts)
