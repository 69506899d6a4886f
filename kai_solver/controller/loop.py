"""See, decide, act, report: one cycle of the scheduler in a cluster, and when the next one is due.

The loop itself decides nothing and knows no rule: what is seen comes from `View`, what is decided from the engine, and
what is done goes to binder and evictor, which work on in the background. A quiet cluster costs nothing: without news
there is no cycle, but where time alone changes something (a delay, a protection or a grace ends), and a slow one.
"""

import functools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Protocol

from kai_solver.cluster.api import Object, key_of, meta
from kai_solver.cluster.binding import Binder, GangBound
from kai_solver.cluster.evicting import Departed, Departure, Evictor
from kai_solver.cluster.promises import Promises, node_name
from kai_solver.cluster.resources import NODES, POD_GROUPS, PODS, Resource
from kai_solver.cluster.store import Store, has_ended, is_as_expected, is_over, is_worth_a_cycle
from kai_solver.cluster.view import View
from kai_solver.controller.apart import Apart
from kai_solver.controller.awaited import Awaited, waiting_gangs
from kai_solver.controller.freshness import still_holding
from kai_solver.controller.orders import Orders, orders_of
from kai_solver.controller.quarantine import Quarantine
from kai_solver.controller.stranded import Stranded
from kai_solver.controller.turns import NEVER_S, next_turn_s
from kai_solver.domain import Plan, PodStatus, Snapshot
from kai_solver.errors.barrier import barrier, caught
from kai_solver.kubeobjects.grouping import is_own
from kai_solver.kubeobjects.trust import NO_SIGNER, Signer
from kai_solver.reasons.events import is_stale

PROMISED_PART = 0.5
"""Most of the time that cycles take while pods wait on promised places: what they wait for has the rest. On two cores,
with API server and kubelets beside us, 20 gangs that take the places of 640 pods of 4,000 were bound after 22.2 s with
a cycle a second, and after 19.3 and 20.0 s so, with 16.0 and 11.5 s of CPU of ours (500 nodes, 2026-11-28)."""
LONGEST_PAUSE_S = 30.0
"""After a cycle that broke off."""

AFTER_S = 0.05
"""After a moment at which time alone changes something: what ends then is over."""

NOT_YET_S = 0.1
"""Between looks whether this process leads, and knows its cluster, by now."""


class Decide(Protocol):
    """The engine's cycle."""

    def __call__(self, snapshot: Snapshot) -> Plan:
        """A checked plan."""
        ...


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle, for reporters: what was seen, decided and ordered, and how long seeing and all of it took.

    ``busy``: gangs that are or could not be bound, or have pods or nodes that changed: the plan does not hold for them.
    """

    number: int
    snapshot: Snapshot
    plan: Plan
    orders: Orders
    put_off: tuple[Departure, ...]
    busy: frozenset[str]
    seeing_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Evicted:
    """The evictions of one cycle have ended, perhaps in the midst of a later one: what it saw and decided, and they."""

    snapshot: Snapshot
    plan: Plan
    outcomes: tuple[Departed, ...]


class Reporter(Protocol):
    """Reports what happened: by statuses, events, metrics, logs. It must not raise and must not take long."""

    def cycle(self, cycle: Cycle) -> None:
        """A cycle ended."""
        ...

    def bound(self, outcome: GangBound) -> None:
        """The binding of a gang ended."""
        ...

    def evicted(self, evicted: Evicted) -> None:
        """All evictions of a cycle ended."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """When cycles are due, in seconds.

    Attributes
    ----------
    period_s
        From the begin of one cycle to that of the next, at least.
    settle_s
        After the first news, so that what comes together is decided together.
    late_s
        After news that change nothing for pods that wait: what was expected has happened, and is to be reported.
    idle_s
        Between cycles without news while a pod waits.
    """

    period_s: float = 1.0
    settle_s: float = 0.05
    late_s: float = 5.0
    idle_s: float = 30.0


class News:
    """Whether something happened that is worth a cycle; a listener of the store.

    In a burst each pod that we bind comes back twice, bound and running: that is what the last cycle counted with. So
    does each pod that we evict, being deleted; and one that has ended is gone later without freeing anything. A pod
    that leaves for a gang is news once it is the last that the gang waits for (`Awaited`).

    Parameters
    ----------
    expected
        A pod with what was done to it laid over.
    """

    def __init__(
        self,
        expected: Callable[[Object], Object] = lambda pod: pod,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._event = threading.Event()
        self._expected = expected
        self._monotonic = monotonic
        self._held: frozenset[str] = frozenset()
        self.awaited = Awaited()
        self.late_since_s = float("inf")
        """Since when there is something that may wait, by ``monotonic``."""

    def __call__(self, resource: Resource, _key: str, before: Object | None, after: Object | None) -> None:
        """Note a change."""
        if not is_worth_a_cycle(resource, before, after):
            return
        if _is_known(resource, before, after) or (resource == PODS and self._is_expected(before, after)):
            self.late_since_s = min(self.late_since_s, self._monotonic())
        else:
            self._event.set()

    def _is_expected(self, before: Object | None, after: Object | None) -> bool:
        """Whether the last cycle counted with this change of a pod."""
        if before is None:
            return False
        if is_over(before, after):
            return True
        uid = meta(before).get("uid")
        if after is None or has_ended(after):
            return self.awaited.gone(str(uid))
        if meta(after).get("uid") != uid:  # another pod of that name, and no watch told that the former one went
            self.awaited.gone(str(uid))
            return False
        return is_as_expected(self._expected(before), after)

    def notify(self) -> None:
        """There is news of another kind."""
        self._event.set()

    def hold(self, gangs: frozenset[str], is_open: Callable[[], frozenset[str]]) -> None:
        """These wait for the end of a binding under way, which is news then, or now where it is over by now."""
        self._held = gangs
        if gangs - is_open():
            self._event.set()

    def ended(self, gang: str) -> None:
        """The binding of a gang ended."""
        if gang in self._held:
            self._event.set()

    def wait(self, limit_s: float) -> bool:
        """Wait for news; False where there is none within the limit."""
        return self._event.wait(limit_s)

    def take(self) -> None:
        """What there was is no longer news: a cycle looks at it now."""
        self._event.clear()
        self.late_since_s = float("inf")


@dataclass(slots=True)
class Scheduler:
    """Cycles over one cluster.

    Attributes
    ----------
    fence
        Whether this process leads; no cycle without it.
    gangs
        Where gangs are bound, one thread each; ``evictions``: where pods are evicted, likewise.
    apart
        Pods and gangs that a cycle leaves alone; ``quarantine``: gangs that spoiled cycles, likewise.
    dry_run
        Decide and report, change nothing.
    has_group
        Whether a gang has a PodGroup in the cluster, or will have one.
    signer
        Signs what is written on pods, so that later cycles can believe it.
    knows
        Whether the cluster is known well enough to decide; asked before cycles.
    """

    store: Store
    view: View
    decide: Decide
    binder: Binder
    evictor: Evictor
    promises: Promises
    reporter: Reporter
    fence: Callable[[], bool]
    gangs: Executor
    evictions: Executor
    pace: Pace = Pace()
    apart: Apart = field(default_factory=Apart)
    dry_run: bool = False
    quarantine: Quarantine = field(default_factory=Quarantine)
    has_group: Callable[[str], bool] = lambda _: False
    signer: Signer = NO_SIGNER
    knows: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    news: News = field(init=False)
    beat_s: float = 0.0
    """When the loop was last alive, by ``monotonic``."""
    stranded: Stranded = field(default_factory=Stranded)
    problem: str = ""
    """Why the newest cycle broke off; empty where it did not."""
    _number: int = 0
    _failures: int = 0
    _waiting: bool = True
    _turn_s: float = NEVER_S
    """When time alone changes something next, by ``clock``."""
    _is_deciding: bool = False

    def __post_init__(self) -> None:
        self.news = News(self.binder.assumed.expected, self.monotonic)
        self.binder.ended = self.news.ended
        self.view.report_alive(self._beat)

    def _beat(self) -> None:
        self.beat_s = self.monotonic()

    def run(self, stop: threading.Event) -> None:
        """Cycle after cycle, until ``stop`` is set; a cycle under way is finished."""
        self._start()
        last_s, due_s, took_s = float("-inf"), float("inf"), 0.0
        while not stop.is_set():
            self._beat()
            is_known = False
            with barrier("running", "looks before a cycle"):
                if self.binder.resting.woke() or self.quarantine.woke():
                    self.news.notify()
                if self.fence() and self.store.is_synced((PODS, NODES)):
                    self.stranded.release(self.store, self.binder, self.gangs)
            next_s, found = min(due_s, self.news.late_since_s + self.pace.late_s), True
            with barrier("running", "looks before a cycle"):
                found = self.news.wait(min(1.0, max(0.0, next_s - self.beat_s)))
            if not found and self.monotonic() < next_s:
                continue
            with barrier("running", "looks before a cycle"):
                is_known = self.store.is_synced((PODS, NODES)) and self.fence() and self.knows()
            if not is_known:
                stop.wait(NOT_YET_S)  # the news waits, too
                continue
            period_s = max(self.pace.period_s, took_s / PROMISED_PART if self.promises.has_nominated else 0.0)
            if stop.wait(max(self.pace.settle_s, last_s + period_s - self.monotonic())):
                return  # nothing new begins
            last_s = self.monotonic()
            if not self._went_well():
                stop.wait(self.pause_s)
                self.news.notify()
            took_s = self.monotonic() - last_s
            due_s = self.monotonic() + self._rest_s(took_s)

    def _start(self) -> None:
        self.store.listen(self.news)
        self.store.listen(self.stranded)
        self.news.notify()

    def _rest_s(self, cycle_s: float) -> float:
        """Seconds to the next cycle without news, after one that took ``cycle_s``.

        Where protections end one after another, cycles take a quarter of the time at most.
        """
        idle_s = self.pace.idle_s if self._waiting else 10 * self.pace.idle_s
        return min(idle_s, max(self._turn_s - self.clock() + AFTER_S, self.pace.period_s, 3 * cycle_s))

    def _went_well(self) -> bool:
        """One cycle; False if it must be tried again, because of an unexpected error or a new lead.

        No new lead begins before it ends.
        """
        self._is_deciding = True
        try:
            self.news.take()
            if not (self.fence() and self.store.is_synced((PODS, NODES)) and self.knows()):
                return False
            self.step()
        except Exception as error:
            self._failures += 1
            self.problem = f"cycles fail: {caught('running', 'the cycle', error)}"
            return False
        finally:
            self._is_deciding = False
        self._failures, self.problem = 0, ""
        return True

    @property
    def pause_s(self) -> float:
        """Seconds before a cycle that broke off is tried again: twice as long each time."""
        return min(self.pace.period_s * float(2 ** min(self._failures, 10)), LONGEST_PAUSE_S)

    def begin(self) -> None:
        """A lead begins: unseen results of an earlier lead are not believed, and everything is read again."""
        self.binder.assumed.clear()
        self.binder.resting.clear()
        self.promises.clear()
        self.news.awaited.clear()
        self.news.notify()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way: no cycle, no binding, no eviction."""
        return not (self._is_deciding or self.binder.open or self.evictor.at_work)

    def step(self) -> Cycle:
        """One cycle."""
        began_s, now_s = self.monotonic(), self.clock()
        self._number += 1
        busy, resting = self.binder.open, self.binder.resting.now()
        nodes = {key_of(node): node for node in self.store.all(NODES)}
        snapshot = self.quarantine.apply(self.apart(self.view.snapshot(now_s), busy, resting))
        seeing_s = self.monotonic() - began_s
        self.news.hold(frozenset(_waiting(snapshot, busy)), lambda: self.binder.open)
        plan = self.decide(snapshot)
        orders, outdated = still_holding(orders_of(snapshot, plan, self.has_group, self.signer), nodes, self.store)
        put_off: tuple[Departure, ...] = ()
        if not self.dry_run:
            put_off = self._act(snapshot, plan, orders) if self.fence() else orders.departures
        self._turn_s = min(next_turn_s(snapshot), self.promises.end_s)
        self._waiting = bool(plan.pending or plan.binds or put_off) or any(map(is_stale, snapshot.gangs))
        if outdated or put_off:
            self.news.notify()
        seconds, aside = self.monotonic() - began_s, busy | resting | outdated
        cycle = Cycle(self._number, snapshot, plan, orders, put_off, aside, seeing_s, seconds)
        self.reporter.cycle(cycle)
        return cycle

    def _act(self, snapshot: Snapshot, plan: Plan, orders: Orders) -> tuple[Departure, ...]:
        """Evict first, then bind, and wait for neither; returns the evictions that are put off to a later cycle.

        If a pod is not evicted after all, the gang that was to have its place only waits longer.
        """
        self.promises.nominate(orders.nominations)
        self.stranded.watch(orders.binds)
        going, put_off = self.evictor.within_rates(orders.departures)
        self.news.awaited.renew(going, waiting_gangs(snapshot, plan), self._node_of)
        for departure in going:
            pod = self.store.get(PODS, departure.key) if departure.target else None
            if pod is not None:
                with barrier("evicting", departure.key):
                    self.promises.move(pod, departure.target)
        with barrier("evicting", "evictions"):
            done = functools.partial(self._departed, snapshot, plan)
            self.evictor.submit(going, self.evictions, done)
        for gang in orders.binds:
            with barrier("binding", gang.gang):
                self.binder.submit(gang, self.gangs)
        return tuple(put_off)

    def _node_of(self, key: str, uid: str) -> str:
        """Of a pod that runs; empty where it is not known to run."""
        pod = self.store.get(PODS, key)
        if pod is None or meta(pod).get("uid") != uid or has_ended(pod):
            return ""
        return node_name(pod)

    def _departed(self, snapshot: Snapshot, plan: Plan, outcomes: tuple[Departed, ...]) -> None:
        """Pods that stay keep their places; what that means for the others is decided again."""
        refused = [outcome.departure for outcome in outcomes if outcome.refused]
        for departure in refused:
            self.promises.stays(departure.key, departure.uid)
            self.news.awaited.gone(departure.uid)
        if refused:
            self.news.notify()
        self.reporter.evicted(Evicted(snapshot, plan, outcomes))


def _is_known(resource: Resource, before: Object | None, after: Object | None) -> bool:
    """Whether a PodGroup that we made came or went: it says what the pods said already.

    4,000 of them would else cause a cycle a second while they are written, or collected with their pods.
    """
    if resource != POD_GROUPS or (before is not None and after is not None):
        return False
    return is_own(before or after or {})


def _waiting(snapshot: Snapshot, gangs: frozenset[str]) -> Iterator[str]:
    """Those of the gangs that have pods without a place."""
    for gang in snapshot.gangs if gangs else ():
        if gang.key in gangs and any(pod.status is PodStatus.PENDING for pod in gang.pods):
            yield gang.key
