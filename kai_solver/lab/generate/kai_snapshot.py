"""A cluster as KAI's ``/get-snapshot`` gives it: objects with all that an API server keeps and no scheduler reads.

What is added is what `instances/kai-snapshots` has on its objects: states and conditions of pods and nodes with their
times, labels of GPU feature discovery, managed fields of nodes. It is the same for the same snapshot.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kai_solver.domain import Snapshot
from kai_solver.kubeobjects import KubeSettings, export_kai_snapshot, objects_from_snapshot
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.raw import format_time

_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_POD_CONDITIONS = ("PodBound", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_NODE_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_DISCOVERED = {
    "nvidia.com/cuda.driver-version.full": "550.90.07",
    "nvidia.com/cuda.driver-version.major": "550",
    "nvidia.com/cuda.runtime-version.full": "12.4",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.deploy.container-toolkit": "true",
    "nvidia.com/gpu.deploy.dcgm": "true",
    "nvidia.com/gpu.deploy.dcgm-exporter": "true",
    "nvidia.com/gpu.deploy.device-plugin": "true",
    "nvidia.com/gpu.deploy.driver": "true",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.machine": "DGXH100",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/mig.capable": "true",
    "feature.node.kubernetes.io/cpu-hardware_multithreading": "true",
    "feature.node.kubernetes.io/kernel-version.full": "5.15.0-1053-nvidia",
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/rdma.capable": "true",
}
_ENVIRONMENT = ("MASTER_ADDR", "MASTER_PORT", "NCCL_DEBUG", "NCCL_IB_HCA", "OMP_NUM_THREADS", "WANDB_PROJECT")


def kai_snapshot(snapshot: Snapshot) -> bytes:
    """The zip of ``snapshot``: 4 KB of JSON for a pod, 6 KB for a node, as in clusters."""
    settings = KubeSettings(policy=snapshot.policy)
    objects = objects_from_snapshot(snapshot, settings)
    now = format_time(snapshot.now_s)
    return export_kai_snapshot(
        replace(
            objects,
            pods=tuple(_pod(pod, number, now) for number, pod in enumerate(objects.pods)),
            nodes=tuple(_node(node, now) for node in objects.nodes),
        ),
        settings,
    )


def _pod(pod: Object, number: int, now: str) -> Object:
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    labels = {"app": metadata["name"].rpartition("-")[0], "controller-uid": f"{number:032x}", "job-name": "train"}
    runs = status["phase"] == "Running"
    reached = _POD_CONDITIONS if runs else _POD_CONDITIONS[-1:]
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {
        **pod,
        "metadata": metadata
        | {
            "generateName": f"{labels['app']}-",
            "resourceVersion": str(1_000_000 + number),
            "labels": labels | metadata["labels"],
            "managedFields": [
                _managed("kube-controller-manager", now, {"f:metadata": _fields(labels), "f:spec": _fields(spec)}),
                _managed("kubelet", now, {"f:status": _fields(dict.fromkeys(reached)) | _fields(status)}),
            ],
        },
        "spec": spec
        | {
            "containers": [_container(container) for container in spec["containers"]],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "restartPolicy": "Never",
            "securityContext": {},
            "serviceAccount": "default",
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                *spec.get("tolerations", ()),
                *(
                    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                    for key in _TOLERATED
                ),
            ],
            "volumes": [*spec.get("volumes", ()), {"name": "shm", "emptyDir": {"medium": "Memory"}}],
        },
        "status": status
        | {
            "conditions": [_condition(kind, "True" if runs else "False", now) for kind in reached],
            **(_running(spec["containers"], address, now) if runs else {}),
        },
    }


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **container,
        "image": "registry.example.com/train:24.10-py3",
        "imagePullPolicy": "IfNotPresent",
        "command": ["torchrun", "--nnodes", "$(NNODES)", "--nproc-per-node", "8", "train.py"],
        "env": [{"name": name, "value": f"{name.lower()}-value"} for name in _ENVIRONMENT],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": "shm", "mountPath": "/scratch"}],
    }


def _running(containers: list[Mapping[str, Any]], address: str, now: str) -> dict[str, Any]:
    return {
        "hostIP": "10.255.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "containerStatuses": [
            {
                "name": container["name"],
                "state": {"running": {"startedAt": now}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "started": True,
                "image": "registry.example.com/train:24.10-py3",
                "imageID": f"registry.example.com/train@sha256:{'5f' * 32}",
                "containerID": f"containerd://{'a7' * 32}",
            }
            for container in containers
        ],
    }


def _node(node: Object, now: str) -> Object:
    metadata, status = node["metadata"], node["status"]
    conditions = [_condition(kind, "False", now) | {"lastHeartbeatTime": now} for kind in _NODE_CONDITIONS]
    return {
        **node,
        "metadata": metadata
        | {
            "labels": _DISCOVERED | metadata["labels"],
            "managedFields": [
                _managed("nfd-master", now, {"f:metadata": {"f:labels": _fields(_DISCOVERED)}}),
                _managed("kubelet", now, {"f:status": _fields(dict.fromkeys(_NODE_CONDITIONS)) | _fields(status)}),
            ],
        },
        "status": status
        | {
            "conditions": [*status["conditions"], *conditions],
            "images": [{"names": [f"registry.example.com/image-{i}:1"], "sizeBytes": 10**9 + i} for i in range(20)],
            "nodeInfo": {"architecture": "amd64", "kubeletVersion": "v1.31.2", "operatingSystem": "linux"},
        },
    }


def _condition(kind: str, status: str, now: str) -> dict[str, Any]:
    said = f"the state of {kind} is {status}"
    return {"type": kind, "status": status, "lastTransitionTime": now, "reason": f"Is{kind}", "message": said}


def _managed(manager: str, now: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    about = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": now}
    return {**about, "fieldsType": "FieldsV1", "fieldsV1": fields}


def _fields(names: Mapping[str, Any]) -> dict[str, Any]:
    return {".": {}, **{f"f:{name}": {} for name in names}}
