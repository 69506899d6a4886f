"""The Dask cluster of deploy/dask: objects that Kubernetes knows, pods that are restricted, options that Dask has."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker

from tests.deploy.conftest import ROOT, model_of

FILE = ROOT / "deploy" / "dask" / "cluster.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text()))


def pods() -> dict[str, dict[str, Any]]:
    """Specs of pods, by the name of their container."""
    found = [value["spec"]["template"]["spec"] for value in OBJECTS if value["kind"] == "Deployment"]
    return {spec["containers"][0]["name"]: spec for spec in found}


def one(kind: str) -> dict[str, Any]:
    (found,) = [value for value in OBJECTS if value["kind"] == kind]
    return found


def test_kubernetes_knows_every_field() -> None:
    for value in OBJECTS:
        assert model_of(value).model_validate(value).model_fields_set


@pytest.mark.slow
def test_kubeconform_agrees(kubeconform: Path, tmp_path: Path) -> None:
    for value in OBJECTS:
        schema = model_of(value).model_json_schema(by_alias=True)
        (tmp_path / f"{value['kind'].lower()}.json").write_text(json.dumps(schema))
    command = [str(kubeconform), "-strict", "-summary", "-schema-location", str(tmp_path / "{{.ResourceKind}}.json")]
    done = subprocess.run([*command, str(FILE)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    valid = re.search(r"Valid: (\d+)", done.stdout)
    assert valid is not None
    assert int(valid[1]) == len(OBJECTS)


def test_pods_meet_the_restricted_standard() -> None:
    for spec in pods().values():
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert all("emptyDir" in volume for volume in spec["volumes"])
        (container,) = spec["containers"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_dask_has_the_options() -> None:
    """Its own command line reads them, and refuses others."""
    found = {name: spec["containers"][0] for name, spec in pods().items()}
    assert {name: container["command"] for name, container in found.items()} == {
        name: ["dask", name] for name in ("scheduler", "worker")
    }
    scheduler = dask_scheduler.main.make_context("scheduler", list(found["scheduler"]["args"])).params
    worker = dask_worker.main.make_context("worker", list(found["worker"]["args"])).params
    assert scheduler["port"] == "8786"
    assert (worker["scheduler"], worker["nthreads"]) == ("tcp://kai-solver-dask-scheduler:8786", 1)


def test_workers_find_the_scheduler_by_its_service() -> None:
    service = one("Service")
    (port,) = service["spec"]["ports"]
    assert f"tcp://{service['metadata']['name']}:{port['port']}" in pods()["worker"]["containers"][0]["args"]
    (scheduler,) = [value for value in OBJECTS if value["metadata"]["name"] == "kai-solver-dask-scheduler"][:1]
    labels = scheduler["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    (opened,) = pods()["scheduler"]["containers"][0]["ports"]
    assert (opened["name"], opened["containerPort"]) == (port["targetPort"], port["port"])


def test_the_network_policy_is_for_all_pods_and_no_others_reach_them() -> None:
    policy = one("NetworkPolicy")["spec"]
    (rule,) = policy["ingress"]
    (peer,) = rule["from"]
    for value in OBJECTS:
        if value["kind"] == "Deployment":
            labels = value["spec"]["template"]["metadata"]["labels"]
            assert policy["podSelector"]["matchLabels"].items() <= labels.items()
            assert peer["podSelector"]["matchLabels"].items() <= labels.items()
