"""What is shared out, as tables for kernels: arrays, or lists where nothing is compiled."""

from collections.abc import Iterable, MutableSequence, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver import compiled
from kai_solver.actions.reclaim_replay import ReclaimReplay
from kai_solver.actions.sharing.victims import Victims
from kai_solver.domain import Action
from kai_solver.fairness.kernels import NONE, Holdings, Row, Table, Tree
from kai_solver.fairness.queue_tables import Make
from kai_solver.planstate.outcome import Admission

WAITS: Final = -1
"""A victim that no admission takes yet."""
OUT: Final = -2
"""A victim that is left out of a sweep."""
MOST, WITH_LAST, REST, OURS, INVOLVED, BEFORE, NOTHING, ROWS = range(8)
"""Rows of `Scratch.row`."""
UNSEEN, OPEN, REFUSED = range(3)
"""What was found of a levelled queue."""
SHORT, SATURATED, TOUCHED, NUMBERS = range(4)
"""Numbers that sweeps write: how many queues are short or saturated, and of how many levels something was taken."""


class Turns(NamedTuple):
    """Attributes
    ----------
    leaf
        (T,) leaf queue of each admission.
    charge, asked
        (T, 3) what its queue gets, and what it asks for.
    is_fixed, reclaims
        (T,) whether it is not preemptible, and whether it reclaims.
    """

    leaf: Row
    charge: Table
    asked: Table
    is_fixed: Sequence[bool]
    reclaims: Sequence[bool]


class Groups(NamedTuple):
    """Victims of one leaf queue that the same admissions may take, and the victims, from the smallest last part on.

    Attributes
    ----------
    leaf, able, may
        (G,) the leaf queue, and which row of ``may`` (A, T) says which admissions may take them.
    first, victim
        (G + 1,) and (V,) the victims of each.
    of, queue, charge
        (V,) group and leaf queue of a victim; (V, 3) what its queue loses by it.
    first_part, part
        (V + 1,) and (P, 3) what rule 3 tests of it, in that order.
    """

    leaf: Row
    able: Row
    may: Sequence[Sequence[bool]] | NDArray[np.bool_]
    first: Row
    victim: Row
    of: Row
    queue: Row
    charge: Table
    first_part: Row
    part: Table


class Scratch(NamedTuple):
    """What sweeps write, and what they write on.

    Attributes
    ----------
    numbers
        (`NUMBERS`,).
    taker
        (V,) admission that takes a victim, `WAITS` or `OUT`.
    resource, missing, short
        (Q,) of queues that are short, of what, how much, and which these are in order.
    saturated
        (Q,) levelled queues of reclaimers that were too saturated, in order.
    held, fixed, left
        (Q, 3) what queues hold, of that what is not preemptible, and what a reclaim leaves them.
    head, next
        (T,) and (V,) victims by admission, linked.
    size, able, mine, theirs
        (G,) victims that wait, groups of one turn, and levelled queues: backwards theirs, forwards those of which
        something was taken.
    is_in
        (G,) whether they are still among these.
    total, parts, most, last
        (G, 3) what queues lose by all of a group, what rule 3 tests, the most of each resource of a last part, and the
        largest last part.
    has_last
        (G,) whether any of a group is tested.
    answer, top
        (Q,) of levelled queues in one turn: what was found of them (`UNSEEN`, `OPEN` or `REFUSED`), and the group with
        the largest last part, or `NONE`.
    below, leaving, largest
        (Q, 3) what leaves of all that is below a levelled queue of the reclaimer; of levelled queues, what leaves them,
        and the most of each resource that one last part of it has.
    row
        (`ROWS`, 3) amounts: of each resource, the most of all last parts, the first of `go_back` and not written on by
        others; what a levelled queue holds with one last part, and without it; what the reclaimer's holds; resources
        that are involved, and which were before; nothing.
    """

    numbers: MutableSequence[int]
    taker: MutableSequence[int]
    resource: MutableSequence[int]
    missing: MutableSequence[int]
    short: MutableSequence[int]
    saturated: MutableSequence[int]
    held: Holdings
    fixed: Holdings
    left: Holdings
    head: MutableSequence[int]
    next: MutableSequence[int]
    size: MutableSequence[int]
    able: MutableSequence[int]
    mine: MutableSequence[int]
    theirs: MutableSequence[int]
    is_in: MutableSequence[bool]
    total: Holdings
    parts: Holdings
    most: Holdings
    last: Holdings
    has_last: MutableSequence[bool]
    answer: MutableSequence[int]
    top: MutableSequence[int]
    below: Holdings
    leaving: Holdings
    largest: Holdings
    row: Holdings


def _array(values: Any) -> Any:
    found = np.array(values)
    return found if found.dtype == np.bool_ else found.astype(np.int64)


def maker() -> Make:
    """What tables are made by for the kernels as they are now: uncompiled ones read lists several times as fast."""
    return _array if compiled.is_loaded() else list


def as_list(values: Any) -> list[int]:
    """The numbers of a column."""
    found: list[int] = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return found


def write(table: Any, values: Table) -> None:
    """Write ``values`` over those of ``table``."""
    if isinstance(table, np.ndarray):
        table[:] = values
        return
    for row, amounts in zip(table, values, strict=True):
        row[:] = amounts


def turns_of(replay: ReclaimReplay, admissions: Sequence[Admission], make: Make) -> Turns:
    """The admissions, at least one."""
    gangs = [replay.problem.gangs[admission.allocation_unit.gang] for admission in admissions]
    return Turns(
        make([gang.queue for gang in gangs]),
        make([replay.charge_of(admission) for admission in admissions]),
        make([replay.asked_by(admission) for admission in admissions]),
        make([not gang.gang.preemptible for gang in gangs]),
        make([admission.action is Action.RECLAIM for admission in admissions]),
    )


def groups_of(
    victims: Sequence[Victims], kinds: Iterable[tuple[int, frozenset[int]]], turns: int, make: Make
) -> Groups:
    """The victims, at least one, in the order of `in_order`, for so many ``turns``; ``kinds``: the groups in order."""
    known = {kind: number for number, kind in enumerate(kinds)}
    of = [known[one.queue, one.group.able] for one in victims]
    members: list[list[int]] = [[] for _ in known]
    for victim, group in enumerate(of):
        members[group].append(victim)
    rows = {able: row for row, able in enumerate(dict.fromkeys(able for _, able in known))}
    may = np.zeros((len(rows), turns), dtype=np.bool_)
    for able, row in rows.items():
        may[row, list(able)] = True
    parts = [part for one in victims for part in one.parts]
    return Groups(
        make([queue for queue, _ in known]),
        make([rows[able] for _, able in known]),
        may.tolist() if make is list else may,
        make(_ends(map(len, members))),
        make([victim for own in members for victim in own]),
        make(of),
        make([one.queue for one in victims]),
        make([one.charge for one in victims]),
        make(_ends(len(one.parts) for one in victims)),
        make(parts or [(0, 0, 0)]),
    )


def _ends(sizes: Iterable[int]) -> list[int]:
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    return ends


def scratch_for(queues: int, turns: int, victims: int, groups: int, make: Make) -> Scratch:
    """Room to write on."""

    def ints(size: int) -> Any:
        return make([NONE] * size)

    def flags(size: int) -> Any:
        return make([False] * size)

    def table(size: int) -> Any:
        return make([[0, 0, 0] for _ in range(size)])

    return Scratch(
        ints(NUMBERS), ints(victims), ints(queues), ints(queues), ints(queues), ints(queues),
        table(queues), table(queues), table(queues), ints(turns), ints(victims),
        ints(groups), ints(groups), ints(groups), ints(groups), flags(groups),
        table(groups), table(groups), table(groups), table(groups), flags(groups),
        ints(queues), ints(queues), table(queues), table(queues), table(queues), table(ROWS),
    )  # fmt: skip


def smallest() -> tuple[Tree, Turns, Groups, Scratch]:
    """One queue, one admission, and one victim that it may not take: what kernels are compiled for."""
    none, one, amounts, no = _array([NONE]), _array([0]), _array([(0, 0, 0)]), _array([False])
    ends, parts = _array([0, 1]), _array([0, 0])
    tree = Tree(none, one, amounts, amounts, amounts, 1.0)
    turns = Turns(one, amounts, amounts, no, no)
    groups = Groups(one, one, _array([[False]]), ends, one, one, one, amounts, parts, amounts)
    return tree, turns, groups, scratch_for(1, 1, 1, 1, _array)
