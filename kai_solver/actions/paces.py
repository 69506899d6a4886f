"""A pace (`context.Pace`) that knows nothing but an end."""

from collections.abc import Callable


class UntilLate:
    """No action gives way, no turn has a share, and all end with the time."""

    def __init__(self, is_late: Callable[[], bool]) -> None:
        self.is_late = is_late

    def start(self, actions_left: int, *, may_yield: bool) -> None:
        """Nothing is shared out."""

    def attempted(self, *, served: bool) -> None:
        """Nothing gives way."""

    def is_fruitless(self) -> bool:
        """Never."""
        return False

    def start_attempt(self) -> None:
        """No attempt has a share."""

    def is_over(self) -> bool:
        """True where the time has ended."""
        return self.is_late()

    def is_attempt_over(self) -> bool:
        """True where the time has ended."""
        return self.is_late()
