"""Pods that got their places, and pods whose binding failed (docs/kai-behaviour.md#events)."""

from dataclasses import dataclass, field

from kai_solver.cluster.binding import GangBound, Seat
from kai_solver.cluster.resources import POD_GROUPS, PODS
from kai_solver.cluster.statuses import Change, condition_of
from kai_solver.cluster.writer import Order
from kai_solver.controller.loop import Cycle
from kai_solver.controller.telling import changes
from kai_solver.controller.telling.desk import Desk
from kai_solver.domain import Bind, Plan, Snapshot
from kai_solver.errors.barrier import barrier
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.raw import format_time
from kai_solver.reasons.events import plan_events
from kai_solver.units import ResourceSchema

_EMPTY = Snapshot(0.0, ResourceSchema(), (), (), ())


@dataclass(slots=True)
class Placing:
    """Tells of bindings. ``started``: when gangs began, for those whose PodGroup is still to be written."""

    desk: Desk
    started: dict[str, str] = field(default_factory=dict)

    def cycle(self, cycle: Cycle) -> None:
        """Gangs that are gone began nothing."""
        here = {gang.key for gang in cycle.snapshot.gangs} if self.started else frozenset()
        self.started = {key: since for key, since in self.started.items() if key in here}

    def bound(self, outcome: GangBound) -> None:
        """Pods bound, pods that failed."""
        binds = tuple(Bind(seat.key, outcome.gang, seat.node) for seat in outcome.bound)
        for event in plan_events(_EMPTY, Plan(binds=binds), self.desk.pool):
            self.desk.event(event, order=Order.LAST)
        for seat, why in outcome.failed:
            with barrier("reporting", seat.key):
                self._not_bound(seat, why)
        for seat in outcome.bound:
            with barrier("reporting", seat.key):
                if condition_of(self.desk.statuses.known(PODS, seat.key) or {}, "PodBound") is not None:
                    self._condition(seat, changes.bound_after_all(seat.node, self.desk.clock()))
        if outcome.failed:
            self._failed(outcome)
        if outcome.bound and not outcome.ran:
            self._start(outcome.gang)

    def _not_bound(self, seat: Seat, why: str) -> None:
        text = f"Failed to bind pod {seat.key} to node {seat.node}: {why}"
        self.desk.events.tell(self.desk.about_pod(seat.key), "Warning", "BindingError", text)
        self._condition(seat, changes.not_bound(text, self.desk.clock()))

    def _condition(self, seat: Seat, change: Change) -> None:
        self.desk.statuses.patch(PODS, seat.key, change, topic="bound", uid=seat.uid, kind="strategic")

    def _failed(self, outcome: GangBound) -> None:
        text = f"{len(outcome.failed)} of {len(outcome.failed) + len(outcome.bound)} pods could not be bound"
        if outcome.released:
            text += "; those that were bound are released, as too few are left of the gang"
        self.desk.tell_gang(outcome.gang, "Warning", "FailedBinding", f"{text}: {outcome.failed[0][1]}")

    def _start(self, gang: str) -> None:
        now = format_time(int(self.desk.clock()))
        self.started[gang] = now
        change = changes.annotated(names.LAST_START, now)
        self.desk.statuses.patch(POD_GROUPS, gang, change, topic="last-start", subresource="")
