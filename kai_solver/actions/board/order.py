"""Which gang is next: queues level by level, by the keys of `fairness.order`, and the gangs of a leaf in order."""

from kai_solver.actions.board.arrays import NONE, OUT, Arrays, FloatArray, Gangs, IntArray, Queues
from kai_solver.compiled import kernel
from kai_solver.fairness.kernels import add, is_guaranteed

WITHOUT_SHARE = (1000.0, 1000.0, 1.0)
"""By what a use counts without any share: as in `fairness.order`."""


@kernel
def used_part(queues: Queues, queue: int, at: int, amount: int) -> float:
    """The part of what the queue may have of a resource that this amount takes."""
    divisor = queues.divisor[queue, at]
    return float(amount / divisor if divisor != 0 else amount * WITHOUT_SHARE[at])


@kernel
def write_key(queues: Queues, queue: int, holds: IntArray, job: IntArray, key: FloatArray) -> None:
    """The key (6,) of a queue that ``holds`` amounts (3,) and asks for ``job`` (3,): smaller is served first."""
    exceeds_all, is_closed, most, most_before = True, False, 0.0, 0.0
    for at in range(3):
        exceeds_all = exceeds_all and queues.tree.share[queue][at] < holds[at]
        is_closed = is_closed or (queues.closed[queue, at] and holds[at] + job[at] > 0)
        most = max(most, used_part(queues, queue, at, holds[at] + job[at]))
        most_before = max(most_before, used_part(queues, queue, at, holds[at]))
    key[0] = exceeds_all
    key[1] = not is_guaranteed(queues.tree, queue, holds, job)
    key[2] = queues.priority[queue]
    key[3] = is_closed
    key[4] = most
    key[5] = most_before


@kernel
def goes_first(queues: Queues, one: int, one_key: FloatArray, other: int, other_key: FloatArray) -> bool:
    """Whether queue ``one`` is served before ``other``, a sibling."""
    for at in range(6):
        if one_key[at] != other_key[at]:
            return bool(one_key[at] < other_key[at])
    return bool(queues.tie[one] <= queues.tie[other])


@kernel
def look_again(queues: Queues, gangs: Gangs, queue: int) -> None:
    """Find the head of ``queue`` again, and its key: from its gangs, or from the queues below."""
    head = NONE
    first, last = queues.first_child[queue], queues.first_child[queue + 1]
    if first == last:
        at, end = queues.next_gang[queue], queues.first_gang[queue + 1]
        while at < end and gangs.standing[queues.gang[at]] == OUT:
            at += 1
        queues.next_gang[queue] = at
        if at < end:
            head = queues.gang[at]
    else:
        child = best_of(queues, first, last)
        if child != NONE:
            head = queues.head[child]
    queues.head[queue] = head
    if head != NONE:
        write_key(queues, queue, queues.held[queue], gangs.charge[head], queues.key[queue])


@kernel
def best_of(queues: Queues, first: int, last: int) -> int:
    """The queue that is served first of some siblings; `NONE` if none of them has a gang that waits."""
    best = NONE
    for at in range(first, last):
        queue = queues.child[at]
        if queues.head[queue] == NONE:
            continue
        if best == NONE or goes_first(queues, queue, queues.key[queue], best, queues.key[best]):
            best = queue
    return best


@kernel
def look_at_path(queues: Queues, gangs: Gangs, leaf: int) -> None:
    """`look_again` at a leaf queue and all above it."""
    queue = leaf
    while queue != NONE:
        look_again(queues, gangs, queue)
        queue = queues.tree.parent[queue]


@kernel
def look_at_all(arrays: Arrays) -> None:
    """`look_again` at all queues."""
    queues = arrays.queues
    for at in range(len(queues.deepest)):
        look_again(queues, arrays.gangs, queues.deepest[at])


@kernel
def next_gang(queues: Queues) -> int:
    """The gang whose turn is next; `NONE`."""
    roots = len(queues.tree.parent)
    best = best_of(queues, queues.first_child[roots], queues.first_child[roots + 1])
    head: int = queues.head[best] if best != NONE else NONE
    return head


@kernel
def pay(queues: Queues, leaf: int, charge: IntArray, sign: int, fixed: bool) -> None:
    """A leaf queue, and all above it, hold ``charge`` more (+1) or less (-1)."""
    add(queues.tree, queues.held, leaf, charge, sign)
    if fixed:
        add(queues.tree, queues.fixed, leaf, charge, sign)
