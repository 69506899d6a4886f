"""Volumes of a pod: claims that wait for their first consumer get the node, and are bound before the pod is.

As kube-scheduler's plugin VolumeBinding does: a free volume of the claim's class that the node can reach is kept for
the claim (``claimRef``); where there is none the claim is annotated with the node, and its provisioner makes one. A
provisioner that cannot takes the annotation off again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kai_solver.cluster.api import Api, ApiError, Object, key_of, meta, version_of
from kai_solver.cluster.binding import BindError, LateError, Placement
from kai_solver.cluster.locking import if_there, locking
from kai_solver.cluster.patience import LOOK_S, Patience
from kai_solver.cluster.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from kai_solver.cluster.store import Store
from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.selectors import label_selector, node_terms
from kai_solver.kubeobjects.volumes import MAKES_NONE, SELECTED_NODE, claim_keys
from kai_solver.predicates import labels_match

LONGEST_LOOK_S = 10.0
UNDO_S = 60.0
"""Longer than anything is tried to be taken back."""
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


@dataclass(slots=True)
class Volumes:
    """`Preparation` of volumes; claims and volumes are looked at in ``store``."""

    api: Api
    store: Store
    patience: Patience
    _asked: dict[str, dict[str, str]] = field(default_factory=dict)
    """By pod (its uid) and claim that we asked for: the volume kept for it, or empty where one is to be made."""
    _undone: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Pods (their uid) of which that is being taken back, with their keys, and when it was last tried."""

    def concerns(self, placement: Placement) -> bool:
        """Whether a claim of the pod has no volume yet, or was asked for, which may have to be taken back."""
        if placement.uid in self._asked:
            return True
        try:
            return any(not _is_bound(self.store.get(PERSISTENT_VOLUME_CLAIMS, key)) for key in self._claims(placement))
        except InputError:
            return False  # what cannot be read no plan was made for

    def assume(self, placement: Placement) -> None:  # noqa: ARG002 - `Preparation`
        """Nothing: other users of the claim are judged when the claim is asked for.

        What could not be taken back is forgotten with its pod: the claim says what it waits for.
        """
        now_s = self.patience.monotonic()
        for uid, (key, since_s) in list(self._undone.items()):
            if now_s - since_s > UNDO_S and meta(self.store.get(PODS, key) or {}).get("uid") != uid:
                self._drop(uid)

    def _drop(self, uid: str) -> None:
        self._asked.pop(uid, None)
        self._undone.pop(uid, None)

    def prepare(self, placement: Placement) -> None:
        """Have all claims of the pod bound, to volumes that its node can reach.

        Raises
        ------
        BindError
            A claim is missing, has no volume and no provisioner, or its volume was not made in time.
        """
        keys = self._claims(placement)
        if not self.patience.until(lambda: all(self.store.get(PERSISTENT_VOLUME_CLAIMS, key) for key in keys)):
            raise LateError(f"not all claims of the pod exist: {', '.join(keys)}")
        being_made = {key for key in keys if self._ask(placement, key)}
        looks = {key: _Looks() for key in being_made}
        if not self.patience.until(lambda: all(self._is_done(placement, key, looks.get(key)) for key in keys)):
            raise LateError(f"its volumes were not bound within {self.patience.limit_s:.0f} s")
        self._drop(placement.uid)

    def undo(self, placement: Placement) -> None:
        """Take back what was asked for and not done, also where the pod is gone; bound volumes stay the claims'."""
        if placement.uid in self._asked:
            self._undone[placement.uid] = placement.key, self.patience.monotonic()
        for key, volume in self._asked.get(placement.uid, {}).items():
            with if_there():
                claim = self._claim(key)  # no watch may have shown yet what was done
                if volume and not _is_bound(claim):
                    self._let_go(volume, str(meta(claim).get("uid")))
                elif not volume:
                    self._deselect(key, placement.node)
        self._drop(placement.uid)

    def clear(self) -> None:
        """Remember nothing that was asked for; the claims say it."""
        self._asked.clear()
        self._undone.clear()

    def _claims(self, placement: Placement) -> tuple[str, ...]:
        pod = self.store.get(PODS, placement.key)
        return claim_keys(Raw(pod)) if pod is not None and meta(pod).get("uid") == placement.uid else ()

    def _ask(self, placement: Placement, key: str) -> bool:
        """Ask for the claim's volume where that has not been done; whether a provisioner is to make it."""
        claim = self.store.get(PERSISTENT_VOLUME_CLAIMS, key)
        if claim is None or _is_bound(claim) or self._is_kept(claim):
            return False
        selected = _selected(claim)
        if selected == placement.node:
            return True
        if selected:
            raise BindError(f'the volume of claim "{key}" is being made for node {selected!r}')
        before = self._asked.get(placement.uid, {}).get(key)
        if before is not None:
            return not before  # what became of it `_is_done` says
        name = Raw(claim).text("spec.storageClassName")
        kind = self.store.get(STORAGE_CLASSES, name)
        if kind is None or Raw(kind).text("volumeBindingMode") != "WaitForFirstConsumer":
            return False  # bound without us, or never
        volume = self._keep(claim, placement)
        if not volume:
            if Raw(kind).text("provisioner") == MAKES_NONE:
                raise BindError(f'no volume of class {name!r} is free for claim "{key}" on node {placement.node!r}')
            self._select(key, placement.node)
        self._asked.setdefault(placement.uid, {})[key] = volume
        return not volume

    def _claim(self, key: str) -> Object:
        """The claim as the server has it."""
        namespace, _, name = key.partition("/")
        return self.api.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)

    def _select(self, key: str, node: str) -> None:
        """Write the node on the claim; a node that another scheduler wrote is kept."""

        def write(claim: Object) -> None:
            selected = _selected(claim)
            if selected not in ("", node):
                raise BindError(f'the volume of claim "{key}" is being made for node {selected!r}')
            self._mark(claim, node)

        locking(lambda: self._claim(key), write)

    def _deselect(self, key: str, node: str) -> None:
        """Take the node off the claim again, unless it is bound by now or waits for another node."""

        def write(claim: Object) -> None:
            if _selected(claim) == node and not _is_bound(claim):
                self._mark(claim, None)

        locking(lambda: self._claim(key), write)

    def _mark(self, claim: Object, node: str | None) -> None:
        namespace, _, name = key_of(claim).partition("/")
        metadata = {"resourceVersion": version_of(claim), "annotations": {SELECTED_NODE: node}}
        self.api.patch(PERSISTENT_VOLUME_CLAIMS, namespace, name, {"metadata": metadata})

    # -- volumes that are there already --------------------------------------------------------------------------------

    def _is_kept(self, claim: Object) -> bool:
        """Whether a volume waits for the claim already; Kubernetes binds the two."""
        return any(_holder(volume) == key_of(claim) for volume in self.store.all(PERSISTENT_VOLUMES))

    def _keep(self, claim: Object, placement: Placement) -> str:
        """Keep the smallest free volume that fits for the claim; its name, empty where there is none."""
        metadata = meta(claim)
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": metadata.get("namespace"),
            "name": metadata.get("name"),
            "uid": metadata.get("uid"),
        }
        for volume in sorted(self._fitting(claim, placement), key=lambda found: (_capacity(found), key_of(found))):
            marks = {"resourceVersion": version_of(volume), "annotations": {BOUND_BY_CONTROLLER: "yes"}}
            body = {"metadata": marks, "spec": {"claimRef": reference}}
            try:
                self.api.patch(PERSISTENT_VOLUMES, "", key_of(volume), body)
            except ApiError as error:
                if not (error.is_conflict or error.is_missing):
                    raise
                continue  # another claim has it
            return key_of(volume)
        return ""

    def _fitting(self, claim: Object, placement: Placement) -> Iterator[Object]:
        asked = Raw(claim)
        size, modes = asked.get("spec.resources.requests.storage"), _modes(asked)
        least = size.quantity() if size else 0
        selector = label_selector(asked.get("spec.selector")) if asked.get("spec.selector") else ()
        for volume in self.store.all(PERSISTENT_VOLUMES):
            raw = Raw(volume)
            try:
                if (
                    not raw.get("spec.claimRef")
                    and not raw.get("metadata.deletionTimestamp")
                    and raw.text("status.phase", "Available") in ("", "Available")
                    and raw.text("spec.storageClassName") == asked.text("spec.storageClassName")
                    and raw.text("spec.volumeMode", "Filesystem") == asked.text("spec.volumeMode", "Filesystem")
                    and _capacity(volume) >= least
                    and modes <= _modes(raw)
                    and labels_match(selector, raw.strings("metadata.labels"))
                    and self._reaches(placement.node, raw)
                ):
                    yield volume
            except InputError:
                continue  # malformed: no claim can use it

    def _reaches(self, node: str, volume: Raw) -> bool:
        required = volume.get("spec.nodeAffinity.required")
        if not required:
            return True
        found = self.store.get(NODES, node)
        labels = Raw(found or {}).strings("metadata.labels") | {"metadata.name": node}
        return any(labels_match(term, labels) for term in node_terms(required.get("nodeSelectorTerms")))

    def _let_go(self, name: str, uid: str) -> None:
        def write(volume: Object) -> None:
            if Raw(volume).text("spec.claimRef.uid") == uid:
                marks = {"resourceVersion": version_of(volume), "annotations": {BOUND_BY_CONTROLLER: None}}
                self.api.patch(PERSISTENT_VOLUMES, "", name, {"metadata": marks, "spec": {"claimRef": None}})

        locking(lambda: self.api.get(PERSISTENT_VOLUMES, "", name), write)

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _is_done(self, placement: Placement, key: str, looks: "_Looks | None") -> bool:
        """Whether the claim is bound to a volume that the node can reach; ``looks``: where a provisioner was asked."""
        pod, claim = self.store.get(PODS, placement.key), self.store.get(PERSISTENT_VOLUME_CLAIMS, key)
        if pod is None or meta(pod).get("uid") != placement.uid or meta(pod).get("deletionTimestamp"):
            raise BindError("the pod is gone")
        if claim is None:
            raise BindError(f'persistentvolumeclaim "{key}" was deleted')
        if not _is_bound(claim):
            if looks is not None and not _selected(claim) and looks.is_due(self.patience.monotonic()):
                self._check_not_given_up(placement, key)
            return False
        volume = self.store.get(PERSISTENT_VOLUMES, Raw(claim).text("spec.volumeName"))
        if volume is not None and not self._reaches(placement.node, Raw(volume)):
            raise BindError(f'the volume of claim "{key}" cannot be reached from node {placement.node!r}')
        return volume is not None

    def _check_not_given_up(self, placement: Placement, key: str) -> None:
        """Ask the server itself: the store may lag behind our annotation, and a quick refusal shows in no look."""
        claim = self._claim(key)
        if not _selected(claim) and not _is_bound(claim):
            raise BindError(f'no volume could be made for claim "{key}" on node {placement.node!r}')


@dataclass(slots=True)
class _Looks:
    """When the server is asked for a claim itself: a watch may be silent for long, and many pods may wait."""

    due_s: float = float("-inf")
    pause_s: float = LOOK_S

    def is_due(self, now_s: float) -> bool:
        """Whether to ask now; next time later, up to a limit."""
        if now_s < self.due_s:
            return False
        self.due_s, self.pause_s = now_s + self.pause_s, min(2 * self.pause_s, LONGEST_LOOK_S)
        return True


def _selected(claim: Object) -> str:
    """The node that the claim's volume is to be made for, empty for none."""
    return Raw(claim).strings("metadata.annotations").get(SELECTED_NODE, "")


def _is_bound(claim: Object | None) -> bool:
    found = Raw(claim or {})
    return bool(found.text("spec.volumeName")) and found.text("status.phase") == "Bound"


def _modes(raw: Raw) -> frozenset[str]:
    return frozenset(mode.text() for mode in raw.items("spec.accessModes"))


def _capacity(volume: Object) -> int:
    found = Raw(volume).get("spec.capacity.storage")
    return found.quantity() if found else 0


def _holder(volume: Object) -> str:
    spec = volume.get("spec")
    reference = spec.get("claimRef") if isinstance(spec, dict) else None
    return f"{reference.get('namespace')}/{reference.get('name')}" if isinstance(reference, dict) else ""
