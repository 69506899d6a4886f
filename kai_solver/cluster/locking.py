"""Optimistic locking: what changed between reading and writing is read again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kai_solver.cluster.api import ApiError, Object

TRIES = 8


def locking(read: Callable[[], Object], write: Callable[[Object], None]) -> None:
    """Write upon what was read; again where it changed in between.

    Raises
    ------
    ApiError
        It failed, or changed all the time.
    """
    for left in reversed(range(TRIES)):
        try:
            write(read())
        except ApiError as error:
            if not error.is_conflict or not left:
                raise
        else:
            return


@contextmanager
def if_there() -> Iterator[None]:
    """Take something back: what is gone, or has become another's, need not be."""
    try:
        yield
    except ApiError as error:
        if not (error.is_missing or error.is_conflict):
            raise
