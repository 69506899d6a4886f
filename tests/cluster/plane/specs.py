"""What tests of KAI's end-to-end specs share: its cluster of KWOK nodes, and our controller with the chart's settings.

Four workers of eight GPUs with product and memory labels, one worker without GPUs, and for specs of DRA two whose GPUs
only claims can have. One control plane, one controller and one set of webhooks serve all specs of a module. Each spec
has queues and names of its own, and takes everything away at its end.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from kai_solver.cluster.api import ApiError, Object, meta
from kai_solver.cluster.resources import (
    CONFIG_MAPS,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    EVENTS,
    JOBS,
    KAI_CONFIGS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    QUEUES,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SCHEDULING_SHARDS,
    STORAGE_CLASSES,
    TOPOLOGIES,
    Resource,
)
from kai_solver.controller.admission.certificates import make_bundle
from tests.cluster.plane.agents import RESERVED, DeviceAgent, working
from tests.cluster.plane.cluster import (
    ALL,
    CLAIM_TEMPLATES,
    CRDS,
    SPACE,
    Cluster,
    Replica,
    checker_of,
    pod,
    scheduled_condition,
)
from tests.cluster.plane.plane import ROOT, Plane, free_ports, wait_for
from tests.cluster.plane.test_admission import called_by_url, configurations, configured

GPU = "nvidia.com/gpu"
DRIVER = "gpu.nvidia.com"
GPUS = 8
WORKERS = ("worker-0", "worker-1", "worker-2", "worker-3")
CPU_WORKER = "cpu-worker"
DRA_WORKERS = ("dra-0", "dra-1")
MEMORY_MIB = 80_000
LIMIT_S = 45.0
"""How long anything may take on a busy machine; on a quiet one all of it is there within two seconds."""

STAYS_S = 0.4
"""How long what waits is watched, once it was told why."""

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
MAKERS = (CRON_JOBS, DEPLOYMENTS, STATEFUL_SETS, JOBS, REPLICA_SETS)
CLEARED = (
    POD_GROUPS,
    QUEUES,
    TOPOLOGIES,
    RESOURCE_CLAIMS,
    CLAIM_TEMPLATES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    SCHEDULING_SHARDS,
    KAI_CONFIGS,
)
TITLES: dict[str, str] = {}
"""Name of the test by the title of each spec whose behaviour it shows."""

Test = TypeVar("Test", bound=Callable[..., None])


def specs(*titles: str) -> Callable[[Test], Test]:
    """These specs of KAI are what the test shows."""

    def note(test: Test) -> Test:
        for title in titles:
            assert title not in TITLES, f"{title} has two tests"
            TITLES[title] = test.__name__
        return test

    return note


def crd(kind: Resource) -> Object:
    """A cluster-wide kind that takes whatever is written, as KAI's do but for their schema."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind, "listKind": f"{kind.kind}List"}
    version = {"name": kind.version, "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": kind.name},
        "spec": {"group": kind.group, "scope": "Cluster", "names": names, "versions": [version]},
    }


def stock_settings() -> dict[str, Any]:
    """What the chart renders with its own values, but for addresses of the machine."""
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "kai-solver" / "values.yaml").read_text())
    settings: dict[str, Any] = values["settings"]
    for name in ("metrics_bind_address", "health_bind_address", "answers_bind_address"):
        del settings[name]
    return settings


@contextmanager
def stocked(plane: Plane, folder: Path, *, claims: bool = False) -> Iterator[Cluster]:
    """The cluster of the specs with our controller; ``claims``: and with nodes whose GPUs only claims can have."""
    cluster = Cluster(plane, folder, checker_of(plane, lambda _: True, 60.0))
    cluster.wanted = "node dra-"  # it knows of no devices but those of the plugin, and objects to others
    cluster.checker.start()
    for kind in (SCHEDULING_SHARDS, KAI_CONFIGS):
        with suppress(ApiError):  # an earlier module made it
            plane.api.create(CRDS, "", crd(kind))
        wait_for(f"{kind.name} is served", lambda kind=kind: kind in plane.api.served(kind.api_version))  # type: ignore[misc]
    labels = {"nvidia.com__gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com__gpu.memory": str(MEMORY_MIB)}
    labels["nvidia.com__gpu.count"] = str(GPUS)
    for name in WORKERS:
        cluster.node(name, GPUS, **labels, **{"node-role.kubernetes.io__gpu-worker": ""})
    cluster.node(CPU_WORKER, 0, **{"node-role.kubernetes.io__cpu-worker": ""})
    for name in DRA_WORKERS if claims else ():
        _claimed(cluster, name)
    cluster.wait_nodes(7 if claims else 5)
    (port,) = free_ports(1)
    bundle = make_bundle(("localhost",), 1, time.time())
    (folder / "tls.crt").write_bytes(bundle.certificate)
    (folder / "tls.key").write_bytes(bundle.key)
    settings = stock_settings()
    settings["admission"] |= {"bind_address": f"127.0.0.1:{port}"}
    settings["admission"] |= {"cert_file": str(folder / "tls.crt"), "key_file": str(folder / "tls.key")}
    hooks = [(resource, called_by_url(body, port, bundle.authorities)) for resource, body in configurations()]
    agent = DeviceAgent(plane)
    try:
        with configured(plane, hooks), working(agent.look):
            cluster.controller(**settings)
            yield cluster
    finally:
        for kind in (DEVICE_CLASSES, RESOURCE_SLICES):
            for one in plane.api.page(kind).items:
                plane.api.delete(kind, "", str(meta(one)["name"]))
        cluster.end()
    assert cluster.complaints() == [], f"the checker objects; logs: {folder}"


def _claimed(cluster: Cluster, name: str) -> None:
    """A node whose GPUs only claims can have, and the class of all of them."""
    cluster.node(name, 0, **{"node-role.kubernetes.io__gpu-worker": ""})
    with suppress(ApiError):
        cluster.plane.api.create(DEVICE_CLASSES, "", device_class(DRIVER))
    cluster.plane.api.create(RESOURCE_SLICES, "", slice_of(name, DRIVER, GPUS))


def device_class(driver: str) -> Object:
    """The class of all devices of a driver, of the same name."""
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    return {"metadata": {"name": driver}, "spec": {"selectors": [selector]}}


def reported_storage(plane: Plane, driver: str, namespace: str, kind: str, **by_node: str) -> None:
    """The driver says how much storage each node has for volumes of a class."""
    with suppress(ApiError):
        plane.api.create(CSI_DRIVERS, "", {"metadata": {"name": driver}, "spec": {"storageCapacity": True}})
    for node, amount in by_node.items():
        name = node.replace("_", "-")
        here = {"matchLabels": {"kubernetes.io/hostname": name}}
        body = {"storageClassName": kind, "nodeTopology": here, "capacity": amount}
        plane.api.create(CSI_STORAGE_CAPACITIES, namespace, {"metadata": {"name": f"{kind}-{name}"}, **body})


def slice_of(node: str, driver: str, count: int) -> Object:
    """A node's devices of a driver."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{index}"} for index in range(count)]
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{node}-{driver}"}, "spec": spec}


@dataclass(slots=True)
class Spec:
    """One spec's part of the cluster: names with a prefix of its own, and what it made."""

    cluster: Cluster
    name: str
    config_maps: list[str] = field(default_factory=list)

    @property
    def api(self) -> Any:
        """The API server."""
        return self.cluster.plane.api

    @property
    def replica(self) -> Replica:
        """Our controller."""
        return self.cluster.replicas[0]

    # -- objects -------------------------------------------------------------------------------------------------------

    def queue(
        self, name: str = "q", gpus: float = -1, parent: str = "all", limit: float = -1, weight: int = 1, **spec: Any
    ) -> str:
        """A queue, and its parent where that is not there yet; returns its whole name."""
        if parent:
            with suppress(ApiError):
                self.queue(parent, parent="")
        amounts = {"quota": gpus, "limit": limit, "overQuotaWeight": weight}
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        body: dict[str, Any] = {"resources": {"gpu": amounts, "cpu": free, "memory": free}, **spec}
        body |= {"parentQueue": f"{self.name}-{parent}"} if parent else {}
        whole = f"{self.name}-{name}"
        self.api.create(QUEUES, "", {"metadata": {"name": whole}, "spec": body})
        return whole

    def pod(self, name: str, queue: str, gpus: int = 1, **more: Any) -> str:
        """A pod; returns its whole name."""
        whole = f"{self.name}-{name}"
        self.api.create(PODS, SPACE, pod(whole, queue, gpus, **more))
        return whole

    def pods(self, name: str, count: int, queue: str, gpus: int = 1, **more: Any) -> list[str]:
        """Pods alike."""
        return [self.pod(f"{name}-{index}", queue, gpus, **more) for index in range(count)]

    def share(self, name: str, queue: str, fraction: str = "0.5", **more: Any) -> str:
        """A pod with a part of a GPU."""
        return self.pod(name, queue, 0, annotations={"gpu-fraction": fraction}, **more)

    def group(self, name: str, queue: str, parts: Mapping[str, int], gpus: int = 1, **spec: Any) -> list[str]:
        """A PodGroup with so many pods for each subgroup (``""``: of none); returns the names of its pods."""
        whole, more = f"{self.name}-{name}", dict(spec)
        kind = {key: more.pop(key) for key in ("priority", "labels") if key in more}
        self.api.create(POD_GROUPS, SPACE, {"metadata": {"name": whole}, "spec": {"queue": queue, **more}})
        labels = kind.pop("labels", {})
        return [
            self.pod(
                f"{name}-{part}{'-' if part else ''}{index}",
                queue,
                gpus,
                annotations={"pod-group-name": whole},
                labels=labels | ({"kai.scheduler/subgroup-name": part} if part else {}),
                **kind,
            )
            for part, count in parts.items()
            for index in range(count)
        ]

    def gang(self, name: str, queue: str, size: int, least: int | None = None, gpus: int = 1, **more: Any) -> list[str]:
        """A PodGroup of pods alike, of which at least so many run; all unless said."""
        return self.group(name, queue, {"": size}, gpus, minMember=size if least is None else least, **more)

    def job(self, name: str, queue: str, size: int = 1, gpus: int = 1, least: int = 0, **more: Any) -> str:
        """A Job whose pods run side by side; ``least``: the minimum that its annotation states."""
        whole = f"{self.name}-{name}"
        spec = {"parallelism": size, "completions": size, "backoffLimit": 100, "template": pod("", queue, gpus, **more)}
        metadata: dict[str, Any] = {"name": whole, "labels": {"kai.scheduler/queue": queue}}
        metadata |= {"annotations": {"kai.scheduler/batch-min-member": str(least)}} if least else {}
        self.api.create(JOBS, SPACE, {"metadata": metadata, "spec": spec})
        return whole

    def shard(self, **spec: Any) -> None:
        """The default SchedulingShard."""
        self._cluster_wide(SCHEDULING_SHARDS, "default", spec)

    def config(self, **spec: Any) -> None:
        """KAI's Config."""
        self._cluster_wide(KAI_CONFIGS, "kai-config", spec)

    def _cluster_wide(self, kind: Resource, name: str, spec: dict[str, Any]) -> None:
        """In place of the one that is there; returns when our controller has seen it, and so decides by it."""
        with suppress(ApiError):
            self.api.delete(kind, "", name)
        made = self.api.create(kind, "", {"metadata": {"name": name}, "spec": spec})
        uid = meta(made)["uid"]
        wait_for(
            "it is seen", lambda: uid in {meta(one)["uid"] for one in self.replica.objects().get("other", ())}, LIMIT_S
        )

    # -- what is seen --------------------------------------------------------------------------------------------------

    def pod_of(self, name: str) -> Object:
        """The pod, as it is now."""
        found: Object = self.api.get(PODS, SPACE, name)
        return found

    def all(self, prefix: str = "") -> list[Object]:
        """Pods that are there and not leaving, whose name begins so."""
        whole = f"{self.name}-{prefix}"
        found = self.api.page(PODS, namespace=SPACE, limit=ALL).items
        return [one for one in found if meta(one)["name"].startswith(whole) and not meta(one).get("deletionTimestamp")]

    def placed(self, prefix: str = "") -> list[Object]:
        """Those that have a node."""
        return [one for one in self.all(prefix) if one["spec"].get("nodeName")]

    def nodes_of(self, *names: str) -> list[str]:
        """The node of each pod; waits until all have one."""
        self.wait_placed(*names)
        return [str(self.pod_of(name)["spec"]["nodeName"]) for name in names]

    def wait_placed(self, *names: str) -> None:
        """Wait until all of these pods have a node."""
        for name in names:
            wait_for(f"{name} is placed", lambda name=name: bool(self.pod_of(name)["spec"].get("nodeName")), LIMIT_S)  # type: ignore[misc]

    def wait_count(self, prefix: str, count: int) -> None:
        """Wait until exactly so many pods of this prefix have a node."""
        wait_for(f"{count} of {prefix} are placed", lambda: len(self.placed(prefix)) == count, LIMIT_S)

    def wait_left(self, *names: str) -> None:
        """Wait until these pods are gone, or leaving."""
        wait_for(f"{names} leave", lambda: not {str(meta(one)["name"]) for one in self.all()} & set(names), LIMIT_S)

    def told(self, name: str) -> str:
        """Why the pod waits; waits until that is said."""
        wait_for(
            f"{name} is told why it waits", lambda: self._condition(name).get("reason") == "Unschedulable", LIMIT_S
        )
        return str(self._condition(name).get("message", ""))

    def _condition(self, name: str) -> dict[str, Any]:
        return scheduled_condition(self.pod_of(name))

    def stays_pending(self, *names: str) -> bool:
        """Whether all of these are told why they wait, and still have no node a moment later."""
        for name in names:
            self.told(name)
        time.sleep(STAYS_S)
        return not any(self.pod_of(name)["spec"].get("nodeName") for name in names)

    def stays(self, *names: str, for_s: float = STAYS_S) -> bool:
        """Whether all of these have their node and are not leaving, now and a moment later."""
        time.sleep(for_s)
        pods = [self.pod_of(name) for name in names]
        return all(one["spec"].get("nodeName") and not meta(one).get("deletionTimestamp") for one in pods)

    def refusal(self, kind: Resource, body: Object) -> str:
        """Why an object is refused; empty where it is taken."""
        try:
            self.api.create(kind, SPACE if kind.namespaced else "", body)
        except ApiError as error:
            return error.message
        return ""

    def events(self, name: str) -> dict[str, str]:
        """Messages by reason of the events about an object."""
        found = self.api.page(EVENTS, namespace=SPACE, limit=ALL).items
        return {one["reason"]: one.get("message", "") for one in found if one["involvedObject"].get("name") == name}

    def condition_of_group(self, name: str) -> dict[str, Any]:
        """The newest scheduling condition of a PodGroup; empty where there is none."""
        found = self.api.get(POD_GROUPS, SPACE, name).get("status", {}).get("schedulingConditions") or [{}]
        return dict(found[-1])

    # -- the end -------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Take everything away, and wait until it is gone."""
        ends_s = time.monotonic() + LIMIT_S
        while self._take_away() and time.monotonic() < ends_s:
            time.sleep(0.05)
        for kind in CLEARED:
            self._remove(kind)
        for name in self.config_maps:
            self.api.delete(CONFIG_MAPS, SPACE, name)

    def _take_away(self) -> int:
        return sum(self._remove(kind) for kind in (*MAKERS, PODS)) + self._remove(PODS, RESERVED)

    def _remove(self, kind: Resource, space: str = SPACE) -> int:
        """All of a kind; returns how many there were."""
        items = self.api.page(kind, namespace=space if kind.namespaced else "", limit=ALL).items
        for one in items:
            with suppress(ApiError):
                named = kind, str(meta(one).get("namespace", "")), str(meta(one)["name"])
                if meta(one).get("finalizers"):
                    self.api.patch(*named, {"metadata": {"finalizers": None}})
                self.api.delete(*named, grace_s=0)
        return len(items)


def spec_of(cluster: Cluster, number: Iterator[int]) -> Iterator[Spec]:
    """For fixtures: a spec with a name of its own, and everything taken away at its end."""
    found = Spec(cluster, f"s{next(number)}")
    try:
        yield found
    finally:
        found.clear()
