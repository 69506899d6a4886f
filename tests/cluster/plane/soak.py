"""Minutes of random arrivals and random faults on a real control plane, and what the controller's memory does."""

import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import fmean, linear_regression

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.resources import NODES, PODS, QUEUES
from tests.cluster.plane.cluster import SPACE, Cluster, Replica
from tests.cluster.plane.plane import resident_mib, wait_for
from tests.cluster.plane.proxy import Fault
from tests.cluster.workload import Workload

QUOTAS = {"research": 24, "product": 16, "students": 8}
NODE_COUNT = 6
MOST_GANGS = 24
"""They ask for twice as much as there is."""

BETWEEN_S = (2.0, 5.0)
"""Quiet seconds between two faults."""

SETTLES_S = 600.0
"""After so long all that a replica remembers for a while has come to its full size."""

LEADERSHIP = {"live": "15s", "renew": "10s", "retry": "2s"}
"""As installed: a server that restarts costs nobody the lead."""


@dataclass(slots=True)
class Soak:
    """The cluster under load; each fault is a method that ends with all well again."""

    cluster: Cluster
    seconds: float
    draw: random.Random
    work: Workload = field(init=False)
    memory: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """Of each replica: seconds since the begin, and MiB of its process then."""
    solvers: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """The same of its solver's process, which one of the faults kills."""
    began_s: float = field(default_factory=time.monotonic)
    faults: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        cluster = self.cluster
        cluster.nodes(NODE_COUNT)
        cluster.queues(**QUOTAS)
        for _ in range(2):
            cluster.controller(proxied=True, kept=True, leadership=LEADERSHIP)
        self.work = Workload(cluster.plane.api, random.Random(2), tuple(QUOTAS), (3.0, 15.0))

    def run(self) -> None:
        """Arrivals and faults for the time given, and at least one of each; then all must come to an end."""
        ends_s = time.monotonic() + self.seconds

        def is_over() -> bool:
            return time.monotonic() >= ends_s and len(set(self.faults)) == len(self._every)

        done = threading.Event()
        with self._busy(self._arrive, self.over), self._busy(self._measure, self.over), self._busy(self._tend, done):
            while not is_over():
                for fault in self._shuffled():
                    if not self.over.wait(self.draw.uniform(*BETWEEN_S)) and not is_over():
                        self.faults.append(fault.__name__)
                        fault()
            self.over.set()
            self.leader_killed()
            wait_for("every gang has run to its end", lambda: not self.work.gangs, 300.0, look_s=1.0)

    def growth(self) -> list[tuple[float, float]]:
        """MiB of each replica that lived for nearly half of the time: in the second quarter of its life, and last."""
        found = []
        for samples in self._lasting():
            quarter, sizes = len(samples) // 4, [mib for _, mib in samples]
            found.append((fmean(sizes[quarter : 2 * quarter]), fmean(sizes[-quarter:])))
        return found

    def slopes(self) -> list[float]:
        """MiB a minute by which the replicas grew once they had settled: of the line with the least squares.

        Only of those that lived for at least as long again after that.
        """
        found = []
        for samples in self._lasting():
            since_s = samples[0][0] + SETTLES_S
            settled = [(at_s / 60.0, mib) for at_s, mib in samples if at_s >= since_s]
            if settled and 60.0 * (settled[-1][0] - settled[0][0]) >= SETTLES_S:
                found.append(linear_regression(*zip(*settled, strict=True)).slope)
        return found

    def by_minute(self) -> Iterator[str]:
        """Means of every fifth minute, of each replica that lasted and of its solver."""
        for pid, samples in self.memory.items():
            for name, one in (("replica", samples), ("its solver", self.solvers[pid])):
                means: dict[int, list[float]] = defaultdict(list)
                for at_s, mib in one:
                    means[int(at_s // 300) * 5].append(mib)
                yield f"{name} {pid}: " + ", ".join(f"{at} min {fmean(found):.1f}" for at, found in means.items())

    def _lasting(self) -> list[list[tuple[float, float]]]:
        return [samples for samples in self.memory.values() if samples[-1][0] - samples[0][0] >= 0.4 * self.seconds]

    def _shuffled(self) -> list[Callable[[], None]]:
        found = self._every
        self.draw.shuffle(found)
        return found

    @property
    def _every(self) -> list[Callable[[], None]]:
        return [
            self.watches_dropped,
            self.history_expired,
            self.writes_refused,
            self.answers_lost,
            self.answers_slow,
            self.half_open,
            self.solver_killed,
            self.leader_paused,
            self.node_cordoned,
            self.pods_deleted,
            self.queue_edited,
            self.server_restarted,
        ]

    # -- faults --------------------------------------------------------------------------------------------------------

    def watches_dropped(self) -> None:
        for proxy in self.cluster.proxies:
            proxy.drop_watches()

    def history_expired(self) -> None:
        with self._rule(lambda method, path: Fault(410) if "watch=1" in path else None):
            self.watches_dropped()
            time.sleep(2)

    def writes_refused(self) -> None:
        status, draw = self.draw.choice((409, 429, 500, 503)), random.Random(self.draw.random())

        def rule(method: str, path: str) -> Fault | None:
            is_ours = path.endswith(("/binding", "/eviction", "/status"))
            return Fault(status) if is_ours and draw.random() < 0.3 else None

        with self._rule(rule):
            time.sleep(3)

    def answers_lost(self) -> None:
        draw = random.Random(self.draw.random())

        def rule(method: str, path: str) -> Fault | None:
            is_ours = path.endswith(("/binding", "/eviction"))
            return Fault(hang_up=True, after=True) if is_ours and draw.random() < 0.3 else None

        with self._rule(rule):
            time.sleep(3)

    def answers_slow(self) -> None:
        with self._rule(lambda method, path: Fault(wait_s=0.5)):
            time.sleep(3)

    def half_open(self) -> None:
        for proxy in self.cluster.proxies:
            proxy.frozen.set()
        time.sleep(self.draw.uniform(0.5, 4.0))
        for proxy in self.cluster.proxies:
            proxy.heal()

    def solver_killed(self) -> None:
        for replica in self._alive():
            for pid in replica.component.children("search/worker.py"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def leader_paused(self) -> None:
        """For so short that it leads still."""
        paused = self._alive()
        for replica in paused:
            replica.component.pause()
        time.sleep(self.draw.uniform(0.5, 3.0))
        for replica in paused:
            replica.component.resume()

    def leader_killed(self) -> None:
        """One of the two, and a kubelet starts it again; last, as its memory says nothing after that."""
        for replica in self._alive()[:1]:
            replica.component.kill()

    def node_cordoned(self) -> None:
        name = f"node-{self.draw.randrange(NODE_COUNT)}"
        self.cluster.plane.api.patch(NODES, "", name, {"spec": {"unschedulable": True}})
        time.sleep(3)
        self.cluster.plane.api.patch(NODES, "", name, {"spec": {"unschedulable": None}})

    def pods_deleted(self) -> None:
        """By a user."""
        bound = self.cluster.bound("g")
        for found in self.draw.sample(bound, min(3, len(bound))):
            with suppress(ApiError):
                self.cluster.plane.api.delete(PODS, SPACE, str(found["metadata"]["name"]))

    def queue_edited(self) -> None:
        name = self.draw.choice(tuple(QUOTAS))
        for quota in (self.draw.randint(0, 32), QUOTAS[name]):
            body = {"spec": {"resources": {"gpu": {"quota": quota}}}}
            self.cluster.plane.api.patch(QUEUES, "", name, body)
            time.sleep(2)

    def server_restarted(self) -> None:
        plane = self.cluster.plane
        plane.apiserver.kill()
        time.sleep(1)
        plane.apiserver.start()
        plane.wait_ready()

    # -- who else acts -------------------------------------------------------------------------------------------------

    def _arrive(self) -> None:
        if len(self.work.gangs) < MOST_GANGS:
            self.work.arrive()
        self.over.wait(self.draw.expovariate(1.5))

    def _tend(self) -> None:
        """By a list of the server's: what a watch has not shown yet would be made twice."""
        self.work.tend(self.cluster.plane.api.page(PODS, namespace=SPACE, limit=10_000).items)
        time.sleep(0.3)

    def _measure(self) -> None:
        at_s = time.monotonic() - self.began_s
        for replica in self._alive():
            process = replica.component.process
            if process is not None:
                self.memory[process.pid].append((at_s, resident_mib(process.pid)))
                solver = sum(map(resident_mib, replica.component.children("search/worker.py")))
                self.solvers[process.pid].append((at_s, solver))
        self.over.wait(1.0)

    def _alive(self) -> list[Replica]:
        return [replica for replica in self.cluster.replicas if replica.component.runs]

    @contextmanager
    def _rule(self, rule: Callable[[str, str], Fault | None]) -> Iterator[None]:
        for proxy in self.cluster.proxies:
            proxy.rule = rule
        try:
            yield
        finally:
            for proxy in self.cluster.proxies:
                proxy.heal()

    @contextmanager
    def _busy(self, act: Callable[[], None], ends: threading.Event) -> Iterator[None]:
        """Do it again and again until ``ends`` is set, at the latest when the block ends."""
        thread = threading.Thread(target=_again, args=(act, ends), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.over.set()
            ends.set()
            thread.join(30)


def _again(act: Callable[[], None], over: threading.Event) -> None:
    while not over.is_set():
        try:
            act()
        except ApiError as error:
            if not (error.is_passing or error.is_conflict):
                raise
            over.wait(0.3)  # the server is away, or did what we did not hear of
