"""Those who wait for nothing: once somebody of every kind that still waits was refused, so are all the others."""

from kai_solver.domain import Rung
from kai_solver.greedy.course import Course
from kai_solver.greedy.outcome import Refusal
from kai_solver.greedy.signature import Kind
from kai_solver.greedy.turns import SizeTurns, Turns

FIRST_LOOK = 16
"""Refusals in a row after which the others are looked at; then after twice as many, and so on."""


class Refused:
    """Refusals of one rung since it last admitted somebody: until then nothing changes for those who wait."""

    def __init__(self, course: Course, rung: Rung) -> None:
        self.course = course
        self.rung = rung
        self._kinds: dict[Kind, Refusal] = {}
        self._row = 0

    def forget(self) -> None:
        """Somebody was admitted."""
        self._kinds.clear()
        self._row = 0

    def note(self, kind: Kind | None, refusal: Refusal) -> None:
        """A gang of ``kind`` was refused."""
        self._row += 1
        if kind is not None:
            self._kinds[kind] = refusal

    def refuse_rest(self, turns: Turns | SizeTurns) -> bool:
        """Refuse all who wait, in order, where each is of a kind that was; else nobody."""
        if self._row < FIRST_LOOK or self._row & (self._row - 1):
            return False
        course, kinds = self.course, self._kinds
        if not all(course.kind(gang) in kinds for gang in turns.rest()):
            return False
        for gang in turns.rest():
            kind = course.kind(gang)
            if kind is not None:
                course.outcome.refuse(gang, self.rung, kinds[kind], course.chunkers[gang].state.pending[0])
        return True
