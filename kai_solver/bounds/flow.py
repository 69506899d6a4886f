"""Flow of pods to kinds of nodes as a linear program: what counts of single shapes and resources cannot see.

Pods of several shapes share nodes, CPU and memory together with GPUs. Identical nodes are one kind; ``x[s, g]`` pods of
shape ``s`` go to kind ``g``, at most as many as fit there alone, within the sum of every resource of the kind, the
devices that are wholly free, and the slots of every size. The most that can be placed is solved by GLOP in doubles; its
dual values then bound it once more in integers, so that a "no" is exact whatever the doubles were.

On 500 loaded nodes, 320 variables in 610 rows: 5 ms to set up, 15 ms to solve (CPU time, 2026-11-21). OR-tools' part
for linear programs takes 0.07 s to import, so it is imported when first asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.counting import GPU_NAME, Relaxed, Shortfall
from kai_solver.problem import Problem
from kai_solver.units import GPU
from kai_solver.units.shares import floor_milli

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MOST_VARIABLES = 2_000
SCALE = 1 << 64
"""Dual values are rounded to this part of one: prices of bytes are small."""


@dataclass(frozen=True, slots=True)
class _Program:
    """max sum(x) subject to rows x <= room, 0 <= x <= most; exact integers."""

    most: list[int]
    rows: list[dict[int, int]]
    room: list[int]


def flow_shortfall(
    problem: Problem,
    relaxed: Relaxed,
    needed: Mapping[int, int],
    beside: Mapping[int, int],
    inside: BoolArray | None,
    dropped: frozenset[str],
    where: int = -1,
) -> Shortfall | None:
    """Proof that ``needed`` on the nodes ``inside``, and ``beside`` anywhere, do not all fit; None without one."""
    demands = [(shape, count, inside) for shape, count in needed.items()]
    demands += [(shape, count, None) for shape, count in beside.items()]
    total = sum(count for _, count, _ in demands)
    if len(demands) < 2 or not total:
        return None
    program = _program(problem, relaxed, demands, dropped)
    if program is None or _is_easy(program, total):
        return None
    bound = _bound(program)
    return Shortfall("flow", total, bound, where=where) if bound < total else None


def _program(
    problem: Problem, relaxed: Relaxed, demands: list[tuple[int, int, BoolArray | None]], dropped: frozenset[str]
) -> _Program | None:
    fits = []
    for shape, count, inside in demands:
        fit = np.minimum(relaxed.fit(problem, shape, dropped), count)
        fits.append(fit if inside is None else np.where(inside, fit, 0))
    millis = [problem.shapes.parts(shape) for shape, _, _ in demands]
    kind, first = _kinds(relaxed, np.array([*fits, *millis]))
    if len(demands) * len(first) > MOST_VARIABLES:
        return None
    most = np.array([np.bincount(kind, weights=fit, minlength=len(first)) for fit in fits]).astype(np.int64)
    most = np.minimum(most, np.array([[count] for _, count, _ in demands]))
    shape_of, kind_of = (index.tolist() for index in np.nonzero(most))
    program = _Program(most[shape_of, kind_of].tolist(), [{} for _ in demands], [count for _, count, _ in demands])
    of_kind: list[list[tuple[int, int]]] = [[] for _ in first]
    for var, (s, g) in enumerate(zip(shape_of, kind_of, strict=True)):
        program.rows[s][var] = 1
        of_kind[g].append((s, var))
    for weights, capacity in _resources(problem, relaxed, [shape for shape, _, _ in demands], dropped):
        room = np.zeros(len(first), dtype=np.int64)
        np.add.at(room, kind, np.maximum(capacity, 0))
        takes = np.array([weight[first] for weight in weights]).tolist()
        for g, variables in enumerate(of_kind):
            row = {var: takes[s][g] for s, var in variables if takes[s][g]}
            if row:
                program.rows.append(row)
                program.room.append(int(room[g]))
    return program


def _kinds(relaxed: Relaxed, by_shape: IntArray) -> tuple[IntArray, IntArray]:
    """(N,) number of the node's kind, and each kind's first node: equal in what is free and ``by_shape`` (_, N)."""
    table = np.concatenate([relaxed.free, np.sort(relaxed.device_free, axis=1).T, by_shape]).T
    # Sorted by one number each: rows of 300 columns take 0.3 s to sort with 5,000 nodes, this 5 ms (2026-11-27).
    drawn = np.random.default_rng(0).integers(1, 1 << 62, size=table.shape[1])
    _, first, kind = np.unique(table @ drawn, return_index=True, return_inverse=True)
    if not (table == table[first][kind.reshape(-1)]).all():  # Two kinds with one number.
        _, first, kind = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return kind.reshape(-1), first


def _resources(
    problem: Problem, relaxed: Relaxed, shapes: list[int], dropped: frozenset[str]
) -> list[tuple[list[IntArray], IntArray]]:
    """For every resource that binds: what a pod of each shape takes on each node (S x (N,)), and what is there (N,)."""
    table = [problem.shapes.shapes[shape] for shape in shapes]
    ones = np.ones(len(problem.nodes), dtype=np.int64)
    found: list[tuple[list[IntArray], IntArray]] = []
    for resource, name in enumerate(problem.snapshot.schema.names):
        if resource != GPU and name not in dropped and any(shape.request[resource] for shape in table):
            found.append(([ones * shape.request[resource] for shape in table], relaxed.free[resource]))
    if GPU_NAME in dropped or not any(shape.gpu.devices for shape in table):
        return found
    millis = [floor_milli(problem.shapes.parts(s)) * spec.gpu.devices for s, spec in zip(shapes, table, strict=True)]
    found.append((millis, floor_milli(relaxed.device_free).sum(axis=1)))
    sizes = [spec.gpu.devices if spec.gpu.is_whole else 0 for spec in table]
    slots = ((size, [ones * (own // size) for own in sizes]) for size in sorted({size for size in sizes if size}))
    return [*found, *((takes, relaxed.whole // size) for size, takes in slots)]


def _is_easy(program: _Program, total: int) -> bool:
    """Whether filling one kind after the other places all pods: then no bound is below their number.

    Most programmes of small clusters end here, and need no solver: of a solve of 96 GPUs two of three (2026-11-27).
    """
    rows_of: list[list[tuple[int, int]]] = [[] for _ in program.most]
    for number, row in enumerate(program.rows):
        for var, weight in row.items():
            if weight > 0:
                rows_of[var].append((number, weight))
    room, placed = list(program.room), 0
    for most, rows in zip(program.most, rows_of, strict=True):
        pods = min((room[number] // weight for number, weight in rows), default=most)
        pods = min(pods, most)
        for number, weight in rows:
            room[number] -= pods * weight
        placed += pods
    return placed == total


def _bound(program: _Program) -> int:
    """An upper bound on the pods that can be placed, exact for the dual values that GLOP ends with."""
    from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

    solver = pywraplp.Solver.CreateSolver("GLOP")
    variables = [solver.NumVar(0.0, float(most), "") for most in program.most]
    constraints = []
    for row, room in zip(program.rows, program.room, strict=True):
        scale = float(max(row.values(), default=1))
        constraint = solver.Constraint(-solver.infinity(), room / scale)
        for var, weight in row.items():
            constraint.SetCoefficient(variables[var], weight / scale)
        constraints.append((constraint, scale))
    objective = solver.Objective()
    for variable in variables:
        objective.SetCoefficient(variable, 1.0)
    objective.SetMaximization()
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return sum(program.most)
    return _by_duals(program, [max(0.0, row.dual_value()) / scale for row, scale in constraints])


def _by_duals(program: _Program, duals: list[float]) -> int:
    """Weak duality in integers: ``sum(y room) + sum(most max(0, 1 - y A))`` for any ``y >= 0``."""
    y = [round(dual * SCALE) for dual in duals]
    reduced = [SCALE] * len(program.most)
    for row, price in zip(program.rows, y, strict=True):
        for var, weight in row.items() if price else ():
            reduced[var] -= price * weight
    total = sum(price * room for price, room in zip(y, program.room, strict=True))
    total += sum(most * max(0, left) for most, left in zip(program.most, reduced, strict=True))
    return total // SCALE
