"""The simulated cluster: events change it, plans change it, snapshots show it."""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

from kai_solver.domain import Bind, Node, Plan, Pod, PodStatus, Snapshot
from kai_solver.errors import InternalError
from kai_solver.lab.simulate.jobs import LiveJob, State
from kai_solver.lab.simulate.nodes import NodeBooks
from kai_solver.lab.simulate.scenario import EPOCH_S, Scenario, pod_milli
from kai_solver.lab.simulate.stays import Stays
from kai_solver.units import MILLI

Change = Callable[[Pod], Pod]


class Kind(IntEnum):
    """Kinds of events; of those at one moment the smaller comes first."""

    FINISH = 0
    RELEASED = 1
    NODE_UP = 2
    NODE_DOWN = 3
    ARRIVAL = 4


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """Something at a time; ``what`` names a job, a pod or a node; ``version`` of a forecast."""

    at_s: float
    kind: Kind
    what: str
    version: int = 0


@dataclass(slots=True)
class Did:
    """What one plan did."""

    binds: int = 0
    nominated: int = 0
    moves: int = 0
    evictions: int = 0
    changed: bool = False


@dataclass(slots=True)
class Integrals:
    """GPU seconds of the cluster up to now: of nodes that were up, and held."""

    up: float = 0.0
    held: float = 0.0


class World:
    """A scenario in the course of time. Time never runs backwards; nothing here is random."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now_s = 0.0
        self.jobs = {job.key: LiveJob(job) for job in scenario.jobs}
        if len(self.jobs) != len(scenario.jobs):
            raise InternalError("two jobs of a scenario have one name")
        self.books = NodeBooks(scenario.cluster.nodes)
        self.totals = Integrals()
        self.stays = Stays()
        self.alive: dict[str, LiveJob] = {}
        self._nodes = scenario.cluster.nodes
        self._protections = _protections(scenario)
        self._releasing: dict[str, tuple[str, int]] = {}
        self._releases = 0
        self._events = [Event(job.arrival_s, Kind.ARRIVAL, job.key) for job in scenario.jobs]
        for outage in scenario.outages:
            self._events.append(Event(outage.at_s, Kind.NODE_DOWN, outage.node))
            self._events.append(Event(outage.until_s, Kind.NODE_UP, outage.node))
        heapq.heapify(self._events)

    # -- time ----------------------------------------------------------------------------------------------------

    def next_event_s(self) -> float | None:
        """When the next thing happens; None where nothing more will. Void forecasts are dropped on the way."""
        while self._events and self._is_void(self._events[0]):
            heapq.heappop(self._events)
        return self._events[0].at_s if self._events else None

    def advance(self, to_s: float) -> int:
        """Let time pass up to ``to_s`` and everything happen that is due by then; how many things that were."""
        happened = 0
        while (at_s := self.next_event_s()) is not None and at_s <= to_s:
            self._pass(at_s)
            self._happen(heapq.heappop(self._events))
            happened += 1
        self._pass(to_s)
        return happened

    def close(self) -> None:
        """Count all jobs up to now."""
        for job in self.alive.values():
            job.account(self.now_s)

    def _pass(self, to_s: float) -> None:
        span_s = max(0.0, to_s - self.now_s)
        self.totals.up += span_s * self.books.up_gpu_milli / MILLI
        self.totals.held += span_s * self.books.held_gpu_milli / MILLI
        self.now_s = max(self.now_s, to_s)

    def _is_void(self, event: Event) -> bool:
        if event.kind is Kind.FINISH:
            return self.jobs[event.what].version != event.version
        if event.kind is Kind.RELEASED:
            return self._releasing.get(event.what, ("", -1))[1] != event.version
        return False

    # -- events --------------------------------------------------------------------------------------------------

    def _happen(self, event: Event) -> None:
        match event.kind:
            case Kind.FINISH:
                self._finish(self.jobs[event.what])
            case Kind.RELEASED:
                self._release(event.what)
            case Kind.NODE_UP:
                self._set_down(event.what, -1)
            case Kind.NODE_DOWN:
                self._fail(event.what)
            case Kind.ARRIVAL:
                self.jobs[event.what].arrive(self.now_s)
                self.alive[event.what] = self.jobs[event.what]

    def _finish(self, job: LiveJob) -> None:
        for pod in job.gang.pods:
            if pod.status.holds_resources:
                self.books.leave(pod)
                self.stays.gone(self.now_s, pod.key, "done")
            self._releasing.pop(pod.key, None)
        job.finish(self.now_s)
        del self.alive[job.job.key]

    def _release(self, pod_key: str) -> None:
        gang, _ = self._releasing.pop(pod_key)
        self._change(self.jobs[gang], {pod_key: self._gone})

    def _gone(self, pod: Pod) -> Pod:
        self.books.leave(pod)
        self.stays.gone(self.now_s, pod.key, "node failed")
        return replace(pod, status=PodStatus.PENDING, node="", devices=())

    def _set_down(self, name: str, by: int) -> None:
        index = self.books.index[name]
        self.books.down[index] += by
        node: Node = self.scenario.cluster.nodes[index]
        up = not self.books.down[index]
        self._nodes = tuple(replace(node, schedulable=bool(up)) if n.name == name else n for n in self._nodes)

    def _fail(self, name: str) -> None:
        for job in list(self.alive.values()):
            there = [pod.key for pod in job.gang.pods if pod.node == name and pod.status.holds_resources]
            if not there:
                continue
            job.failures += 1
            for key in there:
                self._releasing.pop(key, None)
            self._change(job, dict.fromkeys(there, self._gone))
        self._set_down(name, 1)

    # -- plans ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What a scheduler sees now."""
        gangs = tuple(job.gang for job in self.alive.values())
        return replace(self.scenario.cluster, now_s=EPOCH_S + self.now_s, nodes=self._nodes, gangs=gangs)

    def apply(self, plan: Plan) -> Did:
        """Carry out a plan: pods leave before others are bound."""
        did = Did(
            binds=sum(not bind.nominated for bind in plan.binds),
            nominated=sum(bind.nominated for bind in plan.binds),
            moves=len(plan.moves),
            evictions=len(plan.evictions),
        )
        self.stays.decided(plan)
        targets = {move.pod: move.target for move in plan.moves}
        leaving: dict[str, set[str]] = {}
        pairs = [(move.gang, move.pod) for move in plan.moves] + [(out.gang, out.pod) for out in plan.evictions]
        for gang, pod in pairs:
            leaving.setdefault(gang, set()).add(pod)
        for gang, pods in leaving.items():
            self._evict(self.jobs[gang], pods, targets)
        did.changed = bool(leaving) | self._bind(plan) | bool(did.binds)
        return did

    def _evict(self, job: LiveJob, pods: set[str], targets: dict[str, str]) -> None:
        moved = len(pods & targets.keys())
        job.moves += moved
        job.evictions += len(pods) - moved

        def leave(pod: Pod) -> Pod:
            return replace(pod, status=PodStatus.RELEASING, nominated_node=targets.get(pod.key, ""))

        self._change(job, dict.fromkeys(pods, leave), evicted=True)
        for key in sorted(pods):
            self._releases += 1
            self._releasing[key] = (job.job.key, self._releases)
            at_s = self.now_s + self.scenario.releasing_s
            heapq.heappush(self._events, Event(at_s, Kind.RELEASED, key, self._releases))

    def _bind(self, plan: Plan) -> bool:
        """Bind, and note which pods are promised a place; whether any promise is new."""
        by_gang: dict[str, dict[str, Bind]] = {}
        for bind in plan.binds:
            by_gang.setdefault(bind.gang, {})[bind.pod] = bind
        news = False
        for key, binds in by_gang.items():
            job = self.jobs[key]
            now = {pod.key: pod for pod in job.gang.pods}
            news |= any(b.nominated and now[p].nominated_node != b.node for p, b in binds.items())
            self._change(job, {pod: _Bound(self, job, bind) for pod, bind in binds.items()})
            if not all(bind.nominated for bind in binds.values()):
                self.stays.started(key)
        return news

    def _change(self, job: LiveJob, changes: dict[str, Change], *, evicted: bool = False) -> None:
        def changed(pod: Pod) -> Pod:
            change = changes.get(pod.key)
            return pod if change is None else change(pod)

        job.change(self.now_s, changed, evicted=evicted)
        ends_s = job.ends_s()
        if ends_s is not None:
            heapq.heappush(self._events, Event(max(ends_s, self.now_s), Kind.FINISH, job.job.key, job.version))

    # -- what is due ---------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """True if no job waits for anything that a cycle could give, and none overstays."""
        return not any(job.waits or job.state is State.PARTIAL for job in self.alive.values())

    def next_rule_s(self) -> float | None:
        """When, after now, a rule that looks at the clock may say something else; None where none will."""
        jobs = [job for job in self.alive.values() if self._protections or job.gang.stale_since_s or job.waits]
        moments = [at_s for job in jobs for at_s in self._rules_of(job)]
        return min((at_s for at_s in moments if at_s > self.now_s), default=None)

    def _rules_of(self, job: LiveJob) -> list[float]:
        gang, policy, found = job.gang, self.scenario.cluster.policy, list[float]()
        if gang.stale_since_s is not None:
            found.append(gang.stale_since_s + max(0.0, policy.staleness_grace_of(gang)))
        if gang.preemption_delay_s and job.waits:
            found.append(max(gang.created_s, gang.last_eviction_s or 0.0) + gang.preemption_delay_s)
        if gang.last_start_s is not None and job.active_milli:
            found += [gang.last_start_s + protected_s for protected_s in self._protections]
        return [at_s - EPOCH_S for at_s in found]

    def counts(self) -> Counter[State]:
        """Jobs by state."""
        return Counter(job.state for job in self.jobs.values())


class _Bound:
    """Change of one pod: bound, or promised a place."""

    def __init__(self, world: World, job: LiveJob, bind: Bind) -> None:
        self._world = world
        self._job = job
        self._bind = bind

    def __call__(self, pod: Pod) -> Pod:
        bind = self._bind
        if bind.nominated:
            return replace(pod, nominated_node=bind.node) if pod.status is PodStatus.PENDING else pod
        devices = tuple(device.index for device in bind.devices)
        bound = replace(
            pod, status=PodStatus.RUNNING, node=bind.node, devices=devices, nominated_node="", zones=bind.zones
        )
        if pod.status is not PodStatus.PENDING:
            raise InternalError(f"{pod.key} was bound and is {pod.status.value}")
        world, job = self._world, self._job
        free = world.books.wholly_free(bound.node)
        world.books.take(bound)
        gpus = pod_milli(bound) / MILLI
        world.stays.bound(
            world.now_s, bound, bind, queue=job.gang.queue, since_s=job.job.arrival_s, gpus=gpus, free=free
        )
        return bound


def _protections(scenario: Scenario) -> list[float]:
    """Minimum run times that any queue or the policy grants."""
    policy = scenario.cluster.policy
    stated = [policy.reclaim_min_runtime_s, policy.preempt_min_runtime_s]
    for queue in scenario.cluster.queues:
        stated += [queue.reclaim_min_runtime_s or 0.0, queue.preempt_min_runtime_s or 0.0]
    return sorted({seconds for seconds in stated if seconds > 0})
