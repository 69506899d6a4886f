"""Each rule of the rendered chart is needed: without it something that is documented fails, and that is reported."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import urllib3
import yaml
from structlog.testing import capture_logs

from kai_solver.cluster import resources
from kai_solver.cluster.api import Api, ApiError, Object, Page, PatchKind, WatchEvent, meta
from kai_solver.cluster.memory import BUILT_IN, MemoryApi
from kai_solver.cluster.resources import Resource
from kai_solver.controller.admission.review import Asked
from kai_solver.controller.app import Controller
from kai_solver.controller.embedded import Kubelets
from kai_solver.controller.rival import Rival
from kai_solver.controller.settings import ControllerSettings
from kai_solver.kubeobjects.owners import OWNER_KINDS
from tests.cluster.plane.plane import ROOT, free_ports
from tests.controller.replicas import QUICK, cluster_of, pod, until

LIMIT_S = 60.0
SPACE = "kai-solver"
RESERVED = "kai-resource-reservation"
"""Where a second pod has to share a device before the first's reservation is changed."""

SHOWN = {"Authorization": "Bearer operator"}
Rule = tuple[str, str, str, tuple[str, ...], str]
"""Namespace (empty: all), API group, resource with subresource, names (none: all), verb."""


def granted() -> tuple[Rule, ...]:
    """What the rendered chart binds to the controller's account, taken apart."""
    text = (ROOT / "deploy" / "manifests" / "kai-solver.yaml").read_text()
    objects = [one for one in yaml.safe_load_all(text) if one]
    roles = {(one["kind"], one["metadata"]["name"]): one for one in objects if one["kind"] in ("Role", "ClusterRole")}
    account = {"kind": "ServiceAccount", "name": SPACE, "namespace": SPACE}
    found = []
    for binding in objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding") or account not in binding["subjects"]:
            continue
        space = str(binding["metadata"].get("namespace", ""))
        for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]["rules"]:
            names = tuple(rule.get("resourceNames", ()))
            found += [
                (space, group, resource, names, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            ]
    return tuple(dict.fromkeys(found))


@dataclass(slots=True)
class Authorised:
    """`Api` of an account with rights: what they do not allow is forbidden, as RBAC has it."""

    api: MemoryApi
    rules: frozenset[Rule]
    used: set[Rule] = field(default_factory=set)
    denied: list[str] = field(default_factory=list)

    def _check(self, verb: str, kind: Resource, namespace: str, name: str, subresource: str = "") -> None:
        resource = f"{kind.plural}/{subresource}".rstrip("/")
        found = {
            rule
            for rule in self.rules
            if rule[0] in ("", namespace) and rule[1:3] == (kind.group, resource) and rule[4] == verb
            if not rule[3] or name in rule[3]
        }
        self.used |= found
        if not found:
            self.denied.append(f"{verb} {resource}")
            raise ApiError(403, "Forbidden", f"cannot {verb} {resource} in {namespace or 'all namespaces'}")

    def page(
        self, resource: Resource, *, namespace: str = "", limit: int = 500, continue_: str = "", name: str = ""
    ) -> Page:
        self._check("list", resource, namespace, name)
        return self.api.page(resource, namespace=namespace, limit=limit, continue_=continue_, name=name)

    def watch(self, resource: Resource, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        self._check("watch", resource, "", "")
        return self.api.watch(resource, resource_version, timeout_s)

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        self._check("get", resource, namespace, name)
        return self.api.get(resource, namespace, name)

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        self._check("create", resource, namespace, "", subresource)
        return self.api.create(resource, namespace, body, subresource=subresource)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: object,
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
    ) -> Object:
        self._check("patch", resource, namespace, name, subresource)
        return self.api.patch(resource, namespace, name, body, kind=kind, subresource=subresource)

    def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None
    ) -> None:
        self._check("delete", resource, namespace, name)
        self.api.delete(resource, namespace, name, uid=uid, grace_s=grace_s)

    def installed(self) -> frozenset[Resource]:
        return self.api.installed()

    def within(self, limit_s: float) -> Api:
        return self

    def served(self, api_version: str) -> frozenset[Resource]:
        return self.api.served(api_version)

    def hang_up(self) -> None:
        self.api.hang_up()

    def close(self) -> None:
        self.api.close()


def full_cluster() -> MemoryApi:
    """Work of every kind: a workload with an owner, a victim and its reclaimer, parts of GPUs, a volume."""
    api = cluster_of(MemoryApi())
    for group, kind in OWNER_KINDS:
        found = Resource(group, "v1", f"{kind.lower()}s", kind)
        if not any((one.group, one.kind) == (group, kind) for one in BUILT_IN):
            api.install(found)
    api.accounts["operator"] = frozenset({"/explain"})
    amounts = {"quota": 8, "limit": -1, "overQuotaWeight": 1}
    spec = {"resources": dict.fromkeys(("cpu", "memory", "gpu"), amounts)}
    api.create(resources.QUEUES, "", {"metadata": {"name": "owns"}, "spec": spec})
    zero = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    api.patch(resources.QUEUES, "", "q", {"spec": {"resources": dict.fromkeys(("cpu", "memory", "gpu"), zero)}})
    service = {"namespace": SPACE, "name": "kai-solver-admission"}
    hooks = [{"name": "x", "clientConfig": {"service": service, "caBundle": ""}}]
    for configuration in (resources.VALIDATING_WEBHOOKS, resources.MUTATING_WEBHOOKS):
        api.create(configuration, "", {"metadata": {"name": "kai-solver-admission"}, "webhooks": hooks})
    job = api.create(resources.JOBS, "n", {"metadata": {"name": "job"}, "spec": {}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True, "name": "job", "uid": meta(job)["uid"]}
    pod(api, "owned", gpus=5)
    api.patch(resources.PODS, "n", "owned", {"metadata": {"ownerReferences": [owner]}})
    pod(api, "too-big", gpus=9)
    plain(api, "half", queue="owns", annotations={"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "half-devices"})
    injects = {"name": "labelled", "labels": {"kai-solver/inject": "enabled"}}
    api.create(resources.NAMESPACES, "", {"metadata": injects})
    with_devices_and_volumes(api)
    return api


def plain(
    api: MemoryApi, name: str, *, queue: str = "q", annotations: Mapping[str, str] | None = None, **spec: Any
) -> None:
    """A pod without GPUs of its own."""
    metadata = {"name": name, "labels": {"kai.scheduler/queue": queue}, "annotations": dict(annotations or {})}
    body = {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}], **spec}
    api.create(resources.PODS, "n", {"metadata": metadata, "spec": body})


def with_devices_and_volumes(api: MemoryApi) -> None:
    """A pod with a claim of a device, one with a free volume, one with a volume that is made for it."""
    device = {
        "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "a",
        "driver": "d.example.org",
    }
    api.create(
        resources.RESOURCE_SLICES, "", {"metadata": {"name": "s"}, "spec": device | {"devices": [{"name": "d"}]}}
    )
    api.create(resources.DEVICE_CLASSES, "", {"metadata": {"name": "class"}, "spec": {}})
    wanted = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "class"}}]}}
    api.create(resources.RESOURCE_CLAIMS, "n", {"metadata": {"name": "claim"}, "spec": wanted})
    plain(api, "claims", resourceClaims=[{"name": "x", "resourceClaimName": "claim"}])
    for name, provisioner in (("free", "kubernetes.io/no-provisioner"), ("made", "csi.example.org")):
        late = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        api.create(resources.STORAGE_CLASSES, "", {"metadata": {"name": name}} | late)
        spec = {"storageClassName": name, "accessModes": ["ReadWriteOnce"]}
        asked = {"resources": {"requests": {"storage": "1Gi"}}}
        api.create(resources.PERSISTENT_VOLUME_CLAIMS, "n", {"metadata": {"name": name}, "spec": spec | asked})
        plain(api, f"stores-{name}", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])
    volume = {"storageClassName": "free", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    api.create(resources.PERSISTENT_VOLUMES, "", {"metadata": {"name": "volume"}, "spec": volume})


@dataclass(slots=True)
class Run:
    """A replica with these rights on a full cluster."""

    api: MemoryApi
    rights: Authorised
    replica: Controller
    answers: str

    def step(self) -> None:
        """A reclaim begins once the first work runs, and a caller asks why a pod waits."""
        found = {str(meta(one)["name"]): one for one in self.api.page(resources.PODS, limit=1000).items}
        begun = self.api.page(resources.POD_GROUPS).items and found["half"]["spec"].get("nodeName")
        if found.get("owned", {}).get("status", {}).get("phase") == "Running" and begun and "reclaims" not in found:
            pod(self.api, "reclaims", gpus=7)
            labels = {"kai.scheduler/queue": "owns"}
            self.api.patch(resources.PODS, "n", "reclaims", {"metadata": {"labels": labels}})
        for one in self.api.page(resources.PODS, namespace="kai-resource-reservation").items:
            told = {"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": "7"}}}
            self.api.patch(resources.PODS, "kai-resource-reservation", str(meta(one)["name"]), told)
        for one in self.api.page(resources.PERSISTENT_VOLUMES).items:
            if one["spec"].get("claimRef"):
                self._bind_claim("free", "volume")
        made = self.api.get(resources.PERSISTENT_VOLUME_CLAIMS, "n", "made")
        if "volume.kubernetes.io/selected-node" in (meta(made).get("annotations") or {}):
            self._bind_claim("made", "another")
        with suppress(urllib3.exceptions.HTTPError):  # it may not serve yet
            urllib3.request(
                "GET", self.answers, headers={"Authorization": "Bearer operator"}, retries=False, timeout=30
            )

        if self.replica.webhook is not None:
            judge = self.replica.webhook._judge
            for space in ("labelled", "not known yet"):
                part = {"metadata": {"name": "p", "annotations": {"gpu-fraction": "0.5"}}, "spec": {"containers": []}}
                judge.mutate(Asked("u", "pods", "CREATE", space, part))
            named = {"schedulerName": "kai-scheduler", "containers": []}
            typo = {"metadata": {"name": "p", "labels": {"kai.scheduler/queue": "typo"}}, "spec": named}
            judge.validate(Asked("u", "pods", "CREATE", "n", typo))

    def _bind_claim(self, name: str, volume: str) -> None:
        """As the controller of volumes does."""
        kind = resources.PERSISTENT_VOLUME_CLAIMS
        self.api.patch(kind, "n", name, {"spec": {"volumeName": volume}})
        self.api.patch(kind, "n", name, {"status": {"phase": "Bound"}}, subresource="status")


@contextmanager
def running(rules: frozenset[Rule], said: list[Any]) -> Iterator[Run]:
    """A replica that may do this alone, at work on a full cluster."""
    api, (port,) = full_cluster(), free_ports(1)
    rights = Authorised(api, rules)
    admission = {"enabled": True, "bind_address": "127.0.0.1:0"}
    stated = {"admission": admission, "answers_bind_address": f"127.0.0.1:{port}", "sharing": {"image": "agent"}}
    settings = ControllerSettings(**{**QUICK, **stated})
    try:
        Rival(rights, settings).look()
    except ApiError as error:  # the start ends with it
        said.append({"log_level": "error", "event": str(error)})
    replica = Controller(rights, settings)
    threads = [
        threading.Thread(target=replica.run),
        threading.Thread(target=Kubelets(api, 0.05, 0.05).run, args=(replica.stop,)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield Run(api, rights, replica, f"http://127.0.0.1:{port}/explain?pod=too-big")
    finally:
        replica.stop.set()
        replica.lost = True  # nothing to wait for: what is under way may wait for what is forbidden
        for thread in threads:
            thread.join(30)


def is_reported(right: Rule, said: list[Any]) -> bool:
    """Whether a person hears that this is forbidden: a warning or an error in the log."""
    words = f"cannot {right[4]} {right[2]} in"
    return any(entry["log_level"] in ("warning", "error") and words in str(entry) for entry in tuple(said))


def changes() -> list[Rule]:
    """Rights but to list and watch, as far as the cluster above needs them."""
    found = (right for right in granted() if right[4] not in ("list", "watch") and what(right) not in RARE)
    return sorted(right for right in found if right[0] != RESERVED or right[4] == "create")


def what(right: Rule) -> tuple[str, str, str]:
    """Group, resource and verb."""
    return right[1], right[2], right[4]


RARE = {
    ("", "configmaps", "create"),  # containers that read their device from one: tests/cluster/plane/test_sharing.py
    ("", "configmaps", "get"),
    ("", "configmaps", "patch"),
    ("", "events", "get"),  # the same event is told again after ten minutes, or by another leader
    ("", "events", "patch"),
    ("", "persistentvolumes", "get"),
    ("", "pods", "get"),  # an answer was lost
    ("", "pods", "delete"),  # a gang is released
    ("", "secrets", "patch"),  # a certificate, or a key, is renewed
    ("resource.k8s.io", "resourceclaims", "create"),  # extended resources
    ("resource.k8s.io", "resourceclaims", "delete"),
    ("resource.k8s.io", "resourceclaims/binding", "patch"),  # asked for by API servers from 1.36 on
    ("scheduling.run.ai", "podgroups", "get"),  # another client wrote meanwhile
    ("scheduling.run.ai", "podgroups", "patch"),
}
"""What only an accident needs; that the code asks for it is compared in tests/project, and tests/cluster/plane does."""


def unreported(gone: set[Rule], said: list[Any]) -> set[Rule]:
    return {right for right in gone if not is_reported(right, said)}


def unused(now: Run) -> set[Rule]:
    """Rights that it has not used yet, but for those that an accident needs."""
    left = now.rights.rules - now.rights.used
    return {right for right in left if what(right) not in RARE and right[0] != RESERVED}


@pytest.mark.slow
def test_a_replica_uses_every_right_that_is_not_for_accidents() -> None:
    with capture_logs() as said, running(frozenset(granted()), said) as now:
        ends_s = time.monotonic() + LIMIT_S
        while time.monotonic() < ends_s and unused(now):
            now.step()
    assert unused(now) == set()
    assert now.rights.denied == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_every_kind_that_cannot_be_followed_is_reported(verb: str) -> None:
    rules = frozenset(granted())
    gone = {right for right in rules if right[4] == verb and right[2] != "leases"}  # asked for before all others
    assert len(gone) > 30
    with capture_logs() as said, running(rules - gone, said):
        ends_s = time.monotonic() + LIMIT_S
        while time.monotonic() < ends_s and unreported(gone, said):
            time.sleep(0.1)
    assert unreported(gone, said) == set()


@pytest.mark.slow
@pytest.mark.parametrize("right", changes(), ids=lambda right: f"{right[4]} {right[2]} {right[0]}".strip())
def test_without_a_right_something_fails_and_says_so(right: Rule) -> None:
    with capture_logs() as said, running(frozenset(granted()) - {right}, said) as now:
        ends_s = time.monotonic() + LIMIT_S
        while time.monotonic() < ends_s and not is_reported(right, said):
            now.step()
    assert is_reported(right, said)


def test_a_dry_run_makes_nothing() -> None:
    """Not even a Lease, a Secret or an event; reviews of callers store nothing."""
    api, (port,) = full_cluster(), free_ports(1)
    before = api.page(resources.PODS).resource_version
    answers = f"127.0.0.1:{port}"
    admission = {"enabled": True, "bind_address": "127.0.0.1:0"}
    stated = {"dry_run": True, "answers_bind_address": answers, "admission": admission, "sharing": {"image": "agent"}}
    rules = frozenset(right for right in granted() if right[4] in ("list", "watch", "get") or right[2] in REVIEWS)
    rights = Authorised(api, rules)
    replica = Controller(rights, ControllerSettings(**{**QUICK, **stated}))
    thread = threading.Thread(target=replica.run)
    thread.start()

    def explained() -> bool:
        url = f"http://{answers}/explain?pod=too-big"
        return not replica.not_ready() and urllib3.request("GET", url, headers=SHOWN, retries=False).status == 200

    until(explained)
    replica.stop.set()
    thread.join(30)
    assert rights.denied == []
    assert api.page(resources.PODS).resource_version == before


REVIEWS = ("tokenreviews", "subjectaccessreviews")
