"""Least disruption by sums: where counting proves the greedy's plan the best of all stages, none need be searched.

With the admitted set fixed, new pods must fit what is free and what the evicted held; moved pods still take as much as
before (nothing is claimed if one of them asks for GPU memory: it takes less of a larger device). So of every
resource the evicted give at least what the newcomers lack, and the cheapest way to give that much, units being
divisible, is a bound of each stage.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.whole_nodes import fewest_leaving
from kai_solver.domain import Action, Stage
from kai_solver.model.stages import MOST_RANKED
from kai_solver.planstate.holdings import HoldRows
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import Problem
from kai_solver.search.looseness import loose_gangs
from kai_solver.search.rights import Rights
from kai_solver.units import GPU, MILLI, PODS
from kai_solver.units.shares import PARTS_OF_MILLI

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

WORK = "evicted-work/"
COUNTED = frozenset(("disruption", "preference", "links", "victim-order"))
"""Stages of a model that sums may prove, or that come later and take nothing from them: what is left over has its own
worth, and a package may count anything."""
ROUNDING = 1e-12
"""Part by which a sum may be wrong."""


def proven_by_count(
    outcome: Outcome, rights: Rights, names: Iterable[str], measured: Sequence[Stage]
) -> tuple[Stage, ...] | None:
    """The ``measured`` stages, each at its bound; None where sums do not prove them all.

    ``names``: the model's stages. Where few units may leave, the victim order decides, too, and sums do not show it.
    """
    if len(rights.movable) <= MOST_RANKED or not COUNTED.issuperset(names):
        return None
    if any(stage.value and not stage.optimal for stage in measured if stage.name == "nodes-opened"):
        return None
    bounds = bounds_by_count(outcome, rights, {stage.name: stage.value for stage in measured})
    if bounds is None or any(bounds.get(stage.name, stage.bound) < stage.value for stage in measured):
        return None
    return tuple(replace(stage, bound=stage.value, optimal=True) for stage in measured)


def bounds_by_count(outcome: Outcome, rights: Rights, values: Mapping[str, float]) -> dict[str, int] | None:
    """Bounds by sums, within ``rights``, of evicted work, gangs broken, evicted and moved pods.

    Each holds while the stages before it are at ``values``. None where sums say nothing: where gangs are stale or
    drained, claims are known in part, pods that ask for GPU memory move, or elastic gangs could give up other pods.
    """
    pool, problem = outcome.pool, outcome.state.problem
    claims = problem.snapshot.claims
    if pool is None or outcome.stale or problem.drained or (claims is not None and claims.is_rough):
        return None
    evictable = rights.by_action.get(Action.RECLAIM, frozenset()) | rights.by_action.get(Action.PREEMPT, frozenset())
    by_memory = set(outcome.state.by_memory)
    if any(not by_memory.isdisjoint(pool.units[unit].pods) for unit in rights.movable if by_memory):
        return None
    if loose_gangs(outcome.state, pool, evictable, anywhere=True):
        return None
    bounds = _Sums(outcome, pool, np.array(sorted(evictable), dtype=np.int64)).bounds(values)
    if "evicted-pods" in values:
        newcomers = (pod for pod in outcome.state.places if problem.pod_node[pod] < 0)
        bounds["moved-pods"] = max(0, fewest_leaving(problem, newcomers) - int(values["evicted-pods"]))
    return bounds


class _Sums:
    """``held`` (R, U) by unit that may be evicted, ``need`` (R,) what the newcomers lack: CPU, memory, GPUs, others."""

    def __init__(self, outcome: Outcome, pool: VictimPool, units: NDArray[np.int64]) -> None:
        problem = outcome.state.problem
        chosen = [pool.units[unit] for unit in units.tolist()]
        self.held = _held(pool.origins, len(pool.units))[:, units]
        self.need = np.maximum(_asked(problem, outcome) - _free(problem), 0.0)
        self.work = np.array([max(1, round(unit.work)) for unit in chosen], dtype=np.float64)
        self.pods = np.array([len(unit.pods) for unit in chosen], dtype=np.float64)
        self.is_core = np.array([unit.is_core for unit in chosen], dtype=np.bool_)
        self.stratum = np.array([problem.gangs[unit.gang].gang.priority for unit in chosen], dtype=np.int64)

    def bounds(self, values: Mapping[str, float]) -> dict[str, int]:
        """The least of every stage, as long as those before it are at ``values``."""
        found: dict[str, int] = {}
        given = np.zeros(len(self.need))
        for stratum in np.unique(self.stratum)[::-1].tolist():
            mine, name = self.stratum == stratum, f"{WORK}{stratum}"
            below = self.held[:, self.stratum < stratum].sum(axis=1)
            found[name] = self._least(self.work, mine, self.need - given - below)
            given += self._most(mine, values.get(name, 0))
        rest = self.held[:, ~self.is_core].sum(axis=1)
        found["gangs-broken"] = self._least(np.ones(len(self.work)), self.is_core, self.need - rest)
        found["evicted-pods"] = self._least(self.pods, np.ones(len(self.work), dtype=np.bool_), self.need)
        return found

    def _least(self, price: FloatArray, mine: BoolArray, need: FloatArray) -> int:
        """The least price of units of ``mine`` that hold ``need`` (R,)."""
        found = 0.0
        for held, amount in zip(self.held[:, mine], need.tolist(), strict=True):
            if amount > 0:
                found = max(found, _cheapest(price[mine], held, amount))
        return int(np.ceil(found * (1 - ROUNDING) - ROUNDING))

    def _most(self, mine: BoolArray, work: float) -> FloatArray:
        """(R,) the most that units of ``mine`` hold whose work is no more than ``work``."""
        return np.array([_cheapest(held, self.work[mine], work, dearest=True) for held in self.held[:, mine]])


def _cheapest(price: FloatArray, held: FloatArray, amount: float, *, dearest: bool = False) -> float:
    """The least price of ``amount``, units being divisible, or the largest; of all where there is less."""
    gives = held > 0
    price, held = price[gives], held[gives]
    order = np.argsort(-price / held if dearest else price / held, kind="stable")
    price, held = price[order], held[order]
    before = np.cumsum(held) - held
    return float((price * np.clip((amount - before) / held, 0.0, 1.0)).sum())


def _held(rows: HoldRows, units: int) -> FloatArray:
    """(R, U) what every unit holds; GPUs in thousandths."""
    held = np.array([np.bincount(rows.unit, weights=row, minlength=units) for row in rows.request])
    held[GPU] = np.bincount(rows.unit, weights=rows.whole * float(MILLI), minlength=units)
    held[GPU] += np.bincount(rows.shared_unit, weights=rows.shared_parts / PARTS_OF_MILLI, minlength=units)
    held[PODS] = 0.0
    return held


def _asked(problem: Problem, outcome: Outcome) -> FloatArray:
    """(R,) what newcomers take, wherever they are; of a share of unknown size, nothing."""
    total = np.zeros(len(problem.capacity))
    newcomers = [pod for pod in outcome.state.places if problem.pod_node[pod] < 0]
    for shape, count in problem.by_shape(newcomers).items():
        spec = problem.shapes.shapes[shape]
        total += count * np.array(spec.request, dtype=np.float64)
        total[GPU] += 0 if spec.gpu.memory_mib else count * spec.gpu.devices * spec.gpu.milli
    total[PODS] = 0.0
    return total


def _free(problem: Problem) -> FloatArray:
    """(R,) what is free once those that are leaving have left."""
    free: FloatArray = np.maximum(problem.capacity - problem.held + problem.releasing, 0).sum(axis=1).astype(np.float64)
    free[GPU] = np.maximum(problem.device_free + problem.device_releasing, 0).sum() / PARTS_OF_MILLI
    return free
