"""Keeps past usage up to date while the controller runs, and lays it over the Queue objects that a cycle reads."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from kai_solver.cluster.api import Object, key_of, meta
from kai_solver.controller.usage.prometheus import Usage, UsageError, ask
from kai_solver.domain import Notice
from kai_solver.fairness import usage_shares
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.usagedb import UsageStore
from kai_solver.metrics import Metrics

_LOG = structlog.get_logger(__name__)

Shares = dict[str, tuple[float, float, float]]

LOOK_S = 2.0
"""Between looks at which store is configured."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What a store said; replaced as a whole, since decisions and ``/get-snapshot`` read it in other threads.

    ``problem``: why the newest question had no answer; empty where it had one.
    """

    store: UsageStore | None = None
    usage: Usage | None = None
    answered_s: float = 0.0
    problem: str = ""


@dataclass(slots=True)
class PastUsage:
    """Past usage as its store last said; the last answer counts until there is another one, as in KAI.

    Attributes
    ----------
    configured
        Gives the store that counts now; None: none.
    """

    configured: Callable[[], UsageStore | None]
    metrics: Metrics
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _known: _Known = _Known()
    _awaited: tuple[UsageStore | None, float] = (None, 0.0)
    """The store of which an answer is awaited, and since when."""
    _due_s: float = 0.0
    _shared: tuple[Usage | None, dict[str, str], Shares] = (None, {}, {})
    _laid: dict[str, tuple[Object, str, Object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Show the age of what counts."""
        self.metrics.usage_age.set_function(lambda: self._age_s(self._known))

    @property
    def is_settled(self) -> bool:
        """Whether fair shares can be computed: no store, one that answered, or one that had its time to.

        A question to an earlier store that takes long does not make it wait for longer.
        """
        store, known = self.configured(), self._known
        if store is None or (store == known.store and known.usage is not None):
            return True
        return self.monotonic() - self._awaited_since_s(store) >= store.wait_s

    def run(self, stop: threading.Event) -> None:
        """Ask regularly, until ``stop`` is set."""
        while not stop.is_set():
            self.look()
            stop.wait(LOOK_S)

    def look(self) -> None:
        """Ask if it is time to, or if another store is configured."""
        store, now_s = self.configured(), self.monotonic()
        if store != self._known.store:
            self._known, self._due_s = _Known(store), now_s
        if store is None or now_s < self._due_s:
            return
        self._awaited_since_s(store)
        self._due_s = now_s + store.interval_s
        before = self._known
        try:
            usage = ask(store, self.clock())
        except UsageError as error:
            self.metrics.usage_failures.inc()
            if str(error) != before.problem:
                _LOG.warning("past usage cannot be read", store=str(store), error=str(error))
            self._known = replace(before, problem=str(error))
            return
        ended_s = self.monotonic()
        self.metrics.usage_query_ms.observe((ended_s - now_s) * 1000.0)
        if before.problem or before.usage is None:
            _LOG.info("past usage is read", store=str(store), queues=len(usage.queues))
        self._known = _Known(store, usage, ended_s)

    def notices(self) -> tuple[Notice, ...]:
        """What users should know of it; texts stay the same while they hold."""
        known = self._known
        text = "" if known.store is None else self._text(known, known.store)
        return (Notice("warning", known.store.stated_in, text),) if known.store is not None and text else ()

    def _text(self, known: _Known, store: UsageStore) -> str:
        why = f": {known.problem}" if known.problem else ""
        if known.usage is None:
            return f"there is no past usage yet, so fair shares are without it{why}" if why else ""
        limit_s = max(store.params.staleness_s, store.interval_s)
        if self._age_s(known) > limit_s:
            return f"past usage is older than {limit_s:g} s, and counts all the same{why}"
        if not known.usage.queues:
            return f"Prometheus has no {', '.join(store.allocated)} of any queue: past usage counts as none"
        return ""

    def overlay(self, queues: tuple[Object, ...]) -> tuple[Object, ...]:
        """Queue objects with the annotation that says what each used; others stay as they are."""
        known = self._known
        if known.usage is None or known.store != self.configured():
            return queues
        shares = self._shares_of(known.usage, {key_of(queue): _parent(queue) for queue in queues})
        before, laid = self._laid, dict[str, tuple[Object, str, Object]]()
        found = []
        for queue in queues:
            share = shares.get(key_of(queue))
            if share is None:
                found.append(queue)
                continue
            laid[key_of(queue)] = over = _laid_over(queue, share, before.get(key_of(queue)))
            found.append(over[2])
        self._laid = laid
        return tuple(found)

    def _shares_of(self, usage: Usage, parent: dict[str, str]) -> Shares:
        """By queue. Most cycles have the answer and the queues of the one before."""
        before, above, shares = self._shared
        if before is not usage or above != parent:
            shares = usage_shares(usage.queues, usage.used, usage.capacity, parent)
            self._shared = usage, parent, shares
        return shares

    def _awaited_since_s(self, store: UsageStore) -> float:
        """Since when an answer of the store is awaited."""
        awaited, since_s = self._awaited
        if awaited != store:
            since_s = self.monotonic()
            self._awaited = store, since_s
        return since_s

    def _age_s(self, known: _Known) -> float:
        """0 without an answer."""
        return 0.0 if known.usage is None else self.monotonic() - known.answered_s


def _laid_over(
    queue: Object, share: tuple[float, float, float], known: tuple[Object, str, Object] | None
) -> tuple[Object, str, Object]:
    """A queue, its share, and the queue with it: as before where nothing changed, since it is then not read again."""
    text = ",".join(map(repr, share))
    if known is not None and known[0] is queue and known[1] == text:
        return known
    stated = meta(queue)
    annotations = stated.get("annotations")
    noted = {**(annotations if isinstance(annotations, dict) else {}), names.OWN_USAGE: text}
    return queue, text, {**queue, "metadata": {**stated, "annotations": noted}}


def _parent(queue: Object) -> str:
    spec = queue.get("spec")
    parent = spec.get("parentQueue") if isinstance(spec, dict) else ""
    return parent if isinstance(parent, str) else ""
