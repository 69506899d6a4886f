"""What tests do with the control plane: objects, replicas of our controller, and a clean table afterwards."""

import http.client
import io
import json
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kai_solver.cluster.api import ApiError, Object, meta
from kai_solver.cluster.resources import (
    BIND_REQUESTS,
    DEVICE_CLASSES,
    DISRUPTION_BUDGETS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    QUEUES,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    Resource,
)
from tests.cluster.plane.checker import GANG, GPU, LEAST, Checker
from tests.cluster.plane.plane import ADMIN, OURS, OURS_RUN, ROOT, Component, Plane, free_ports, wait_for
from tests.cluster.plane.proxy import Proxy

SPACE = "work"
ALL = 50_000
"""More than there ever is of a kind; a page that is not told so has the first 500, and events outlive their test."""

CLEAR_S = 180.0
"""Long: the machine may be busy."""

FAST = {"budget": "1s", "idle": "1s", "period": "200ms"}
"""Settings of the controllers of all tests that state no others: cycles follow one another at once."""

STAYS_S = 0.5
"""How long a pod that was told why it waits is watched: what a plan orders is done in less."""

LEADERSHIP = {"live": "8s", "renew": "6s", "retry": "500ms"}
"""For tests in which another replica takes over, which need not wait long then. All others have it as installed: on a
busy machine an API server may well be silent for seconds, and who cannot renew ends.
"""

LEASE = "kai-solver-kai-scheduler"
"""The Lease of a controller with the chart's settings."""

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
_RBAC = "rbac.authorization.k8s.io"
_INSTALLED = {
    "Namespace": NAMESPACES,
    "ServiceAccount": Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    "ClusterRole": Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    "ClusterRoleBinding": Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    "Role": Resource(_RBAC, "v1", "roles", "Role"),
    "RoleBinding": Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    "PriorityClass": Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False),
    "Queue": QUEUES,
    "CustomResourceDefinition": CRDS,
}
CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
MAKERS = (JOBS, REPLICA_SETS)
CLEARED = (
    POD_GROUPS,
    BIND_REQUESTS,
    DISRUPTION_BUDGETS,
    QUEUES,
    TOPOLOGIES,
    RESOURCE_CLAIMS,
    CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    NODES,
)


def install(plane: Plane) -> None:
    """What ``kubectl apply -f deploy/manifests`` would, but for what needs an image: CRDs, rights, defaults."""
    for name in ("kai-solver", SPACE):
        plane.api.create(NAMESPACES, "", {"metadata": {"name": name}})
    found = [
        one
        for file in ("crds", "kai-solver", "defaults")
        for one in yaml.safe_load_all((ROOT / "deploy" / "manifests" / f"{file}.yaml").read_text())
        if one and one["kind"] in _INSTALLED
    ]
    for one in [one for one in found if one["kind"] == "CustomResourceDefinition"]:
        plane.api.create(CRDS, "", one)
    wait_for("the CRDs are served", lambda: {QUEUES, POD_GROUPS, TOPOLOGIES} <= plane.api.installed())
    for one in [one for one in found if one["kind"] not in ("CustomResourceDefinition", "Queue")]:
        plane.api.create(_INSTALLED[one["kind"]], str(meta(one).get("namespace", "")), one)
    wait_for("admission knows the priority classes", lambda: _admits(plane, "train"))


def _admits(plane: Plane, priority_class: str) -> bool:
    """Whether pods of the class are accepted: the API server learns of a new class after a moment."""
    spec = {"containers": [{"name": "c", "image": "c"}], "priorityClassName": priority_class}
    try:
        plane.api.create(PODS, SPACE, {"metadata": {"name": "first"}, "spec": spec})
    except ApiError:
        return False
    plane.api.delete(PODS, SPACE, "first", grace_s=0)
    return True


def grant(plane: Plane, part: str) -> None:
    """Rights that the chart grants for a setting only: ``files/rbac/<part>.yaml``; asked twice it does no harm."""
    rules = yaml.safe_load((ROOT / "deploy" / "helm" / "kai-solver" / "files" / "rbac" / f"{part}.yaml").read_text())
    named = {"metadata": {"name": f"kai-solver-{part}"}}
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": f"kai-solver-{part}"}
    account = {"kind": "ServiceAccount", "name": "kai-solver", "namespace": "kai-solver"}
    bound = named | {"roleRef": role, "subjects": [account]}
    for kind, body in (("ClusterRole", named | {"rules": rules}), ("ClusterRoleBinding", bound)):
        with suppress(ApiError):  # it is there
            plane.api.create(_INSTALLED[kind], "", body)


@dataclass(slots=True)
class Cluster:
    """One test's cluster: nodes and work on the shared control plane, its checker, its replicas."""

    plane: Plane
    folder: Path
    checker: Checker
    replicas: list["Replica"] = field(default_factory=list)
    proxies: list[Proxy] = field(default_factory=list)
    keepers: list[threading.Thread] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    wanted: str = ""
    """What the checker is to object to, in tests of the checker."""

    def complaints(self) -> list[str]:
        """What it objects to beside what is wanted."""
        return [found for found in self.checker.complaints if not self.wanted or self.wanted not in found]

    def node(self, name: str, gpus: int = 8, more: Mapping[str, str] | None = None, /, **labels: str) -> None:
        """A node whose kubelet is kwok's; ``more``: other resources that it advertises."""
        room = {"cpu": "128", "memory": "1Ti", "pods": "110", **(more or {})} | ({GPU: str(gpus)} if gpus else {})
        named = {"kubernetes.io/hostname": name} | {key.replace("__", "/"): value for key, value in labels.items()}
        self.plane.api.create(
            NODES, "", {"metadata": {"name": name, "labels": named}, "status": {"allocatable": room, "capacity": room}}
        )

    def nodes(self, count: int, gpus: int = 8) -> None:
        """``count`` nodes alike, ready for work."""
        for index in range(count):
            self.node(f"node-{index}", gpus)
        self.wait_nodes(count)

    def wait_nodes(self, count: int, limit_s: float = 60.0) -> None:
        """Wait until so many nodes are ready and lost the taint that new nodes have."""
        wait_for(
            f"{count} nodes are ready",
            lambda: sum(_is_ready(node) for node in self.plane.api.page(NODES, limit=10_000).items) >= count,
            limit_s,
        )

    def queue(self, name: str, gpus: int = -1, parent: str = "all", limit: int = -1) -> None:
        """A queue with a quota of GPUs."""
        amounts = {"quota": gpus, "limit": limit, "overQuotaWeight": 1}
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        spec: dict[str, Any] = {"resources": {"gpu": amounts, "cpu": free, "memory": free}}
        spec |= {"parentQueue": parent} if parent else {}
        self.plane.api.create(
            QUEUES, "", {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        )

    def queues(self, **quotas: int) -> None:
        """One root, and a queue of it for each name with its quota."""
        self.queue("all", parent="")
        for name, quota in quotas.items():
            self.queue(name, quota)

    def pod(self, name: str, queue: str, gpus: int = 1, **more: Any) -> Object:
        """A plain pod."""
        return self.plane.api.create(PODS, SPACE, pod(name, queue, gpus, **more))

    def pods(self, count: int, queue: str, prefix: str = "pod", gpus: int = 1, threads: int = 8) -> None:
        """Many plain pods, as fast as the API server takes them."""
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda index: self.pod(f"{prefix}-{index}", queue, gpus), range(count)))

    def job(
        self,
        name: str,
        queue: str,
        size: int,
        least: int | None = None,
        gpus: int = 1,
        more: Mapping[str, Any] | None = None,
        **annotations: str,
    ) -> Object:
        """A Job whose pods start together, at least ``least`` of them; ``more``: of its pods, as `pod` takes it."""
        fewest = size if least is None else least
        template = pod("", queue, gpus, labels={GANG: name, LEAST: str(fewest)}, **(more or {}))
        stated = {"kai.scheduler/batch-min-member": str(fewest)}
        stated |= {f"kai.scheduler/{key.replace('_', '-')}": value for key, value in annotations.items()}
        spec = {"parallelism": size, "completions": size, "backoffLimit": 100, "template": template}
        metadata = {"name": name, "labels": {"kai.scheduler/queue": queue}, "annotations": stated}
        return self.plane.api.create(JOBS, SPACE, {"metadata": metadata, "spec": spec})

    def controller(self, proxied: bool = False, start: bool = True, kept: bool = False, **settings: Any) -> "Replica":
        """A replica of our controller, with the rights of the chart; ``kept``: started again whenever it ends."""
        url = ""
        if proxied:
            self.proxies.append(Proxy(self.plane.url, self.plane.authority))
            url = self.proxies[-1].url
        kubeconfig = self.plane.write_kubeconfig(f"ours-{len(self.replicas)}", OURS, url)
        replica = Replica.make(self, f"controller-{len(self.replicas)}", kubeconfig, settings)
        self.replicas.append(replica)
        if start:
            replica.start()
        if kept:
            self.keepers.append(threading.Thread(target=self._keep, args=(replica,), daemon=True))
            self.keepers[-1].start()
        return replica

    def _keep(self, replica: "Replica") -> None:
        """What a kubelet does for a Deployment's pod."""
        while not self.over.wait(0.5):
            if not replica.component.runs:
                replica.component.start()

    def cordon(self, name: str, is_so: bool = True) -> None:
        """Cordon a node, or no longer; returns when all replicas have seen it.

        Watches are not in step: who sees a pod that is made after that need not have seen the node.
        """
        self.plane.api.patch(NODES, "", name, {"spec": {"unschedulable": is_so or None}})
        for replica in self.replicas:
            wait_for(f"{name} is seen", lambda found=replica: found.sees_cordoned(name) == is_so)  # type: ignore[misc]

    def bind(self, name: str, node: str) -> None:
        """Bind a pod by hand."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.plane.api.create(PODS, SPACE, binding, subresource="binding")

    def names(self, prefix: str = "") -> list[str]:
        """Names of the pods that are there and begin so."""
        found = (str(meta(one)["name"]) for one in self.plane.api.page(PODS, namespace=SPACE, limit=10_000).items)
        return [name for name in found if name.startswith(prefix)]

    def on(self, node: str) -> list[Object]:
        """Pods that hold a place on this node."""
        return self.checker.bound(lambda found: found["spec"]["nodeName"] == node)

    def wait_bound(self, count: int, prefix: str = "", limit_s: float = 60.0) -> None:
        """Wait until so many pods whose name begins with ``prefix`` hold a place."""
        what = f"{count} pods {prefix}* are bound"
        wait_for(what, lambda: len(self.bound(prefix)) >= count, limit_s)

    def bound(self, prefix: str = "") -> list[Object]:
        """Pods whose name begins with ``prefix`` and that hold a place."""
        return self.checker.bound(lambda found: str(found["metadata"]["name"]).startswith(prefix))

    def stays_pending(self, prefix: str, count: int = 1, for_s: float = STAYS_S) -> bool:
        """Whether so many pods whose name begins with ``prefix`` get a reason why they wait, and none of them a node.

        A reason from before counts, too: where things changed since, wait for what that leads to first.

        Parameters
        ----------
        for_s
            Seconds to watch them from then on.
        """
        wait_for(f"{count} pods {prefix}* wait for a reason", lambda: len(self.waiting(prefix)) >= count)
        time.sleep(for_s)
        return len(self.waiting(prefix)) >= count

    def stays_unbound(self, name: str, for_s: float) -> bool:
        """Whether this pod has no node for so many seconds, whatever it is told."""
        time.sleep(for_s)
        return not self.plane.api.get(PODS, SPACE, name)["spec"].get("nodeName")

    def waiting(self, prefix: str = "") -> list[Object]:
        """Pods without a node whose name begins with ``prefix`` and whose condition says why."""
        found = self.plane.api.page(PODS, namespace=SPACE, limit=ALL).items
        mine = (one for one in found if str(meta(one)["name"]).startswith(prefix) and not one["spec"].get("nodeName"))
        return [one for one in mine if scheduled_condition(one).get("status") == "False"]

    def end(self) -> None:
        """End replicas and proxies, look a last time, and clear the table."""
        self.over.set()
        for keeper in self.keepers:
            keeper.join()  # nobody is started again after this
        for replica in self.replicas:
            replica.component.kill()
        for proxy in self.proxies:
            proxy.close()
        self.checker.stop()
        clear(self.plane)


@dataclass(slots=True)
class Replica:
    """A controller in a process of its own."""

    component: Component
    health: str
    answers_at: str
    metrics_at: str = ""

    @classmethod
    def make(cls, cluster: Cluster, name: str, kubeconfig: Path, settings: Mapping[str, Any]) -> "Replica":
        """Write its settings; it is not started yet."""
        health, metrics, answers = free_ports(3)
        stated = {
            "answers_bind_address": f"127.0.0.1:{answers}",
            "health_bind_address": f"127.0.0.1:{health}",
            "metrics_bind_address": f"127.0.0.1:{metrics}",
            **FAST,
            **settings,
        }
        folder = cluster.folder
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(stated))
        words = [*OURS_RUN, "controller", "--kubeconfig", str(kubeconfig), "--config", str(file)]
        scratch = folder / f"{name}.tmp"
        scratch.mkdir(exist_ok=True)  # a pod's own, which outlives its containers
        env = {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
        component = Component(name, words, folder, env, cluster.plane.warm)
        return cls(component, f"127.0.0.1:{health}", f"127.0.0.1:{answers}", f"127.0.0.1:{metrics}")

    def start(self) -> None:
        """Start, and wait until it has seen the cluster."""
        self.component.start()
        wait_for(f"the controller is ready, see {self.component.log}", self.is_ready)

    def is_ready(self) -> bool:
        """Whether it has listed everything; fails at once where its process ended."""
        assert self.component.runs, self.component.log.read_text()[-2000:]
        return self.answers("/readyz")

    def answers(self, path: str) -> bool:
        """Whether it answers this address well."""
        try:
            return self._get(path)[0] == 200
        except OSError:
            return False

    def said_by(self, path: str) -> str:
        """What it says at this address, well or not; empty where it does not answer."""
        try:
            return self._get(path)[1].decode()
        except OSError:
            return ""

    def sees_cordoned(self, node: str) -> bool:
        """Whether a node is cordoned as far as it knows."""
        nodes = self.objects()["nodes"]
        return any(one["metadata"]["name"] == node and one["spec"].get("unschedulable") for one in nodes)

    def snapshot(self) -> bytes:
        """What it knows, as a snapshot of KAI."""
        return self._get("/get-snapshot")[1]

    def objects(self) -> dict[str, list[Object]]:
        """The objects that it knows, by member of KAI's snapshot."""
        with zipfile.ZipFile(io.BytesIO(self.snapshot())) as archive:
            (member,) = archive.namelist()
            found: dict[str, list[Object]] = json.loads(archive.read(member))["rawObjects"]
        return found

    def _get(self, path: str) -> tuple[int, bytes]:
        is_open = path in ("/healthz", "/readyz")
        address = self.health if is_open else self.metrics_at if path == "/metrics" else self.answers_at
        connection = http.client.HTTPConnection(address, timeout=30)
        try:
            connection.request("GET", path, headers={} if is_open else {"Authorization": f"Bearer {ADMIN}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def said(self) -> Iterator[dict[str, Any]]:
        """Its log, line by line."""
        for line in self.component.log.read_text().splitlines():
            if line.startswith("{"):
                yield json.loads(line)


def pod(
    name: str,
    queue: str,
    gpus: int = 1,
    *,
    scheduler: str = "kai-scheduler",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    priority: str = "train",
    grace_s: int = 1,
    amounts: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod, or without a name a template of pods; ``amounts``: other resources that it asks for."""
    limits = {"cpu": "1", "memory": "1Gi", **(amounts or {})} | ({GPU: str(gpus)} if gpus else {})
    metadata: dict[str, Any] = {"labels": {"kai.scheduler/queue": queue, **(labels or {})}}
    metadata |= {"annotations": dict(annotations)} if annotations else {}
    metadata |= {"name": name} if name else {}
    whole = {
        "schedulerName": scheduler,
        "priorityClassName": priority,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_s,
        "containers": [{"name": "main", "image": "busybox", "resources": {"limits": limits}}],
        **spec,
    }
    return {"metadata": metadata, "spec": whole}


def scheduled_condition(found: Object) -> dict[str, Any]:
    """The condition of a pod that says whether it has a node, and why not; empty where there is none."""
    conditions = found.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


def checker_of(
    plane: Plane, may_leave: Callable[[Object], bool], partly_s: float, rate: tuple[int, float] | None = None
) -> Checker:
    """A checker of this control plane."""
    return Checker(plane.url, plane.authority, ADMIN, may_leave, partly_s, rate)


def clear(plane: Plane) -> None:
    """Remove what tests made; the control plane itself stays."""
    clear_work(plane)
    for kind in CLEARED:
        _remove_for_good(plane, kind)
    for lease in plane.api.page(LEASES, namespace="kai-solver").items:
        ensure_gone(plane, LEASES, "kai-solver", str(meta(lease)["name"]))


def ensure_gone(plane: Plane, kind: Resource, namespace: str, name: str, *, grace_s: int | None = None) -> None:
    """Delete what another may delete at the same time: the garbage collector, once the owner is gone, or a kubelet."""
    try:
        plane.api.delete(kind, namespace, name, grace_s=grace_s)
    except ApiError as error:
        if not error.is_missing:
            raise


def clear_work(plane: Plane) -> None:
    """Remove all pods, and what makes them anew."""
    _remove_for_good(plane, *MAKERS, PODS)


def _remove_for_good(plane: Plane, *kinds: Resource) -> None:
    what = ", ".join(kind.name for kind in kinds)
    wait_for(f"none are left of {what}", lambda: sum(_remove_all(plane, kind) for kind in kinds) == 0, CLEAR_S)


def _remove_all(plane: Plane, kind: Resource) -> bool:
    """Ask for everything of a kind to go, at once; whether something was there, or may have been.

    A server that was started again a moment ago may refuse for now: who asks looks again until nothing is left. Nor is
    anybody waited for who would do something first: a controller manager needs its time after a restart of the server.
    """

    def remove(item: Object) -> None:
        named = kind, str(meta(item).get("namespace", "")), str(meta(item)["name"])
        if meta(item).get("finalizers"):
            with _patience():
                plane.api.patch(*named, {"metadata": {"finalizers": None}})
        with _patience():
            plane.api.delete(*named, grace_s=0)

    is_something = True
    with _patience(), ThreadPoolExecutor(16) as threads:
        items = plane.api.page(kind, limit=ALL).items
        is_something = bool(items)
        list(threads.map(remove, items))
    return is_something


@contextmanager
def _patience() -> Iterator[None]:
    """What does not work now, or need not be done any more, is no error."""
    try:
        yield
    except ApiError as error:
        if not (error.is_missing or error.is_conflict or error.is_passing):
            raise


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    taints = node["spec"].get("taints") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions) and not taints
