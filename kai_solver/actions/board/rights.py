"""What queues allow: limits, quotas, and what reclaim may take (the rules are those of `fairness.reclaim`)."""

from typing import Final

from kai_solver.actions.board.arrays import (
    HOME,
    LEFT,
    MOVED,
    NONE,
    STAMP,
    Arrays,
    IntArray,
    Queues,
)
from kai_solver.actions.board.order import goes_first, write_key
from kai_solver.compiled import kernel
from kai_solver.fairness.kernels import (
    UNBOUND,
    UNLIMITED,
    Row,
    add,
    exceeds,
    has_right,
    is_fair,
    is_guaranteed,
    is_larger,
    kept,
    least_saturation,
    levelled,
    may_look_at,
)

LEAST: Final = (1, 1, 1)
"""A part that is as small as can be."""


@kernel
def passes_cap(arrays: Arrays, gang: int, charge: IntArray) -> bool:
    """Whether a queue would hold more than a limit, or than a quota of work that is not preemptible.

    ``charge`` (3,) comes to what it holds; only what the gang asks for counts.
    """
    queues, gangs, tree = arrays.queues, arrays.gangs, arrays.queues.tree
    asked, queue, is_fixed = gangs.charge[gang], gangs.queue[gang], not gangs.preemptible[gang]
    while queue != NONE:
        for at in range(3):
            if asked[at] <= 0:
                continue
            if queues.held[queue, at] + charge[at] > queues.limit[queue, at]:
                return True
            quota = tree.quota[queue][at]
            if is_fixed and quota != UNLIMITED and queues.fixed[queue, at] + charge[at] > quota:
                return True
        queue = tree.parent[queue]
    return False


@kernel
def may_reclaim(arrays: Arrays, gang: int) -> bool:
    """Rule 1: the leaf stays within its fair share, and work that is not preemptible within all quotas."""
    queues, gangs = arrays.queues, arrays.gangs
    is_fixed = not gangs.preemptible[gang]
    return has_right(queues.tree, queues.held, queues.fixed, gangs.queue[gang], gangs.charge[gang], is_fixed)


@kernel
def open_queues(arrays: Arrays, gang: int) -> bool:
    """Open the leaf queues from which ``gang`` may reclaim, and write what may be taken of each; whether any is."""
    queues, tree, scratch, stamp = arrays.queues, arrays.queues.tree, arrays.scratch, arrays.record.numbers[STAMP]
    charge, any_open = arrays.gangs.charge[gang], False
    queue, roots = arrays.gangs.queue[gang], len(tree.parent)
    while queue != NONE:
        above = tree.parent[queue]
        level = above if above != NONE else roots
        guaranteed = is_guaranteed(tree, queue, queues.held[queue], charge)
        for at in range(queues.first_child[level], queues.first_child[level + 1]):
            sibling = queues.child[at]
            if sibling == queue or not may_look_at(tree, sibling, queues.held[sibling], charge, guaranteed):
                continue
            write_allowance(arrays, queue, sibling, charge, guaranteed)
            for below in range(queues.first_leaf[sibling], queues.first_leaf[sibling + 1]):
                leaf = queues.leaf[below]
                scratch.open_queue[leaf], scratch.victim_queue[leaf] = stamp, sibling
                any_open = True
        queue = above
    return any_open


@kernel
def write_allowance(arrays: Arrays, queue: int, sibling: int, charge: IntArray, guaranteed: bool) -> None:
    """Rules 3 and 4 for a sibling, as if all victims were below it."""
    tree, held, scratch = arrays.queues.tree, arrays.queues.held, arrays.scratch
    for at in range(3):
        least = kept(tree, sibling, at, guaranteed)
        scratch.surplus[sibling, at] = max(0, held[sibling, at] - least) if least != UNLIMITED else 0
        scratch.ratio[sibling, at] = least_saturation(tree, queue, sibling, at, held[queue, at] + charge[at])
        scratch.spent[sibling, at] = 0
        scratch.last[sibling, at] = 0


@kernel
def permits(arrays: Arrays, sibling: int, part: Row) -> bool:
    """Whether one more ``part`` may be taken of a sibling, the largest part last."""
    queues, scratch = arrays.queues, arrays.scratch
    spent, last, surplus = scratch.spent[sibling], scratch.last[sibling], scratch.surplus[sibling]
    is_last = is_larger(part, last)
    allowed = False
    for at in range(3):
        total = spent[at] + part[at]
        if scratch.ratio[sibling, at] != UNBOUND:
            left = queues.held[sibling, at] - total
            if not left / queues.tree.share[sibling][at] > scratch.ratio[sibling, at]:
                return False
        allowed = allowed or total - (part[at] if is_last else last[at]) < surplus[at]
    return allowed


@kernel
def spend(arrays: Arrays, unit: int) -> None:
    """Note that ``unit`` is taken."""
    scratch, charge = arrays.scratch, arrays.units.charge[unit]
    sibling = scratch.victim_queue[arrays.units.queue[unit]]
    is_last = is_larger(charge, scratch.last[sibling])
    for at in range(3):
        scratch.spent[sibling, at] += charge[at]
        if is_last:
            scratch.last[sibling, at] = charge[at]


@kernel
def accepts(arrays: Arrays, gang: int, count: int) -> bool:
    """Whether reclaim may take those of the ``count`` units of this turn that left, and it would last.

    Queues hold what they did before the turn.
    """
    return is_allowed_part_by_part(arrays, gang, count) and lasts(arrays, gang, count)


@kernel
def is_allowed_part_by_part(arrays: Arrays, gang: int, count: int) -> bool:
    """Rules 3 and 4, the smallest part first."""
    queues, units, scratch, tree = arrays.queues, arrays.units, arrays.scratch, arrays.queues.tree
    left, charge, leaf = scratch.left, arrays.gangs.charge[gang], arrays.gangs.queue[gang]
    for queue in range(len(left)):
        for at in range(3):
            left[queue, at] = queues.held[queue, at]
    taken = sort_taken(arrays, count)
    for number in range(taken):
        unit = scratch.order[number]
        mine, theirs = levelled(tree, leaf, units.queue[unit])
        guaranteed = is_guaranteed(tree, mine, queues.held[mine], charge)
        if not exceeds(tree, theirs, left[theirs], guaranteed):
            return False
        add(tree, left, units.queue[unit], units.charge[unit], -1)
    for at in range(3):
        is_involved = charge[at] > 0
        for number in range(taken):
            is_involved = is_involved or units.charge[scratch.order[number], at] > 0
        if is_involved and not is_unsaturated(arrays, gang, taken, at):
            return False
    return True


@kernel
def is_unsaturated(arrays: Arrays, gang: int, taken: int, at: int) -> bool:
    """Rule 4 of a resource, for all queues that lost something."""
    tree, scratch, leaf = arrays.queues.tree, arrays.scratch, arrays.gangs.queue[gang]
    for number in range(taken):
        mine, theirs = levelled(tree, leaf, arrays.units.queue[scratch.order[number]])
        ours = scratch.left[mine, at] + arrays.gangs.charge[gang, at]
        if not is_fair(tree, mine, theirs, at, ours, scratch.left[theirs, at]):
            return False
    return True


@kernel
def sort_taken(arrays: Arrays, count: int) -> int:
    """Order the units that left in this turn by what they cost their queues, the smallest first; how many there are."""
    units, scratch = arrays.units, arrays.scratch
    taken = 0
    for number in range(count):
        unit = scratch.units[number]
        if units.where[unit] != LEFT:
            continue
        at = taken
        while at > 0 and is_larger(units.charge[scratch.order[at - 1]], units.charge[unit]):
            scratch.order[at] = scratch.order[at - 1]
            at -= 1
        scratch.order[at] = unit
        taken += 1
    return taken


@kernel
def lasts(arrays: Arrays, gang: int, count: int) -> bool:
    """Whether the next cycle gives the room to ``gang`` and not back to a victim (docs/kai-behaviour.md#reclaim-lasts).

    `Scratch.left` is what queues hold once the victims are gone.
    """
    queues, units, scratch, gangs = arrays.queues, arrays.units, arrays.scratch, arrays.gangs
    left, keys = scratch.left, scratch.keys
    for number in range(count):
        unit = scratch.units[number]
        if units.where[unit] != LEFT or is_kept_out(queues, left, units.queue[unit], units.charge[unit]):
            continue
        mine, theirs = levelled(queues.tree, gangs.queue[gang], units.queue[unit])
        write_key(queues, mine, left[mine], gangs.charge[gang], keys[0])
        write_key(queues, theirs, left[theirs], units.charge[unit], keys[1])
        if not goes_first(queues, mine, keys[0], theirs, keys[1]):
            return False
    return True


@kernel
def is_kept_out(queues: Queues, holds: IntArray, leaf: int, charge: Row) -> bool:
    """Whether ``charge`` exceeds a limit of ``leaf`` or of a queue above it, where queues hold ``holds`` (Q, 3)."""
    queue = leaf
    while queue != NONE:
        for at in range(3):
            if charge[at] > 0 and holds[queue, at] + charge[at] > queues.limit[queue, at]:
                return True
        queue = queues.tree.parent[queue]
    return False


@kernel
def may_take(arrays: Arrays, unit: int, below: int) -> bool:
    """Whether ``unit``, where it is, is open in this turn; ``below``: only work of less priority."""
    units, scratch, stamp = arrays.units, arrays.scratch, arrays.record.numbers[STAMP]
    is_open = scratch.open_queue[units.queue[unit]] == stamp
    return bool(is_open and units.where[unit] in (HOME, MOVED) and units.priority[unit] < below)
