"""Which pod belongs to which gang: by name, by owner, else by grouping."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from kai_solver.domain import Gang, inherited
from kai_solver.domain.object_limits import MOST_EMPTY_SUBGROUPS
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.access import no_spares_text
from kai_solver.kubeobjects.domains import read_may_use_spares
from kai_solver.kubeobjects.grouping import (
    Claimed,
    Member,
    OwnGroup,
    Surroundings,
    claimed,
    followed,
    groupers,
    is_own,
    podsets_by_family,
)
from kai_solver.kubeobjects.members import Members
from kai_solver.kubeobjects.notices import Notices, namespaced_key
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.owners import OwnerIndex, top_owner
from kai_solver.kubeobjects.placements import agreed, read_placement
from kai_solver.kubeobjects.podgroups import GangReader
from kai_solver.kubeobjects.pods import RawPod
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.recall import GroupFacts
from kai_solver.kubeobjects.settings import KubeSettings

_NAMED = 5
_ELSEWHERE = "another shard's scheduler places it"

Assigned = dict[str, list[tuple[RawPod, str]]]
"""Pods with their podsets, by gang (``namespace/name``)."""


@dataclass(slots=True)
class Membership:
    """Gangs with their pods, gangs of other node pools, and the pods that found none of ours.

    ``ungrouped``: those that another component is to group first; ``unwritten``: gangs that have no PodGroup;
    ``stated_creation_s``: since when gangs of ours are there, as their PodGroups state; ``unjudged``: gangs without a
    PodGroup whose queue is named where admission does not see it.
    """

    gangs: dict[str, Gang]
    elsewhere: frozenset[str] = frozenset()
    assigned: Assigned = field(default_factory=lambda: defaultdict(list))
    loose: list[RawPod] = field(default_factory=list)
    ungrouped: list[RawPod] = field(default_factory=list)
    stated_creation_s: dict[str, float] = field(default_factory=dict)
    unwritten: set[str] = field(default_factory=set)
    unjudged: set[str] = field(default_factory=set)


def assign(
    pods: Iterable[RawPod], pod_groups: tuple[Object, ...], owners: OwnerIndex, reader: GangReader, around: Surroundings
) -> Membership:
    """Assign every pod of ours to its gang.

    A pod belongs to the PodGroup that its annotation names, else to the one PodGroup of its owner, else to the
    gang that its family makes of it. A pod that refers to something that does not exist stays loose, with a notice.
    PodGroups that we wrote follow what the family says by now.
    """
    gangs = reader.read_all(pod_groups)
    facts = [found for value in pod_groups if (found := reader.facts(value)) is not None]
    outcome = Membership(gangs, frozenset(found.key for found in facts if not found.is_ours))
    own = _own(outcome, facts)
    others = tuple(value for value in pod_groups if not is_own(value)) if own else pod_groups
    unnamed: list[Member] = []
    groupers()  # a grouper that cannot be loaded is no fault of a pod
    for pod in pods:
        try:
            member = _seated_or_member(pod, owners, outcome, reader, around, own)
        except Exception as error:
            _put_aside(outcome, [pod], error, reader.notices)
            continue
        if member is not None:
            unnamed.append(member)
    made = _Made(_gangs_by_owner(others), owners, reader.recall.members)
    ungrouped = _join(outcome, unnamed, made, reader)
    _group(outcome, ungrouped, reader, around, own)
    _leave(outcome, reader.notices)
    _hear_pods(outcome, reader.notices)
    return outcome


def _seated_or_member(
    pod: RawPod,
    owners: OwnerIndex,
    outcome: Membership,
    reader: GangReader,
    around: Surroundings,
    own: Mapping[str, Object],
) -> Member | None:
    """Assign a pod that names its PodGroup; returns the pod with its owners if it still has to be grouped."""
    named, members = pod.annotations.get(names.POD_GROUP, ""), reader.recall.members
    if named and not _is_of_our_making(pod, f"{pod.namespace}/{named}", owners, outcome, own, members):
        _assign(outcome, pod, f"{pod.namespace}/{named}", pod.labels.get(names.SUBGROUP) or "default", reader.notices)
        return None
    if not around.settings.groups_pods:
        outcome.ungrouped.append(pod)
        return None
    return _member(pod, owners, outcome, reader, around)


def _put_aside(outcome: Membership, pods: Iterable[RawPod], error: Exception, notices: Notices) -> None:
    """Pods that cannot be grouped hold what they hold, and wait."""
    for pod in pods:
        notices.set_aside(f"Pod {pod.key}", error)
        outcome.loose.append(pod)


def _own(outcome: Membership, facts: Iterable[GroupFacts]) -> dict[str, Object]:
    """PodGroups that we wrote, as far as they can be read, by ``namespace/name``."""
    own = {}
    for found in facts:
        gang = outcome.gangs.get(found.key) if found.is_own else None
        if gang is not None and not gang.set_aside:
            own[found.key] = found.value
            if found.stated_creation_s is not None:
                outcome.stated_creation_s[found.key] = found.stated_creation_s
    return own


def _is_of_our_making(
    pod: RawPod, named: str, owners: OwnerIndex, outcome: Membership, own: Mapping[str, Object], members: Members
) -> bool:
    """Whether the PodGroup that a pod names is one that we wrote, or are still to write."""
    if named in own:
        return True
    if named in outcome.gangs or named in outcome.elsewhere:
        return False
    try:
        return f"{pod.namespace}/{members.claim(members.of(pod, owners))[1]}" == named
    except InputError:
        return False


def _leave(outcome: Membership, notices: Notices) -> None:
    """Pods that another component groups are left to it: one notice for all that wait."""
    outcome.loose += outcome.ungrouped
    waiting = [pod.key for pod in outcome.ungrouped if not pod.status.holds_resources]
    if waiting:
        named = ", ".join(waiting[:_NAMED]) + (f" and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else "")
        notices.warn("Pods", f"wait for a pod grouper to name their PodGroup ({names.POD_GROUP}): {named}")


def _hear_pods(outcome: Membership, notices: Notices) -> None:
    """What pods state about their places, where their PodGroup leaves it open."""
    known = {*names.PLACEMENT, names.OWN_MAY_USE_SPARES}
    for key, assigned in outcome.assigned.items():
        stating = [pod for pod, _ in assigned if not pod.annotations.keys().isdisjoint(known)]
        if stating:
            gang = outcome.gangs[key]
            try:
                outcome.gangs[key] = _as_stated(gang, stating, notices)
            except Exception as error:
                outcome.gangs[key] = replace(gang, set_aside=notices.set_aside(f"PodGroup {key}", error))


def _as_stated(gang: Gang, pods: list[RawPod], notices: Notices) -> Gang:
    """The gang with what its ``pods`` state about their places."""
    stated = (read_placement(pod.annotations, f"Pod {pod.key}", notices) for pod in pods)
    found = agreed(stated, f"PodGroup {gang.key}", notices)
    uses = [read_may_use_spares(pod.annotations, f"Pod {pod.key}", notices) for pod in pods]
    return replace(gang, placement=inherited([gang.placement, found]), may_use_spares=gang.may_use_spares or any(uses))


def _member(
    pod: RawPod, owners: OwnerIndex, outcome: Membership, reader: GangReader, around: Surroundings
) -> Member | None:
    """The pod with its owners; None where it is of another node pool, or waits for a PodGroup of another component."""
    members = reader.recall.members
    try:
        member = members.of(pod, owners)
    except InputError as error:
        reader.notices.set_aside(f"Pod {pod.key}", error)
        outcome.loose.append(pod)
        return None
    apart = members.apart(member, partial(_apart, settings=around.settings))
    if not apart:
        return member
    if apart != _ELSEWHERE:
        reader.notices.warn(f"Pod {pod.key}", apart)
    outcome.loose.append(pod)
    return None


def _apart(member: Member, settings: KubeSettings) -> str:
    """Why a pod that names no PodGroup is not grouped here; empty where it is."""
    if member.stated(settings.node_pool_key) != settings.node_pool:
        return _ELSEWHERE
    if member.stated(names.SKIP_PODGROUPER) == "true":
        return f"waits for a PodGroup: {names.SKIP_PODGROUPER} is set and it names none"
    return ""


def _assign(outcome: Membership, pod: RawPod, gang_key: str, podset: str, notices: Notices) -> None:
    gang = outcome.gangs.get(gang_key)
    if gang_key in outcome.elsewhere:
        outcome.loose.append(pod)
    elif gang is None:
        notices.warn(f"Pod {pod.key}", f"waits for PodGroup {gang_key}, which does not exist. Create or export it")
        outcome.loose.append(pod)
    elif gang.set_aside:
        outcome.assigned[gang_key].append((pod, next(gang.root.podsets()).name))
    elif not gang.root.has(podset):
        text = f'Pod references subgroup "{podset}", which does not exist in PodGroup {gang_key}'
        notices.set_aside(f"Pod {pod.key}", text)
        outcome.loose.append(pod)
    else:
        outcome.assigned[gang_key].append((pod, podset))


def _gangs_by_owner(pod_groups: tuple[Object, ...]) -> dict[tuple[str, str], list[str]]:
    """PodGroups by namespace and the uid of the owner that they were made for (owner reference, top owner annotation).

    Any user may state the uid of an object of another namespace, so a PodGroup is only for pods of its own.
    """
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for value in pod_groups:
        raw = Raw(value)
        try:
            key = namespaced_key(raw)
            uids = {reference.text("uid") for reference in raw.items("metadata.ownerReferences")}
            uids.add(top_owner(raw.strings("metadata.annotations")).get("uid", ""))
        except InputError:
            continue  # read_all has said so
        for uid in uids - {""}:
            found[key.partition("/")[0], uid].append(key)
    return found


@dataclass(frozen=True, slots=True)
class _Made:
    """Gangs by their namespace and the uid of the owners that their PodGroups were made for."""

    by_uid: Mapping[tuple[str, str], list[str]]
    owners: OwnerIndex
    members: Members

    def gang_of(self, member: Member, outcome: Membership) -> str:
        """The PodGroup of the pod itself, else the only one of an owner, if it takes pods like this one."""
        if not self.by_uid:
            return ""
        namespace = member.pod.namespace
        of_pod = self.by_uid.get((namespace, member.pod.uid), []) if member.pod.uid else []
        if len(of_pod) == 1:
            return of_pod[0]
        for owner in member.owners:
            found = self.by_uid.get((namespace, owner.uid), []) if owner.uid else []
            if len(found) == 1 and self._is_shared(member, outcome.assigned.get(found[0], [])):
                return found[0]
        return ""

    def _is_shared(self, member: Member, seated: list[tuple[RawPod, str]]) -> bool:
        """Whether the family puts this pod and those that sit there already into one gang (Deployments do not)."""
        if not seated:
            return True
        pod = seated[0][0]
        return self.members.claim(self.members.of(pod, self.owners))[1] == self.members.claim(member)[1]


def _join(outcome: Membership, members: list[Member], made: _Made, reader: GangReader) -> list[Member]:
    """Assign pods that the pod grouper has not labelled yet to the PodGroup of their owner; the others are left."""
    notices = reader.notices
    joining: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        try:
            joining[made.gang_of(member, outcome)].append(member)
        except Exception as error:
            _put_aside(outcome, [member.pod], error, notices)
    left = joining.pop("", [])
    for gang, found in joining.items():
        try:
            family, name = made.members.claim(found[0])
            made_of = Claimed(family, found[0].pod.namespace, name, found).made_of
            make = partial(podsets_by_family, family, found)
            podsets = reader.recall.made(f"joins {gang}", made_of, notices, make)
        except Exception as error:
            _put_aside(outcome, (member.pod for member in found), error, notices)
            continue
        flat = gang in outcome.gangs and [leaf.name for leaf in outcome.gangs[gang].root.podsets()] == ["default"]
        for member in found:
            podset = member.pod.labels.get(names.SUBGROUP) or podsets.get(member.pod.key, "default")
            _assign(outcome, member.pod, gang, "default" if flat else podset, notices)
    return left


@dataclass(frozen=True, slots=True)
class _Grouped:
    """A gang without a PodGroup: without pods, with the podset of each."""

    gang: Gang
    podsets: Mapping[str, str]
    is_fallback: bool
    own: OwnGroup | None
    empty: int
    lacks_room: bool
    is_judged: bool


def _group(
    outcome: Membership, members: list[Member], reader: GangReader, around: Surroundings, own: Mapping[str, Object]
) -> None:
    """Pods without a gang, into new gangs; a PodGroup of that name takes them instead."""
    room: dict[str, int] = defaultdict(lambda: MOST_EMPTY_SUBGROUPS)
    for found in claimed(_claimable(outcome, members, reader), reader.recall.members.claim):
        lacks = partial(_lacks_room, found, room[found.namespace])
        make = partial(_read, found, reader, around, lacks)
        try:
            grouped = reader.recall.grouped(found, reader.notices, make, partial(_is_still, lacks))
        except Exception as error:
            _put_aside(outcome, (member.pod for member in found.members), error, reader.notices)
            continue
        room[found.namespace] -= 0 if grouped.lacks_room else grouped.empty
        if grouped.own is not None:
            reader.recall.own_groups[found.key] = grouped.own
            if found.key in own:
                _follow(outcome, found.key, own[found.key], grouped.own, reader)
        if found.key not in outcome.gangs:
            outcome.gangs[found.key] = grouped.gang
            outcome.unwritten.add(found.key)
            if not grouped.is_judged:
                outcome.unjudged.add(found.key)
            if grouped.is_fallback:
                text = f"no label {around.settings.queue_label_key} on its pods or owners: queue {grouped.gang.queue}"
                reader.notices.warn(f"PodGroup {found.key}", text)
        for member in found.members:
            podset = grouped.podsets.get(member.pod.key, "default")
            _assign(outcome, member.pod, found.key, podset, reader.notices)


def _lacks_room(found: Claimed, room: int, empty: int) -> bool:
    """Whether so many empty subgroups are too many; a gang that runs has its place."""
    return empty > max(room, 0) and not any(member.pod.status.is_active for member in found.members)


def _is_still(lacks: Callable[[int], bool], grouped: _Grouped) -> bool:
    return lacks(grouped.empty) == grouped.lacks_room


def _claimable(outcome: Membership, members: list[Member], reader: GangReader) -> Iterator[Member]:
    """Those that some family of groupers claims; the result is kept."""
    for member in members:
        try:
            reader.recall.members.claim(member)
        except Exception as error:
            _put_aside(outcome, [member.pod], error, reader.notices)
        else:
            yield member


def _follow(outcome: Membership, key: str, stands: Object, wanted: OwnGroup, reader: GangReader) -> None:
    """A PodGroup of ours counts as it will be written: its workload may have changed."""
    differing = followed(stands, wanted.document)
    if differing:
        raw = Raw({**stands, "spec": {**(stands.get("spec") or {}), **differing}})
        make = partial(reader.read, raw)
        outcome.gangs[key] = reader.recall.made(f"follows {key}", (stands, wanted), reader.notices, make)


def _read(found: Claimed, reader: GangReader, around: Surroundings, lacks: Callable[[int], bool]) -> _Grouped:
    grouped = found.group(around, lacks)
    if grouped.lacks_spares:
        text = f"{no_spares_text(found.namespace)}. An owner asks for them, and no pod"
        reader.notices.warn(f"PodGroup {found.key}", text)
    gang = replace(reader.read_made(grouped.pod_group), queue_source=grouped.queue.source)
    fallback, empty, lacks_room = grouped.queue.is_fallback, grouped.empty, grouped.lacks_room
    return _Grouped(gang, grouped.podsets, fallback, grouped.own, empty, lacks_room, grouped.is_judged)
