"""Chains of cycles: each plan is carried out, the next cycle sees what came of it, and nothing else happens.

What must not come of it: a cluster that was seen before (a cycle undid an earlier one), a pod moved twice for one gang,
a place promised where no pod leaves, a pod bound and evicted by the very next cycle, and no end at all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kai_solver.claims import carried
from kai_solver.domain import Eviction, Gang, Plan, Pod, PodStatus, Snapshot
from kai_solver.lab.conformance.rounds import is_short

CYCLES = 14

Decide = Callable[[Snapshot], Plan]
"""One cycle."""


@dataclass(frozen=True, slots=True)
class Course:
    """How a cluster carries plans out.

    Attributes
    ----------
    leaving
        Cycles that see an evicted pod still leave; 0: the next cycle has it waiting again.
    keeps_nominations
        False: a pod that was not moved is promised a place only by the newest plan, as the controller has it. True:
        until it gets another promise or runs, as in a simulation.
    step_s
        Seconds from cycle to cycle.
    """

    leaving: int = 1
    keeps_nominations: bool = False
    step_s: float = 1.0


class Cluster:
    """A cluster in which nothing happens but what plans say."""

    def __init__(self, snapshot: Snapshot, course: Course) -> None:
        self.snapshot = snapshot
        self.course = course
        pods = [pod for gang in snapshot.gangs for pod in gang.pods]
        self._leaving = {pod.key: course.leaving for pod in pods if pod.status is PodStatus.RELEASING}
        self._moving: set[str] = set()

    def carry_out(self, plan: Plan) -> None:
        """Bind, evict and promise; then let the time of one cycle pass."""
        before = self.snapshot
        moved = {move.pod: move.target for move in plan.moves}
        out = {eviction.pod for eviction in plan.evictions} | moved.keys()
        self._moving = (self._moving - out) | moved.keys()
        bound = {bind.pod: bind for bind in plan.binds if not bind.nominated}
        self._moving -= bound.keys()
        self._leaving |= dict.fromkeys(out, self.course.leaving)
        gone = {pod for pod, cycles in self._leaving.items() if not cycles}
        self._leaving = {pod: cycles - 1 for pod, cycles in self._leaving.items() if cycles}
        nominated = {bind.pod: bind.node for bind in plan.binds if bind.nominated}

        def next_pod(pod: Pod) -> Pod:
            if pod.key in bound:
                bind = bound[pod.key]
                devices = tuple(device.index for device in bind.devices)
                running = replace(pod, status=PodStatus.RUNNING, node=bind.node, devices=devices, zones=bind.zones)
                return replace(running, gpu_groups=(), nominated_node="")
            promised = moved.get(pod.key, "" if pod.key in out else pod.nominated_node)
            if pod.key in gone:
                waits = replace(pod, status=PodStatus.PENDING, node="", devices=(), gpu_groups=(), zones=(), wished=())
                return replace(waits, nominated_node=promised)
            if pod.key in out:
                return replace(pod, status=PodStatus.RELEASING, nominated_node=promised)
            if pod.status is PodStatus.PENDING:
                is_kept = self.course.keeps_nominations or pod.key in self._moving
                return replace(pod, nominated_node=nominated.get(pod.key, promised if is_kept else ""))
            return pod

        def next_gang(gang: Gang) -> Gang:
            pods = tuple(map(next_pod, gang.pods))
            starts = not any(pod.status.is_active for pod in gang.pods) and any(pod.status.is_active for pod in pods)
            after = replace(gang, pods=pods, last_start_s=before.now_s if starts else gang.last_start_s)
            if any(pod.key in out for pod in gang.pods):
                after = replace(after, last_eviction_s=before.now_s)
            if not is_short(after):
                return replace(after, stale_since_s=None)
            return after if gang.stale_since_s is not None else replace(after, stale_since_s=before.now_s)

        after = replace(before, now_s=before.now_s + self.course.step_s, gangs=tuple(map(next_gang, before.gangs)))
        # Claims are given back once their pods are gone, not when these are told to leave.
        ended = tuple(Eviction(pod, "", "", "reclaim") for pod in sorted(gone))
        self.snapshot = carried(after, replace(plan, moves=(), evictions=ended))

    def join(self, gangs: Sequence[Gang]) -> None:
        """News: ``gangs`` come to wait."""
        self.snapshot = replace(self.snapshot, gangs=(*self.snapshot.gangs, *gangs))

    @property
    def state(self) -> frozenset[tuple[str, str, str, str]]:
        """Of every pod that does not plainly wait: key, status, node, promised node."""
        pods = [pod for gang in self.snapshot.gangs for pod in gang.pods]
        return frozenset(
            (pod.key, pod.status.value, pod.node, pod.nominated_node) for pod in pods if pod.node or pod.nominated_node
        )

    @property
    def is_releasing(self) -> bool:
        """Whether any pod is leaving."""
        pods = [pod for gang in self.snapshot.gangs for pod in gang.pods] + list(self.snapshot.foreign)
        return any(pod.status is PodStatus.RELEASING for pod in pods)


@dataclass(frozen=True, slots=True)
class Fault:
    """What should not have happened: its kind, the cycle (from 0), and what it is about."""

    kind: str
    cycle: int
    about: str

    def __str__(self) -> str:
        return f"cycle {self.cycle}: {self.kind}: {self.about}"


@dataclass(slots=True)
class Judge:
    """Sees every cycle of a chain and says what should not have happened."""

    faults: list[Fault] = field(default_factory=list)
    _cycle: int = 0
    _seen: dict[object, int] = field(default_factory=dict)
    _moved: dict[tuple[str, str], int] = field(default_factory=dict)
    _bound: dict[str, int] = field(default_factory=dict)

    def news(self) -> None:
        """Something happened that no plan did: nothing of what was holds any more."""
        self._seen.clear()
        self._moved.clear()
        self._bound.clear()

    def see(self, cluster: Cluster, plan: Plan) -> None:
        """``plan`` was made from what ``cluster`` is now."""
        self._say("refused", (note for note in plan.notes if "refused" in note))
        self._say("loop", self._seen_before(cluster, plan))
        self._say("moved-again", self._moved_again(plan))
        self._say("bound-for-nothing", self._bound_for_nothing(plan))
        nominated = sorted({bind.gang for bind in plan.binds if bind.nominated})
        if not (cluster.is_releasing or plan.evictions or plan.moves):
            self._say("promised-for-nothing", nominated)
        self._cycle += 1

    def _say(self, kind: str, about: Iterator[str] | Sequence[str]) -> None:
        self.faults += [Fault(kind, self._cycle, text) for text in about]

    def _seen_before(self, cluster: Cluster, plan: Plan) -> Iterator[str]:
        last = self._seen.get(cluster.state, self._cycle)
        self._seen[cluster.state] = self._cycle
        if last < self._cycle - 1:
            yield f"as in cycle {last}"
        elif last < self._cycle and not (is_quiet(cluster, plan) or cluster.is_releasing or _is_stale(plan)):
            yield "the plan of the cycle before changed nothing"

    def _moved_again(self, plan: Plan) -> Iterator[str]:
        for move in plan.moves:
            for gang in move.helps:
                if (move.pod, gang) in self._moved:
                    yield f"{move.pod} for {gang}, as in cycle {self._moved[move.pod, gang]}"
                self._moved[move.pod, gang] = self._cycle

    def _bound_for_nothing(self, plan: Plan) -> Iterator[str]:
        leaving = [(e.pod, e.helps) for e in plan.evictions] + [(m.pod, m.helps) for m in plan.moves]
        for pod, helps in leaving:
            if self._bound.get(pod) == self._cycle - 1:
                yield f"{pod} was bound by the cycle before, and leaves for {', '.join(helps) or 'nothing'}"
        self._bound |= {bind.pod: self._cycle for bind in plan.binds if not bind.nominated}


def _is_stale(plan: Plan) -> bool:
    """Whether gangs are evicted because some time has passed."""
    return any(eviction.reason == "stale" for eviction in plan.evictions)


def is_quiet(cluster: Cluster, plan: Plan) -> bool:
    """True where the next cycle would see what this one saw, but for the clock."""
    is_idle = not (plan.evictions or plan.moves or any(not bind.nominated for bind in plan.binds))
    return is_idle and not cluster.is_releasing


def judge_chain(
    snapshot: Snapshot,
    decide: Decide,
    course: Course,
    arrivals: Sequence[Sequence[Gang]] = (),
    cycles: int = CYCLES,
    watch: Callable[[int, Cluster, Plan], None] | None = None,
) -> list[Fault]:
    """Run a chain; what should not have happened.

    Parameters
    ----------
    arrivals
        By cycle, the gangs that come after it. The chain has ``cycles`` cycles after the last of them.
    watch
        Told of every cycle, its cluster and its plan.
    """
    cluster, judge = Cluster(snapshot, course), Judge()
    quiet = 0
    for number in range(len(arrivals) + cycles):
        plan = decide(cluster.snapshot)
        if watch is not None:
            watch(number, cluster, plan)
        judge.see(cluster, plan)
        quiet = quiet + 1 if is_quiet(cluster, plan) else 0
        if number >= len(arrivals) and quiet > 2:
            return judge.faults
        cluster.carry_out(plan)
        if number < len(arrivals) and arrivals[number]:
            cluster.join(arrivals[number])
            judge.news()
    if quiet == 0:
        judge.faults.append(Fault("restless", number, "the last cycle still changed something"))
    return judge.faults
