"""Plan files, written and read."""

from pathlib import Path

import orjson

from kai_solver.domain import Bind, Eviction, Move, Plan, Snapshot
from kai_solver.errors import InputError
from kai_solver.instances_io.limits import DEFAULT_LIMITS
from kai_solver.instances_io.output import write_bytes
from kai_solver.instances_io.planfile import plan_from_document, plan_to_document
from kai_solver.instances_io.unpack import read_members


def plan_json(plan: Plan) -> str:
    """The published plan document as JSON text."""
    return orjson.dumps(plan_to_document(plan), option=orjson.OPT_INDENT_2).decode()


def write_plan(plan: Plan, path: Path) -> None:
    """Write ``plan`` as JSON; ``.zst`` compresses."""
    write_bytes(plan_json(plan).encode() + b"\n", path)


def read_plan(path: Path) -> Plan:
    """Read a plan file, packed or not.

    Raises
    ------
    LimitExceededError
        It is larger than an instance may be.
    InputError
        It cannot be read or is not a plan.
    """
    members = read_members(path, DEFAULT_LIMITS)
    try:
        return plan_from_document(orjson.loads(members[0].data), str(path))
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
