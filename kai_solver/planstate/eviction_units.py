"""Eviction units: what leaves together. Surplus pods one by one, then the core of a gang whole.

Source: docs/kai-behaviour.md#eviction-units.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kai_solver.domain import MovesSpec
from kai_solver.planstate.allocation_units import is_flat
from kai_solver.planstate.state import State
from kai_solver.problem import GangShape, Leaf, Problem, TreeNode
from kai_solver.problem.charges import Charge, sum_of


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods of one gang that may only leave together.

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


def units_of(problem: Problem, state: State, gang: GangShape, first_index: int) -> list[Unit]:
    """Units of ``gang`` in its present state, in the order in which they may leave.

    Pods placed in this cycle are no part of them: where a core leaves, they lose their places with it.
    """
    active = [[p for p in pods if p not in state.places] for pods in state.gangs[gang.index].active]
    if len(active) == 1 and len(active[0]) == 1 and is_flat(gang) and gang.leaves[0].min_member > 0:
        alone = tuple(active[0])  # Most gangs; nothing of it is surplus.
        charge = problem.charges[alone[0]]
        return [Unit(first_index, gang.index, alone, 0, True, work_lost(problem, gang, alone), charge)]
    position = {id(leaf): i for i, leaf in enumerate(gang.leaves)}
    steps = list(_surplus_steps(gang.root, active, position))
    gone = {pod for step in steps for pod in step}
    core = tuple(pod for pods in active for pod in pods if pod not in gone)
    if core:
        steps.append(core)
    return [
        Unit(
            first_index + number,
            gang.index,
            pods,
            number,
            number == len(steps) - 1 and bool(core),
            work_lost(problem, gang, pods),
            charge_of(problem, pods),
        )
        for number, pods in enumerate(steps)
    ]


def _surplus_steps(
    node: TreeNode | Leaf, active: list[list[int]], position: dict[int, int]
) -> Iterator[tuple[int, ...]]:
    """Steps that keep the minimum: surplus pods last first, then optional subgroups whole.

    If less than the minimum runs, nothing is surplus, and subgroups leave as a whole. So the first subgroups that have
    their minimum are kept.
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
            yield from _surplus_steps(child, active, position)
    for child in reversed(optional):
        inner = list(_surplus_steps(child, active, position))
        yield from inner
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


def work_lost(problem: Problem, gang: GangShape, pods: tuple[int, ...]) -> float:
    """Dominant share of ``pods`` x seconds since the gang started, in GPU-seconds of this cluster.

    Counting GPUs alone would make CPU-only victims free. Gangs of unknown start count from their creation; at
    least one second, so that no unit is free.
    """
    age_s = _age_s(problem, gang)
    charge = charge_of(problem, pods)
    share = max((c / t for c, t in zip(charge, problem.total, strict=True) if t > 0), default=0.0)
    scale = problem.total[2] / 1000 if problem.total[2] else problem.total[0] / 1000
    return share * scale * age_s


def _age_s(problem: Problem, gang: GangShape) -> float:
    started = gang.gang.last_start_s if gang.gang.last_start_s is not None else gang.gang.created_s
    return max(1.0, problem.snapshot.now_s - started)


def move_lost(problem: Problem, unit: Unit, moves: MovesSpec) -> float:
    """What ``unit`` loses if all of it moves, in GPU-seconds as `work_lost`: since its checkpoint, and its restart."""
    age_s = _age_s(problem, problem.gangs[unit.gang])
    return unit.work / age_s * (min(age_s, moves.checkpoint_s) + moves.restart_s)
