"""What a plan costs, stage by stage."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kai_solver.bounds.prices import SEVERAL_PROFIT
from kai_solver.domain import MovesSpec, Plan, Stage
from kai_solver.leftover import Outlook
from kai_solver.model.stages import LEFTOVER
from kai_solver.planstate.eligibility import least_milli
from kai_solver.planstate.eviction_units import move_lost
from kai_solver.planstate.losses import worth_lost
from kai_solver.planstate.opening import opened_nodes, wholly_free
from kai_solver.planstate.origins import is_at_origin
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.units import GPU, MILLI
from kai_solver.units.shares import PARTS_OF_MILLI


def admission_stage(plan: Plan) -> Stage:
    """Gangs left pending, and how many of them provably must be: each by itself, then of the others together."""
    bound = sum(p.proof.state == "proven" for p in plan.pending)
    together = next((p.proof.at_most for p in plan.pending if p.proof.at_most is not None), None)
    if together is not None:
        bound += together.gangs - together.most
    return Stage("pending-gangs", len(plan.pending), bound, bound == len(plan.pending))


def measured_stages(outcome: Outcome, *, by_gpus: bool = False, moves: MovesSpec | None = None) -> list[Stage]:
    """The outcome as it stands: evicted work by stratum, gangs broken, pods evicted and moved, then nodes or worth.

    ``by_gpus``: thousandths of GPUs evicted in place of the work. The stake of a stratum is all of it that may leave.
    ``moves``: what a move costs, where any pod moves: then the work that is lost by moves comes after their number.
    """
    pool, state = outcome.pool, outcome.state
    name = "evicted-gpus" if by_gpus else "evicted-work"
    work: dict[int, int] = {}
    stake = pool.stakes(by_gpus=by_gpus) if pool is not None else {}
    broken = evicted = moved = 0
    lost_by_moves = 0.0
    for unit in pool.disturbed_units() if pool is not None else ():
        gone = [pod for pod in unit.pods if pod in state.gone]
        lost = [pod for pod in gone if pod not in state.places]
        elsewhere = sum(not is_at_origin(state.problem, pod, state.places[pod]) for pod in gone if pod in state.places)
        if elsewhere and moves is not None:
            lost_by_moves += move_lost(state.problem, unit, moves) * elsewhere / len(unit.pods)
        moved += elsewhere
        stratum = state.problem.gangs[unit.gang].gang.priority
        cost = unit.charge[GPU] if by_gpus else unit.work
        if lost and unit.gang not in outcome.stale:
            work[stratum] = work.get(stratum, 0) + max(int(not by_gpus), round(cost * len(lost) / len(unit.pods)))
            evicted += len(lost)
            broken += unit.is_core and len(lost) == len(unit.pods)
    stages = [replace(_zero_bound(f"{name}/{p}", work[p]), stake=stake[p]) for p in sorted(work, reverse=True)]
    counts = [("gangs-broken", broken), ("evicted-pods", evicted), ("moved-pods", moved)]
    if moved and moves is not None:
        counts.append(("moved-work", round(lost_by_moves)))
    last = _worth_lost(state, outlook) if (outlook := state.problem.outlook) is not None else _opened(state)
    return [*stages, *(_zero_bound(name, value) for name, value in counts), last]


def with_moved_work(stages: Sequence[Stage], outcome: Outcome, moves: MovesSpec) -> list[Stage]:
    """``stages``, where the bound of ``moved-work`` is what as many pods lose as must move, the cheapest of all."""
    pool, found = outcome.pool, {stage.name: stage for stage in stages}
    if pool is None or "moved-work" not in found or not found["moved-pods"].bound:
        return list(stages)
    pods = pool.table.sizes
    price = np.array([move_lost(outcome.state.problem, unit, moves) for unit in pool.units]) / pods
    order = np.argsort(price)
    least = np.repeat(price[order], pods[order])[: int(found["moved-pods"].bound)].sum()
    value = found["moved-work"].value
    bound = min(value, round(least))
    proven = replace(found["moved-work"], bound=bound, optimal=bound >= value)
    return [proven if stage.name == proven.name else stage for stage in stages]


def _worth_lost(state: State, outlook: Outlook) -> Stage:
    """Worth taken from usual pods, in thousandths of a GPU.

    Bound: new pods take no less than nothing; pods that leave give back no more than the GPUs of the cluster.
    """
    value = worth_lost(state, outlook)
    bound = -int(SEVERAL_PROFIT * MILLI * int(state.problem.gpus.sum())) if state.gone else 0
    return Stage(LEFTOVER, value, min(bound, value), value <= bound)


def _opened(state: State) -> Stage:
    """Wholly free nodes that the plan opens.

    Bound: what the GPUs of the placed pods that are to be packed exceed the room on the other nodes by, in the largest
    free nodes.
    """
    problem = state.problem
    is_free, opened = wholly_free(problem), opened_nodes(state)
    packs, shape_of = [shape.nodes == "binpack" for shape in problem.shapes.shapes], problem.pod_shape
    shapes = [shape_of[pod] for pod in state.places]
    one_of = dict(zip(shapes, state.places, strict=True))
    demand = sum(n * least_milli(problem, one_of[shape]) for shape, n in Counter(shapes).items() if packs[shape])
    elsewhere = sum(len(p.devices) * p.parts for p in state.places.values() if not is_free[p.node])
    room = -(-(elsewhere + int(np.maximum(state.device_future[~is_free], 0).sum())) // PARTS_OF_MILLI)
    sizes = np.sort(problem.gpus[is_free])[::-1].cumsum() * MILLI
    bound = min(int(np.searchsorted(sizes, demand - room)) + 1, len(opened)) if demand > room else 0
    return Stage("nodes-opened", len(opened), bound, bound == len(opened))


def _zero_bound(name: str, value: int) -> Stage:
    return Stage(name, value, 0, value == 0)
