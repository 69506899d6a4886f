"""A real Dask cluster for tests: a scheduler and workers, each a process of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


class Workers:
    """Processes of one cluster; ``folder``: where workers keep their files, far from those of the study."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
        self.processes: list[subprocess.Popen[bytes]] = []
        about = folder / "scheduler.json"
        self._start("distributed.cli.dask_scheduler", "--port", "0", "--scheduler-file", str(about))
        end_s = time.monotonic() + 120
        while not about.exists() or not about.read_text():
            assert time.monotonic() < end_s, (folder / "log").read_text()
            time.sleep(0.05)
        self.address: str = json.loads(about.read_text())["address"]
        self.scheduler = self.processes.pop()

    def add(self, name: str, *, threads: int = 1, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Another worker, in a folder of its own."""
        folder = self._folder / name
        folder.mkdir()
        return self._start(
            "distributed.cli.dask_worker",
            self.address,
            *("--no-nanny", "--nthreads", str(threads), "--local-directory", str(folder), "--name", name),
            folder=folder,
            environment={"KAI_SOLVER_HOST": name} | (environment or {}),
        )

    def _start(
        self,
        module: str,
        *arguments: str,
        folder: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", module, *arguments, "--host", "127.0.0.1", "--no-dashboard"]
        log = self._stack.enter_context((self._folder / "log").open("ab"))
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd=folder or self._folder,
            env=self._environment | (environment or {}),
        )
        self._stack.callback(end, process)
        self.processes.append(process)
        return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it."""
    process.kill()
    process.wait()


@contextmanager
def cluster(folder: Path) -> Iterator[Workers]:
    """A scheduler without workers; all that is added ends with the block."""
    folder.mkdir()
    with ExitStack() as stack:
        yield Workers(stack, folder)


@contextmanager
def three_workers(folder: Path) -> Iterator[Workers]:
    """A cluster with the workers "one", "two" and "three"."""
    with cluster(folder) as found:
        for name in ("one", "two", "three"):
            found.add(name)
        yield found
