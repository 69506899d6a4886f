"""Which users may write what: queues and spare nodes by the administrator's rules, marks of schedulers only by them.

The API server states the user of a request (``userInfo``). Controllers create the pods of Jobs and the like, and their
accounts do not show the author. Such pods are judged by their namespace, as the scheduler itself judges all work.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kai_solver.controller.admission.review import Asked
from kai_solver.controller.admission.verdict import FINE, Verdict, refuse
from kai_solver.kubeobjects import KubeSettings, names
from kai_solver.kubeobjects.access import OPEN, Allowance
from kai_solver.kubeobjects.grouping import queue_of_pod, wants_spares
from kai_solver.kubeobjects.raw import Raw

ANNOTATIONS: Mapping[str, frozenset[str]] = {
    "Pod": frozenset(
        {
            names.OWN_WISHED,
            names.OWN_SHARE,
            *names.SIGNATURES.values(),
            names.NUMA_OBSERVED,
            names.NUMA_PREDICTED,
            names.RECEIVED_TYPE,
        }
    ),
    "PodGroup": frozenset({names.OWN_CREATED, names.LAST_START, names.LAST_EVICTION, names.STALE_SINCE}),
}
"""Annotations that only schedulers write, by kind."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What the installation allows.

    Attributes
    ----------
    kube
        With the rights to use queues and spare nodes.
    guard
        Whether marks of schedulers are guarded.
    exempt
        Groups of schedulers and nodes, which are exempt from all rules.
    """

    kube: KubeSettings
    guard: bool = False
    exempt: frozenset[str] = frozenset()

    @property
    def are_stated(self) -> bool:
        """Whether there is any rule."""
        return self.guard or self.kube.access != OPEN

    def verdict(self, asked: Asked, kind: str) -> Verdict:
        """What of a new or changed pod or PodGroup its author may not write."""
        if kind not in ANNOTATIONS or not self.exempt.isdisjoint(asked.groups):
            return FINE
        before, after = Raw(asked.before), Raw(asked.after)
        verdict = FINE
        queue = self._queue(after, kind)
        if queue and queue != (self._queue(before, kind) if asked.before else ""):
            verdict += _use(self.kube.access.of_queue(queue), asked, f"queue {queue}")
        if _wants_spares(after, kind) and not (asked.before and _wants_spares(before, kind)):
            verdict += _use(self.kube.access.spares, asked, f"spare nodes ({names.OWN_MAY_USE_SPARES})")
        for key in _changed_marks(before, after, kind) if self.guard else ():
            verdict += refuse(f"{key} may be written only by schedulers, not by {asked.user}. Leave it out")
        return verdict

    def _queue(self, raw: Raw, kind: str) -> str:
        labels = raw.strings("metadata.labels")
        if kind == "PodGroup":
            return raw.text("spec.queue") or labels.get(self.kube.queue_label_key, "")
        return queue_of_pod(labels, raw.strings("metadata.annotations"), self.kube)


def _use(rules: tuple[Allowance, ...], asked: Asked, what: str) -> Verdict:
    if not rules or any(rule.is_for(asked.namespace, asked.user, asked.groups) for rule in rules):
        return FINE
    return refuse(
        f"neither namespace {asked.namespace} nor {asked.user} may use {what}. Ask an administrator of the queues"
    )


def _wants_spares(raw: Raw, kind: str) -> bool:
    labels = raw.strings("metadata.labels") if kind == "Pod" else {}
    return wants_spares(labels, raw.strings("metadata.annotations"))


def _changed_marks(before: Raw, after: Raw, kind: str) -> Iterator[str]:
    """Guarded labels and annotations that differ, each once."""
    was, now = before.strings("metadata.annotations"), after.strings("metadata.annotations")
    yield from sorted(key for key in ANNOTATIONS[kind] if was.get(key) != now.get(key))
    if kind == "Pod":
        was, now = before.strings("metadata.labels"), after.strings("metadata.labels")
        named = {
            key for key in was.keys() | now.keys() if key == names.GPU_GROUP or key.startswith(names.GPU_GROUP_PREFIX)
        }
        yield from sorted(key for key in named if was.get(key) != now.get(key))
