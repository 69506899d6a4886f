"""Structured logs on standard error: every line an event, whoever wrote it."""

import logging
import sys
import threading
from typing import Any

import structlog

from kai_solver.controller.settings import ControllerSettings

_LOG = structlog.get_logger(__name__)


def configure_logs(settings: ControllerSettings) -> None:
    """JSON, or lines for people; warnings of libraries and faults of threads come in the same form."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Any] = [structlog.dev.ConsoleRenderer()]
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


def _note_fault(fault: threading.ExceptHookArgs) -> None:
    """A thread ended that should not have."""
    if fault.exc_value is not None:
        _LOG.error("a thread failed", thread=fault.thread.name if fault.thread else "", exc_info=fault.exc_value)
