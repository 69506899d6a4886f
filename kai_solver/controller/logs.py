"""Structured logs on standard error: every line an event, of libraries, too."""

import logging
import os
import sys
import threading
from collections.abc import MutableMapping
from typing import Any

import structlog

from kai_solver import __version__
from kai_solver.controller.settings import ControllerSettings
from kai_solver.errors import printable

_LOG = structlog.get_logger(__name__)


def configure_logs(settings: ControllerSettings) -> None:
    """JSON, or lines for people; warnings of libraries and faults of threads come in the same form."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _one_line,
    ]
    last: list[Any] = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty() and not os.environ.get("NO_COLOR"))]
    if settings.log_format == "json":
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    form = structlog.stdlib.ProcessorFormatter
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(form(processors=[form.remove_processors_meta, *last], foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    threading.excepthook = _note_fault


def log_start(settings: ControllerSettings) -> None:
    """The first line: version, the settings that are not the defaults, and how it is decided which replica leads.

    Settings name Secrets and files, and hold no secret themselves.
    """
    if settings.dry_run:
        leadership = "none: a dry run changes nothing"
    elif settings.leadership.enabled:
        leadership = f"by the Lease {settings.namespace}/{settings.lease_name}"
    else:
        leadership = "this replica leads: no election"
    changed = settings.model_dump(mode="json", exclude_defaults=True)
    _LOG.info("kai-solver starts", version=__version__, settings=changed, leadership=leadership)


def _one_line(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Names and messages of objects forge no lines; traces keep theirs."""
    for key, value in event.items():
        if isinstance(value, str) and key != "trace":
            event[key] = printable(value)
    return event


def _note_fault(fault: threading.ExceptHookArgs) -> None:
    """A thread ended that should not have."""
    if fault.exc_value is not None:
        _LOG.error("a thread failed", thread=fault.thread.name if fault.thread else "", exc_info=fault.exc_value)
