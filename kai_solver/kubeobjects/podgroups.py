"""PodGroups to gangs (docs/kai-behaviour.md#podgroup, #priority)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from kai_solver.domain import Gang, flat_gang
from kai_solver.errors import InputError, printable
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.domains import read_may_use_spares
from kai_solver.kubeobjects.grouping import is_own
from kai_solver.kubeobjects.grouping.read import natural
from kai_solver.kubeobjects.notices import Notices, namespaced_key, read_each
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.owners import top_owner
from kai_solver.kubeobjects.ownkeys import strays
from kai_solver.kubeobjects.placements import read_placement
from kai_solver.kubeobjects.priorities import PriorityTable
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.recall import GroupFacts, Recall
from kai_solver.kubeobjects.settings import KubeSettings, in_pool
from kai_solver.kubeobjects.times import LEEWAY_S, stated_creation_s
from kai_solver.kubeobjects.tree import idle_minimums, read_tree
from kai_solver.kubeobjects.trust import Trust

_NO_BACKOFF = -1
_DEFAULT_POOL = "default"
"""KAI's name for the pool of objects without the label."""

_PREEMPTIBLE = {"preemptible": True, "non-preemptible": False}


@dataclass(frozen=True, slots=True)
class GangReader:
    """Reads PodGroups, KAI's own and those that our groupers make.

    ``now_s``: epoch seconds of the moment that the objects show; later times are refused.
    ``guarded_queues``: queues whose work is non-preemptible where it does not say (``kai.nvidia.com`` quotas).
    """

    priorities: PriorityTable
    settings: KubeSettings
    notices: Notices
    now_s: float
    guarded_queues: frozenset[str] = frozenset()
    recall: Recall = field(default_factory=Recall)

    def read_all(self, objects: tuple[Object, ...]) -> dict[str, Gang]:
        """Gangs of our node pool by ``namespace/name``, still without pods."""

        def read(raw: Raw) -> Gang | None:
            if not self.is_ours(raw):
                return None
            return self.recall.made(namespaced_key(raw), (raw.value,), self.notices, lambda: self.read(raw))

        def known(value: object) -> tuple[str, Gang] | None:
            facts = self.facts(cast("Object", value))
            if facts is None or not facts.is_ours:
                return None
            gang = self.recall.remembered(facts.key, (value,), self.notices)
            return None if gang is None else (facts.key, cast("Gang", gang))

        return read_each("PodGroup", objects, self.notices, read, namespaced_key, known)

    def is_ours(self, raw: Raw) -> bool:
        """Whether the PodGroup is in our node pool."""
        return in_pool(raw.strings("metadata.labels"), self.settings)

    def facts(self, value: Object) -> GroupFacts | None:
        """What a PodGroup says beside its gang; None where it cannot be read: `read_all` says so."""
        return self.recall.group(value, self._facts)

    def _facts(self, value: Object) -> GroupFacts | None:
        raw = Raw(value)
        try:
            key, is_ours = namespaced_key(raw), self.is_ours(raw)
        except InputError:
            return None
        annotations = value["metadata"].get("annotations")
        found = strays(annotations, "PodGroup") if isinstance(annotations, dict) else ()
        return GroupFacts(value, key, is_ours, is_own(value), stated_creation_s(raw), found)

    def read(self, raw: Raw, *, is_made: bool = False) -> Gang:
        """One gang without pods. If its spec is broken it is set aside as a gang, and its pods remain load.

        ``is_made``: by one of our groupers, and not by a user.
        """
        namespace, _, name = namespaced_key(raw).partition("/")
        bare = Gang(namespace, name, raw.text("spec.queue"), flat_gang(1), uid=raw.text("metadata.uid"))
        try:
            trust = Trust() if is_made else self.settings.trust
            noted = trust.stated(raw.strings("metadata.annotations"), names.OWN_SET_ASIDE)
            stated = printable(noted) or self._backed_off(raw)
            if stated:
                self.notices.set_aside(f"PodGroup {bare.key}", stated)
            return replace(self._full(raw, bare), set_aside=stated)
        except Exception as error:
            return replace(bare, set_aside=self.notices.set_aside(f"PodGroup {bare.key}", error))

    def read_made(self, pod_group: dict[str, Any]) -> Gang:
        """The same for a PodGroup that a grouper made; of those that differ in name and age alone one is read in full.

        A burst is thousands of identical pods, each a gang of its own.
        """
        metadata, spec = pod_group["metadata"], pod_group["spec"]
        said = spec, metadata["labels"], metadata["annotations"]
        known = self.recall.identical.get(spec["queue"])
        if known is not None and known[0] == said:
            name, uid = metadata["name"], metadata["uid"]
            created_s = Raw(pod_group).created_s(self.now_s)
            return replace(known[1], namespace=metadata["namespace"], name=name, uid=uid, created_s=created_s)
        before, gang = self.notices.count, self.read(Raw(pod_group), is_made=True)
        if self.notices.count == before:
            self.recall.identical[spec["queue"]] = said, gang
        return gang

    def _backed_off(self, raw: Raw) -> str:
        """Why a PodGroup that found no room once is not tried again.

        Source: docs/kai-behaviour.md#podgroup, ``schedulingBackoff``.

        Without backoff it is tried in every cycle. Else its newest scheduling condition decides: while that is about
        the node pool in which the PodGroup still is, KAI leaves it out, running pods and all.
        """
        conditions = raw.items("status.schedulingConditions")
        if raw.integer("spec.schedulingBackoff", _NO_BACKOFF) == _NO_BACKOFF or not conditions:
            return ""
        last = max(conditions, key=lambda condition: _transition(condition))
        pool = raw.strings("metadata.labels").get(self.settings.node_pool_key) or _DEFAULT_POOL
        if last.text("nodePool") != pool:
            return ""
        said = f": {last.text('message')}" if last.text("message") else ""
        return f"Node-Pool '{pool}': found unschedulable there, and spec.schedulingBackoff has it tried once{said}"

    def _full(self, raw: Raw, bare: Gang) -> Gang:
        annotations, labels = raw.strings("metadata.annotations"), raw.strings("metadata.labels")
        priority = self.priorities.of(raw.text("spec.priorityClassName"))
        queue, queue_source = self._queue(bare.queue, labels)
        delay_s = _duration_s(raw, "preemptionDelay", annotations, names.PREEMPTION_DELAY)
        self._warn_unused(raw, bare.key)
        return replace(
            bare,
            queue=queue,
            queue_source=queue_source,
            root=read_tree(raw.get("spec")),
            priority=priority.value,
            preemptible=self._preemptible(raw, bare.key, queue, priority.value),
            never_preempts=priority.never_preempts,
            created_s=raw.created_s(self.now_s),
            last_start_s=None if self.settings.trust.strict else self._annotated_time_s(raw, names.LAST_START),
            last_eviction_s=self._annotated_time_s(raw, names.LAST_EVICTION),
            stale_since_s=self._annotated_time_s(raw, names.STALE_SINCE),
            preemption_delay_s=max(0.0, delay_s or 0.0),
            staleness_grace_s=_duration_s(raw, "stalenessGracePeriod", annotations, names.STALENESS_GRACE),
            placement=read_placement(annotations, f"PodGroup {bare.key}", self.notices),
            may_use_spares=read_may_use_spares(annotations, f"PodGroup {bare.key}", self.notices),
            workload=printable(annotations.get(names.OWN_WORKLOAD, "") or _deployment(annotations)),
        )

    def _queue(self, stated: str, labels: Mapping[str, str]) -> tuple[str, str]:
        """The queue and what named it; the spec has the last word (docs/kai-behaviour.md#external-podgroups)."""
        key = self.settings.queue_label_key
        if stated:
            return stated, "spec.queue of its PodGroup"
        if labels.get(key):
            return labels[key], f"label {key} of its PodGroup"
        return self.settings.default_queue, "no object names one"

    def _preemptible(self, raw: Raw, key: str, queue: str, priority: int) -> bool:
        """Stated, else by queue, else by priority (docs/kai-behaviour.md#preemptibility)."""
        stated = raw.text("spec.preemptibility")
        if stated in _PREEMPTIBLE:
            return _PREEMPTIBLE[stated]
        if stated:
            self.notices.warn(f"PodGroup {key}", f"preemptibility {stated!r} is unknown; the priority decides")
        return queue not in self.guarded_queues and priority < self.settings.policy.non_preemptible_priority

    def _annotated_time_s(self, raw: Raw, annotation: str) -> float | None:
        """A time in the past; a time in the future would protect its gang until then."""
        stamp_s = raw.get("metadata.annotations").key(annotation).time_s()
        if stamp_s is None or stamp_s <= self.now_s + LEEWAY_S:
            return stamp_s
        text = f"{annotation} is in the future, and says nothing"
        self.notices.warn(f"PodGroup {namespaced_key(raw)}", text, is_passing=True)
        return None

    def _warn_unused(self, raw: Raw, key: str) -> None:
        for text in idle_minimums(raw.get("spec")):
            self.notices.warn(f"PodGroup {key}", text)


def _transition(condition: Raw) -> int:
    """Number of a scheduling condition; the highest is the newest."""
    return natural(condition.text("transitionID")) or 0


def _deployment(annotations: Mapping[str, str]) -> str:
    """The Deployment whose replicas are PodGroups of their own."""
    top = top_owner(annotations)
    return top.get("name", "") if top.get("kind") == "Deployment" else ""


def _duration_s(raw: Raw, field: str, annotations: Mapping[str, str], annotation: str) -> float | None:
    """A duration of the spec, else of the annotation that the pod grouper would copy there."""
    stated = raw.duration_s(f"spec.{field}")
    if stated is not None or annotation not in annotations:
        return stated
    return Raw({"value": annotations[annotation]}, annotation).duration_s("value")
