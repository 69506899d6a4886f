"""Plans in a few words, for the tests of the checker's rules."""

from dataclasses import replace
from typing import Any

from kai_solver.check import check_plan
from kai_solver.domain import Bind, Device, Eviction, Plan, Snapshot


def bind(name: str, index: int, target: str, *devices: int, **fields: Any) -> Bind:
    given = tuple(Device(device, 1000) for device in devices)
    return Bind(f"ns/{name}-{index}", f"ns/{name}", target, given, **fields)


def evict(name: str, index: int, source: str, *helps: str, reason: Any = "preempt") -> Eviction:
    return Eviction(f"ns/{name}-{index}", f"ns/{name}", source, reason, tuple(f"ns/{one}" for one in helps))


def plan(*binds: Bind, **fields: Any) -> Plan:
    """Admits the gangs of ``binds``, unless it names others."""
    admitted = tuple(dict.fromkeys((entry.gang, entry.action) for entry in binds))
    return replace(Plan(binds=binds, admitted=admitted), **fields)


def broken(snapshot: Snapshot, plan: Plan) -> list[str]:
    """The rules that the plan breaks."""
    return [violation.rule for violation in check_plan(snapshot, plan)]
