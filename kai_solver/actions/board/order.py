"""Which gang is next: queues level by level, by the keys of `fairness.order`, and the gangs of a leaf in order."""

from kai_solver.actions.board.arrays import NONE, OUT, Arrays, FloatArray, Gangs, IntArray, Queues
from kai_solver.compiled import kernel

WITHOUT_SHARE = (1000.0, 1000.0, 1.0)
"""By what a use counts without any share: as in `fairness.order`."""


@kernel
def dominant(queues: Queues, queue: int, cpu: int, memory: int, gpu: int) -> float:
    """The largest share of what the queue may have that these amounts take."""
    most = 0.0
    for at in range(3):
        amount = cpu if at == 0 else memory if at == 1 else gpu
        divisor = queues.divisor[queue, at]
        part = amount / divisor if divisor != 0 else amount * WITHOUT_SHARE[at]
        if part > most:
            most = part
    return most


@kernel
def write_key(queues: Queues, queue: int, cpu: int, memory: int, gpu: int, job: IntArray, key: FloatArray) -> None:
    """The key (6,) of a queue that holds these amounts and asks for ``job`` (3,): smaller is served first."""
    with_cpu, with_memory, with_gpu = cpu + job[0], memory + job[1], gpu + job[2]
    share, quota, closed = queues.share[queue], queues.quota[queue], queues.closed[queue]
    key[0] = share[0] < cpu and share[1] < memory and share[2] < gpu
    key[1] = with_cpu > quota[0] or with_memory > quota[1] or with_gpu > quota[2]
    key[2] = queues.priority[queue]
    key[3] = (closed[0] and with_cpu > 0) or (closed[1] and with_memory > 0) or (closed[2] and with_gpu > 0)
    key[4] = dominant(queues, queue, with_cpu, with_memory, with_gpu)
    key[5] = dominant(queues, queue, cpu, memory, gpu)


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
        held = queues.held[queue]
        write_key(queues, queue, held[0], held[1], held[2], gangs.charge[head], queues.key[queue])


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
        queue = queues.parent[queue]


@kernel
def look_at_all(arrays: Arrays) -> None:
    """`look_again` at all queues."""
    queues = arrays.queues
    for at in range(len(queues.deepest)):
        look_again(queues, arrays.gangs, queues.deepest[at])


@kernel
def next_gang(queues: Queues) -> int:
    """The gang whose turn is next; `NONE`."""
    roots = len(queues.parent)
    best = best_of(queues, queues.first_child[roots], queues.first_child[roots + 1])
    head: int = queues.head[best] if best != NONE else NONE
    return head


@kernel
def pay(queues: Queues, leaf: int, charge: IntArray, sign: int, fixed: bool) -> None:
    """A leaf queue, and all above it, hold ``charge`` more (+1) or less (-1)."""
    queue = leaf
    while queue != NONE:
        for at in range(3):
            queues.held[queue, at] += sign * charge[at]
            if fixed:
                queues.fixed[queue, at] += sign * charge[at]
        queue = queues.parent[queue]
