"""What was seen of nodes in one state, for all units that ask for the same while it lasts."""

from kai_solver.planstate.state import State
from kai_solver.reasons.domain_reasons import DomainRoom
from kai_solver.reasons.node_reasons import NodeRoom, beyond_largest

_POD = "{pod}"
"""Stands for the name of a pod."""


class Looks:
    """Of the state as it is when this is made. What is asked once pods were placed in it is looked at again each time.

    On 5,000 loaded nodes 127 kinds of gangs have pods of 4 shapes, and nearly all end at their first pod, or before.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._mark = state.mark()
        self._nodes: dict[int, NodeRoom] = {}
        self._domains: DomainRoom | None = None
        self._beyond: dict[int, str] = {}

    def node_room(self, shape: int) -> NodeRoom:
        """What nodes lack for one more pod of ``shape``."""
        if self._state.mark() != self._mark:
            return NodeRoom(self._state, shape)
        if shape not in self._nodes:
            self._nodes[shape] = NodeRoom(self._state, shape)
        return self._nodes[shape]

    def beyond_largest(self, shape: int, pod: str) -> str:
        """`node_reasons.beyond_largest` for ``pod`` of ``shape``, whatever was placed."""
        if shape not in self._beyond:
            problem = self._state.problem
            self._beyond[shape] = beyond_largest(problem, problem.shapes.shapes[shape], _POD)
        return self._beyond[shape].replace(_POD, pod)

    def domain_room(self) -> DomainRoom:
        """What is free on nodes."""
        if self._state.mark() != self._mark:
            return DomainRoom(self._state)
        if self._domains is None:
            self._domains = DomainRoom(self._state)
        return self._domains
