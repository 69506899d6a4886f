"""Telling somebody what must not harm whoever tells it."""

from collections.abc import Callable

import structlog

_LOG = structlog.get_logger(__name__)


def guarded(what: str, tell: Callable[[], None]) -> None:
    """Tell; a fault of whoever is told is logged and ends here; ``what``: what was being done."""
    try:
        tell()
    except Exception:
        _LOG.exception("a listener failed", what=what)
