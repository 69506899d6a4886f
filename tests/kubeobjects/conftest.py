"""Builders of small Kubernetes objects."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kai_solver.domain import Gang, Pod, Snapshot
from kai_solver.kubeobjects import KubeSettings, RawObjects, objects_from_documents, snapshot_from_objects
from kai_solver.kubeobjects.recall import Recall

Object = dict[str, Any]
DATA = Path(__file__).parent / "data"


def merged(base: Any, more: Any) -> Any:
    """``base`` with ``more`` laid over it, objects key by key."""
    if not isinstance(base, dict) or not isinstance(more, dict):
        return more
    return {**base, **{key: merged(base.get(key), value) for key, value in more.items()}}


@dataclass(frozen=True, slots=True)
class Build:
    """Makes objects that are complete enough to be read; ``more`` is laid over each."""

    now_s: float = 1_000_000.0

    def pod(
        self, name: str = "p", more: Object | None = None, *, gpus: int = 0, cpu: str = "1", **extra: Any
    ) -> Object:
        requests: Object = {"cpu": cpu, "memory": "1Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
        base: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
            "spec": {
                "schedulerName": "kai-scheduler",
                "containers": [{"name": "main", "resources": {"requests": requests}}],
            },
            "status": {"phase": "Pending"},
        }
        for field in ("labels", "annotations"):
            base["metadata"][field] = extra.pop(field, {})
        if "node" in extra:
            base["spec"]["nodeName"] = extra.pop("node")
        if "phase" in extra:
            base["status"]["phase"] = extra.pop("phase")
        if "owner" in extra:
            base["metadata"]["ownerReferences"] = [extra.pop("owner")]
        assert not extra, f"unknown {extra}"
        found: Object = merged(base, more or {})
        return found

    def owner(self, kind: str, name: str = "owner", api: str = "batch/v1", uid: str = "u-owner") -> Object:
        return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}

    def node(self, name: str = "n", more: Object | None = None, *, gpus: int = 8) -> Object:
        base: Object = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {}},
            "spec": {},
            "status": {
                "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        found: Object = merged(base, more or {})
        return found

    def queue(self, name: str = "q", parent: str = "", more: Object | None = None) -> Object:
        amounts = {"quota": 4, "limit": -1, "overQuotaWeight": 1}
        base: Object = {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"parentQueue": parent, "resources": {r: dict(amounts) for r in ("cpu", "memory", "gpu")}},
        }
        found: Object = merged(base, more or {})
        return found

    def pod_group(self, name: str = "pg", spec: Object | None = None, more: Object | None = None) -> Object:
        base: Object = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
            "spec": {"queue": "q", "minMember": 1} if spec is None else spec,
        }
        found: Object = merged(base, more or {})
        return found

    def read(
        self, *objects: Mapping[str, Any], settings: KubeSettings | None = None, recall: Recall | None = None
    ) -> Snapshot:
        """Sort the objects by kind and read them; a node ``n`` is added where there is none."""
        found = list(objects)
        if not any(value.get("kind") == "Node" for value in found):
            found.append(self.node())
        raw = objects_from_documents([("file.yaml", value) for value in found])
        return snapshot_from_objects(raw, now_s=self.now_s, settings=settings, recall=recall)

    def one_pod(self, *objects: Mapping[str, Any], settings: KubeSettings | None = None) -> Pod:
        """The only pod that belongs to a gang."""
        (pod,) = [pod for gang in self.read(*objects, settings=settings).gangs for pod in gang.pods]
        return pod

    def one_gang(self, *objects: Mapping[str, Any], settings: KubeSettings | None = None) -> Gang:
        """The only gang."""
        (gang,) = self.read(*objects, settings=settings).gangs
        return gang

    def texts(self, snapshot: Snapshot, kind: str = "") -> list[str]:
        """Notices as lines."""
        return [f"{n.object}: {n.text}" for n in snapshot.notices if not kind or n.kind == kind]


@pytest.fixture
def build() -> Build:
    return Build()


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture
def as_raw() -> Callable[..., RawObjects]:
    return lambda *objects: objects_from_documents([("file.yaml", value) for value in objects])
