"""Runs of alike gangs: admitted turn by turn, placed all at once.

Whose turn it is depends on what queues hold, not on the nodes that their pods got. So the turns of gangs that differ in
nothing that matters to nodes are taken first, as many as there are places for, and then all their pods are placed in
one step. The outcome is that of placing them one by one.
"""

from kai_solver.domain import Rung
from kai_solver.greedy.caps import over_capacity
from kai_solver.greedy.chunks import Chunk
from kai_solver.greedy.course import Course
from kai_solver.greedy.outcome import Admission
from kai_solver.greedy.turns import SizeTurns, Turns

LOOKS = 32
"""Turns between two looks at the clock."""


class Runs:
    """Admits runs on one course."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.state = course.state
        self.placer = course.placer
        self._shapes = course.problem.pod_shape

    def admit(self, turns: Turns | SizeTurns) -> bool:
        """Admit those whose turn it is while they are alike and have room; False where that is nobody."""
        turn = turns.peek()
        shape = self._plain_shape(turn.chunk) if turn is not None else None
        if shape is None or not self.placer.at_once:
            return False
        room = int(self.placer.fits.counts(shape)[0].sum())
        pods: list[int] = []
        number = 0
        while turn is not None and len(pods) + len(turn.chunk.pods) <= room:
            if self._plain_shape(turn.chunk) != shape or over_capacity(self.state, turn.chunk) is not None:
                break
            turns.pop()
            self.state.join(turn.chunk.pods, turn.charge)
            self.course.outcome.admit(Admission(turn.chunk, Rung.ALLOCATE))
            turns.again(turn.gang)
            pods += turn.chunk.pods
            number += 1
            if number % LOOKS == 0 and self.course.is_over():
                break
            turn = turns.peek()
        return bool(pods) and self.placer.fill(pods, joined=True)

    def _plain_shape(self, chunk: Chunk) -> int | None:
        """The one shape of a chunk that asks for nothing but room for its pods; None for others.

        Surplus may have to wait for its gang's minimum, so it has its own turn.
        """
        chunker = self.course.chunkers[chunk.gang]
        leaf = chunker.lone
        if leaf is None or leaf.topology is not None or chunker.shape.root.topology is not None or not chunk.is_core:
            return None
        shapes = {self._shapes[pod] for pod in chunk.pods}
        return shapes.pop() if len(shapes) == 1 and self.placer.is_plain(chunk.pods) else None
