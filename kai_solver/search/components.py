"""Parts of the stages' problem that share no node, no row of a queue, no gang and no rule: each is solved apart.

What is minimised is a sum over gangs and nodes, so the least of the whole is that of the parts, stage by stage, and
bounds of the parts add up. Nodes hang together where pods of one shape may go to both, whatever domain they are bound
to; gangs where they may go to, or run on, nodes that do, and where a limit, a quota or what reclaim may take from a
queue counts both.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from kai_solver.model.joint import Arrival, Cap, IntArray, Joint, Mover
from kai_solver.problem.capacity import fitting

MOST_PARTS = 8
"""The smallest beyond so many are solved together: every part costs some milliseconds, however small it is."""

Owner = Arrival | Mover


def components(joint: Joint) -> list[Joint]:
    """``joint`` in parts, the largest first; alone where all hangs together, or may."""
    owners: Sequence[Owner] = (*joint.arrivals, *joint.movers)
    shapes = joint.problem.shapes.shapes
    decided = [shapes[shape] for shape in {piece.shape for owner in owners for piece in owner.pieces}]
    is_tied = any(rule.ties for rule in joint.problem.rules)
    is_tied = is_tied or any(shape.affinity_labels or shape.gpu.memory_mib for shape in decided)
    if is_tied or joint.problem.outlook is not None:
        return [joint]
    sets = _linked(joint)
    groups: dict[Hashable, list[Owner]] = {}
    for owner in owners:
        groups.setdefault(sets.of(("gang", owner.gang)), []).append(owner)
    if len(groups) < 2:
        return [joint]
    roots = sorted(groups, key=lambda root: -len(groups[root]))
    bundles = [{root} for root in roots[: MOST_PARTS - 1]] + [set(roots[MOST_PARTS - 1 :])]
    return [_part(joint, sets, bundle) for bundle in bundles if bundle]


class _Sets:
    """Disjoint sets of whatever is named (union-find)."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}

    def of(self, key: Hashable) -> Hashable:
        """The name of the set that ``key`` is in."""
        above = self._above
        above.setdefault(key, key)
        while above[key] != key:
            above[key] = above[above[key]]
            key = above[key]
        return key

    def join(self, keys: Iterable[Hashable]) -> None:
        """Put ``keys`` into one set."""
        first: Hashable = None
        for key in keys:
            if first is not None:
                self._above[self.of(key)] = self.of(first)
            first = key


def _linked(joint: Joint) -> _Sets:
    """Gangs, nodes (by label), caps and surpluses, in sets of what hangs together."""
    owners: Sequence[Owner] = (*joint.arrivals, *joint.movers)
    label, landing = _pools(joint, {piece.shape for owner in owners if _comes(owner) for piece in owner.pieces})
    sets, by_queue = _Sets(), _by_queue(joint, owners)
    for owner in owners:
        nodes = [landing[piece.shape] for piece in owner.pieces] if _comes(owner) else []
        nodes += owner.origin if isinstance(owner, Mover) else ()
        sets.join([("gang", owner.gang), *(("node", int(label[node])) for node in nodes if node >= 0)])
    for cap in joint.caps:
        if _may_bind(joint, cap):
            sets.join([("cap", cap), *(("gang", gang) for gang in by_queue.get(cap.queue, ()))])
    for surplus in joint.surplus:
        mine = dict.fromkeys(gang for leaf in surplus.leaves for gang in by_queue.get(leaf, ()))
        sets.join([("surplus", surplus.queue), *(("gang", gang) for gang in mine)])
    for gang, family in _spaced(joint, owners):
        sets.join((("family", family), ("gang", gang)))
    for cap_of_rule, left in joint.releases:
        counted = [mover for mover in joint.movers if mover.used(cap_of_rule)]
        if sum(mover.used(cap_of_rule) for mover in counted) > left:
            sets.join(("gang", mover.gang) for mover in counted)
    return sets


def _spaced(joint: Joint, owners: Iterable[Owner]) -> Iterator[tuple[int, int]]:
    """Gangs whose pods must lie in a certain way, and the numbers of their workloads."""
    for gang in dict.fromkeys(owner.gang for owner in owners):
        if joint.problem.gangs[gang].is_spaced:
            yield gang, joint.problem.gangs[gang].family


def _comes(owner: Owner) -> bool:
    """True for owners that may get new places."""
    return isinstance(owner, Arrival) or owner.may_move


def _pools(joint: Joint, shapes: set[int]) -> tuple[IntArray, dict[int, int]]:
    """(N,) label of each node, one for all that pods of one shape may go to; by shape, one of its nodes (-1: none)."""
    label = np.arange(len(joint.problem.nodes), dtype=np.int64)
    landing: dict[int, int] = {}
    for shape in sorted(shapes):
        nodes = np.flatnonzero(fitting(joint.problem, joint.free, joint.device_free, shape) > 0)
        landing[shape] = int(nodes[0]) if len(nodes) else -1
        met = np.unique(label[nodes])
        if len(met) > 1:
            label[np.isin(label, met)] = met[0]
    return label, landing


def _by_queue(joint: Joint, owners: Iterable[Owner]) -> dict[int, dict[int, None]]:
    """Gangs by queue, those of all queues below it included."""
    found: dict[int, dict[int, None]] = {}
    for owner in owners:
        for queue in joint.problem.queues.path[owner.queue]:
            found.setdefault(queue, {})[owner.gang] = None
    return found


def _may_bind(joint: Joint, cap: Cap) -> bool:
    """False if all arrivals together stay within the cap with all running pods in place."""
    return sum(_charged(joint, cap)) > cap.room


def _charged(joint: Joint, cap: Cap) -> Iterator[int]:
    path = joint.problem.queues.path
    for arrival in joint.arrivals:
        is_meant = cap.family == "limit" or not arrival.preemptible
        if is_meant and cap.queue in path[arrival.queue]:
            yield arrival.charge[cap.resource]


def _part(joint: Joint, sets: _Sets, roots: set[Hashable]) -> Joint:
    """What of ``joint`` is in the sets called ``roots``. Caps that cannot bind belong to no part."""

    def is_mine(kind: str, key: Hashable) -> bool:
        return sets.of((kind, key)) in roots

    return replace(
        joint,
        arrivals=tuple(arrival for arrival in joint.arrivals if is_mine("gang", arrival.gang)),
        movers=tuple(mover for mover in joint.movers if is_mine("gang", mover.gang)),
        caps=tuple(cap for cap in joint.caps if is_mine("cap", cap)),
        surplus=tuple(surplus for surplus in joint.surplus if is_mine("surplus", surplus.queue)),
    )
