"""The tree of a PodGroup's subgroups, with the rules of KAI's webhook and in its words.

Source: docs/kai-behaviour.md#podgroup.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kai_solver.domain import PodSet, SubGroup, TopologyConstraint, flat_gang
from kai_solver.domain.object_limits import MOST_SUBGROUP_LEVELS, MOST_SUBGROUPS
from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import Raw


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
    if _states_both(spec):
        minimum = spec.get("minMember")
        raise InputError(
            f"minMember and minSubGroup are mutually exclusive: set minMember ({minimum.integer()}) to schedule a "
            "fixed number of pods, or set minSubGroup to require a minimum number of child SubGroups, but not both",
            field=minimum.path,
        )
    topology = read_topology(spec)
    stated = spec.items("subGroups")
    check_number(len(stated))
    parts = [_part(raw) for raw in stated]
    if not parts:
        return flat_gang(spec.count("minMember", 1), topology)
    roots = _linked(parts)
    return SubGroup("", tuple(_built(part) for part in roots), _min_subgroups(spec), topology)


def check_number(subgroups: int) -> None:
    """Asked before subgroups are made: a few words of a workload can stand for millions of them.

    Raises
    ------
    InputError
        There are too many.
    """
    if subgroups > MOST_SUBGROUPS:
        problem = f"{subgroups:,} subgroups; at most {MOST_SUBGROUPS:,} are read"
        raise InputError(problem, field="spec.subGroups", cure="Use fewer, larger subgroups")


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


def idle_minimums(spec: Raw) -> Iterator[str]:
    """Subgroups with subgroups of their own that state minMember, which has no effect: KAI refuses new ones."""
    children = _children(spec)
    for part in spec.items("subGroups"):
        name = part.text("name")
        if children[name] and part.get("minMember"):
            yield (
                f'subgroup "{name}": minMember cannot be set on a mid-level SubGroup (has child SubGroups); '
                "use minSubGroup instead"
            )


def unreachable_minimums(spec: Raw) -> Iterator[str]:
    """Where more subgroups are required than there are: KAI warns."""
    children = _children(spec)
    for part in (spec, *spec.items("subGroups")):
        wanted, name = part.integer("minSubGroup"), "" if part is spec else part.text("name")
        if wanted > children[name] and (children[name] or part is spec):
            at = f'subgroup "{name}": ' if name else ""
            yield f"{at}minSubGroup ({wanted}) exceeds the number of direct child SubGroups ({children[name]})"


def _children(spec: Raw) -> Counter[str]:
    """How many subgroups hang below each name; below none: those without a parent."""
    return Counter(part.text("parent") for part in spec.items("subGroups"))


def _part(raw: Raw) -> _Part:
    name = raw.required("name")
    if _states_both(raw):
        problem = f'subgroup "{name}": minMember and minSubGroup are mutually exclusive'
        raise InputError(problem, field=raw.get("minMember").path, cure="Keep one of them")
    return _Part(raw, name, raw.text("parent"))


def _states_both(raw: Raw) -> bool:
    return bool(raw.get("minMember") and raw.get("minSubGroup"))


def _linked(parts: list[_Part]) -> list[_Part]:
    """Hang every part under its parent; the parts without one. KAI lower-cases the names of parents."""
    by_name: dict[str, _Part] = {}
    for part in parts:
        if part.name in by_name:
            raise InputError(f"duplicate subgroup name {part.name}", field=part.raw.path, cure="Rename one")
        by_name[part.name] = part
    for part in parts:
        if not part.parent:
            continue
        parent = by_name.get(part.parent) or by_name.get(part.parent.lower())
        if parent is None:
            problem = f"parent {part.parent} of {part.name} was not found"
            raise InputError(problem, field=part.raw.path, cure="Add or correct it")
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
        raise InputError("cycle detected in subgroups", field="spec.subGroups", cure="Correct the parents")
    if depth > MOST_SUBGROUP_LEVELS:
        cure = f"Use at most {MOST_SUBGROUP_LEVELS}"
        raise InputError(f"the subgroups are {depth} deep", field="spec.subGroups", cure=cure)


def _built(part: _Part) -> SubGroup | PodSet:
    raw, topology = part.raw, read_topology(part.raw)
    if part.children:
        return SubGroup(part.name, tuple(_built(child) for child in part.children), _min_subgroups(raw), topology)
    if raw.get("minSubGroup"):
        problem = f'subgroup "{part.name}": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)'
        raise InputError(problem, field=raw.get("minSubGroup").path, cure="Write minMember instead")
    if not raw.get("minMember"):
        raise InputError(f"subgroup {part.name}: minMember is required", field=raw.get("minMember").path, cure="Add it")
    return PodSet(part.name, max(raw.integer("minMember"), 0), topology)  # as KAI's scheduler reads it


def _min_subgroups(raw: Raw) -> int | None:
    return raw.count("minSubGroup") if raw.get("minSubGroup") else None
