"""Who made a pod: its chain of owners, as far as the objects are there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.objects import Object, group_of
from kai_solver.kubeobjects.raw import Raw

_LONGEST_CHAIN = 8

PASSED_THROUGH = frozenset(
    {
        "CronJob",
        "TrainJob",
        "Workflow",
        "DynamoGraphDeployment",
        "InferenceWorkload",
        "TrainingWorkload",
        "DistributedWorkload",
        "InteractiveWorkload",
        "DistributedInferenceWorkload",
    }
)
"""Kinds that only make other owners, which are the ones to group by (reference 1.7, skipTopOwner)."""

_NO_OWNERS = frozenset({"Node"})
"""Static pods are owned by their node, which makes no workload of them."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner as a pod refers to it; ``raw`` is empty where the object itself is not in the input."""

    group: str
    kind: str
    name: str
    uid: str
    raw: Raw

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the object, none where it is not in the input."""
        return self.raw.strings("metadata.labels")

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations of the object, none where it is not in the input."""
        return self.raw.strings("metadata.annotations")


@dataclass(slots=True)
class OwnerIndex:
    """Finds objects by uid, else by kind, namespace and name (manifests have no uid)."""

    _by_uid: dict[str, Object] = field(default_factory=dict)
    _by_name: dict[tuple[str, str, str], Object] = field(default_factory=dict)

    @classmethod
    def of(cls, objects: Iterable[Object]) -> "OwnerIndex":
        """Index every object that has a name; broken ones cannot own anything."""
        index = cls()
        for value in objects:
            raw = Raw(value)
            try:
                namespace = raw.text("metadata.namespace") or "default"
                name, uid = (raw.text("kind"), namespace, raw.required("metadata.name")), raw.text("metadata.uid")
                raw.strings("metadata.labels")
                raw.strings("metadata.annotations")
            except InputError:
                continue
            index._by_name.setdefault(name, value)
            if uid:
                index._by_uid.setdefault(uid, value)
        return index

    def chain(self, pod: Raw) -> tuple[Owner, ...]:
        """Owners of a pod, nearest first, ending with the one to group by; empty for a plain pod."""
        namespace = pod.text("metadata.namespace") or "default"
        chain: list[Owner] = []
        here = pod
        while len(chain) < _LONGEST_CHAIN:
            owner = self._controller(here, namespace)
            if owner is None or owner.kind in _NO_OWNERS:
                break
            chain.append(owner)
            here = owner.raw
        while len(chain) > 1 and chain[-1].kind in PASSED_THROUGH:
            chain.pop()
        return tuple(chain)

    def _controller(self, raw: Raw, namespace: str) -> Owner | None:
        references = raw.items("metadata.ownerReferences")
        if not references:
            return None
        reference = next((r for r in references if r.flag("controller")), references[0])
        kind, name, uid = reference.required("kind"), reference.required("name"), reference.text("uid")
        value = self._by_uid.get(uid) if uid else None
        value = value or self._by_name.get((kind, namespace, name))
        return Owner(group_of(reference.text("apiVersion")), kind, name, uid, Raw(value))


def top_owner(annotations: Mapping[str, str]) -> dict[str, str]:
    """Fields of the annotation ``top-owner-metadata``, a small YAML mapping of plain lines."""
    fields = (line.partition(":") for line in annotations.get(names.TOP_OWNER, "").splitlines())
    return {key.strip(): value.strip().strip("\"'") for key, _, value in fields}
