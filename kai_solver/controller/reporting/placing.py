"""Which pods are bound, and which could not be (docs/kai-behaviour.md#events)."""

from dataclasses import dataclass, field

from kai_solver.cluster.binding import GangBound, Placement
from kai_solver.cluster.resources import POD_GROUPS, PODS
from kai_solver.cluster.statuses import Change, condition_of
from kai_solver.controller.loop import Cycle
from kai_solver.controller.reporting import changes
from kai_solver.controller.reporting.context import ReportContext
from kai_solver.domain import Bind, Plan, Snapshot
from kai_solver.errors.barrier import barrier
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.raw import format_time
from kai_solver.reasons.events import plan_events
from kai_solver.units import ResourceSchema

_EMPTY = Snapshot(0.0, ResourceSchema(), (), (), ())


@dataclass(slots=True)
class Placing:
    """Reports bindings. ``started``: when gangs began, for those whose PodGroup is still to be written."""

    context: ReportContext
    started: dict[str, str] = field(default_factory=dict)

    def cycle(self, cycle: Cycle) -> None:
        """Gangs that are gone began nothing."""
        here = {gang.key for gang in cycle.snapshot.gangs} if self.started else frozenset()
        self.started = {key: since for key, since in self.started.items() if key in here}

    def bound(self, outcome: GangBound) -> None:
        """Pods bound, pods that failed."""
        binds = tuple(Bind(placement.key, outcome.gang, placement.node) for placement in outcome.bound)
        for event in plan_events(_EMPTY, Plan(binds=binds), self.context.pool):
            self.context.event(event)
        for placement, why in outcome.failed:
            with barrier("reporting", placement.key):
                self._not_bound(placement, why)
        for placement in outcome.bound:
            with barrier("reporting", placement.key):
                if condition_of(self.context.statuses.known(PODS, placement.key) or {}, "PodBound") is not None:
                    self._condition(placement, changes.bound_after_all(placement.node, self.context.clock()))
        if outcome.failed:
            self._failed(outcome)
        if outcome.bound and not outcome.ran:
            self._start(outcome.gang)

    def _not_bound(self, placement: Placement, why: str) -> None:
        text = f"Failed to bind pod {placement.key} to node {placement.node}: {why}"
        self.context.events.report(self.context.about_pod(placement.key), "Warning", "BindingError", text)
        self._condition(placement, changes.not_bound(text, self.context.clock()))

    def _condition(self, placement: Placement, change: Change) -> None:
        self.context.statuses.patch(PODS, placement.key, change, topic="bound", uid=placement.uid, kind="strategic")

    def _failed(self, outcome: GangBound) -> None:
        text = f"{len(outcome.failed)} of {len(outcome.failed) + len(outcome.bound)} pods could not be bound"
        if outcome.released:
            text += "; the bound ones are released, because too few of the gang are left"
        self.context.report_gang(outcome.gang, "Warning", "FailedBinding", f"{text}: {outcome.failed[0][1]}")

    def _start(self, gang: str) -> None:
        now = format_time(int(self.context.clock()))
        self.started[gang] = now
        change = changes.annotated(names.LAST_START, now)
        self.context.statuses.patch(POD_GROUPS, gang, change, topic="last-start", subresource="")
