"""Leader election by a Lease, as client-go does it: 15 s to live, 10 s to renew, a try every 2 s.

The client library's own election sleeps on the wall clock, never lets go of a lease and leaves its worker running after
a loss (kubernetes 37); hence this module. Time is measured by the monotonic clock of this process alone: when another
holder renewed is judged by when *we* saw its record change, so that clocks that disagree do no harm.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from kai_solver.cluster.api import Api, ApiError, Object, meta
from kai_solver.cluster.resources import LEASES
from kai_solver.kubeobjects.raw import format_time

_LOG = structlog.get_logger(__name__)

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds; ``renew_s`` must be below ``live_s``: a leader must know that it lost before another may begin."""

    live_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0

    @property
    def answer_s(self) -> float:
        """How long one answer is waited for: a connection that died leaves time for another try on a new one."""
        return self.renew_s / 4


@dataclass(slots=True)
class _Seen:
    """The Lease's record, and when we first saw it as it is."""

    record: tuple[object, ...] = ()
    at_s: float = 0.0


class Lease:
    """One candidate for leadership.

    A lead that ended is never taken up again: the next one begins only when all that was under way has ended
    (``is_idle``), and the fence opens only when ``on_led`` has returned.

    Parameters
    ----------
    api
        Asked by connections of our own, and never for longer than `LeaseTimes.answer_s`.
    identity
        Unique among live candidates: what is held in this name already is taken over at once.
    monotonic, wall
        Clocks: the first decides, the second is only written down.
    notes
        Annotations that each lead of ours writes on the Lease.

    Attributes
    ----------
    is_idle
        Whether nothing is under way that began in an earlier lead.
    former
        Annotations of the Lease when the lead was taken: what earlier leaders noted.
    on_led
        A lead begins, and the fence is still closed.
    on_lost
        A lead ended without a release: the fence is closed.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        monotonic: Clock = time.monotonic,
        wall: Clock = time.time,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.identity = identity
        self.times = times or LeaseTimes()
        self.is_idle: Callable[[], bool] = lambda: True
        self.former: Mapping[str, object] = {}
        self.on_led: Callable[[], None] = lambda: None
        self.on_lost: Callable[[], None] = lambda: None
        self._api = api.within(self.times.answer_s)
        self._monotonic = monotonic
        self._wall = wall
        self._seen = _Seen()
        self._held_until_s = 0.0
        self._leads = False
        """Whether a lead has begun and no end of it was noted; it may have run out all the same."""
        self._has_lost = self._other_leads = False
        self._transitions = 0
        """``leaseTransitions`` of the lead that is ours."""
        self._notes = dict(notes or {})
        self._refused = ""
        self._stop = threading.Event()
        self._turn = threading.Lock()
        """One request after the other: a renewal that is under way must not take back what is being let go."""

    @property
    def is_held(self) -> bool:
        """Whether effects are allowed now: the fence. False once ``renew_s`` passed since the last renewal began."""
        return self._monotonic() < self._held_until_s

    @property
    def holder(self) -> str:
        """The other holder when we last looked; empty where there was none."""
        return str(self._seen.record[0] or "") if self._seen.record else ""

    def run(self, on_followed: Callable[[], None]) -> None:
        """Try to get and keep the lease until `release`.

        ``on_followed`` is called when the lead was lost and another candidate has it; then nothing more is tried.
        """
        while not self._stop.is_set():
            self.attempt()
            if self._has_lost and self._other_leads:
                on_followed()
                return
            self._stop.wait(self.times.retry_s)

    def attempt(self) -> bool:
        """One try to get or renew; a failure of the server leaves what is held to run out. None after `release`."""
        with self._turn:
            self._note_loss()
            began_s = self._monotonic()
            try:
                held = not self._stop.is_set() and self._acquire(began_s)
            except ApiError as error:
                self._say_refused(error)
                self._note_loss()
                return self.is_held
            if held and not self._leads:
                self.on_led()
                self._leads, self._has_lost, self._seen = True, False, _Seen()
            self._held_until_s = began_s + self.times.renew_s if held else 0.0
            self._note_loss()
            return held

    def _say_refused(self, error: ApiError) -> None:
        """Logged once for each reason: a missing right does not appear by waiting."""
        if not error.is_passing and error.reason != self._refused:
            self._refused = error.reason
            _LOG.warning(
                "the API server refuses the Lease: this replica cannot lead", lease=self.name, error=str(error)
            )

    def _note_loss(self) -> None:
        if self._leads and not self.is_held:
            self._leads, self._has_lost, self._held_until_s = False, not self._stop.is_set(), 0.0
            if self._has_lost:
                self.on_lost()

    def release(self) -> None:
        """Let another candidate take over at once; the fence closes first."""
        self._stop.set()
        held, self._held_until_s = self._held_until_s > 0, 0.0
        if not self._turn.acquire(timeout=2 * self.times.answer_s):
            return  # the server does not answer: it runs out by itself
        try:
            held, self._held_until_s = held or self._held_until_s > 0, 0.0
            if held:
                self._let_go()
        finally:
            self._turn.release()

    def _let_go(self) -> None:
        try:
            current = self._api.get(LEASES, self.namespace, self.name)
            if spec_of(current).get("holderIdentity") == self.identity:
                self._write(current, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except ApiError:
            return  # it runs out by itself

    def _acquire(self, now_s: float) -> bool:
        try:
            current = self._api.get(LEASES, self.namespace, self.name)
        except ApiError as error:
            if not error.is_missing:
                raise
            return self.is_idle() and self._create()
        spec = spec_of(current)
        is_ours = spec.get("holderIdentity") == self.identity
        transitions = int(spec.get("leaseTransitions") or 0)
        if is_ours and self._leads and transitions == self._transitions:
            # A conflict is no loss: a renewal may arrive late, its answer lost. The holder is read again.
            self._write(current, self._terms())
            return True
        record = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._seen.record:
            self._seen = _Seen(record, now_s)
        live_s = max(float(spec.get("leaseDurationSeconds") or 0), self.times.live_s)
        is_live = bool(spec.get("holderIdentity")) and now_s < self._seen.at_s + live_s
        self._other_leads = is_live and (not is_ours or self._leads)  # another process took it under our name
        if self._other_leads or not self.is_idle():
            return False
        self._transitions = transitions + 1
        stated = meta(current).get("annotations")
        self.former = dict(stated) if isinstance(stated, dict) else {}
        return self._taken(current, {"acquireTime": self._stamp(), "leaseTransitions": self._transitions})

    def _create(self) -> bool:
        self._transitions = 0
        spec = {**self._terms(), "acquireTime": self._stamp(), "leaseTransitions": 0}
        metadata: Object = {"name": self.name, "namespace": self.namespace, "annotations": self._notes}
        try:
            self._api.create(LEASES, self.namespace, {"metadata": metadata, "spec": spec})
        except ApiError as error:
            if error.is_conflict:
                return False
            raise
        return True

    def _taken(self, current: Object, changes: dict[str, Any]) -> bool:
        try:
            self._write(current, self._terms() | changes, self._notes)
        except ApiError as error:
            if error.is_conflict:
                return False  # another candidate was quicker
            raise
        return True

    def _write(self, current: Object, spec: dict[str, Any], notes: Mapping[str, str] | None = None) -> None:
        """Only if there was no write since ``current`` was read."""
        metadata: Object = {"resourceVersion": current["metadata"]["resourceVersion"]}
        metadata |= {"annotations": dict(notes)} if notes else {}
        self._api.patch(LEASES, self.namespace, self.name, {"metadata": metadata, "spec": spec})

    def _terms(self) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self.times.live_s),
            "renewTime": self._stamp(),
        }

    def _stamp(self) -> str:
        """Lease times have microseconds, always."""
        text = format_time(self._wall())
        return text if "." in text else text.replace("Z", ".000000Z")


def spec_of(lease: Object) -> dict[str, Any]:
    """What a Lease says; empty where it says nothing."""
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}
