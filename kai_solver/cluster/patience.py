"""Waiting for what others do, no longer than it is worth, and never when this process no longer leads."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from kai_solver.cluster.api import FenceError

LOOK_S = 0.1
SETTLE_S = 0.5
"""What comes together is acted on together."""


def after_news(news: threading.Event, stop: threading.Event, act: Callable[[], object], look_s: float) -> None:
    """Act after each piece of news, and without any every ``look_s`` seconds, until ``stop`` is set."""
    while not stop.is_set():
        news.wait(look_s)
        if stop.wait(SETTLE_S):
            return
        news.clear()
        act()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds, and the clock; what is waited for is looked at in the store, not asked for."""

    limit_s: float
    fence: Callable[[], bool]
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic

    def until(self, done: Callable[[], bool]) -> bool:
        """Wait until it is so; False where it took too long.

        Raises
        ------
        FenceError
            This process stopped leading meanwhile.
        """
        ends_s = self.monotonic() + self.limit_s
        while not done():
            if self.monotonic() >= ends_s:
                return False
            self.sleep(LOOK_S)
            if not self.fence():
                raise FenceError
        return True
