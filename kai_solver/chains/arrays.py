"""What the search of ejection chains is asked, and what it answers, in flat arrays.

A *pod* here is one that may get a place, move or leave. All others are fixed: what they hold is not in the room. A
*group* is a set of pods that are in or out together: what a pending gang asks for (an allocation unit), or what leaves
together (an eviction unit). What cannot be said in these arrays (links between GPUs, optional rules, pod affinity) is
left out by the caller, by fixing the pods, and is judged by the caller when a result is put into effect.

All arrays are C-contiguous; integers are int64. Amounts of resources have the units of `Problem`, parts of devices
those of `units.shares`, and costs any one unit that the caller chooses.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.errors import InternalError

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NONE: Final = -1
"""No node, device, domain, group or ledger."""
UNLIMITED: Final = -1
"""A number of moves without limit."""
LARGEST_COST: Final = 2**61
"""Costs of all groups and prices of all pods together stay below it, so that no sum overflows."""


class ChainProblem(NamedTuple):
    """Nodes N with R resources and D devices at most; K kinds of devices; M masks; V levels of a topology; S shapes;
    P pods with W devices at most; G groups; L ledgers; T turns.

    Attributes
    ----------
    room, device_room
        (N, R) and (N, D) what nodes, and their devices in parts, have for the pods of this problem, with none of them
        in place: what is there once all that leaves has left, less what fixed pods hold. 0 beyond a node's devices.
        Negative where a node is over-committed: a pod that runs there may stay, and none may come.
    sharers
        (N, D) fixed pods that share each device.
    slots
        The resource of which the first pod that shares a device takes one more, for the reservation pod, and which
        the last gives back; `NONE` where reservation pods are not counted. The room has the reservation pods of
        devices with fixed sharers taken off.
    kind
        (N,) kind of the node's devices: how many parts a share takes there.
    domain
        (V, N) domain of each node by level of a topology, `NONE` where it is in none.
    request, devices, parts, shared
        (S, R) what a pod takes of its node; (S,) on how many devices; (S, K) parts of each of them, by kind of device;
        (S,) whether it shares devices.
    allowed, mask
        (M, N) nodes that a mask allows; (S,) the mask of each shape.
    shape, price
        (P,) shape of each pod; cost of its move. Pods of a group lie side by side, in task order.
    home, home_devices
        (P,) node where the pod runs, `NONE` for pending ones; (P, W) devices that it holds there, `NONE` beyond. A pod
        that stays keeps them.
    start, start_devices
        (P,), (P, W) where it is to begin with: `NONE` where it is out. All that are in fit together.
    first
        (G + 1,) first pod of each group, and P.
    cost
        (G,) what it costs that the group is out, lexicographic strata scaled into one integer (`scaled`). The sum of
        the costs of groups that are out, plus prices of moved pods, rises only for groups that are admitted.
    may_leave, may_move
        (G,) False where a group that is in may not be out afterwards; where its pods, if they run, may not go
        elsewhere. Pending ones may always be placed elsewhere as long as they are not bound.
    level, within
        (G,) level of the topology at which all pods of the group are in one domain, `NONE` if it asks for none; that
        domain, where pods outside of the group decide it, else `NONE`.
    requires
        (G,) group that must be in where this one is: the next of its gang to leave, so surplus leaves before its core
        and comes after it; `NONE`. No two groups require the same one.
    charge
        (G, 3) CPU, memory and thousandths of GPUs that its queue pays for it.
    in_ledgers, out_ledger
        (G, 2) ledgers that are charged while the group is in, with all above them (limit and quota of its queue); (G,)
        the ledger charged while it is out (what may be taken from its queue); `NONE` for none. The three have no ledger
        above them in common.
    ledger_above, ledger_limit
        (L,) the ledger charged with it (of the parent queue), `NONE` at the top; (L, 3) the most that it may hold of
        these groups. One that holds more to begin with may only get less.
    turn
        (T,) groups that wait to be admitted, in policy order. Others that are out at the start were evicted.
    moves_limit, moves_per_turn
        The most running pods that are elsewhere in the result, and the most that one turn may add to them;
        `UNLIMITED`.
    """

    room: IntArray
    device_room: IntArray
    sharers: IntArray
    slots: int
    kind: IntArray
    domain: IntArray
    request: IntArray
    devices: IntArray
    parts: IntArray
    shared: BoolArray
    allowed: BoolArray
    mask: IntArray
    shape: IntArray
    price: IntArray
    home: IntArray
    home_devices: IntArray
    start: IntArray
    start_devices: IntArray
    first: IntArray
    cost: IntArray
    may_leave: BoolArray
    may_move: BoolArray
    level: IntArray
    within: IntArray
    requires: IntArray
    charge: IntArray
    in_ledgers: IntArray
    out_ledger: IntArray
    ledger_above: IntArray
    ledger_limit: IntArray
    turn: IntArray
    moves_limit: int
    moves_per_turn: int


class ChainResult(NamedTuple):
    """Where pods are in the best that was found.

    Attributes
    ----------
    node, devices
        (P,) node of each pod, `NONE` where it is out; (P, W) its devices there, ascending, `NONE` beyond.
    is_in
        (G,) groups whose pods have places.
    cost
        Sum of the costs of groups that are out and of the prices of pods that run elsewhere.
    moves
        Running pods that are in and not where they run.
    """

    node: IntArray
    devices: IntArray
    is_in: BoolArray
    cost: int
    moves: int


def scaled(work: IntArray, stratum: IntArray) -> IntArray:
    """(G,) one integer cost by group from work (G,) >= 0 and stratum (G,) from 0, the lowest.

    No sum of work of lower strata reaches one unit of a higher stratum, as far as 61 bits hold that; where they do
    not, the lowest strata lose their last bits, and ties of theirs are told apart no more.
    """
    cost = np.zeros(len(work), dtype=np.int64)
    total = 0
    for height in sorted(set(stratum.tolist())):
        here = stratum == height
        while total and (total + 1) * int(work[here].sum()) + total >= LARGEST_COST // 2:
            cost >>= 1
            total = int(cost.sum())
        cost[here] = work[here] * (total + 1)
        total = int(cost.sum())
    return cost


def check_arrays(problem: ChainProblem) -> None:
    """Raise `InternalError` where shapes, types or indices of ``problem`` do not match."""
    nodes, resources = problem.room.shape
    kinds, groups, pods = problem.parts.shape[1], len(problem.cost), len(problem.shape)
    shapes, width = len(problem.devices), problem.home_devices.shape[1]
    masks, ledgers, levels = len(problem.allowed), len(problem.ledger_above), len(problem.domain)
    count = int(problem.device_room.shape[1])
    sizes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("device_room", "sharers"), (nodes, count)),
        **dict.fromkeys(("shape", "price", "home", "start"), (pods,)),
        **dict.fromkeys(("home_devices", "start_devices"), (pods, width)),
        **dict.fromkeys(("may_leave", "may_move", "level", "within", "requires", "out_ledger"), (groups,)),
        **dict.fromkeys(("shared", "mask"), (shapes,)),
        "kind": (nodes,),
        "domain": (levels, nodes),
        "request": (shapes, resources),
        "allowed": (masks, nodes),
        "first": (groups + 1,),
        "charge": (groups, 3),
        "in_ledgers": (groups, 2),
        "ledger_limit": (ledgers, 3),
    }
    below = {
        "kind": kinds,
        "mask": masks,
        "shape": shapes,
        "home": nodes,
        "start": nodes,
        "home_devices": count,
        "start_devices": count,
        "level": levels,
        "requires": groups,
        "in_ledgers": ledgers,
        "out_ledger": ledgers,
        "ledger_above": ledgers,
        "turn": groups,
    }
    for name, value in problem._asdict().items():
        if isinstance(value, int):
            continue
        if not value.flags.c_contiguous or value.dtype not in (np.int64, np.bool_):
            raise InternalError(
                f"{name} of a chain problem is not a contiguous array of 64-bit integers or truth values"
            )
        if value.shape != sizes.get(name, value.shape):
            raise InternalError(f"{name} of a chain problem has the shape {value.shape}, not {sizes[name]}")
        if name in below and value.size and not (value.min() >= NONE and value.max() < below[name]):
            raise InternalError(f"{name} of a chain problem names something that is not there")
    if problem.first[0] != 0 or problem.first[-1] != pods or (np.diff(problem.first) < 1).any():
        raise InternalError("groups of a chain problem do not divide its pods")
    required = problem.requires[problem.requires != NONE]
    if len(set(required.tolist())) != len(required):
        raise InternalError("two groups of a chain problem require the same one")
    if int(problem.cost.sum()) + int(problem.price.sum()) >= LARGEST_COST:
        raise InternalError("costs of a chain problem are too large to be added")
