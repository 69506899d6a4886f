"""Instances, archives and plans with parts or bytes spoilt: read and planned, or refused as `InputError`."""

import gzip
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.engine import Engine
from kai_solver.errors import InputError
from kai_solver.instances_io import Limits, load_instance, native_from_snapshot
from kai_solver.instances_io.lints import lints
from kai_solver.instances_io.planfile import plan_to_document
from kai_solver.instances_io.plans import read_plan_of
from kai_solver.modelfiles import load_model
from tests.fuzz.amounts import SHOWN, some
from tests.fuzz.hostile import INSTANCES, ROOT, Spoil, spoiled, spoilt

SMALL = Limits(max_bytes=1 << 24, max_objects=20_000, max_json_objects=20_000)
BUDGET_S = 60.0


@pytest.fixture(scope="module")
def greedy() -> Iterator[Engine]:
    with Engine(load_model("greedy-only")) as engine:
        yield engine


def zipped(data: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("instance.yaml", data)
        archive.writestr("more.json", b"{}")
    return content.getvalue()


PACKINGS: tuple[Callable[[bytes], bytes], ...] = (bytes, gzip.compress, zstandard.compress, zipped)
PARTS = (
    *(
        b"[" * 5_000,
        b"{a: " * 3_000,
        b"&a ",
        b"*a",
        b"<<: *a\n",
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"---\n",
        b"!!binary x",
    ),
    *(
        b"1e40000000",
        b"9" * 5_000,
        b".nan",
        b"'\\ud800'",
        b'"\\ud800"',
        b"\t",
        b"\r",
        b"? ",
        b"- " * 3_000,
        b"0o7",
        b"1_000",
    ),
    *(
        b"replicas: 1000000000\n",
        b"count: 1000000\n",
        b"2026-01-01",
        b"~",
        b"%YAML 9.9\n",
        b"null",
        b"PK\x03\x04",
        b"\x1f\x8b",
    ),
)


@cache
def texts() -> tuple[bytes, ...]:
    """Of some instances in YAML, and of one in JSON."""
    files = [ROOT / "instances" / name for name in INSTANCES]
    return (
        *(file.read_bytes() for file in files),
        json.dumps(native_from_snapshot(load_instance(files[0]).snapshot)).encode(),
    )


def load(data: bytes) -> Any:
    """The instance in these bytes; None where they are refused."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        try:
            return load_instance(file.name, limits=SMALL).snapshot
        except InputError:
            return None


cuts = st.tuples(st.integers(0, 1 << 14), st.integers(0, 64), st.sampled_from(PARTS) | st.binary(max_size=8))


@pytest.mark.slow
@some(150)
@given(st.integers(0, 100), st.lists(cuts, max_size=3), st.sampled_from(PACKINGS), st.lists(cuts, max_size=2))
def test_bytes_are_an_instance_or_refused(which: int, before: list[Any], pack: Any, after: list[Any]) -> None:
    data = texts()[which % len(texts())]
    for at, length, part in before:
        at %= len(data) + 1
        data = data[:at] + part + data[at + length :]
    data = pack(data)
    for at, length, part in after:
        at %= len(data) + 1
        data = data[:at] + part + data[at + length :]
    load(data)
    SHOWN["files"] += 1


@cache
def documents() -> tuple[dict[str, Any], ...]:
    return tuple(native_from_snapshot(load_instance(ROOT / "instances" / name).snapshot) for name in INSTANCES)


@pytest.mark.slow
@some(100)
@given(which=st.integers(0, 100), spoils=st.lists(spoiled(), max_size=3))
def test_what_is_read_is_planned(greedy: Engine, which: int, spoils: list[Spoil]) -> None:
    document = spoilt(documents()[which % len(INSTANCES)], spoils)
    snapshot = load(json.dumps(document).encode())
    SHOWN["instances"] += 1
    if snapshot is not None:
        lints(snapshot)
        plan = greedy.cycle(snapshot, budget_s=BUDGET_S)
        assert check_plan(snapshot, plan) == ()


@pytest.fixture(scope="module")
def planned(greedy: Engine) -> list[tuple[Any, dict[str, Any]]]:
    snapshots = [load_instance(ROOT / "instances" / name).snapshot for name in INSTANCES]
    return [(found, plan_to_document(greedy.cycle(found, budget_s=BUDGET_S))) for found in snapshots]


@pytest.mark.slow
@some(150)
@given(which=st.integers(0, 100), spoils=st.lists(spoiled(), min_size=1, max_size=3))
def test_a_spoilt_plan_is_judged_or_refused(planned: Any, which: int, spoils: list[Spoil]) -> None:
    snapshot, document = planned[which % len(planned)]
    SHOWN["plans"] += 1
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(json.dumps(spoilt(document, spoils)).encode())
        file.flush()
        try:
            plan = read_plan_of(snapshot, Path(file.name))
        except InputError:
            return
    check_plan(snapshot, plan)
