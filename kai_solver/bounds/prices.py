"""Worth of pods that usually arrive, by the duals of a linear programme that packs them into what is free.

    maximise    sum of profit of pods packed
    subject to  packed of a kind <= how many are expected        (dual: what one more pod of the kind would bring)
                GPUs used in a group of nodes <= GPUs free there, by how much of them is free
                CPU used in a group of nodes <= CPU free there

A pattern is what one GPU takes; patterns are made as they pay (column generation, Gilmore and Gomory 1961). Nodes are
grouped by type, wholly free GPUs and CPU beside free GPUs. A kind's worth is its profit less its dual: what is expected
in plenty is worth its profit, what is expected seldom is worth less, because capacity would go to it anyway.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kai_solver.leftover import Demand, Floats, Ints, pack_device
from kai_solver.units import MILLI

if TYPE_CHECKING:
    from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

_CLASSES = (1, 2, 4, 8)
"""Nodes are distinguished by whether they have at least so many wholly free GPUs."""
_CPU_STEPS = (2_000, 4_000, 7_000, 10_000, 12_000, 16_000, 24_000)
"""And by free CPU per free GPU, thousandths."""
_FIRST_ROUNDS, _ROUNDS = 400, 12
_TOLERANCE_MILLI = 4.0
"""A pattern that would bring less is not added: duals to half a percent of a GPU are near enough."""
_KEPT_SOLVES = 6
"""Patterns that no programme used for so long are forgotten; they are found again when they pay."""

Pattern = tuple[int, ...]

SEVERAL_PROFIT = 1.15
"""What a pod of several GPUs brings, per GPU: they are served before as many pods of one.

Without it a linear programme that counts GPUs is indifferent: by 100% arrived on openb's default, seed 42, 5 or 6 pods
of 8 GPUs failed, with it 4 (2026-11-21).
"""
CPU_PROFIT = 0.1
"""Of a thousandth of a CPU of a pod without GPUs, in thousandths of a GPU: such pods are served, too."""


def profits(demand: Demand, cpu: Ints, cpu_profit: float = CPU_PROFIT) -> Floats:
    """What one pod of each kind brings, shape (C,), in thousandths of a GPU; ``cpu``: what it asks for, shape (C,)."""
    gpus = demand.total_milli * np.where(demand.gpus > 1, SEVERAL_PROFIT, 1.0)
    profit: Floats = np.where(demand.gpus == 0, cpu_profit * cpu, gpus)
    return profit


@dataclass(frozen=True, slots=True)
class Groups:
    """Nodes folded into groups.

    Attributes
    ----------
    kind, whole
        Type of the nodes, and how many wholly free GPUs each of them has at least, shape (G,).
    cpu
        Free CPU, shape (G,).
    devices
        GPUs by how many steps of them are free, shape (G, levels + 1).
    room
        Pods of several GPUs that fit one node at a time, summed over nodes, shape (C, G); 0 for other pods.
    """

    kind: Ints
    whole: Ints
    cpu: Ints
    devices: Ints
    room: Ints

    @classmethod
    def of(cls, demand: Demand, cpu: Ints, free: Ints, kind: Ints) -> "Groups":
        """Fold nodes: free CPU (N,), free thousandths of GPUs (N, D), type (N,)."""
        whole = np.count_nonzero(free == MILLI, axis=1)
        step = np.searchsorted(np.array(_CLASSES), whole, side="right")
        ratio = cpu * MILLI // np.maximum(free.sum(axis=1), 1)
        bucket = np.searchsorted(np.array(_CPU_STEPS), ratio, side="right")
        keys, where = np.unique(np.column_stack((kind, step, bucket)), axis=0, return_inverse=True)
        where = where.ravel()
        devices = np.zeros((len(keys), demand.levels + 1), dtype=np.int64)
        np.add.at(devices, (np.repeat(where, free.shape[1]), (free // demand.unit).ravel()), 1)
        devices[:, 0] = 0
        room = np.zeros((len(demand.gpus), len(keys)), dtype=np.int64)
        for several in np.flatnonzero(demand.gpus > 1):
            fits = np.minimum(whole // demand.gpus[several], cpu // np.maximum(demand.cpu[several, kind], 1))
            room[several] = np.bincount(where, fits, minlength=len(keys)) * demand.allowed[several, keys[:, 0]]
        pooled = np.bincount(where, cpu, minlength=len(keys)).astype(np.int64)
        return cls(keys[:, 0], np.array((0, *_CLASSES))[keys[:, 1]], pooled, devices, room)


@dataclass(slots=True)
class Pricing:
    """Computes prices for every state; patterns that paid before are kept.

    Parameters
    ----------
    demand
        Kinds of pods.
    profit
        What a packed pod brings, shape (C,).
    """

    demand: Demand
    profit: Floats
    packed: Floats = field(default_factory=lambda: np.zeros(0))
    """Pods of each kind that the last programme packed, shape (C,)."""
    _patterns: dict[tuple[int, int], dict[Pattern, int]] = field(default_factory=dict)
    _solves: int = 0

    def worth(self, groups: Groups, expected: Floats) -> Floats:
        """Worth of each kind, shape (C,), when ``expected`` pods of each, shape (C,), are to come."""
        programme = _Programme(self.demand, self.profit, groups, expected)
        if not self._patterns:
            self._begin(programme)
        for group, level in programme.gpu_rows:
            programme.add_patterns(group, level, self._patterns.get((int(groups.kind[group]), level), ()))
        programme.solve()
        for _ in range(_ROUNDS if self._solves else _FIRST_ROUNDS):
            if not self._add_columns(programme):
                break
            programme.solve()
        self._solves += 1
        self._keep(programme)
        self.packed = programme.packed()
        return programme.worth()

    def _begin(self, programme: "_Programme") -> None:
        """A pod alone on a whole GPU, for every kind: the programme begins with duals that mean something."""
        demand = self.demand
        for kind in sorted(set(programme.groups.kind.tolist())):
            alone = np.flatnonzero((demand.gpus == 1) & demand.allowed[:, kind]).tolist()
            self._patterns[kind, demand.levels] = {(pod,): 0 for pod in alone}

    def _add_columns(self, programme: "_Programme") -> bool:
        worth, price, groups = programme.worth(), programme.cpu_price(), programme.groups
        net = worth[None, :] - price[:, None] * self.demand.cpu[:, groups.kind].T
        net = np.where(self.demand.allowed[:, groups.kind].T, net, -1.0)
        table = pack_device(self.demand, net)
        prices = programme.gpu_prices()
        pays = [key for key in programme.gpu_rows if table.value[key] > prices[key] + _TOLERANCE_MILLI]
        for group, level in pays:
            pattern = table.pattern(group, level, self.demand)
            self._patterns.setdefault((int(groups.kind[group]), level), {})[pattern] = self._solves
            programme.add_patterns(group, level, [pattern])
        return bool(pays)

    def _keep(self, programme: "_Programme") -> None:
        for group, level, pattern in programme.used():
            self._patterns[int(programme.groups.kind[group]), level][pattern] = self._solves
        for key, known in self._patterns.items():
            fresh = {pattern: used for pattern, used in known.items() if used > self._solves - _KEPT_SOLVES}
            self._patterns[key] = fresh


class _Programme:
    """The linear programme over one state, in GLOP."""

    def __init__(self, demand: Demand, profit: Floats, groups: Groups, expected: Floats) -> None:
        self.groups = groups
        self.gpu_rows = [(int(group), int(level)) for group, level in zip(*np.nonzero(groups.devices), strict=True)]
        self._demand = demand
        self._profit = profit.tolist()
        self._need = demand.cpu[:, groups.kind].T.tolist()
        from ortools.linear_solver import pywraplp  # here: the engine's process has no need of it otherwise

        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        row = self._solver.Constraint
        self._kinds = [row(0.0, float(count)) for count in expected]
        self._cpu = [row(0.0, float(cpu)) for cpu in groups.cpu]
        self._gpu = {(group, level): row(0.0, float(groups.devices[group, level])) for group, level in self.gpu_rows}
        self._goal = self._solver.Objective()
        self._goal.SetMaximization()
        self._columns: dict[tuple[int, int, Pattern], pywraplp.Variable] = {}
        self._add_others()

    def solve(self) -> None:
        """Solve from the last basis: without presolve GLOP keeps it when columns are added."""
        self._solver.SetSolverSpecificParametersAsString("use_preprocessing:false")
        self._solver.Solve()

    def worth(self) -> Floats:
        duals = np.array([row.dual_value() for row in self._kinds])
        profit = np.array(self._profit)
        worths: Floats = np.clip(profit - duals, 0.0, profit)
        return worths

    def cpu_price(self) -> Floats:
        prices: Floats = np.maximum(np.array([row.dual_value() for row in self._cpu]), 0.0)
        return prices

    def gpu_prices(self) -> dict[tuple[int, int], float]:
        return {key: float(row.dual_value()) for key, row in self._gpu.items()}

    def used(self) -> list[tuple[int, int, Pattern]]:
        """Patterns in the solution; pods of other sizes are no patterns."""
        return [key for key, column in self._columns.items() if key[1] > 0 and column.solution_value() > _USED]

    def packed(self) -> Floats:
        packed = np.zeros(len(self._profit))
        for (_, _, kinds), column in self._columns.items():
            np.add.at(packed, list(kinds), column.solution_value())
        return packed

    def add_patterns(self, group: int, level: int, patterns: Iterable[Pattern]) -> None:
        for pattern in patterns:
            if (group, level, pattern) not in self._columns:
                self._gpu[group, level].SetCoefficient(self._add(group, level, pattern, self._solver.infinity()), 1.0)

    def _add(self, group: int, level: int, kinds: Pattern, most: float) -> "pywraplp.Variable":
        column = self._solver.NumVar(0.0, most, "")
        self._columns[group, level, kinds] = column
        self._goal.SetCoefficient(column, sum(self._profit[kind] for kind in kinds))
        for kind in set(kinds):
            self._kinds[kind].SetCoefficient(column, kinds.count(kind))
        self._cpu[group].SetCoefficient(column, sum(self._need[group][kind] for kind in kinds))
        return column

    def _add_others(self) -> None:
        """Pods of several GPUs, and of none, in every group that may host them."""
        demand, levels = self._demand, self._demand.levels
        for kind in np.flatnonzero(demand.gpus == 0).tolist():
            for group in np.flatnonzero(demand.allowed[kind, self.groups.kind]).tolist():
                self._add(group, 0, (kind,), self._solver.infinity())
        for kind in np.flatnonzero(demand.gpus > 1).tolist():
            for group in np.flatnonzero(self.groups.room[kind]).tolist():
                column = self._add(group, -1, (kind,), float(self.groups.room[kind, group]))
                self._gpu[group, levels].SetCoefficient(column, float(demand.gpus[kind]))


_USED = 1e-6
