"""The storage that CSI drivers report counts for us as for KAI: one pod of a running KAI's snapshot wants a volume."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kai_solver.engine import Engine
from kai_solver.instances_io import load_instance
from kai_solver.modelfiles import load_model
from tests.kai.oracle import Oracle

SNAPSHOT = Path(__file__).parents[2] / "instances" / "kai-snapshots" / "before-reclaim.zip"
SPACE, POD = "serving", "embed-0"
STORAGE = "storage.k8s.io/v1"
NODES = ("gpu-11", "cpu-0", "gpu-00", "gpu-05")
"""Two with free GPUs, one without GPUs, and one on which GPUs become free later."""


def wanting(reports: bool, stores: list[dict[str, Any]]) -> bytes:
    """The snapshot, in which the pod wants 5 GiB of a driver, which may report what it has."""
    snapshot = json.loads(zipfile.ZipFile(SNAPSHOT).read("snapshot.json"))
    raw = snapshot["rawObjects"]
    (pod,) = (one for one in raw["pods"] if one["metadata"]["name"] == POD)
    pod["spec"].setdefault("volumes", []).append({"name": "v", "persistentVolumeClaim": {"claimName": "c"}})
    raw["bindRequests"] = [one for one in raw["bindRequests"] if one["spec"]["podName"] != POD]
    asked = {"storageClassName": "local", "resources": {"requests": {"storage": "5Gi"}}}
    claim = {"spec": {**asked, "accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Pending"}}
    raw["persistentVolumeClaims"] = [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": SPACE, "name": "c"}, **claim}
    ]
    kind = {"provisioner": "csi.example", "volumeBindingMode": "WaitForFirstConsumer"}
    raw["storageClasses"] = [{"apiVersion": STORAGE, "kind": "StorageClass", "metadata": {"name": "local"}, **kind}]
    driver = {"metadata": {"name": "csi.example"}, "spec": {"storageCapacity": reports}}
    raw["csiDrivers"] = [{"apiVersion": STORAGE, "kind": "CSIDriver", **driver}]
    raw["csiStorageCapacities"] = [
        {
            "apiVersion": STORAGE,
            "kind": "CSIStorageCapacity",
            "metadata": {"namespace": "csi", "name": f"store-{number}"},
            "storageClassName": "local",
            **store,
        }
        for number, store in enumerate(stores)
    ]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("snapshot.json", json.dumps(snapshot))
    return archive.getvalue()


def on(node: str, **more: str) -> dict[str, Any]:
    return {"nodeTopology": {"matchLabels": {"kubernetes.io/hostname": node}}, **more}


@pytest.mark.parametrize(
    ("reports", "stores"),
    [
        pytest.param(False, [], id="no reports"),
        pytest.param(True, [], id="nothing"),
        pytest.param(True, [on(node, capacity="4Gi") for node in NODES], id="too little"),
        pytest.param(True, [on(n, capacity="9Gi", maximumVolumeSize="4Gi") for n in NODES], id="volumes too small"),
        pytest.param(True, [on(node) for node in NODES], id="no amount"),
        pytest.param(True, [{"capacity": "9Gi"}], id="nowhere"),
        pytest.param(True, [{"capacity": "9Gi", "nodeTopology": {}}], id="everywhere"),
        *(pytest.param(True, [on(node, capacity="5Gi")], id=node) for node in NODES),
    ],
)
def test_reported_storage_counts_as_with_kai(
    kai: Oracle, engine: Engine, tmp_path: Path, reports: bool, stores: list[dict[str, Any]]
) -> None:
    archive, key = wanting(reports, stores), f"{SPACE}/{POD}"
    (tmp_path / "snapshot.zip").write_bytes(archive)
    plan = engine.cycle(load_instance(tmp_path / "snapshot.zip").snapshot, budget_s=5.0, memo=None)
    assert next((bind.node for bind in plan.binds if bind.pod == key), "") == kai.decide(archive)[key].node


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(load_model("greedy-only")) as found:
        yield found
