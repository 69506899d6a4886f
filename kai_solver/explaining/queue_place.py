"""Where a gang that waits stands in its queue."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from kai_solver.actions.gang_order import GangKey, gang_key
from kai_solver.planstate.allocation_units import GangUnitsOf
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.units import counted


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The ``position`` of a gang, from 1, among the gangs of its queue that wait (``waiting``).

    Gangs are asked for in this order. One further back may still start first: where it fits, and those before it do
    not.
    """

    queue: str
    position: int
    waiting: int

    @property
    def text(self) -> str:
        """One sentence for people."""
        if self.waiting == 1:
            return f"The only gang that waits in queue {self.queue}"
        return f"Position {self.position:,} of {counted(self.waiting, 'gang')} that wait in queue {self.queue}"

    def document(self) -> dict[str, object]:
        """JSON form."""
        return {"queue": self.queue, "position": self.position, "waiting": self.waiting, "text": self.text}


class QueuePlaces:
    """Places of the gangs ``pending`` (their keys) of a cluster, by the order of the actions.

    Source: docs/kai-behaviour.md#order.
    """

    def __init__(self, problem: Problem, pending: Collection[str]) -> None:
        self._problem = problem
        self._pending = set(pending)

    def of(self, gang: str) -> QueuePlace | None:
        """The place of a gang; None where it is not pending, or its queue does not exist."""
        return self._places.get(gang)

    @cached_property
    def _places(self) -> Mapping[str, QueuePlace]:
        problem = self._problem
        units = GangUnitsOf(State(problem))
        lines: dict[int, list[tuple[GangKey, str]]] = {}
        for shape in problem.gangs:
            if shape.gang.key in self._pending and shape.queue >= 0:
                lines.setdefault(shape.queue, []).append((gang_key(units[shape.index]), shape.gang.key))
        return {
            key: QueuePlace(problem.queues.names[queue], position, len(line))
            for queue, line in lines.items()
            for position, (_, key) in enumerate(sorted(line), 1)
        }
