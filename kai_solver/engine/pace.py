"""How the actions of one climb share the time."""

import math

from kai_solver.engine.cycle_time import CycleTime

PATIENCE = 0.1
"""Part of the time left in which an action that may give way has to serve a gang."""
ATTEMPT_SHARE = 0.5
"""Part of an action's time left that one gang may take while others wait for their turns."""
IN_VAIN = 8
"""And turns that it has for that."""


class Pace:
    """Four fifths of the time for the first action, half of the rest for each later one, all of it for the last two.

    So none starves the later ones; an action that decides early leaves its time to the others. On openb with too little
    time (2 s, 4.3 s of work, 2026-11-21) moves take 2.3 s and help 3 gangs, preempt takes 1.2 s and helps 364. So an
    action that serves no gang for a tenth of what is left gives way to those after it, and gets what they leave. If no
    solver is asked afterwards, or if it ``is_patient``, it does so only when half of the budget is over: a cycle that
    is done by then decides the same on every machine, and with a solver the same as without.
    """

    def __init__(self, time: CycleTime, *, is_patient: bool = False) -> None:
        self.time = time
        # A deterministic model does not look at the clock: its promise is the same answer on every machine.
        self.deadline_s = math.inf if time.is_exact else time.deadline_s - time.kept_s
        self.end_s = self.deadline_s
        now = time.clock()
        is_pressed = time.search.enabled and not is_patient
        self.pressed_s = now if is_pressed else now + (time.deadline_s - now) / 2
        self._share = 0.8
        self._patience_s = self._idle_end_s = math.inf
        self._in_vain = 0
        self._attempt_end_s = math.inf

    def start(self, actions_left: int, *, may_yield: bool) -> None:
        """An action begins."""
        now = self.time.clock()
        left_s = self.deadline_s - now
        self.end_s = now + left_s * (self._share if actions_left > 2 else 1.0)
        self._share = 0.5
        self._patience_s = PATIENCE * left_s if may_yield else math.inf
        self._idle_end_s, self._in_vain = now + self._patience_s, 0

    def attempted(self, *, served: bool) -> None:
        """An action that serves is worth its time."""
        self._in_vain += 1
        if served and self._patience_s < math.inf:
            self._idle_end_s, self._in_vain = self.time.clock() + self._patience_s, 0

    def is_fruitless(self) -> bool:
        """True if the action should give way: not for one slow turn, which may have been the first of its kind."""
        return self._in_vain >= IN_VAIN and self.time.clock() >= max(self._idle_end_s, self.pressed_s)

    def start_attempt(self) -> None:
        """A gang has its turn, with half of the action's time while others wait."""
        now = self.time.clock()
        self._attempt_end_s = max(now + ATTEMPT_SHARE * (self.end_s - now), self.pressed_s)

    def is_attempt_over(self) -> bool:
        """True if the turn has taken more than its share, or the action is over."""
        return self.is_over() or self.time.clock() >= self._attempt_end_s

    def is_over(self) -> bool:
        """True if the action's time is over, or the user has asked to stop."""
        return self.time.should_stop() or self.time.clock() >= self.end_s
