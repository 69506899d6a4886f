"""Eviction units: what leaves together. Surplus pods one by one, then the core of a gang whole.

Source: docs/kai-behaviour.md#eviction-units.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import MovesSpec
from kai_solver.planstate.state import State
from kai_solver.problem import GangShape, Leaf, Problem, TreeNode
from kai_solver.problem.charges import Charge, sum_of

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(slots=True, unsafe_hash=True)
class Unit:
    """Pods of one gang that may only leave together; never changed (not frozen, since each cycle makes one for each).

    Attributes
    ----------
    step
        Position among the gang's units: a unit may leave only with all of smaller step (surplus before core).
    work
        What is lost: dominant share x time since start, in GPU-seconds (GPU-equivalents where CPU dominates).
    """

    index: int
    gang: int
    pods: tuple[int, ...]
    step: int
    is_core: bool
    work: float
    charge: Charge


@dataclass(frozen=True, slots=True, eq=False)
class UnitTable:
    """Units by index, U of them, and the pods of all one unit after the other.

    Attributes
    ----------
    gang, starts, sizes
        (U,) gang of each unit, the position of its first pod in ``pods``, and how many it has.
    charge
        (U, 3) what its queue pays.
    """

    units: list[Unit]
    pods: IntArray
    gang: IntArray
    starts: IntArray
    sizes: IntArray
    charge: IntArray

    @property
    def first_pod(self) -> IntArray:
        """(U,) the first pod of each unit."""
        return self.pods[self.starts]

    @property
    def unit_of_row(self) -> IntArray:
        """The unit of each of ``pods``."""
        return np.repeat(np.arange(len(self.units)), self.sizes)

    def any(self, of_pods: BoolArray) -> BoolArray:
        """(U,) True where ``of_pods`` (P,) is True for some pod of the unit."""
        found: BoolArray = np.logical_or.reduceat(of_pods[self.pods], self.starts)
        return found

    def all(self, of_pods: BoolArray) -> BoolArray:
        """(U,) True where ``of_pods`` (P,) is True for all pods of the unit."""
        found: BoolArray = np.logical_and.reduceat(of_pods[self.pods], self.starts)
        return found


def units_of(state: State, gangs: Iterable[GangShape]) -> UnitTable:
    """Units of ``gangs`` in their present state, gang by gang in the order in which they may leave.

    Pods placed in this cycle are no part of them: where a core leaves, they lose their places with it. What an optional
    subgroup needs beside such pods is in the core, so that the subgroup does not lose its minimum while they come.
    """
    problem = state.problem
    rows = [
        (gang.index, step, pods, is_core) for gang in gangs for step, (pods, is_core) in enumerate(_steps(state, gang))
    ]
    sizes = np.array([len(pods) for _, _, pods, _ in rows], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    every = np.fromiter(chain.from_iterable([pods for _, _, pods, _ in rows]), dtype=np.int64)
    owner = np.array([gang for gang, _, _, _ in rows], dtype=np.int64)
    charges = np.add.reduceat(problem.columns.charge[every], starts, axis=0)
    work = works_lost(problem, owner, charges).tolist()
    units = [
        Unit(index, gang, pods, step, is_core, work[index], tuple(charge))
        for index, ((gang, step, pods, is_core), charge) in enumerate(zip(rows, charges.tolist(), strict=True))
    ]
    return UnitTable(units, every, owner, starts, sizes, charges)


def _steps(state: State, gang: GangShape) -> list[tuple[tuple[int, ...], bool]]:
    """Pods that leave together, in the order in which they may; whether they are the core."""
    places = state.places
    active = [[p for p in pods if p not in places] if places else pods for pods in state.gangs[gang.index].active]
    steps: list[tuple[int, ...]]
    if gang.is_flat:  # Most gangs; no walk.
        pods = tuple(active[0])
        if len(pods) <= gang.leaves[0].min_member:
            return [(pods, True)] if pods else []
        core = pods[: gang.leaves[0].min_member]
        steps = [(pod,) for pod in reversed(pods[len(core) :])]
    else:
        position = {id(leaf): i for i, leaf in enumerate(gang.leaves)}
        come = [[p for p in pods if p in places] for pods in state.gangs[gang.index].active]
        steps = list(_surplus_steps(gang.root, active, come, position))
        gone = {pod for step in steps for pod in step}
        core = tuple(pod for own in active for pod in own if pod not in gone)
    return [*((pods, False) for pods in steps), *([(core, True)] if core else ())]


def _surplus_steps(
    node: TreeNode | Leaf, active: list[list[int]], come: list[list[int]], position: dict[int, int]
) -> Iterator[tuple[int, ...]]:
    """Steps that keep the minimum: surplus pods last first, then optional subgroups whole.

    If less than the minimum runs, nothing is surplus, and subgroups leave as a whole. So the first subgroups that have
    their minimum are kept. An optional subgroup stays, too, if pods that ``come`` to it need it for their minimum.
    """
    if isinstance(node, Leaf):
        pods = active[position[id(node)]]
        for pod in reversed(pods[node.min_member :]):
            yield (pod,)
        return
    if not _has_minimum(node, active, position):
        return
    running = [child for child in node.children if _pods_below(child, active, position)]
    running.sort(key=lambda child: not _has_minimum(child, active, position))
    optional = running[node.needed :]
    for child in node.children:
        if child not in optional:
            yield from _surplus_steps(child, active, come, position)
    for child in reversed(optional):
        inner = list(_surplus_steps(child, active, come, position))
        yield from inner
        if _pods_below(child, come, position) and not _has_minimum(child, come, position):
            continue
        taken = {pod for step in inner for pod in step}
        rest = tuple(pod for pod in _pods_below(child, active, position) if pod not in taken)
        if rest:
            yield rest


def _has_minimum(node: TreeNode | Leaf, active: list[list[int]], position: dict[int, int]) -> bool:
    if isinstance(node, Leaf):
        return len(active[position[id(node)]]) >= node.min_member
    return sum(_has_minimum(child, active, position) for child in node.children) >= node.needed


def _pods_below(node: TreeNode | Leaf, active: list[list[int]], position: dict[int, int]) -> list[int]:
    if isinstance(node, Leaf):
        return active[position[id(node)]]
    return [pod for child in node.children for pod in _pods_below(child, active, position)]


def charge_of(problem: Problem, pods: tuple[int, ...]) -> Charge:
    """Sum of what the queue pays for ``pods``."""
    if len(pods) == 1:
        return problem.charges[pods[0]]
    return sum_of(problem.charges[pod] for pod in pods)


def least_charge_of(problem: Problem, pods: tuple[int, ...]) -> Charge:
    """Sum of the least that ``pods`` may cost their queue (requests by GPU memory: on the largest devices)."""
    return sum_of(problem.least_charges[pod] for pod in pods)


def works_lost(problem: Problem, gangs: IntArray, charges: IntArray) -> FloatArray:
    """(K,) dominant share of what pays ``charges`` (K, 3) x seconds since its gang started, in GPU-seconds.

    Counting GPUs alone would make CPU-only victims free. Gangs of unknown start count from their creation; at
    least one second, so that no unit is free.
    """
    total = problem.total
    shares = [charges[:, r] / total[r] for r in range(3) if total[r] > 0]
    share = np.max(shares, axis=0) if shares else np.zeros(len(charges))
    scale = total[2] / 1000 if total[2] else total[0] / 1000
    found, own = np.unique(gangs, return_inverse=True)
    ages_s = np.array([_age_s(problem, problem.gangs[gang]) for gang in found.tolist()], dtype=np.float64)
    lost: FloatArray = share * scale * ages_s[own.reshape(-1)]
    return lost


def _age_s(problem: Problem, gang: GangShape) -> float:
    started = gang.gang.last_start_s if gang.gang.last_start_s is not None else gang.gang.created_s
    return max(1.0, problem.snapshot.now_s - started)


def move_lost(problem: Problem, unit: Unit, moves: MovesSpec) -> float:
    """What ``unit`` loses if all of it moves, in GPU-seconds as `works_lost`: since its checkpoint, and its restart."""
    age_s = _age_s(problem, problem.gangs[unit.gang])
    return unit.work / age_s * (min(age_s, moves.checkpoint_s) + moves.restart_s)
