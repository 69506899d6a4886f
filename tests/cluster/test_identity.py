"""A process that is started again where its predecessor was has its name; two live ones never share one."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kai_solver.cluster.identity import Identity

PROGRAM = """
import sys, time
from pathlib import Path
from kai_solver.cluster.identity import Identity
kept = Identity("lease", Path(sys.argv[1]))
print(kept.name, flush=True)
time.sleep(60)
"""


@contextmanager
def living(folder: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Another process, and its name."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate()


def test_what_was_killed_is_followed_under_its_name(tmp_path: Path) -> None:
    with living(tmp_path) as (first, process):
        process.kill()
        process.wait()
        with living(tmp_path) as (second, _):
            assert second == first


def test_what_hangs_is_alive(tmp_path: Path) -> None:
    with living(tmp_path) as (first, process):
        process.send_signal(signal.SIGSTOP)
        with living(tmp_path) as (second, _):
            assert second != first
        process.kill()
        process.wait()
        with living(tmp_path) as (third, _):
            assert third == first


def test_two_in_one_process_have_two_names(tmp_path: Path) -> None:
    first, second = Identity("lease", tmp_path), Identity("lease", tmp_path)
    assert first.name != second.name
    second.close()
    first.close()
    first.close()
    third = Identity("lease", tmp_path)
    assert third.name == first.name
    third.close()


def test_other_leases_are_others(tmp_path: Path) -> None:
    first, second = Identity("lease-a", tmp_path), Identity("lease-b", tmp_path)
    assert first.name != second.name
    first.close()
    second.close()


@pytest.mark.parametrize("found", [b"", b"short", b"x" * 4096, b"\xff" * 16])
def test_a_file_that_is_not_ours_to_read_gets_a_token(tmp_path: Path, found: bytes) -> None:
    (tmp_path / "lease.holder").write_bytes(found)
    first = Identity("lease", tmp_path)
    first.close()
    second = Identity("lease", tmp_path)
    second.close()
    assert second.name == first.name


def test_where_nothing_can_be_written_each_has_a_name_of_its_own(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    link = tmp_path / "lease.holder"
    link.symlink_to(tmp_path / "elsewhere")
    names = {Identity("lease", folder).name for folder in (nowhere, nowhere, tmp_path, tmp_path)}
    assert len(names) == 4
    assert not (tmp_path / "elsewhere").exists(), "a link is not followed"
