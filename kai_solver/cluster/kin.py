"""Who made our pods: owners of kinds that we know are watched, others are asked for one by one, and kept.

A pod may be seen before who made it: the watches of two kinds are not in step, and an owner of an unknown kind has to
be asked for. Until its owners are known it is kept from the cycles, for a moment: its gang may need more than itself.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from kai_solver.cluster.api import Api, ApiError, Object, meta
from kai_solver.cluster.resources import PODS, Resource
from kai_solver.cluster.store import Store
from kai_solver.cluster.trim import trimmed
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.objects import group_of
from kai_solver.kubeobjects.owners import OWNER_KINDS

_LOG = structlog.get_logger(__name__)

COMES_WITHIN_S = 2.0
"""How long an owner that its watch does not show is waited for; after that it is gone."""

REFUSED_S = 300.0
"""How long a kind that may not be read, or is not installed, is not asked for again."""

KEPT_S = 600.0
"""How long an owner is kept that no pod refers to any more, at least."""

PATIENCE_S = 60.0
"""How long all decisions wait for owners at first; a kind that cannot be listed must not stop the whole cluster."""

LOOK_S = 0.5
_LONGEST_CHAIN = 8
_POD_GANGS = ("scheduler.grove.io/v1alpha1", "PodGang")

Kind = tuple[str, str]
"""API group and kind."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One object as another refers to it."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def group_kind(self) -> Kind:
        """API group and kind."""
        return group_of(self.api_version), self.kind


class Kin:
    """Owners of the pods of one scheduler.

    Parameters
    ----------
    scheduler_name
        Whose pods; empty: nobody's owners are looked for.
    kinds
        Kinds of owners that are watched from the start.
    watch
        Begins to watch a kind that was installed later.
    wake
        Called when more is known.
    """

    def __init__(
        self,
        api: Api,
        store: Store,
        scheduler_name: str,
        kinds: Iterable[Resource] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.watch: Callable[[Resource], None] = lambda _: None
        self.wake: Callable[[], None] = lambda: None
        self._api = api
        self._store = store
        self._scheduler_name = scheduler_name
        self._monotonic = monotonic
        self._watched: dict[Kind, Resource] = {(kind.group, kind.kind): kind for kind in kinds}
        self._read: dict[str, Object | None] = {}
        self._used: set[str] = set()
        self._refused: dict[Kind, float] = {}
        self._asked: set[str] = set()
        self._missing: dict[str, float] = {}
        self._known_pods: set[str] = set()
        self._tidy_s = monotonic() + KEPT_S
        self._holds = False
        self._is_settled = False
        self._ends_s = 0.0
        self._queue: queue.SimpleQueue[Reference] = queue.SimpleQueue()

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """Kinds of owners that are watched."""
        return tuple(self._watched.copy().values())

    def objects(self) -> tuple[Object, ...]:
        """All owners that are known."""
        watched = (value for resource in self.kinds for value in self._store.all(resource))
        return (*watched, *(value for value in self._read.copy().values() if value is not None))

    def is_settled(self) -> bool:
        """Whether owners of all pods that were there at first are known, as far as they can be; asks for the rest.

        After a while it is, whoever is not known: pods of theirs that wait go on waiting, others need not.
        """
        if not self._is_settled:
            self._ends_s = self._ends_s or self._monotonic() + PATIENCE_S
            known = [self._is_known(pod) for pod in self._store.all(PODS)]  # all are looked at, so that all is asked
            self._is_settled = all(known) and self._store.is_synced(self.kinds)
            if not self._is_settled and self._monotonic() > self._ends_s:
                self._is_settled = True
                late = [kind.name for kind in self.kinds if not self._store.is_synced((kind,))]
                _LOG.warning("not all owners are known; pods of theirs wait", pods=known.count(False), not_listed=late)
        return self._is_settled

    def overlay(self, pods: tuple[Object, ...], now_s: float) -> tuple[Object, ...]:  # noqa: ARG002  (an `Overlay`)
        """The pods without those that wait for a node and whose owners are not known yet."""
        self._tidy()
        seen = tuple(pod for pod in pods if self._is_known(pod) or _has_node(pod))
        self._holds = len(seen) < len(pods)
        return seen if self._holds else pods

    def run(self, stop: threading.Event) -> None:
        """Ask for what is to be asked for, until told to stop."""
        while not stop.is_set():
            try:
                reference = self._queue.get(timeout=LOOK_S)
            except queue.Empty:
                if self._holds:
                    self.wake()
                continue
            self.answer(reference)
            self.wake()

    def answer_all(self) -> None:
        """Ask for all that is to be asked for now."""
        while not self._queue.empty():
            self.answer(self._queue.get())

    def answer(self, reference: Reference) -> None:
        """Ask for one owner; who cannot be known is told of once for its kind, and is as if it were not there."""
        try:
            found = self._ask(reference)
        except ApiError as error:
            if error.is_passing:
                return  # asked for again when somebody looks
            found = None
            if not error.is_missing:
                self._refuse(reference, str(error))
        finally:
            self._asked.discard(reference.uid)
        if reference.group_kind not in self._watched:
            self._used.add(reference.uid)
            self._read[reference.uid] = found

    def _ask(self, reference: Reference) -> Object | None:
        """The owner; None where it is gone, its kind is not installed, or is watched from now on."""
        group, kind = reference.group_kind
        served = self._served(reference.api_version, kind)
        if served is None:
            self._refuse(reference, "it is not installed")
            return None
        if (group, kind) in OWNER_KINDS:
            self._begin(served)
            if group == "grove.io" and (gangs := self._served(*_POD_GANGS)):
                self._begin(gangs)  # no pod refers to those, but by a label
            return None
        found = self._api.get(served, reference.namespace, reference.name)
        return trimmed(served, found) if meta(found).get("uid") == reference.uid else None

    def _served(self, api_version: str, kind: str) -> Resource | None:
        return next((found for found in self._api.served(api_version) if found.kind == kind), None)

    def _begin(self, resource: Resource) -> None:
        if (resource.group, resource.kind) not in self._watched:
            self._watched[resource.group, resource.kind] = resource
            self.watch(resource)

    def _refuse(self, reference: Reference, why: str) -> None:
        kind = reference.group_kind
        if kind not in self._refused:
            _LOG.warning(
                "owners of this kind cannot be read; pods are grouped without them",
                kind=reference.kind,
                group=kind[0],
                owner=f"{reference.namespace}/{reference.name}",
                why=why,
            )
        self._refused[kind] = self._monotonic() + REFUSED_S

    def _is_known(self, pod: Object) -> bool:
        """Whether all owners of a pod are known as far as they can be; where not, the next one is asked for."""
        try:
            uid, spec = pod["metadata"].get("uid"), pod["spec"]
            if uid in self._known_pods:
                return True
            is_ours = self._scheduler_name and spec.get("schedulerName") == self._scheduler_name
            named = (pod["metadata"].get("annotations") or {}).get(names.POD_GROUP)
            if is_ours and not named and not self._climb(pod):
                return False
            self._known_pods.add(uid)
        except (AttributeError, KeyError, TypeError):
            pass  # malformed: the cycle names it
        return True

    def _climb(self, item: Object) -> bool:
        """Whether the owners of an object are known up to the last one that can be."""
        for _ in range(_LONGEST_CHAIN):
            reference = _maker(item)
            if reference is None:
                return True
            is_known, found = self._find(reference)
            if not is_known or found is None:
                return is_known
            item = found
        return True

    def _find(self, reference: Reference) -> tuple[bool, Object | None]:
        """Whether it is known what is to be known of an owner, and the owner, if it is there."""
        kind = reference.group_kind
        if kind == ("", "Node"):
            return True, None
        resource = PODS if kind == ("", "Pod") else self._watched.get(kind)
        if resource is not None:
            return self._stored(resource, reference)
        if reference.uid in self._read:
            self._used.add(reference.uid)
            return True, self._read[reference.uid]
        if self._refused.get(kind, 0.0) > self._monotonic():
            return True, None
        if reference.uid not in self._asked:
            self._asked.add(reference.uid)
            self._queue.put(reference)
        return False, None

    def _stored(self, resource: Resource, reference: Reference) -> tuple[bool, Object | None]:
        key = f"{reference.namespace}/{reference.name}" if resource.namespaced else reference.name
        found = self._store.get(resource, key)
        if found is not None and meta(found).get("uid") == reference.uid:
            self._missing.pop(reference.uid, None)
            return True, found
        if not self._store.is_synced((resource,)):
            return False, None
        since_s = self._missing.setdefault(reference.uid, self._monotonic())
        return self._monotonic() - since_s >= COMES_WITHIN_S, None

    def _tidy(self) -> None:
        """Forget now and then who is not referred to any more."""
        if self._monotonic() < self._tidy_s:
            return
        self._tidy_s = self._monotonic() + KEPT_S
        self._read = {uid: value for uid, value in self._read.items() if uid in self._used}
        self._used, self._known_pods, self._missing = set(), set(), {}


def _maker(item: Mapping[str, Any]) -> Reference | None:
    """The controller of an object, else the first of its owners."""
    metadata = meta(item)
    owners = metadata.get("ownerReferences")
    if not owners:
        return None
    one = next((owner for owner in owners if owner.get("controller")), owners[0])
    namespace = str(metadata.get("namespace") or "")
    return Reference(str(one["apiVersion"]), str(one["kind"]), namespace, str(one["name"]), str(one["uid"]))


def _has_node(pod: Object) -> bool:
    spec = pod.get("spec")
    return isinstance(spec, dict) and bool(spec.get("nodeName"))
