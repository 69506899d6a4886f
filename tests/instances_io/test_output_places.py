"""Where a result is written: nothing but the file that was named is replaced or removed."""

import os
import stat
import threading
from pathlib import Path

import pytest

from kai_solver.errors import InputError
from kai_solver.instances_io.output import check_place, write_bytes


def test_a_named_pipe_is_written_and_stays_one(tmp_path: Path) -> None:
    pipe, read = tmp_path / "plan.json", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    check_place(pipe)
    write_bytes(b"{}", pipe)
    reader.join()
    assert read == [b"{}"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_a_device_refuses_is_an_error_and_the_device_stays(tmp_path: Path) -> None:
    link = tmp_path / "plan.json"
    link.symlink_to("/dev/full")
    check_place(link)
    with pytest.raises(InputError, match="no space left on device"):
        write_bytes(b"{}", link)
    assert stat.S_ISCHR(link.stat().st_mode)


def test_a_link_stays_and_the_file_that_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    file, link = tmp_path / "plans" / "monday.json", tmp_path / "latest.json"
    file.write_bytes(b"old")
    link.symlink_to(file)
    check_place(link)
    write_bytes(b"new", link)
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert [path.name for path in file.parent.iterdir()] == ["monday.json"]


def test_a_file_that_another_command_writes_is_not_removed(tmp_path: Path) -> None:
    half = tmp_path / "plan.json.part"
    half.write_bytes(b"half of it")
    check_place(tmp_path / "plan.json")
    assert half.read_bytes() == b"half of it"
