"""Dask and PostgreSQL of deploy/dask: objects that Kubernetes knows, restricted pods, options that Dask has."""

import copy
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker
from kubernetes import client

from tests.deploy.conftest import ROOT, model_of

FILE = ROOT / "deploy" / "dask" / "cluster.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text()))
DATABASE: list[dict[str, Any]] = list(yaml.safe_load_all((FILE.parent / "postgresql.yaml").read_text()))
OPERATED: dict[str, Any] = yaml.safe_load((FILE.parent / "operator.yaml").read_text())


def pods() -> dict[str, dict[str, Any]]:
    """Specs of pods, by the name of their container."""
    found = [value["spec"]["template"]["spec"] for value in OBJECTS if value["kind"] == "Deployment"]
    return {spec["containers"][0]["name"]: spec for spec in found}


def one(kind: str) -> dict[str, Any]:
    (found,) = [value for value in OBJECTS if value["kind"] == kind]
    return found


def test_kubernetes_knows_every_field() -> None:
    for value in OBJECTS + DATABASE:
        assert model_of(value).model_validate(value).model_fields_set


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cluster.yaml", "postgresql.yaml"])
def test_kubeconform_agrees(kubeconform: Path, tmp_path: Path, name: str) -> None:
    objects = OBJECTS if name == FILE.name else DATABASE
    for value in objects:
        schema = model_of(value).model_json_schema(by_alias=True)
        (tmp_path / f"{value['kind'].lower()}.json").write_text(json.dumps(schema))
    command = [str(kubeconform), "-strict", "-summary", "-schema-location", str(tmp_path / "{{.ResourceKind}}.json")]
    done = subprocess.run([*command, str(FILE.parent / name)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    valid = re.search(r"Valid: (\d+)", done.stdout)
    assert valid is not None
    assert int(valid[1]) == len(objects)


def test_pods_meet_the_restricted_standard() -> None:
    (database,) = [value["spec"]["template"]["spec"] for value in DATABASE if value["kind"] == "StatefulSet"]
    for spec in (*pods().values(), database):
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


def test_the_dask_operator_makes_the_same_pods() -> None:
    """Its resource definition asks for these keys: a pod's spec each, and that of the scheduler's Service."""
    assert (OPERATED["apiVersion"], OPERATED["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    spec = OPERATED["spec"]
    assert set(spec) == {"scheduler", "worker"}
    assert set(spec["scheduler"]) == {"spec", "service"}
    assert set(spec["worker"]) == {"replicas", "spec"}
    assert client.V1ServiceSpec.model_validate(spec["scheduler"]["service"]).model_fields_set
    for role in ("scheduler", "worker"):
        assert client.V1PodSpec.model_validate(spec[role]["spec"]).model_fields_set
        made, plain = (copy.deepcopy(one) for one in (spec[role]["spec"], pods()[role]))
        plain.pop("topologySpreadConstraints", None)  # labels of the operator's pods are its own
        for one in (made, plain):
            for key in ("args", "ports", "readinessProbe", "livenessProbe"):
                one["containers"][0].pop(key, None)
        assert made == plain


def test_the_operator_finds_ports_and_dask_the_options() -> None:
    scheduler, worker = (OPERATED["spec"][role]["spec"]["containers"][0] for role in ("scheduler", "worker"))
    ports = {port["name"]: port["containerPort"] for port in scheduler["ports"]}
    assert ports == {"tcp-comm": 8786, "http-dashboard": 8787}
    service = OPERATED["spec"]["scheduler"]["service"]
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports
    assert service["selector"] == {
        "dask.org/cluster-name": OPERATED["metadata"]["name"],
        "dask.org/component": "scheduler",
    }
    assert dask_scheduler.main.make_context("scheduler", list(scheduler["args"])).params["port"] == "8786"
    given = dask_worker.main.make_context("worker", list(worker["args"])).params
    assert (given["scheduler"], given["nthreads"], given["name"]) == (None, 1, "$(DASK_WORKER_NAME)")


def test_the_database_has_its_service_its_secret_and_no_other_callers() -> None:
    found = {value["kind"]: value for value in DATABASE}
    labels = found["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert found["Service"]["spec"]["selector"].items() <= labels.items()
    assert found["StatefulSet"]["spec"]["serviceName"] == found["Service"]["metadata"]["name"]
    assert found["NetworkPolicy"]["spec"]["ingress"] == []
    assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    (password,) = [one for one in container["env"] if one["name"] == "POSTGRES_PASSWORD"]
    assert password["valueFrom"]["secretKeyRef"] == {"name": "kai-solver-trials", "key": "password"}
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    claims = {claim["metadata"]["name"] for claim in found["StatefulSet"]["spec"]["volumeClaimTemplates"]}
    assert mounts == claims | {volume["name"] for volume in found["StatefulSet"]["spec"]["template"]["spec"]["volumes"]}
