"""Shared GPUs, as KAI's binder reserves them, so that its runtime parts work unchanged.

Source: docs/kai-behaviour.md#fractions, #reservation-pods.

A group is one device of one node that pods share. A reservation pod holds it whole, and an agent in it writes which one
it got into an annotation. Pods carry the name of their group as a label, and read the device from ConfigMaps that their
containers refer to. A reservation pod without users is deleted, or its device would be lost.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kai_solver.cluster.api import Api, ApiError, Object, key_of, meta
from kai_solver.cluster.binding import BindError, LateError, Placement
from kai_solver.cluster.locking import if_there
from kai_solver.cluster.patience import Patience, after_news
from kai_solver.cluster.resources import CONFIG_MAPS, NODES, PODS, Resource
from kai_solver.cluster.store import Store
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.gpus import gpu_groups, group_labels
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.shares import parse_share, user_text, users_of
from kai_solver.kubeobjects.stored import newer_format
from kai_solver.units import MILLI, parse_whole

APP = "kai-resource-reservation"
KEPT = "karpenter.sh/do-not-disrupt"
MADE_BY = "app.kubernetes.io/managed-by"

FLIGHT_S = 300.0
"""Seconds for which a pod counts as a user if its binding began and was never seen to end."""

STRANGE_S = 120.0
"""Age in seconds from which a reservation pod that another scheduler made may be an orphan: its user may still come."""

LOOK_S = 30.0


@dataclass(frozen=True, slots=True)
class ReservationPod:
    """How reservation pods are made. ``made_by``: a name of this scheduler's own."""

    made_by: str
    image: str
    service_account: str = APP
    runtime_class: str = ""
    gpu_resource: str = "nvidia.com/gpu"

    def body(self, name: str, placement: Placement, group: str, tolerations: list[object]) -> Object:
        """A pod on the node of ``placement`` that holds one whole device; its agent may write on itself alone.

        It names the pod of ``placement`` as the first user of the device.
        """
        amounts = {self.gpu_resource: "1"}
        reference = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "NODE_NAME": "spec.nodeName"}
        container = {
            "name": "resource-reservation",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "env": [{"name": k, "valueFrom": {"fieldRef": {"fieldPath": path}}} for k, path in reference.items()],
            "resources": {"requests": amounts, "limits": amounts},
        }
        labels = {"app": APP, names.GPU_GROUP: group, MADE_BY: self.made_by}
        spec: Object = {
            "nodeName": placement.node,
            "serviceAccountName": self.service_account,
            "terminationGracePeriodSeconds": 1,
            "tolerations": tolerations,
            "containers": [container],
        }
        if self.runtime_class:
            spec["runtimeClassName"] = self.runtime_class
        # A wish: which device it gets is the device plugin's to say.
        wished = dict(zip(placement.groups, placement.devices, strict=False)).get(group)
        annotations = {KEPT: "true"} | ({names.OWN_WISHED: str(wished[0])} if wished else {}) | _as_user(placement)
        metadata = {"name": name, "namespace": names.RESERVATION_NAMESPACE, "labels": labels}
        return {"metadata": {**metadata, "annotations": annotations}, "spec": spec}


@dataclass(slots=True)
class Sharing:
    """`Preparation` of shared devices, and the collector of orphans; listens to ``store`` from the beginning.

    ``is_ours``: whether a node is one of this scheduler's.
    """

    api: Api
    store: Store
    patience: Patience
    kind: ReservationPod
    is_ours: Callable[[str], bool] = lambda _: True
    clock: Callable[[], float] = time.time
    _reservations: dict[str, Object] = field(default_factory=dict)
    """By key of the reservation pod."""
    _users: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Uid, and groups that its labels name, by pod that asks for a part of a GPU and has a node."""
    _flying: dict[str, tuple[tuple[str, ...], float]] = field(default_factory=dict)
    """Groups by pod that is being bound, and until when that is believed."""
    _leaving: set[str] = field(default_factory=set)
    """Uids of reservation pods that we deleted."""
    _news: threading.Event = field(default_factory=threading.Event)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        """Hear of every pod."""
        self.store.listen(self._hear)

    # -- preparing -----------------------------------------------------------------------------------------------------

    def concerns(self, placement: Placement) -> bool:
        """Whether the pod shares devices, or needs whole ones where a reservation pod without users may hold one."""
        if placement.groups or not placement.devices:
            return bool(placement.groups)
        return self._is_leaving_from(placement.node) or bool(self._orphans(placement.node))

    def assume(self, placement: Placement) -> None:
        """Count the pod as a user of its groups."""
        if placement.groups:
            with self._lock:
                self._flying[placement.key] = placement.groups, self.clock() + FLIGHT_S

    def prepare(self, placement: Placement) -> None:
        """Have the devices of the pod's groups reserved, and write them on the pod.

        Raises
        ------
        BindError
            No device was reserved in time, or the node refused to.
        """
        if not placement.groups:
            self.collect(placement.node)
            if not self.patience.until(lambda: not self._is_leaving_from(placement.node)):
                raise LateError(f"a device of node {placement.node!r} is still held by a reservation pod without users")
            return
        self.assume(placement)
        pod = self._pod(placement)
        indices = [self._device(placement, group, pod) for group in placement.groups]
        self._note_user(placement)
        labels = group_labels(placement.groups)
        have = gpu_label_names(pod)
        if have != labels:
            wanted = {**dict.fromkeys(have), **labels}
            self.api.patch(PODS, placement.namespace, placement.name, {"metadata": {"labels": wanted}})
        self._write_maps(pod, placement, indices)

    def undo(self, placement: Placement) -> None:
        """Take the labels off the pod, and give back devices that no other pod uses."""
        with self._lock:
            self._flying.pop(placement.key, None)
        pod = self.store.get(PODS, placement.key) or {}
        self._forget_user(placement)
        labels = gpu_label_names(pod) | group_labels(placement.groups)  # no watch may have shown yet that we wrote them
        if labels and meta(pod).get("uid") == placement.uid:
            with if_there():
                body = {"metadata": {"uid": placement.uid, "labels": dict.fromkeys(labels)}}
                self.api.patch(PODS, placement.namespace, placement.name, body)
        self.collect(placement.node)

    def clear(self) -> None:
        """Count on no user, and on no end of a reservation, that the server does not show."""
        with self._lock:
            self._flying.clear()
            self._leaving.clear()

    def _pod(self, placement: Placement) -> Object:
        pod = self.store.get(PODS, placement.key)
        if pod is None or meta(pod).get("uid") != placement.uid:
            raise BindError("the pod is gone")
        return pod

    def _device(self, placement: Placement, group: str, pod: Object) -> int:
        """Index of the group's device on its node; its reservation pod is made where there is none."""
        name = f"gpu-reservation-{hashlib.sha256(f'{placement.node}/{group}'.encode()).hexdigest()[:16]}"
        found: list[int] = []

        def is_known() -> bool:
            reservation = self._reservation(group, placement.node)
            if reservation is None:
                if self.store.get(PODS, f"{names.RESERVATION_NAMESPACE}/{name}") is None:
                    self._make(name, placement, group, pod)
                return False
            if Raw(reservation).text("status.phase") == "Failed":
                why = Raw(reservation).text("status.message") or Raw(reservation).text("status.reason")
                raise BindError(f"node {placement.node!r} gave no device to reserve: {why}")
            index = parse_whole(Raw(reservation).strings("metadata.annotations").get(names.RESERVED_INDEX, ""), 4)
            found[:] = [] if index is None else [index]
            return bool(found)

        if not self.patience.until(is_known):
            limit_s = self.patience.limit_s
            raise LateError(f"no device was reserved on node {placement.node!r} within {limit_s:.0f} s")
        return found[0]

    def _reservation(self, group: str, node: str) -> Object | None:
        """The group's reservation pod that is not leaving."""
        with self._lock:
            for pod in self._reservations.values():
                if _group_of(pod) == group and Raw(pod).text("spec.nodeName") == node and not self._leaves(pod):
                    return pod
        return None

    def _make(self, name: str, placement: Placement, group: str, pod: Object) -> None:
        tolerations = [entry.value for entry in Raw(pod).items("spec.tolerations")]
        body = self.kind.body(name, placement, group, tolerations)
        try:
            self.api.create(PODS, names.RESERVATION_NAMESPACE, body)
        except ApiError as error:
            if error.is_missing:
                raise BindError(f"namespace {names.RESERVATION_NAMESPACE} does not exist: {error.message}") from error
            if not error.is_conflict:  # made by another pod of the group, or not seen yet
                raise

    def _note_user(self, placement: Placement) -> None:
        """Make the reservation pods of the placement's groups, and no others, name the pod with its part.

        Later cycles believe them, and not the labels, which the pod's users may change. Names of deleted pods are
        removed at the same time.
        """
        for name, wanted in _as_user(placement).items():
            for reservation in self._on(placement.node):
                stands = Raw(reservation).strings("metadata.annotations")
                value = wanted if _group_of(reservation) in placement.groups else None
                if stands.get(name) != value:
                    change = {key: None for key in stands if key != name and self._is_former(key, stands[key])}
                    self._annotate(reservation, {**change, name: value})

    def _forget_user(self, placement: Placement) -> None:
        """Remove the pod's name from all reservation pods of its node."""
        name = f"{names.USER_PREFIX}{placement.uid}"
        for reservation in self._on(placement.node):
            if name in Raw(reservation).strings("metadata.annotations") or _group_of(reservation) in placement.groups:
                with if_there():
                    self._annotate(reservation, {name: None})

    def _annotate(self, reservation: Object, annotations: Mapping[str, str | None]) -> None:
        found = meta(reservation)
        body = {"metadata": {"uid": found.get("uid"), "annotations": annotations}}
        self.api.patch(PODS, names.RESERVATION_NAMESPACE, str(found.get("name")), body)

    def _on(self, node: str) -> list[Object]:
        """Reservation pods of a node that are not leaving."""
        with self._lock:
            found = [pod for pod in self._reservations.values() if not self._leaves(pod)]
        return [pod for pod in found if Raw(pod).text("spec.nodeName") == node]

    def _is_former(self, key: str, value: str) -> bool:
        """Whether an annotation names a user that is gone; one that a newer version wrote is left to that."""
        if newer_format(value):
            return False
        uid, pod = key.removeprefix(names.USER_PREFIX), value.partition(" ")[2]
        return key.startswith(names.USER_PREFIX) and meta(self.store.get(PODS, pod) or {}).get("uid") != uid

    def _write_maps(self, pod: Object, placement: Placement, indices: list[int]) -> None:
        """The ConfigMaps that the pod's containers read their devices from, as far as they refer to any."""
        devices, portion = (
            ",".join(map(str, indices)),
            f"{placement.devices[0][1] / MILLI:g}" if placement.devices else "1",
        )
        data = {
            "NVIDIA_VISIBLE_DEVICES": devices,
            "RUNAI-VISIBLE-DEVICES": devices,
            "RUNAI_NUM_OF_GPUS": portion,
            "GPU_PORTION": portion,
        }
        for name, has_devices in config_maps(pod).items():
            owner = {"apiVersion": "v1", "kind": "Pod", "name": placement.name, "uid": placement.uid}
            labels = {MADE_BY: self.kind.made_by}
            metadata = {"name": name, "namespace": placement.namespace, "labels": labels, "ownerReferences": [owner]}
            body = {"metadata": metadata, "data": data if has_devices else {}}
            try:
                self.api.create(CONFIG_MAPS, placement.namespace, body)
            except ApiError as error:
                if not error.is_conflict:
                    raise
                self._write_over(placement, name, body)

    def _write_over(self, placement: Placement, name: str, body: Object) -> None:
        """The same of a ConfigMap that is there, if it was made for this pod, or by us for a pod that is gone.

        The pod's author chooses the name, and may not be allowed to write every ConfigMap of the namespace.

        Raises
        ------
        BindError
            It belongs to a user, or to another pod.
        """
        found = meta(self.api.get(CONFIG_MAPS, placement.namespace, name))
        owners = [owner for owner in found.get("ownerReferences") or () if isinstance(owner, dict)]
        is_own = (found.get("labels") or {}).get(MADE_BY) == self.kind.made_by
        if [owner.get("uid") for owner in owners] != [placement.uid] and not (
            is_own and all(map(self._is_gone, owners))
        ):
            raise BindError(
                f"ConfigMap {placement.namespace}/{name} was not made for this pod: correct the annotation "
                f"{names.SHARED_GPU_MAP}, or remove the ConfigMap"
            )
        version = {"uid": found.get("uid"), "resourceVersion": found.get("resourceVersion")}
        self.api.patch(CONFIG_MAPS, placement.namespace, name, {**body, "metadata": {**body["metadata"], **version}})

    def _is_gone(self, owner: Object) -> bool:
        """Whether no pod has the uid that a ConfigMap of ours refers to."""
        uid = owner.get("uid")
        return owner.get("kind") == "Pod" and not any(meta(pod).get("uid") == uid for pod in self.store.all(PODS))

    # -- collecting ----------------------------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Delete orphans whenever a user left, until ``stop`` is set; only while this process leads."""
        after_news(self._news, stop, self._collect_as_leader, LOOK_S)

    def _collect_as_leader(self) -> None:
        if self.store.is_synced((PODS, NODES)) and self.patience.fence():
            with suppress(ApiError):
                self.collect()

    def collect(self, node: str = "") -> int:
        """Delete reservation pods without users, of one node or of all of ours; how many."""
        with self._lock:
            orphans = self._orphans(node)
            used = self._claimed_by(self.store.all(PODS)) if orphans else set()
            orphans = [pod for pod in orphans if _group_of(pod) not in used]
            self._leaving |= {str(meta(pod).get("uid")) for pod in orphans}
        for pod in orphans:
            uid = str(meta(pod).get("uid"))
            try:
                self.api.delete(PODS, names.RESERVATION_NAMESPACE, str(meta(pod).get("name")), uid=uid)
            except ApiError as error:
                if not (error.is_missing or error.is_conflict):
                    with self._lock:
                        self._leaving.discard(uid)
                    raise
        return len(orphans)

    def _orphans(self, node: str = "") -> list[Object]:
        """Reservation pods without users, those that leave already excepted."""
        with self._lock:
            if not self._reservations:
                return []
            now_s = self.clock()
            self._flying = {key: found for key, found in self._flying.items() if found[1] > now_s}
            used = self._used(self._users.values())
            used |= {group for groups, _ in self._flying.values() for group in groups}
            return [pod for pod in self._reservations.values() if self._is_orphan(pod, used, node, now_s)]

    def _used(self, claims: Iterable[tuple[str, tuple[str, ...]]]) -> set[str]:
        """Groups with users: pods that hold a node and that their reservation pods name, others as labels say."""
        named: dict[str, set[str]] = {}
        for reservation in self._reservations.values():
            for uid, (_, key) in users_of(reservation).items():
                pod = self.store.get(PODS, key)
                if pod is not None and meta(pod).get("uid") == uid and _holds_node(pod):
                    named.setdefault(uid, set()).add(_group_of(reservation))
        found = {group for groups in named.values() for group in groups}
        return found | {group for uid, groups in claims if uid not in named for group in groups}

    def _claimed_by(self, pods: Iterable[Object]) -> set[str]:
        return self._used((str(meta(pod).get("uid")), groups) for pod in pods if (groups := _used_by(pod)))

    def _is_orphan(self, pod: Object, used: set[str], node: str, now_s: float) -> bool:
        raw = Raw(pod)
        where = raw.text("spec.nodeName")
        if _group_of(pod) in used or (node and where != node) or not self.is_ours(where):
            return False
        if self._leaves(pod):
            return False
        is_own = raw.strings("metadata.labels").get(MADE_BY) == self.kind.made_by
        return is_own or now_s - (raw.time_s("metadata.creationTimestamp") or 0.0) > STRANGE_S

    def _is_leaving_from(self, node: str) -> bool:
        with self._lock:
            return any(
                Raw(pod).text("spec.nodeName") == node and self._leaves(pod) for pod in self._reservations.values()
            )

    def _leaves(self, pod: Object) -> bool:
        return bool(meta(pod).get("deletionTimestamp")) or meta(pod).get("uid") in self._leaving

    def _hear(self, resource: Resource, key: str, _before: Object | None, after: Object | None) -> None:
        if resource != PODS:
            return
        if key.startswith(f"{names.RESERVATION_NAMESPACE}/"):
            self._hear_reservation(key, after)
            return
        groups = _used_by(after) if after is not None else ()
        if not groups and key not in self._users and key not in self._flying:
            return
        with self._lock:
            if after is not None and _holds_node(after):
                self._flying.pop(key, None)  # its reservation pods have named it before
            if groups and after is not None:
                self._users[key] = str(meta(after).get("uid")), groups
            else:
                self._users.pop(key, None)
                self._news.set()

    def _hear_reservation(self, key: str, after: Object | None) -> None:
        with self._lock:
            before = self._reservations.pop(key, None)
            if before is not None and (after is None or meta(after).get("uid") != meta(before).get("uid")):
                self._leaving.discard(str(meta(before).get("uid")))
            if after is not None and _group_of(after) and _is_readable(after):
                self._reservations[key] = after
        self._news.set()


def gpu_label_names(pod: Object) -> dict[str, str]:
    """The labels of a pod that name groups."""
    labels = meta(pod).get("labels")
    found = labels if isinstance(labels, dict) else {}
    named = {k: v for k, v in found.items() if k == names.GPU_GROUP or k.startswith(names.GPU_GROUP_PREFIX)}
    return {k: v for k, v in named.items() if isinstance(v, str)}


def config_maps(pod: Object) -> dict[str, bool]:
    """ConfigMaps of a pod that state its devices, by name, and whether they hold the devices or further variables."""
    raw = Raw(pod)
    prefix = raw.strings("metadata.annotations").get(names.SHARED_GPU_MAP, "")
    if not prefix:
        return {}
    found: dict[str, bool] = {}
    for name, has_devices in _references(raw):
        if name.startswith(prefix):
            found[name] = found.get(name, False) or has_devices
    return found


def _references(pod: Raw) -> Iterator[tuple[str, bool]]:
    for container in (*pod.items("spec.containers"), *pod.items("spec.initContainers")):
        for variable in container.items("env"):
            yield variable.text("valueFrom.configMapKeyRef.name"), True
        for source in container.items("envFrom"):
            yield source.text("configMapRef.name"), False
    for volume in pod.items("spec.volumes"):
        yield volume.text("configMap.name"), True


def _used_by(pod: Object) -> tuple[str, ...]:
    """Groups that the labels of a pod name: it has a node, is not finished, and asks for a part of a GPU.

    Other pods may have such labels, too, and would hold a device that no queue pays for.
    """
    labels = gpu_label_names(pod)
    if not labels or key_of(pod).startswith(f"{names.RESERVATION_NAMESPACE}/"):
        return ()
    annotations = meta(pod).get("annotations")
    asks = isinstance(annotations, dict) and not annotations.keys().isdisjoint((names.GPU_FRACTION, names.GPU_MEMORY))
    return gpu_groups(labels) if asks and _holds_node(pod) else ()


def _holds_node(pod: Object) -> bool:
    """Whether the pod has a node and is not finished; what cannot be read may hold one."""
    try:
        raw = Raw(pod)
        return bool(raw.text("spec.nodeName")) and raw.text("status.phase") not in ("Succeeded", "Failed")
    except InputError:
        return True


def _as_user(placement: Placement) -> dict[str, str]:
    """The annotation by which a reservation pod names a user of its device; none if the device is not shared."""
    share = parse_share(dict(placement.annotations).get(names.OWN_SHARE, ""))
    return {} if share is None else {f"{names.USER_PREFIX}{placement.uid}": user_text(share, placement.key)}


def _group_of(reservation: Object) -> str:
    labels = meta(reservation).get("labels")
    return str(labels.get(names.GPU_GROUP, "")) if isinstance(labels, dict) else ""


def _is_readable(reservation: Object) -> bool:
    """Whether the needed fields can be read; an unreadable one would hold up every pod that shares a device."""
    raw = Raw(reservation)
    try:
        raw.text("spec.nodeName"), raw.strings("metadata.labels"), raw.time_s("metadata.creationTimestamp")
        raw.text("metadata.uid"), raw.text("metadata.deletionTimestamp")
    except InputError:
        return False
    return True


def node_pool(store: Store, key: str, value: str) -> Callable[[str], bool]:
    """Whether a node is one of the node pool's; nodes that are gone count as well."""

    def is_ours(name: str) -> bool:
        node = store.get(NODES, name)
        if node is None:
            return True
        labels = meta(node).get("labels")
        return (labels.get(key, "") if isinstance(labels, dict) else "") == value

    return is_ours
