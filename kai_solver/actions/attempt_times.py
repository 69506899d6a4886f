"""How long the attempts of each gang take, and which gang is attempted now."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class AttemptTimes:
    """Of one cycle. An attempt lasts until the next one begins.

    Attributes
    ----------
    seconds
        By gang, in CPU time of this thread, so that other load of the machine does not count.
    gang
        The gang that is attempted now; None if none is.
    """

    clock: Callable[[], float] = time.thread_time
    seconds: dict[int, float] = field(default_factory=dict)
    gang: int | None = None
    _since_s: float = 0.0

    def begin(self, gang: int) -> None:
        """An attempt begins."""
        now_s = self.clock()
        if self.gang is not None:
            self.seconds[self.gang] = self.seconds.get(self.gang, 0.0) + now_s - self._since_s
        self.gang, self._since_s = gang, now_s

    def end(self) -> None:
        """No gang is attempted any more."""
        if self.gang is not None:
            self.begin(self.gang)
            self.gang = None
