"""Ejection chains over flat arrays: a pod is put where ejecting none, one or two others costs least.

What is ejected goes home, into a hole, where the pod came from (a swap), or leaves with its group at the price of its
work. A group comes in with all of its pods, or nothing changes. All randomness is that of a generator in the arrays, so
compiled and uncompiled searches do the same.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_solver.chains.arrays import NONE, UNLIMITED, ChainProblem, ChainResult, check_arrays
from kai_solver.chains.seats import (
    COST,
    FREED,
    IMPOSSIBLE,
    MOVES,
    SEED,
    TURN,
    UNDONE,
    Board,
    begin,
    board_of,
    choose_devices,
    enter,
    fits,
    fits_home,
    has_place,
    hold,
    is_moved,
    leave,
    leaving_price,
    may_enter,
    may_stand,
    place,
    price_at,
    suppose,
    take,
    undo,
)
from kai_solver.compiled import entry, kernel

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

LEAVES: Final = -2
"""In place of a node: the pod leaves with its group."""

# What a way to make room is: its price, the moves that it adds, the node that the pod gets, up to two pods that make
# room, and where each goes.
PRICE: Final = 0
ADDED: Final = 1
NODE: Final = 2
ONE: Final = 3
ONE_TO: Final = 4
TWO: Final = 5
TWO_TO: Final = 6

HOLES: Final = 6
"""Nodes with room that are compared before a pod goes to one of them."""


@kernel
def draw(board: Board, below: int) -> int:
    """The next number of the generator, from 0 to ``below`` - 1 (minimal standard of Park and Miller)."""
    numbers = board.memory.numbers
    numbers[SEED] = numbers[SEED] * 48271 % 2147483647
    drawn: int = numbers[SEED] % below
    return drawn


# -- holes -------------------------------------------------------------------------------------------------------------


@kernel
def hole_of(board: Board, pod: int, beside: int, other: int) -> int:
    """A node that has room for ``pod`` as things are, its home first, but neither of two; `NONE` where none has."""
    shapes, room, pods, groups, memory = board.shapes, board.room, board.pods, board.groups, board.memory
    home, shape = pods.home[pod], pods.shape[pod]
    if home != NONE:
        is_free = home != beside and home != other and fits_home(shapes, room, pods, pod, home)
        if is_free and may_stand(shapes, pods, groups, pod, home):
            return int(home)
        if not groups.may_move[pods.group[pod]]:
            return NONE
    known = memory.hole[shape]
    is_good = known != NONE and known != beside and known != other and known != home
    if is_good and may_stand(shapes, pods, groups, pod, known) and fits(shapes, room, shape, known):
        return int(known)
    if is_full(board, shape):
        return NONE
    return scan(board, pod, beside, other)


@kernel
def is_full(board: Board, shape: int) -> bool:
    """Whether it is known that no node has room for ``shape``: those on which something became free are looked at."""
    memory = board.memory
    at = memory.full[shape]
    if at == NONE:
        return False
    while at < memory.numbers[FREED]:
        node = memory.freed[at]
        if board.shapes.could[shape, node] and fits(board.shapes, board.room, shape, node):
            memory.full[shape] = NONE
            return False
        at += 1
    memory.full[shape] = at
    return True


@kernel
def scan(board: Board, pod: int, beside: int, other: int) -> int:
    """The best of the first `HOLES` nodes with room for ``pod`` from a random one on, but neither of two; `NONE`."""
    shapes, room, pods, memory = board.shapes, board.room, board.pods, board.memory
    shape, nodes = pods.shape[pod], len(pods.head)
    node = draw(board, nodes)
    best, least, found, any_room = NONE, IMPOSSIBLE, 0, False
    for _ in range(nodes):
        node = node + 1 if node + 1 < nodes else 0
        if not shapes.could[shape, node] or not fits(shapes, room, shape, node):
            continue
        any_room = True
        is_barred = node in (beside, other) or node == pods.home[pod]
        if is_barred or not may_stand(shapes, pods, board.groups, pod, node):
            continue
        left = imbalance(board, shape, node)
        if left < least:
            best, least = node, left
        found += 1
        if found == HOLES:
            break
    if not any_room:
        memory.full[shape] = memory.numbers[FREED]
    if best != NONE:
        memory.hole[shape] = best
    return best


@kernel
def imbalance(board: Board, shape: int, node: int) -> int:
    """How far free CPU and free devices of ``node`` are from the cluster's proportion with ``shape`` there.

    And what is left of the device that a share would take: one that is used already is better than a new one.
    """
    shapes, room = board.shapes, board.room
    parts = shapes.parts[shape, shapes.kind[node]]
    free, tightest = 0, IMPOSSIBLE
    for device in range(room.device_free.shape[1]):
        left = room.device_free[node, device]
        free += left
        if left >= parts and left < tightest:
            tightest = left
    count = shapes.devices[shape]
    cpu = 16 * (room.free[node, 0] - shapes.request[shape, 0])
    result: int = abs(cpu - board.rate * ((free - count * parts) // 10**9))
    if shapes.shared[shape]:
        result += 2 * board.rate * ((tightest - parts) // 10**9)
    return result


# -- ways to make room -------------------------------------------------------------------------------------------------


@kernel
def offer(
    way: IntArray, most: int, price: int, added: int, node: int, one: int, to: int, two: int, two_to: int
) -> None:
    """Remember a way to make room, if it is cheaper than ``way`` and adds no more than ``most`` moves."""
    if price < way[PRICE] and added <= most:
        way[PRICE], way[ADDED], way[NODE] = price, added, node
        way[ONE], way[ONE_TO], way[TWO], way[TWO_TO] = one, to, two, two_to


@kernel
def is_fixed(board: Board, pod: int, group: int) -> bool:
    """Whether ``pod`` cannot make room for ``group``."""
    own = board.pods.group[pod]
    if own == group:
        return True
    if board.pods.home[pod] == NONE or board.groups.may_move[own]:
        return False
    return not board.groups.may_leave[own]


@kernel
def leave_of(board: Board, pod: int, group: int, leaving: bool) -> int:
    """Price of letting ``pod`` leave for ``group``, which must not require what leaves; `IMPOSSIBLE`."""
    own = board.pods.group[pod]
    if not leaving or board.groups.requires[group] == own:
        return IMPOSSIBLE
    return leaving_price(board.groups, own)


@kernel
def examine(board: Board, pod: int, node: int, way: IntArray, most: int, depth: int, leaving: bool) -> None:
    """Ways to make room for ``pod`` on ``node``, which has none, by one or two pods that are there.

    ``depth``: nodes that are tried for a pod that would make room by ejecting another one in its turn; below 0: pairs
    are not looked at either.
    """
    shapes, room, pods = board.shapes, board.room, board.pods
    price, added = price_at(pods, pod, node), int(is_moved(pods, pod, node))
    group, row = pods.group[pod], len(pods.head)
    suppose(shapes, room, node, row)
    one = pods.head[node]
    while one != NONE:
        base, moved = price - price_at(pods, one, node), added - int(is_moved(pods, one, node))
        if base < way[PRICE] and not is_fixed(board, one, group):
            hold(shapes, room, pods, one, row, +1)
            if has_place(shapes, room, pods, pod, node, row):
                eject(board, pod, node, one, base, moved, way, most, depth, leaving)
            elif depth >= 0:
                eject_two(board, pod, node, one, base, moved, way, most, leaving)
            hold(shapes, room, pods, one, row, -1)
        one = pods.after[one]


@kernel
def eject(
    board: Board,
    pod: int,
    node: int,
    one: int,
    base: int,
    moved: int,
    way: IntArray,
    most: int,
    depth: int,
    leaving: bool,
) -> None:
    """``pod`` fits ``node`` without ``one``, which is off it: it leaves, goes into a hole, or ejects another one."""
    pods, row = board.pods, len(board.pods.head)
    price = leave_of(board, one, pods.group[pod], leaving)
    if price < IMPOSSIBLE:
        offer(way, most, base + price, moved, node, one, LEAVES, NONE, NONE)
    if base >= way[PRICE]:
        return
    to = hole_of(board, one, node, NONE)
    if to != NONE:
        there = base + price_at(pods, one, to)
        offer(way, most, there, moved + int(is_moved(pods, one, to)), node, one, to, NONE, NONE)
    if base >= way[PRICE] or depth <= 0:
        return
    choose_devices(board.shapes, board.room, pods, pod, node, row)
    hold(board.shapes, board.room, pods, pod, row, -1)
    for _ in range(depth):
        other = draw(board, len(pods.head))
        if other != node and other != pods.home[one] and may_stand(board.shapes, pods, board.groups, one, other):
            eject_next(board, pod, node, one, other, base, moved, way, most, leaving)
    hold(board.shapes, board.room, pods, pod, row, +1)


@kernel
def eject_next(
    board: Board,
    pod: int,
    node: int,
    one: int,
    other: int,
    base: int,
    moved: int,
    way: IntArray,
    most: int,
    leaving: bool,
) -> None:
    """``one`` goes to ``other`` where a pod makes room for it: by a swap with ``node``, a hole, or by leaving."""
    shapes, room, pods = board.shapes, board.room, board.pods
    base += price_at(pods, one, other)
    moved += int(is_moved(pods, one, other))
    row = len(pods.head) + 1
    suppose(shapes, room, other, row)
    two = pods.head[other]
    while two != NONE:
        rest, count = base - price_at(pods, two, other), moved - int(is_moved(pods, two, other))
        if rest < way[PRICE] and pods.shape[two] != pods.shape[one] and not is_fixed(board, two, pods.group[pod]):
            hold(shapes, room, pods, two, row, +1)
            if fits(shapes, room, pods.shape[one], row):
                settle(board, pod, node, one, other, two, rest, count, way, most, leaving)
            hold(shapes, room, pods, two, row, -1)
        two = pods.after[two]


@kernel
def settle(
    board: Board,
    pod: int,
    node: int,
    one: int,
    other: int,
    two: int,
    base: int,
    moved: int,
    way: IntArray,
    most: int,
    leaving: bool,
) -> None:
    """``two`` made room on ``other`` for ``one``, which made room on ``node``: where it goes."""
    shapes, room, pods, row = board.shapes, board.room, board.pods, len(board.pods.head)
    if may_stand(shapes, pods, board.groups, two, node) and has_place(shapes, room, pods, two, node, row):
        there = base + price_at(pods, two, node)
        offer(way, most, there, moved + int(is_moved(pods, two, node)), node, one, other, two, node)
    if base >= way[PRICE]:
        return
    price = leave_of(board, two, pods.group[pod], leaving)
    if price < IMPOSSIBLE:
        offer(way, most, base + price, moved, node, one, other, two, LEAVES)
    to = hole_of(board, two, other, node)
    if to != NONE:
        there = base + price_at(pods, two, to)
        offer(way, most, there, moved + int(is_moved(pods, two, to)), node, one, other, two, to)


@kernel
def eject_two(
    board: Board, pod: int, node: int, one: int, base: int, moved: int, way: IntArray, most: int, leaving: bool
) -> None:
    """``one`` is off ``node``, and it takes another one, after it in the node's list, that ``pod`` fits."""
    shapes, room, pods = board.shapes, board.room, board.pods
    two, row = pods.after[one], len(pods.head)
    while two != NONE:
        rest, count = base - price_at(pods, two, node), moved - int(is_moved(pods, two, node))
        if rest < way[PRICE] and not is_fixed(board, two, pods.group[pod]):
            hold(shapes, room, pods, two, row, +1)
            if has_place(shapes, room, pods, pod, node, row):
                part(board, pod, node, one, two, rest, count, way, most, leaving)
            hold(shapes, room, pods, two, row, -1)
        two = pods.after[two]


@kernel
def part(
    board: Board,
    pod: int,
    node: int,
    one: int,
    two: int,
    base: int,
    moved: int,
    way: IntArray,
    most: int,
    leaving: bool,
) -> None:
    """``pod`` fits ``node`` without ``one`` and ``two``: each leaves or goes into a hole, whichever is cheaper."""
    pods = board.pods
    group = pods.group[pod]
    price, price_two = leave_of(board, one, group, leaving), leave_of(board, two, group, leaving)
    if pods.group[one] == pods.group[two]:
        if price < IMPOSSIBLE:
            offer(way, most, base + price, moved, node, one, LEAVES, two, LEAVES)
        price = price_two = IMPOSSIBLE
    to, price, added = cheaper(board, one, node, price)
    if price == IMPOSSIBLE or base + price >= way[PRICE]:
        return
    to_two, price_two, added_two = cheaper(board, two, node, price_two)
    if price_two < IMPOSSIBLE:
        offer(way, most, base + price + price_two, moved + added + added_two, node, one, to, two, to_two)


@kernel
def cheaper(board: Board, pod: int, node: int, price: int) -> tuple[int, int, int]:
    """Where ``pod`` of ``node`` goes: into a hole or away for ``price``; what that costs, and the moves it adds."""
    to = hole_of(board, pod, node, NONE)
    if to == NONE or price_at(board.pods, pod, to) >= price:
        return LEAVES, price, 0
    return to, price_at(board.pods, pod, to), int(is_moved(board.pods, pod, to))


# -- a pod, a group ----------------------------------------------------------------------------------------------------


@kernel
def insert(board: Board, pod: int, limit: int, most: int, examined: int, depth: int, leaving: bool) -> bool:
    """Give ``pod`` a place for less than ``limit``, and at most ``most`` moves; False where none is found.

    ``examined``: how many nodes are examined; up to eight times as many, until one makes room.
    """
    pods, groups, shapes = board.pods, board.groups, board.shapes
    way = board.memory.way
    way[:] = NONE
    way[PRICE] = limit
    to = hole_of(board, pod, NONE, NONE)
    if to != NONE:
        offer(way, most, price_at(pods, pod, to), int(is_moved(pods, pod, to)), to, NONE, NONE, NONE, NONE)
    nodes = len(pods.head)
    node, seen = draw(board, nodes), 0
    for _ in range(nodes):
        if way[PRICE] <= 0 or (seen >= examined and way[NODE] != NONE) or seen >= 8 * examined:
            break
        node = node + 1 if node + 1 < nodes else 0
        if may_stand(shapes, pods, groups, pod, node):
            examine(board, pod, node, way, most, depth if seen < examined else -1, leaving)
            seen += 1
    return way[NODE] != NONE and carry_out(board, pod, way)


@kernel
def carry_out(board: Board, pod: int, way: IntArray) -> bool:
    """Put a way to make room into effect; False, with part of it done, where two of its pods wanted the same room."""
    pods, groups = board.pods, board.groups
    for at in (ONE, TWO):
        other = way[at]
        if other != NONE and pods.node[other] != NONE:
            if way[at + 1] == LEAVES:
                if not leave(board, pods.group[other]):
                    return False
            else:
                take(board, other)
    if not has_place(board.shapes, board.room, pods, pod, way[NODE], way[NODE]):
        return False
    place(board, pod, way[NODE])
    for at in (ONE, TWO):
        other, to = way[at], way[at + 1]
        if other == NONE or to == LEAVES:
            continue
        if not groups.is_in[pods.group[other]] or not has_place(board.shapes, board.room, pods, other, to, to):
            return False
        place(board, other, to)
    return True


@kernel
def insert_group(board: Board, group: int, limit: int, most: int, examined: int, depth: int, leaving: bool) -> bool:
    """Bring ``group`` in with all its pods for less than ``limit``, or change nothing."""
    groups, numbers = board.groups, board.memory.numbers
    mark = numbers[UNDONE]
    if not may_enter(groups, group):
        return False
    enter(board, group)  # At first, so that others of its queue may leave in its place.
    cost, moves = numbers[COST], numbers[MOVES]
    groups.domain_in[group] = NONE
    for pod in range(groups.first[group], groups.first[group + 1]):
        left, moves_left = limit - (numbers[COST] - cost), most - (numbers[MOVES] - moves)
        if not insert(board, pod, left, moves_left, examined, depth, leaving) or not groups.is_in[group]:
            undo(board, mark)
            return False
        if groups.level[group] != NONE:
            groups.domain_in[group] = groups.domain[groups.level[group], board.pods.node[pod]]
    return True


# -- what the caller asks ----------------------------------------------------------------------------------------------


@kernel
def may_add(board: Board, most: int) -> int:
    """How many moves may be added where there may be ``most`` in all."""
    if most == UNLIMITED:
        return IMPOSSIBLE
    left: int = most - board.memory.numbers[MOVES]
    return left


@kernel
def dear_group(board: Board) -> int:
    """The dearest of three groups that are out, drawn by chance; `NONE` where none is out that has a cost."""
    groups = board.groups
    count, best = len(groups.cost), NONE
    for _ in range(3):
        group = draw(board, count)
        for _ in range(count):
            if not groups.is_in[group] and groups.cost[group] > 0:
                break
            group = group + 1 if group + 1 < count else 0
        if groups.is_in[group] or groups.cost[group] == 0:
            return NONE
        if best == NONE or groups.cost[group] > groups.cost[best]:
            best = group
    return best


@kernel
def moved_pod(board: Board) -> int:
    """A pod, drawn by chance, that runs elsewhere; `NONE` where none does."""
    pods = board.pods
    count = len(pods.node)
    pod = draw(board, count)
    for _ in range(count):
        if pods.node[pod] != NONE and is_moved(pods, pod, pods.node[pod]) and pods.price[pod] > 0:
            return pod
        pod = pod + 1 if pod + 1 < count else 0
    return NONE


@kernel
def send_home(board: Board, pod: int, most: int, depth: int, leaving: bool, worse: int) -> bool:
    """Let ``pod``, which was moved, stay where it runs, if that costs less than its move and ``worse``."""
    mark, home = board.memory.numbers[UNDONE], board.pods.home[pod]
    if not may_stand(board.shapes, board.pods, board.groups, pod, home):
        return False
    take(board, pod)
    if fits_home(board.shapes, board.room, board.pods, pod, home):
        place(board, pod, home)
        return True
    way = board.memory.way
    way[:] = NONE
    way[PRICE] = board.pods.price[pod] + worse
    examine(board, pod, home, way, most + 1, depth, leaving)
    if way[NODE] != NONE and carry_out(board, pod, way):
        return True
    undo(board, mark)
    return False


def _smallest() -> ChainProblem:
    """One node and two groups of one pod, the first of which runs."""
    zero, none = np.zeros(1, dtype=np.int64), np.full(1, NONE, dtype=np.int64)
    two = np.zeros(2, dtype=np.int64)
    away = np.array([0, NONE], dtype=np.int64)
    return ChainProblem(
        room=np.ones((1, 1), dtype=np.int64),
        device_room=np.zeros((1, 1), dtype=np.int64),
        sharers=np.zeros((1, 1), dtype=np.int64),
        slots=NONE,
        kind=zero,
        domain=np.zeros((1, 1), dtype=np.int64),
        request=np.ones((1, 1), dtype=np.int64),
        devices=zero,
        parts=np.zeros((1, 1), dtype=np.int64),
        shared=np.zeros(1, dtype=np.bool_),
        allowed=np.ones((1, 1), dtype=np.bool_),
        mask=zero,
        shape=two,
        price=two + 1,
        home=away,
        home_devices=np.full((2, 1), NONE, dtype=np.int64),
        start=away,
        start_devices=np.full((2, 1), NONE, dtype=np.int64),
        first=np.arange(3, dtype=np.int64),
        cost=two + 1,
        may_leave=np.ones(2, dtype=np.bool_),
        may_move=np.ones(2, dtype=np.bool_),
        level=two - 1,
        within=two - 1,
        requires=two - 1,
        charge=np.ones((2, 3), dtype=np.int64),
        in_ledgers=np.full((2, 2), NONE, dtype=np.int64),
        out_ledger=two - 1,
        ledger_above=none,
        ledger_limit=np.ones((1, 3), dtype=np.int64),
        turn=np.ones(1, dtype=np.int64),
        moves_limit=UNLIMITED,
        moves_per_turn=UNLIMITED,
    )


def _warm_up() -> None:
    search = ChainSearch(_smallest(), 0)
    search.admit(1)
    search.lessen(1, heat=1)
    search.result()


@entry(_warm_up, allocates=False)
def _begin(board: Board, start: IntArray) -> None:
    begin(board, start)


@entry(_warm_up, allocates=False)
def _admit(
    board: Board,
    turn: IntArray,
    count: int,
    most: int,
    most_by_turn: int,
    examined: int,
    depth: int,
    leaving: bool,
) -> int:
    numbers, groups = board.memory.numbers, board.groups
    admitted = 0
    for _ in range(count):
        if numbers[TURN] >= len(turn):
            break
        group = turn[numbers[TURN]]
        numbers[TURN] += 1
        if groups.is_in[group]:
            continue
        left = may_add(board, most)
        if most_by_turn != UNLIMITED:
            left = min(left, most_by_turn)
        if insert_group(board, group, IMPOSSIBLE, left, examined, depth, leaving):
            groups.may_leave[group] = False
            admitted += 1
        numbers[UNDONE] = 0
    return admitted


@entry(_warm_up, allocates=False)
def _lessen(board: Board, count: int, most: int, examined: int, depth: int, heat: int) -> int:
    numbers, groups = board.memory.numbers, board.groups
    changed = 0
    for _ in range(count):
        left = may_add(board, most)
        worse = draw(board, 2 * heat + 1)
        pod = moved_pod(board) if draw(board, 2) == 0 else NONE
        if pod != NONE:
            done = send_home(board, pod, left, depth, True, worse)
        else:
            group = dear_group(board)
            if group == NONE:
                break
            done = insert_group(board, group, groups.cost[group] + worse, left, examined, depth, True)
        changed += done
        numbers[UNDONE] = 0
    return changed


class ChainSearch:
    """A search that its caller runs in slices, so that it can watch the clock.

    Parameters
    ----------
    problem
        What is asked; its arrays are not changed.
    seed
        Of the generator: the same seed and calls give the same result.
    """

    def __init__(self, problem: ChainProblem, seed: int) -> None:
        check_arrays(problem)
        self._problem = problem
        self._board = board_of(problem, seed)
        self._best: ChainResult | None = None
        _begin(self._board, problem.start)

    def admit(self, turns: int, *, examined: int = 64, depth: int = 4, leaving: bool = False) -> int:
        """Try the next ``turns`` groups that wait; how many came in. They stay in, and may still be placed elsewhere.

        Others make room by moving, going home or swapping, at any price, and may leave only where ``leaving``.

        Parameters
        ----------
        examined
            Nodes that are examined for each pod; up to eight times as many until one makes room.
        depth
            Nodes that are tried for each pod that could make room by ejecting another one in its turn.
        """
        problem, self._best = self._problem, None
        limits = problem.moves_limit, problem.moves_per_turn
        return _admit(self._board, problem.turn, turns, *limits, examined, depth, leaving)

    @property
    def had_all_turns(self) -> bool:
        """Whether all turns were taken since the last `again`."""
        return bool(self._board.memory.numbers[TURN] >= len(self._problem.turn))

    def again(self) -> None:
        """Begin the turns once more; groups that are in have none."""
        self._board.memory.numbers[TURN] = 0

    def lessen(self, tries: int, *, heat: int = 0, examined: int = 5, depth: int = 2) -> int:
        """Try so often to bring a group back, or a moved pod home, at less than that saves; how often it did.

        ``heat``: that it may cost more than it saves on average, drawn for each try up to twice as much.
        ``examined`` and ``depth`` as in `admit`. The urgent gangs of openb, at most 600 moves, 2 s of CPU: evicted work
        falls from 593,000 to 184,500 with 5 and 2, a try in 0.09 ms. After 1 s, with other values: 195,500 with 5 and
        2, 196,900 with 10 and 2, 200,900 with 10 and 1, 208,400 with 10 and 4 (2026-11-23, two seeds each). Half of
        the tries are for moved pods: with a quarter of them, fewer come home, and a try takes longer (2026-11-28).
        """
        if heat and self._best is None:
            self._best = self._now()
        done = _lessen(self._board, tries, self._problem.moves_limit, examined, depth, heat)
        if self._best is not None and self._board.memory.numbers[COST] < self._best.cost:
            self._best = self._now()
        return done

    def unsettled(self) -> int:
        """Groups that are out and have a cost, and pods that are moved: what `lessen` could bring back."""
        board = self._board
        out = int((~board.groups.is_in & (board.groups.cost > 0)).sum())
        return out + int(board.memory.numbers[MOVES])

    def result(self) -> ChainResult:
        """Where all pods are in the best so far; nothing that costs more is kept but by `lessen` with a heat."""
        now = self._now()
        return now if self._best is None or now.cost < self._best.cost else self._best

    def _now(self) -> ChainResult:
        pods, numbers = self._board.pods, self._board.memory.numbers
        beyond = self._problem.device_room.shape[1]
        devices = np.sort(np.where((pods.devices == NONE) | (pods.node == NONE)[:, None], beyond, pods.devices), axis=1)
        devices[devices == beyond] = NONE
        is_in = self._board.groups.is_in.copy()
        return ChainResult(pods.node.copy(), devices, is_in, int(numbers[COST]), int(numbers[MOVES]))
