"""Which devices of its node a pod gets while places are taken: those that pack, or have the best links."""

from typing import TYPE_CHECKING

import numpy as np

from kai_solver.domain import GpuRequest
from kai_solver.errors import InternalError
from kai_solver.links import gpus_of, mask_of, stretch, tightest_row
from kai_solver.problem import Problem
from kai_solver.problem.gpurows import wish_of
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
        return wanted if is_wanted else _whole(state, node, fitting, spec.gpu)
    if parts < WHOLE:
        spread = spec.devices == "spread"
        fitting.sort(key=lambda d: -future[d] if spread else future[d])
    kept, slots = state.reserved(node, now=now)
    slots -= spec.request[PODS]
    if is_wanted and sum(not kept[d] for d in wanted) <= slots:
        return wanted
    opening = [d for d in fitting if not kept[d]][: max(0, slots)]
    return _first(state.problem, node, [d for d in fitting if kept[d] or d in opening], count)


def _whole(state: "State", node: int, free: list[int], gpu: GpuRequest) -> tuple[int, ...]:
    problem = state.problem
    wish, fabric = wish_of(gpu), problem.fabric
    if len(free) >= gpu.devices and fabric is not None and fabric.kinds[node] >= 0:
        found = fabric.pick(node, free, gpu.devices, wish)
    elif wish is not None:
        found = gpus_of(tightest_row(mask_of(free), gpu.devices, wish.row))
    else:
        found = ()
    if not found and wish is not None and wish.is_required:
        raise InternalError(f"no {gpu.devices} GPUs in a row are free on node {problem.nodes[node].name}")
    return found or _first(problem, node, _sparing_rows(free) if state.has_rows else free, gpu.devices)


def _first(problem: Problem, node: int, free: list[int], count: int) -> tuple[int, ...]:
    if len(free) < count:
        raise InternalError(f"{count} devices do not fit node {problem.nodes[node].name}")
    return tuple(sorted(free[:count]))


def _sparing_rows(free: list[int]) -> list[int]:
    """Those in the shortest stretches of free devices first, so that long ones stay for pods that need a row."""
    mask = mask_of(free)
    return sorted(free, key=lambda device: stretch(mask, 1 << device))


def best_ones(state: "State", node: int, free: list[int], count: int) -> list[int]:
    """Single devices of a node for ``count`` pods one after the other."""
    fabric = state.problem.fabric
    if fabric is None or fabric.kinds[node] < 0:
        return (_sparing_rows(free) if state.has_rows else free)[:count]
    return fabric.pick_singles(node, free, count)
