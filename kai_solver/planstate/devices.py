"""Which devices of its node a pod gets while places are taken: those that pack, or have the best links."""

from typing import TYPE_CHECKING

import numpy as np

from kai_solver.errors import InternalError
from kai_solver.problem import Problem
from kai_solver.units import PODS
from kai_solver.units.shares import WHOLE

if TYPE_CHECKING:
    from kai_solver.planstate.state import State


def choose_devices(
    state: "State", node: int, shape: int, parts: int, wanted: tuple[int, ...], *, now: bool
) -> tuple[int, ...]:
    """The devices for a pod: what is ``wanted`` where it is free, else the best.

    Whole ones: those with the best links, where these make a difference. Shares: the fullest that fits first when
    packing (a shared one before a new one); no more devices are newly shared than there are pod slots for their
    reservation pods.
    """
    spec = state.problem.shapes.shapes[shape]
    count = spec.gpu.devices
    future = state.device_future[node].tolist()
    free = future if not now else np.minimum(state.device_idle[node], state.device_future[node]).tolist()
    fitting = [d for d in range(state.problem.nodes[node].gpus) if free[d] >= parts]
    is_wanted = len(wanted) == count and set(wanted) <= set(fitting)
    if spec.gpu.is_whole:
        return wanted if is_wanted else _whole(state, node, shape, fitting, count)
    if parts < WHOLE:
        spread = spec.devices == "spread"
        fitting.sort(key=lambda d: -future[d] if spread else future[d])
    kept, slots = state.reserved(node, now=now)
    slots -= spec.request[PODS]
    if is_wanted and sum(not kept[d] for d in wanted) <= slots:
        return wanted
    opening = [d for d in fitting if not kept[d]][: max(0, slots)]
    return _first(state.problem, node, [d for d in fitting if kept[d] or d in opening], count)


def _whole(state: "State", node: int, shape: int, free: list[int], count: int) -> tuple[int, ...]:
    problem, fabric, found = state.problem, state.problem.fabric, None
    for rule in state.rules:
        found = rule.devices(shape, node, free) if found is None else found
    if found is None and len(free) >= count and fabric is not None and fabric.kinds[node] >= 0:
        found = fabric.pick(node, free, count, None)
    return found or _first(problem, node, _ordered(state, free), count)


def _first(problem: Problem, node: int, free: list[int], count: int) -> tuple[int, ...]:
    if len(free) < count:
        raise InternalError(f"{count} devices do not fit node {problem.nodes[node].name}")
    return tuple(sorted(free[:count]))


def _ordered(state: "State", free: list[int]) -> list[int]:
    """``free`` devices in the order in which pods take them that may have any: by index, but for optional rules."""
    for rule in state.rules:
        free = rule.ordered(free)
    return free


def best_ones(state: "State", node: int, free: list[int], count: int) -> list[int]:
    """Single devices of a node for ``count`` pods one after the other."""
    fabric = state.problem.fabric
    if fabric is None or fabric.kinds[node] < 0:
        return _ordered(state, free)[:count]
    return fabric.pick_singles(node, free, count)
