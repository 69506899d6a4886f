"""What is kept of objects: what placement needs, and no literals that may be secret."""

import io
import json
import zipfile
from typing import Any

import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import JOBS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES, Resource
from kai_solver.cluster.trim import trimmed
from kai_solver.kubeobjects import KubeSettings, export_kai_snapshot
from kai_solver.kubeobjects.objects import RawObjects

TORCH = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
RAY = Resource("ray.io", "v1", "rayjobs", "RayJob")
WORKFLOWS = Resource("argoproj.io", "v1alpha1", "workflows", "Workflow")
BY_REFERENCE = {"name": "R", "valueFrom": {"secretKeyRef": {"name": "kept", "key": "k"}}}
LITERAL = "s3cret"
CONTAINER: Object = {
    "name": "c",
    "image": "i",
    "command": ["sh", LITERAL],
    "args": [f"--password={LITERAL}"],
    "env": [{"name": "TOKEN", "value": LITERAL}, BY_REFERENCE],
    "envFrom": [{"configMapRef": {"name": "kept"}}],
    "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": LITERAL}]}},
    "resources": {"limits": {"nvidia.com/gpu": "1"}},
}
KEPT: Object = {
    "name": "c",
    "env": [BY_REFERENCE],
    "envFrom": [{"configMapRef": {"name": "kept"}}],
    "resources": {"limits": {"nvidia.com/gpu": "1"}},
}
CSI = {"driver": "d", "volumeAttributes": {"key": LITERAL}}


def template(container: Object) -> Object:
    labels = {"env": "prod", "args": "a"}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container], "nodeSelector": {"env": "prod"}}}


def made(spec: Object) -> Object:
    return json.loads(json.dumps({"metadata": {"name": "x", "labels": {"env": "prod"}}, "spec": spec}))  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["containers", "initContainers", "ephemeralContainers"])
def test_containers_of_pods_keep_no_literals(kind: str) -> None:
    assert trimmed(PODS, made({kind: [CONTAINER]}))["spec"] == {kind: [KEPT]}


@pytest.mark.parametrize(
    ("resource", "spec", "kept"),
    [
        (JOBS, {"template": template(CONTAINER)}, {"template": template(KEPT)}),
        (
            TORCH,
            {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template(CONTAINER)}}},
            {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template(KEPT)}}},
        ),
        (
            RAY,
            {"entrypoint": LITERAL, "runtimeEnvYAML": LITERAL, "rayClusterSpec": {"workerGroupSpecs": [{"env": {}}]}},
            {"rayClusterSpec": {"workerGroupSpecs": [{}]}},
        ),
        (WORKFLOWS, {"arguments": {"parameters": [{"value": LITERAL}]}, "templates": [{"script": LITERAL}]}, None),
        (JOBS, {"env": [None, {}, "x"], "template": [[{"args": LITERAL}], None, 7]}, None),
        (JOBS, {"volumes": [{"name": "v", "csi": CSI}]}, {"volumes": [{"name": "v", "csi": {"driver": "d"}}]}),
        (PODS, {"volumes": [{"name": "v", "csi": CSI}]}, {"volumes": [{"name": "v", "csi": {"driver": "d"}}]}),
        (PERSISTENT_VOLUMES, {"csi": CSI, "mountOptions": [LITERAL]}, {"csi": {"driver": "d"}}),
        (PERSISTENT_VOLUMES, {"flexVolume": {"options": {"a": LITERAL}}}, {"flexVolume": {}}),
    ],
)
def test_workloads_and_volumes_keep_no_literals(resource: Resource, spec: Object, kept: Object | None) -> None:
    found = trimmed(resource, made(spec))
    assert found["metadata"] == {"name": "x", "labels": {"env": "prod"}}
    assert LITERAL not in json.dumps(found)
    assert kept is None or found["spec"] == kept


def test_storage_classes_keep_no_parameters() -> None:
    value = {"metadata": {"name": "s"}, "provisioner": "p", "parameters": {"k": LITERAL}, "mountOptions": [LITERAL]}
    assert trimmed(STORAGE_CLASSES, value) == {"metadata": {"name": "s"}, "provisioner": "p"}


def test_a_snapshot_has_no_literals() -> None:
    def objects(resource: Resource, spec: Object) -> tuple[Any, ...]:
        return (trimmed(resource, made(spec)),)

    raw = RawObjects(
        pods=objects(PODS, {"containers": [CONTAINER], "ephemeralContainers": [CONTAINER]}),
        other=objects(JOBS, {"template": template(CONTAINER)}),
        persistent_volumes=objects(PERSISTENT_VOLUMES, {"csi": CSI}),
    )
    archive = zipfile.ZipFile(io.BytesIO(export_kai_snapshot(raw, KubeSettings())))
    text = archive.read("snapshot.json").decode()
    assert "kept" in text
    assert LITERAL not in text
