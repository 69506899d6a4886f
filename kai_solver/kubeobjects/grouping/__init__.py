"""Pods without a PodGroup become gangs: by owners and labels, one file per family (reference 1.7).

Each family is a `PodGrouper`; other packages add theirs as entry points of the group ``kai_solver.pod_groupers``.
The answer is the PodGroup object that KAI's own pod grouper would write, so that there is one way from PodGroup
to gang, and a controller can create exactly what the offline import uses.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kai_solver.errors import InputError
from kai_solver.kubeobjects.grouping.inherit import QueueChoice, Surroundings, choose_queue, pod_group_object
from kai_solver.kubeobjects.grouping.model import Group, Member, Part, PodGrouper
from kai_solver.kubeobjects.grouping.registry import BUILT_IN, ENTRY_POINTS, by_priority, groupers
from kai_solver.kubeobjects.pods import RawPod


@dataclass(frozen=True, slots=True)
class Grouped:
    """A gang that a grouper made.

    Attributes
    ----------
    pod_group
        The PodGroup as an object.
    pods
        Its pods, each with its podset.
    queue
        The queue and who named it.
    grouper
        Name of the family.
    """

    pod_group: dict[str, Any]
    pods: tuple[tuple[RawPod, str], ...]
    queue: QueueChoice
    grouper: str


def group_pods(
    members: Iterable[Member], around: Surroundings, families: Sequence[PodGrouper] | None = None
) -> list[Grouped]:
    """Gangs of all ``members``, in the order in which their first pods come."""
    claims: dict[tuple[str, str, str], list[Member]] = {}
    by_name = {family.name: family for family in (families or groupers())}
    for member in members:
        family, name = _claim(member, tuple(by_name.values()))
        claims.setdefault((family.name, member.pod.namespace, name), []).append(member)
    return [_grouped(by_name[family], name, found, around) for (family, _, name), found in claims.items()]


def podsets_by_family(members: Sequence[Member]) -> Mapping[str, str]:
    """Podset by pod as their family would have it, for pods that join a PodGroup that is there already."""
    family, _ = _claim(members[0], groupers())
    return _shape(family, members).podsets


def claim_of(member: Member) -> str:
    """Name of the gang that the pod's family would put it in."""
    return _claim(member, groupers())[1]


def _claim(member: Member, families: Sequence[PodGrouper]) -> tuple[PodGrouper, str]:
    for family in families:
        name = family.claim(member)
        if name:
            return family, name
    raise InputError(f"no pod grouper claims pod {member.pod.key}", cure="Keep the default grouper")


def _grouped(family: PodGrouper, name: str, members: Sequence[Member], around: Surroundings) -> Grouped:
    group = _shape(family, members)
    queue = choose_queue(members, around)
    written = pod_group_object(name, group, members, queue.queue, around)
    pods = tuple((member.pod, group.podsets.get(member.pod.key, "default")) for member in members)
    return Grouped(written, pods, queue, family.name)


def _shape(family: PodGrouper, members: Sequence[Member]) -> Group:
    """The family's answer; an owner that cannot be read sets the gang aside."""
    try:
        return family.group(members)
    except InputError as error:
        return Group(problem=str(error))


__all__ = [
    "BUILT_IN",
    "ENTRY_POINTS",
    "Group",
    "Grouped",
    "Member",
    "Part",
    "PodGrouper",
    "QueueChoice",
    "Surroundings",
    "by_priority",
    "choose_queue",
    "claim_of",
    "group_pods",
    "groupers",
    "pod_group_object",
    "podsets_by_family",
]
