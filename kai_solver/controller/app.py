"""One replica of the controller: run, stop, health. What it is made of: `wiring`."""

import functools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import structlog

from kai_solver.cluster.api import Api, ApiError
from kai_solver.cluster.reflector import Reflector
from kai_solver.cluster.resources import Resource
from kai_solver.cluster.view import WATCHED, View
from kai_solver.controller.admission.webhook import Webhook
from kai_solver.controller.collecting import collect_until
from kai_solver.controller.explaining import Explaining
from kai_solver.controller.faults import Faults
from kai_solver.controller.keeper import Keeper
from kai_solver.controller.loop import Reporter, Scheduler
from kai_solver.controller.reporting.deciding import Planned
from kai_solver.controller.serving import Answer, Callers, Limits, Route, Server, download, metrics, probe
from kai_solver.controller.settings import ControllerSettings
from kai_solver.controller.wiring import wire
from kai_solver.errors import KaiSolverError
from kai_solver.errors.barrier import barrier, caught, listening
from kai_solver.kubeobjects import export_kai_snapshot, names
from kai_solver.kubeobjects.stored import FORMAT, noted_format
from kai_solver.metrics import Metrics

_LOG = structlog.get_logger(__name__)
WATCH = "watch of"
"""How the names of parts begin that keep what is known up to date."""

DRAIN_S = 15.0
"""How long a graceful stop waits for bindings and evictions under way."""

REPORT_S = 5.0
"""How long it then takes to say what is left to say."""

END_S = 20.0
"""When a graceful stop no longer waits for the API server, whatever is in progress."""

MEET_S, LONGEST_MEET_S = 0.5, 5.0
"""Delay between attempts to reach the API server at the start: at first, and at last."""

REFUSED_S = 20.0
"""How long a refusal at the start is not believed."""

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
        Get cycles beside logs and metrics.
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
        """This replica must end: another one leads."""
        self.webhook: Webhook | None = None
        self._clock = clock
        self._explaining = Explaining()
        self._planned = Planned(clock, settings.dry_run)
        self._parts = wire(api, settings, (self._explaining, self._planned, *reporters), clock)
        self._reporting: threading.Thread | None = None
        self._keeper = Keeper(self.stop)
        self._faults = Faults(self._parts.metrics)
        self._reflectors: tuple[Reflector, ...] = ()
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
        """Run until asked to stop; False where another replica leads, so that the process must end.

        Raises
        ------
        InputError
            An address cannot be served on.
        ApiError
            The API server refuses to say what has to be known first.
        """
        with listening(self._faults), listening(self.scheduler.quarantine.caught):
            return self._run()

    def _run(self) -> bool:
        servers = self._serve()
        self.webhook = self._make_webhook()
        try:
            with ExitStack() as ends:
                ends.push(self._parts.decider)
                if self._meet():
                    self._begin()
                    with self._parts.decider:
                        self.scheduler.run(self.stop)
        finally:
            self._drain()
            for server in (*servers, *([self.webhook] if self.webhook else ())):
                server.close()
        return not self.lost

    def _meet(self) -> bool:
        """Wait until the API server answers the first requests; False if asked to stop before.

        Raises
        ------
        ApiError
            The API server refuses for `REFUSED_S`: a server that has just started may not know our rights yet.
        """
        parts, pause_s, began_s = self._parts, MEET_S, time.monotonic()
        while not self.stop.is_set():
            try:
                if not self.settings.dry_run:
                    parts.rival.look()
                parts.known.owners.discover()
            except ApiError as error:
                is_young = error.status in (401, 403) and time.monotonic() - began_s < REFUSED_S
                if not (error.is_passing or is_young):
                    raise
                _LOG.warning("waiting for the API server", error=str(error))
            except KaiSolverError:
                raise
            except Exception as error:
                caught("running", "the start", error)
            else:
                return True
            self.stop.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_MEET_S)
        return False

    def _begin(self) -> None:
        """Start all parts. Leadership is tried first: what is listed before a lead begins is listed again."""
        parts, acts, start = self._parts, not self.settings.dry_run, self._keeper.start
        if acts and self.settings.leadership.enabled:
            parts.lease.is_idle = self._is_idle
            parts.lease.on_led, parts.lease.on_lost = self._on_led, self._on_lost
            with barrier("running", "leadership"):
                if not parts.lease.attempt():
                    _LOG.info("this replica waits to lead", leader=parts.lease.holder)
            start("leadership", lambda: parts.lease.run(self._on_followed))
        parts.known.owners.watch = self._watch
        for kind in parts.known.kinds:
            self._watch(kind)
        start("garbage collector", lambda: collect_until(self.stop))
        start("owners", lambda: parts.known.owners.run(self.stop))
        start("signing keys", lambda: parts.keys.run(self.stop))
        start("past usage", lambda: parts.past_usage.run(self.stop))
        if parts.status_reporter is not None:
            self._reporting = start("statuses and events", functools.partial(parts.status_reporter.run, self.stop))
        if acts:
            for what, clean in parts.preparing.clean.items():
                start(f"clean-up of {what}", functools.partial(clean, self.stop))
            start("look for KAI's scheduler", lambda: parts.rival.run(self.stop))

    def _watch(self, kind: Resource) -> None:
        store, is_optional = self._parts.known.store, kind not in WATCHED
        found = Reflector(self._parts.api, kind, store, self.stop, self._complain, is_optional=is_optional)
        self._reflectors = (*self._reflectors, found)
        self._keeper.start(f"{WATCH} {kind.name}", found.run)

    def _on_led(self) -> None:
        """Read the cluster again; nothing is decided before that, and nothing of an earlier lead is believed."""
        _LOG.info("this replica leads")
        former = self._parts.lease.former
        if number := noted_format(former):
            _LOG.warning(
                "a newer version led before: values that it stored in a newer format are set aside",
                version=str(former.get(names.OWN_VERSION, "")),
                format=number,
                reads=FORMAT,
            )
        self._parts.known.store.outdate()
        self.scheduler.begin()
        self._parts.preparing.clear()
        reflectors = self._reflectors
        for one in reflectors:
            one.renew()
        if reflectors:
            self.api.hang_up()

    def _on_lost(self) -> None:
        """End work in progress without an answer, so that it is over before another lead begins."""
        _LOG.error("leadership lost: nothing is written until it is won again")
        self.api.hang_up()

    def _is_idle(self) -> bool:
        """Whether all work of an earlier lead has ended; other work is cut off once more."""
        is_idle = self.scheduler.is_idle
        if not is_idle:
            self.api.hang_up()
        return is_idle

    def _on_followed(self) -> None:
        _LOG.error("another replica leads: this process exits")
        self.lost = True
        self.stop.set()

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
            return f"{self._parts.rival.problem}; this replica decides nothing"
        blind = [f"{part} fails: {why}" for part, why in self._keeper.failing.items() if part.startswith(WATCH)]
        if blind:
            return f"data is getting old: {'; '.join(blind)}"
        return self.webhook.not_ready() if self.webhook else ""

    def explain(self, query: Mapping[str, str]) -> Answer:
        """Why the pod of this ``namespace`` and name (``pod``) waits, by the newest decision; JSON, or 4xx and 503."""
        return self._unable() or self._explaining.answer(query, self._parts.known.store, self._parts.policy())

    def plan(self, query: Mapping[str, str]) -> Answer:
        """What the newest cycle decides, gang by gang; JSON, or 503."""
        return self._unable() or self._planned.answer(query)

    def recording(self, _: Mapping[str, str]) -> Answer:
        """What a dry run has stored: JSON lines; 404 where it stores nothing."""
        recorder = self._parts.recorder
        if recorder is None:
            why = "nothing is recorded: set recording.folder" if self.settings.dry_run else "this is not a dry run"
            return Answer(404, f"{why}\n".encode())
        return Answer(200, b"", "application/jsonl", "decisions.jsonl", recorder.content())

    def _unable(self) -> Answer | None:
        """Why this replica cannot say what is decided; None where it can."""
        problem = self.not_ready() or ("" if self.fence() else self._leader_text())
        return Answer(503, f"{problem}\n".encode()) if problem else None

    def _leader_text(self) -> str:
        holder = self._parts.lease.holder
        leader = f"{holder} leads" if holder else "no replica leads yet"
        return f"this replica waits to lead and decides nothing; {leader}"

    def snapshot(self) -> bytes:
        """What it sees now, as KAI's own ``/get-snapshot`` would write it."""
        known = self._parts.known
        view = View(known.store, known.assumed, known.owners.objects, queues=self._parts.past_usage.overlay)
        objects = view.objects(self._clock())
        return export_kai_snapshot(objects, self._parts.policy())

    def _serve(self) -> list[Server]:
        """A listener for each address: clients of one do not affect the others."""
        stated, callers = self.settings, Callers(self.api)
        answers: dict[str, Route] = {
            "/explain": self.explain,
            "/plan": self.plan,
            "/recording": self.recording,
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
        parts, note_drop = self._parts, self._count_drops("admission")
        return Webhook(self.api, parts.known.store, stated, parts.policy, self.metrics, self._clock, note_drop)

    def _drain(self) -> None:
        """Let bindings in progress end, and another replica begin: half-done work is finished, nothing new begins.

        A replica that may not write has nothing to wait for.
        """
        self.stop.set()
        parts, ends_s = self._parts, time.monotonic() + DRAIN_S
        end = threading.Timer(END_S, self._cut)
        end.daemon = True
        end.start()
        while self._is_at_work and time.monotonic() < ends_s and self.fence() and not self.lost:
            time.sleep(0.05)
        if parts.status_reporter is not None and self._reporting is not None and self.fence() and not self.lost:
            self._reporting.join(REPORT_S)
            with barrier("reporting", "what is left to say"):
                parts.status_reporter.drain(REPORT_S)
        with barrier("running", "leadership"):
            parts.lease.release()
        self._cut()
        parts.identity.close()
        if parts.recorder is not None:
            parts.recorder.close()
        end.cancel()
        parts.pools.close()

    def _cut(self) -> None:
        """Send no more requests to the API server; threads that wait for it get an error at once."""
        self._parts.over.set()
        self.api.close()

    @property
    def _is_at_work(self) -> bool:
        return self.scheduler.binder.at_work or self.scheduler.evictor.at_work

    def _complain(self, resource: Resource, error: ApiError) -> None:
        self.metrics.relists.labels(resource.name, error.reason).inc()
        # The server keeps changes for some minutes: a kind that changes seldom is listed again every now and then.
        log = _LOG.debug if error.is_gone else _LOG.warning
        log("list or watch failed", resource=resource.name, error=str(error))
