"""What clients that are slow, large and many do to a controller: ``python -m tests.controller.load``.

A controller in a process of its own schedules a cluster in memory; another process opens slow connections (a handshake,
half a head, a byte now and then) and sends large bodies (8 MiB, again and again) to all its listeners. Meanwhile honest
reviews and probes are timed. All of it stays on 127.0.0.1.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

from kai_solver.cluster.memory import MemoryApi
from kai_solver.controller.admission.certificates import make_bundle
from kai_solver.controller.app import Controller
from kai_solver.controller.embedded import Demo, start
from kai_solver.controller.logs import configure_logs
from kai_solver.controller.process import give_memory_back, open_more_files
from kai_solver.controller.settings import ControllerSettings
from tests.cluster.plane.plane import free_ports

HOST = "localhost"
MIB = 1 << 20
LARGE = 8 * MIB
MOST_MIB = 80
PATIENCE_S = 30.0
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u",
        "operation": "CREATE",
        "namespace": "demo",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {
            "metadata": {"name": "p", "labels": {"kai.scheduler/queue": "research"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
        },
    },
}


@dataclass(frozen=True, slots=True)
class Target:
    """A running controller: its process, its ports by listener, and the CA of its certificate."""

    pid: int
    ports: dict[str, int]
    authority: str

    def memory_mib(self) -> float:
        """Resident memory of its process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MIB

    def get(self, listener: str, path: str) -> urllib3.BaseHTTPResponse:
        """An answer over a connection of its own."""
        with urllib3.PoolManager() as pool:
            return pool.request(
                "GET", f"http://127.0.0.1:{self.ports[listener]}{path}", retries=False, timeout=PATIENCE_S
            )

    def cycles(self) -> float:
        """How many cycles it has decided."""
        lines = self.get("metrics", "/metrics").data.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("kai_solver_cycles_total{"))

    def dropped(self) -> dict[str, float]:
        """Connections that it closed, by listener and reason."""
        lines = self.get("metrics", "/metrics").data.decode().splitlines()
        found = [line for line in lines if line.startswith("kai_solver_connections_dropped_total{")]
        return {line.partition("{")[2].partition("}")[0]: float(line.rpartition(" ")[2]) for line in found}


def serve(folder: Path) -> None:
    """Be the controller: says its ports in a line, then runs until standard input ends."""
    names = ("metrics", "health", "answers", "admission")
    ports = dict(zip(names, free_ports(4), strict=True))
    bundle = make_bundle((HOST,), 1, time.time())
    for name, content in (("crt", bundle.certificate), ("key", bundle.key), ("ca", bundle.authorities)):
        (folder / name).write_bytes(content)
    at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    admission = {"enabled": True, "bind_address": at.pop("admission")}
    files = {f"{name}_file": str(folder / file) for name, file in (("cert", "crt"), ("key", "key"))}
    stated: dict[str, Any] = {f"{name}_bind_address": address for name, address in at.items()}
    stated |= {"admission": admission | files, "model": "greedy-only", "period": 0.2, "log_level": "error"}
    settings = ControllerSettings(**stated)
    configure_logs(settings)
    give_memory_back()
    open_more_files()
    api = MemoryApi()
    replica = Controller(api, settings)
    start(api, replica.stop, Demo(every_s=0.5))
    runs = threading.Thread(target=replica.run)
    runs.start()
    print(json.dumps({"ports": ports}), flush=True)
    sys.stdin.read()
    replica.stop.set()
    runs.join()


@contextlib.contextmanager
def running() -> Iterator[Target]:
    """A controller in a process of its own, ready."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.controller.load", "serve", folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                ports = json.loads(process.stdout.readline())["ports"]
                target = Target(process.pid, ports, (Path(folder) / "ca").read_text())
                ends_s = time.monotonic() + 60
                while not _is_ready(target) and time.monotonic() < ends_s:
                    time.sleep(0.1)
                yield target
            finally:
                process.stdin.close()
                process.wait(30)


def _is_ready(target: Target) -> bool:
    try:
        return target.get("health", "/readyz").status == 200
    except urllib3.exceptions.HTTPError:
        return False


# -- clients that do not behave ----------------------------------------------------------------------------------------


async def attack(target: Target, slow: int, large: int) -> None:
    """Keep so many connections for ever: three of four to the webhook, the others to each other listener."""
    open_more_files()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    trusted = ssl.create_default_context(cadata=target.authority)
    others = ("health", "metrics", "answers")
    clients = []
    for act, count in ((_slow, slow), (_large, large)):
        for number in range(count):
            listener = others[number // 4 % 3] if number % 4 == 3 else "admission"
            tls = trusted if listener == "admission" else None
            clients.append(_again(act, target.ports[listener], tls))
    await asyncio.gather(*clients)


Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


async def _again(act: Act, port: int, tls: ssl.SSLContext | None) -> None:
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            name = HOST if tls else None
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
            try:
                await act(reader, writer)
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.1)


async def _slow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"POST /validate HTTP/1.1\r\nHost: localhost\r\nX: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(1)


async def _large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"POST /validate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % LARGE)
    for _ in range(LARGE >> 16):
        writer.write(bytes(1 << 16))
        await writer.drain()
    await reader.readuntil(b"\r\n")


# -- clients that do ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Seen:
    """What honest clients saw."""

    reviews_s: list[float] = field(default_factory=list)
    """On a connection that is kept, as an API server does."""
    first_reviews_s: list[float] = field(default_factory=list)
    """On a new connection each."""
    probes_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    most_mib: float = 0.0


def watch(target: Target, seconds: float) -> Seen:
    """Send reviews and probes for a while."""
    seen, ends_s = Seen(), time.monotonic() + seconds
    trusted = ssl.create_default_context(cadata=target.authority)

    def timed(times_s: list[float], ask: Callable[[], urllib3.BaseHTTPResponse], what: str) -> None:
        while time.monotonic() < ends_s:
            began_s = time.monotonic()
            try:
                answer = ask()
                if answer.status != 200:
                    seen.failures.append(f"{what}: {answer.status} {answer.data[:100]!r}")
            except urllib3.exceptions.HTTPError as error:
                seen.failures.append(f"{what}: {error}")
            times_s.append(time.monotonic() - began_s)
            time.sleep(0.05)

    kept, url = urllib3.PoolManager(ssl_context=trusted), f"https://{HOST}:{target.ports['admission']}/validate"

    def review() -> urllib3.BaseHTTPResponse:
        return kept.request("POST", url, body=json.dumps(REVIEW), retries=False, timeout=PATIENCE_S)

    def first_review() -> urllib3.BaseHTTPResponse:
        with urllib3.PoolManager(ssl_context=trusted) as pool:
            return pool.request("POST", url, body=json.dumps(REVIEW), retries=False, timeout=PATIENCE_S)

    def probe() -> urllib3.BaseHTTPResponse:
        return target.get("health", "/healthz")

    threads = [
        threading.Thread(target=timed, args=(seen.reviews_s, review, "review")),
        threading.Thread(target=timed, args=(seen.first_reviews_s, first_review, "review on a new connection")),
        threading.Thread(target=timed, args=(seen.probes_s, probe, "probe")),
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.most_mib = max(seen.most_mib, target.memory_mib())
        time.sleep(0.1)
    kept.clear()
    return seen


def percentile(times_s: list[float], part: float) -> float:
    """The smallest time that so large a part of all does not exceed."""
    return sorted(times_s)[min(len(times_s) - 1, int(part * len(times_s)))] if times_s else float("nan")


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run."""

    quiet: Seen
    loaded: Seen
    cycles: float
    """Decided under load, as a part of those that were decided in as long a time without."""
    more_mib: float
    dropped: dict[str, float]

    @property
    def problems(self) -> list[str]:
        """What is worse than promised (docs/security.md#slow-clients)."""
        found = list(self.loaded.failures[:5])
        found += [f"{self.more_mib:.0f} MiB more"] if self.more_mib > MOST_MIB else []
        p99_s = percentile(self.loaded.reviews_s, 0.99)
        found += [f"p99 of reviews is {p99_s:.2f} s"] if not p99_s < 1 else []
        return found + (["no decision"] if not self.cycles > 0 else [])


def run(slow: int, large: int, seconds: float) -> Result:
    """A quiet spell, then as long under load."""
    with running() as target:
        watch(target, 2)
        first = target.cycles()
        quiet = watch(target, seconds)
        second = target.cycles()
        command = [sys.executable, "-m", "tests.controller.load", "attack", json.dumps(target.ports)]
        command += [target.authority, str(slow), str(large)]
        with subprocess.Popen(command) as attacker:
            try:
                loaded = watch(target, seconds)
            finally:
                attacker.kill()
        return Result(
            quiet,
            loaded,
            (target.cycles() - second) / max(1.0, second - first),
            loaded.most_mib - quiet.most_mib,
            target.dropped(),
        )


def main() -> int:
    """Run it and say how it went; 1 where a promise is broken."""
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]))
        return 0
    if sys.argv[1:2] == ["attack"]:
        ports, authority, slow, large = sys.argv[2:6]
        asyncio.run(attack(Target(0, json.loads(ports), authority), int(slow), int(large)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow", type=int, default=1000)
    parser.add_argument("--large", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    stated = parser.parse_args()
    found = run(stated.slow, stated.large, stated.seconds)
    for name, seen in (("quiet", found.quiet), ("loaded", found.loaded)):
        times = {"reviews": seen.reviews_s, "on new connections": seen.first_reviews_s, "probes": seen.probes_s}
        shown = ", ".join(
            f"{len(values)} {kind} p50 {percentile(values, 0.5):.3f} s p99 {percentile(values, 0.99):.3f} s"
            for kind, values in times.items()
        )
        print(f"{name}: {shown}, {len(seen.failures)} failed, {seen.most_mib:.0f} MiB at most")
    print(f"{found.more_mib:.0f} MiB more; cycles: {found.cycles:.2f} of those without load; closed: {found.dropped}")
    for problem in found.problems:
        print(f"PROBLEM {problem}")
    return bool(found.problems)


if __name__ == "__main__":
    sys.exit(main())
