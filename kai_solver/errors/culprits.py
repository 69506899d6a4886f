"""Finds which of many items make an operation fail, by leaving items out."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

Result = TypeVar("Result")

MOST_CULPRITS = 3
"""Most items that one search by bisection finds."""

MOST_FAILURES = 24
"""Failed attempts after which a search for many items ends."""


@dataclass(frozen=True, slots=True)
class Kept(Generic[Result]):
    """What a search for many items ends with.

    Attributes
    ----------
    result
        Of the last attempt that did not fail.
    blamed
        Items that make it fail, with their errors.
    unknown
        Items that were left out with them, of which the search did not find whether they make it fail.
    """

    result: Result
    blamed: dict[int, Exception]
    unknown: frozenset[int]


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


def without_many(
    kinds: Sequence[Hashable],
    attempt: Callable[[frozenset[int]], Result],
    named: Callable[[Exception], int | None],
    *,
    may_try: Callable[[], bool],
) -> Kept[Result]:
    """What ``attempt`` returns without the items that make it fail, where they may be many.

    All items are left out at first, and then taken in by halves. So some are served whenever the search ends.

    Parameters
    ----------
    kinds
        The kind of each item. Items like one that makes ``attempt`` fail have their turn last.
    attempt
        Performs the operation without the given items.
    named
        The item that an error names.
    may_try
        Called before each further attempt. If it returns False, the search ends, as it does after `MOST_FAILURES`.

    Raises
    ------
    Exception
        Of ``attempt`` without all items: none of them causes it.
    """
    everything = frozenset(range(len(kinds)))
    result, kept, failures = attempt(everything), frozenset[int](), 0
    blamed: dict[int, Exception] = {}
    waiting, again = [sorted(everything)], list[list[int]]()
    while (waiting or again) and failures < MOST_FAILURES and may_try():
        block = waiting.pop() if waiting else again.pop()
        try:
            result = attempt(everything - kept.union(block))
        except Exception as error:
            failures += 1
            culprit = block[0] if len(block) == 1 else named(error)
            alike: list[int] = []
            if culprit is not None and culprit in block:
                blamed[culprit] = error
                again += [[culprit]] if len(block) > 1 else []  # An error may name the wrong one.
                block, alike = _parted([item for item in block if item != culprit], kinds, kinds[culprit])
            halves = block[len(block) // 2 :], block[: len(block) // 2]
            waiting = [part for part in (alike, *waiting, *halves) if part]
        else:
            kept = kept.union(block)
    blamed = {item: error for item, error in blamed.items() if item not in kept}
    return Kept(result, blamed, everything - kept - blamed.keys())


def _parted(items: list[int], kinds: Sequence[Hashable], kind: Hashable) -> tuple[list[int], list[int]]:
    """Those of other kinds, and those of ``kind``; all of them first if there is no other."""
    others = [item for item in items if kinds[item] != kind]
    return (others, [item for item in items if kinds[item] == kind]) if others else (items, [])


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
