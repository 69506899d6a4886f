"""Which disruption budgets hold evictions, and for how long.

A user can write a PodDisruptionBudget that allows no disruption, and so keep work beyond its queue's share for ever.
The administrator says which budgets count. Budgets that keep a gang from room count only for a while. Pods with budgets
that do not count are deleted, as KAI deletes them: the Eviction API would refuse. Budgets are known by their
namespace, so a new name does not make them newer.
"""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from kai_solver.cluster.api import Object, meta
from kai_solver.cluster.binding import GangBound
from kai_solver.cluster.resources import NAMESPACES
from kai_solver.cluster.store import Store
from kai_solver.controller.loop import Cycle, Evicted
from kai_solver.controller.settings import Evictions
from kai_solver.domain import HELD_BY_BUDGETS

_LOG = structlog.get_logger(__name__)

ENABLED = "enabled"
"""Value of the label of namespaces with budgets that count."""

LAPSE_S = 120.0
"""A gang counts as held until budgets have not held it for this time: quiet clusters have a cycle every 30 s."""

LEAST_OPEN_S = 60.0
"""Ignored budgets stay ignored for at least this time, because evictions take time."""

_NAMESPACES = re.compile(r"([^\s,/]+)/")


@dataclass(slots=True)
class Shields:
    """A `Reporter` that learns which budgets hold waiting gangs; in cycles, asked from any thread."""

    store: Store
    settings: Evictions
    monotonic: Callable[[], float] = time.monotonic
    _held: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Since when, and when last, the budgets of a namespace held a gang."""
    _open: dict[str, float] = field(default_factory=dict)
    """Until when the budgets of a namespace do not count."""

    def count(self, namespace: str) -> bool:
        """Whether the budgets of a namespace hold evictions now."""
        stated = self.settings
        if stated.budgets == "none" or self._open.get(namespace, float("-inf")) > self.monotonic():
            return False
        if stated.budgets == "all":
            return True
        labels = meta(self.store.get(NAMESPACES, namespace) or {}).get("labels")
        return isinstance(labels, dict) and labels.get(stated.budget_label) == ENABLED

    def counted(self, budgets: Iterable[Object]) -> tuple[Object, ...]:
        """Those of some PodDisruptionBudgets that hold evictions now."""
        return tuple(budget for budget in budgets if self.count(str(meta(budget).get("namespace"))))

    def cycle(self, cycle: Cycle) -> None:
        """Note which namespaces' budgets held a gang in it; those that did for too long cease to count."""
        now_s, grace_s = self.monotonic(), self.settings.budget_grace
        proofs = (blocker for pending in cycle.plan.pending for blocker in pending.proof.blocking)
        named = {name for found in proofs if found.kind == HELD_BY_BUDGETS for name in _NAMESPACES.findall(found.name)}
        kept = {name: times for name, times in self._held.items() if now_s - times[1] <= LAPSE_S}
        self._held = kept | {name: (kept.get(name, (now_s, now_s))[0], now_s) for name in named}
        for name in named if grace_s is not None else ():
            if grace_s is not None and now_s - self._held[name][0] >= grace_s:
                del self._held[name]
                self._open[name] = now_s + max(LEAST_OPEN_S, grace_s)
                _LOG.warning("disruption budgets kept gangs waiting for too long: they are ignored", namespace=name)
        self._open = {name: until_s for name, until_s in self._open.items() if until_s > now_s}

    def bound(self, outcome: GangBound) -> None:
        """Nothing to learn."""

    def evicted(self, evicted: Evicted) -> None:
        """Nothing to learn."""
