"""What earlier readings of the same cluster found, so that only what changed is read again.

A scheduler reads its cluster at every cycle, and between two of them little changes: reading a pod takes about 0.2 ms,
finding it again 3 microseconds. Objects are known by identity: a caller that keeps them must never change one in
place, and hands over the same one while it did not change.

Remembered is only what depends on the object itself and on what `Recall.begin` gets of its surroundings. Pods whose
reading depends on more (claims of devices, volumes, a shared device) are read each time. Of pods that are being deleted
the state depends on the time, too, and is looked at each time.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

from kai_solver.domain import Constraints, Gang, Notice, Pod, still_needed
from kai_solver.kubeobjects.grouping import Claimed, Member
from kai_solver.kubeobjects.grouping.written import OwnGroup
from kai_solver.kubeobjects.isolating import Spoilers
from kai_solver.kubeobjects.members import Members
from kai_solver.kubeobjects.nodes import NodeRecall
from kai_solver.kubeobjects.notices import Notices
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.pods import PodReader, RawPod, started_s
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.times import bounded_creation_s
from kai_solver.kubeobjects.twins import is_free_of_labels, stated_by
from kai_solver.kubeobjects.volumes import needs_objects
from kai_solver.units import ResourceSchema

Thing = TypeVar("Thing")

_MOST_CONSTRAINTS = 1000
"""So many, and two for each pod, are kept."""

_SPEC_ALONE = frozenset({"nodeName"})
"""What of a spec changes while a pod lives, and is read again without the rest."""


@dataclass(slots=True)
class _Seen:
    """A pod as it was read, the object that it was read from, what was said, and its domain form in its podset."""

    key: str
    value: Object
    pod: RawPod
    said: tuple[Notice, ...] = ()
    finished: dict[str, Pod] = field(default_factory=dict)


@dataclass(slots=True)
class _Made:
    """A thing, all that it was made of, and what was said; ``members``: the pods that a gang was made of."""

    made_of: tuple[object, ...]
    thing: object
    said: tuple[Notice, ...]
    members: Sequence[Member] = ()


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What a PodGroup says beside its gang.

    ``is_ours``: it is in our node pool; ``is_own``: we wrote it; ``stated_creation_s``: when its gang came to be, as an
    annotation says; ``strays``: what is wrong with annotations of ours on it.
    """

    value: Object
    key: str
    is_ours: bool
    is_own: bool
    stated_creation_s: float | None
    strays: tuple[str, ...]


@dataclass(slots=True)
class Recall:
    """Keep one from reading to reading of one cluster; not for use by several threads at once."""

    constraints: dict[Constraints, Constraints] = field(default_factory=dict)
    """Equal ones are one object, over many readings too."""

    own_groups: dict[str, OwnGroup] = field(default_factory=dict)
    """PodGroups of the newest reading that groupers made, whether they are written by now or not."""

    spoilers: Spoilers = field(default_factory=Spoilers)
    nodes: NodeRecall = field(default_factory=NodeRecall)
    members: Members = field(default_factory=Members)

    identical: dict[str, tuple[object, Gang]] = field(default_factory=dict)
    """By queue: the last gang that was read from a PodGroup which a grouper made, and what that one said."""

    _around: object = None
    _schema: ResourceSchema | None = None
    _pods: dict[str, _Seen] = field(default_factory=dict)
    _by_object: dict[int, _Seen] = field(default_factory=dict)
    """The same by the identity of the object, which is kept here and so cannot be another's."""

    _fresh: dict[str, _Seen] = field(default_factory=dict)
    _twins: dict[bytes, RawPod] = field(default_factory=dict)
    """Pods of this reading, by what is costly to read of them."""

    _groups: dict[int, GroupFacts] = field(default_factory=dict)
    """By the identity of the PodGroup, which is kept here."""

    _fresh_groups: dict[int, GroupFacts] = field(default_factory=dict)
    _gangs: dict[str, tuple[Gang, Gang]] = field(default_factory=dict)
    _fresh_gangs: dict[str, tuple[Gang, Gang]] = field(default_factory=dict)
    _made: dict[str, _Made] = field(default_factory=dict)
    _fresh_made: dict[str, _Made] = field(default_factory=dict)

    def begin(self, around: object) -> None:
        """A new reading; where ``around`` differs from the last one's, everything is read again."""
        self.members.begin(empty=around != self._around)
        if around != self._around:
            self._pods, self._by_object, self._made, self._gangs, self.identical = {}, {}, {}, {}, {}
            self._groups = {}
        self._around = around
        self.own_groups = {}
        self._fresh, self._fresh_made, self._fresh_gangs, self._twins = {}, {}, {}, {}
        self._fresh_groups = {}

    def end(self) -> None:
        """The reading is over: what it did not come across is forgotten."""
        self._pods, self._made, self._gangs = self._fresh, self._fresh_made, self._fresh_gangs
        self._groups, self._fresh_groups = self._fresh_groups, {}
        self.members.end()
        queues = {made.queue for made, _ in self._gangs.values()}
        self.identical = {queue: known for queue, known in self.identical.items() if queue in queues}
        self._by_object = {id(seen.value): seen for seen in self._pods.values()}
        self._fresh, self._fresh_made, self._fresh_gangs, self._twins = {}, {}, {}, {}
        if len(self.constraints) > _MOST_CONSTRAINTS + 2 * len(self._pods):
            self.constraints.clear()

    def unremembered(self, values: Iterable[Object]) -> list[Object]:
        """Pods that were not read before, and all that belong to no workload, as those that reserve devices."""
        known = self._by_object
        return [value for value in values if id(value) not in known]

    def known(self, value: object, reader: PodReader) -> tuple[str, RawPod] | None:
        """Key and pod of an object that was read before and must still give the same."""
        seen = self._by_object.get(id(value))
        if seen is None or seen.key in reader.bindings or not reader.is_still(seen.pod):
            return None
        self._fresh[seen.key] = seen
        reader.notices.say_again(seen.said)
        return seen.key, seen.pod

    def read(self, raw: Raw, key: str, reader: PodReader) -> RawPod:
        """The pod, from what is known of it where only its state and its node changed.

        Raises
        ------
        InputError
            As `PodReader.read`.
        """
        seen = self._pods.get(key)
        value = raw.value
        is_bare = key not in reader.bindings and not (seen and seen.pod.gpu.is_shared)
        if seen is not None and is_bare and isinstance(value, dict) and _is_identical(seen, value):
            pod, said = reader.notices.heard(partial(reader.read_again, seen.pod, raw))
            if said is not None:
                self._fresh[key] = _Seen(key, value, pod, said)
            return pod
        stated = None if key in reader.bindings else stated_by(value)
        twin = None if stated is None else self._twins.get(stated)
        pod, said = reader.notices.heard(lambda: reader.read(raw, twin))
        if not isinstance(value, dict) or said is None:
            return pod
        if twin is not None and not (pod.gpu_groups or pod.unproven or pod.paid_gpu_milli):
            self._fresh[key] = _Seen(key, value, pod, said)
        elif _stands_alone(pod, key, reader):
            self._fresh[key] = _Seen(key, value, pod, said)
            if not said and stated is not None and not pod.gpu.is_shared and is_free_of_labels(pod.constraints):
                self._twins[stated] = pod
        return pod

    def finish(self, pod: RawPod, schema: ResourceSchema, podset: str) -> Pod:
        """The pod's domain form, the very same object while nothing about it changed."""
        if schema != self._schema:
            for seen in self._fresh.values():
                seen.finished.clear()
            self._schema = schema
        found = self._fresh.get(pod.key)
        if found is None or found.pod is not pod:
            return pod.finish(schema, podset)
        done = found.finished.get(podset)
        if done is None:
            done = found.finished[podset] = pod.finish(schema, podset)
        return done

    def gathered(
        self,
        gang: Gang,
        pods: tuple[Pod, ...],
        running: Iterable[Raw],
        since_s: float | None = None,
        pods_s: Sequence[float] = (),
    ) -> Gang:
        """The gang with its pods, and what it needs of them; the very same object while both are.

        ``running``: pods that say when a gang began whose PodGroup does not say so; ``since_s``: when it came to be,
        as its PodGroup states, which is believed as far as ``pods_s`` allows, the times at which its pods came to be.
        """
        known = self._gangs.get(gang.key)
        if known is not None and known[0] is gang and _are_same(known[1].pods, pods):
            self._fresh_gangs[gang.key] = known
            return known[1]
        began_s = started_s(running) if gang.last_start_s is None else gang.last_start_s
        created_s = gang.created_s if since_s is None else bounded_creation_s(since_s, gang.created_s, pods_s)
        root = still_needed(gang.root, pods)
        found = replace(gang, pods=pods, root=root, last_start_s=began_s, created_s=created_s)
        self._fresh_gangs[gang.key] = gang, found
        return found

    def group(self, value: Object, read: Callable[[Object], GroupFacts | None]) -> GroupFacts | None:
        """What a PodGroup says beside its gang, read once; None where ``read`` cannot."""
        facts = self._fresh_groups.get(id(value)) or self._groups.get(id(value)) or read(value)
        if facts is not None:
            self._fresh_groups[id(value)] = facts
        return facts

    def remembered(self, key: str, made_of: tuple[object, ...], notices: Notices) -> object | None:
        """What `made` gave for the very same things, and said; None where it has to be made."""
        known = self._made.get(key)
        if known is None or not _are_same(known.made_of, made_of):
            return None
        self._fresh_made[key] = known
        notices.say_again(known.said)
        return known.thing

    def made(self, key: str, made_of: tuple[object, ...], notices: Notices, make: Callable[[], Thing]) -> Thing:
        """What ``make`` gives, from memory where it would be made of the very same things."""
        known = self.remembered(key, made_of, notices)
        if known is not None:
            return cast("Thing", known)
        thing, said = notices.heard(make)
        if said is not None:
            self._fresh_made[key] = _Made(made_of, thing, said)
        return thing

    def grouped(
        self, found: Claimed, notices: Notices, make: Callable[[], Thing], still: Callable[[Thing], bool]
    ) -> Thing:
        """The same of pods that their family puts into one gang: where they are the same, nothing is looked into.

        ``still``: whether what was made holds still.
        """
        key = f"own {found.key}"
        known = self._made.get(key)
        if known is not None and not still(cast("Thing", known.thing)):
            del self._made[key]
            known = None
        if known is not None and _are_same(known.members, found.members):
            self._fresh_made[key] = known
            notices.say_again(known.said)
            return cast("Thing", known.thing)
        thing = self.made(key, found.made_of, notices, make)
        if key in self._fresh_made:
            self._fresh_made[key].members = found.members
        return thing


def _are_same(old: Sequence[object], new: Sequence[object]) -> bool:
    return len(old) == len(new) and all(map(operator.is_, old, new))


def _is_identical(seen: _Seen, new: Mapping[str, Any]) -> bool:
    """Whether a pod stays and differs in nothing that is costly to read: same labels, same spec but for its node.

    Where something was said it is read in full, to say so again.
    """
    if seen.said:
        return False
    old = seen.value
    was, now = old.get("metadata"), new.get("metadata")
    before, after = old.get("spec"), new.get("spec")
    if not (isinstance(was, dict) and isinstance(now, dict) and isinstance(before, dict) and isinstance(after, dict)):
        return False
    named = ("uid", "labels", "annotations", "creationTimestamp", "ownerReferences")
    if any(was.get(name) != now.get(name) for name in named):
        return False
    if _claimed(old) != _claimed(new):
        return False
    return all(before.get(name) == after.get(name) for name in (before.keys() | after.keys()) - _SPEC_ALONE)


def _claimed(pod: Mapping[str, Any]) -> object:
    """The claim for the pod's extended resources."""
    status = pod.get("status")
    return status.get("extendedResourceClaimStatus") if isinstance(status, dict) else None


def _stands_alone(pod: RawPod, key: str, reader: PodReader) -> bool:
    """Whether the reading depended on nothing but the object and the surroundings."""
    return not (
        key in reader.bindings
        or pod.claims
        or pod.gpu_groups
        or pod.unproven
        or pod.paid_gpu_milli
        or pod.raw.items("spec.resourceClaims")
        or needs_objects(pod.raw)
        or reader.nodes.paid_gpu_milli(pod.amounts, "", reader.settings.policy)
    )
