"""The arrays of a board: N nodes, S shapes, G gangs that wait, Q queues, U units of running pods, H rows.

Of the nodes, M have compartments, at most Z each: NUMA zones with which pods are aligned.

All integers are int64, amounts as in `Problem`. What the kernels change is the board's own; the rest may be shared. A
kernel makes no arrays: whatever it needs to remember is in `Scratch`.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.fairness.kernels import Tree

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

NONE: Final = -1
"""No node, domain, level, queue, gang or unit."""
BOUNDLESS: Final = 2**62
"""A limit that is unlimited."""
IMPOSSIBLE: Final = 1e300
"""Cost of room that cannot be made."""
BLOCK: Final = 64
"""Nodes of one block: of each the largest free amounts and the least cost are known, so most blocks are passed over."""
WIDTH: Final = 62
"""Units with GPUs on one node that are looked at: as many as an integer has bits for."""

# Actions.
ALLOCATE: Final = 0
CONSOLIDATE: Final = 1
RECLAIM: Final = 2
PREEMPT: Final = 3

# How a gang stands in the line of its queue.
OUT: Final = 0
PLAIN: Final = 1
OTHER: Final = 2
WISHING: Final = 3
"""It asks for room as plain gangs do, and prefers some nodes: arrays tell whether there is room, and not where."""

# Where a unit is.
HOME: Final = 0
LEFT: Final = 1
MOVED: Final = 2
KEPT: Final = 3
"""It may not leave, or the arrays do not say all about it."""

# What became of a turn.
PLACED: Final = 1
"""On free room, now where all of it is free now."""
MADE_ROOM: Final = 2
"""Others left or moved."""
FORBIDDEN: Final = 3
"""By a rule that needs no search: a limit, a quota, the queue's share, too few GPUs to move others."""
NO_ROOM: Final = 4
SAME: Final = 5
"""Refused as the last gang of its class was; nothing has changed since."""
FOUND: Final = 6
"""There is room for a gang that prefers some nodes; nothing was changed."""

# Why the loop over turns ended.
END: Final = 0
"""No gang waits."""
ASK: Final = 1
"""The next gang is not plain, and may find room."""
MAY_YIELD: Final = 2
"""The last gang found no room, but gangs that were placed in this cycle might give way to it."""
PAUSE: Final = 3
"""So many turns were taken as were allowed, or the record is full. Or the next gang shares devices, and others left, or
the last one did: which devices pods get is decided in the working state."""

# Places in `Record.numbers`.
TURNS: Final = 0
PODS: Final = 1
VICTIMS: Final = 2
MOVES: Final = 3
CHANGED: Final = 4
"""Nodes in `Scratch.changed`."""
ADMITTED: Final = 5
"""Gangs that got places since the board was made: refusals of equal gangs hold until the next."""
ASKED: Final = 6
"""The gang whose turn ended the loop."""
STAMP: Final = 7
CAUGHT_UP: Final = 8
"""As many changed nodes as the shape has seen which saw the most."""
WASTED: Final = 9
"""Close looks at nodes that were dearer than their lower bounds, since the costs of a turn began."""
NUMBERS: Final = 10

# What the estimated cost of a domain rests on.
ROUGH: Final = 0
"""The lower bound of its cheapest node, as if that hosted all pods."""
BOUNDED: Final = 1
"""The lower bounds of its nodes."""
EXACT: Final = 2


class Nodes(NamedTuple):
    """Attributes
    ----------
    later, now
        (N, R) free once all that leaves has left, and free now.
    whole_later, whole_now, gpu_free
        (N,) devices that are free whole, later and now; thousandths of devices that are free later.
    has_gpus, devices
        (N,) whether a node has GPUs, and how many.
    is_shared, parts, parts_now
        (N, 2 D) devices that pods share, and the parts of them that are free later, and now; 0 for others. After the D
        devices of a node come those that were opened since, whichever they are.
    most_parts
        (N,) the most of ``parts`` on a node.
    is_used
        (N,) whether some shape that asks for devices may be there: on cordoned nodes what is free is of no use.
    block_whole, block_parts, block_cpu
        (B,) the most of ``whole_later``, of ``parts`` and of free CPU in a block.
    gpu, cpu, slots
        Rows of these resources, and of pod slots. The GPU row is not counted: devices are.
    """

    later: IntArray
    now: IntArray
    whole_later: IntArray
    whole_now: IntArray
    gpu_free: IntArray
    is_shared: BoolArray
    parts: IntArray
    parts_now: IntArray
    most_parts: IntArray
    has_gpus: BoolArray
    devices: IntArray
    is_used: BoolArray
    block_whole: IntArray
    block_parts: IntArray
    block_cpu: IntArray
    gpu: int
    cpu: int
    slots: int


class Shapes(NamedTuple):
    """Attributes
    ----------
    request, devices, parts
        (S, R) what a pod asks for; (S,) of how many devices; of one that it shares so many parts, else 0.
    allowed
        (S, N) the nodes that may take it.
    handicap
        (S, N) added to what orders nodes, where rules rank them; else (S, 0).
    """

    request: IntArray
    devices: IntArray
    parts: IntArray
    allowed: BoolArray
    handicap: IntArray


class Zones(NamedTuple):
    """Compartments of nodes.

    Attributes
    ----------
    row
        (N,) which of the M nodes it is; `NONE` for nodes without compartments.
    aware
        (M, R) resources that are counted by compartment.
    later, now
        (M, Z, R) free once all that leaves has left, and free now.
    asked, width
        (S, R) what one pod asks for of them; (S, M) 0 where it is not aligned, 1 where it takes one compartment's room,
        more where it takes that of all of them together.
    held
        (H, Z, R) what a row of `Units` holds.
    placed, moved
        (P, Z, R) and (Y, Z, R) what the pods of `Record.node` and `Record.moved` took.
    """

    row: IntArray
    aware: BoolArray
    later: IntArray
    now: IntArray
    asked: IntArray
    width: IntArray
    held: IntArray
    placed: IntArray
    moved: IntArray


class Domains(NamedTuple):
    """V levels of topologies, with at most D domains each.

    ``of_node`` (V, N), `NONE` outside; ``outer`` (V,) the level above, `NONE` at the top, and ``parent`` (V, D) the
    domain there; ``free`` (V, D) thousandths of devices that are free later; ``first`` (V, D + 1) and ``nodes`` (V, N)
    the nodes of each domain; ``number`` (V,) domains of a level.
    """

    of_node: IntArray
    outer: IntArray
    parent: IntArray
    free: IntArray
    first: IntArray
    nodes: IntArray
    number: IntArray


class Gangs(NamedTuple):
    """Gangs that wait.

    Attributes
    ----------
    standing
        (G,) `OUT` of the line, `PLAIN`, `WISHING`, or `OTHER`.
    queue, pods, shape, level
        (G,) leaf queue; how many pods; their shape; the level of which one domain holds them, `NONE` without one.
    charge, milli
        (G, 3) what it costs its queue; (G,) thousandths of devices that it takes.
    preemptible, never_preempts, priority
        (G,) of the gang.
    kind
        (G,) one number for gangs that get the same answer, whichever comes first.
    place
        (G,) one number for gangs that fit the same places.
    """

    standing: IntArray
    queue: IntArray
    pods: IntArray
    shape: IntArray
    level: IntArray
    charge: IntArray
    milli: IntArray
    preemptible: BoolArray
    never_preempts: BoolArray
    priority: IntArray
    kind: IntArray
    place: IntArray


class Queues(NamedTuple):
    """Attributes
    ----------
    tree
        Queues above, fair shares, allocatable shares, and quotas.
    first_child, child
        (Q + 2,) and (Q,) children of each, those of ``Q`` are the roots.
    first_leaf, leaf
        (Q + 1,) and (L,) leaf queues below each.
    limit
        (Q, 3) `BOUNDLESS` where unlimited.
    divisor, closed, priority, tie
        (Q, 3) by what use is divided, 0 where a use counts a thousandfold; (Q, 3) what it has no share of; (Q,)
        priority, smaller first; (Q,) place among its siblings where all else is equal.
    held, fixed
        (Q, 3) what it holds, and of that what is not preemptible.
    first_gang, gang, next_gang
        (Q + 1,) and (G,) gangs in order, by leaf queue; (Q,) how far each queue is.
    head, key
        (Q,) the gang whose turn is next in it, `NONE` if none waits; (Q, 6) what orders it among its siblings.
    deepest
        (Q,) all queues, the deepest first.
    yields
        (Q,) the least priority of preemptible gangs that were placed on free room in this cycle; `BOUNDLESS` for none.
    """

    tree: Tree
    first_child: IntArray
    child: IntArray
    first_leaf: IntArray
    leaf: IntArray
    limit: IntArray
    divisor: FloatArray
    closed: BoolArray
    priority: IntArray
    tie: IntArray
    held: IntArray
    fixed: IntArray
    first_gang: IntArray
    gang: IntArray
    next_gang: IntArray
    head: IntArray
    key: FloatArray
    deepest: IntArray
    yields: IntArray


class Units(NamedTuple):
    """Units of running pods that could leave.

    Attributes
    ----------
    where
        (U,) `HOME`, `LEFT`, `MOVED` or `KEPT`.
    cost, queue, priority, charge
        (U,) cost of its eviction, leaf queue, priority; (U, 3) what its queue pays.
    movable, shape, pods, level
        (U,) whether it may go elsewhere as a whole, and what it asks for then.
    first_of, of_queue
        (Q + 1,) and (U,) units of each leaf queue.
    first_row, row
        (U + 1,) and (H,) rows of each unit.
    first_on, unit, node, whole, request
        (N + 1,) rows of each node; (H,) unit, node and devices of a row, and (H, R) what it holds, by node.
    first_moved, head, after, is_listed
        Rows behind those, one for each pod of a unit, say where it was moved to: (U + 1,) where they begin; (N,) and
        (H,) lists of them by node; (U,) whether those of a unit are in the lists. They count where the unit is `MOVED`,
        the others where it is at `HOME`.
    """

    where: IntArray
    cost: FloatArray
    queue: IntArray
    priority: IntArray
    charge: IntArray
    movable: BoolArray
    shape: IntArray
    pods: IntArray
    level: IntArray
    first_of: IntArray
    of_queue: IntArray
    first_row: IntArray
    row: IntArray
    first_on: IntArray
    unit: IntArray
    node: IntArray
    whole: IntArray
    request: IntArray
    first_moved: IntArray
    head: IntArray
    after: IntArray
    is_listed: BoolArray


class Record(NamedTuple):
    """What turns decided: ``turn`` (T, 6) the gang, what became of it, its pods, its victims (from, to).

    ``node``, ``is_now``, ``device`` (P,) by pod, the last of pods that share one; ``victim`` (X, 2) unit and where it
    is now; ``moved`` (Y,) nodes of the pods of moved units, one unit after the other. ``numbers``: those named above.
    """

    numbers: IntArray
    turn: IntArray
    node: IntArray
    is_now: BoolArray
    device: IntArray
    victim: IntArray
    moved: IntArray


class Scratch(NamedTuple):
    """What kernels remember between and within turns.

    Attributes
    ----------
    cost, block_cost
        (N,) cost of room for one more pod, for the turn; (B,) its least in a block.
    least, least_in, is_known, seen
        (S, N) a lower bound of it for any turn; (S, V, D) the least of a domain; (S,) whether they are known, and how
        many changed nodes they have caught up with.
    changed, noted
        (C,) nodes on which something changed; (N,) of each, where it stands there last.
    gain, hosts
        (N,) devices of units that may leave in this turn; (D,) by domain, pods that its devices host with them.
    domain_cost, exactness
        (D,) estimate by domain, and what it rests on: `ROUGH`, `BOUNDED` or `EXACT`.
    open_queue
        (Q,) a stamp: queues whose units may be taken in this turn.
    victim_queue
        (Q,) of an open leaf queue, the sibling of the taker's queue to which it belongs.
    surplus, ratio, spent, last
        (Q, 3) what may be taken of a sibling; the saturation that it must stay above, or `UNBOUND`; what was taken; the
        largest part of it.
    units, order, was_moved
        (X,) units that left in this turn; the same in some order; (U,) whether one had been moved before.
    here, rows
        (W,) rows of one node of units that may leave; (H,) of all nodes, where these are few.
    picks
        (W,) rows of a node that were chosen.
    sums, masks
        (W,) of the choice of units on a node.
    refused
        (K,) by kind, how many gangs had been admitted when the last one was refused.
    failed
        (F,) by place, whether no free room is left for it.
    keys
        (2, 6) of queues that are compared.
    left
        (Q, 3) what queues hold while victims are judged.
    """

    cost: FloatArray
    block_cost: FloatArray
    least: FloatArray
    least_in: FloatArray
    is_known: BoolArray
    seen: IntArray
    changed: IntArray
    noted: IntArray
    gain: IntArray
    hosts: IntArray
    domain_cost: FloatArray
    exactness: IntArray
    open_queue: IntArray
    victim_queue: IntArray
    surplus: IntArray
    ratio: FloatArray
    spent: IntArray
    last: IntArray
    units: IntArray
    order: IntArray
    was_moved: BoolArray
    here: IntArray
    rows: IntArray
    picks: IntArray
    sums: FloatArray
    masks: IntArray
    refused: IntArray
    failed: BoolArray
    keys: FloatArray
    left: IntArray


class Arrays(NamedTuple):
    """All of the above.

    ``may_move``: whether victims may go elsewhere. ``most_moved``: units that consolidation may move for one gang.
    """

    nodes: Nodes
    shapes: Shapes
    zones: Zones
    domains: Domains
    gangs: Gangs
    queues: Queues
    units: Units
    record: Record
    scratch: Scratch
    may_move: bool
    most_moved: int
