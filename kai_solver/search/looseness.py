"""Gangs whose units are one choice among several: what is "impossible", or "least", with these units proves nothing.

Units of an elastic gang are fixed: surplus pods last first, and a core. But any pods may be the minimum, and any K of N
subgroups: a better set of victims may keep others.
"""

import numpy as np

from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool


def loose_gangs(state: State, pool: VictimPool, evictable: frozenset[int], *, anywhere: bool = False) -> frozenset[int]:
    """Gangs of ``evictable`` units that could give up others of their pods, and it would make a difference.

    ``anywhere``: it makes none where pods run.
    """
    chosen = np.fromiter(evictable, dtype=np.int64, count=len(evictable))
    gangs: list[int] = np.unique(pool.gang_of[chosen[pool.is_elastic[chosen]]]).tolist()
    return frozenset(gang for gang in gangs if _is_loose(state, pool, gang, evictable, anywhere=anywhere))


def _is_loose(state: State, pool: VictimPool, gang: int, evictable: frozenset[int], *, anywhere: bool) -> bool:
    problem, units = state.problem, [pool.units[unit] for unit in pool.of_gang[gang]]
    pods = [pod for unit in units for pod in unit.pods]
    leaves = problem.gangs[gang].leaves
    if len(pods) == len(units):
        # The core is one pod like the others, or there is none: but not where it may not go and another could be it.
        is_single = len(leaves) == 1 or not any(unit.is_core for unit in units)
        if is_single and all(unit.index in evictable for unit in units):
            return False
    if anywhere:
        return len({(problem.pod_shape[p], state.leaf_of[p]) for p in pods}) > 1
    places = {(problem.pod_shape[p], state.leaf_of[p], problem.pod_node[p], problem.held_devices.get(p)) for p in pods}
    return len(places) > 1
