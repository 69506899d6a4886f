"""What was seen of nodes in one state, for all units that ask for the same while it lasts."""

from kai_solver.planstate.state import State
from kai_solver.reasons.domain_reasons import DomainRoom
from kai_solver.reasons.node_reasons import BeyondLargest, NodeRoom


class Looks:
    """Of the state as it is when this is made. What is asked once pods were placed in it is looked at again each time.

    On 5,000 loaded nodes 127 kinds of gangs have pods of 4 shapes, and nearly all end at their first pod, or before.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._mark = state.mark()
        self._nodes: dict[int, NodeRoom] = {}
        self._domains: DomainRoom | None = None
        self.beyond_largest = BeyondLargest(state.problem)

    def node_room(self, shape: int) -> NodeRoom:
        """What nodes lack for one more pod of ``shape``."""
        if self._state.mark() != self._mark:
            return NodeRoom(self._state, shape)
        if shape not in self._nodes:
            self._nodes[shape] = NodeRoom(self._state, shape)
        return self._nodes[shape]

    def domain_room(self) -> DomainRoom:
        """What is free on nodes."""
        if self._state.mark() != self._mark:
            return DomainRoom(self._state)
        if self._domains is None:
            self._domains = DomainRoom(self._state)
        return self._domains
