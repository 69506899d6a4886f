"""Plan files, written and read."""

from pathlib import Path

import orjson
import zstandard

from kai_solver.domain import Bind, Eviction, Move, Plan, Snapshot
from kai_solver.errors import InputError
from kai_solver.instances_io.planfile import plan_from_document, plan_to_document

_PARTIAL = ".part"
"""Ends the name of a file that is not complete yet."""


def plan_json(plan: Plan) -> str:
    """The published plan document as JSON text."""
    return orjson.dumps(plan_to_document(plan), option=orjson.OPT_INDENT_2).decode()


def write_plan(plan: Plan, path: Path) -> None:
    """Write ``plan`` as JSON; ``.zst`` compresses."""
    write_bytes(plan_json(plan).encode() + b"\n", path)


def read_plan(path: Path) -> Plan:
    """Read a plan file.

    Raises
    ------
    InputError
        It cannot be read or is not a plan.
    """
    try:
        raw = path.read_bytes()
        if path.suffix == ".zst":
            raw = zstandard.ZstdDecompressor().decompress(raw, max_output_size=1 << 30)
        return plan_from_document(orjson.loads(raw), str(path))
    except (OSError, zstandard.ZstdError) as error:
        raise InputError(
            f"cannot be read: {_reason(error)}", file=str(path), cure="Check the path and its permissions"
        ) from error
    except orjson.JSONDecodeError as error:
        cure = "A plan is the file that `solve --output` writes"
        raise InputError(f"is not a plan, because it is not JSON: {error}", file=str(path), cure=cure) from error


def read_plan_of(snapshot: Snapshot, path: Path) -> Plan:
    """Read a plan file of the cluster ``snapshot``.

    Raises
    ------
    InputError
        It cannot be read, is not a plan, or has pods that are not there.
    """
    plan = read_plan(path)
    pods = {pod.key for gang in snapshot.gangs for pod in gang.pods}
    gangs = {gang.key for gang in snapshot.gangs}
    entries: tuple[Bind | Move | Eviction, ...] = (*plan.binds, *plan.moves, *plan.evictions)
    strangers = [f"pod {entry.pod}" for entry in entries if entry.pod not in pods]
    strangers += [f"gang {entry.gang}" for entry in plan.pending if entry.gang not in gangs]
    if strangers:
        cure = "Give the plan that `solve --output` wrote of this instance"
        raise InputError(f"is the plan of another instance: this one has no {strangers[0]}", file=str(path), cure=cure)
    return plan


def check_place(path: Path) -> None:
    """Refuse a place where no file can be, before minutes are spent on what is to be written there.

    Raises
    ------
    InputError
        Its folder does not exist, or it is one itself.
    """
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else "is in no folder that exists"
        raise InputError(problem, file=str(path), cure="Name a writable place")
    partial = path.with_name(path.name + _PARTIAL)
    try:
        partial.touch()
        partial.unlink()
    except OSError as error:
        raise InputError(
            f"cannot be written: {_reason(error)}", file=str(path), cure="Name a writable place"
        ) from error


def check_json_place(path: Path) -> None:
    """Refuse a place where no JSON document can be, before it is made.

    Raises
    ------
    InputError
        No file can be there, or its name says that it is YAML.
    """
    if path.suffix in (".yaml", ".yml"):
        raise InputError("would hold JSON, and its name says YAML", file=str(path), cure="Name a .json file")
    check_place(path)


def make_folder(folder: Path) -> None:
    """Make a folder for what is to be written, before minutes are spent on that.

    Raises
    ------
    InputError
        It cannot be, or nothing can be written into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written: {_reason(error)}", file=str(folder), cure="Name a folder") from error
    check_place(folder / "results")


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file in one step: a reader sees the old content or the new one.

    Raises
    ------
    InputError
        It cannot be written.
    """
    if path.suffix == ".zst":
        content = zstandard.ZstdCompressor(level=9).compress(content)
    partial = path.with_name(path.name + _PARTIAL)
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise InputError(
            f"cannot be written: {_reason(error)}", file=str(path), cure="Name a writable place"
        ) from error
