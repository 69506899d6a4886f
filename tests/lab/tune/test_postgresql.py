"""Trials in a real PostgreSQL, which goes away in the middle."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kai_solver.errors import InputError
from kai_solver.lab.tune import TuneProgress, read_space, tune

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PROGRAMS, reason="PostgreSQL is not installed")]


class Server:
    """A server of one test, not run as root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = PROGRAMS[-1].parent
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if not os.getuid() else []
        if self._as_user:
            shutil.chown(folder, "postgres", "postgres")
        self._run("initdb", "-D", str(folder / "data"), "-U", "tune", "-A", "trust", "--no-sync")

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://tune@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k {self.folder} -F"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "immediate", "stop", check=False)

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        command = [*self._as_user, str(self.programs / program), *arguments]
        subprocess.run(command, check=check, stdout=subprocess.DEVNULL, cwd=self.folder)


@pytest.fixture
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="kai-pg-"))  # pytest's own folders are closed to other users
    found = Server(folder)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder)


def test_trials_outlive_a_server_that_goes_away(small: Path, tmp_path: Path, server: Server) -> None:
    folder = tmp_path / "study"

    def lose(at: TuneProgress) -> None:
        if at.phase == "trials" and at.done == 2:
            server.stop()

    with pytest.raises(InputError, match="database of trials") as caught:
        tune(read_space(small), folder, trials=3, storage=server.url, report=lose)
    assert caught.value.field == "--storage"
    measured = (folder / "runs.jsonl").read_text()
    assert measured
    with pytest.raises(InputError, match="database of trials"):
        tune(read_space(small), folder, trials=3, storage=server.url)
    server.start()
    verdict = tune(read_space(small), folder, trials=3, storage=server.url)
    assert (folder / "runs.jsonl").read_text().startswith(measured)
    ended = [one for one in verdict.tried if one.state != "fail"]
    assert len(ended) == 3
    assert dict(ended[0].values) == read_space(small).present
    assert not (folder / "trials.db").exists()
