"""What selectors fail with."""


class SelectorError(Exception):
    """A selector that cannot be read, or has no answer for a device."""
