"""Kernels of the search of chains: where pods are, what is free, which groups are in, and an undo list.

The arrays are those of a `ChainProblem` with its working copies. They come in small named tuples, since a kernel that
is called millions of times should not be handed sixty arrays.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.chains.arrays import NONE, ChainProblem
from kai_solver.compiled import kernel

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

SEED: Final = 0
COST: Final = 1
MOVES: Final = 2
UNDONE: Final = 3
"""Entries of the undo list."""
FREED: Final = 4
"""Entries of the list of nodes on which something became free."""
TURN: Final = 5
"""Position of the turn that is next."""
NUMBERS: Final = 6

PLACED: Final = 0
TAKEN: Final = 1
ENTERED: Final = 2
LEFT: Final = 3

FREED_SIZE: Final = 4096
WAY: Final = 7
IMPOSSIBLE: Final = 2**62


class Shapes(NamedTuple):
    """What pods ask for; as in `ChainProblem`.

    ``kind``: (N + 2,) by row of `Room`. ``could``: (S, N) nodes that are allowed and large enough when empty.
    """

    request: IntArray
    devices: IntArray
    parts: IntArray
    shared: BoolArray
    kind: IntArray
    could: BoolArray
    slots: int


class Room(NamedTuple):
    """Free amounts (N + 2, R), free parts of devices (N + 2, D), and pods that share each device (N + 2, D).

    The last two rows are for suppositions: copies of nodes on which pods come and go to see what would fit. What other
    rows say is always so.
    """

    free: IntArray
    device_free: IntArray
    sharers: IntArray


class Pods(NamedTuple):
    """Where pods are: ``node`` (P,), ``devices`` (P, W); those of one node are a list: ``head`` (N,), ``after``,
    ``before`` (P,). The rest as in `ChainProblem`."""

    shape: IntArray
    group: IntArray
    price: IntArray
    home: IntArray
    home_devices: IntArray
    node: IntArray
    devices: IntArray
    head: IntArray
    after: IntArray
    before: IntArray


class Groups(NamedTuple):
    """Which groups are in, and ``domain_in`` (G,) where all pods of one have to be; ``held`` (L, 3) by ledger.

    ``needed_by`` (G,): the group that requires this one. The rest as in `ChainProblem`.
    """

    first: IntArray
    cost: IntArray
    may_leave: BoolArray
    may_move: BoolArray
    level: IntArray
    within: IntArray
    requires: IntArray
    needed_by: IntArray
    charge: IntArray
    in_ledgers: IntArray
    out_ledger: IntArray
    above: IntArray
    limit: IntArray
    held: IntArray
    is_in: BoolArray
    domain_in: IntArray
    domain: IntArray


class Memory(NamedTuple):
    """``numbers``: those named above. ``undo`` (U, 3 + W): what was done, to which, where, with which devices.

    ``freed``: nodes on which something became free, as they come; ``full`` (S,) up to which of them no node has room
    for a shape, `NONE` where that is not known; ``hole`` (S,) a node that had room for it. ``way``: a way to make room.
    """

    numbers: IntArray
    undo: IntArray
    freed: IntArray
    full: IntArray
    hole: IntArray
    way: IntArray


class Board(NamedTuple):
    """All of the above, and how to weigh free CPU against free devices (`rate`: CPU by 16 thousandths of a GPU)."""

    shapes: Shapes
    room: Room
    pods: Pods
    groups: Groups
    memory: Memory
    rate: int


# -- one row of the room -----------------------------------------------------------------------------------------------


@kernel
def fits(shapes: Shapes, room: Room, shape: int, row: int) -> bool:
    """Whether there is room for one more pod of ``shape``; the mask is not looked at."""
    for resource in range(shapes.request.shape[1]):
        asked = shapes.request[shape, resource]
        if asked > 0 and asked > room.free[row, resource]:
            return False
    count = shapes.devices[shape]
    if count == 0:
        return True
    parts = shapes.parts[shape, shapes.kind[row]]
    shared = shapes.shared[shape]
    openings = openings_left(shapes, room, shape, row)
    for device in range(room.device_free.shape[1]):
        if room.device_free[row, device] < parts:
            continue
        if shared and room.sharers[row, device] == 0:
            if openings == 0:
                continue
            openings -= 1
        count -= 1
        if count == 0:
            return True
    return False


@kernel
def openings_left(shapes: Shapes, room: Room, shape: int, row: int) -> int:
    """How many devices a pod of ``shape`` may be the first to share: each takes a pod slot."""
    if shapes.slots == NONE:
        return int(room.device_free.shape[1])
    left: int = room.free[row, shapes.slots] - shapes.request[shape, shapes.slots]
    return max(0, left)


@kernel
def fits_home(shapes: Shapes, room: Room, pods: Pods, pod: int, row: int) -> bool:
    """Whether what ``pod`` holds where it runs is free in that node's row, the same devices with it."""
    shape = pods.shape[pod]
    for resource in range(shapes.request.shape[1]):
        asked = shapes.request[shape, resource]
        if asked > 0 and asked > room.free[row, resource]:
            return False
    openings = openings_left(shapes, room, shape, row)
    for at in range(shapes.devices[shape]):
        device = pods.home_devices[pod, at]
        if room.device_free[row, device] < shapes.parts[shape, shapes.kind[row]]:
            return False
        if shapes.shared[shape] and room.sharers[row, device] == 0:
            openings -= 1
            if openings < 0:
                return False
    return True


@kernel
def choose_devices(shapes: Shapes, room: Room, pods: Pods, pod: int, node: int, row: int) -> None:
    """Choose devices of ``node``, where ``pod`` fits: its own where it runs, else those with the least free."""
    shape = pods.shape[pod]
    parts = shapes.parts[shape, shapes.kind[row]]
    openings = openings_left(shapes, room, shape, row)
    for at in range(shapes.devices[shape]):
        if node == pods.home[pod]:
            pods.devices[pod, at] = pods.home_devices[pod, at]
            continue
        chosen = fullest(shapes, room, pods, pod, row, at, parts, openings)
        openings -= shapes.shared[shape] and room.sharers[row, chosen] == 0
        pods.devices[pod, at] = chosen


@kernel
def fullest(shapes: Shapes, room: Room, pods: Pods, pod: int, row: int, at: int, parts: int, openings: int) -> int:
    """The device with the least free that has ``parts``, none of the first ``at`` of the pod's."""
    best, least = NONE, IMPOSSIBLE
    for device in range(room.device_free.shape[1]):
        free = room.device_free[row, device]
        if free < parts or free >= least:
            continue
        if openings <= 0 and shapes.shared[pods.shape[pod]] and room.sharers[row, device] == 0:
            continue
        is_taken = False
        for other in range(at):
            is_taken = is_taken or pods.devices[pod, other] == device
        if not is_taken:
            best, least = device, free
    return best


@kernel
def hold(shapes: Shapes, room: Room, pods: Pods, pod: int, row: int, sign: int) -> None:
    """Take (-1) or give back (+1) what ``pod`` holds with its chosen devices."""
    shape = pods.shape[pod]
    for resource in range(shapes.request.shape[1]):
        room.free[row, resource] += sign * shapes.request[shape, resource]
    parts = sign * shapes.parts[shape, shapes.kind[row]]
    for at in range(shapes.devices[shape]):
        device = pods.devices[pod, at]
        room.device_free[row, device] += parts
        if shapes.shared[shape]:
            before = room.sharers[row, device]
            room.sharers[row, device] = before - sign
            if shapes.slots != NONE:
                room.free[row, shapes.slots] += int(before > 0) - int(before > sign)


@kernel
def suppose(shapes: Shapes, room: Room, node: int, row: int) -> None:
    """Make ``row``, one of the last two, a copy of that of ``node``."""
    for resource in range(room.free.shape[1]):
        room.free[row, resource] = room.free[node, resource]
    for device in range(room.device_free.shape[1]):
        room.device_free[row, device] = room.device_free[node, device]
        room.sharers[row, device] = room.sharers[node, device]
    shapes.kind[row] = shapes.kind[node]


# -- pods --------------------------------------------------------------------------------------------------------------


@kernel
def is_moved(pods: Pods, pod: int, node: int) -> bool:
    """Whether a pod that runs would be elsewhere on ``node``."""
    home: int = pods.home[pod]
    return home != NONE and home != node


@kernel
def price_at(pods: Pods, pod: int, node: int) -> int:
    """What the place costs: the price of its move, where it runs elsewhere."""
    price: int = pods.price[pod] if is_moved(pods, pod, node) else 0
    return price


@kernel
def may_stand(shapes: Shapes, pods: Pods, groups: Groups, pod: int, node: int) -> bool:
    """Whether ``node`` is one where ``pod`` may go, by its mask, its size, and the domain of its group.

    Where it runs it may stay, unless the others of its group are in another domain now.
    """
    group = pods.group[pod]
    is_home = node == pods.home[pod]
    may_come = shapes.could[pods.shape[pod], node] and (pods.home[pod] == NONE or groups.may_move[group])
    if not is_home and not may_come:
        return False
    level = groups.level[group]
    if level == NONE:
        return True
    domain = groups.domain[level, node]
    wanted = groups.within[group]
    if wanted == NONE and groups.first[group + 1] - groups.first[group] > 1:
        wanted = groups.domain_in[group]
    return bool((is_home or domain != NONE) and wanted in (NONE, domain))


@kernel
def has_place(shapes: Shapes, room: Room, pods: Pods, pod: int, node: int, row: int) -> bool:
    """Whether ``pod`` fits ``node``, as ``row`` says: its own devices where it runs, any elsewhere."""
    if node == pods.home[pod]:
        return fits_home(shapes, room, pods, pod, row)
    return fits(shapes, room, pods.shape[pod], row)


@kernel
def place(board: Board, pod: int, node: int) -> None:
    """Put ``pod`` on ``node``, where it fits."""
    pods, numbers = board.pods, board.memory.numbers
    choose_devices(board.shapes, board.room, pods, pod, node, node)
    _seat(board, pod, node)
    _note(board.memory, PLACED, pod, node, pods.devices[pod])
    numbers[COST] += price_at(pods, pod, node)
    numbers[MOVES] += is_moved(pods, pod, node)


@kernel
def take(board: Board, pod: int) -> None:
    """Take ``pod`` from its node."""
    pods, numbers = board.pods, board.memory.numbers
    node = pods.node[pod]
    _note(board.memory, TAKEN, pod, node, pods.devices[pod])
    _unseat(board, pod)
    numbers[COST] -= price_at(pods, pod, node)
    numbers[MOVES] -= is_moved(pods, pod, node)


@kernel
def _seat(board: Board, pod: int, node: int) -> None:
    pods = board.pods
    hold(board.shapes, board.room, pods, pod, node, -1)
    first = pods.head[node]
    pods.after[pod], pods.before[pod], pods.head[node], pods.node[pod] = first, NONE, pod, node
    if first != NONE:
        pods.before[first] = pod


@kernel
def _unseat(board: Board, pod: int) -> None:
    pods, memory = board.pods, board.memory
    node, before, after = pods.node[pod], pods.before[pod], pods.after[pod]
    hold(board.shapes, board.room, pods, pod, node, +1)
    if before == NONE:
        pods.head[node] = after
    else:
        pods.after[before] = after
    if after != NONE:
        pods.before[after] = before
    pods.node[pod] = NONE
    if memory.numbers[FREED] == FREED_SIZE:
        memory.numbers[FREED] = 0
        memory.full[:] = NONE
    memory.freed[memory.numbers[FREED]] = node
    memory.numbers[FREED] += 1


# -- groups ------------------------------------------------------------------------------------------------------------


@kernel
def ledger_has(groups: Groups, ledger: int, charge: IntArray) -> bool:
    """Whether a ledger, and all above it, may hold ``charge`` (3,) more."""
    while ledger != NONE:
        for at in range(3):
            if charge[at] > 0 and groups.held[ledger, at] + charge[at] > groups.limit[ledger, at]:
                return False
        ledger = groups.above[ledger]
    return True


@kernel
def write_ledger(groups: Groups, ledger: int, charge: IntArray, sign: int) -> None:
    """Charge (+1) a ledger and all above it, or take the charge back (-1)."""
    while ledger != NONE:
        for at in range(3):
            groups.held[ledger, at] += sign * charge[at]
        ledger = groups.above[ledger]


@kernel
def may_enter(groups: Groups, group: int) -> bool:
    """Whether the ledgers, and the group that it requires, let ``group`` in."""
    required = groups.requires[group]
    if required != NONE and not groups.is_in[required]:
        return False
    limit, quota = groups.in_ledgers[group, 0], groups.in_ledgers[group, 1]
    charge = groups.charge[group]
    return ledger_has(groups, limit, charge) and ledger_has(groups, quota, charge)


@kernel
def leaving_price(groups: Groups, group: int) -> int:
    """What it costs that ``group`` leaves, with those that require it; `IMPOSSIBLE` where they may not.

    Moves that need no longer be paid for are not counted, nor that they leave together.
    """
    price = 0
    while group != NONE and groups.is_in[group]:
        if not groups.may_leave[group] or not ledger_has(groups, groups.out_ledger[group], groups.charge[group]):
            return IMPOSSIBLE
        price += groups.cost[group]
        group = groups.needed_by[group]
    return price


@kernel
def enter(board: Board, group: int) -> None:
    """``group``, all of whose pods have places, is in."""
    _note(board.memory, ENTERED, group, NONE, board.pods.devices[0])
    _turn(board, group, +1)


@kernel
def leave(board: Board, group: int) -> bool:
    """``group`` leaves with those that require it; False, with part of it done, where one of them may not."""
    groups, pods = board.groups, board.pods
    while group != NONE and groups.is_in[group]:
        if not groups.may_leave[group] or not ledger_has(groups, groups.out_ledger[group], groups.charge[group]):
            return False
        for pod in range(groups.first[group], groups.first[group + 1]):
            if pods.node[pod] != NONE:
                take(board, pod)
        _note(board.memory, LEFT, group, NONE, pods.devices[0])
        _turn(board, group, -1)
        group = groups.needed_by[group]
    return True


@kernel
def _turn(board: Board, group: int, sign: int) -> None:
    """Count ``group`` as in (+1) or out (-1)."""
    groups = board.groups
    charge = groups.charge[group]
    groups.is_in[group] = sign > 0
    for at in range(2):
        write_ledger(groups, groups.in_ledgers[group, at], charge, sign)
    write_ledger(groups, groups.out_ledger[group], charge, -sign)
    board.memory.numbers[COST] -= sign * groups.cost[group]


# -- undo --------------------------------------------------------------------------------------------------------------


@kernel
def _note(memory: Memory, step: int, which: int, node: int, devices: IntArray) -> None:
    row = memory.undo[memory.numbers[UNDONE]]
    row[0], row[1], row[2] = step, which, node
    for at in range(len(devices)):
        row[3 + at] = devices[at]
    memory.numbers[UNDONE] += 1


@kernel
def undo(board: Board, mark: int) -> None:
    """Take back all that was done since the undo list had ``mark`` entries."""
    pods, numbers = board.pods, board.memory.numbers
    while numbers[UNDONE] > mark:
        numbers[UNDONE] -= 1
        row = board.memory.undo[numbers[UNDONE]]
        step, which, node = row[0], row[1], row[2]
        if step == PLACED:
            _unseat(board, which)
            numbers[COST] -= price_at(pods, which, node)
            numbers[MOVES] -= is_moved(pods, which, node)
        elif step == TAKEN:
            for at in range(pods.devices.shape[1]):
                pods.devices[which, at] = row[3 + at]
            _seat(board, which, node)
            numbers[COST] += price_at(pods, which, node)
            numbers[MOVES] += is_moved(pods, which, node)
        else:
            _turn(board, which, +1 if step == LEFT else -1)


# -- from a problem ----------------------------------------------------------------------------------------------------


def board_of(problem: ChainProblem, seed: int) -> Board:
    """The working copies, with all pods where the problem says that they start."""
    count, nodes, shapes = len(problem.shape), len(problem.kind), len(problem.devices)
    width = problem.home_devices.shape[1]
    groups = len(problem.cost)
    empty = Room(_with_two(problem.room), _with_two(problem.device_room), _with_two(problem.sharers))
    board = Board(
        Shapes(
            problem.request,
            problem.devices,
            problem.parts,
            problem.shared,
            np.concatenate([problem.kind, [0, 0]]),
            _large_enough(problem),
            problem.slots,
        ),
        empty,
        Pods(
            problem.shape,
            np.repeat(np.arange(groups), np.diff(problem.first)),
            problem.price,
            problem.home,
            problem.home_devices,
            np.full(count, NONE, dtype=np.int64),
            problem.start_devices.copy(),
            np.full(nodes, NONE, dtype=np.int64),
            np.full(count, NONE, dtype=np.int64),
            np.full(count, NONE, dtype=np.int64),
        ),
        Groups(
            problem.first,
            problem.cost,
            problem.may_leave.copy(),
            problem.may_move,
            problem.level,
            problem.within,
            problem.requires,
            _inverse(problem.requires),
            problem.charge,
            problem.in_ledgers,
            problem.out_ledger,
            problem.ledger_above,
            problem.ledger_limit,
            np.zeros((len(problem.ledger_above), 3), dtype=np.int64),
            np.zeros(groups, dtype=np.bool_),
            np.full(groups, NONE, dtype=np.int64),
            problem.domain,
        ),
        Memory(
            np.zeros(NUMBERS, dtype=np.int64),
            np.zeros((6 * count + groups + 8, 3 + width), dtype=np.int64),  # Each pod and group of one try, all moved.
            np.zeros(FREED_SIZE, dtype=np.int64),
            np.full(shapes, NONE, dtype=np.int64),
            np.full(shapes, NONE, dtype=np.int64),
            np.zeros(WAY, dtype=np.int64),
        ),
        16 * int(problem.room[:, 0].sum()) // max(1, int((problem.device_room // 10**9).sum())),
    )
    board.memory.numbers[SEED] = 1 + seed % (2**31 - 2)
    return board


@kernel
def begin(board: Board, start: IntArray) -> None:
    """Put all pods where they ``start`` (P,), with the devices that they have."""
    pods, groups, numbers = board.pods, board.groups, board.memory.numbers
    for pod in range(len(start)):
        if start[pod] != NONE:
            _seat(board, pod, start[pod])
            numbers[COST] += price_at(pods, pod, start[pod])
            numbers[MOVES] += is_moved(pods, pod, start[pod])
    for group in range(len(groups.cost)):
        at = start[groups.first[group]]
        if at == NONE:
            write_ledger(groups, groups.out_ledger[group], groups.charge[group], +1)
            numbers[COST] += groups.cost[group]
            continue
        groups.is_in[group] = True
        for side in range(2):
            write_ledger(groups, groups.in_ledgers[group, side], groups.charge[group], +1)
        if groups.level[group] != NONE:
            groups.domain_in[group] = groups.domain[groups.level[group], at]


def _large_enough(problem: ChainProblem) -> BoolArray:
    """(S, N) nodes that a shape may use and that are large enough for it when they are empty."""
    could = problem.allowed[problem.mask]
    for shape, asked in enumerate(problem.request):
        needed = asked > 0
        could[shape] &= (problem.room[:, needed] >= asked[needed]).all(axis=1)
        count = problem.devices[shape]
        if count:
            parts = problem.parts[shape][problem.kind]
            could[shape] &= (problem.device_room >= parts[:, None]).sum(axis=1) >= count
    return could


def _with_two(rows: IntArray) -> IntArray:
    return np.concatenate([rows, np.zeros((2, rows.shape[1]), dtype=np.int64)])


def _inverse(requires: IntArray) -> IntArray:
    found = np.full(len(requires), NONE, dtype=np.int64)
    (groups,) = np.nonzero(requires != NONE)
    found[requires[groups]] = groups
    return found
