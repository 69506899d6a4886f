"""What the arrays can say: of which cycles, shapes and gangs."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from kai_solver.actions.board.arrays import NONE, OTHER, PLAIN, WISHING
from kai_solver.planstate.allocation_units import AllocationUnits
from kai_solver.planstate.state import State
from kai_solver.predicates import domain_codes
from kai_solver.problem import GangShape
from kai_solver.problem.rules import Compartments, Ledger
from kai_solver.units.shares import WHOLE

FEW_LINKED = 0.25
"""Part of the nodes on which it may matter which GPUs a pod gets: up to that, links do not order nodes, though they
still choose among the GPUs of a node."""


def may_serve(state: State) -> bool:
    """Whether arrays can say the rules of this cycle: none refuses gangs, and no running work is protected for a time.

    Prices of what is left over are not in the arrays either, nor are links between GPUs where many nodes have such.
    """
    problem, policy = state.problem, state.problem.policy
    if problem.outlook is not None or state.refusing:
        return False
    if problem.fabric is not None and np.count_nonzero(problem.fabric.kinds >= 0) > FEW_LINKED * len(problem.nodes):
        return False
    if policy.reclaim_min_runtime_s or policy.preempt_min_runtime_s:
        return False
    queues = problem.queues.queues
    return not any(queue.reclaim_min_runtime_s or queue.preempt_min_runtime_s for queue in queues)


class Plainness:
    """What the arrays can say: which shapes and gangs."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.problem = state.problem
        self._levels: dict[tuple[str, str], int] = {}
        self._shapes: dict[int, int] = {}
        self._of_nodes: dict[str, bool] = {}
        found = [(rule, zones) for rule in state.rules if (zones := rule.compartments()) is not None]
        self.zones: tuple[Ledger, Compartments] | None = found[0] if len(found) == 1 else None
        self._of_shape: dict[int, int] = {}

    def shape(self, shape: int) -> int:
        """Row of a shape in the arrays, the same for shapes with the same room; `NONE` where they cannot say it."""
        found = self._of_shape.get(shape)
        if found is None:
            found = NONE
            if self._is_sayable(shape):
                same = self.problem.shapes.same_room(shape)
                found = self._shapes.setdefault(same, len(self._shapes))
            self._of_shape[shape] = found
        return found

    def _is_sayable(self, shape: int) -> bool:
        spec, state = self.problem.shapes.shapes[shape], self.state
        is_counted = (spec.gpu.is_whole or not spec.gpu.devices) and not spec.gpu.memory_mib
        if spec.gpu.is_shared:
            is_counted = self._says_shares and spec.gpu.devices == 1 and spec.gpu.milli > 0
            is_counted = is_counted and not spec.gpu.memory_mib and spec.devices == "binpack"
        return is_counted and spec.nodes == "binpack" and all(self._is_said(rule, shape) for rule in state.rules)

    @cached_property
    def _says_shares(self) -> bool:
        """Whether pods share each device of which only a part is free."""
        free, sharers = self.state.device_future, self.state.sharers_later
        return not ((free > 0) & (free < WHOLE) & (sharers == 0)).any()

    def _is_said(self, rule: Ledger, shape: int) -> bool:
        """Whether the arrays say what a rule has to say of a shape."""
        if self.zones is not None and rule is self.zones[0]:
            return rule.in_compartments(shape) is not None
        return rule.counts_alike(shape) and not rule.limits(shape)

    @property
    def shapes(self) -> list[int]:
        """By row, a shape."""
        return list(self._shapes)

    @property
    def levels(self) -> list[tuple[str, str]]:
        """Topology and level, by row."""
        return list(self._levels)

    def level(self, gang: GangShape) -> int | None:
        """Row of the level of which one domain holds all pods of a gang without subgroups; `NONE` without such a rule.

        None where it asks for something else as well; what it prefers is left out.
        """
        if gang.root.topology is None and gang.leaves[0].topology is None:  # As in most gangs.
            return NONE
        asked = [topology for topology in (gang.root.topology, gang.leaves[0].topology) if topology is not None]
        topology, *more = dict.fromkeys(asked)
        tree = self.problem.domains.get(topology.topology)
        if more or tree is None:
            return None
        if not topology.required:
            return NONE
        if tree.level_index(topology.required) is None:
            return None
        return self._levels.setdefault((topology.topology, topology.required), len(self._levels))

    def standing(self, units: AllocationUnits) -> int:
        """How a gang that waits stands in its line.

        `PLAIN` asks for nothing but room, at most in one domain, all of it at once; `WISHING` also prefers some nodes.
        """
        leaf, gang, problem = units.lone, units.shape, self.problem
        if (
            leaf is None
            or units.state.active[0]
            or leaf.blocked
            or gang.family >= 0
            or gang.gang.preemption_delay_s > 0
        ):
            return OTHER
        pods = units.state.pending[0]
        if not pods or leaf.min_member != len(pods) or self.level(gang) is None:
            return OTHER
        shape = self.shape(problem.pod_shape[pods[0]])
        if shape == NONE or any(self.shape(problem.pod_shape[pod]) != shape for pod in pods):
            return OTHER
        if any(problem.pods[pod].nominated_node for pod in pods) or not problem.ruled.isdisjoint(pods):
            return OTHER
        if any(rule.tells_apart(pod) is not None for rule in problem.rules for pod in pods):
            return OTHER
        said = problem.shapes.shapes[problem.pod_shape[pods[0]]].constraints
        is_plain = self._keeps_company(pods) and not problem.predicates.has_preference(said)
        return PLAIN if is_plain and not self.prefers_domains(gang) else WISHING

    def _keeps_company(self, pods: Sequence[int]) -> bool:
        """Whether the preferences between ``pods``, all of a gang, and others come to nothing but filling nodes.

        There are none, or the pods like to share a node with each other. They do so anyway where nodes are packed.
        """
        problem = self.problem
        if problem.related.isdisjoint(pods):
            return True
        terms = {term for pod in pods for term in problem.pods[pod].constraints.preferred_pods}
        return problem.outward.isdisjoint(pods) and all(
            weight > 0 and self._is_of_nodes(term.topology_key) for weight, term in terms
        )

    def _is_of_nodes(self, key: str) -> bool:
        """Whether each node has another value of the label, if any."""
        found = self._of_nodes.get(key)
        if found is None:
            codes = domain_codes(self.problem.nodes, key)
            found = self._of_nodes[key] = len(np.unique(codes[codes >= 0])) == np.count_nonzero(codes >= 0)
        return found

    @staticmethod
    def prefers_domains(gang: GangShape) -> bool:
        """Whether its pods are to be near each other where that can be."""
        outer, inner = gang.root.topology, gang.leaves[0].topology
        return bool((outer is not None and outer.preferred) or (inner is not None and inner.preferred))
