"""What queues allow: limits, quotas, and what reclaim may take (the rules are those of `fairness.reclaim`)."""

from math import inf

from kai_solver.actions.board.arrays import (
    BOUNDLESS,
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

UNLIMITED = -1


@kernel
def passes_cap(arrays: Arrays, gang: int, charge: IntArray) -> bool:
    """Whether a queue would hold more than a limit, or than a quota of work that is not preemptible.

    ``charge`` (3,) comes to what it holds; only what the gang asks for counts.
    """
    queues, gangs = arrays.queues, arrays.gangs
    asked, queue = gangs.charge[gang], gangs.queue[gang]
    while queue != NONE:
        for at in range(3):
            if asked[at] <= 0:
                continue
            if queues.held[queue, at] + charge[at] > queues.limit[queue, at]:
                return True
            if not gangs.preemptible[gang] and queues.fixed[queue, at] + charge[at] > queues.quota[queue, at]:
                return True
        queue = queues.parent[queue]
    return False


@kernel
def may_reclaim(arrays: Arrays, gang: int) -> bool:
    """Rule 1: the leaf stays within its fair share, and work that is not preemptible within all quotas."""
    queues, gangs = arrays.queues, arrays.gangs
    charge, leaf = gangs.charge[gang], gangs.queue[gang]
    for at in range(3):
        share = queues.share[leaf, at]
        if share != UNLIMITED and queues.held[leaf, at] + charge[at] > share:
            return False
    queue = leaf
    while queue != NONE and not gangs.preemptible[gang]:
        for at in range(3):
            if queues.fixed[queue, at] + charge[at] > queues.quota[queue, at]:
                return False
        queue = queues.parent[queue]
    return True


@kernel
def is_guaranteed(queues: Queues, queue: int, charge: IntArray) -> bool:
    """Whether ``queue`` stays within its quota with ``charge`` (3,)."""
    is_within = True
    for at in range(3):
        is_within = is_within and queues.held[queue, at] + charge[at] <= queues.quota[queue, at]
    return bool(is_within)


@kernel
def may_look_at(queues: Queues, queue: int, charge: IntArray, guaranteed: bool) -> bool:
    """Rule 2: whether work of ``queue``, a sibling on the taker's way, may be a victim."""
    if not guaranteed:
        for at in range(3):
            bound = queues.allocatable[queue, at]
            if bound != UNLIMITED and queues.held[queue, at] > bound:
                return True
        return False
    is_below = False
    for at in range(3):
        quota, held = queues.quota[queue, at], queues.held[queue, at]
        if quota != BOUNDLESS and charge[at] > 0 and held > quota:
            return True
        is_below = is_below or (quota != BOUNDLESS and held < quota)
    return not is_below


@kernel
def kept(queues: Queues, queue: int, at: int, guaranteed: bool) -> int:
    """What a victim queue keeps of a resource (rule 3); `BOUNDLESS` where it gives no right."""
    bound = queues.allocatable[queue, at]
    least = BOUNDLESS if bound == UNLIMITED else bound
    if guaranteed:
        least = min(least, queues.quota[queue, at])
    return int(least)


@kernel
def saturation(amount: int, fair: int) -> float:
    """What a queue holds by its fair share."""
    if fair == UNLIMITED:
        return 0.0
    if fair == 0:
        return inf if amount > 0 else 0.0
    return amount / fair


@kernel
def open_queues(arrays: Arrays, gang: int) -> bool:
    """Open the leaf queues from which ``gang`` may reclaim, and write what may be taken of each; whether any is."""
    queues, scratch, stamp = arrays.queues, arrays.scratch, arrays.record.numbers[STAMP]
    charge, any_open = arrays.gangs.charge[gang], False
    queue, roots = arrays.gangs.queue[gang], len(queues.parent)
    while queue != NONE:
        above = queues.parent[queue]
        level = above if above != NONE else roots
        guaranteed = is_guaranteed(queues, queue, charge)
        for at in range(queues.first_child[level], queues.first_child[level + 1]):
            sibling = queues.child[at]
            if sibling == queue or not may_look_at(queues, sibling, charge, guaranteed):
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
    queues, scratch = arrays.queues, arrays.scratch
    factor = max(1.0, arrays.multiplier)
    for at in range(3):
        scratch.surplus[sibling, at] = max(0, queues.held[sibling, at] - kept(queues, sibling, at, guaranteed))
        scratch.ratio[sibling, at] = -1.0
        ratio = saturation(queues.held[queue, at] + charge[at], queues.share[queue, at])
        if ratio > 1 and queues.share[sibling, at] > 0:
            scratch.ratio[sibling, at] = ratio * factor
        scratch.spent[sibling, at] = 0
        scratch.last[sibling, at] = 0


@kernel
def permits(arrays: Arrays, sibling: int, cpu: int, memory: int, gpu: int) -> bool:
    """Whether one more part of these amounts may be taken of a sibling, the largest part last."""
    queues, scratch = arrays.queues, arrays.scratch
    spent, last, surplus = scratch.spent[sibling], scratch.last[sibling], scratch.surplus[sibling]
    is_larger = is_above(gpu, memory, cpu, last[2], last[1], last[0])
    allowed = False
    for at in range(3):
        amount = cpu if at == 0 else memory if at == 1 else gpu
        total = spent[at] + amount
        if scratch.ratio[sibling, at] >= 0:
            left = queues.held[sibling, at] - total
            if not left / queues.share[sibling, at] > scratch.ratio[sibling, at]:
                return False
        allowed = allowed or total - (amount if is_larger else last[at]) < surplus[at]
    return allowed


@kernel
def is_above(one: int, two: int, three: int, other: int, second: int, third: int) -> bool:
    """Whether the first three numbers come after the last three, compared one after the other."""
    if one != other:
        return one > other
    if two != second:
        return two > second
    return three > third


@kernel
def spend(arrays: Arrays, unit: int) -> None:
    """Note that ``unit`` is taken."""
    scratch, charge = arrays.scratch, arrays.units.charge[unit]
    sibling = scratch.victim_queue[arrays.units.queue[unit]]
    last = scratch.last[sibling]
    is_larger = is_above(charge[2], charge[1], charge[0], last[2], last[1], last[0])
    for at in range(3):
        scratch.spent[sibling, at] += charge[at]
        if is_larger:
            last[at] = charge[at]


@kernel
def accepts(arrays: Arrays, gang: int, count: int) -> bool:
    """Whether reclaim may take those of the ``count`` units of this turn that left, and it would last.

    Queues hold what they did before the turn.
    """
    return is_fair(arrays, gang, count) and lasts(arrays, gang, count)


@kernel
def is_fair(arrays: Arrays, gang: int, count: int) -> bool:
    """Rules 3 and 4, part by part, the smallest first."""
    queues, units, scratch = arrays.queues, arrays.units, arrays.scratch
    left, charge = scratch.left, arrays.gangs.charge[gang]
    for queue in range(len(queues.parent)):
        for at in range(3):
            left[queue, at] = queues.held[queue, at]
    taken = sort_taken(arrays, count)
    involved_cpu, involved_memory, involved_gpu = charge[0] > 0, charge[1] > 0, charge[2] > 0
    for number in range(taken):
        unit = scratch.order[number]
        sibling = scratch.victim_queue[units.queue[unit]]
        own = own_level(queues, arrays.gangs.queue[gang], sibling)
        guaranteed, exceeds = is_guaranteed(queues, own, charge), False
        for at in range(3):
            exceeds = exceeds or left[sibling, at] > kept(queues, sibling, at, guaranteed)
        if not exceeds:
            return False
        queue = units.queue[unit]
        while queue != NONE:
            for at in range(3):
                left[queue, at] -= units.charge[unit, at]
            queue = queues.parent[queue]
        involved_cpu = involved_cpu or units.charge[unit, 0] > 0
        involved_memory = involved_memory or units.charge[unit, 1] > 0
        involved_gpu = involved_gpu or units.charge[unit, 2] > 0
    factor = max(1.0, arrays.multiplier)
    for number in range(taken):
        sibling = scratch.victim_queue[units.queue[scratch.order[number]]]
        own = own_level(queues, arrays.gangs.queue[gang], sibling)
        for at in range(3):
            if not (involved_cpu if at == 0 else involved_memory if at == 1 else involved_gpu):
                continue
            ratio = saturation(left[own, at] + charge[at], queues.share[own, at])
            fair = queues.share[sibling, at]
            if ratio > 1 and fair > 0 and not left[sibling, at] / fair > ratio * factor:
                return False
    return True


@kernel
def own_level(queues: Queues, leaf: int, sibling: int) -> int:
    """The queue on the way up from ``leaf`` that has the same parent as ``sibling``."""
    queue = leaf
    while queues.parent[queue] != queues.parent[sibling]:
        queue = queues.parent[queue]
    return queue


@kernel
def sort_taken(arrays: Arrays, count: int) -> int:
    """Order the units that left in this turn by what they cost their queues, the smallest first; how many there are."""
    units, scratch = arrays.units, arrays.scratch
    taken = 0
    for number in range(count):
        unit = scratch.units[number]
        if units.where[unit] != LEFT:
            continue
        charge = units.charge[unit]
        at = taken
        while at > 0:
            before = units.charge[scratch.order[at - 1]]
            if not is_above(before[2], before[1], before[0], charge[2], charge[1], charge[0]):
                break
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
    charge, left, keys = gangs.charge[gang], scratch.left, scratch.keys
    for number in range(count):
        unit = scratch.units[number]
        if units.where[unit] != LEFT:
            continue
        sibling = scratch.victim_queue[units.queue[unit]]
        own = own_level(queues, gangs.queue[gang], sibling)
        write_key(queues, own, left[own, 0], left[own, 1], left[own, 2], charge, keys[0])
        there = left[sibling]
        write_key(queues, sibling, there[0], there[1], there[2], units.charge[unit], keys[1])
        if not goes_first(queues, own, keys[0], sibling, keys[1]):
            return False
    return True


@kernel
def may_take(arrays: Arrays, unit: int, below: int) -> bool:
    """Whether ``unit``, where it is, is open in this turn; ``below``: only work of less priority."""
    units, scratch, stamp = arrays.units, arrays.scratch, arrays.record.numbers[STAMP]
    is_open = scratch.open_queue[units.queue[unit]] == stamp
    return bool(is_open and units.where[unit] in (HOME, MOVED) and units.priority[unit] < below)
