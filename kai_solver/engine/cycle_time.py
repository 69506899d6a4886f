"""The time of one cycle: when it ends, what is left of it, and what of that is kept for its last steps."""

import time
from collections.abc import Callable
from math import inf

from kai_solver.domain import SearchSpec
from kai_solver.engine.progress import Progress
from kai_solver.search.budget import SAFETY_S, promised_s
from kai_solver.search.machine import slowness

Clock = Callable[[], float]

LEAST_KEPT_S, MOST_KEPT = 0.03, 0.25
"""Seconds that actions and questions leave to the plan and its check at least, and part of the budget at most."""

LONGER_PART = 0.1
"""Part of the budget that proofs of the final state may have although all of it is spent.

On 5,000 loaded nodes 111 gangs are 130 classes and take 0.7 s of CPU time, 5 ms each; on 1,000 nodes 2 to 7 gangs take
0.02 to 0.07 s (2026-11-23). Without a proof a gang's users learn nothing.
"""

POD_S = 5e-6
"""Seconds for each pod that the problem takes to build where nothing is known of it from the cycle before: 0.2 s on
5,000 loaded nodes with 35,000 pods. With a memo it takes 0.05 s there, and all that comes after it takes as long as
without (2026-11-29)."""


def never() -> bool:
    """Nothing asks to stop."""
    return False


class CycleTime:
    """Seconds of one cycle by ``clock``; a deterministic cycle takes the time that it needs.

    Attributes
    ----------
    start_s, deadline_s
        When it began, and when its budget has ended, by ``clock``.
    spent_s
        Seconds by phase.
    build_s
        Seconds that the problem takes to build: a measure of its size, by which later steps are estimated.
    """

    def __init__(
        self,
        search: SearchSpec,
        budget_s: float,
        clock: Clock = time.monotonic,
        should_stop: Callable[[], bool] = never,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.search = search
        self.budget_s = budget_s
        self.clock = clock
        self.should_stop = should_stop
        self.start_s = clock()
        self.deadline_s = self.start_s + budget_s
        self.spent_s: dict[str, float] = {}
        self.build_s = 0.0
        self._progress = progress
        self._phase_s = self.start_s

    # -- what has passed ---------------------------------------------------------------------------------------------

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.start_s

    @property
    def phase_s(self) -> float:
        """Seconds since the last phase ended."""
        return self.clock() - self._phase_s

    def phase(self, name: str) -> None:
        """A phase ends: what passed since the one before is its time."""
        now = self.clock()
        self.spent_s[name] = self.spent_s.get(name, 0.0) + now - self._phase_s
        self._phase_s = now
        self.say(name)

    def built(self, pods: int) -> None:
        """The problem, with so many ``pods``, is built."""
        self.phase("build")
        self.build_s = max(self.spent_s["build"], POD_S * pods)

    def say(self, what: str) -> None:
        """Tell of a step."""
        if self._progress is not None:
            self._progress(Progress(what, self.elapsed_s))

    def say_stage(self, stage: str, incumbent: int | None, bound: int | None) -> None:
        """Tell of a better plan or bound of a stage."""
        if self._progress is not None:
            best, least = (None if value is None else float(value) for value in (incumbent, bound))
            self._progress(Progress(stage, self.elapsed_s, best, least))

    # -- what is left ------------------------------------------------------------------------------------------------

    @property
    def is_exact(self) -> bool:
        """Whether the cycle is deterministic: it decides the same however long it takes."""
        return self.search.deterministic

    @property
    def kept_s(self) -> float:
        """Seconds kept for the plan and its check: as many as the first plan took, or as the problem takes to build.

        5,000 nodes: 0.35 s, and 0.1 to 0.4 s (CPU, 2026-11-21); 648 nodes: 0.02 s, and 0.02 to 0.03 s (2026-11-22).
        """
        first_s = self.spent_s.get("plan", 0.0) + self.spent_s.get("check", 0.0)
        return min(max(self.build_s, first_s, LEAST_KEPT_S), MOST_KEPT * self.budget_s)

    @property
    def left_s(self) -> float:
        """Seconds until the plan has to be made; below 0 where that should have begun."""
        return self.deadline_s - self.kept_s - self.clock()

    @property
    def questions_s(self) -> float:
        """Seconds in which gangs may be asked for: of the clock, or of the deterministic budget."""
        return self.search.questions_share * (self.budget_s if self.is_exact else self.left_s)

    @property
    def stages_s(self) -> float:
        """Seconds that the questions left to the stages: of the clock, or of the deterministic budget."""
        if self.is_exact:
            return self.budget_s * (1 - self.search.questions_share)
        return self.deadline_s - self.clock()

    @property
    def prices_until_s(self) -> float:
        """When prices have to be there: before the plan is made; in a deterministic cycle whenever they are."""
        return self.clock() + SAFETY_S if self.is_exact else self.deadline_s - self.kept_s

    @property
    def longer_until_s(self) -> float:
        """When steps end that are worth a little time even after the budget."""
        return max(self.deadline_s, min(self.clock(), self.deadline_s) + LONGER_PART * self.budget_s)

    def keeps_promise(self, seconds: float) -> bool:
        """Whether a step of ``seconds``, and the plan after it, end by the time that was promised."""
        return self.is_exact or self.elapsed_s + seconds + self.kept_s <= promised_s(self.budget_s)

    def here_s(self, seconds: float) -> float:
        """What a step takes on this machine that takes so many ``seconds`` where that was measured."""
        return seconds if self.is_exact else seconds * slowness()

    def left_until(self, end_s: float) -> Callable[[], float]:
        """Tells the seconds until then; without end in a deterministic cycle."""
        return lambda: inf if self.is_exact else end_s - self.clock()

    def is_past(self, end_s: float) -> bool:
        """Whether it is so late; never in a deterministic cycle."""
        return not self.is_exact and self.clock() >= end_s

    def is_over_at(self, end_s: float) -> bool:
        """Whether it is so late, or the cycle is told to stop."""
        return self.should_stop() or self.is_past(end_s)

    def is_late(self) -> bool:
        """Whether the budget has ended."""
        return self.is_past(self.deadline_s)

    def is_out(self) -> bool:
        """Whether the budget has ended, or the cycle is told to stop."""
        return self.is_over_at(self.deadline_s)

    def is_nearly_over(self) -> bool:
        """Whether no more time is left than the plan and its check take."""
        return self.is_over_at(self.deadline_s - self.kept_s)

    def is_long_over(self) -> bool:
        """Whether even the time for proofs of the final state has ended, or the cycle is told to stop."""
        return self.is_over_at(self.deadline_s + LONGER_PART * self.budget_s)

    def begin_again(self) -> None:
        """A plan was refused, and another one has the whole budget."""
        self.deadline_s = max(self.deadline_s, self.clock() + self.budget_s)
