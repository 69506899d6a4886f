"""Objects that cannot be used get an event: users do not read the scheduler's log to find a typo."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kai_solver.cluster.resources import PODS
from kai_solver.cluster.view import WATCHED
from kai_solver.controller.loop import Cycle
from kai_solver.controller.reporting import changes
from kai_solver.controller.reporting.context import ReportContext
from kai_solver.domain import Notice, Snapshot
from kai_solver.errors.barrier import barrier

STANDS_S = 10.0
"""A notice must stand for so long: a pod that waits for its PodGroup, or its owner, mostly does for a moment."""

_RESOURCES = {resource.kind: resource for resource in WATCHED}
_REASONS = {"set-aside": "SetAside", "warning": "NotHonoured"}


@dataclass(slots=True)
class Noticed:
    """Reports the newest cycle's notices, each once while it stands."""

    context: ReportContext
    monotonic: Callable[[], float] = time.monotonic
    _stand: set[Notice] = field(default_factory=set)
    _due: dict[Notice, float] = field(default_factory=dict)
    """When those are due that have not been reported."""
    _snapshot: Snapshot | None = None

    def cycle(self, cycle: Cycle) -> None:
        """Which notices stand."""
        found = dict.fromkeys(cycle.snapshot.notices)
        due_s = self.monotonic() + STANDS_S
        self._due = {notice: at_s for notice, at_s in self._due.items() if notice in found}
        self._due |= {notice: due_s for notice in found if notice not in self._stand}
        self._stand = set(found)
        self._snapshot = cycle.snapshot if self._due else None

    def tick(self) -> None:
        """Report those that have stood long enough; to be called repeatedly."""
        if not self._due:
            return
        now_s = self.monotonic()
        over = [notice for notice, at_s in self._due.items() if at_s <= now_s]
        decided = self._decided() if over else frozenset()
        for notice in over:
            del self._due[notice]
            with barrier("reporting", notice.object):
                self._report(notice, decided)

    def _report(self, notice: Notice, decided: frozenset[str]) -> None:
        kind, _, key = notice.object.partition(" ")
        resource = _RESOURCES.get(kind)
        if resource is None or self.context.store.get(resource, key) is None:
            return  # not one object that is there: the log names it
        about, reason = self.context.about(resource, key), _REASONS[notice.kind]
        self.context.events.report(about, "Warning", reason, notice.text, state=True)
        if resource == PODS and key not in decided:
            change = changes.waits(reason, notice.text, self.context.clock())
            self.context.statuses.patch(PODS, key, change, topic="scheduled", uid=about.uid, kind="strategic")

    def _decided(self) -> frozenset[str]:
        """Pods that a gang has: what is reported of them comes from the plan."""
        gangs = self._snapshot.gangs if self._snapshot is not None else ()
        return frozenset(pod.key for gang in gangs for pod in gang.pods)
