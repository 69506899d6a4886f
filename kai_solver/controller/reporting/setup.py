"""The status reporter of one controller, put together."""

from collections.abc import Callable, Mapping

import structlog

from kai_solver.cluster.api import Api, ApiError
from kai_solver.cluster.events import Events
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
        _LOG.warning("a status or event was refused", object=key, error=str(error))

    writer = Writer(fence, busy, settings.status_rate, complain=complain)
    events = Events(api, writer, settings.scheduler_name, clock)
    context = ReportContext(store, Statuses(api, store, writer), events, settings.node_pool or "default", clock)
    placing = Placing(context)
    groups = Groups(context, placing, write=settings.grouping == "own", write_plain=settings.write_pod_groups)
    groups.sums = sums = settings.accounting == "own"
    return StatusReporter(context, writer, groups, placing, problem, own, sums=sums)
