"""Measure the controller on a real control plane: ``make bench-cluster``. Prints a table with the machine's load."""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kai_solver.cluster.resources import NODES
from tests.cluster.plane.cluster import Cluster, Replica, checker_of, clear_work, install
from tests.cluster.plane.plane import Plane, wait_for
from tests.support.gotools import KUBERNETES, KWOK, go_module

NODE_COUNT, GPUS = 500, 8
BURST, GANG_SIZE, SINGLES = 4000, 512, 40
LIMIT_S = 600.0
STEADY_S = 30.0


def main() -> int:
    """Run all measurements on one control plane."""
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as work:
        folder = Path(work)
        plane = Plane((go_module(KUBERNETES), go_module(KWOK)), folder)
        try:
            plane.start()
            install(plane)
            print("| what | measured |\n|---|---|")
            for name, value in measured(Cluster(plane, folder, checker_of(plane, lambda pod: False, LIMIT_S))):
                print(f"| {name} | {value} |", flush=True)
            print(f"| load of the machine at the end | {', '.join(f'{one:.1f}' for one in os.getloadavg())} |")
        finally:
            plane.stop()
    return 0


def measured(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Name and value of each measurement, as it ends."""
    cluster.checker.start()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda index: cluster.node(f"node-{index}", GPUS), range(NODE_COUNT)))
    cluster.wait_nodes(NODE_COUNT)
    cluster.queues(research=NODE_COUNT * GPUS)
    replica = cluster.controller(budget=None, idle="30s", leadership={"enabled": False})
    try:
        yield from _burst(cluster)
        yield from _steady(cluster, replica)
        clear_work(cluster.plane)
        yield from _gang(cluster)
        yield from _singles(cluster)
        yield "the checker objects to", str(cluster.checker.complaints or "nothing")
    finally:
        replica.component.kill()
        cluster.checker.stop()


def _burst(cluster: Cluster) -> Iterator[tuple[str, str]]:
    began_s = time.monotonic()
    cluster.pods(BURST, "research", threads=4)
    created_s = time.monotonic()
    early = len(cluster.bound())
    wait_for("all are bound", lambda: len(cluster.checker.bindings) >= BURST, LIMIT_S, 0.02)
    after_s = time.monotonic() - created_s
    yield f"{BURST} one-GPU pods on {NODE_COUNT} nodes, created within", f"{created_s - began_s:.1f} s"
    yield "of them bound at the last creation", str(early)
    yield "all bound after the last creation", f"{after_s:.1f} s"


def _gang(cluster: Cluster) -> Iterator[tuple[str, str]]:
    cluster.job("gang", "research", GANG_SIZE)
    wait_for("all are made", lambda: len(cluster.checker.pods) >= GANG_SIZE, LIMIT_S, 0.01)
    made_s = time.monotonic()
    wait_for("all are bound", lambda: len(cluster.bound("gang")) >= GANG_SIZE, LIMIT_S, 0.01)
    yield f"gang of {GANG_SIZE}, all bound after its last pod", f"{time.monotonic() - made_s:.2f} s"


def _singles(cluster: Cluster) -> Iterator[tuple[str, str]]:
    took_s = []
    for index in range(SINGLES):
        time.sleep(1.1)
        began_s = time.monotonic()
        cluster.pod(f"single-{index}", "research")
        wait_for("it is bound", lambda index=index: bool(cluster.bound(f"single-{index}")), LIMIT_S, 0.005)  # type: ignore[misc]
        took_s.append(time.monotonic() - began_s)
    took_s.sort()
    yield "single pod, creation to binding, median", f"{statistics.median(took_s) * 1000:.0f} ms"
    yield f"the slowest of {SINGLES}", f"{took_s[-1] * 1000:.0f} ms"


def _steady(cluster: Cluster, replica: Replica) -> Iterator[tuple[str, str]]:
    time.sleep(10.0)
    process = replica.component.process
    assert process is not None
    before_s = _cpu_s(process.pid)
    time.sleep(STEADY_S)
    share = (_cpu_s(process.pid) - before_s) / STEADY_S
    nodes = len(cluster.plane.api.page(NODES, limit=10_000).items)
    yield f"CPU when nothing changes, {nodes} nodes, {BURST} running pods", f"{share:.1%} of a core"
    yield "memory of the controller's process", f"{_rss_mb(process.pid):.0f} MB"


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    sys.exit(main())
