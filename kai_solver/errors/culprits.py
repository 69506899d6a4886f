"""Which of many things make an operation fail, found by leaving things out."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")

MOST_CULPRITS = 3
"""Things to blame that are looked for in one search."""


def without_culprits(
    count: int,
    attempt: Callable[[frozenset[int]], Result],
    error: Exception,
    *,
    may_try: Callable[[], bool] = lambda: True,
) -> tuple[Result, dict[int, Exception]]:
    """What ``attempt`` gives without the things that make it fail, and those with the errors that they cause.

    First it is tried with all of them once more: an error that does not come again is no thing's fault. Then each is
    found by bisection, in log2(n) + 2 attempts.

    Parameters
    ----------
    count
        How many things there are; they are called by their numbers.
    attempt
        Does it without the things that it is given.
    error
        What was raised with all of them.
    may_try
        Asked before each attempt of a bisection. Where it says no, all that are left of it are to blame.

    Raises
    ------
    Exception
        The last error of ``attempt``, where it fails without any of them, or there are more to blame than
        `MOST_CULPRITS`.
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
    """The same without those that were found first and that do not fail where those found later are left out."""
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
    """The one of ``left`` without which those before it do not fail, or all that it may be; none where none is."""
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
