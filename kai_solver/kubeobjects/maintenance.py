"""Maintenance in annotations: when nodes are drained, and how long pods run (docs/operating.md#maintenance)."""

from collections.abc import Mapping

from kai_solver.errors import InputError, shown
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import Notices
from kai_solver.kubeobjects.raw import parse_time_s
from kai_solver.units import FIRST_S, parse_duration_s


def read_drain_at_s(annotations: Mapping[str, str], name: str, notices: Notices) -> float | None:
    """Epoch seconds at which node ``name`` is drained, None: never; an invalid time is reported and not used.

    Programs in Go write the first second of year 1 where no time is set: it must not empty a node.
    """
    value = annotations.get(names.OWN_DRAIN_AT)
    if value is None:
        return None
    found = parse_time_s(value)
    if found is not None and found > FIRST_S:
        return found
    why = "" if found is None else ": programs write it where no time is set"
    cure = "Write a time such as 2026-01-31T12:00:00Z"
    notices.warn(name, f"{names.OWN_DRAIN_AT} {shown(value)} is not honoured{why}. {cure}")
    return None


def read_run_time_s(annotations: Mapping[str, str], name: str, notices: Notices) -> float | None:
    """Seconds that pod ``name`` says it runs, at most; None: nothing; an invalid value is reported and not used."""
    value = annotations.get(names.OWN_RUN_TIME)
    if value is None:
        return None
    try:
        found = parse_duration_s(value)
    except InputError:
        found = 0.0
    if found > 0:
        return found
    cure = "Write a duration above 0, such as 90s or 2h"
    notices.warn(name, f"{names.OWN_RUN_TIME} {shown(value)} is not honoured. {cure}")
    return None
