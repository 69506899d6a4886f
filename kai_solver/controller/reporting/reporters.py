"""What happened, as log lines and metrics; other reporters write statuses and events."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Container, Mapping, Sequence

import structlog

from kai_solver.cluster.binding import GangBound
from kai_solver.cluster.evicting import Departure
from kai_solver.controller.loop import Cycle, Evicted, Reporter
from kai_solver.domain import Action, Gang, Notice, Pending, Reason
from kai_solver.domain.model import ACTIONS
from kai_solver.errors.barrier import barrier
from kai_solver.metrics import Metrics

_LOG = structlog.get_logger(__name__)
_REMEMBERED = 1000
_LISTED = 20
"""Objects that are named in the log in one cycle."""

_EVICTED, _EVICTED_S = 2000, 600.0
"""Gangs whose evicted pods are shown, and for how long after the gang is gone. Each is a series of its own, and they
would grow for ever."""

_REJECTED = frozenset({Reason.QUEUE_DOES_NOT_EXIST, Reason.QUEUE_NOT_LEAF, Reason.SET_ASIDE})
_NO_TURN = _REJECTED | {Reason.NOT_READY}


class Reporters:
    """Several as one; a fault of one is logged and spares the others."""

    def __init__(self) -> None:
        self._reporters: tuple[Reporter, ...] = ()

    def add(self, reporter: Reporter) -> None:
        """Add ``reporter``, after those that are there."""
        self._reporters = (*self._reporters, reporter)

    def cycle(self, cycle: Cycle) -> None:
        """Report to all."""
        for reporter in self._reporters:
            with barrier("reporting", _name(reporter)):
                reporter.cycle(cycle)

    def bound(self, outcome: GangBound) -> None:
        """Report to all."""
        for reporter in self._reporters:
            with barrier("reporting", _name(reporter)):
                reporter.bound(outcome)

    def evicted(self, evicted: Evicted) -> None:
        """Report to all."""
        for reporter in self._reporters:
            with barrier("reporting", _name(reporter)):
                reporter.evicted(evicted)


def _name(reporter: Reporter) -> str:
    return type(reporter).__name__


class LogReporter:
    """One line for each cycle that did something or found a gang waiting, for each gang that failed, for refusals.

    And one for each object that cannot be used, or not as it stands, once while that is so.
    """

    def __init__(self) -> None:
        self._noticed: set[tuple[str, str]] = set()

    def cycle(self, cycle: Cycle) -> None:
        """The cycle in numbers."""
        self._notices(cycle.snapshot.notices)
        plan = cycle.plan
        if not (plan.binds or plan.evictions or plan.moves or plan.pending):
            return
        _LOG.info(
            "cycle",
            cycle=cycle.number,
            seconds=round(cycle.seconds, 3),
            seeing=round(cycle.seeing_s, 3),
            decide=round(plan.timing_s.get("decide", 0.0), 3),
            source=plan.source,
            binds=len(plan.binds),
            nominated=len(cycle.orders.nominations),
            evictions=len(plan.evictions),
            moves=len(plan.moves),
            put_off=len(cycle.put_off),
            pending=len(plan.pending),
            proven=sum(pending.proof.state == "proven" for pending in plan.pending),
            notes=list(plan.notes),
        )

    def _notices(self, notices: Sequence[Notice]) -> None:
        """New ones; their texts may change with every cycle."""
        new = [notice for notice in notices if (notice.kind, notice.object) not in self._noticed]
        for notice in new[:_LISTED]:
            text = "set aside" if notice.kind == "set-aside" else "object only partly used"
            _LOG.warning(text, object=notice.object, why=notice.text)
        if len(new) > _LISTED:
            _LOG.warning("more objects are set aside or only partly used", count=len(new) - _LISTED)
        self._noticed = {(notice.kind, notice.object) for notice in notices}

    def bound(self, outcome: GangBound) -> None:
        """Failures only."""
        if outcome.failed:
            reasons = Counter(why for _, why in outcome.failed).most_common(3)
            _LOG.warning(
                "binding failed", gang=outcome.gang, failed=len(outcome.failed), released=outcome.released, why=reasons
            )

    def evicted(self, evicted: Evicted) -> None:
        """Failures only."""
        refused = [outcome for outcome in evicted.outcomes if outcome.refused]
        if refused:
            reasons = Counter(outcome.refused for outcome in refused).most_common(3)
            _LOG.warning("evictions failed", failed=len(refused), of=len(evicted.outcomes), why=reasons)


class MetricReporter:
    """Keeps the metrics of `Metrics` that come from cycles.

    Parameters
    ----------
    classes
        Names of priority classes by value.
    pool
        Name of the node pool.
    actions
        What is tried for a gang, in turn, unless the policy disables it.
    fresh
        Of a dry run: gangs of which the decision is new in this cycle, as nothing is carried out and each cycle decides
        the same again. Counters count these; without it every gang counts in every cycle.
    """

    def __init__(
        self,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
        classes: Callable[[], Mapping[int, str]] = dict,
        pool: str = "default",
        actions: Callable[[], Sequence[Action]] = lambda: ACTIONS,
        fresh: Callable[[], Container[str]] | None = None,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._classes = classes
        self._pool = pool
        self._actions = actions
        self._fresh = fresh
        self._names: Mapping[int, str] = {}
        self._waits: deque[float] = deque(maxlen=_REMEMBERED)
        self._turns: dict[int, Counter[str]] = {}
        self._evicted_of: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()

    def cycle(self, cycle: Cycle) -> None:
        """All of a cycle."""
        metrics, plan = self._metrics, cycle.plan
        self._names = self._classes()
        metrics.cycles.labels(plan.source).inc()
        metrics.e2e_ms.set(cycle.seconds * 1e3)
        metrics.open_session_ms.set(cycle.seeing_s * 1e3)
        decide_s = plan.timing_s.get("decide", 0.0)
        metrics.close_session_ms.set(max(0.0, cycle.seconds - cycle.seeing_s - decide_s) * 1e3)
        for phase, seconds in plan.timing_s.items():
            metrics.phase.labels(phase).observe(seconds)
            metrics.action_ms.labels(phase).set(seconds * 1e3)
        for stage in plan.stages:
            metrics.stage_value.labels(stage.name).set(stage.value)
            metrics.stage_bound.labels(stage.name).set(stage.bound)
            metrics.stage_gap.labels(stage.name).set(float("nan") if stage.gap is None else stage.gap)
        metrics.beat.set(self._clock())
        gangs = {gang.key: gang for gang in cycle.snapshot.gangs}
        counted = gangs if self._fresh is None else self._fresh()
        self._admitted(cycle, gangs, counted)
        self._pending(cycle, gangs, counted)
        metrics.evictions.labels("put-off").inc(len(cycle.put_off))
        self._acted(cycle, counted)
        self._forget(gangs)

    def bound(self, outcome: GangBound) -> None:
        """Pods by outcome."""
        self._metrics.binds.labels("bound").inc(len(outcome.bound))
        self._metrics.binds.labels("failed").inc(len(outcome.failed))
        for _ in outcome.bound:
            self._metrics.bind_ms.observe(outcome.seconds * 1e3)

    def evicted(self, evicted: Evicted) -> None:
        """Pods by outcome, and by queue and gang."""
        outcomes = evicted.outcomes
        done = [outcome.departure for outcome in outcomes if not outcome.refused]
        put_off = sum(outcome.put_off for outcome in outcomes)
        self._metrics.preemption_attempts.inc(bool(done))
        self._metrics.evictions.labels("done").inc(len(done))
        self._metrics.evictions.labels("refused").inc(len(outcomes) - len(done) - put_off)
        self._metrics.evictions.labels("put-off").inc(put_off)
        gangs = {gang.key: gang for gang in evicted.snapshot.gangs}
        with self._lock:  # two cycles' evictions may end at one time
            for departure in done:
                self._preempted(departure, gangs[departure.gang])

    def _admitted(self, cycle: Cycle, gangs: Mapping[str, Gang], counted: Container[str]) -> None:
        metrics = self._metrics
        admitted = [(key, action) for key, action in cycle.plan.admitted if key in counted]
        for action, count in Counter(action for _, action in admitted).items():
            metrics.scheduled.labels(action.value).inc(count)
        metrics.decisions.labels("accept").inc(len(admitted))
        self._turned("served", [gangs[key] for key, _ in admitted])
        for gang in (gangs[key] for key, _ in admitted):
            if gang.created_s and not any(pod.status.is_active for pod in gang.pods):
                wait_s = max(0.0, cycle.snapshot.now_s - gang.created_s)
                metrics.wait.observe(wait_s)
                metrics.task_ms.observe(wait_s * 1e3)
                self._waits.append(wait_s)
        if self._waits:
            metrics.wait_p99.set(sorted(self._waits)[int(0.99 * (len(self._waits) - 1))])

    def _pending(self, cycle: Cycle, gangs: Mapping[str, Gang], counted: Container[str]) -> None:
        metrics = self._metrics
        waiting = [pending for pending in cycle.plan.pending if pending.gang not in cycle.busy]
        turned = [pending for pending in waiting if pending.gang in counted]
        for decision, count in Counter(map(_decision, turned)).items():
            metrics.decisions.labels(decision).inc(count)
        self._turned("waits", [gangs[pending.gang] for pending in turned])
        depth = Counter(gangs[pending.gang].priority for pending in waiting)
        metrics.depth.clear()
        for priority, count in depth.items():
            metrics.depth.labels(self._class(priority)).inc(count)
        metrics.depth_total.set(len(waiting))
        metrics.proofs.clear()
        for state, count in Counter(pending.proof.state for pending in waiting).items():
            metrics.proofs.labels(state).set(count)

    def _acted(self, cycle: Cycle, counted: Container[str]) -> None:
        """Each gang counts on the actions up to the one that served it, and on all where it still waits (1.12)."""
        plan = cycle.plan
        last: dict[str, Action] = dict(reversed(plan.admitted))
        for pending in plan.pending:
            if pending.gang not in cycle.busy and pending.reason not in _NO_TURN:
                last[pending.gang] = Action.ALLOCATE if pending.reason is Reason.PREEMPTION_DELAY else Action.PREEMPT
        for action in cycle.snapshot.policy.enabled(self._actions()):
            turns = sum(ACTIONS.index(action) <= ACTIONS.index(last[gang]) for gang in last if gang in counted)
            self._metrics.acted_on.labels(action.value).inc(turns)
        stale = {entry.gang for entry in plan.evictions if entry.reason == "stale" and entry.gang in counted}
        self._metrics.acted_on.labels(Action.STALE.value).inc(len(stale))

    def _class(self, priority: int) -> str:
        """Name of the priority class; the number where no class has it."""
        return self._names.get(priority, str(priority))

    def _turned(self, outcome: str, gangs: Sequence[Gang]) -> None:
        """Gangs had their turn; the rate of success is over all turns so far."""
        for priority, count in Counter(gang.priority for gang in gangs).items():
            turns = self._turns.setdefault(priority, Counter())
            turns[outcome] += count
            self._metrics.gang_success.labels(self._class(priority)).set(turns["served"] / turns.total())

    def _preempted(self, departure: Departure, gang: Gang) -> None:
        self._metrics.preemptions.labels(self._class(gang.priority)).inc()
        labels = gang.name, gang.namespace, gang.uid, self._pool, departure.rule
        self._metrics.evicted.labels(*labels).inc()
        self._evicted_of.pop(labels, None)
        self._evicted_of[labels] = self._clock()
        while len(self._evicted_of) > _EVICTED:
            self._unshow(next(iter(self._evicted_of)))

    def _forget(self, gangs: Mapping[str, Gang]) -> None:
        """Evicted pods of gangs that are gone are shown for a while."""
        with self._lock:
            now_s = self._clock()
            for labels, seen_s in list(self._evicted_of.items()):
                name, namespace = labels[:2]
                if f"{namespace}/{name}" in gangs:
                    self._evicted_of[labels] = now_s
                elif now_s - seen_s > _EVICTED_S:
                    self._unshow(labels)

    def _unshow(self, labels: tuple[str, ...]) -> None:
        del self._evicted_of[labels]
        self._metrics.evicted.remove(*labels)


def _decision(pending: Pending) -> str:
    """In the articles' words: what waits is queued, what cannot be considered at all is rejected."""
    return "reject" if pending.reason in _REJECTED else "queue"
