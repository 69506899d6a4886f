"""The chain of owners of a pod, as far as the objects are there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.objects import Object, group_of
from kai_solver.kubeobjects.raw import Raw

_LONGEST_CHAIN = 8

_SPEAKING = frozenset(
    {
        ("argoproj.io", "Workflow"),
        ("trainer.kubeflow.org", "TrainJob"),
        ("nvidia.com", "DynamoGraphDeployment"),
        ("run.ai", "InferenceWorkload"),
        ("run.ai", "TrainingWorkload"),
        ("run.ai", "DistributedWorkload"),
        ("run.ai", "InteractiveWorkload"),
        ("run.ai", "DistributedInferenceWorkload"),
    }
)
"""(group, kind) of those that only make what is grouped by; what they state counts for it (1.7, skipTopOwner)."""

_SILENT = frozenset(
    {("batch", "CronJob"), ("serving.knative.dev", "Service"), ("serving.knative.dev", "Configuration")}
)
"""The same, and what they state does not count: their Jobs and Revisions state it themselves.

Source: docs/kai-behaviour.md#kinds.
"""

OWNER_KINDS = (
    _SPEAKING
    | _SILENT
    | {
        ("batch", "Job"),
        ("apps", "ReplicaSet"),
        ("apps", "Deployment"),
        ("apps", "StatefulSet"),
        ("jobset.x-k8s.io", "JobSet"),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        ("kubeflow.org", "PyTorchJob"),
        ("kubeflow.org", "TFJob"),
        ("kubeflow.org", "MPIJob"),
        ("kubeflow.org", "XGBoostJob"),
        ("kubeflow.org", "JAXJob"),
        ("kubeflow.org", "Notebook"),
        ("kubeflow.org", "ScheduledWorkflow"),
        ("ray.io", "RayCluster"),
        ("ray.io", "RayJob"),
        ("ray.io", "RayService"),
        ("serving.knative.dev", "Revision"),
        ("grove.io", "PodGangSet"),
        ("grove.io", "PodCliqueSet"),
        ("grove.io", "PodCliqueScalingGroup"),
        ("grove.io", "PodClique"),
        ("scheduler.grove.io", "PodGang"),
        ("run.ai", "RunaiJob"),
        ("amlarc.azureml.com", "AmlJob"),
        ("egx.nvidia.io", "SPOTRequest"),
        ("machinelearning.seldon.io", "SeldonDeployment"),
        ("kubevirt.io", "VirtualMachine"),
        ("kubevirt.io", "VirtualMachineInstance"),
        ("workspace.devfile.io", "DevWorkspace"),
        ("tekton.dev", "PipelineRun"),
        ("tekton.dev", "TaskRun"),
    }
)
"""(group, kind) of all that KAI's pod grouper knows, and of what stands between those and pods.

Source: docs/kai-behaviour.md#kinds.
"""

_NO_OWNERS = frozenset({"Node"})
"""Static pods are owned by their node, which makes no workload of them."""

POD_GANG = "grove.io/podgang"
"""Label of Grove's pods: the PodGang that says what they are together."""


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

    def is_a(self, group: str, *kinds: str) -> bool:
        """Whether it is one of these kinds of an API group, in whatever version."""
        return self.group == group and self.kind in kinds

    @property
    def is_strange(self) -> bool:
        """Whether nothing is known of it but a reference to it."""
        return not self.raw and (self.group, self.kind) not in OWNER_KINDS


@dataclass(frozen=True, slots=True)
class Chain:
    """The owners of a pod.

    Attributes
    ----------
    owners
        Nearest first, ending with the one to group by; empty for a plain pod.
    above
        Owners of that one, not grouped by, nearest first; what they state counts where it states nothing.
    found
        Every object that was looked for on the way, and what there was (None: nothing): while that is the same, so is
        the chain.
    """

    owners: tuple[Owner, ...] = ()
    above: tuple[Owner, ...] = ()
    found: tuple[tuple["Wanted", Object | None], ...] = ()


Wanted = tuple[str, str, str, str]
"""Kind, namespace, name and uid of an object that is looked for."""


@dataclass(slots=True)
class OwnerIndex:
    """Finds objects by uid, else by kind, namespace and name (manifests have no uid)."""

    _by_uid: dict[str, Object] = field(default_factory=dict)
    _by_name: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    _pods: tuple[Object, ...] = ()

    @classmethod
    def of(cls, objects: Iterable[Object], pods: tuple[Object, ...] = ()) -> "OwnerIndex":
        """Index every object that has a name; broken ones cannot own anything.

        ``pods`` may own pods, too (workers of a LeaderWorkerSet, executors of Spark), which few do: they are looked
        through when the first one is asked for.
        """
        index = cls(_pods=pods)
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

    def chain(self, pod: Raw) -> Chain:
        """Owners of a pod.

        As in KAI, an owner of which nothing can be known does not count where it made something that is known.
        """
        namespace = pod.text("metadata.namespace") or "default"
        chain: list[Owner] = []
        found: list[tuple[Wanted, Object | None]] = []
        here = pod
        while len(chain) < _LONGEST_CHAIN:
            owner = self._controller(here, namespace, found)
            if owner is None or owner.kind in _NO_OWNERS:
                break
            chain.append(owner)
            here = owner.raw
        while len(chain) > 1 and chain[-1].is_strange:
            chain.pop()
        return self._grouped_by(chain, pod, namespace, found)

    def still(self, chain: Chain) -> bool:
        """Whether a chain of an earlier index is what `chain` would give for the same pod."""
        return all(self._find(wanted) is value for wanted, value in chain.found)

    def _grouped_by(
        self, chain: list[Owner], pod: Raw, namespace: str, found: list[tuple[Wanted, Object | None]]
    ) -> Chain:
        """The chain up to the one to group by."""
        above: list[Owner] = []
        while chain:
            kind = chain[-1].group, chain[-1].kind
            if kind in _SPEAKING:
                above.insert(0, chain.pop())
            elif kind in _SILENT and len(chain) > 1:
                chain.pop()
            else:
                break
        gang = pod.strings("metadata.labels").get(POD_GANG, "") if chain and chain[-1].group == "grove.io" else ""
        if gang:
            wanted = ("PodGang", namespace, gang, "")
            found.append((wanted, self._find(wanted)))
            raw = Raw(found[-1][1])
            chain.append(Owner("scheduler.grove.io", "PodGang", gang, raw.text("metadata.uid"), raw))
        return Chain(tuple(chain), tuple(above), tuple(found))

    def _controller(self, raw: Raw, namespace: str, found: list[tuple[Wanted, Object | None]]) -> Owner | None:
        """The owner of an object; what was looked for is added to ``found``."""
        references = raw.items("metadata.ownerReferences")
        if not references:
            return None
        reference = next((r for r in references if r.flag("controller")), references[0])
        kind, name, uid = reference.required("kind"), reference.required("name"), reference.text("uid")
        wanted = (kind, namespace, name, uid)
        value = self._find(wanted)
        found.append((wanted, value))
        return Owner(group_of(reference.text("apiVersion")), kind, name, uid, Raw(value))

    def _find(self, wanted: Wanted) -> Object | None:
        """By its uid, else by its name."""
        kind, namespace, name, uid = wanted
        value = self._pod(uid) if kind == "Pod" else self._by_uid.get(uid) if uid else None
        if value is not None and not _may_own(value, namespace):
            value = None
        return value or self._by_name.get((kind, namespace, name))

    def _pod(self, uid: str) -> Object | None:
        """A pod by its uid, as far as it can be read."""
        if self._pods:
            found = ((value.get("metadata"), value) for value in self._pods if isinstance(value, dict))
            self._by_uid |= {meta["uid"]: value for meta, value in found if isinstance(meta, dict) and _has_uid(meta)}
            self._pods = ()
        raw = Raw(self._by_uid.get(uid))
        try:
            raw.strings("metadata.labels")
            raw.strings("metadata.annotations")
        except InputError:
            return None
        return self._by_uid.get(uid)


def top_owner(annotations: Mapping[str, str]) -> dict[str, str]:
    """Fields of the annotation ``top-owner-metadata``, a small YAML mapping of plain lines."""
    fields = (line.partition(":") for line in annotations.get(names.TOP_OWNER, "").splitlines())
    return {key.strip(): value.strip().strip("\"'") for key, _, value in fields}


def _may_own(value: Object, namespace: str) -> bool:
    """Whether an object may own others of the namespace: it is in the same one, or in none.

    The API server accepts references to owners of any uid. An owner of another namespace is ignored (Kubernetes'
    garbage collector reports ``OwnerRefInvalidNamespace``).
    """
    stated = value["metadata"].get("namespace")
    return not stated or stated == namespace


def _has_uid(metadata: Mapping[str, Any]) -> bool:
    return isinstance(metadata.get("uid"), str) and bool(metadata["uid"])
