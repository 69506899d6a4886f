"""capacity: no node holds more than it has, in any resource, nor any device more than itself.

For node n and resource r, with everything that may change lifted out of ``free``::

    sum_s place[s, n] request[s, r] + sum_c stay[c, n] request[c, r]  <=  free[r, n]

Guests (usual pods that the rest of a node would still take, where the model prices what is left over) are places like
others: no rule requires them, so they take nothing from other pods.

Each device that shares open takes a pod slot more, for its reservation pod (docs/kai-behaviour.md#fractions). Whole
GPUs are counted: whole devices in use plus devices opened for shares are at most the free devices. Each device open for
shares holds at most its parts (`units.shares`). *Emptying cuts*: where a pod that takes every device of a node lands,
nothing stays: ``stay[c, n] + run[c, n] place[s, n] <= run[c, n]``; without them the bound of a consolidation is 0 for
20 s, with them it is proven in 0.01 s (docs/formulation.md#capacity).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import ShareSlot, Variables
from kai_solver.units import GPU, PODS
from kai_solver.units.shares import WHOLE


def add(v: Variables) -> None:
    """Add the rows."""
    load = _loads(v)
    for node, entries in load.items():
        opened = _opened(v, node, entries) if v.joint.binds(GPU) else []
        _resources(v, node, entries, opened)
        if v.joint.binds(GPU):
            _devices(v, node, entries, opened)
            _emptying(v, node, entries)


@dataclass(frozen=True, slots=True)
class Entry:
    """One term of a node's load: ``count`` pods of ``shape`` for each unit of ``var``, which is at most ``most``.

    ``devices``: where shares that stay sit, for each unit of ``var``; ``is_new``: a place to be given, not a unit
    that may stay.
    """

    shape: int
    var: Var
    count: int
    most: int
    devices: tuple[int, ...]
    is_new: bool


def _loads(v: Variables) -> dict[int, list[Entry]]:
    """Everything that may sit on each node."""
    load: dict[int, list[Entry]] = {}
    for shape, places in v.place.items():
        for node, var in places.items():
            load.setdefault(node, []).append(Entry(shape, var, 1, 1 << 20, (), True))
    for shape, places in v.guests.items():
        for node, var in places.items():
            load.setdefault(node, []).append(Entry(shape, var, 1, 1 << 20, (), True))
    for scoped in v.scoped:
        for node, var in scoped.place.items():
            load.setdefault(node, []).append(Entry(scoped.piece.shape, var, 1, len(scoped.piece.pods), (), True))
    for node, entry in _staying(v):
        load.setdefault(node, []).append(entry)
    return load


def _staying(v: Variables) -> Iterator[tuple[int, Entry]]:
    device_of = v.joint.device_of
    for group in v.classes:
        for origin, var in group.stay.items():
            node, devices, _ = origin
            yield node, Entry(group.shape, var, 1, len(group.members[origin]), devices, False)
    for unit in v.units:
        origins = dict(zip((p for piece in unit.mover.pieces for p in piece.pods), unit.mover.origin, strict=True))
        for piece in unit.mover.pieces:
            for node in sorted({origins[p] for p in piece.pods}):
                here = [p for p in piece.pods if origins[p] == node]
                devices = tuple(d for p in here for d in device_of.get(p, ()))
                yield node, Entry(piece.shape, unit.stay, len(here), 1, devices, False)


def _opened(v: Variables, node: int, entries: list[Entry]) -> list[Term]:
    """One term for each device without fixed pods that shares open: it is lost to whole requests."""
    slots = v.slots.get(node, [])
    if not slots:
        return _devices_of_staying_shares(
            v, node, [e for e in entries if v.joint.problem.shapes.shapes[e.shape].gpu.is_shared]
        )
    return [(1, slot.open) for slot in slots if v.joint.device_free[node][slot.device] >= WHOLE]


def _resources(v: Variables, node: int, entries: list[Entry], opened: list[Term]) -> None:
    problem = v.joint.problem
    for resource in range(v.joint.free.shape[0]):
        if resource == GPU or not v.joint.binds(resource):
            continue
        terms: list[Term] = []
        for entry in entries:
            amount = problem.shapes.shapes[entry.shape].request[resource] * entry.count
            if amount:
                terms.append((amount, entry.var))
        free = int(v.joint.free[resource, node])
        reserved = opened if resource == PODS else []
        terms += reserved
        if terms and _can_exceed(v, node, entries, resource, free - len(reserved)):
            v.spec.add_le(*_reduced(terms, free), family="capacity")


def _can_exceed(v: Variables, node: int, entries: list[Entry], resource: int, free: int) -> bool:
    """False where even the most that all variables allow fits: then the row says nothing."""
    shapes = v.joint.problem.shapes.shapes
    most = 0
    for entry in entries:
        count = min(entry.most, int(v.fitting(entry.shape)[node])) if entry.is_new else entry.most
        most += shapes[entry.shape].request[resource] * entry.count * count
    return most > free


def _reduced(terms: list[Term], free: int) -> tuple[list[Term], int]:
    """The row divided by a common divisor: bytes become what differs, and coefficients stay small."""
    divisor = gcd(*(c for c, _ in terms))
    return [(c // divisor, var) for c, var in terms], free // divisor


def _devices(v: Variables, node: int, entries: list[Entry], opened: list[Term]) -> None:
    """Whole devices by count; shares by device."""
    shapes = v.joint.problem.shapes.shapes
    slots = v.slots.get(node, [])
    free = v.joint.device_free[node]
    whole = [e for e in entries if shapes[e.shape].gpu.is_whole]
    shares = [e for e in entries if shapes[e.shape].gpu.is_shared]
    available = int((free[: v.joint.problem.nodes[node].gpus] >= WHOLE).sum())
    terms: list[Term] = [(shapes[e.shape].gpu.devices * e.count, e.var) for e in whole]
    if terms:
        v.spec.add_le([*terms, *opened], available, family="capacity")
    for slot in slots:
        _slot(v, slot, shares, int(free[slot.device]))
    for shape in sorted({shape for slot in slots for shape in slot.counts}):
        per_pod = shapes[shape].gpu.devices
        given = [(1, slot.counts[shape]) for slot in slots if shape in slot.counts]
        asked = [(-per_pod, e.var) for e in shares if e.is_new and e.shape == shape]
        v.spec.add_eq([*given, *asked], 0, family="capacity")
        if per_pod > 1:
            # A pod's shares are on devices of its own: no device has more of them than there are pods.
            pods: list[Term] = [(-1, e.var) for e in shares if e.is_new and e.shape == shape]
            for term in given:
                v.spec.add_le([term, *pods], 0, family="capacity")


def _devices_of_staying_shares(v: Variables, node: int, shares: list[Entry]) -> list[Term]:
    """No new shares come: one Boolean per device on which any share that may leave sits, true while one stays."""
    free = v.joint.device_free[node]
    opened: list[Term] = []
    for device in sorted({d for e in shares for d in e.devices}):
        if free[device] < WHOLE:
            continue
        is_open = v.spec.bool_var()
        for entry in shares:
            if device in entry.devices:
                v.spec.add_le([(1, entry.var), (-entry.most, is_open)], 0, family="capacity")
        opened.append((1, is_open))
    return opened


def _slot(v: Variables, slot: ShareSlot, shares: list[Entry], free: int) -> None:
    """One device: what stays on it and what comes is at most what is free; any of it opens the device."""
    parts_of = v.joint.problem.shapes.parts
    terms: list[Term] = [(int(parts_of(s)[slot.node]), var) for s, var in slot.counts.items()]
    for entry in shares:
        here = entry.devices.count(slot.device)
        if not entry.is_new and here:
            terms.append((int(parts_of(entry.shape)[slot.node]) * here, entry.var))
    if terms:
        v.spec.add_le(*_reduced([*terms, (-max(free, 0), slot.open)], 0), family="capacity")


def _emptying(v: Variables, node: int, entries: list[Entry]) -> None:
    """Where a pod lands that takes every device that could get free, nothing on such a device stays."""
    shapes = v.joint.problem.shapes.shapes
    is_available = v.joint.device_free[node] >= WHOLE
    available = int(is_available.sum())
    full = [e for e in entries if e.is_new and shapes[e.shape].gpu.is_whole]
    full = [e for e in full if shapes[e.shape].gpu.devices == available]
    if not full:
        return
    for entry in entries:
        gpu = shapes[entry.shape].gpu
        if not entry.is_new and (gpu.is_whole or any(is_available[d] for d in entry.devices)):
            landing: list[Term] = [(entry.most, e.var) for e in full]
            v.spec.add_le([(1, entry.var), *landing], entry.most, family="capacity")
