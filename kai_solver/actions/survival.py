"""Would a reclaim last? The turns of the next allocate are played through, in queue order.

Source: docs/kai-behaviour.md#reclaim-lasts. As in KAI, all waiting gangs stand in the order of queues, and only the
victims and the gang that reclaims are given places: one that may not reclaim holds up nothing behind it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from kai_solver.actions.caps import over_capacity
from kai_solver.actions.gang_order import GangOrder
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import Placer
from kai_solver.planstate.allocation_units import AllocationUnit, GangUnits
from kai_solver.planstate.state import State

MOST_WAITING = 50
"""Waiting gangs up to which the next allocate is played through; beyond, victims alone are compared.

With 200, a cycle with 100 gangs that reclaim on 500 nodes took 0.86 s of CPU, 0.55 s with 50. On 16 loaded clusters of
250 and 500 nodes, with 100 and 200 gangs, the greedy took 1.1 to 2.8 times as long, and admitted fewer gangs on ten, as
many on one and more on five (2026-11-28). Room that was made stays promised to its gang anyway.
"""


def survives(
    state: State,
    fits: FitTable,
    gang_units: GangUnits,
    allocation_unit: AllocationUnit,
    evicted: Sequence[int],
    waiting: Iterable[int],
) -> bool:
    """Would the next allocate place ``allocation_unit`` again, and no victim where it was before it?

    It has no place in this play, and the ``evicted`` pods wait once more. ``waiting``: gangs that wait for their turn.
    Its present places, which CP-SAT may have found, are promised to it: in its turn it gets them again if they are
    still free. Finally the state is as before.
    """
    mark, nodes = state.mark(), {pod: state.places[pod].node for pod in allocation_unit.pods}
    for pod in nodes:
        state.lift(pod)
    with state.supposed_to_wait(evicted) as victims:
        gang_order = GangOrder(state, gang_units, {*waiting, *victims, allocation_unit.gang})
        done = _serves(state, Placer(state, fits=fits), gang_order, allocation_unit, nodes, victims)
    state.rollback(mark)
    return done


def _serves(
    state: State,
    placer: Placer,
    gang_order: GangOrder,
    allocation_unit: AllocationUnit,
    nodes: Mapping[int, int],
    victims: Collection[int],
) -> bool:
    while (next_gang := gang_order.pop()) is not None:
        gang, asked, _ = next_gang
        if gang != allocation_unit.gang and gang not in victims:
            continue
        is_within = over_capacity(state, asked) is None
        placed = is_within and placer.place_unit(asked)
        if gang == allocation_unit.gang:
            return placed or (is_within and asked.pods == allocation_unit.pods and _fit(state, placer.fits, nodes))
        if placed and any(state.places[pod].node == state.problem.pod_node[pod] for pod in asked.pods):
            return False
    return False


def _fit(state: State, fits: FitTable, nodes: Mapping[int, int]) -> bool:
    """Whether pods fit the ``nodes`` that they were promised, all of them together."""
    for pod, node in nodes.items():
        _, ever = fits.counts(state.problem.pod_shape[pod])
        if ever[node] <= 0 or not state.keeps_devices(pod, node):
            return False
        state.put(pod, node, now=False)
    return state.keeps_rules()
