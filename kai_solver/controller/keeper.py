"""The parts of a controller that run by themselves. A part that fails is restarted, and the others go on."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kai_solver.errors.barrier import caught, in_words

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Delay before a part is restarted: twice as long after each failure in a row, with jitter."""

WELL_S = 30.0
"""A part that has run for this time is healthy: its next failure counts as the first."""

OFTEN = 3
"""Failures in a row after which a part counts as failing."""


@dataclass(slots=True)
class Keeper:
    """Runs parts in threads until ``stop``. An error does not end the process: a restart would not fix it."""

    stop: threading.Event
    monotonic: Callable[[], float] = time.monotonic
    _failing: dict[str, str] = field(default_factory=dict)
    _since_s: dict[str, float] = field(default_factory=dict)
    """Since when each part runs; infinite in a pause."""

    @property
    def failing(self) -> dict[str, str]:
        """Parts that failed several times in a row and have not recovered, with their last errors."""
        now_s = self.monotonic()
        return {part: why for part, why in self._failing.copy().items() if now_s - self._since_s[part] < WELL_S}

    def start(self, part: str, run: Callable[[], None]) -> threading.Thread:
        """Run a part in a thread of its own."""
        thread = threading.Thread(target=self.keep, args=(part, run), name=part, daemon=True)
        thread.start()
        return thread

    def keep(self, part: str, run: Callable[[], None]) -> None:
        """Run a part until it returns; again, after a pause, where it raises."""
        failures = 0
        while True:
            self._since_s[part] = began_s = self.monotonic()
            try:
                run()
            except Exception as error:
                caught("running", part, error)
                self._since_s[part] = float("inf")
                failures = 1 if self.monotonic() - began_s >= WELL_S else failures + 1
                if failures >= OFTEN:
                    self._failing[part] = in_words(error)
                elif failures == 1:
                    self._failing.pop(part, None)
            else:
                self._failing.pop(part, None)
                return
            pause_s = min(FIRST_PAUSE_S * 2 ** min(failures - 1, 10), LONGEST_PAUSE_S)
            if self.stop.wait(pause_s * random.uniform(0.5, 1.0)):  # noqa: S311 - jitter, no secret
                return
