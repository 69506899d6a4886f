"""One replica of the controller: run, stop, health. What it is made of: `wiring`."""

import functools
import threading
import time
from collections.abc import Callable, Mapping

import structlog

from kai_solver.cluster.api import Api, ApiError
from kai_solver.cluster.reflector import Reflector
from kai_solver.cluster.resources import Resource
from kai_solver.cluster.view import FIELDS, View
from kai_solver.controller.admission.webhook import Webhook
from kai_solver.controller.explaining import Explaining
from kai_solver.controller.faults import Faults
from kai_solver.controller.keeper import Keeper
from kai_solver.controller.loop import Reporter, Scheduler
from kai_solver.controller.serving import Answer, Callers, Limits, Route, Server, download, metrics, probe
from kai_solver.controller.settings import ControllerSettings
from kai_solver.controller.wiring import kube_settings, wire
from kai_solver.errors.barrier import listening
from kai_solver.kubeobjects import export_kai_snapshot
from kai_solver.metrics import Metrics

_LOG = structlog.get_logger(__name__)
WATCH = "watch of"
"""How the names of parts begin that keep what is known up to date."""

DRAIN_S = 15.0
"""How long a graceful stop waits for bindings and evictions under way."""

TELL_S = 5.0
"""How long it then takes to say what is left to say."""

END_S = 20.0
"""When a graceful stop waits for the API server no longer, whatever is under way."""

_LIMITS = Limits(threads=2, answer_s=600.0)
"""A snapshot of a large cluster is tens of megabytes, and may come through a slow tunnel."""


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
        self.stop = threading.Event()
        self.lost = False
        """It may not go on: it lost its leadership."""
        self.webhook: Webhook | None = None
        self._clock = clock
        self._explaining = Explaining()
        self._parts = wire(api, settings, (self._explaining, *reporters), clock)
        self._telling: threading.Thread | None = None
        self._keeper = Keeper(self.stop)
        self._faults = Faults(self._parts.metrics)
        self.metrics.loop_alive.set_function(lambda: time.time() - self._still_s)

    @property
    def metrics(self) -> Metrics:
        """All that it counts."""
        return self._parts.metrics

    @property
    def scheduler(self) -> Scheduler:
        """Its loop."""
        return self._parts.scheduler

    def run(self) -> bool:
        """Run until told to stop; False where leadership was lost, so that the process must end.

        Raises
        ------
        InputError
            An address cannot be served on.
        """
        with listening(self._faults), listening(self.scheduler.quarantine.caught):
            return self._run()

    def _run(self) -> bool:
        parts, acts = self._parts, not self.settings.dry_run
        servers = self._serve()
        self.webhook = self._make_webhook()
        parts.known.kin.watch = self._watch
        for kind in parts.known.kinds:
            self._watch(kind)
        start = self._keeper.start
        start("owners", lambda: parts.known.kin.run(self.stop))
        start("signing keys", lambda: parts.keys.run(self.stop))
        if parts.teller is not None:
            self._telling = start("statuses and events", functools.partial(parts.teller.run, self.stop))
        if acts and self.settings.leadership.enabled:
            start("leadership", lambda: parts.lease.run(self._on_lost))
        if acts:
            start("clean-up", lambda: parts.preparing.clean(self.stop))
            start("look for KAI's scheduler", lambda: parts.rival.run(self.stop))
        try:
            with parts.decider:
                parts.scheduler.run(self.stop)
        finally:
            self._drain()
            for server in (*servers, *([self.webhook] if self.webhook else ())):
                server.close()
        return not self.lost

    def _watch(self, kind: Resource) -> None:
        store, is_optional = self._parts.known.store, kind not in FIELDS
        reflector = Reflector(self._parts.api, kind, store, self.stop, self._complain, is_optional=is_optional)
        self._keeper.start(f"{WATCH} {kind.name}", reflector.run)

    def fence(self) -> bool:
        """Whether this replica may act now."""
        return self._parts.fence()

    def not_healthy(self) -> str:
        """What is wrong with the loop; empty where it moves."""
        limit_s = self.settings.stuck_after + 2 * self._parts.decider.budget_s
        return f"the loop has not moved for {self._still_s:.0f} s" if self._still_s > limit_s else ""

    @property
    def _still_s(self) -> float:
        """For how long the loop has not moved; not a number before it begins."""
        beat_s = self.scheduler.beat_s
        return time.monotonic() - beat_s if beat_s else float("nan")

    def not_ready(self) -> str:
        """What is missing before it can decide; empty where nothing is. A replica that waits to lead is ready."""
        if self._parts.contact.problem:
            return self._parts.contact.problem
        missing = self._parts.known.missing
        if missing:
            return f"not listed yet: {', '.join(missing)}"
        if self._parts.rival.problem:
            return f"{self._parts.rival.problem}; nothing is decided here"
        blind = [f"{part} fails: {why}" for part, why in self._keeper.failing.items() if part.startswith(WATCH)]
        if blind:
            return f"what is known grows old: {'; '.join(blind)}"
        return self.webhook.not_ready() if self.webhook else ""

    def explain(self, query: Mapping[str, str]) -> Answer:
        """Why the pod of this ``namespace`` and name (``pod``) waits, by the newest decision; JSON, or 4xx and 503."""
        problem = self.not_ready() or ("" if self.fence() else self._who_leads())
        if problem:
            return Answer(503, f"{problem}\n".encode())
        return self._explaining.answer(query, self._parts.known.store, kube_settings(self.settings))

    def _who_leads(self) -> str:
        holder = self._parts.lease.holder
        leader = f"{holder} does" if holder else "nobody does yet"
        return f"this replica waits to lead and decides nothing; {leader}"

    def snapshot(self) -> bytes:
        """What it sees now, as KAI's own ``/get-snapshot`` would write it."""
        known = self._parts.known
        objects = View(known.store, known.assumed, known.kin.objects).objects(self._clock())
        return export_kai_snapshot(objects, kube_settings(self.settings))

    def _serve(self) -> list[Server]:
        """A listener for each address: what clients do to one reaches no other."""
        stated, callers = self.settings, Callers(self.api)
        answers: dict[str, Route] = {
            "/explain": self.explain,
            "/get-snapshot": download("snapshot.zip", "application/zip", self.snapshot),
        }
        parts: tuple[tuple[str, str, dict[str, Route]], ...] = (
            ("metrics", stated.metrics_bind_address, {"/metrics": metrics(self.metrics.registry)}),
            (
                "health",
                stated.health_bind_address,
                {"/healthz": probe(self.not_healthy), "/readyz": probe(self.not_ready)},
            ),
            ("answers", stated.answers_bind_address, answers),
        )
        names: dict[str, str] = {}
        served: dict[str, dict[str, Route]] = {}
        for name, address, routes in parts:
            names.setdefault(address, name)
            served.setdefault(address, {}).update(routes)
        guarded = (*answers, "/metrics") if stated.metrics_authorization else answers
        guards = dict.fromkeys(guarded, callers)
        return [
            Server(address, routes, guards=guards, limits=_LIMITS, note_drop=self._count_drops(names[address]))
            for address, routes in served.items()
            if address
        ]

    def _count_drops(self, listener: str) -> Callable[[str], None]:
        return lambda reason: self.metrics.dropped_connections.labels(listener, reason).inc()

    def _make_webhook(self) -> Webhook | None:
        """Every replica serves it, whether it leads or not; a dry run must not refuse anything."""
        stated = self.settings
        if not stated.admission.enabled or stated.dry_run:
            return None
        read_by, note_drop = kube_settings(stated), self._count_drops("admission")
        return Webhook(self.api, self._parts.known.store, stated, read_by, self.metrics, self._clock, note_drop)

    def _drain(self) -> None:
        """Let bindings under way end, and another replica begin: what was half done is finished, nothing new begins.

        Who may not write has nothing to wait for.
        """
        self.stop.set()
        parts, ends_s = self._parts, time.monotonic() + DRAIN_S
        end = threading.Timer(END_S, self._cut)
        end.daemon = True
        end.start()
        while self._is_at_work and time.monotonic() < ends_s and self.fence() and not self.lost:
            time.sleep(0.05)
        if parts.teller is not None and self._telling is not None and self.fence() and not self.lost:
            self._telling.join(TELL_S)
            parts.teller.drain(TELL_S)
        parts.lease.release()
        self._cut()
        end.cancel()
        parts.pools.close()

    def _cut(self) -> None:
        """Nothing is asked of the API server any more; who waits for it in another thread is told so at once."""
        self._parts.over.set()
        self.api.close()

    @property
    def _is_at_work(self) -> bool:
        return self.scheduler.binder.at_work or self.scheduler.evictor.at_work

    def _on_lost(self) -> None:
        _LOG.error("leadership is lost: this process ends")
        self.lost = True
        self.stop.set()

    def _complain(self, resource: Resource, error: ApiError) -> None:
        self.metrics.relists.labels(resource.name, error.reason).inc()
        _LOG.warning("list or watch failed", resource=resource.name, error=str(error))
