"""Keeps past usage up to date while the controller runs, and lays it over the Queue objects that a cycle reads."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from kai_solver.cluster.api import Object, meta
from kai_solver.controller.usage.prometheus import NAMES, Usage, UsageError, ask
from kai_solver.domain import Notice
from kai_solver.fairness import usage_shares
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.usagedb import UsageStore
from kai_solver.metrics import Metrics

_LOG = structlog.get_logger(__name__)

LOOK_S = 2.0
"""Between looks at which store is configured."""


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
    _of: UsageStore | None = None
    """The store that all below is about."""
    _since_s: float = 0.0
    _due_s: float = 0.0
    _answered_s: float | None = None
    _usage: Usage | None = None
    _problem: str = ""
    _laid: dict[str, tuple[Object, str, Object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Show the age of what counts."""
        self.metrics.usage_age.set_function(lambda: self._age_s() or 0.0)

    @property
    def is_settled(self) -> bool:
        """Whether fair shares can be computed: no store, one that answered, or one that had its time to."""
        store = self.configured()
        if store is None:
            return True
        if store != self._of:
            return False
        return self._answered_s is not None or self.monotonic() - self._since_s >= store.wait_s

    def run(self, stop: threading.Event) -> None:
        """Ask regularly, until ``stop`` is set."""
        while not stop.is_set():
            self.look()
            stop.wait(LOOK_S)

    def look(self) -> None:
        """Ask if it is time to, or if another store is configured."""
        store, now_s = self.configured(), self.monotonic()
        if store != self._of:
            self._of, self._since_s, self._due_s = store, now_s, now_s
            self._answered_s, self._usage, self._problem = None, None, ""
        if store is None or now_s < self._due_s:
            return
        self._due_s = now_s + store.interval_s
        try:
            usage = ask(store, self.clock())
        except UsageError as error:
            self.metrics.usage_failures.inc()
            if str(error) != self._problem:
                _LOG.warning("past usage cannot be read", store=str(store), error=str(error))
            self._problem = str(error)
            return
        ended_s = self.monotonic()
        self.metrics.usage_query_ms.observe((ended_s - now_s) * 1000.0)
        if self._problem or self._answered_s is None:
            _LOG.info("past usage is read", store=str(store), queues=len(usage.queues))
        self._usage, self._answered_s, self._problem = usage, ended_s, ""

    def notices(self) -> tuple[Notice, ...]:
        """What users should know of it; texts stay the same while they hold."""
        store, usage, age_s = self._of, self._usage, self._age_s()
        if store is None:
            return ()
        texts = []
        if usage is None or age_s is None:
            if self._problem:
                texts.append(f"there is no past usage yet, so fair shares are without it: {self._problem}")
        else:
            if age_s > max(store.params.staleness_s, store.interval_s):
                why = f": {self._problem}" if self._problem else ""
                texts.append(f"past usage is older than {store.params.staleness_s:g} s, and counts all the same{why}")
            for resource, name in enumerate(NAMES):
                if usage.used[:, resource].any() and not usage.capacity[resource]:
                    metric = store.capacity[resource]
                    texts.append(f"Prometheus has no {metric}: past usage of {name} is divided by 1, as in KAI")
        return tuple(Notice("warning", store.stated_in, text) for text in texts)

    def overlay(self, queues: tuple[Object, ...]) -> tuple[Object, ...]:
        """Queue objects with the annotation that says what each used; others stay as they are."""
        usage = self._usage
        if usage is None:
            return queues
        parent = {_name(queue): _parent(queue) for queue in queues}
        shares = usage_shares(usage.queues, usage.used, usage.capacity, parent)
        before, self._laid = self._laid, {}
        return tuple(self._over(queue, shares.get(_name(queue)), before) for queue in queues)

    def _over(
        self, queue: Object, share: tuple[float, float, float] | None, before: dict[str, tuple[Object, str, Object]]
    ) -> Object:
        """The same object as before where nothing changed: it is then not read again."""
        if share is None:
            return queue
        name, text = _name(queue), ",".join(map(repr, share))
        known = before.get(name)
        if known is None or known[0] is not queue or known[1] != text:
            stated = meta(queue)
            annotations = stated.get("annotations")
            noted = {**(annotations if isinstance(annotations, dict) else {}), names.OWN_USAGE: text}
            known = queue, text, {**queue, "metadata": {**stated, "annotations": noted}}
        self._laid[name] = known
        return known[2]

    def _age_s(self) -> float | None:
        return None if self._answered_s is None else self.monotonic() - self._answered_s


def _name(queue: Object) -> str:
    return str(meta(queue).get("name", ""))


def _parent(queue: Object) -> str:
    spec = queue.get("spec")
    parent = spec.get("parentQueue") if isinstance(spec, dict) else ""
    return parent if isinstance(parent, str) else ""
