"""What a pod must find before it can start: bound claims, ConfigMaps, and devices by claim."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kai_solver.domain import NodeTerm
from kai_solver.kubeobjects.notices import Notices, namespaced_key, read_each
from kai_solver.kubeobjects.objects import RawObjects
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.selectors import node_terms

_ROOT_CERTIFICATES = "kube-root-ca.crt"
"""A ConfigMap that Kubernetes puts into every namespace, also where an export left it out."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim: the volume it is bound to, else its class."""

    volume: str
    storage_class: str


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims, volumes, classes and ConfigMaps that exist."""

    claims: Mapping[str, Claim]
    volume_terms: Mapping[str, tuple[NodeTerm, ...] | None]
    waiting_classes: frozenset[str]
    config_maps: frozenset[str]

    def of_pod(self, pod: Raw) -> tuple[tuple[tuple[NodeTerm, ...], ...], tuple[str, ...]]:
        """Node affinity of the pod's bound volumes, and in words what keeps it from starting anywhere."""
        namespace = pod.text("metadata.namespace") or "default"
        entries: list[tuple[NodeTerm, ...]] = []
        blocked: list[str] = []
        for name in _claim_names(pod):
            claim = self.claims.get(f"{namespace}/{name}")
            problem = self._claim_problem(name, claim)
            terms = self.volume_terms.get(claim.volume) if claim else None
            if problem:
                blocked.append(problem)
            elif terms is not None:
                entries.append(terms)
        for name in sorted(_config_maps(pod.get("spec")) - {_ROOT_CERTIFICATES}):
            if f"{namespace}/{name}" not in self.config_maps:
                blocked += [f"ConfigMap {namespace}/{name} does not exist. Create it (or export ConfigMaps too)"]
        if pod.items("spec.resourceClaims"):
            blocked.append("asks for devices by resource claim, which kai-solver does not allot yet")
        return tuple(entries), tuple(dict.fromkeys(blocked))

    def _claim_problem(self, name: str, claim: Claim | None) -> str:
        """Why a claim keeps its pod from starting; empty where it does not."""
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found. Create it (or export the claims too)'
        if not claim.volume and claim.storage_class not in self.waiting_classes:
            return f'persistentvolumeclaim "{name}" is not bound to a volume yet'
        if claim.volume and claim.volume not in self.volume_terms:
            return f'persistentvolume "{claim.volume}" of claim "{name}" not found'
        return ""


def read_claims(objects: RawObjects, notices: Notices) -> Claims:
    """Index what pods may need; broken objects are set aside with a notice."""
    classes = read_each("StorageClass", objects.storage_classes, notices, lambda raw: raw.text("volumeBindingMode"))
    maps = read_each("ConfigMap", objects.config_maps, notices, lambda _: True, namespaced_key)
    return Claims(
        claims=read_each("PersistentVolumeClaim", objects.persistent_volume_claims, notices, _claim, namespaced_key),
        volume_terms=_volume_terms(objects, notices),
        waiting_classes=frozenset(name for name, mode in classes.items() if mode == "WaitForFirstConsumer"),
        config_maps=frozenset(maps),
    )


def _claim(raw: Raw) -> Claim:
    return Claim(raw.text("spec.volumeName"), raw.text("spec.storageClassName"))


def _volume_terms(objects: RawObjects, notices: Notices) -> dict[str, tuple[NodeTerm, ...] | None]:
    """Node affinity of every volume; None inside for a volume that any node can mount."""
    found: dict[str, tuple[NodeTerm, ...] | None] = {}

    def read(raw: Raw) -> bool:
        required = raw.get("spec.nodeAffinity.required")
        terms = node_terms(required.get("nodeSelectorTerms")) if required else None
        found.setdefault(raw.required("metadata.name"), terms)
        return True

    read_each("PersistentVolume", objects.persistent_volumes, notices, read)
    return found


def _claim_names(pod: Raw) -> Iterator[str]:
    """Claims that must exist; an ephemeral volume's claim is made by Kubernetes when the pod is."""
    for volume in pod.items("spec.volumes"):
        if volume.get("persistentVolumeClaim"):
            yield volume.required("persistentVolumeClaim.claimName")


def _config_maps(spec: Raw) -> set[str]:
    """ConfigMaps that the pod cannot start without."""
    references = [volume.get("configMap") for volume in spec.items("volumes")]
    for volume in spec.items("volumes"):
        references += [source.get("configMap") for source in volume.items("projected.sources")]
    for container in (*spec.items("containers"), *spec.items("initContainers")):
        references += [source.get("configMapRef") for source in container.items("envFrom")]
        references += [variable.get("valueFrom.configMapKeyRef") for variable in container.items("env")]
    return {reference.required("name") for reference in references if reference and not reference.flag("optional")}
