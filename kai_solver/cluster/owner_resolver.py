"""Owners of our pods: those of kinds that we know are watched, others are read one by one, and kept.

A pod may be seen before its owner: the watches of two kinds are not in step, and an owner of an unknown kind has to be
read. Until its owners are known the pod is kept from the cycles: its gang may need more than this pod. An owner that
its watch does not show is read after a moment, too: a watch that begins again may be behind for long.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from kai_solver.cluster.api import Api, ApiError, Object, key_of, meta
from kai_solver.cluster.resources import POD_GROUPS, PODS, Resource
from kai_solver.cluster.store import Store
from kai_solver.cluster.trim import trimmed
from kai_solver.domain import Notice
from kai_solver.errors.barrier import caught
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping import is_own
from kai_solver.kubeobjects.objects import group_of
from kai_solver.kubeobjects.owners import OWNER_KINDS
from kai_solver.kubeobjects.trim import trim_owner

_LOG = structlog.get_logger(__name__)

COMES_WITHIN_S = 2.0
"""How long an owner that its watch does not show is waited for; after that the server is asked whether it is gone."""

REFUSED_S = 300.0
"""How long a kind that may not be read, or is not installed, is not asked for again."""

DOUBTED_S = 5.0
"""A refusal of a kind is believed after this time: a server that has just started knows no rights yet."""

KEPT_S = 600.0
"""How long an owner is kept that no pod refers to any more, at least."""

LOGGED_KINDS = 100
"""Kinds that cannot be read and are logged; users may name a new kind with each pod."""

PATIENCE_S = 60.0
"""How long all decisions wait for owners at first; a kind that cannot be listed must not stop the whole cluster."""

CURE = ". Name the kind in the chart's rbac.owners"
LOOK_S = 0.5
FIRST_AGAIN_S, LONGEST_AGAIN_S = 0.5, 30.0
"""An owner that could not be asked for is asked for again so much later, twice as long each time; and so is its kind:
the API of a kind may hang, and one thread asks for all."""

NOT_INSTALLED = "its kind is not installed"
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

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class OwnerResolver:
    """Owners of the pods of one scheduler.

    Parameters
    ----------
    scheduler_name
        Pods of this scheduler; empty: no owners are looked for.
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
        self._refused_since_s: dict[Kind, float] = {}
        self._whys: dict[Kind, str] = {}
        self._used_kinds: set[Kind] = set()
        self._again: dict[str, tuple[float, float]] = {}
        self._kinds_again: dict[Kind, tuple[float, float]] = {}
        """Of owners, by uid, and of kinds: how long the last pause was, and when it ends."""
        self._blind: dict[str, str] = {}
        self.notices: tuple[Notice, ...] = ()
        """Pods of the newest cycle that wait for a node and whose owners could not be read."""
        self._asked: set[str] = set()
        self._missing: dict[str, float] = {}
        self._known_pods: set[str] = set()
        self._tidy_s = monotonic() + KEPT_S
        self._held: frozenset[str] = frozenset()
        self._is_settled = False
        self._ends_s = 0.0
        self._queue: queue.SimpleQueue[Reference] = queue.SimpleQueue()

    def discover(self) -> None:
        """Learn which kinds of owners are installed, to be watched; `ApiError` where the server does not say."""
        if self._scheduler_name:
            found = [kind for kind in self._api.installed() if (kind.group, kind.kind) in OWNER_KINDS]
            self._watched |= {(kind.group, kind.kind): kind for kind in sorted(found, key=lambda kind: kind.name)}

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """Kinds of owners that are watched."""
        return tuple(self._watched.copy().values())

    def objects(self) -> tuple[Object, ...]:
        """All owners that are known."""
        watched = (value for resource in self.kinds for value in self._store.all(resource))
        read = (value for value in self._read.copy().values() if value is not None)
        return (*watched, *(value for value in read if not self._is_shown(value)))

    def is_settled(self) -> bool:
        """Whether owners of all pods that were there at first are known, as far as they can be; asks for the rest.

        After a while it is, even if some owners are not known: their pods go on waiting, others need not.
        """
        if not self._is_settled:
            self._ends_s = self._ends_s or self._monotonic() + PATIENCE_S
            known = [self._is_known(pod) for pod in self._store.all(PODS)]  # all are looked at, so that all is asked
            self._is_settled = all(known) and self._store.is_synced(self.kinds)
            if not self._is_settled and self._monotonic() > self._ends_s:
                self._is_settled = True
                late = [kind.name for kind in self.kinds if not self._store.is_synced((kind,))]
                _LOG.warning("not all owners are known; their pods wait", pods=known.count(False), not_listed=late)
        return self._is_settled

    def overlay(self, pods: tuple[Object, ...], now_s: float) -> tuple[Object, ...]:  # noqa: ARG002  (an `Overlay`)
        """The pods without those that wait for a node and whose owners are not known yet."""
        self._tidy()
        held = [pod for pod in pods if not (self._is_known(pod) or has_node(pod))]
        self._held = frozenset(map(key_of, held))
        self.notices = tuple(self._noticed(pods, held)) if held or self._blind else ()
        return tuple(pod for pod in pods if key_of(pod) not in self._held) if held else pods

    def _noticed(self, pods: Iterable[Object], held: Iterable[Object]) -> Iterator[Notice]:
        for pod in held:
            text = f"waits for its owner {_maker(pod)}, of which, or of whose own owner, nothing could be read yet"
            yield Notice("set-aside", f"Pod {key_of(pod)}", text)
        blind = self._blind
        for pod in pods if blind else ():
            text = blind.get(str(meta(pod).get("uid")), "")
            if text and not has_node(pod):
                yield Notice("warning", f"Pod {key_of(pod)}", text)

    def may_create(self, pod: Object, siblings: Sequence[Object]) -> bool:
        """Whether the controller of a pod may create another in its stead; a `MayCome`.

        Not if it was deleted, or if it has as many pods as it wants. Only watched kinds are known well enough.
        """
        try:
            reference = _maker(pod)
            resource = None if reference is None else self._watched.get(reference.group_kind)
            if reference is None or resource is None or not self._store.is_synced((resource,)):
                return True
            owner = self._stored(resource, reference) or self._read.get(reference.uid)
            if owner is None or meta(owner).get("deletionTimestamp"):
                return False
            wanted = _wanted_pods(owner, siblings)
            return wanted is None or wanted > sum(map(_lives, siblings))
        except (AttributeError, KeyError, TypeError):
            return True  # malformed: the cycle names it
        except Exception as error:
            caught("watching", f"Pod {key_of(pod)}", error)
            return True

    def run(self, stop: threading.Event) -> None:
        """Read owners as they are asked for, until ``stop`` is set; wake seldom for pods that are held for long."""
        held, looks = self._held, 0
        while not stop.is_set():
            try:
                reference = self._queue.get(timeout=LOOK_S)
            except queue.Empty:
                looks = looks + 1 if self._held == held else 1
                held = self._held
                if held and _is_turn(looks):
                    self.wake()
                continue
            if self.answer(reference):
                self.wake()

    def answer_all(self) -> None:
        """Ask for all that is to be asked for now."""
        while not self._queue.empty():
            self.answer(self._queue.get())

    def answer(self, reference: Reference) -> bool:
        """Ask for one owner; whether all is known of it that can be, for now.

        An owner that cannot be read is logged once for its kind, and counts as missing.
        """
        found, is_answered, was_watched = None, True, reference.group_kind in self._watched
        began_s = self._monotonic()
        if self._is_put_off(reference):
            self._asked.discard(reference.uid)
            return False
        try:
            found = self._ask(reference)
        except ApiError as error:
            if error.is_passing or self._is_doubted(reference.group_kind, error):
                self._put_off(reference, self._monotonic() - began_s)
                return False
            if not error.is_missing:
                self._refuse(reference, f"{error}{CURE if error.status == 403 else ''}")
                is_answered = False
        finally:
            self._asked.discard(reference.uid)
        self._again.pop(reference.uid, None)
        self._kinds_again.pop(reference.group_kind, None)
        if is_answered:
            self._refused_since_s.pop(reference.group_kind, None)
        if is_answered and (was_watched or reference.group_kind not in self._watched):  # else its watch shows it
            self._used.add(reference.uid)
            self._read[reference.uid] = found
        return True

    def _is_doubted(self, kind: Kind, error: ApiError) -> bool:
        """Whether a refusal has not lasted for long enough to be believed."""
        if error.status != 403:
            return False
        now_s = self._monotonic()
        return now_s - self._refused_since_s.setdefault(kind, now_s) < DOUBTED_S

    def _put_off(self, reference: Reference, took_s: float) -> None:
        """There was no answer: it is read again when a cycle needs it, but not at once, nor others of its kind.

        A kind rests at least as long as the question took.
        """
        now_s = self._monotonic()
        last_s, _ = self._again.get(reference.uid, (FIRST_AGAIN_S / 2, 0.0))
        wait_s = min(2 * last_s, LONGEST_AGAIN_S)
        self._again[reference.uid] = wait_s, now_s + wait_s
        kinds = {kind: pause for kind, pause in self._kinds_again.items() if now_s < pause[1] + LONGEST_AGAIN_S}
        last_s, _ = kinds.get(reference.group_kind, (FIRST_AGAIN_S / 2, 0.0))
        wait_s = min(max(2 * last_s, took_s), LONGEST_AGAIN_S)
        self._kinds_again = {**kinds, reference.group_kind: (wait_s, now_s + wait_s)}

    def _is_put_off(self, reference: Reference) -> bool:
        """Whether it is too early to ask for this owner, or for any of its kind."""
        pauses = self._again.get(reference.uid), self._kinds_again.get(reference.group_kind)
        return any(pause is not None and pause[1] > self._monotonic() for pause in pauses)

    def _ask(self, reference: Reference) -> Object | None:
        """The owner; None where it is gone, its kind is not installed, or is watched from now on."""
        group, kind = reference.group_kind
        if (group, kind) in self._watched:
            return self._listed(self._watched[group, kind], reference)
        served = self._served(reference.api_version, kind)
        if served is None:
            self._refuse(reference, NOT_INSTALLED)
            return None
        if (group, kind) in OWNER_KINDS:
            self._begin(served)
            if group == "grove.io" and (gangs := self._served(*_POD_GANGS)):
                self._begin(gangs)  # no pod refers to those, but by a label
            return None
        found = self._api.get(served, reference.namespace, reference.name)
        self._whys.pop(reference.group_kind, None)
        if meta(found).get("uid") != reference.uid:
            return None
        found = trimmed(served, found)
        trim_owner(found)
        return found

    def _listed(self, resource: Resource, reference: Reference) -> Object | None:
        """An owner of a watched kind, by the right to list it."""
        namespace = reference.namespace if resource.namespaced else ""
        items = self._api.page(resource, namespace=namespace, name=reference.name).items
        return next((trimmed(resource, item) for item in items if meta(item).get("uid") == reference.uid), None)

    def _served(self, api_version: str, kind: str) -> Resource | None:
        return next((found for found in self._api.served(api_version) if found.kind == kind), None)

    def _begin(self, resource: Resource) -> None:
        if (resource.group, resource.kind) not in self._watched:
            self._watched[resource.group, resource.kind] = resource
            self.watch(resource)

    def _refuse(self, reference: Reference, why: str) -> None:
        kind = reference.group_kind
        if kind not in self._refused and len(self._refused) < LOGGED_KINDS:
            _LOG.warning(
                "owners of this kind cannot be read; pods are grouped without them",
                kind=reference.kind,
                group=kind[0],
                owner=f"{reference.namespace}/{reference.name}",
                why=why,
            )
        self._used_kinds.add(kind)
        self._whys[kind] = why
        self._refused[kind] = self._monotonic() + REFUSED_S

    def _is_known(self, pod: Object) -> bool:
        """Whether all owners of a pod are known as far as they can be; where not, the next one is asked for."""
        try:
            uid, spec = pod["metadata"].get("uid"), pod["spec"]
            if uid in self._known_pods:
                return True
            is_ours = self._scheduler_name and spec.get("schedulerName") == self._scheduler_name
            named = (pod["metadata"].get("annotations") or {}).get(names.POD_GROUP)
            group = self._store.get(POD_GROUPS, f"{pod['metadata']['namespace']}/{named}") if named else None
            follows = not named or (group is not None and is_own(group))  # PodGroups of others stand for themselves
            if is_ours and follows and not self._climb(pod):
                return False
            if named and group is None:
                return True  # looked at again when it is there
            self._known_pods.add(uid)
        except (AttributeError, KeyError, TypeError):
            pass  # malformed: the cycle names it
        except Exception as error:  # about this pod alone, which the cycle reads with what is known of its owners
            caught("watching", f"Pod {key_of(pod)}", error)
        return True

    def _climb(self, pod: Object) -> bool:
        """Whether the owners of a pod are known up to the last one that can be."""
        item = pod
        for _ in range(_LONGEST_CHAIN):
            reference = _maker(item)
            if reference is None:
                return True
            is_known, found = self._find(reference)
            if not is_known or found is None:
                why = self._whys.get(reference.group_kind) if is_known else None
                if why is not None:
                    self._used_kinds.add(reference.group_kind)
                    self._blind[str(meta(pod).get("uid"))] = _blind_text(reference, why)
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
            found = self._stored(resource, reference)
            if found is not None:
                return True, found
            if self._may_come(resource, reference):
                return False, None
            if resource == PODS:
                return True, None  # gone: it came before its pods, by the same watch
        if reference.uid in self._read:
            self._used.add(reference.uid)
            return True, self._read[reference.uid]
        if self._refused.get(kind, 0.0) > self._monotonic():
            return True, None
        if reference.uid not in self._asked and not self._is_put_off(reference):
            self._asked.add(reference.uid)
            self._queue.put(reference)
        return False, None

    def _stored(self, resource: Resource, reference: Reference) -> Object | None:
        """The owner as its watch shows it."""
        key = f"{reference.namespace}/{reference.name}" if resource.namespaced else reference.name
        found = self._store.get(resource, key)
        if found is None or meta(found).get("uid") != reference.uid:
            return None
        self._missing.pop(reference.uid, None)
        return found

    def _may_come(self, resource: Resource, reference: Reference) -> bool:
        """Whether its watch may show it in a moment."""
        if not self._store.is_synced((resource,)):
            return True
        since_s = self._missing.setdefault(reference.uid, self._monotonic())
        return self._monotonic() - since_s < COMES_WITHIN_S

    def _is_shown(self, value: Object) -> bool:
        """Whether the watch of its kind shows by now what was asked for."""
        resource = self._watched.get((group_of(str(value.get("apiVersion", ""))), str(value.get("kind", ""))))
        stored = self._store.get(resource, key_of(value)) if resource is not None else None
        return stored is not None and meta(stored).get("uid") == meta(value).get("uid")

    def _tidy(self) -> None:
        """Forget, after each `KEPT_S`, owners that no pod refers to any more, and kinds of such."""
        if self._monotonic() < self._tidy_s:
            return
        self._tidy_s = self._monotonic() + KEPT_S
        self._read = {uid: value for uid, value in self._read.copy().items() if uid in self._used}
        kinds: tuple[dict[Kind, Any], ...] = (self._whys, self._refused, self._refused_since_s)
        for known in kinds:  # in place: the thread that asks may add to them
            for kind in known.copy().keys() - self._used_kinds:
                known.pop(kind, None)
        self._used_kinds = set()
        self._used, self._known_pods, self._missing, self._again, self._blind = set(), set(), {}, {}, {}


def _is_turn(looks: int) -> bool:
    """At the first looks, as long as an owner may be on its way; then seldom."""
    return looks <= 1 + COMES_WITHIN_S / LOOK_S or looks & (looks - 1) == 0 or looks % 60 == 0


def _blind_text(reference: Reference, why: str) -> str:
    return (
        f"its owner {reference} cannot be read: it is placed as the pod itself says, without the gang, queue and "
        f"priority that the owner may state. {why}"
    )


def _maker(item: Mapping[str, Any]) -> Reference | None:
    """The controller of an object, else the first of its owners."""
    metadata = meta(item)
    owners = metadata.get("ownerReferences")
    if not owners:
        return None
    one = next((owner for owner in owners if owner.get("controller")), owners[0])
    namespace = str(metadata.get("namespace") or "")
    return Reference(str(one["apiVersion"]), str(one["kind"]), namespace, str(one["name"]), str(one["uid"]))


def _wanted_pods(owner: Object, pods: Iterable[Object]) -> int | None:
    """How many pods the owner of ``pods`` wants at a time; None: its kind does not say so in one place."""
    kind, spec = (group_of(owner["apiVersion"]), owner["kind"]), owner["spec"]
    if kind in (("apps", "ReplicaSet"), ("apps", "StatefulSet")):
        return int(spec.get("replicas", 1))
    if kind != ("batch", "Job"):
        return None
    if spec.get("suspend"):
        return 0
    side_by_side = int(spec.get("parallelism", 1))
    if spec.get("completions") is None:
        return side_by_side
    return min(side_by_side, int(spec["completions"]) - sum(_phase(pod) == "Succeeded" for pod in pods))


def _lives(pod: Object) -> bool:
    return not meta(pod).get("deletionTimestamp") and _phase(pod) not in ("Succeeded", "Failed")


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def has_node(pod: Object) -> bool:
    """Whether the pod is bound."""
    spec = pod.get("spec")
    return isinstance(spec, dict) and bool(spec.get("nodeName"))
