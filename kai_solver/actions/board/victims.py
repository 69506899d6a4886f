"""Room for a gang that is made by victims: which units leave, stay after all, or move."""

from kai_solver.actions.board.arrays import (
    CONSOLIDATE,
    HOME,
    IMPOSSIBLE,
    LEFT,
    MOVED,
    MOVES,
    NONE,
    PODS,
    RECLAIM,
    Arrays,
)
from kai_solver.actions.board.costs import (
    begin_costs,
    cheapest,
    cheapest_domain,
    estimate_domains,
    know_least,
    look_at_domain,
    set_cost,
    update_costs,
    waste,
)
from kai_solver.actions.board.leaving import cost_at
from kai_solver.actions.board.order import pay
from kai_solver.actions.board.rights import LEAST, accepts, passes_cap, permits, spend
from kai_solver.actions.board.room import best_node, empty, fill, shift, tightest
from kai_solver.actions.board.rows import fits_back, list_moved, shift_unit
from kai_solver.compiled import kernel

DOMAINS_TRIED = 16
"""Domains in which room is tried to be made for one gang, the cheapest by estimate first."""


@kernel
def make_room(arrays: Arrays, gang: int, action: int, below: int, frugal: bool) -> int:
    """Place all pods of ``gang`` with the units that are open in this turn; how many units were disturbed.

    `NONE`, with nothing changed, where there is no way. ``frugal``: in reclaim, take no more of a queue than all that
    leaves may be, if none of it moves.
    """
    level, shape = arrays.gangs.level[gang], arrays.gangs.shape[gang]
    know_least(arrays, shape)
    if level == NONE:
        return make_room_in(arrays, gang, action, below, frugal, NONE)
    estimate_domains(arrays, shape, arrays.gangs.pods[gang], level, below)
    for _ in range(DOMAINS_TRIED):
        domain = cheapest_domain(arrays, gang, below)
        if domain == NONE:
            return NONE
        arrays.scratch.domain_cost[domain] = IMPOSSIBLE
        done = make_room_in(arrays, gang, action, below, frugal, domain)
        if done != NONE:
            return done
    return NONE


@kernel
def make_room_in(arrays: Arrays, gang: int, action: int, below: int, frugal: bool, domain: int) -> int:
    """`make_room` in one domain, or anywhere."""
    gangs, record = arrays.gangs, arrays.record
    shape, count, level, first = gangs.shape[gang], gangs.pods[gang], gangs.level[gang], record.numbers[PODS]
    if domain == NONE:
        begin_costs(arrays, shape, below)
    else:
        look_at_domain(arrays, shape, level, domain, below)
    taken, placed = 0, 0
    while placed < count:
        node = best_node(arrays, shape, level, domain)
        if node == NONE:
            node, taken = clear(arrays, shape, action, below, frugal, level, domain, taken)
            if node == NONE:
                break
        record.node[first + placed], record.is_now[first + placed] = node, False
        shift(arrays, node, shape, -1, False, arrays.zones.placed, first + placed)
        set_cost(arrays, node, cost_at(arrays, shape, node, below))
        placed += 1
    moves = record.numbers[MOVES]
    done = placed == count
    if done:
        settle(arrays, taken, arrays.may_move or action == CONSOLIDATE)
        done = is_allowed(arrays, gang, action, taken)
    if done:
        record.numbers[PODS] += count
        return int(taken)
    take_back(arrays, shape, first, placed, taken, moves)
    return NONE


@kernel
def clear(
    arrays: Arrays, shape: int, action: int, below: int, frugal: bool, level: int, domain: int, taken: int
) -> tuple[int, int]:
    """Let the cheapest units leave so that one more pod fits: the node, and how many units have left by now."""
    scratch, units = arrays.scratch, arrays.units
    while True:
        node = cheapest(arrays, level, domain)
        if node == NONE:
            return NONE, taken
        before = scratch.cost[node]
        cost = cost_at(arrays, shape, node, below)
        if cost > before:
            set_cost(arrays, node, cost)
            if domain == NONE:
                waste(arrays, 1, below)
            continue
        picks = scratch.picks
        if picks[0] == 0:  # It fits, and another rule than room forbids it.
            set_cost(arrays, node, IMPOSSIBLE)
            continue
        if frugal and action == RECLAIM and not spend_picks(arrays, taken):
            # By other queues, if one was closed; else not by now: what leaves elsewhere may change it.
            cost = cost_at(arrays, shape, node, below)
            set_cost(arrays, node, cost if cost != before else IMPOSSIBLE)
            continue
        count = picks[0]
        for at in range(1, count + 1):
            scratch.units[taken] = units.unit[picks[at]]
            taken += 1
        for number in range(taken - count, taken):
            unit = scratch.units[number]
            scratch.was_moved[unit] = units.where[unit] == MOVED
            units.where[unit] = LEFT
            shift_unit(arrays, scratch.units[number], +1)
        for number in range(taken - count, taken):
            update_costs(arrays, shape, scratch.units[number], below)
        return node, taken


@kernel
def spend_picks(arrays: Arrays, taken: int) -> bool:
    """Take the picks off what may be taken of their queues, beside the first ``taken`` units of the turn.

    If that is too much, nothing is taken off; a queue from which nothing may be taken any more is closed for the turn.
    """
    units, scratch, picks = arrays.units, arrays.scratch, arrays.scratch.picks
    for at in range(1, picks[0] + 1):
        unit = units.unit[picks[at]]
        sibling = scratch.victim_queue[units.queue[unit]]
        if permits(arrays, sibling, units.charge[unit]):
            spend(arrays, unit)
            continue
        spend_again(arrays, taken)
        if not permits(arrays, sibling, LEAST):
            queues = arrays.queues
            for below in range(queues.first_leaf[sibling], queues.first_leaf[sibling + 1]):
                scratch.open_queue[queues.leaf[below]] = 0
        return False
    return True


@kernel
def spend_again(arrays: Arrays, taken: int) -> None:
    """Count what was taken of each queue by the first ``taken`` units of the turn."""
    scratch = arrays.scratch
    scratch.spent[:] = 0
    scratch.last[:] = 0
    for number in range(taken):
        spend(arrays, scratch.units[number])


@kernel
def settle(arrays: Arrays, taken: int, may_move: bool) -> None:
    """Let units that left stay where there is still room, the dearest first; then move what can, if they may.

    The units of the turn are then in this order, in which the record has the places of those that moved.
    """
    units, scratch = arrays.units, arrays.scratch
    for number in range(taken):
        unit, at = scratch.units[number], number
        while at > 0 and units.cost[scratch.order[at - 1]] < units.cost[unit]:
            scratch.order[at] = scratch.order[at - 1]
            at -= 1
        scratch.order[at] = unit
    for number in range(taken):
        unit = scratch.order[number]
        if fits_back(arrays, unit):
            shift_unit(arrays, unit, -1)
            units.where[unit] = MOVED if scratch.was_moved[unit] else HOME
    for number in range(taken if may_move else 0):
        unit = scratch.order[number]
        is_movable = units.movable[unit] and not scratch.was_moved[unit]
        if units.where[unit] == LEFT and is_movable and move(arrays, unit):
            units.where[unit] = MOVED
    for number in range(taken):
        scratch.units[number] = scratch.order[number]


@kernel
def move(arrays: Arrays, unit: int) -> bool:
    """Give all pods of ``unit`` places elsewhere, if its queue may hold it beside what came."""
    units, queues, record = arrays.units, arrays.queues, arrays.record
    shape, count, level, first = units.shape[unit], units.pods[unit], units.level[unit], record.numbers[MOVES]
    queue = units.queue[unit]
    while queue != NONE:
        for at in range(3):
            if units.charge[unit, at] > 0 and queues.held[queue, at] > queues.limit[queue, at]:
                return False
        queue = queues.tree.parent[queue]
    domain = NONE
    if level != NONE:
        domain = tightest(arrays, shape, count, level)
        if domain == NONE:
            return False
    takes = arrays.zones.moved
    done = fill(arrays, shape, count, level, domain, record.moved, takes, first, True)
    if done < count:
        empty(arrays, shape, done, record.moved, takes, first, True)
        return False
    list_moved(arrays, unit, record.moved, takes, first)
    record.numbers[MOVES] += count
    return True


@kernel
def is_allowed(arrays: Arrays, gang: int, action: int, taken: int) -> bool:
    """Limits and quotas with the victims gone, and what reclaim and consolidation check themselves."""
    units, scratch, queues = arrays.units, arrays.scratch, arrays.queues
    if action == RECLAIM and not accepts(arrays, gang, taken):
        return False
    if action == CONSOLIDATE and not all_moved(arrays, taken):
        return False
    for number in range(taken):
        unit = scratch.units[number]
        if units.where[unit] == LEFT:
            pay(queues, units.queue[unit], units.charge[unit], -1, False)
    passes = passes_cap(arrays, gang, arrays.gangs.charge[gang])
    for number in range(taken):
        unit = scratch.units[number]
        if units.where[unit] == LEFT:
            pay(queues, units.queue[unit], units.charge[unit], +1, False)
    return not passes


@kernel
def all_moved(arrays: Arrays, taken: int) -> bool:
    """Whether all of the turn's units have a place, and not more moved than consolidation may move for one gang."""
    moved = 0
    for number in range(taken):
        unit = arrays.scratch.units[number]
        if arrays.units.where[unit] == LEFT:
            return False
        moved += arrays.units.where[unit] == MOVED and not arrays.scratch.was_moved[unit]
    return bool(moved <= arrays.most_moved)


@kernel
def take_back(arrays: Arrays, shape: int, first: int, placed: int, taken: int, moves: int) -> None:
    """Undo what a turn did: places, moves, and units that left."""
    units, scratch, record = arrays.units, arrays.scratch, arrays.record
    for at in range(first, first + placed):
        shift(arrays, record.node[at], shape, +1, False, arrays.zones.placed, at)
    at = moves
    for number in range(taken):
        unit = scratch.units[number]
        stayed = units.where[unit] == (MOVED if scratch.was_moved[unit] else HOME)
        if units.where[unit] == MOVED and not scratch.was_moved[unit]:
            empty(arrays, units.shape[unit], units.pods[unit], record.moved, arrays.zones.moved, at, True)
            at += units.pods[unit]
        if not stayed:
            shift_unit(arrays, unit, -1)
        units.where[unit] = MOVED if scratch.was_moved[unit] else HOME
    record.numbers[MOVES] = moves
