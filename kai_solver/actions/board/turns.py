"""A turn of one plain gang from beginning to end, and the loop over turns."""

from kai_solver.actions.board.arrays import (
    ADMITTED,
    ALLOCATE,
    ASK,
    ASKED,
    BOUNDLESS,
    CONSOLIDATE,
    END,
    FORBIDDEN,
    FOUND,
    HOME,
    IMPOSSIBLE,
    LEFT,
    MADE_ROOM,
    MAY_YIELD,
    MOVED,
    MOVES,
    NO_ROOM,
    NONE,
    OTHER,
    OUT,
    PAUSE,
    PLACED,
    PODS,
    PREEMPT,
    RECLAIM,
    SAME,
    STAMP,
    TURNS,
    VICTIMS,
    WISHING,
    Arrays,
)
from kai_solver.actions.board.hopeless import is_hopeless
from kai_solver.actions.board.order import look_at_all, look_at_path, next_gang, pay
from kai_solver.actions.board.rights import LEAST, may_reclaim, open_queues, passes_cap, permits
from kai_solver.actions.board.room import fits, place
from kai_solver.actions.board.victims import make_room, take_back
from kai_solver.compiled import entry, kernel

QUEUES_TRIED = 32
"""Queues that are tried by themselves, if what may be taken of all of them together made no room."""


def _warm_up() -> None:
    from kai_solver.actions.board.smallest import smallest

    arrays = smallest()
    begin_turns(arrays)
    look_at_queues(arrays)
    take_turns(arrays, ALLOCATE, 1, 0, False)
    has_way(arrays, 0, ALLOCATE)


@entry(_warm_up, allocates=False)
def begin_turns(arrays: Arrays) -> None:
    """An action begins: no gang was refused yet."""
    arrays.scratch.refused[:] = NONE
    arrays.scratch.failed[:] = False
    look_at_all(arrays)


@entry(_warm_up, allocates=False)
def look_at_queues(arrays: Arrays) -> None:
    """What queues hold, or which gangs wait in them, changed."""
    look_at_all(arrays)


@entry(_warm_up, allocates=False)
def take_turns(arrays: Arrays, action: int, most: int, free_milli: int, partial: bool) -> int:
    """Take up to ``most`` turns in order; why the loop ended.

    Parameters
    ----------
    free_milli
        In consolidation, thousandths of devices that moves could make free.
    partial
        Whether room might be made that the arrays do not show.
    """
    numbers, gangs, queues, scratch = arrays.record.numbers, arrays.gangs, arrays.queues, arrays.scratch
    longest = len(arrays.record.turn)
    taken = 0
    while True:
        gang = next_gang(queues)
        numbers[ASKED] = gang
        if gang == NONE:
            return END
        if gangs.standing[gang] == OTHER:
            return ASK
        if taken == most or numbers[TURNS] == longest or not has_space(arrays, gang):
            return PAUSE
        shares = arrays.shapes.parts[gangs.shape[gang]] > 0
        if shares and numbers[VICTIMS] > 0:
            return PAUSE
        taken += 1
        pods, victims = numbers[PODS], numbers[VICTIMS]
        said = turn(arrays, gang, action, free_milli)
        if said == FOUND:
            return ASK
        row = arrays.record.turn[numbers[TURNS]]
        row[0], row[1], row[2], row[3] = gang, said, pods, numbers[PODS]
        row[4], row[5] = victims, numbers[VICTIMS]
        numbers[TURNS] += 1
        gangs.standing[gang] = OUT
        look_at_path(queues, gangs, gangs.queue[gang])
        if said in (PLACED, MADE_ROOM):
            numbers[ADMITTED] += 1
            for at in range(victims, numbers[VICTIMS]):
                if arrays.record.victim[at, 1] == LEFT:
                    look_at_path(queues, gangs, arrays.units.queue[arrays.record.victim[at, 0]])
            if shares:
                return PAUSE
        else:
            scratch.refused[gangs.kind[gang]] = numbers[ADMITTED]
        if said == NO_ROOM and action != ALLOCATE and (partial or may_yield(arrays, gang, action)):
            return MAY_YIELD


@entry(_warm_up, allocates=False)
def has_way(arrays: Arrays, gang: int, action: int) -> bool:
    """Whether a turn of ``gang`` would find places now, whether it stands in its line or not; nothing is changed."""
    gangs, scratch, numbers = arrays.gangs, arrays.scratch, arrays.record.numbers
    standing, refused = gangs.standing[gang], scratch.refused[gangs.kind[gang]]
    gangs.standing[gang], scratch.refused[gangs.kind[gang]] = WISHING, NONE
    numbers[PODS] = numbers[VICTIMS] = numbers[MOVES] = 0
    found = turn(arrays, gang, action, BOUNDLESS) == FOUND
    gangs.standing[gang], scratch.refused[gangs.kind[gang]] = standing, refused
    return bool(found)


@kernel
def has_space(arrays: Arrays, gang: int) -> bool:
    """Whether the record has space for one more turn, whatever it does."""
    numbers, record = arrays.record.numbers, arrays.record
    units = len(arrays.units.where)
    return bool(
        numbers[PODS] + arrays.gangs.pods[gang] <= len(record.node) and numbers[VICTIMS] + units <= len(record.victim)
    )


@kernel
def may_yield(arrays: Arrays, gang: int, action: int) -> bool:
    """Whether some gang that was placed on free room in this cycle could be taken by the action in the next."""
    queues, gangs, scratch = arrays.queues, arrays.gangs, arrays.scratch
    if action == CONSOLIDATE:
        return False
    if action == PREEMPT:
        return bool(not gangs.never_preempts[gang] and queues.yields[gangs.queue[gang]] < gangs.priority[gang])
    stamp = arrays.record.numbers[STAMP]
    for queue in range(len(queues.tree.parent)):
        if queues.yields[queue] < BOUNDLESS and scratch.open_queue[queue] == stamp:
            return True
    return False


@kernel
def turn(arrays: Arrays, gang: int, action: int, free_milli: int) -> int:
    """The turn of ``gang``: what became of it."""
    gangs, numbers, scratch = arrays.gangs, arrays.record.numbers, arrays.scratch
    if scratch.refused[gangs.kind[gang]] == numbers[ADMITTED]:
        return SAME
    over = passes_cap(arrays, gang, gangs.charge[gang])
    if action == CONSOLIDATE and (over or not gangs.preemptible[gang] or gangs.milli[gang] > free_milli):
        return FORBIDDEN
    if action == ALLOCATE:
        return allocate(arrays, gang, over)
    if action == RECLAIM and not may_reclaim(arrays, gang):
        return FORBIDDEN
    numbers[STAMP] += 1
    moves = numbers[MOVES]
    if action == CONSOLIDATE:
        done = consolidate(arrays, gang) if has_whole(arrays, gang) else NONE
    else:
        said = NO_ROOM if over or scratch.failed[gangs.place[gang]] else start(arrays, gang)
        if said != NO_ROOM:
            return said
        done = reclaim(arrays, gang) if action == RECLAIM else preempt(arrays, gang)
    if done == NONE:
        return NO_ROOM
    if asks(arrays, gang):
        numbers[PODS] -= gangs.pods[gang]
        take_back(arrays, gangs.shape[gang], numbers[PODS], gangs.pods[gang], done, moves)
        return FOUND
    if action == CONSOLIDATE:
        keep_moved(arrays, done)
    admit(arrays, gang, done)
    return MADE_ROOM


@kernel
def asks(arrays: Arrays, gang: int) -> bool:
    """Whether room for ``gang`` is only looked for, where others leave: it prefers some nodes, or shares devices."""
    gangs = arrays.gangs
    return bool(gangs.standing[gang] == WISHING or arrays.shapes.parts[gangs.shape[gang]] > 0)


@kernel
def allocate(arrays: Arrays, gang: int, over: bool) -> int:
    """Place ``gang`` on what is free: that only shrinks, so equal gangs fail too."""
    gangs, scratch = arrays.gangs, arrays.scratch
    if over:
        return FORBIDDEN
    if scratch.failed[gangs.place[gang]]:
        return NO_ROOM
    said = start(arrays, gang)
    if said == NO_ROOM:
        scratch.failed[gangs.place[gang]] = True
    return said


@kernel
def start(arrays: Arrays, gang: int) -> int:
    """Place ``gang`` on what is free, or only look whether it fits, if it prefers some nodes: what became of it."""
    if arrays.gangs.standing[gang] == WISHING:
        return FOUND if fits(arrays, gang) else NO_ROOM
    if not place(arrays, gang):
        return NO_ROOM
    charge(arrays, gang)
    return PLACED


@kernel
def charge(arrays: Arrays, gang: int) -> None:
    """The queues of ``gang`` hold what it costs."""
    gangs = arrays.gangs
    pay(arrays.queues, gangs.queue[gang], gangs.charge[gang], +1, not gangs.preemptible[gang])


@kernel
def admit(arrays: Arrays, gang: int, taken: int) -> None:
    """Charge for ``gang``, which has its places, and record the units that left or moved for it."""
    units, scratch, numbers, record = arrays.units, arrays.scratch, arrays.record.numbers, arrays.record
    charge(arrays, gang)
    for number in range(taken):
        unit = scratch.units[number]
        where = units.where[unit]
        if where == HOME or (where == MOVED and scratch.was_moved[unit]):
            continue
        record.victim[numbers[VICTIMS], 0], record.victim[numbers[VICTIMS], 1] = unit, where
        numbers[VICTIMS] += 1
        if where == LEFT:
            pay(arrays.queues, units.queue[unit], units.charge[unit], -1, False)
    scratch.failed[:] = False  # What left may have freed more than was taken.


@kernel
def consolidate(arrays: Arrays, gang: int) -> int:
    """Make room by moves alone; work of all queues may move."""
    arrays.scratch.open_queue[:] = arrays.record.numbers[STAMP]
    return make_room(arrays, gang, CONSOLIDATE, BOUNDLESS, False)


@kernel
def has_whole(arrays: Arrays, gang: int) -> bool:
    """Whether so many whole devices are free in all as ``gang`` asks for: what moves takes as many as it leaves."""
    nodes, shape = arrays.nodes, arrays.gangs.shape[gang]
    if arrays.shapes.parts[shape] > 0:
        return True
    left = arrays.gangs.pods[gang] * arrays.shapes.devices[shape]
    for node in range(len(nodes.whole_later)):
        if left <= 0:
            break
        if nodes.is_used[node]:
            left -= nodes.whole_later[node]
    return bool(left <= 0)


@kernel
def keep_moved(arrays: Arrays, taken: int) -> None:
    """Of the units of the turn, what moved may not move again."""
    units = arrays.units
    for number in range(taken):
        unit = arrays.scratch.units[number]
        if units.where[unit] == MOVED:
            units.cost[unit] = IMPOSSIBLE


@kernel
def preempt(arrays: Arrays, gang: int) -> int:
    """Make room by work of the same queue with a strictly lower priority."""
    gangs, scratch = arrays.gangs, arrays.scratch
    if gangs.never_preempts[gang]:
        return NONE
    scratch.open_queue[gangs.queue[gang]] = arrays.record.numbers[STAMP]
    below = gangs.priority[gang]
    if is_hopeless(arrays, gang, below):
        return NONE
    return make_room(arrays, gang, PREEMPT, below, False)


@kernel
def reclaim(arrays: Arrays, gang: int) -> int:
    """Make room by work of other queues.

    First within what each may give if nothing moves; then without that bound, since moved work costs its queue nothing;
    then queue by queue.
    """
    queues, scratch, numbers = arrays.queues, arrays.scratch, arrays.record.numbers
    if not open_queues(arrays, gang) or is_hopeless(arrays, gang, BOUNDLESS):
        return NONE
    close_spent(arrays, numbers[STAMP])
    done = make_room(arrays, gang, RECLAIM, BOUNDLESS, True)
    if done != NONE:
        return done
    numbers[STAMP] += 1
    open_queues(arrays, gang)
    done = make_room(arrays, gang, RECLAIM, BOUNDLESS, False)
    tried, all_open = 0, numbers[STAMP]
    for queue in range(len(queues.tree.parent)):
        if done != NONE or tried == QUEUES_TRIED:
            break
        is_leaf = queues.first_child[queue] == queues.first_child[queue + 1]
        if not is_leaf or scratch.open_queue[queue] != all_open or not may_give(arrays, queue):
            continue
        tried += 1
        numbers[STAMP] += 1
        scratch.open_queue[queue] = numbers[STAMP]
        if not is_hopeless(arrays, gang, BOUNDLESS):
            done = make_room(arrays, gang, RECLAIM, BOUNDLESS, False)
        scratch.open_queue[queue] = all_open
    if done == NONE:  # As it was, for those that may give way.
        numbers[STAMP] += 1
        open_queues(arrays, gang)
    return done


@kernel
def may_give(arrays: Arrays, queue: int) -> bool:
    """Whether anything may be taken of a leaf queue, however little."""
    return permits(arrays, arrays.scratch.victim_queue[queue], LEAST)


@kernel
def close_spent(arrays: Arrays, stamp: int) -> None:
    """Close queues from which nothing may be taken, however little."""
    queues, scratch = arrays.queues, arrays.scratch
    for queue in range(len(queues.tree.parent)):
        if scratch.open_queue[queue] == stamp and not may_give(arrays, queue):
            scratch.open_queue[queue] = 0
