"""The linear programme of what must leave: pods that need places, on kinds of nodes, and what may be evicted for them.

Source: docs/formulation.md#prices, with all variables and rows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

import numpy as np

from kai_solver.prices.kinds import Ints, Kinds, kinds_of
from kai_solver.prices.programme import Cost, Devices, Programme
from kai_solver.problem import Problem
from kai_solver.units import GPU, MILLI

Pods = tuple[tuple[int, int], ...]
"""Pods by shape: (shape, how many)."""
Block = tuple[int, int, int]
"""Pods of one shape that lie in one domain: shape, pods, number of the partition."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What leaves, or is left out, as a whole.

    Attributes
    ----------
    pods
        Those that need places while it stays.
    blocks
        Of these, pods of one shape that lie in one domain: (shape, pods, number of the partition).
    copies
        How many of it there are; any number of them may leave.
    """

    pods: Pods
    blocks: tuple[Block, ...] = ()
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Packing:
    """What is asked.

    Attributes
    ----------
    free, device_free
        (R, N) and (N, D) free parts with everything lifted that may leave, move or come.
    asked
        Pods by shape that need places in any case.
    units
        What needs places as well, unless it leaves.
    blocks
        What lies in one domain in any case: by (shape, pods, number of the partition), how many.
    partitions
        (N,) domain of each node, -1: outside.
    rows
        What else binds those that leave: (units, weights, most), ``sum of weights of those that leave <= most``.
    costs
        By stage, in order, what each unit costs that leaves.
    """

    problem: Problem
    free: Ints
    device_free: Ints
    asked: Mapping[int, int]
    units: Sequence[Unit]
    blocks: Mapping[Block, int] = field(default_factory=dict)
    partitions: Sequence[Ints] = ()
    rows: Sequence[tuple[Sequence[int], Sequence[int], int]] = ()
    costs: Sequence[tuple[str, Sequence[int]]] = ()


def programme_of(packing: Packing) -> Programme:
    """Write the programme down; the column of unit u that leaves is u."""
    total = Counter(packing.asked)
    for unit in packing.units:
        for shape, pods in unit.pods:
            total[shape] += pods * unit.copies
    kinds = kinds_of(packing.problem, packing.free, packing.device_free, list(total), packing.partitions)
    programme = Programme()
    programme.add_columns([unit.copies for unit in packing.units])
    wanted = np.array([total[shape] for shape in kinds.shapes], dtype=np.int64)
    most = _most_places(packing.problem, kinds, wanted)
    place = np.full(most.shape, -1, dtype=np.int64)
    place[most > 0] = programme.add_columns(most[most > 0].tolist())
    _add_demand(packing, kinds, programme, place, total)
    _add_resources(packing.problem, kinds, programme, place, most)
    _add_devices(packing.problem, kinds, programme, place, wanted)
    _add_blocks(packing, kinds, programme, place)
    for units, weights, bound in packing.rows:
        programme.add_row(units, weights, high=bound)
    numbers = np.arange(len(packing.units))
    for name, amounts in packing.costs:
        programme.costs.append(Cost(name, numbers, np.array(amounts, dtype=np.int64)))
    return programme


def _most_places(problem: Problem, kinds: Kinds, wanted: Ints) -> Ints:
    """(S, K) ends of the columns of places: what nodes take one by one, where the rows of their kind do not say it.

    An end that a row implies would share its price, and prices are to be those of rows.
    """
    specs = [problem.shapes.shapes[shape] for shape in kinds.shapes]
    most = np.minimum(kinds.most, wanted[:, None])
    for index, spec in enumerate(specs):
        implied = np.full(kinds.count, wanted[index])
        for resource, amount in enumerate(spec.request):
            if amount and resource != GPU:
                np.minimum(implied, kinds.free[resource] // amount, out=implied)
        if spec.gpu.is_whole:
            np.minimum(implied, kinds.whole[spec.gpu.devices], out=implied)
        elif spec.gpu.devices:
            milli = kinds.milli[index].tolist()
            shares = [
                sum(count * (level // max(1, milli[kind])) for level, count in levels) // spec.gpu.devices
                for kind, levels in enumerate(kinds.levels)
            ]
            np.minimum(implied, shares, out=implied)
        most[index] = np.where((most[index] > 0) & (most[index] >= implied), wanted[index], most[index])
    return most


def _add_demand(packing: Packing, kinds: Kinds, programme: Programme, place: Ints, total: Mapping[int, int]) -> None:
    """Every pod that does not leave has a place."""
    leaving: dict[int, tuple[list[int], list[int]]] = {shape: ([], []) for shape in kinds.shapes}
    for number, unit in enumerate(packing.units):
        for shape, pods in unit.pods:
            columns, counts = leaving[shape]
            columns.append(number)
            counts.append(pods)
    for index, shape in enumerate(kinds.shapes):
        columns, counts = leaving[shape]
        spots = place[index][place[index] >= 0].tolist()
        programme.add_row(spots + columns, [1] * len(spots) + counts, low=total[shape])


def _add_resources(problem: Problem, kinds: Kinds, programme: Programme, place: Ints, most: Ints) -> None:
    """What is free of each resource, and slots of several devices, kind by kind; not where they cannot bind."""
    specs = [problem.shapes.shapes[shape] for shape in kinds.shapes]
    request = np.array([spec.request for spec in specs], dtype=np.int64)
    for resource in range(len(kinds.free)):
        if resource != GPU and len(specs) and request[:, resource].any():
            weight = request[:, resource]
            _add_binding(programme, weight, kinds.free[resource], place, most)
    devices = np.array([spec.gpu.devices if spec.gpu.is_whole else 0 for spec in specs], dtype=np.int64)
    for size, slots in kinds.whole.items():
        if size > 1:
            _add_binding(programme, devices // size, slots, place, most)


def _add_binding(programme: Programme, weight: Ints, capacity: Ints, place: Ints, most: Ints) -> None:
    """Rows ``weight x place <= capacity`` of all kinds where that may bind."""
    uses = weight.astype(np.float64) @ most
    for kind in np.flatnonzero(uses > capacity).tolist():
        used = np.flatnonzero((weight > 0) & (place[:, kind] >= 0))
        programme.add_row(place[used, kind].tolist(), weight[used].tolist(), high=int(capacity[kind]))


def _add_devices(problem: Problem, kinds: Kinds, programme: Programme, place: Ints, wanted: Ints) -> None:
    """Devices by how much of them is free, and the shares that lie on them."""
    specs = [problem.shapes.shapes[shape].gpu for shape in kinds.shapes]
    devices = np.array([spec.devices for spec in specs], dtype=np.int64)
    is_whole = np.array([spec.is_whole for spec in specs], dtype=np.bool_)
    is_shared = (devices > 0) & ~is_whole
    step = gcd(MILLI, *np.unique(kinds.milli[is_shared]).tolist()) if is_shared.any() else MILLI
    for kind in range(kinds.count):
        there = place[:, kind] >= 0
        shared = np.flatnonzero(there & is_shared)
        shares = _add_shares(kinds, programme, place, shared, kind, devices)
        copies = {milli: int((devices * wanted)[shared[kinds.milli[shared, kind] == milli]].sum()) for milli in shares}
        millis = sorted(shares, reverse=True)
        whole = np.flatnonzero(there & is_whole)
        for level, count in kinds.levels[kind]:
            columns, takes = (place[whole, kind].tolist(), devices[whole].tolist()) if level == MILLI else ([], [])
            if columns or any(milli <= level for milli in shares):
                row = programme.add_row(columns, takes, high=count)
                if any(milli <= level for milli in shares):
                    fitting = [milli for milli in millis if milli <= level]
                    programme.devices.append(
                        Devices(
                            row,
                            level // step,
                            tuple(milli // step for milli in fitting),
                            tuple(min(level // milli, copies[milli]) for milli in fitting),
                            tuple(shares[milli] for milli in fitting),
                        )
                    )


def _add_shares(
    kinds: Kinds, programme: Programme, place: Ints, shared: Ints, kind: int, devices: Ints
) -> dict[int, int]:
    """Rows of the shares of one kind of node, by thousandths."""
    found: dict[int, int] = {}
    milli = kinds.milli[shared, kind]
    for size in np.unique(milli[milli > 0]).tolist():
        mine = shared[milli == size]
        found[size] = programme.add_row(place[mine, kind].tolist(), (-devices[mine]).tolist(), low=0)
    return found


def _add_blocks(packing: Packing, kinds: Kinds, programme: Programme, place: Ints) -> None:
    """Pods that lie in one domain together: each domain has places for those that choose it.

    Rows that allow no parts of blocks (`model.blocks`) raised no bound on 250 to 5,000 loaded nodes: on the latter they
    were 17,000 of 19,000 rows, and 0.5 of 0.7 s (2026-11-23).
    """
    total, leaving = Counter(packing.blocks), dict[Block, list[int]]()
    for number, unit in enumerate(packing.units):
        for block in unit.blocks:
            total[block] += unit.copies
            leaving.setdefault(block, []).append(number)
    into: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    index = {shape: number for number, shape in enumerate(kinds.shapes)}
    domains = [kinds.domain_of(partition) for partition in packing.partitions]
    for (shape, pods, partition), copies in total.items():
        domain_of = domains[partition]
        room = np.zeros(int(domain_of.max(initial=-1)) + 1, dtype=np.int64)
        np.add.at(room, domain_of[domain_of >= 0], kinds.most[index[shape], domain_of >= 0])
        holds = np.flatnonzero(room >= pods).tolist()
        lie = programme.add_columns([min(copies, int(room[domain]) // pods) for domain in holds])
        gone = leaving.get((shape, pods, partition), [])
        programme.add_row([*lie, *gone], [1] * (len(lie) + len(gone)), low=copies)
        for domain, column in zip(holds, lie, strict=True):
            into.setdefault((partition, shape, domain), []).append((pods, column))
    for (partition, shape, domain), blocks in into.items():
        spots = place[index[shape], domains[partition] == domain]
        spots = spots[spots >= 0]
        columns, sizes = [column for _, column in blocks], [-pods for pods, _ in blocks]
        programme.add_row([*spots.tolist(), *columns], [1] * len(spots) + sizes, low=0)
