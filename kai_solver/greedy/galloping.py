"""Runs of alike gangs for whom only the solver finds a way: asked for together, 2, 4, 8, ... at a time (design 5).

Only those whose turns follow each other, in the order that holds if each is served. After a "no" the half is asked:
where m of them can be served and m + 1 cannot, asking one by one comes to the same m, since everybody admitted keeps
his right to run and not his place. On rungs that evict the order depends on who leaves, so there it is one by one.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from kai_solver.domain import Rung
from kai_solver.fairness import over_limit, over_quota
from kai_solver.greedy.chunks import Chunk
from kai_solver.greedy.course import Course
from kai_solver.greedy.disruption import Disruption
from kai_solver.greedy.foresight import foresee
from kai_solver.greedy.signature import Signature
from kai_solver.greedy.turns import SizeTurns, Turn, Turns
from kai_solver.greedy.units import least_charge_of

LONGEST = 64
"""Gangs asked for in one question at the most."""

_KEEPING = (Rung.ALLOCATE, Rung.CONSOLIDATION)
"""Rungs on which nobody loses what he holds."""


class Gallop:
    """One rung of one climb. ``may_ask``: False for a chunk that a rule keeps from the rung."""

    def __init__(
        self,
        course: Course,
        rung: Rung,
        disruption: Disruption | None = None,
        may_ask: Callable[[Chunk], bool] = lambda _: True,
    ) -> None:
        self.course = course
        self.state = course.state
        self.rung = rung
        self.disruption = disruption
        self.may_ask = may_ask
        self._given_up: set[Signature] = set()

    def after(self, turns: Turns | SizeTurns, chunk: Chunk) -> None:
        """``chunk`` was admitted: where it was by the solver, ask for those like it who come next."""
        last = self.course.outcome.admissions[-1]
        if not (last.by_solver and last.chunk is chunk and isinstance(turns, Turns) and self._is_open()):
            return
        signature = self.course.signature(chunk)
        turn = turns.peek()
        if signature in self._given_up or turn is None or not self._is_alike(turn, signature):
            return
        served = self._admit(self._line(turns, signature), signature)
        if served:
            turns.were_served(served)

    def _is_open(self) -> bool:
        """Is the order foreseeable, and a question for many as good as one for each?"""
        if self.rung not in _KEEPING or self.state.by_memory:
            return False
        moves = self.state.problem.policy.max_consolidation_gangs
        nobody_left = all(admission.rung in _KEEPING for admission in self.course.outcome.admissions)
        return nobody_left and (self.rung is Rung.ALLOCATE or moves < 0)

    def _is_alike(self, turn: Turn, signature: Signature) -> bool:
        """Does the turn ask for the same, for all that its gang waits for, and may it?"""
        chunk, pending = turn.chunk, self.state.gangs[turn.gang].pending
        is_all = len(chunk.pods) == sum(map(len, pending)) and not chunk.is_choice
        return is_all and self.course.signature(chunk) == signature and self.may_ask(chunk)

    def _line(self, turns: Turns, signature: Signature) -> list[Chunk]:
        """Chunks that come next, all alike, as far as their queues may pay for all of them."""
        lines = {leaf: list(line) for leaf, line in turns.lines()}
        ahead = foresee(self.state, {leaf: line for leaf, line in lines.items() if line})
        alike = takewhile(lambda turn: self._is_alike(turn, signature), ahead)
        return [turn.chunk for turn in self._payable(alike)]

    def _payable(self, line: Iterator[Turn]) -> Iterator[Turn]:
        """Turns of ``line`` up to the first that would pass a limit or a quota beside those before it."""
        problem = self.state.problem
        tree = problem.queues
        held, fixed = ([list(row) for row in table] for table in (self.state.allocated, self.state.allocated_fixed))
        for turn in line:
            gang, least = problem.gangs[turn.gang], least_charge_of(problem, turn.chunk.pods)
            is_free = gang.gang.preemptible
            is_over_quota = not is_free and over_quota(tree, fixed, gang.queue, least) is not None
            if is_over_quota or over_limit(tree, held, gang.queue, least) is not None:
                return
            for queue in tree.path[gang.queue]:
                for table in (held,) if is_free else (held, fixed):
                    table[queue] = [have + more for have, more in zip(table[queue], turn.charge, strict=True)]
            yield turn

    def _admit(self, line: Sequence[Chunk], signature: Signature) -> set[int]:
        """Admit as many from the front of ``line`` as there is a way for; the gangs that were."""
        served: set[int] = set()
        step, refused = 2, 0  # ``refused``: so many, from the front of what is left, cannot all be served.
        while line and refused != 1 and not self.course.is_over():
            together = line[: refused // 2 or min(step, LONGEST)]
            answer = self.course.ask_together(together, self.rung, self.disruption)
            if answer.verdict == "yes":
                served.update(chunk.gang for chunk in together)
                line, step = line[len(together) :], 2 * step
                refused -= len(together) if refused else 0
            elif answer.proof.state == "proven":
                refused = len(together)
            else:
                self._given_up.add(signature)
                break
        return served
