"""Whether a pod that was to move has found its place where it runs already: then it stays (as in KAI)."""

from collections.abc import Mapping
from types import MappingProxyType

from kai_solver.planstate.state import Place, State
from kai_solver.problem import Problem
from kai_solver.problem.zones import ZoneTable

SAME: Mapping[int, int] = MappingProxyType({})


def is_at_origin(problem: Problem, pod: int, place: Place, label: Mapping[int, int] = SAME) -> bool:
    """True where ``place`` is the pod's own: the node, the NUMA zones, and of shared devices the same ones.

    ``label``: new names of the node's devices.
    """
    if place.node != problem.pod_node[pod] or (
        problem.zones is not None and not _keeps_zones(problem.zones, pod, place)
    ):
        return False
    if not problem.pods[pod].gpu.is_shared:
        return True
    return {label.get(device, device) for device in place.devices} == set(problem.held_devices.get(pod, ()))


def moved_pods(state: State) -> list[int]:
    """Pods that run and have another place by the plan, in order."""
    both = sorted(state.gone & state.places.keys())
    return [pod for pod in both if not is_at_origin(state.problem, pod, state.places[pod])]


def _keeps_zones(zones: ZoneTable, pod: int, place: Place) -> bool:
    """Where it is not known what the pod holds, it keeps that."""
    held = zones.held.get(pod, ())
    return not held or not place.zones or held == place.zones
