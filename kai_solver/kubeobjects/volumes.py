"""What a pod must find before it can start: bound claims, ConfigMaps, and devices by claim."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kai_solver.domain import NodeTerm, Requirement
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import Notices, namespaced_key, read_each
from kai_solver.kubeobjects.objects import RawObjects
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.selectors import label_selector, node_terms

_ROOT_CERTIFICATES = "kube-root-ca.crt"
"""A ConfigMap that Kubernetes puts into every namespace, also where an export left it out."""

ONE_POD = "rwop.kai-solver/"
"""Prefix of a label that stands for a claim with the access mode ReadWriteOncePod: no second pod may have it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim, as far as placing its pods is concerned.

    ``trouble``: why no pod can use it as it is (KAI's words, which are kube-scheduler's); ``entries``: of node terms,
    which must all hold for a node: what its volume, or its class with the storage and volumes that are free, allows;
    ``one_pod``: ReadWriteOncePod.
    """

    trouble: str = ""
    entries: tuple[tuple[NodeTerm, ...], ...] = ()
    one_pod: bool = False


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """What a pod's volumes and ConfigMaps ask: node terms, why it cannot start anywhere, claims of one pod only."""

    terms: tuple[tuple[NodeTerm, ...], ...] = ()
    blocked: tuple[str, ...] = ()
    alone_with: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims and ConfigMaps that exist, by ``namespace/name``."""

    claims: Mapping[str, Claim]
    config_maps: frozenset[str]

    def of_pod(self, pod: Raw) -> PodNeeds:
        """What ``pod`` needs of its volumes, and in words what keeps it from starting anywhere."""
        namespace = pod.text("metadata.namespace") or "default"
        claims = {name: self.claims.get(f"{namespace}/{name}") for name in _claim_names(pod)}
        own = (self.claims.get(f"{namespace}/{name}") for name in _own_claim_names(pod))
        found = [*(claim for claim in claims.values() if claim), *(claim for claim in own if claim)]
        blocked = [claim_not_found(name) for name, claim in claims.items() if claim is None]
        blocked += [f"VolumeBinding: {claim.trouble}" for claim in found if claim.trouble]
        missing = [name for name in sorted(_config_maps(pod)) if f"{namespace}/{name}" not in self.config_maps]
        if missing:
            listed = " ".join(missing)
            blocked.append(
                f"ConfigMap: Missing required configmaps: [{listed}]. Create them (or export ConfigMaps too)"
            )
        return PodNeeds(
            terms=tuple(entry for claim in found if not claim.trouble for entry in claim.entries),
            blocked=tuple(dict.fromkeys(blocked)),
            alone_with=tuple(name for name, claim in claims.items() if claim and claim.one_pod),
        )


_MISSING = re.compile(r'VolumeBinding: persistentvolumeclaim "([^"]+)" not found')


def claim_not_found(name: str) -> str:
    """Why a pod with a claim that does not exist cannot start; `missing_claims` reads it."""
    return f'VolumeBinding: persistentvolumeclaim "{name}" not found. Create it (or export the claims too)'


def missing_claims(blocked: Iterable[str]) -> tuple[str, ...]:
    """Names of the claims that are not there, by what keeps a pod from starting."""
    found = (_MISSING.match(text) for text in blocked)
    return tuple(dict.fromkeys(match[1] for match in found if match))


def read_claims(objects: RawObjects, notices: Notices) -> Claims:
    """Index what pods may need; broken objects are set aside with a notice."""
    volumes = read_each("PersistentVolume", objects.persistent_volumes, notices, _volume)
    classes = read_each("StorageClass", objects.storage_classes, notices, _class)
    reader = _ClaimReader(volumes, classes, objects, notices)
    maps = read_each("ConfigMap", objects.config_maps, notices, lambda _: True, namespaced_key)
    claims = read_each("PersistentVolumeClaim", objects.persistent_volume_claims, notices, reader.read, namespaced_key)
    return Claims(claims, frozenset(maps))


@dataclass(frozen=True, slots=True)
class _Volume:
    """A PersistentVolume; ``terms`` None: any node can mount it. ``holder``: the claim that has it, as a key."""

    terms: tuple[NodeTerm, ...] | None
    storage_class: str
    capacity: int
    modes: frozenset[str]
    holder: str


@dataclass(frozen=True, slots=True)
class _Class:
    """A StorageClass: does it wait for the pod, what makes its volumes, and on which nodes (None: any)."""

    waits: bool
    provisioner: str
    terms: tuple[NodeTerm, ...] | None


@dataclass(frozen=True, slots=True)
class _Store:
    """A CSIStorageCapacity: the largest volume of a class that can be made, and for which nodes (empty: all)."""

    storage_class: str
    largest: int
    term: NodeTerm


@dataclass(frozen=True)
class _ClaimReader:
    """Reads claims beside the volumes and classes that there are."""

    volumes: Mapping[str, _Volume]
    classes: Mapping[str, _Class]
    objects: RawObjects
    notices: Notices
    _room: dict[tuple[str, int], tuple[NodeTerm, ...] | None] = field(default_factory=dict)

    @cached_property
    def reporting(self) -> frozenset[str]:
        """Drivers that say how much storage they have."""
        drivers = read_each("CSIDriver", self.objects.csi_drivers, self.notices, _reports)
        return frozenset(name for name, reports in drivers.items() if reports)

    @cached_property
    def stores(self) -> Mapping[str, list[_Store]]:
        """By class, what drivers say, the largest first.

        Read where a claim needs it: drivers of local storage write an object for each node.
        """
        by_class: dict[str, list[_Store]] = {}
        found = read_each(
            "CSIStorageCapacity", self.objects.csi_storage_capacities, self.notices, _store, namespaced_key
        )
        for one in sorted(found.values(), key=_largest_first):
            by_class.setdefault(one.storage_class, []).append(one)
        return by_class

    def read(self, raw: Raw) -> Claim:
        """A claim with what its volume or its class makes of it (kube-scheduler's plugin VolumeBinding)."""
        name, volume = raw.required("metadata.name"), raw.text("spec.volumeName")
        modes = frozenset(mode.text() for mode in raw.items("spec.accessModes"))
        one_pod = "ReadWriteOncePod" in modes
        if raw.get("metadata.deletionTimestamp"):
            return Claim(f'persistentvolumeclaim "{name}" is being deleted', one_pod=one_pod)
        if raw.text("status.phase") == "Lost" or (volume and volume not in self.volumes):
            trouble = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
            return Claim(trouble, one_pod=one_pod)
        if volume:
            return Claim(entries=_entries(self.volumes[volume].terms), one_pod=one_pod)
        return self._unbound(raw, name, modes)

    def _unbound(self, raw: Raw, name: str, modes: frozenset[str]) -> Claim:
        storage_class = raw.text("spec.storageClassName")
        kind = self.classes.get(storage_class)
        one_pod = "ReadWriteOncePod" in modes
        if kind is None or not kind.waits:
            trouble = f'pod has unbound immediate PersistentVolumeClaims: "{name}" is not bound to a volume yet'
            return Claim(trouble, one_pod=one_pod)
        selected = raw.strings("metadata.annotations").get(SELECTED_NODE, "")
        if selected:
            return Claim(entries=(((Requirement("metadata.name", "In", (selected,)),),),), one_pod=one_pod)
        asked = raw.get("spec.resources.requests.storage")
        size = asked.quantity() if asked else 0
        if kind.provisioner != MAKES_NONE:
            room = self._terms_of_room(storage_class, size) if size and kind.provisioner in self.reporting else None
            if room == ():
                trouble = f'node(s) did not have enough free storage for persistentvolumeclaim "{name}"'
                return Claim(trouble, one_pod=one_pod)
            return Claim(entries=_entries(kind.terms, room), one_pod=one_pod)
        fitting = self._free(raw, storage_class, size, modes)
        if not fitting:
            trouble = f'persistentvolumeclaim "{name}" didn\'t find available persistent volumes to bind'
            return Claim(trouble, one_pod=one_pod)
        anywhere = any(volume.terms is None for volume in fitting)
        terms = tuple(dict.fromkeys(term for volume in fitting for term in volume.terms or ()))
        return Claim(entries=_entries(None if anywhere else terms), one_pod=one_pod)

    def _terms_of_room(self, storage_class: str, size: int) -> tuple[NodeTerm, ...] | None:
        """Nodes for which the driver can make a volume of this size; None: any. Volumes being made do not count."""
        stores = self.stores.get(storage_class, [])
        fitting = bisect_right(stores, -size, key=_largest_first)
        key = storage_class, fitting
        if key not in self._room:
            terms = [one.term for one in stores[:fitting]]
            self._room[key] = _merged(terms) if all(terms) else None
        return self._room[key]

    def _free(self, raw: Raw, storage_class: str, size: int, modes: frozenset[str]) -> list[_Volume]:
        """Volumes that the claim could be bound to: of its class, large enough, free or kept for it."""
        own = namespaced_key(raw)
        return [
            volume
            for volume in self.volumes.values()
            if volume.storage_class == storage_class
            and volume.capacity >= size
            and modes <= volume.modes
            and volume.holder in ("", own)
        ]


def _entries(*terms: tuple[NodeTerm, ...] | None) -> tuple[tuple[NodeTerm, ...], ...]:
    return tuple(entry for entry in terms if entry is not None)


def _merged(terms: Iterable[NodeTerm]) -> tuple[NodeTerm, ...]:
    """The same terms, with one for all values of a label: drivers of local storage report for each node."""
    values: dict[str, set[str]] = {}
    others: list[NodeTerm] = []
    for term in terms:
        if len(term) == 1 and term[0].operator == "In":
            values.setdefault(term[0].key, set()).update(term[0].values)
        else:
            others.append(term)
    merged = ((Requirement(key, "In", tuple(sorted(found))),) for key, found in values.items() if found)
    return tuple(dict.fromkeys((*merged, *others)))


SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim whose volume is being made for this node."""
MAKES_NONE = "kubernetes.io/no-provisioner"


def _volume(raw: Raw) -> _Volume:
    required, capacity = raw.get("spec.nodeAffinity.required"), raw.get("spec.capacity.storage")
    holder = raw.get("spec.claimRef")
    is_free = not holder and raw.text("status.phase", "Available") in ("", "Available")
    owner = f"{holder.text('namespace') or 'default'}/{holder.text('name')}" if holder else "another"
    return _Volume(
        terms=node_terms(required.get("nodeSelectorTerms")) if required else None,
        storage_class=raw.text("spec.storageClassName"),
        capacity=capacity.quantity() if capacity else 0,
        modes=frozenset(mode.text() for mode in raw.items("spec.accessModes")),
        holder="" if is_free else owner,
    )


def _class(raw: Raw) -> _Class:
    topologies = raw.items("allowedTopologies")
    terms = tuple(
        tuple(
            Requirement(e.required("key"), "In", tuple(value.text() for value in e.items("values")))
            for e in topology.items("matchLabelExpressions")
        )
        for topology in topologies
    )
    return _Class(
        waits=raw.text("volumeBindingMode") == "WaitForFirstConsumer",
        provisioner=raw.text("provisioner"),
        terms=terms if topologies else None,
    )


def _largest_first(store: _Store) -> int:
    return -store.largest


def _reports(raw: Raw) -> bool:
    return raw.flag("spec.storageCapacity")


def _store(raw: Raw) -> _Store:
    largest = raw.get("maximumVolumeSize") or raw.get("capacity")
    return _Store(
        storage_class=raw.text("storageClassName"),
        largest=largest.quantity() if largest else -1,
        term=label_selector(raw.get("nodeTopology")),
    )


def needs_objects(pod: Raw) -> bool:
    """Whether the pod names claims or ConfigMaps, so that what it needs depends on those."""
    return any(True for _ in _claim_names(pod)) or any(True for _ in _own_claim_names(pod)) or bool(_config_maps(pod))


def claim_keys(pod: Raw) -> tuple[str, ...]:
    """Claims of the pod, those of its ephemeral volumes among them, as ``namespace/name``."""
    namespace = pod.text("metadata.namespace") or "default"
    return tuple(f"{namespace}/{name}" for name in dict.fromkeys((*_claim_names(pod), *_own_claim_names(pod))))


def _claim_names(pod: Raw) -> Iterator[str]:
    """Claims that must exist."""
    for volume in pod.items("spec.volumes"):
        if volume.get("persistentVolumeClaim"):
            yield volume.required("persistentVolumeClaim.claimName")


def _own_claim_names(pod: Raw) -> Iterator[str]:
    """Claims of ephemeral volumes: Kubernetes makes them when the pod is, so a missing one is no trouble."""
    for volume in pod.items("spec.volumes"):
        if volume.get("ephemeral"):
            yield f"{pod.required('metadata.name')}-{volume.required('name')}"


def _config_maps(pod: Raw) -> set[str]:
    """ConfigMaps that the pod cannot start without: those of volumes that some container mounts, and of variables.

    Those that KAI's binder makes for shares of GPUs do not count (docs/kai-behaviour.md#binding).
    """
    spec = pod.get("spec")
    containers = [c for kind in ("containers", "initContainers", "ephemeralContainers") for c in spec.items(kind)]
    mounted = {mount.text("name") for container in containers for mount in container.items("volumeMounts")}
    references = []
    for volume in spec.items("volumes"):
        if volume.text("name") in mounted:
            references.append(volume.get("configMap"))
            references += [source.get("configMap") for source in volume.items("projected.sources")]
    for container in containers:
        references += [source.get("configMapRef") for source in container.items("envFrom")]
        references += [variable.get("valueFrom.configMapKeyRef") for variable in container.items("env")]
    made = pod.strings("metadata.annotations").get(names.SHARED_GPU_MAP, "")
    named = {reference.required("name") for reference in references if reference and not reference.flag("optional")}
    return {name for name in named - {_ROOT_CERTIFICATES} if not made or not name.startswith(made)}
