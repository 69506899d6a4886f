"""Makes the arrays of the units that may leave and move."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from kai_solver.actions.board.arrays import NONE, BoolArray, IntArray, Units
from kai_solver.actions.board.plainness import Plainness
from kai_solver.domain import TopologyConstraint
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import Problem


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """Of the U units, what kernels do not ask.

    Attributes
    ----------
    first_pod
        (U,) a pod of each.
    base
        (U,) whether arrays can say where it is, as long as it leaves its devices free whole.
    pinned
        (U,) whether it was pinned when arrays were told last where it is.
    first_sharing
        (U + 1,) its shared devices are the rows from this one up to that of the next unit.
    sharing_node, sharing_device, sharing_pods
        (S,) a device that pods of a unit share, and how many of them do.
    """

    first_pod: IntArray
    base: BoolArray
    pinned: BoolArray
    first_sharing: IntArray
    sharing_node: IntArray
    sharing_device: IntArray
    sharing_pods: IntArray


def no_facts() -> UnitFacts:
    """Of none."""
    none, flags = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
    return UnitFacts(none, flags, flags, np.zeros(1, dtype=np.int64), none, none, none)


def no_units(problem: Problem) -> Units:
    """Of none."""
    none, width = np.zeros(0, dtype=np.int64), problem.snapshot.schema.size
    flags, rows = np.zeros(0, dtype=np.bool_), np.zeros((0, width), dtype=np.int64)
    starts = np.zeros(len(problem.nodes) + 1, dtype=np.int64)
    wide, some = np.zeros((0, 3), dtype=np.int64), np.zeros(0)
    queues = np.zeros(problem.queues.size + 1, dtype=np.int64)
    first, heads = np.zeros(1, dtype=np.int64), np.full(len(problem.nodes), NONE, dtype=np.int64)
    return Units(
        where=none, cost=some, queue=none, priority=none, charge=wide, movable=flags, shape=none,
        pods=none, level=none, first_of=queues, of_queue=none, first_row=first, row=none, first_on=starts,
        unit=none, node=none, whole=none, request=rows, first_moved=first, head=heads, after=none, is_listed=flags,
    )  # fmt: skip


def unit_arrays(plainness: Plainness, pool: VictimPool) -> tuple[Units, UnitFacts]:
    """The units of ``pool`` where they run, and what else is to be known of them."""
    problem, rows = plainness.problem, pool.origins
    size, sizes, pods, starts = len(pool.units), pool.table.sizes, pool.table.pods, pool.table.starts
    shape = _shape_rows(plainness, pods)
    is_uniform = np.maximum.reduceat(shape, starts) == np.minimum.reduceat(shape, starts)
    shape = np.where(is_uniform, shape[starts], NONE)
    level, may_go = _levels_of(plainness, pool.gang_of)
    movable = pool.may_move & ~pool.is_elastic & may_go & (shape != NONE)
    movable &= ~np.logical_or.reduceat(_is_among(problem, pods, problem.related), starts)
    base = ~(pool.is_elastic | np.logical_or.reduceat(_is_among(problem, pods, problem.ruled), starts))
    if pool.releases.held is not None:
        base[:] = False
    shares = np.array([rows.shared_unit, rows.shared_node, rows.shared_device])
    shares, pods = np.unique(shares, axis=1, return_counts=True)
    facts = UnitFacts(
        first_pod=pool.table.first_pod,
        base=base,
        pinned=np.zeros(size, dtype=np.bool_),
        first_sharing=np.searchsorted(shares[0], np.arange(size + 1)),
        sharing_node=shares[1],
        sharing_device=shares[2],
        sharing_pods=pods,
    )
    whole = rows.whole.copy()
    key = rows.node * size + rows.unit  # Ascending.
    np.add.at(whole, np.searchsorted(key, shares[1] * size + shares[0]), 1)
    by_unit, by_queue = np.argsort(rows.unit, kind="stable"), np.argsort(pool.queue_of, kind="stable")
    own = len(rows.unit)
    more = np.repeat(np.arange(size, dtype=np.int64), sizes)
    width = problem.snapshot.schema.size
    nothing = np.zeros(len(more), dtype=np.int64)
    units = Units(
        where=np.zeros(size, dtype=np.int64),
        cost=np.array(pool.cost, dtype=np.float64),
        queue=pool.queue_of,
        priority=problem.gang_columns.priority[pool.gang_of],
        charge=np.ascontiguousarray(pool.charges),
        movable=movable,
        shape=shape,
        pods=sizes,
        level=level,
        first_of=np.searchsorted(pool.queue_of[by_queue], np.arange(problem.queues.size + 1)).astype(np.int64),
        of_queue=by_queue.astype(np.int64),
        first_row=np.searchsorted(rows.unit[by_unit], np.arange(size + 1)).astype(np.int64),
        row=by_unit.astype(np.int64),
        first_on=rows.starts(len(problem.nodes)).astype(np.int64),
        unit=np.concatenate([rows.unit, more]),
        node=np.concatenate([rows.node, nothing]),
        whole=np.concatenate([whole, nothing]).astype(np.int64),
        request=np.concatenate([rows.request.T, np.zeros((len(more), width), dtype=np.int64)]),
        first_moved=own + np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        head=np.full(len(problem.nodes), NONE, dtype=np.int64),
        after=np.full(own + len(more), NONE, dtype=np.int64),
        is_listed=np.zeros(size, dtype=np.bool_),
    )
    return units, facts


def _shape_rows(plainness: Plainness, pods: IntArray) -> IntArray:
    """(K,) of pods, the row of their shape; `NONE` where the arrays cannot say it, and of those that share."""
    columns = plainness.problem.columns
    shapes, at = np.unique(columns.shape[pods], return_inverse=True)
    rows = np.array([plainness.shape(shape) for shape in shapes.tolist()], dtype=np.int64)
    found: IntArray = np.where(columns.shares[pods], NONE, rows[at.reshape(-1)])
    return found


def _levels_of(plainness: Plainness, gangs: IntArray) -> tuple[IntArray, BoolArray]:
    """(K,) of the ``gangs`` of units, ascending: the row of the level of which one domain holds all pods; `NONE`
    where there is none, or arrays cannot say it; (K,) whether they can.
    """
    level, may_go = np.full(len(gangs), NONE, dtype=np.int64), np.ones(len(gangs), dtype=np.bool_)
    columns, shapes = plainness.problem.gang_columns, plainness.problem.gangs
    known: dict[tuple[TopologyConstraint | None, ...], int | None] = {}
    is_plain = columns.is_flat & ~columns.is_bound  # As most: nothing is asked of domains.
    for unit in np.flatnonzero(~is_plain[gangs]).tolist():
        gang = shapes.whatever_number(int(gangs[unit]))
        asked = gang.root.topology, gang.leaves[0].topology
        is_sayable = gang.is_flat and gang.family < 0 and not plainness.prefers_domains(gang)
        if is_sayable and asked not in known:
            known[asked] = plainness.level(gang)
        row = known[asked] if is_sayable else None
        level[unit], may_go[unit] = NONE if row is None else row, row is not None
    return level, may_go


def _is_among(problem: Problem, pods: IntArray, marked: Collection[int]) -> BoolArray:
    """(K,) which of ``pods`` are ``marked``."""
    found = np.zeros(len(problem.pods), dtype=np.bool_)
    found[list(marked)] = True
    return found[pods]
