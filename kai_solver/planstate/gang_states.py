"""Which pods of a gang run or will, and which wait, in the course of a cycle."""

from collections.abc import Iterator
from dataclasses import dataclass

from kai_solver.problem import GangShape, Problem
from kai_solver.problem.gang_columns import GangShapes


@dataclass(slots=True)
class GangState:
    """Pods of one gang by leaf: those that run or will, and those that wait. Both in task order."""

    active: list[list[int]]
    pending: list[list[int]]


class GangStates:
    """`GangState` by gang. Each is made when it is first asked for: most gangs run, and nothing happens to them."""

    __slots__ = ("_made", "_shapes")

    def __init__(self, shapes: GangShapes) -> None:
        self._shapes = shapes
        self._made: list[GangState | None] = [None] * len(shapes)

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, gang: int) -> GangState:
        found = self._made[gang]
        if found is None:
            found = self._made[gang] = _at_first(self._shapes[gang])
        return found

    def __iter__(self) -> Iterator[GangState]:
        return map(self.__getitem__, range(len(self._made)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GangStates) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def made(self) -> list[int]:
        """Gangs that were asked for: all others are as they were when the cycle began."""
        return [gang for gang, state in enumerate(self._made) if state is not None]


def leaf_positions(problem: Problem) -> list[int]:
    """By pod, the position of its leaf among those of its gang."""
    positions = [0] * len(problem.pods)
    for gang in problem.gang_columns.with_leaves:
        for position, leaf in enumerate(problem.gangs[gang].leaves):
            for pod in (*leaf.active, *leaf.pending):
                positions[pod] = position
    return positions


def _at_first(shape: GangShape) -> GangState:
    leaves = shape.leaves
    if len(leaves) == 1:  # As in most gangs.
        return GangState([[*leaves[0].active]], [[*leaves[0].pending]])
    return GangState([[*leaf.active] for leaf in leaves], [[*leaf.pending] for leaf in leaves])
