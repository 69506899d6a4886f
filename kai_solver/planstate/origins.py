"""Whether a pod that was to move has found its place where it runs already: then it stays (as in KAI)."""

from collections.abc import Mapping
from types import MappingProxyType

from kai_solver.planstate.state import Place, State
from kai_solver.problem import Problem

SAME: Mapping[int, int] = MappingProxyType({})


def is_at_origin(problem: Problem, pod: int, place: Place, label: Mapping[int, int] = SAME) -> bool:
    """True where ``place`` is the pod's own: the node, what rules grant, and of shared devices the same ones.

    ``label``: new names of the node's devices.
    """
    if place.node != problem.pod_node[pod]:
        return False
    if not all(rule.keeps(pod, place.grants.get(rule.kind)) for rule in problem.rules):
        return False
    if not problem.pods[pod].gpu.is_shared:
        return True
    return {label.get(device, device) for device in place.devices} == set(problem.held_devices.get(pod, ()))


def moved_pods(state: State) -> list[int]:
    """Pods that run and have another place by the plan, in order."""
    both = sorted(state.gone & state.places.keys())
    return [pod for pod in both if not is_at_origin(state.problem, pod, state.places[pod])]
