"""Dual prices of a solved packing: what room on a node is worth, what a pod costs there, and what must be left out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kai_solver.prices.glop import best_patterns
from kai_solver.prices.kinds import Ints
from kai_solver.prices.packing import Model, Packing, Unit, model_of
from kai_solver.prices.programme import Floats, Solved
from kai_solver.units import GPU, MILLI
from kai_solver.units.shares import WHOLE, floor_milli

ENOUGH_S = 5.0
"""Seconds for the linear programme of a proof: a hundred times what it takes."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What a stage's cost grows by, per unit of what is asked for and had: GPU-seconds for ``evicted-work``.

    Attributes
    ----------
    stage
        Name of the stage.
    pods
        (S,) by shape of the problem: what one more pod of it that needs a place costs; 0 where none was asked for.
    of_node
        (N,) kind of each node.
    free
        (R, K) worth of a unit of each resource.
    whole
        (K, D + 1) worth of that many wholly free devices of one node.
    part
        (K, steps + 1) worth of a device that is free to so many steps, in part.
    step
        Thousandths of a device in a step.
    costs
        (S, K) worth of all that one pod of a shape takes on a node of the kind; infinite where it may not go.
    """

    stage: str
    pods: Floats
    of_node: Ints
    free: Floats
    whole: Floats
    part: Floats
    step: int
    costs: Floats

    def worth(self, free: Ints, device_free: Ints) -> Floats:
        """(N,) worth of what is free, given (R, N) and (N, D) parts: where it is large, the node is packed badly."""
        milli = floor_milli(np.clip(device_free, 0, WHOLE))
        whole = (milli == MILLI).sum(axis=1)
        kind = self.of_node
        total: Floats = (self.free[:, kind] * np.maximum(free, 0)).sum(axis=0) + self.whole[kind, whole]
        steps = np.where(milli < MILLI, milli // self.step, 0)
        for device in range(steps.shape[1]):
            total = total + self.part[kind, steps[:, device]]
        return total

    def wasted(self) -> Floats:
        """(S, K) by how much a pod of each shape costs more on each kind than it must: 0 where solutions place it."""
        wasted: Floats = np.maximum(self.costs - self.pods[:, None], 0.0)
        return wasted


def prices_of(model: Model, solved: Solved) -> Prices:
    """The prices in a solution of ``model``."""
    problem, kinds, rows = model.packing.problem, model.kinds, model.rows
    pods = np.zeros(len(problem.shapes.shapes))
    pods[list(kinds.shapes)] = [solved.duals[rows.demand[index]] for index in range(len(kinds.shapes))]
    free = np.zeros(kinds.free.shape)
    for (resource, kind), row in rows.free.items():
        free[resource, kind] = -solved.duals[row]
    whole, part = _devices(model, solved)
    costs = np.full((len(pods), kinds.count), np.inf)
    for index, shape in enumerate(kinds.shapes):
        costs[shape] = np.where(kinds.most[index] > 0, _costs(model, solved, index, free, whole), np.inf)
    return Prices(solved.name, pods, kinds.of_node, free, whole, part, model.step, costs)


def _devices(model: Model, solved: Solved) -> tuple[Floats, Floats]:
    """Worth of whole devices of one node, and of devices that are free in part."""
    problem, kinds, rows = model.packing.problem, model.kinds, model.rows
    count = np.arange(problem.device_free.shape[1] + 1)
    whole = np.zeros((kinds.count, len(count)))
    part = np.zeros((kinds.count, MILLI // model.step + 1))
    for kind in range(kinds.count):
        shares = {milli: solved.duals[row] for (where, milli), row in rows.shares.items() if where == kind}
        sizes = [(milli // model.step, MILLI // milli) for milli in shares]
        part[kind], _ = best_patterns(MILLI // model.step, sizes, [max(0.0, price) for price in shares.values()])
        row = rows.devices.get((kind, MILLI))
        whole[kind] = count * max(part[kind, -1], 0.0 if row is None else -solved.duals[row])
    for (size, kind), row in rows.slots.items():
        whole[kind] -= solved.duals[row] * (count // size)
    return whole, part


def _costs(model: Model, solved: Solved, index: int, free: Floats, whole: Floats) -> Floats:
    """(K,) worth of what one pod of the shape takes."""
    kinds, rows = model.kinds, model.rows
    shape = model.packing.problem.shapes.shapes[kinds.shapes[index]]
    asked = np.array([0 if resource == GPU else amount for resource, amount in enumerate(shape.request)])
    costs: Floats = asked @ free
    if shape.gpu.is_whole:
        return costs + whole[:, min(shape.gpu.devices, whole.shape[1] - 1)]
    for kind in range(kinds.count) if shape.gpu.devices else ():
        row = rows.shares.get((kind, int(kinds.milli[index, kind])))
        costs[kind] += 0.0 if row is None else shape.gpu.devices * solved.duals[row]
    return costs


def least_waiting(packing: Packing, wanted: Sequence[Unit], seconds: float = ENOUGH_S) -> int:
    """A number of ``wanted`` that no plan serves beside all that ``packing`` asks for, whatever of its units leaves.

    ``wanted`` says which gangs are meant, equal ones as copies. With one of them, 1 is a proof that it must wait.
    Nothing is proven, 0, where the solver needs more than ``seconds``.
    """
    none = [0] * len(packing.units)
    costs = (("waiting", [*none, *([1] * len(wanted))]),)
    model = model_of(replace(packing, units=(*packing.units, *wanted), costs=costs))
    found = model.programme.solve(seconds)
    return max(0, model.programme.bound(found[0], ())) if found else 0
