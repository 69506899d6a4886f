"""Tries requests again that fail for a while, for as long as this process may act."""

from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential
from tenacity.stop import stop_base

from kai_solver.cluster.api import ApiError, FenceError
from kai_solver.errors import KaiSolverError

TRY_S = 20.0
"""How long a write is tried: longer than an API server takes to restart."""

FIRST_WAIT_S = 0.05

Result = TypeVar("Result")


class UnsettledError(KaiSolverError):
    """The server refused as if the object had changed, but it has not: the request is tried again."""


def trying(
    act: Callable[[], Result],
    fence: Callable[[], bool],
    sleep: Callable[[float], None],
    stop: stop_base | None = None,
) -> Result:
    """Try it repeatedly while it may still work, and no longer than ``stop`` (None: `TRY_S`) says.

    Raises
    ------
    ApiError
        It fails for good, or for too long.
    FenceError
        This process may not act.
    """

    def fenced() -> Result:
        if not fence():
            raise FenceError
        return act()

    retrying = Retrying(
        retry=retry_if_exception(_is_passing),
        wait=_wait_as_asked,
        stop=stop or stop_after_delay(TRY_S),
        sleep=sleep,
        reraise=True,
    )
    # The library leaves cycles of references behind, which the collector hardly ever looks for: 20 objects of each
    # binding (2026-11-27). What it is to do next holds itself, and an error holds the frames that hold the error.
    try:
        return retrying(fenced)
    except (ApiError, FenceError) as error:
        error.with_traceback(None)
        raise
    finally:
        retrying.iter_state.reset()


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, UnsettledError) or (isinstance(error, ApiError) and error.is_passing)


_BACKOFF = wait_random_exponential(multiplier=FIRST_WAIT_S, max=5.0)


def _wait_as_asked(state: RetryCallState) -> float:
    """The delay that the server asked for, within a limit; otherwise twice as long each time, with jitter."""
    error = state.outcome.exception() if state.outcome else None
    asked_s = error.retry_after_s if isinstance(error, ApiError) else None
    return max(min(asked_s or 0.0, TRY_S), _BACKOFF(state))
