"""Which pods are evicted, for which workload and why; promised places (docs/kai-behaviour.md#eviction-messages)."""

from collections import defaultdict
from dataclasses import dataclass, field

from kai_solver.cluster.evicting import Departure
from kai_solver.cluster.resources import POD_GROUPS, PODS
from kai_solver.cluster.writer import Order
from kai_solver.controller.loop import Cycle, Evicted
from kai_solver.controller.reporting import changes
from kai_solver.controller.reporting.context import ReportContext
from kai_solver.domain import Eviction, Move, Plan, Snapshot
from kai_solver.errors.barrier import barrier
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.raw import format_time
from kai_solver.reasons.events import Event, plan_events

_NAMED = 5


@dataclass(slots=True)
class Leaving:
    """Reports victims, the workloads that get their places, and promises.

    The condition of a victim is not written here: the evictor wrote it before the eviction. The Eviction API writes
    over it. To write it again costs the API server as much as the eviction, and each kubelet reads its pod once more.
    """

    context: ReportContext
    _promised: dict[str, str] = field(default_factory=dict)
    """Nodes by the pods that were promised a place there, and are not known to have it."""
    _has_looked: bool = False

    def victims(self, evicted: Evicted) -> None:
        """Pods that were evicted; one that was refused stays, and nothing is said of it."""
        done = {outcome.departure.key: outcome.departure for outcome in evicted.outcomes if not outcome.refused}
        plan = evicted.plan
        leaving: tuple[Eviction | Move, ...] = (*plan.evictions, *plan.moves)
        entries = [entry for entry in leaving if entry.pod in done]
        carried_out = Plan(
            evictions=tuple(entry for entry in entries if isinstance(entry, Eviction)),
            moves=tuple(entry for entry in entries if isinstance(entry, Move)),
        )
        events = plan_events(_without_gangs(evicted.snapshot), carried_out, self.context.pool)
        for entry, event in zip(entries, events, strict=False):
            with barrier("reporting", entry.pod):
                self._victim(done[entry.pod], event)
        for event in events:  # where those go that move
            with barrier("reporting", event.object):
                self.context.event(event)
        self._helped(evicted.snapshot, list(done.values()))

    def _victim(self, departure: Departure, event: Event) -> None:
        if not (departure.uid and self.context.goes_with(departure.gang, departure.uid)):
            since = changes.annotated(names.LAST_EVICTION, format_time(int(self.context.clock())))
            self.context.statuses.patch(POD_GROUPS, departure.gang, since, topic="last-eviction", subresource="")
        self.context.event(event, order=Order.SOON)
        self.context.event(Event("Pod", departure.key, event.type, event.reason, event.message, event.annotations))

    def _helped(self, snapshot: Snapshot, departures: list[Departure]) -> None:
        """An event on the workloads that get the places: on their PodGroup, else on the first of their pods."""
        by_gang: dict[tuple[str, str], list[str]] = defaultdict(list)
        for departure in departures:
            for gang in departure.helps:
                by_gang[gang, departure.rule].append(departure.key)
        plain = {
            gang.key: gang.pods[0].key for gang in snapshot.gangs if gang.pods and not self.context.pod_group(gang.key)
        }
        for (gang, rule), pods in by_gang.items():
            text = f"{rule}: makes room by evicting {_listed(pods)}"
            with barrier("reporting", gang):
                if gang in plain:
                    self.context.events.report(self.context.about_pod(plain[gang]), "Normal", "Preempting", text)
                else:
                    self.context.report_gang(gang, "Normal", "Preempting", text)

    def promises(self, cycle: Cycle) -> None:
        """Nominated nodes: set, kept and taken back."""
        plan, now_s = cycle.plan, self.context.clock()
        wanted = cycle.orders.nominations
        nominated = Plan(binds=tuple(bind for bind in plan.binds if bind.pod in wanted and bind.nominated))
        for event in plan_events(_without_gangs(cycle.snapshot), nominated, self.context.pool):
            self.context.event(event, state=True)
        for key, (uid, node) in wanted.items():
            with barrier("reporting", key):
                self.context.statuses.cancel(PODS, key, "promise")
                change = changes.promised(node, f"Waits on node {node} until the evicted pods have left it", now_s)
                self.context.statuses.patch(
                    PODS, key, change, topic="scheduled", uid=uid, kind="strategic", order=Order.NOW
                )
        for key in self._void(cycle):
            self.context.statuses.patch(PODS, key, changes.not_promised, topic="promise", kind="strategic")

    def _void(self, cycle: Cycle) -> list[str]:
        """Pods with a promise that no longer holds; at first, also those with a promise of an earlier process.

        A pod that is being bound where it was promised a place keeps the promise, as with kube-scheduler: to take it
        back at that moment would only be one write more.
        """
        if not self._has_looked:
            found = (pod for gang in cycle.snapshot.gangs for pod in gang.pods if pod.nominated_node)
            self._promised |= {pod.key: pod.nominated_node for pod in found}
            self._has_looked = True
        orders = cycle.orders
        bound = {pod.key: pod.node for gang in orders.binds for pod in gang.placements}
        kept = {key: node for key, node in self._promised.items() if bound.get(key) == node}
        void = self._promised.keys() - orders.nominations.keys() - kept.keys()
        self._promised = kept | {key: node for key, (_, node) in orders.nominations.items()}
        return sorted(void)


def _without_gangs(snapshot: Snapshot) -> Snapshot:
    """Without gangs: the events are about entries of the plan alone."""
    return Snapshot(snapshot.now_s, snapshot.schema, (), (), ())


def _listed(pods: list[str]) -> str:
    shown = ", ".join(pods[:_NAMED])
    return shown + (f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else "")
