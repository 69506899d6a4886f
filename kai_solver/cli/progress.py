"""Progress while a plan is made: a live line on a terminal, one plain line a phase elsewhere."""

import sys
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kai_solver.cli.console import clean, open_console
from kai_solver.domain import relative_gap


class ProgressEvent(Protocol):
    """What the engine tells (``kai_solver.engine.Progress``)."""

    @property
    def phase(self) -> str:
        """What is being done."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the cycle began."""

    @property
    def incumbent(self) -> float | None:
        """Value of the best solution so far."""

    @property
    def bound(self) -> float | None:
        """Proven bound of it."""

    @property
    def text(self) -> str:
        """More, in words."""


class ProgressLine:
    """Shows events on standard error, so that standard output holds nothing but the result.

    Parameters
    ----------
    quiet
        Show nothing.
    """

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self._console = console or open_console(sys.stderr)
        self._quiet = quiet
        self._phase = ""
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(Text(""), console=self._console, transient=True, refresh_per_second=10)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: ProgressEvent) -> None:
        """Show ``event``."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(Text(clean(words(event)), overflow="ellipsis", no_wrap=True))
        elif event.phase != self._phase:
            self._phase = event.phase
            self._console.print(Text(clean(words(event))), soft_wrap=True)


def words(event: ProgressEvent) -> str:
    """One line of ``event``: time, phase, incumbent, bound and gap."""
    parts = [f"{event.elapsed_s:6.2f} s  {event.phase}"]
    if event.incumbent is not None:
        parts.append(f"incumbent {event.incumbent:g}")
    if event.bound is not None:
        parts.append(f"bound {event.bound:g}")
    if event.incumbent is not None and event.bound is not None and (far := relative_gap(event.incumbent, event.bound)):
        parts.append(f"gap {far:.1%}")
    if event.text:
        parts.append(event.text)
    return "  ".join(parts)
