"""Finds which of many items make an operation fail, by leaving items out."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")

MOST_CULPRITS = 3
"""Most items that one search finds."""


def without_culprits(
    count: int,
    attempt: Callable[[frozenset[int]], Result],
    error: Exception,
    *,
    may_try: Callable[[], bool] = lambda: True,
) -> tuple[Result, dict[int, Exception]]:
    """What ``attempt`` returns without the items that make it fail, and these items with the errors that they cause.

    The first attempt repeats all items: an error that does not come again is not caused by an item. Then each item is
    found by bisection, in log2(n) + 2 attempts.

    Parameters
    ----------
    count
        The number of items; they are known by their numbers.
    attempt
        Performs the operation without the given items.
    error
        The error that was raised with all of them.
    may_try
        Called before each attempt of a bisection. If it returns False, all remaining items count as causes.

    Raises
    ------
    Exception
        The last error of ``attempt``, if it fails without all of them, or if more than `MOST_CULPRITS` items cause
        errors.
    """
    blamed: dict[int, Exception] = {}
    try:
        return attempt(frozenset()), blamed
    except Exception as again:
        error = again
    for _ in range(MOST_CULPRITS):
        left = [number for number in range(count) if number not in blamed]
        found = _bisect(left, frozenset(blamed), attempt, may_try)
        if not found:
            break
        blamed |= dict.fromkeys(found, error)
        try:
            return _with_innocent(attempt, attempt(frozenset(blamed)), blamed, may_try)
        except Exception as another:
            error = another
    raise error


def _with_innocent(
    attempt: Callable[[frozenset[int]], Result],
    result: Result,
    blamed: dict[int, Exception],
    may_try: Callable[[], bool],
) -> tuple[Result, dict[int, Exception]]:
    """The same without items found earlier that do not fail once the later ones are left out."""
    for number in list(blamed)[:-1] if len(blamed) <= MOST_CULPRITS else ():
        fewer = {other: error for other, error in blamed.items() if other != number}
        if not may_try():
            break
        with suppress(Exception):
            result, blamed = attempt(frozenset(fewer)), fewer
    return result, blamed


def _bisect(
    left: list[int], blamed: frozenset[int], attempt: Callable[[frozenset[int]], object], may_try: Callable[[], bool]
) -> list[int]:
    """The item of ``left`` without which those before it do not fail, or all candidates; none if there is none."""
    if not left or _fails(attempt, blamed.union(left)):
        return []
    good, bad = 0, len(left)
    while bad - good > 1 and may_try():
        middle = (good + bad) // 2
        if _fails(attempt, blamed.union(left[middle:])):
            bad = middle
        else:
            good = middle
    return left[good:bad]


def _fails(attempt: Callable[[frozenset[int]], object], left_out: frozenset[int]) -> bool:
    try:
        attempt(left_out)
    except Exception:
        return True
    return False
