"""Grove: what a PodGang says its pods are together (docs/kai-behaviour.md#kinds)."""

from collections.abc import Mapping, Sequence

from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.model import Group, Member, Part, named_after
from kai_solver.kubeobjects.raw import Raw

_GROUP = "scheduler.grove.io"
_TOPOLOGY_NAME = "grove.io/topology-name"

Levels = tuple[str, str, str]
"""Topology, required and preferred level."""


class GroveGrouper:
    """One gang per PodGang: a part for each of its pod groups, below those whose topology several share."""

    name = "grove"
    priority = 650
    heeds_status = False

    def claim(self, member: Member) -> str | None:
        """Pods of a PodCliqueSet that belong to a PodGang by their label."""
        gang = member.top
        return named_after(gang.name, gang.uid, gang.kind) if gang and gang.is_a(_GROUP, "PodGang") else None

    def group(self, members: Sequence[Member]) -> Group:
        """From the PodGang.

        Raises
        ------
        InputError
            The PodGang is not there, or cannot be read. KAI's pod grouper waits for it too.
        """
        gang = members[0].top
        if gang is None or not gang.raw:
            problem = f"waits for PodGang {gang.name if gang else ''}, which does not exist"
            raise InputError(problem, cure="Let Grove make it, or export it too")
        spec, topology = gang.raw.get("spec"), gang.annotations.get(_TOPOLOGY_NAME, "")
        parents: dict[str, str] = {}
        parts = [_shared(raw, topology, parents) for raw in spec.items("topologyConstraintGroupConfigs")]
        podset_of: dict[str, str] = {}
        parts += [_part(raw, topology, parents, podset_of) for raw in spec.items("podgroups")]
        stated = members[0].stated_by_owner(names.PRIORITY_CLASS)
        return Group(
            parts=tuple(part for part in parts if part is not None),
            podsets={m.pod.key: _podset(m, podset_of) for m in members},
            own_priority_class=stated or spec.text("priorityClassName"),
            topology=_levels(spec, topology),
        )


def _shared(raw: Raw, topology: str, parents: dict[str, str]) -> Part | None:
    """A part over several pod groups; their names go to ``parents``. One without any is none."""
    children = [name.text() for name in raw.items("podGroupNames")]
    if not children:
        return None
    name = raw.required("name")
    parents.update(dict.fromkeys(children, name))
    return Part(name, None, None, "", *_levels(raw, topology))


def _part(raw: Raw, topology: str, parents: Mapping[str, str], podset_of: dict[str, str]) -> Part:
    """A pod group; the pods that it refers to go to ``podset_of``."""
    name, least = raw.required("name"), raw.integer("minReplicas")
    if least < 1:
        raise InputError(f"{least} is out of range", field=raw.get("minReplicas").path, cure="Write a number above 0")
    for pod in raw.items("podReferences"):
        podset_of[f"{pod.required('namespace')}/{pod.required('name')}"] = name
    return Part(name, least, None, parents.get(name, ""), *_levels(raw, topology))


def _levels(raw: Raw, topology: str) -> Levels:
    pack = raw.get("topologyConstraint.packConstraint")
    return topology, pack.text("required"), pack.text("preferred")


def _podset(member: Member, podset_of: Mapping[str, str]) -> str:
    """Of a pod that the PodGang does not refer to yet: its clique is named like its pod group."""
    clique = member.owner_of_kind("PodClique")
    return podset_of.get(member.pod.key, clique.name if clique else "default")
