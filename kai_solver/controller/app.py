"""One replica of the controller, put together: who watches, who decides, who acts, who answers."""

import functools
import logging
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import structlog
from prometheus_client import Counter

from kai_solver.cluster import lease
from kai_solver.cluster.api import Api, ApiError, meta
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.binding import Binder
from kai_solver.cluster.evicting import Evictor, Rates
from kai_solver.cluster.lease import Lease, LeaseTimes
from kai_solver.cluster.promises import Promises
from kai_solver.cluster.reflector import Reflector
from kai_solver.cluster.resources import OWNER_KINDS, PRIORITY_CLASSES, Resource
from kai_solver.cluster.store import Store
from kai_solver.cluster.view import FIELDS, View
from kai_solver.controller.admission.webhook import Webhook
from kai_solver.controller.deciding import Decider
from kai_solver.controller.endings import Endings
from kai_solver.controller.gauges import ClusterGauges
from kai_solver.controller.loop import Pace, Reporter, Scheduler
from kai_solver.controller.preparing import preparing
from kai_solver.controller.reporting import LogReporter, MetricReporter, Reporters
from kai_solver.controller.server import Route, Server, download, metrics, probe
from kai_solver.controller.settings import ControllerSettings
from kai_solver.controller.telling import Teller
from kai_solver.controller.telling.setup import make_teller
from kai_solver.engine.progress import Fault
from kai_solver.errors import InputError
from kai_solver.kubeobjects import KubeSettings, export_kai_snapshot
from kai_solver.kubeobjects.grouping import OwnGroup
from kai_solver.metrics import Metrics

_LOG = structlog.get_logger(__name__)
DRAIN_S = 20.0
"""How long a graceful stop waits for bindings under way."""

TELL_S = 5.0
"""How long it then takes to say what is left to say."""


def configure_logs(settings: ControllerSettings) -> None:
    """Structured logs on standard error: JSON, or lines for people."""
    render = structlog.processors.JSONRenderer() if settings.log_format == "json" else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[settings.log_level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


class Controller:
    """A replica.

    Parameters
    ----------
    api
        The cluster.
    settings
        How it is set up.
    reporters
        Told of cycles beside logs and metrics.
    """

    def __init__(
        self,
        api: Api,
        settings: ControllerSettings,
        reporters: tuple[Reporter, ...] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.api = api
        self.settings = settings
        self.metrics = Metrics(namespace=settings.metrics_namespace)
        self.store = Store()
        self.assumed = Assumed()
        self.promises = Promises()
        self.stop = threading.Event()
        self.lost = False
        self.webhook: Webhook | None = None
        self._clock = clock
        self._writes = ThreadPoolExecutor(settings.workers.writes, "write")
        self._gangs = ThreadPoolExecutor(settings.workers.gangs, "gang")
        self._waits = ThreadPoolExecutor(settings.workers.waits, "wait")
        self._owners = _owners(api)
        self._preparing = preparing(api, self.store, settings, self.fence)
        self._decider = Decider(settings.model, settings.budget, self._note_fault)
        self._lease = self._make_lease()
        self._own_groups: Callable[[], Mapping[str, OwnGroup]] = dict
        self._telling: threading.Thread | None = None
        self._teller = None if settings.dry_run else self._make_teller()
        self.scheduler = self._make_scheduler(Reporters((*self._reporters(), *reporters)))

    def run(self) -> bool:
        """Run until told to stop; False where leadership was lost, so that the process must end.

        Raises
        ------
        InputError
            An address cannot be served on.
        """
        servers = self._serve()
        self.webhook = self._make_webhook()
        for kind in self._kinds():
            self._start(Reflector(self.api, kind, self.store, self.stop, self._complain).run)
        if self._teller is not None:
            self._telling = self._start(functools.partial(self._teller.run, self.stop))
        if self.settings.leadership.enabled and not self.settings.dry_run:
            self._start(lambda: self._lease.run(self._on_lost))
        if not self.settings.dry_run:
            self._start(lambda: self._preparing.sharing.run(self.stop))
        try:
            with self._decider:
                self.scheduler.run(self.stop)
        finally:
            self._drain()
            for server in (*servers, *([self.webhook] if self.webhook else ())):
                server.close()
        return not self.lost

    def fence(self) -> bool:
        """Whether this replica may act now."""
        leads = self._lease.is_held or not self.settings.leadership.enabled or self.settings.dry_run
        self.metrics.leader.set(leads)
        return leads

    def not_healthy(self) -> str:
        """What is wrong with the loop; empty where it moves."""
        still_s = time.monotonic() - self.scheduler.beat_s
        limit_s = self.settings.stuck_after + 2 * self._decider.budget_s
        if self.scheduler.beat_s and still_s > limit_s:
            return f"the loop has not moved for {still_s:.0f} s"
        return ""

    def not_ready(self) -> str:
        """What is missing before it can decide; empty where nothing is. A replica that waits to lead is ready."""
        missing = [kind.name for kind in self._kinds() if not self.store.is_synced((kind,))]
        if missing:
            return f"not listed yet: {', '.join(missing)}"
        return self.webhook.not_ready() if self.webhook else ""

    def snapshot(self) -> bytes:
        """What it sees now, as KAI's own ``/get-snapshot`` would write it."""
        objects = View(self.store, self.assumed, self._owners).objects(self._clock())
        return export_kai_snapshot(objects, self._kube_settings())

    def _kinds(self) -> tuple[Resource, ...]:
        return (*FIELDS, *self._owners)

    def _kube_settings(self) -> KubeSettings:
        stated = self.settings
        return KubeSettings(
            scheduler_name=stated.scheduler_name,
            queue_label_key=stated.queue_label_key,
            node_pool_key=stated.node_pool_key,
            node_pool=stated.node_pool,
            default_queue=stated.default_queue,
        )

    def _reporters(self) -> Iterator[Reporter]:
        """Who is told what happens: logs, metrics, the cluster."""
        endings = Endings(self.metrics, self.store)
        self.store.listen(endings)
        yield LogReporter()
        yield MetricReporter(self.metrics, self._clock, self._priority_classes)
        yield endings
        totals: dict[Counter, Callable[[], int]] = {
            self.metrics.assumed_expired: lambda: self.assumed.expired,
            self.metrics.promises_broken: lambda: self.promises.broken,
        }
        if self._teller is not None:
            counts = self._teller.writer.counts
            totals |= {
                self.metrics.status_writes.labels(outcome.name): functools.partial(getattr, counts, outcome.name)
                for outcome in fields(counts)
            }
            yield self._teller
        yield ClusterGauges(self.metrics, lambda: self._decider.problem, totals)

    def _make_teller(self) -> Teller:
        """Statuses and events: in the background, and only as the leader."""
        return make_teller(
            self.api,
            self.store,
            self.settings,
            self.fence,
            lambda: bool(self.scheduler.binder.open),
            lambda: self._decider.problem,
            lambda: self._own_groups(),
            self._clock,
        )

    def _priority_classes(self) -> dict[int, str]:
        """Names by value, the first by name of those that share one."""
        found = ((item.get("value"), str(meta(item).get("name"))) for item in self.store.all(PRIORITY_CLASSES))
        return {value: name for value, name in sorted(found, key=str, reverse=True) if isinstance(value, int)}

    def _make_lease(self) -> Lease:
        stated = self.settings.leadership
        times = LeaseTimes(stated.live, stated.renew, stated.retry)
        identity = f"{platform.node()}_{os.getpid()}_{os.urandom(4).hex()}"
        return Lease(self.api, self.settings.namespace, self.settings.lease_name, identity, times)

    def _make_scheduler(self, reporter: Reporter) -> Scheduler:
        stated = self.settings
        rates = Rates(stated.evictions.per_cycle, stated.evictions.per_queue)
        overlays, claims = (self.promises.overlay,), self._preparing.devices.overlay
        view = View(self.store, self.assumed, self._owners, self._kube_settings(), overlays, claims)
        self._own_groups = lambda: view.own_groups
        return Scheduler(
            store=self.store,
            view=view,
            decide=self._decider,
            binder=self._make_binder(reporter),
            evictor=Evictor(self.api, self.assumed, self.fence, rates, self._clock),
            promises=self.promises,
            reporter=reporter,
            fence=self.fence,
            gangs=self._gangs,
            writes=self._writes,
            pace=Pace(stated.period, stated.settle, stated.idle),
            dry_run=stated.dry_run,
            has_group=self._teller.has_group if self._teller is not None else lambda _: False,
            clock=self._clock,
        )

    def _make_binder(self, reporter: Reporter) -> Binder:
        return Binder(
            api=self.api,
            assumed=self.assumed,
            pool=self._writes,
            fence=self.fence,
            done=reporter.bound,
            steps=self._preparing.steps,
            waits=self._waits,
        )

    def _serve(self) -> list[Server]:
        scrape = metrics(self.metrics.registry)
        routes: dict[str, dict[str, Route]] = {}
        routes.setdefault(self.settings.metrics_bind_address, {})["/metrics"] = scrape
        routes.setdefault(self.settings.health_bind_address, {}).update(
            {
                "/healthz": probe(self.not_healthy),
                "/readyz": probe(self.not_ready),
                "/get-snapshot": download("snapshot.zip", "application/zip", self.snapshot),
            }
        )
        return [Server(address, found) for address, found in routes.items() if address]

    def _make_webhook(self) -> Webhook | None:
        """Every replica serves it, whether it leads or not; a dry run must not refuse anything."""
        if not self.settings.admission.enabled or self.settings.dry_run:
            return None
        return Webhook(self.api, self.store, self.settings, self._kube_settings(), self.metrics, self._clock)

    def _start(self, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        return thread

    def _drain(self) -> None:
        """Let bindings under way end, and another replica begin: what was half done is finished, nothing new begins."""
        self.stop.set()
        ends_s = time.monotonic() + DRAIN_S
        while self.scheduler.binder.open and time.monotonic() < ends_s and not self.lost:
            time.sleep(0.05)
        if self._teller is not None and self._telling is not None and not self.lost:
            self._telling.join(TELL_S)
            self._teller.drain(min(TELL_S, ends_s - time.monotonic()))
        self._lease.release()
        self._gangs.shutdown(wait=False, cancel_futures=True)
        self._writes.shutdown(wait=False, cancel_futures=True)
        self._waits.shutdown(wait=False, cancel_futures=True)
        self.api.close()

    def _on_lost(self) -> None:
        _LOG.error("leadership is lost: this process ends")
        self.lost = True
        self.stop.set()

    def _complain(self, resource: Resource, error: ApiError) -> None:
        self.metrics.relists.labels(resource.name, error.reason).inc()
        _LOG.warning("list or watch failed", resource=resource.name, error=str(error))

    def _note_fault(self, fault: Fault) -> None:
        self.metrics.fallbacks.labels("solver").inc()
        _LOG.error("the solver failed; the cycle goes on without it", error=fault.error)


def _owners(api: Api) -> tuple[Resource, ...]:
    """Kinds of owners that are installed."""
    found = (kind for kind in api.installed() if (kind.group, kind.kind) in OWNER_KINDS)
    return tuple(sorted(found, key=lambda kind: kind.name))


def refuse_beside_kai(
    api: Api, settings: ControllerSettings, kai_namespace: str = "kai-scheduler", wait_s: float = 6.0
) -> None:
    """Make sure that KAI's own scheduler is not at work on the same pods.

    Raises
    ------
    InputError
        Its Lease changed while we looked at it for ``wait_s`` seconds.
    """
    name = settings.scheduler_name + (f"-{settings.node_pool}" if settings.node_pool else "")
    if lease.is_live(api, kai_namespace, name, wait_s):
        problem = f"KAI's own scheduler is at work: its Lease {kai_namespace}/{name} is renewed"
        cure = "Scale it to 0, give kai-solver another scheduler_name, or run beside it with dry_run"
        raise InputError(problem, cure=cure)
