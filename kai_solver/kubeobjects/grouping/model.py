"""What groupers see and what they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from kai_solver.kubeobjects.owners import Owner
from kai_solver.kubeobjects.pods import RawPod


@dataclass(frozen=True, slots=True)
class Member:
    """A pod with its owners, nearest first. ``above``: owners of those, not grouped by, nearest first."""

    pod: RawPod
    owners: tuple[Owner, ...]
    above: tuple[Owner, ...] = ()

    @property
    def top(self) -> Owner | None:
        """The owner to group by; None for a plain pod."""
        return self.owners[-1] if self.owners else None

    @property
    def speaking(self) -> tuple[Owner, ...]:
        """Owners that state something for the pod, the strongest first; none for a plain pod."""
        return (self.owners[-1], *self.above, *self.owners[-2::-1]) if self.owners else ()

    @property
    def fallbacks(self) -> tuple[Owner, ...]:
        """Owners that state something for a plain pod where it states nothing itself."""
        return () if self.owners else self.above

    def owner_of_kind(self, *kinds: str) -> Owner | None:
        """The nearest owner of one of these kinds."""
        return next((owner for owner in self.owners if owner.kind in kinds), None) if self.owners else None

    def is_of(self, group: str, *kinds: str) -> bool:
        """Whether the owner to group by is one of these kinds."""
        return self.top is not None and self.top.is_a(group, *kinds)

    @property
    def is_known_by_labels(self) -> bool:
        """Whether only labels can say what it is of: nothing is known of an owner above those that make pods."""
        top = self.top
        return top is None or not top.raw or (top.group, top.kind) in _MAKE_PODS

    def stated(self, name: str) -> str:
        """A label or annotation, of the top owner first, of the pod last; empty where none states it."""
        of_pod = self.pod.labels.get(name) or self.pod.annotations.get(name)
        if not self.owners:  # most pods, and asked of each a dozen times
            return of_pod or _first_stated(self.above, name)
        return self.stated_by_owner(name) or of_pod or ""

    def stated_by_owner(self, name: str) -> str:
        """A label or annotation of the first owner that has it; empty where none has."""
        return _first_stated(self.speaking, name)


_MAKE_PODS = frozenset({("batch", "Job"), ("apps", "StatefulSet"), ("", "Pod")})


def _first_stated(owners: tuple[Owner, ...], name: str) -> str:
    if not owners:
        return ""
    found = (owner.labels.get(name) or owner.annotations.get(name) for owner in owners)
    return next((value for value in found if value), "")


@dataclass(frozen=True, slots=True)
class Part:
    """A subgroup: a leaf has ``min_member``, an inner one may have ``min_subgroup``.

    ``topology`` empty: the one that the workload names.
    """

    name: str
    min_member: int | None = None
    min_subgroup: int | None = None
    parent: str = ""
    topology: str = ""
    required_level: str = ""
    preferred_level: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A gang as a grouper sees it.

    Attributes
    ----------
    min_member
        Pods needed at once, for a gang without parts.
    min_subgroup
        How many of the topmost parts are needed; None: all.
    podsets
        Leaf by pod (``namespace/name``); pods that are not in it are in the only podset.
    templates_speak_for_parts
        What the pods' templates say of topologies is about their parts, and not about the whole gang.
    priority_class
        Of the workload's kind, where none is stated; empty: the settings' default.
    own_priority_class
        As the workload states it in a field of its own, which comes before all else; empty for most.
    topology
        The same: topology, required and preferred level of the whole gang; no levels for most.
    workload
        Name of the workload of which this gang is one of many replicas; empty for most.
    problem
        Why the gang must be set aside; empty for most.
    """

    min_member: int = 1
    parts: tuple[Part, ...] = ()
    min_subgroup: int | None = None
    podsets: Mapping[str, str] = field(default_factory=dict)
    templates_speak_for_parts: bool = False
    priority_class: str = ""
    own_priority_class: str = ""
    topology: tuple[str, str, str] = ("", "", "")
    workload: str = ""
    problem: str = ""


@runtime_checkable
class PodGrouper(Protocol):
    """One family of workloads. Groupers of other packages register under ``kai_solver.pod_groupers``.

    ``priority``: the grouper with the highest one that claims a pod has it; built-in ones are 0 to 1000. A grouper
    that has an attribute ``heeds_status`` and says False there promises that states of pods make no difference to it.
    """

    name: str
    priority: int

    def claim(self, member: Member) -> str | None:
        """Name of the pod's gang in its namespace, or None where the pod is not of this family.

        What it depends on must stay as long as the pod does: labels, annotations and owners, but no state and no node.
        """

    def group(self, members: Sequence[Member]) -> Group:
        """Shape of the gang of all pods with one claim; at least one."""


_LONGEST_NAME = 253


def named_after(name: str, uid: str, kind: str) -> str:
    """KAI's name of a PodGroup; manifests without uid are distinguished by their kind.

    It is cut where an API server would refuse it, as it refuses KAI's; the uid tells objects apart.
    """
    if not uid:
        return f"pg-{kind.lower()}-{name}"
    room = max(_LONGEST_NAME - len(f"pg--{uid}"), 0)
    return f"pg-{name if len(name) <= room else name[:room].rstrip('-.')}-{uid}"
