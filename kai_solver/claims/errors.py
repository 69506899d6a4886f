"""What selectors fail with."""


class SelectorError(Exception):
    """A selector that cannot be read, or has no answer for a device. ``cost``: of finding that out."""

    def __init__(self, text: str, *, cost: int = 0) -> None:
        super().__init__(text)
        self.cost = cost
