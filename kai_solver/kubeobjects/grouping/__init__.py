"""Pods without a PodGroup become gangs: by owners and labels, one file per family (docs/kai-behaviour.md#kinds).

Each family is a `PodGrouper`; other packages add theirs as entry points of the group ``kai_solver.pod_groupers``.
The answer is the PodGroup object that KAI's own pod grouper would write, so that there is one way from PodGroup
to gang, and a controller can create exactly what the offline import uses.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kai_solver.domain.object_limits import MOST_EMPTY_SUBGROUPS
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.inherit import (
    QueueChoice,
    Surroundings,
    are_spares_judged,
    choose_queue,
    is_queue_judged,
    pod_group_object,
    queue_of_pod,
    wants_spares,
)
from kai_solver.kubeobjects.grouping.model import Group, Member, Part, PodGrouper
from kai_solver.kubeobjects.grouping.registry import BUILT_IN, ENTRY_POINTS, by_priority, groupers
from kai_solver.kubeobjects.grouping.written import OwnGroup, followed, is_own, own_group
from kai_solver.kubeobjects.tree import check_number


@dataclass(frozen=True, slots=True)
class Grouped:
    """A gang that a grouper made.

    Attributes
    ----------
    pod_group
        The PodGroup as an object.
    podsets
        Leaf by pod (``namespace/name``); ``default`` where a pod is not in it.
    queue
        The queue and what named it.
    grouper
        Name of the family.
    own
        The PodGroup as it may be written into the cluster; None where it may not.
    empty
        Subgroups beyond two for each pod: its own, and one that this is part of.
    lacks_room
        Whether it was set aside, as its namespace has too many of those.
    is_judged
        False where the author has to be one that may use the queue, and admission did not see where it is named.
    lacks_spares
        Whether the same is so of spare nodes, which are then not asked for.
    """

    pod_group: dict[str, Any]
    podsets: Mapping[str, str]
    queue: QueueChoice
    grouper: str
    own: OwnGroup | None
    empty: int = 0
    lacks_room: bool = False
    is_judged: bool = True
    lacks_spares: bool = False


Claim = tuple[PodGrouper, str]
"""The family that has a pod, and its name of the pod's gang."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Pods that one family puts into one gang: what a PodGroup is made of. ``name``: of the PodGroup."""

    family: PodGrouper
    namespace: str
    name: str
    members: list[Member]
    key: str = field(init=False)
    """``namespace/name`` of the PodGroup."""

    def __post_init__(self) -> None:
        """Write the key once: it is asked for all the time."""
        object.__setattr__(self, "key", f"{self.namespace}/{self.name}")

    @property
    def made_of(self) -> tuple[object, ...]:
        """All that `group` looks at; where these are the very same objects, so is the answer."""
        heeds_status = getattr(self.family, "heeds_status", True)
        pods = (member.pod if heeds_status else member.pod.labels for member in self.members)
        owners = (owner for member in self.members for owner in (*member.owners, *member.above))
        return (*pods, *(owner.raw.value for owner in owners))

    def group(self, around: Surroundings, lacks_room: Callable[[int], bool] = lambda _: False) -> Grouped:
        """The PodGroup of these pods; ``lacks_room``: whether so many empty subgroups are too many."""
        group = _shape(self.family, self.members)
        empty = max(0, len(group.parts) - 2 * len(self.members))
        is_over = lacks_room(empty)
        if is_over:
            text = f"more than {MOST_EMPTY_SUBGROUPS:,} subgroups of namespace {self.namespace} have no pods yet"
            group = Group(problem=f"{text}. Use fewer, larger subgroups")
        access, settings = around.settings.access, around.settings
        queue = choose_queue(self.members, around)
        asks_for_author = access.asks_for_author(queue.queue, self.namespace)
        is_judged = not asks_for_author or is_queue_judged(queue, self.members, settings)
        lacks_spares = access.spares_ask_for_author(self.namespace) and not are_spares_judged(self.members)
        written = pod_group_object(self.name, group, self.members, queue.queue, around)
        if lacks_spares:
            del written["metadata"]["annotations"][names.OWN_MAY_USE_SPARES]
        # A PodGroup keeps its queue, whatever the owner says later: one that no author was judged for is not written.
        own = own_group(written, group, self.members) if is_judged else None
        return Grouped(written, group.podsets, queue, self.family.name, own, empty, is_over, is_judged, lacks_spares)


def claim_of(member: Member) -> Claim:
    """The family that has the pod, and its name of the pod's gang.

    Raises
    ------
    InputError
        No family claims the pod.
    """
    for family in groupers():
        name = family.claim(member)
        if name:
            return family, name
    raise InputError(f"no pod grouper claims pod {member.pod.key}", cure="Keep the default grouper")


def claimed(members: Iterable[Member], claim: Callable[[Member], Claim] = claim_of) -> list[Claimed]:
    """All ``members`` by gang, in the order in which the gangs' first pods come."""
    found: dict[tuple[str, str, str], Claimed] = {}
    for member in members:
        family, name = claim(member)
        namespace = member.pod.namespace
        key = (family.name, namespace, name)
        gang = found.get(key)
        if gang is None:
            gang = found[key] = Claimed(family, namespace, name, [])
        gang.members.append(member)
    return list(found.values())


def podsets_by_family(family: PodGrouper, members: Sequence[Member]) -> Mapping[str, str]:
    """Podset by pod as their family would have it, for pods that join a PodGroup that is there already."""
    return _shape(family, members).podsets


def _shape(family: PodGrouper, members: Sequence[Member]) -> Group:
    """The family's answer; an owner that cannot be read sets the gang aside, and so do too many parts."""
    try:
        group = family.group(members)
        check_number(len(group.parts))
    except InputError as error:
        return Group(problem=str(error))
    return group


__all__ = [
    "BUILT_IN",
    "ENTRY_POINTS",
    "Claim",
    "Claimed",
    "Group",
    "Grouped",
    "Member",
    "OwnGroup",
    "Part",
    "PodGrouper",
    "QueueChoice",
    "Surroundings",
    "by_priority",
    "choose_queue",
    "claim_of",
    "claimed",
    "followed",
    "groupers",
    "is_own",
    "pod_group_object",
    "podsets_by_family",
    "queue_of_pod",
    "wants_spares",
]
