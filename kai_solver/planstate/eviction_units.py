"""Eviction units: what leaves together. Surplus pods one by one, then the core of a gang whole.

Source: docs/kai-behaviour.md#eviction-units.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import MovesSpec
from kai_solver.planstate.state import State
from kai_solver.planstate.subgroup_order import subgroup_rank
from kai_solver.problem import GangShape, Leaf, Problem, TreeNode
from kai_solver.problem.charges import Charge, sum_of
from kai_solver.problem.gang_columns import stretches
from kai_solver.problem.gang_facts import SCATTERED

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LEAST_S = 60.0
"""Of work an eviction loses at least: gangs that began a moment ago are worth the same. Before, of two elastic gangs
that began one after the other the younger was evicted whole, to save a second's work. Surplus of both could leave.

Whole minutes for all ages were tried, too: equal works made proofs harder. On loaded-500 the evicted work was no longer
proven within 10 s (2026-12-01)."""


@dataclass(slots=True, unsafe_hash=True)
class Unit:
    """Pods of one gang that may only leave together; never changed (not frozen, since that takes longer to make).

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


class UnitTable:
    """Units by index, U of them, and the pods of all one unit after the other.

    Attributes
    ----------
    units
        Each unit by itself.
    pods
        Of all units. ``starts``, ``sizes`` (U,): the position of each unit's first pod in it, and how many it has.
    gang, step, is_core, work
        (U,) as `Unit` has them.
    charge
        (U, 3) what its queue pays.
    """

    def __init__(self, problem: Problem, gang: IntArray, sizes: IntArray, pods: IntArray, is_core: BoolArray) -> None:
        """The units of each gang come one after the other, in the order in which they may leave."""
        self.gang, self.sizes, self.pods, self.is_core = gang, sizes, pods, is_core
        self.starts: IntArray = np.cumsum(sizes) - sizes
        every = np.arange(len(gang))
        is_first = np.diff(gang, prepend=-1) != 0
        self.step: IntArray = every - np.maximum.accumulate(np.where(is_first, every, 0))
        self.charge: IntArray = np.add.reduceat(problem.columns.charge[pods], self.starts, axis=0)
        self.work: FloatArray = works_lost(problem, gang, self.charge)
        ends = self.starts + sizes
        self.units = Units(pods, self.starts, ends, gang, self.step, is_core, self.work, self.charge)

    @property
    def first_pod(self) -> IntArray:
        """(U,) the first pod of each unit."""
        return self.pods[self.starts]

    @property
    def unit_of_row(self) -> IntArray:
        """The unit of each of ``pods``."""
        return np.repeat(np.arange(len(self.gang)), self.sizes)

    def any(self, of_pods: BoolArray) -> BoolArray:
        """(U,) True where ``of_pods`` (P,) is True for some pod of the unit."""
        found: BoolArray = np.logical_or.reduceat(of_pods[self.pods], self.starts)
        return found

    def all(self, of_pods: BoolArray) -> BoolArray:
        """(U,) True where ``of_pods`` (P,) is True for all pods of the unit."""
        found: BoolArray = np.logical_and.reduceat(of_pods[self.pods], self.starts)
        return found


class Units(Sequence[Unit]):
    """Units by index. Each is made when it is first asked for: of 9,000 a cycle asks for some hundreds."""

    def __init__(self, pods: IntArray, starts: IntArray, ends: IntArray, *columns: NDArray[Any]) -> None:
        """``pods``: of all, those of each unit from ``starts`` up to ``ends`` (U,); ``columns``: gang, step, whether it
        is the core, work and charge, (U,) or (U, 3).
        """
        self._pods = pods
        self._arrays = starts, ends, *columns
        self._made: list[Unit | None] = [None] * len(starts)

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> Unit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Unit]: ...
    def __getitem__(self, index: int | slice) -> Unit | Sequence[Unit]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self._made)))]
        found = self._made[index]
        return self._make(index) if found is None else found

    @cached_property
    def _columns(self) -> list[list[Any]]:
        return [array.tolist() for array in self._arrays]

    def _make(self, index: int) -> Unit:
        index %= len(self._made)
        start, end, gang, step, is_core, work, charge = (column[index] for column in self._columns)
        pods = tuple(self._pods[start:end].tolist())
        found = self._made[index] = Unit(index, gang, pods, step, is_core, work, tuple(charge))
        return found


def units_of(state: State, gangs: IntArray) -> UnitTable:
    """Units of ``gangs``, in ascending order, in their present state: of each in the order in which they may leave.

    Pods placed in this cycle are no part of them: where a core leaves, they lose their places with it. What an optional
    subgroup needs beside such pods is in the core, so that the subgroup does not lose its minimum while they come.
    """
    problem, columns = state.problem, state.problem.gang_columns
    is_plain = columns.is_flat & (columns.first_active != SCATTERED)
    is_plain[state.gangs.made()] = False
    active = np.where(is_plain, columns.active, 0)[gangs]
    core = np.minimum(active, columns.minimum[gangs])
    count, size = active - core + (core > 0), active.copy()
    steps = {at: _steps(state, problem.gangs[int(gangs[at])]) for at in np.flatnonzero(~is_plain[gangs]).tolist()}
    for at, own in steps.items():
        count[at], size[at] = len(own), sum(len(pods) for pods, _ in own)
    units, ends = int(count.sum()), np.cumsum(count)
    # Of a plain gang the last pods leave one by one, and the first ones last: together, as its core.
    is_core, sizes = np.zeros(units, dtype=np.bool_), np.ones(units, dtype=np.int64)
    is_core[ends[core > 0] - 1], sizes[ends[core > 0] - 1] = True, core[core > 0]
    step = np.arange(units) - np.repeat(ends - count, count)
    first_active = (columns.first + columns.first_active)[gangs]
    first = np.repeat(first_active + active - 1, count) - step
    first[ends[core > 0] - 1] = first_active[core > 0]
    for at, own in steps.items():
        mine = slice(int(ends[at] - count[at]), int(ends[at]))
        is_core[mine], sizes[mine] = [last for _, last in own], [len(pods) for pods, _ in own]
    pods, row_ends = stretches(first, sizes), np.cumsum(size)
    for at, own in steps.items():
        pods[row_ends[at] - size[at] : row_ends[at]] = [pod for pods_of_step, _ in own for pod in pods_of_step]
    return UnitTable(problem, np.repeat(gangs, count), sizes, pods, is_core)


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
        come = [[p for p in pods if p in places] for pods in state.gangs[gang.index].active]
        steps = list(_Surplus(gang, active, come).steps(gang.root))
        gone = {pod for step in steps for pod in step}
        core = tuple(pod for own in active for pod in own if pod not in gone)
    return [*((pods, False) for pods in steps), *([(core, True)] if core else ())]


class _Surplus:
    """What a gang with several podsets may lose, step by step, while each part of it keeps its minimum.

    Parameters
    ----------
    active, come
        By leaf, pods that run, and those placed in this cycle.
    """

    def __init__(self, gang: GangShape, active: Sequence[Sequence[int]], come: Sequence[Sequence[int]]) -> None:
        self._position = {id(leaf): i for i, leaf in enumerate(gang.leaves)}
        self._active = [list(pods) for pods in active]
        self._come = come

    def steps(self, node: TreeNode | Leaf) -> Iterator[tuple[int, ...]]:
        """Surplus pods of all podsets one by one, then optional subgroups whole.

        Each time it is the turn of the part that would be served last. If less than the minimum runs, nothing is
        surplus, and subgroups leave as a whole. An optional subgroup stays, too, if pods that come to it need it for
        their minimum.
        """
        if isinstance(node, Leaf):
            pods = self._active[self._position[id(node)]]
            while len(pods) > node.min_member:
                yield (pods.pop(),)
        elif self._has_minimum(node, self._active):
            yield from self._inner_steps(node)
            yield from self._optional(node)

    def _inner_steps(self, node: TreeNode) -> Iterator[tuple[int, ...]]:
        """Steps of the children by turns; after a step, only the rank of that child is another one."""
        by_name = {id(child): at for at, child in enumerate(sorted(node.children, key=lambda child: child.name))}
        inner = {id(child): self.steps(child) for child in node.children}
        turns = [(self._turn(child, by_name[id(child)]), at) for at, child in enumerate(node.children)]
        heapify(turns)
        while turns:
            _, at = turns[0]
            child = node.children[at]
            step = next(inner[id(child)], None)
            if step is None:
                heappop(turns)
                continue
            yield step
            heapreplace(turns, (self._turn(child, by_name[id(child)]), at))

    def _optional(self, node: TreeNode) -> Iterator[tuple[int, ...]]:
        """Children beyond those that are needed, whole: those without their minimum first."""
        running = [child for child in node.children if self._pods_below(child, self._active)]
        by_name = {id(child): at for at, child in enumerate(sorted(running, key=lambda child: child.name))}
        running.sort(key=lambda child: (self._has_minimum(child, self._active), self._turn(child, by_name[id(child)])))
        for child in running[: max(0, len(running) - node.needed)]:
            if not self._pods_below(child, self._come) or self._has_minimum(child, self._come):
                yield self._take(child)

    def _take(self, node: TreeNode | Leaf) -> tuple[int, ...]:
        pods = tuple(self._pods_below(node, self._active))
        for leaf in _leaves(node):
            self._active[self._position[id(leaf)]].clear()
        return pods

    def _turn(self, node: TreeNode | Leaf, by_name: int) -> tuple[float, ...]:
        """Less for a part that loses earlier: one that would be served later."""
        if isinstance(node, Leaf):
            held, minimum = len(self._active[self._position[id(node)]]), node.min_member
        else:
            held = sum(
                self._has_minimum(child, self._active) and bool(self._pods_below(child, self._active))
                for child in node.children
            )
            minimum = node.needed
        return (*(-part for part in subgroup_rank(held, minimum)), -by_name)

    def _has_minimum(self, node: TreeNode | Leaf, pods: Sequence[Sequence[int]]) -> bool:
        if isinstance(node, Leaf):
            return len(pods[self._position[id(node)]]) >= node.min_member
        return sum(self._has_minimum(child, pods) for child in node.children) >= node.needed

    def _pods_below(self, node: TreeNode | Leaf, pods: Sequence[Sequence[int]]) -> list[int]:
        return [pod for leaf in _leaves(node) for pod in pods[self._position[id(leaf)]]]


def _leaves(node: TreeNode | Leaf) -> Iterator[Leaf]:
    if isinstance(node, Leaf):
        yield node
        return
    for child in node.children:
        yield from _leaves(child)


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

    Counting GPUs alone would make CPU-only victims free. Gangs of unknown start count from their creation.
    """
    total = problem.total
    shares = [charges[:, r] / total[r] for r in range(3) if total[r] > 0]
    share = np.max(shares, axis=0) if shares else np.zeros(len(charges))
    scale = total[2] / 1000 if total[2] else total[0] / 1000
    lost: FloatArray = share * scale * np.maximum(LEAST_S, _age_s(problem, gangs))
    return lost


def _age_s(problem: Problem, gangs: IntArray) -> FloatArray:
    """(K,) seconds since each gang started."""
    age_s: FloatArray = problem.snapshot.now_s - problem.gang_columns.start_s[gangs]
    return age_s


def move_lost(problem: Problem, unit: Unit, moves: MovesSpec) -> float:
    """What ``unit`` loses if all of it moves, in GPU-seconds as `works_lost`: since its checkpoint, and its restart."""
    age_s = float(_age_s(problem, np.array([unit.gang]))[0])
    return unit.work / max(LEAST_S, age_s) * (min(max(1.0, age_s), moves.checkpoint_s) + moves.restart_s)
