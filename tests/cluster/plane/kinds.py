"""Workloads of every kind that is grouped, and their pods as the kinds' own controllers would make them.

Kubernetes' own kinds have their real controllers here. Of the others there are the CRDs, real but for their schemas,
and this file does what their operators do: it makes the pods, with their owners and labels.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.resources import PODS, Resource
from tests.cluster.plane.checker import GANG, LEAST
from tests.cluster.plane.cluster import CRDS, SPACE, ensure_gone, pod
from tests.cluster.plane.plane import Plane, wait_for

QUEUE = "research"
QUEUED = {"kai.scheduler/queue": QUEUE}
Step = Callable[[], object]

CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
LATE = ("kubeflow.org", "JAXJob")
"""Its CRD is installed while the controller runs."""

THIRD_PARTY: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("kubeflow.org", "PyTorchJob", ("v1",)),
    ("kubeflow.org", "TFJob", ("v1",)),
    ("kubeflow.org", "XGBoostJob", ("v1",)),
    ("kubeflow.org", "JAXJob", ("v1",)),
    ("kubeflow.org", "MPIJob", ("v2beta1", "v1")),
    ("kubeflow.org", "Notebook", ("v1beta1",)),
    ("trainer.kubeflow.org", "TrainJob", ("v1alpha1",)),
    ("jobset.x-k8s.io", "JobSet", ("v1alpha2",)),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", ("v1",)),
    ("ray.io", "RayCluster", ("v1",)),
    ("ray.io", "RayJob", ("v1",)),
    ("ray.io", "RayService", ("v1",)),
    ("serving.knative.dev", "Service", ("v1",)),
    ("serving.knative.dev", "Configuration", ("v1",)),
    ("serving.knative.dev", "Revision", ("v1",)),
    ("argoproj.io", "Workflow", ("v1alpha1",)),
    ("grove.io", "PodCliqueSet", ("v1alpha1",)),
    ("grove.io", "PodClique", ("v1alpha1",)),
    ("scheduler.grove.io", "PodGang", ("v1alpha1",)),
    ("run.ai", "RunaiJob", ("v1",)),
    ("amlarc.azureml.com", "AmlJob", ("v1alpha1",)),
    ("egx.nvidia.io", "SPOTRequest", ("v1",)),
    ("nvidia.com", "DynamoGraphDeployment", ("v1alpha1",)),
    ("example.org", "Mine", ("v1",)),
)
"""Group, kind and versions, the one that is stored first."""


def served(group: str, version: str, kind: str) -> Resource:
    """Where objects of a third-party kind are kept."""
    return Resource(group, version, f"{kind.lower()}s", kind)


def crd(group: str, kind: str, versions: tuple[str, ...]) -> Object:
    """Takes whatever is written."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": version, "served": True, "storage": version == versions[0], "schema": schema}
                for version in versions
            ],
        },
    }


@dataclass(slots=True)
class Maker:
    """Makes the objects of one workload; ``least``: of the pods that it makes itself, for the checker."""

    plane: Plane
    name: str
    least: int = 2
    made: list[tuple[Resource, str]] = field(default_factory=list)

    def install(self, group: str, kind: str) -> None:
        """A CRD, as far as it is not there, until it is served."""
        (versions,) = [found for named, one, found in THIRD_PARTY if (named, one) == (group, kind)]
        try:
            self.plane.api.create(CRDS, "", crd(group, kind, versions))
        except ApiError as error:
            if not error.is_conflict:
                raise
        wait_for(
            f"{kind} is served",
            lambda: all(served(group, v, kind) in self.plane.api.served(f"{group}/{v}") for v in versions),
        )

    def thing(
        self,
        api_version: str,
        kind: str,
        spec: object = None,
        by: Object | None = None,
        name: str = "",
        **meta: Mapping[str, str],
    ) -> Object:
        """An object of a third-party kind."""
        group, _, version = api_version.rpartition("/")
        return self.one(served(group, version, kind), spec, by, name, **meta)

    def one(
        self, kind: Resource, spec: object = None, by: Object | None = None, name: str = "", **meta: Mapping[str, str]
    ) -> Object:
        """An object that another one made."""
        metadata: Object = {"name": name or self.name, **meta} | ({"ownerReferences": [reference(by)]} if by else {})
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec or {}}
        self.made.append((kind, metadata["name"]))
        return self.plane.api.create(kind, SPACE, body)

    def pod(
        self,
        suffix: str,
        by: Object | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Step:
        """A step that makes a pod of one GPU; its labels' prefixes may be nicknames."""
        found = self.template(labelled(labels or {}), annotations)
        found["metadata"]["name"] = f"{self.name}-{suffix}"
        if by is not None:
            found["metadata"]["ownerReferences"] = [reference(by)]
        return lambda: self.plane.api.create(PODS, SPACE, found)

    def template(self, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None) -> Object:
        """A pod that states no queue of its own."""
        gang = {GANG: self.name, LEAST: str(self.least)}
        found = pod("", QUEUE, labels={**gang, **(labels or {})}, annotations=annotations)
        if "kai.scheduler/queue" not in (labels or {}):
            del found["metadata"]["labels"]["kai.scheduler/queue"]
        return found

    def replicated(self, count: int, labels: Mapping[str, str] | None = None, *, always: bool = True) -> Object:
        """The spec of what makes pods alike."""
        mine = {"app": self.name, **(labels or {})}
        template = self.template(mine)
        template["spec"]["restartPolicy"] = "Always" if always else "Never"
        return {"replicas": count, "selector": {"matchLabels": mine}, "template": template}

    def scaled(self, kind: Resource, count: int, name: str = "") -> Step:
        """A step that has more pods made."""
        return lambda: self.plane.api.patch(kind, SPACE, name or self.name, {"spec": {"replicas": count}})

    def bound(self) -> int:
        """How many of its pods have a place."""
        pods = self.plane.api.page(PODS, namespace=SPACE, limit=10_000).items
        mine = (one for one in pods if (one["metadata"].get("labels") or {}).get(GANG) == self.name)
        return sum(bool(one["spec"].get("nodeName")) for one in mine)

    def remove(self) -> None:
        """What it made, the owners first."""
        for kind, name in self.made:
            ensure_gone(self.plane, kind, SPACE, name)


def labelled(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels with their whole prefixes."""
    parts = ((key.rpartition("/"), value) for key, value in labels.items())
    return {f"{_PREFIXES.get(prefix, prefix)}/{name}".lstrip("/"): value for (prefix, _, name), value in parts}


_PREFIXES = {
    "kf": "training.kubeflow.org",
    "jobset": "jobset.sigs.k8s.io",
    "lws": "leaderworkerset.sigs.k8s.io",
    "ray": "ray.io",
    "knative": "serving.knative.dev",
    "grove": "grove.io",
    "job": "kai.nvidia.com",
    "kai": "kai.scheduler",
}


def reference(owner: Object) -> Object:
    """As a controller refers to what it works for."""
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    return named | {key: owner["metadata"][key] for key in ("name", "uid")}


def uid_of(make: Maker, name: str) -> Object:
    """A pod that somebody else makes, as soon as it is there."""

    def is_there() -> bool:
        return any(one["metadata"]["name"] == name for one in make.plane.api.page(PODS, namespace=SPACE).items)

    wait_for(f"pod {name} is there", is_there)
    return {"apiVersion": "v1", "kind": "Pod", **make.plane.api.get(PODS, SPACE, name)}


def steps(*found: Step) -> Iterator[Step]:
    """The last one makes the workload whole."""
    return iter(found)
