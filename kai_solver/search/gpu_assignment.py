"""The pods of a plan with whole GPUs, and the nodes where they might sit instead, as a `Seating`."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import TopologyConstraint
from kai_solver.links import Asking, Board, masks_of, row_wish
from kai_solver.planstate.opening import wholly_free
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.problem import GangShape, Leaf, TreeNode
from kai_solver.problem.fabric import Fabric
from kai_solver.search.seating import GpuAssignment, Host, Seating
from kai_solver.units.shares import WHOLE

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

MOST_RIDERS = 400
"""Pods of the plan with whole GPUs up to which seats are exchanged; a plan of more stays as it is."""
HOSTS = 12
"""Nodes tried for one pod beside its own: those where it alone would lose the least, of equal ones the fullest."""


def seating_of(outcome: Outcome) -> Seating | None:
    """The seats of a plan; None where links say nothing about any of its pods."""
    state, fabric = outcome.state, outcome.state.problem.fabric
    if fabric is None:
        return None
    wholes = [pod for pod in _in_order(outcome) if state.places[pod].devices and state.problem.pods[pod].gpu.is_whole]
    linked = {pod: state.places[pod] for pod in wholes if fabric.kinds[state.places[pod].node] >= 0}
    if not any(len(place.devices) > 1 for place in linked.values()):
        return None
    is_few = len(wholes) <= MOST_RIDERS
    if not is_few:  # All stay: only those of gangs that may lose something count.
        gangs = {state.problem.pod_gang[pod] for pod in linked}
        wholes = [pod for pod in wholes if state.problem.pod_gang[pod] in gangs]
    return _Lifted(state, fabric, wholes, is_few=is_few).seating()


def _in_order(outcome: Outcome) -> list[int]:
    """Pods with a place as the plan lists them."""
    state = outcome.state
    come = [pod for admission in outcome.admissions for pod in admission.allocation_unit.pods if pod in state.places]
    return [*dict.fromkeys(come), *sorted(state.gone & state.places.keys())]


class _Lifted:
    """The cluster as if those ``pods`` of the plan had no places. ``is_few``: they may sit elsewhere."""

    def __init__(self, state: State, fabric: Fabric, pods: list[int], *, is_few: bool) -> None:
        self.state = state
        self.fabric = fabric
        self.pods = pods
        self.is_few = is_few
        problem = state.problem
        self.requests = {shape: tuple(problem.shapes.shapes[shape].request) for shape in set(problem.pod_shape)}
        self.idle, self.future = state.idle.copy(), state.future.copy()
        device_idle, device_future = state.device_idle.copy(), state.device_future.copy()
        for pod in pods:
            place, devices = state.places[pod], list(state.places[pod].devices)
            amounts = np.array(self.requests[problem.pod_shape[pod]], dtype=np.int64)
            self.future[:, place.node] += amounts
            device_future[place.node, devices] += place.parts
            if place.now:
                self.idle[:, place.node] += amounts
                device_idle[place.node, devices] += place.parts
        self.later: BoolArray = device_future == WHOLE
        self.now: BoolArray = self.later & (device_idle == WHOLE)
        self.masks: list[tuple[int, int]] = list(
            zip(*(masks_of(free).tolist() for free in (self.now, self.later)), strict=True)
        )
        lifted = set(pods)
        others = {place.node for pod, place in state.places.items() if place.devices and pod not in lifted}
        self.is_idle = wholly_free(problem)
        self.is_idle[list(others)] = False
        self.is_whole = not state.gone
        self._choices: dict[tuple[object, ...], tuple[int, ...]] = {}

    def seating(self) -> Seating:
        """GpuAssignments in the turns in which they get names, and the hosts of all of them."""
        assignments = sorted((self._assignment(pod) for pod in self.pods), key=lambda a: a.asking.naming_order)
        hosts = {node: self._host(node) for assignment in assignments for node in assignment.nodes}
        opened = {assignment.nodes[0] for assignment in assignments if hosts[assignment.nodes[0]].is_idle}
        return Seating(self.fabric, assignments, hosts, self.is_whole, len(opened))

    def _host(self, node: int) -> Host:
        every = (1 << int(self.state.problem.devices[node])) - 1
        now, later = self.masks[node]
        board = Board(every, every & ~now, every & ~later)
        kind, is_idle = int(self.fabric.kinds[node]), bool(self.is_idle[node])
        return Host(kind, board, self.idle[:, node].tolist(), self.future[:, node].tolist(), is_idle)

    def _assignment(self, pod: int) -> GpuAssignment:
        problem, place = self.state.problem, self.state.places[pod]
        shape, gang = problem.pod_shape[pod], problem.pod_gang[pod]
        gpu = problem.shapes.shapes[shape].gpu
        asking = Asking(place.now, gpu.devices, row_wish(gpu))
        is_fixed = not self.is_few or gpu.devices < 2 or not self._is_simple(pod)
        others = () if is_fixed else self._others(pod, asking)
        nodes = (place.node, *(node for node in others if node != place.node))
        return GpuAssignment(pod, gang, asking, self.requests[shape], nodes, is_fixed)

    def _is_simple(self, pod: int) -> bool:
        """Whether room and domains alone say where it may be."""
        state, problem = self.state, self.state.problem
        gang, shape = problem.gangs[problem.pod_gang[pod]], problem.pod_shape[pod]
        is_granted = any(not rule.is_plain(shape) for rule in state.granting.values())
        has_wishes = problem.predicates.has_preference(problem.shapes.shapes[shape].constraints)
        is_related = pod in problem.related or bool(problem.pods[pod].nominated_node)
        is_free = not is_related and not has_wishes and not is_granted
        return is_free and gang.family < 0 and problem.shapes.shapes[shape].nodes == "binpack"

    def _others(self, pod: int, asking: Asking) -> tuple[int, ...]:
        """Nodes where it might sit as well, the best for it alone first."""
        problem = self.state.problem
        shape, origin = problem.pod_shape[pod], problem.pod_node[pod]
        domains = tuple(self._domains(problem.gangs[problem.pod_gang[pod]], self.state.places[pod].node))
        key = shape, asking.at_once, domains, origin
        if key not in self._choices:
            self._choices[key] = self._ranked(shape, asking, domains, origin)
        return self._choices[key]

    def _ranked(
        self, shape: int, asking: Asking, domains: tuple[tuple[str, int, int], ...], origin: int
    ) -> tuple[int, ...]:
        free, room = (self.now, self.idle) if asking.at_once else (self.later, self.future)
        allowed = self.state.problem.shapes.mask(shape) & (free.sum(axis=1) >= asking.count)
        for resource, amount in enumerate(self.requests[shape]):
            allowed &= np.minimum(room, self.future)[resource] >= amount
        for topology, level, domain in domains:
            allowed &= self.state.problem.domains[topology].domain_of[level] == domain
        if origin >= 0:
            allowed[origin] = False
        nodes = np.flatnonzero(allowed & (self.fabric.kinds >= 0))
        found = self.fabric.tables.survey(self.fabric.kinds[nodes], masks_of(free[nodes]), asking.count, asking.wish)
        nodes, share = nodes[found.grade >= 0], found.share[found.grade >= 0]
        order = np.lexsort((nodes, free[nodes].sum(axis=1), self.is_idle[nodes], -share))
        self.is_whole &= len(order) <= HOSTS and not (allowed & (self.fabric.kinds < 0)).any()
        ranked: list[int] = nodes[order[:HOSTS]].tolist()
        return tuple(ranked)

    def _domains(self, gang: GangShape, node: int) -> Iterator[tuple[str, int, int]]:
        """Topology, level and domain that it must stay in: those of every wish of its gang."""
        for constraint in dict.fromkeys(_constraints(gang.root)):
            tree = self.state.problem.domains.get(constraint.topology)
            for name in (constraint.required, constraint.preferred) if tree is not None else ():
                level = tree.level_index(name) if tree is not None and name else None
                if tree is not None and level is not None:
                    yield constraint.topology, level, int(tree.domain_of[level][node])


def _constraints(node: TreeNode | Leaf) -> Iterator[TopologyConstraint]:
    if node.topology is not None:
        yield node.topology
    for child in () if isinstance(node, Leaf) else node.children:
        yield from _constraints(child)
