"""Numbers as labels, annotations and owners state them."""

from collections import Counter
from collections.abc import Iterable

_LONGEST = 9


def positive(text: str) -> int | None:
    """A positive whole number; None where ``text`` is none."""
    return int(text) if text.isdecimal() and 0 < len(text) <= _LONGEST and int(text) > 0 else None


def natural(text: str) -> int | None:
    """A whole number from zero; None where ``text`` is none."""
    return int(text) if text.isdecimal() and 0 < len(text) <= _LONGEST else None


def sizes(values: Iterable[str]) -> dict[str, int]:
    """How often each value occurs, in the order of the values."""
    return dict(sorted(Counter(values).items()))
