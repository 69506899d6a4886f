"""Status reporting: conditions, events, statuses, PodGroups. Few writes, late, and binds first.

One thread of its own works out what to report and writes it, so that the loop only hands over what happened. Other
threads help to write where more is due than one can write. Of several cycles that wait to be reported, evictions are
taken from all of them, and everything else from the newest.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kai_solver.cluster.binding import GangBound
from kai_solver.cluster.writer import Writer
from kai_solver.controller.loop import Cycle, Evicted
from kai_solver.controller.reporting.context import ReportContext
from kai_solver.controller.reporting.groups import Groups
from kai_solver.controller.reporting.leaving import Leaving
from kai_solver.controller.reporting.noticed import Noticed
from kai_solver.controller.reporting.placing import Placing
from kai_solver.controller.reporting.queues import Queues
from kai_solver.controller.reporting.unmoved import UnmovedPods
from kai_solver.controller.reporting.waiting import Waiting
from kai_solver.errors.barrier import barrier
from kai_solver.kubeobjects.grouping import OwnGroup
from kai_solver.problem import Problem

_IDLE_S = 0.5
_FAULT_S = 1.0
"""Pause of a thread after an unexpected error."""
_HELPERS = 7
"""Threads that help to write."""


@dataclass(frozen=True, slots=True)
class _Decided:
    """A cycle with what it was decided from."""

    cycle: Cycle
    problem: Problem | None
    own: Mapping[str, OwnGroup]


@dataclass(slots=True)
class StatusReporter:
    """A `Reporter` for the cluster.

    Attributes
    ----------
    problem
        The problem of the newest cycle, for sums by queue; None where there is none.
    own
        PodGroups that our groupers found in the newest reading.
    sums
        Whether the sums of queues are written; else KAI's queue controller does so.
    """

    context: ReportContext
    writer: Writer
    groups: Groups
    placing: Placing
    problem: Callable[[], Problem | None] = lambda: None
    own: Callable[[], Mapping[str, OwnGroup]] = dict
    sums: bool = True
    _inbox: "queue.SimpleQueue[_Decided | GangBound | Evicted]" = field(default_factory=queue.SimpleQueue)
    _bell: threading.Event = field(default_factory=threading.Event)
    _help: threading.Event = field(default_factory=threading.Event)
    _waiting: Waiting = field(init=False)
    _leaving: Leaving = field(init=False)
    _queues: Queues = field(init=False)
    _noticed: Noticed = field(init=False)
    _unmoved: UnmovedPods = field(init=False)

    def __post_init__(self) -> None:
        self._waiting, self._leaving, self._queues = Waiting(self.context), Leaving(self.context), Queues(self.context)
        self._noticed, self._unmoved = Noticed(self.context), UnmovedPods(self.context)

    def cycle(self, cycle: Cycle) -> None:
        """Hand over a cycle."""
        self._inbox.put(_Decided(cycle, self.problem(), self.own()))
        self._bell.set()

    def bound(self, outcome: GangBound) -> None:
        """Hand over what became of a binding."""
        self._inbox.put(outcome)
        self._bell.set()

    def evicted(self, evicted: Evicted) -> None:
        """Hand over what became of evictions."""
        self._inbox.put(evicted)
        self._bell.set()

    def has_group(self, gang: str) -> bool:
        """Whether a gang has a PodGroup, or will have one of ours; asked before its pods are bound."""
        own = self.own().get(gang)
        return self.context.pod_group(gang) is not None or (own is not None and self.groups.writes(own))

    def run(self, stop: threading.Event) -> None:
        """Report until ``stop`` is set."""
        over = threading.Event()
        helpers = [threading.Thread(target=self._write_along, args=(over,), daemon=True) for _ in range(_HELPERS)]
        for helper in helpers:
            helper.start()
        try:
            self._write(stop)
        finally:  # it is called again after an error, and makes others
            over.set()
            self._help.set()
            for helper in helpers:
                helper.join()

    def _write(self, stop: threading.Event) -> None:
        """Work out what to report, and write."""
        while not stop.is_set():
            self._bell.clear()
            self.work_out()
            if self.writer.is_behind:
                self._help.set()
            pause_s = self.writer.step()
            if pause_s is None:
                self._bell.wait(_IDLE_S)  # something happens, or what was put off is due
            elif pause_s:
                stop.wait(pause_s)

    def _write_along(self, stop: threading.Event) -> None:
        """Write whenever there is more to write than the reporting thread can."""
        while not stop.is_set():
            self._help.wait()
            pause_s: float | None = _FAULT_S
            with barrier("reporting", "writes"):
                pause_s = self.writer.step()
            if pause_s is None:
                self._help.clear()
            elif pause_s:
                stop.wait(pause_s)

    def drain(self, limit_s: float) -> None:
        """Report what is left, for at most ``limit_s`` seconds; only when `run` has ended."""
        ends_s = time.monotonic() + limit_s
        self.work_out()
        self.writer.drain(ends_s - time.monotonic())

    def work_out(self) -> None:
        """Work out what to report of all that happened since the last call; a fault spares the rest."""
        cycles: list[_Decided] = []
        while not self._inbox.empty():
            happened = self._inbox.get()
            if isinstance(happened, GangBound):
                with barrier("reporting", happened.gang):
                    self.placing.bound(happened)
            elif isinstance(happened, Evicted):
                with barrier("reporting", "evictions"):
                    self._leaving.victims(happened)
            else:
                cycles.append(happened)
        if cycles:
            self._state(cycles[-1])
        with barrier("reporting", "notices"):
            self._noticed.tick()
        self.context.statuses.tidy()
        self.context.events.tidy()

    def _state(self, decided: _Decided) -> None:
        """Report the state after a cycle."""
        with barrier("reporting", "placed gangs"):
            self.placing.cycle(decided.cycle)
        with barrier("reporting", "waiting gangs"):
            self._waiting.cycle(decided.cycle)
        with barrier("reporting", "notices"):
            self._noticed.cycle(decided.cycle)
        with barrier("reporting", "pods that stay on nodes to be drained"):
            self._unmoved.cycle(decided.cycle)
        with barrier("reporting", "promises"):
            self._leaving.promises(decided.cycle)
        with barrier("reporting", "PodGroups"):
            self.groups.cycle(decided.cycle, decided.own)
        problem = decided.problem
        if problem is not None:
            with barrier("reporting", "queues"):
                self._queues.cycle(problem, sums=self.sums)
