"""What is small in a file and large outside: counted before it is made, and read in time that grows with its bytes."""

import gzip
import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.errors import InputError, LimitExceededError
from kai_solver.instances_io import Limits, load_native
from kai_solver.instances_io.plans import read_plan
from kai_solver.instances_io.unpack import read_bytes, unpack
from kai_solver.instances_io.yaml_text import parse_yaml

SMALL = Limits(max_objects=10_000, max_json_objects=10_000)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


SKIPPED = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"


@pytest.mark.parametrize(
    ("part", "field"),
    [
        pytest.param(
            {"gangs": [{"name": "g", "queue": "q", "count": 90_000, "pods": [{"replicas": 90_000}]}]},
            "gangs",
            id="gangs",
        ),
        pytest.param(
            {"gangs": [{"name": "g", "queue": "q", "pods": [{"replicas": 9_000}, {"replicas": 9_000}]}]},
            "gangs",
            id="pods",
        ),
        pytest.param(
            {
                "gangs": [
                    {
                        "name": "g",
                        "queue": "q",
                        "count": 2_000,
                        "pods": [{}],
                        "groups": [{"name": f"s{i}"} for i in range(9)],
                    }
                ]
            },
            "gangs",
            id="groups",
        ),
        pytest.param({"nodes": [{"name": "n{i}", "count": 90_000}]}, "nodes", id="nodes"),
        pytest.param({"foreign": [{"name": "p", "replicas": 90_000}]}, "foreign", id="foreign"),
        pytest.param(
            {
                "resourceSlices": [
                    {"driver": "d", "node": "n{i}", "count": 5_000, "devices": [{"name": "d", "count": 9_000}]}
                ]
            },
            "resourceSlices",
            id="devices",
        ),
    ],
)
def test_what_entries_stand_for_is_counted_before_it_is_made(part: dict[str, object], field: str) -> None:
    with pytest.raises(LimitExceededError, match="the document expands to") as found:
        load_native({"format": "kai-solver/v1", **part}, "f", limits=SMALL)
    assert found.value.field == f"{field}[0]"


def test_a_document_within_the_limit_is_read() -> None:
    document = {"format": "kai-solver/v1", "nodes": [{"name": "n", "count": 100}], "queues": [{"name": "q"}]}
    assert len(load_native(document, limits=SMALL).snapshot.nodes) == 100


@pytest.mark.parametrize("pack", [gzip.compress, zstd, lambda data: zstd(data) + SKIPPED])
@given(parts=st.lists(st.binary(max_size=5000), min_size=1, max_size=6))
def test_members_and_frames_are_read_one_after_the_other(pack: Callable[[bytes], bytes], parts: list[bytes]) -> None:
    packed = b"".join(map(pack, parts))
    assert unpack(packed, "f", Limits())[0].data == b"".join(parts)
    with pytest.raises(InputError, match="truncated or corrupt"):
        unpack(packed[:-5] if pack is not gzip.compress else packed[:-1], "f", Limits())


@pytest.mark.slow
@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_many_members_take_time_by_their_number(pack: Callable[[bytes], bytes]) -> None:
    """Eight times as many: quadratic reading took 64 times as long, and 3,000 frames a RecursionError."""
    one = pack(b"{}")

    def spent_s(number: int) -> float:
        began_s = time.process_time()
        assert len(unpack(one * number, "f", Limits())[0].data) == 2 * number
        return time.process_time() - began_s

    spent_s(100)
    small = min(spent_s(4_000) for _ in range(3))
    assert min(spent_s(32_000) for _ in range(2)) < 32 * max(small, 1e-3)


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_nothing_is_unpacked_much_beyond_the_limit(pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(LimitExceededError):
        unpack(pack(b"\0" * (1 << 26)), "f", Limits(max_bytes=1 << 20))


@pytest.mark.parametrize(
    "number", [":".join(["59"] * 9000), ":".join(["59"] * 9000) + ".5", "9" * 9000, "0x" + "f" * 9000]
)
def test_a_number_of_yaml_has_few_characters(number: str) -> None:
    with pytest.raises(InputError, match="characters is not read"):
        parse_yaml(f"a: {number}\n".encode(), "f", Limits())


def test_a_pipe_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    """A pipe and a device have no size that could be looked at before; ``/dev/zero`` never ends."""
    pipe = tmp_path / "cluster.json"
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            file.write(b" " * 5_000)

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(LimitExceededError, match="holds more than 1,000 bytes"):
        read_bytes(pipe, Limits(max_bytes=1_000))
    writer.join()


DECLARES_A_TEBIBYTE = zstandard.MAGIC_NUMBER.to_bytes(4, "little") + b"\xe0" + struct.pack("<Q", 1 << 40) + b"\1\0\0"


def test_a_plan_that_says_to_be_enormous_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "plan.json.zst"
    path.write_bytes(DECLARES_A_TEBIBYTE)
    with pytest.raises(InputError, match="truncated or corrupt zstd"):
        read_plan(path)


@pytest.mark.parametrize("packed", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_packed_plan_is_read_whatever_its_name(tmp_path: Path, packed: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(packed(b'{"format": "kai-plan/v1", "source": "greedy"}'))
    assert read_plan(path).source == "greedy"
