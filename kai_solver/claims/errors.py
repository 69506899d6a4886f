"""What selectors fail with."""


class SelectorError(Exception):
    """A selector that cannot be read, or fails for a device. ``cost``: the cost of the evaluation."""

    def __init__(self, text: str, *, cost: int = 0) -> None:
        super().__init__(text)
        self.cost = cost
