"""What moves to larger devices would free: a request by GPU memory takes and costs less of a device that has more.

So where GPUs differ in memory, moving may gain GPUs, and room below a limit, that no pod gives up.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kai_solver.planstate.state import State
from kai_solver.units.shares import PARTS_OF_MILLI


@dataclass(frozen=True, slots=True)
class Savings:
    """Thousandths that movable pods would take less on the largest devices, of these, and be charged less, by queue."""

    total: int
    by_queue: tuple[int, ...]


class FreeMilli(NamedTuple):
    """Thousandths of devices that are finally free.

    ``reached``: where pods of gangs may be; rounded up once, since moves may join what is free. ``beyond``: on other
    nodes, for example on cordoned ones.
    """

    reached: int
    beyond: int


def free_milli(state: State) -> FreeMilli:
    """Count what is free. Beyond reach are few nodes, so these are looked at once more, and not the others."""
    every = int(np.maximum(state.device_future, 0).sum())
    beyond = int(np.maximum(state.device_future[state.problem.columns.beyond_reach], 0).sum())
    reached = -(-(every - beyond) // PARTS_OF_MILLI)
    return FreeMilli(reached, -(-every // PARTS_OF_MILLI) - reached)


def savings(state: State) -> Savings:
    """Of all pods that have places by this cycle, and of preemptible gangs that run."""
    problem, total = state.problem, 0
    by_queue = [0] * problem.queues.size
    for pod in state.by_memory:
        node = _movable_at(state, pod)
        if node < 0:
            continue
        shape = problem.pod_shape[pod]
        devices = problem.shapes.shapes[shape].gpu.devices
        parts, milli = problem.shapes.parts(shape), problem.shapes.milli(shape)
        total += devices * -(int(parts.min() - parts[node]) // PARTS_OF_MILLI)  # Rounded up: no move frees more.
        saved = devices * int(milli[node] - milli.min())
        for queue in problem.queues.path[problem.gangs[problem.pod_gang[pod]].queue]:
            by_queue[queue] += saved
    return Savings(total, tuple(by_queue))


def _movable_at(state: State, pod: int) -> int:
    """Node of a pod that might be elsewhere; -1 for all others."""
    problem = state.problem
    place, gang = state.places.get(pod), problem.pod_gang[pod]
    if place is not None:
        return place.node
    return problem.pod_node[pod] if gang >= 0 and problem.gangs[gang].gang.preemptible and pod not in state.gone else -1
