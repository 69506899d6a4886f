"""The rehearsal of a hand-over and of the way back: ``make rehearsal``. Prints a table, and fails if a pod is harmed.

KAI's own components (`kai_itself`; stand-ins in a test where they cannot be built), nodes full of running work, and
one more pod every second throughout. Then the steps of docs/hand-over.md: KAI's scheduler is exchanged for ours and
back. No pod may restart, and none may wait longer than five seconds because of it.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

from kai_solver.cluster.api import ApiError
from tests.cluster.plane.checker import Checker, Pod
from tests.cluster.plane.cluster import Cluster, grant, install
from tests.cluster.plane.kai import Kai
from tests.cluster.plane.kai_itself import KaiItself
from tests.cluster.plane.plane import ADMIN, Plane, wait_for
from tests.support.gotools import KAI, KUBERNETES, KWOK, go_module

NODE_COUNT, GPUS, SPARE = 200, 8, 100
"""Nodes; GPUs of each; GPUs that are free for the pods that come meanwhile."""

MOST_S = 5.0
STAY_S = 10.0
"""How long each scheduler is left alone before, between and after the changes."""

LIMIT_S, FILL_S = 300.0, 900.0
"""What is waited for at most; and for the stand-ins to bind what runs from the start, which is not measured."""

CHANGES = "hand-over", "way back"
WORDS = {
    "KAI": "under KAI",
    "hand-over": "pods that waited during the hand-over",
    "kai-solver": "under kai-solver",
    "way back": "pods that waited during the way back",
    "KAI again": "under KAI again",
}
"""Of each phase, for the table."""

EXTERNAL: dict[str, Any] = {"grouping": "external", "binding": "bindrequest", "accounting": "external"}
"""Only the scheduler is exchanged: KAI's other components stay."""


@dataclass(slots=True)
class Rehearsed:
    """What was seen.

    ``waits``: of each pod that came meanwhile the phase, its name and the seconds from its creation to its binding. A
    pod that waited during a change counts for the change, whenever it was created.
    """

    running: int = 0
    restarted: int = 0
    waits: list[tuple[str, str, float]] = field(default_factory=list)
    steps: list[tuple[str, float]] = field(default_factory=list)
    complaints: str = ""


@dataclass(slots=True)
class Arrivals:
    """One pod of one GPU after another."""

    cluster: Cluster
    every_s: float
    made_s: dict[str, float] = field(default_factory=dict)

    def run(self, over: Event) -> None:
        """Create pods until told to end."""
        while not over.wait(self.every_s):
            name = f"arrival-{len(self.made_s)}"
            now_s = time.monotonic()
            with suppress(ApiError):
                self.cluster.pod(name, "research")
                self.made_s[name] = now_s


def rehearse(cluster: Cluster, kai: Kai, pods: int, every_s: float = 1.0, stay_s: float = 2.0) -> Rehearsed:
    """Hand over from ``kai`` and go back, with ``pods`` that run; nodes and a queue ``research`` are there."""
    found, bound_s = Rehearsed(), dict[str, float]()
    arrivals, over, all_seen = Arrivals(cluster, every_s), Event(), Event()

    windows: list[tuple[str, float, float]] = []

    @contextmanager
    def step(name: str, phase: str = "") -> Iterator[None]:
        began_s = time.monotonic()
        yield
        ended_s = time.monotonic()
        found.steps.append((name, ended_s - began_s))
        if phase:
            windows.append((phase, began_s, ended_s))

    def see() -> None:
        """When each pod was first seen bound, by the checker's watch."""
        while not all_seen.wait(0.05):
            waiting, now_s = arrivals.made_s.keys() - bound_s.keys(), time.monotonic()
            for one in list(cluster.checker.pods.values()) if waiting else ():
                if one["spec"].get("nodeName") and one["metadata"]["name"] in waiting:
                    bound_s[str(one["metadata"]["name"])] = now_s

    threads = [Thread(target=arrivals.run, args=(over,), daemon=True), Thread(target=see, daemon=True)]
    try:
        kai.start("pod grouper", "scheduler", "binder", "queue controller", "pod-group controller")
        cluster.pods(pods, "research", "work")
        cluster.wait_bound(pods, "work", FILL_S)
        wait_for("all of it runs", lambda: len(running(cluster)) >= pods, FILL_S)
        before = running(cluster)
        for thread in threads:
            thread.start()
        time.sleep(stay_s)
        replica = cluster.controller(start=False, **EXTERNAL)
        with step("kai-solver starts beside KAI, lists everything, and waits"):
            replica.component.start()
            wait_for(
                "it waits", lambda: "is renewed; this replica decides nothing" in replica.said_by("/readyz"), LIMIT_S
            )
        time.sleep(stay_s)
        with step("KAI's scheduler is stopped and its Lease deleted, until kai-solver is ready", "hand-over"):
            kai.stop("scheduler")
            kai.delete_lease()
            wait_for("it decides", replica.is_ready, LIMIT_S, 0.05)
        time.sleep(stay_s)
        with step("kai-solver is stopped, and KAI's scheduler started", "way back"):
            assert replica.component.stop() == 0
            kai.start("scheduler")
        time.sleep(stay_s)
        over.set()
        threads[0].join()
        wait_for("all that came is bound", lambda: arrivals.made_s.keys() <= bound_s.keys(), LIMIT_S)
        after = running(cluster)
        found.running, found.restarted = len(after & before), len(before - after)
        for name, made_s in arrivals.made_s.items():
            found.waits.append((_phase(windows, made_s, bound_s[name]), name, bound_s[name] - made_s))
        found.complaints = "; ".join(cluster.checker.complaints)
    finally:
        over.set()
        all_seen.set()
        kai.end()
    return found


def _phase(windows: list[tuple[str, float, float]], made_s: float, bound_s: float) -> str:
    """The change that the wait of a pod overlaps with; else the scheduler that was at work."""
    for phase, began_s, ended_s in windows:
        if made_s < ended_s and bound_s > began_s:
            return phase
    (_, handed_s, _), (_, back_s, _) = windows
    return "KAI" if made_s < handed_s else "kai-solver" if made_s < back_s else "KAI again"


def running(cluster: Cluster) -> set[str]:
    """Pods that run and never restarted, by uid."""
    return {str(one["metadata"]["uid"]) for one in cluster.bound("work") if is_untouched(one)}


def is_untouched(found: Pod) -> bool:
    status = found.get("status", {})
    restarts = sum(int(one.get("restartCount", 0)) for one in status.get("containerStatuses") or ())
    return status.get("phase") == "Running" and not restarts and "deletionTimestamp" not in found["metadata"]


def main() -> int:
    """Rehearse on a control plane of its own; 1 where a pod was harmed or waited for too long."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and not leave a control plane behind
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as work:
        folder = Path(work)
        plane = Plane((go_module(KUBERNETES), go_module(KWOK)), folder, lease_s=160)
        try:
            plane.start()
            install(plane)
            grant(plane, "request")
            cluster = Cluster(plane, folder, Checker(plane.url, plane.authority, ADMIN))
            cluster.checker.start()
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(lambda index: cluster.node(f"node-{index}", GPUS), range(NODE_COUNT)))
            cluster.wait_nodes(NODE_COUNT, LIMIT_S)
            cluster.queues(research=NODE_COUNT * GPUS)
            found = rehearse(
                cluster, KaiItself(cluster, programs=go_module(KAI)), NODE_COUNT * GPUS - SPARE, stay_s=STAY_S
            )
            cluster.end()
        finally:
            plane.stop()
    longest_s = max((waited_s for phase, _, waited_s in found.waits if phase in CHANGES), default=0.0)
    for line in table(found):
        print(line)
    is_well = not (found.restarted or found.complaints) and longest_s <= MOST_S
    print("as it should be" if is_well else f"NOT as it should be: {found.complaints or 'see above'}")
    return 0 if is_well else 1


def table(found: Rehearsed) -> Iterator[str]:
    """Rows of the page docs/hand-over.md."""
    yield "| | measured |\n|---|---|"
    yield f"| pods that ran all the time, on {NODE_COUNT} nodes | {found.running} |"
    yield f"| pods that restarted or ended | {found.restarted} |"
    for name, seconds in found.steps:
        yield f"| {name} | {seconds:.1f} s |"
    for phase, words in WORDS.items():
        waits = [waited_s for one, _, waited_s in found.waits if one == phase]
        shown = (
            "no pod" if not waits else f"{len(waits)} pods, median {median(waits):.2f} s, longest {max(waits):.2f} s"
        )
        yield f"| from creation to binding: {words} | {shown} |"
    yield f"| load of the machine at the end | {', '.join(f'{one:.1f}' for one in os.getloadavg())} |"


if __name__ == "__main__":
    sys.exit(main())
