"""The status reporter of one controller, put together."""

import functools
from collections.abc import Callable, Mapping

import structlog

from kai_solver.cluster.api import Api, ApiError, meta
from kai_solver.cluster.events import About, Events
from kai_solver.cluster.statuses import Statuses
from kai_solver.cluster.store import Store
from kai_solver.cluster.writer import Writer
from kai_solver.controller.reporting.context import ReportContext
from kai_solver.controller.reporting.groups import Groups
from kai_solver.controller.reporting.placing import Placing
from kai_solver.controller.reporting.status_reporter import StatusReporter
from kai_solver.controller.settings import ControllerSettings
from kai_solver.kubeobjects.grouping import OwnGroup
from kai_solver.problem import Problem

_LOG = structlog.get_logger(__name__)


def make_status_reporter(
    api: Api,
    store: Store,
    settings: ControllerSettings,
    fence: Callable[[], bool],
    busy: Callable[[], bool],
    problem: Callable[[], Problem | None],
    own: Callable[[], Mapping[str, OwnGroup]],
    clock: Callable[[], float],
) -> StatusReporter:
    """Reports while ``fence`` holds, slowly while ``busy``; the rest as `StatusReporter` has it."""

    def complain(key: tuple[str, ...], error: ApiError) -> None:
        if error.is_passing:
            _LOG.warning("writes of a status or event fail again and again", object=key, error=str(error))
        else:
            _LOG.warning("a status or event was refused", object=key, error=str(error))

    writer = Writer(fence, busy, settings.status_rate, complain=complain)
    events = Events(api, writer, settings.scheduler_name, clock, functools.partial(_is_there, store))
    context = ReportContext(store, Statuses(api, store, writer), events, settings.node_pool or "default", clock)
    placing = Placing(context)
    groups = Groups(context, placing, write=settings.grouping == "own", write_plain=settings.write_pod_groups)
    groups.sums = sums = settings.accounting == "own"
    return StatusReporter(context, writer, groups, placing, problem, own, sums=sums)


def _is_there(store: Store, about: About) -> bool:
    """Whether this very object is there; any of its name where its uid was not known."""
    found = store.get(about.resource, f"{about.namespace}/{about.name}" if about.namespace else about.name)
    return found is not None and about.uid in ("", meta(found).get("uid"))
