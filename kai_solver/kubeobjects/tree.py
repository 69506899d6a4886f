"""The tree of a PodGroup's subgroups (reference 2.2), with the rules of KAI's webhook."""

from dataclasses import dataclass, field

from kai_solver.domain import PodSet, SubGroup, TopologyConstraint, flat_gang
from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import Raw

MAX_DEPTH = 64
"""Levels of subgroups that are accepted; real trees have two or three."""


@dataclass(slots=True)
class _Part:
    """One subgroup as written, with its children."""

    raw: Raw
    name: str
    parent: str
    children: list["_Part"] = field(default_factory=list)


def read_tree(spec: Raw) -> SubGroup:
    """The tree of a PodGroup's spec; flat where it has no subgroups.

    Raises
    ------
    InputError
        What KAI's webhook rejects: minMember and minSubGroup at one level, a doubled name, a missing parent, a
        loop, a leaf without minMember or with minSubGroup.
    """
    _not_both(spec)
    topology = read_topology(spec)
    parts = [_part(raw) for raw in spec.items("subGroups")]
    if not parts:
        return flat_gang(spec.count("minMember", 1), topology)
    roots = _linked(parts)
    return SubGroup("", tuple(_built(part) for part in roots), _min_subgroups(spec), topology)


def read_topology(raw: Raw) -> TopologyConstraint | None:
    """A topology constraint; None where none is asked for (KAI writes an empty object then)."""
    asked = raw.get("topologyConstraint")
    required, preferred = asked.text("requiredTopologyLevel"), asked.text("preferredTopologyLevel")
    name = asked.text("topology")
    if not required and not preferred:
        return None
    if not name:
        raise InputError("is missing", field=f"{asked.path}.topology", cure="Name the topology of the level")
    return TopologyConstraint(name, required, preferred)


def _part(raw: Raw) -> _Part:
    _not_both(raw)
    return _Part(raw, raw.required("name"), raw.text("parent"))


def _not_both(raw: Raw) -> None:
    if raw.get("minMember") and raw.get("minSubGroup"):
        raise InputError("stands beside minSubGroup", field=raw.get("minMember").path, cure="Keep one of them")


def _linked(parts: list[_Part]) -> list[_Part]:
    """Hang every part under its parent; the parts without one. KAI lower-cases the names of parents."""
    by_name: dict[str, _Part] = {}
    for part in parts:
        if part.name in by_name:
            raise InputError(f"the name {part.name!r} is there twice", field=part.raw.path, cure="Rename one")
        by_name[part.name] = part
    for part in parts:
        if not part.parent:
            continue
        parent = by_name.get(part.parent) or by_name.get(part.parent.lower())
        if parent is None:
            raise InputError(
                f"the parent {part.parent!r} does not exist", field=part.raw.path, cure="Add or correct it"
            )
        parent.children.append(part)
    roots = [part for part in parts if not part.parent]
    _check_shape(roots, len(parts))
    return roots


def _check_shape(roots: list[_Part], total: int) -> None:
    """Every part hangs below a root, and not too deep."""
    level, reached, depth = roots, 0, 0
    while level:
        reached, depth = reached + len(level), depth + 1
        level = [child for part in level for child in part.children]
    if reached < total:
        raise InputError("the subgroups form a loop", field="spec.subGroups", cure="Correct the parents")
    if depth > MAX_DEPTH:
        raise InputError(f"the subgroups are {depth} deep", field="spec.subGroups", cure=f"Use at most {MAX_DEPTH}")


def _built(part: _Part) -> SubGroup | PodSet:
    raw, topology = part.raw, read_topology(part.raw)
    if part.children:
        return SubGroup(part.name, tuple(_built(child) for child in part.children), _min_subgroups(raw), topology)
    if raw.get("minSubGroup"):
        raise InputError("a leaf has no subgroups", field=raw.get("minSubGroup").path, cure="Write minMember instead")
    if not raw.get("minMember"):
        raise InputError("is missing on a leaf", field=raw.get("minMember").path, cure="Add it")
    return PodSet(part.name, raw.count("minMember"), topology)


def _min_subgroups(raw: Raw) -> int | None:
    return raw.count("minSubGroup") if raw.get("minSubGroup") else None
