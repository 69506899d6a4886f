"""Releases of the chart on the control plane, put there and taken away by helm itself.

kwok's nodes run no containers: what a Deployment's pod would run is a process here, with the settings that the chart
rendered and the token of the account that it made, so that it may do what the chart grants and nothing else.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kai_solver.cluster.resources import CONFIG_MAPS, Resource
from tests.cluster.plane.cluster import Cluster, Replica
from tests.cluster.plane.plane import OURS_RUN, ROOT, Component, Plane, free_ports
from tests.support.gotools import HELM, ToolMissingError, go_tool

CHART = ROOT / "deploy" / "helm" / "kai-solver"
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
QUIET = {"settings.admission.enabled": False, "queues.create": False, "image.repository": "registry.example/kai-solver"}
"""No webhook that the API server would call by a Service, which leads nowhere here; the tests make their own queues."""


def helm_or_skip() -> Path:
    """The pinned helm."""
    try:
        return go_tool(HELM)
    except ToolMissingError as error:
        pytest.skip(f"NOT TESTED with helm: {error}")


@dataclass(slots=True)
class Release:
    """A release in a namespace of its own."""

    plane: Plane
    helm: Path
    space: str
    name: str = "one"
    processes: list[Replica] = field(default_factory=list)

    def run(self, *words: str) -> str:
        """What helm says."""
        command = [str(self.helm), "--kubeconfig", str(self.plane.kubeconfig), "--namespace", self.space, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, verb: str = "install", **values: Any) -> None:
        """Install, or another verb with the same words; values by their dotted name."""
        stated = QUIET | {key.replace("__", "."): value for key, value in values.items()}
        words = [word for key, value in stated.items() for word in ("--set-json", f"{key}={json.dumps(value)}")]
        self.run(verb, self.name, str(CHART), "--create-namespace", *words)

    def uninstall(self) -> None:
        """Take it away; processes are told to end, as the kubelet would."""
        self.run("uninstall", self.name)
        for replica in self.processes:
            replica.component.stop()

    def token(self, account: str = "") -> str:
        """A token of an account in the namespace: by default of the one that the chart made."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        metadata = {"name": account or f"{self.name}-kai-solver"}
        made = self.plane.api.create(ACCOUNTS, self.space, body | {"metadata": metadata}, subresource="token")
        return str(made["status"]["token"])

    def reader(self, name: str) -> str:
        """A token of a new account that the chart's role for readers is bound to."""
        self.plane.api.create(ACCOUNTS, self.space, {"metadata": {"name": name}})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.space}
        group = "rbac.authorization.k8s.io"
        role = {"apiGroup": group, "kind": "ClusterRole", "name": f"{self.space}-{self.name}-kai-solver-read-answers"}
        bindings = Resource(group, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
        self.plane.api.create(bindings, "", {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
        return self.token(name)

    def settings(self) -> dict[str, str]:
        """Text of the settings file of each shard, by the name of its Deployment."""
        found = self.plane.api.page(CONFIG_MAPS, namespace=self.space).items
        return {
            str(one["metadata"]["name"]): one["data"]["settings.yaml"]
            for one in found
            if "settings.yaml" in one["data"]
        }

    def replica(self, cluster: Cluster, shard: str = "") -> Replica:
        """The process of a shard's Deployment, not started yet; it ends with the cluster."""
        name = shard or f"{self.name}-kai-solver"
        kubeconfig = self.plane.write_kubeconfig(f"{self.space}-{name}", self.token())
        file = cluster.folder / f"{self.space}-{name}.yaml"
        file.write_text(self.settings()[name])
        health, metrics, answers = free_ports(3)
        env = {
            "PYTHONPATH": str(ROOT),
            "KAI_SOLVER_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}",
            "KAI_SOLVER_ANSWERS_BIND_ADDRESS": f"127.0.0.1:{answers}",
            "KAI_SOLVER_METRICS_BIND_ADDRESS": f"127.0.0.1:{metrics}",
        }
        words = [*OURS_RUN, "controller", "--kubeconfig", str(kubeconfig), "--config", str(file)]
        component = Component(f"{self.space}-{name}", words, cluster.folder, env, self.plane.warm)
        found = Replica(component, f"127.0.0.1:{health}", f"127.0.0.1:{answers}")
        cluster.replicas.append(found)
        self.processes.append(found)
        return found


@contextmanager
def released(plane: Plane, space: str, **values: Any) -> Iterator[Release]:
    """A release that is taken away in the end."""
    release = Release(plane, helm_or_skip(), space)
    release.install(**values)
    try:
        yield release
    finally:
        if release.name in release.run("list", "--short"):
            release.uninstall()


def forbidden(replica: Replica) -> list[str]:
    """What the API server would not let it do."""
    lines = replica.component.log.read_text().splitlines()
    return [line for line in lines if "403 " in line or "orbidden" in line]  # a timestamp has .403, too
