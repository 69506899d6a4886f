"""Stand-ins for KAI's components, as far as a hand-over meets them: what each of them reads and writes, and no more.

They are not KAI: their scheduler takes gangs first come, first served. Objects, names and protocols are KAI's
(docs/kai-behaviour.md#bindrequest, #podgroup, #queue-object). Pods are seen through the watch of the checker, and
BindRequests through one of their own, so that 200 nodes full of work cost little.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from kai_solver.cluster.api import ApiError, Object, meta
from kai_solver.cluster.lease import Lease
from kai_solver.cluster.reflector import Reflector
from kai_solver.cluster.resources import BIND_REQUESTS, LEASES, NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES
from kai_solver.cluster.store import Store
from tests.cluster.plane.checker import GPU, LEAST, Pod
from tests.cluster.plane.cluster import SPACE, Cluster
from tests.cluster.plane.plane import Plane

KAI = "kai-scheduler"
"""The namespace, the name of the Lease, and of the scheduler."""

GROUP = "pod-group-name"
ALL = 100_000
LOOK_S = 0.2


def gpus(pod: Pod) -> int:
    """GPUs that a pod asks for."""
    return sum(int(one.get("resources", {}).get("limits", {}).get(GPU, 0)) for one in pod["spec"]["containers"])


def holds(pod: Pod) -> bool:
    """Whether it has a node and has not ended."""
    return bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def mine(cluster: Cluster) -> list[Pod]:
    """Pods that name KAI's scheduler, those that leave included."""
    return [pod for pod in list(cluster.checker.pods.values()) if pod["spec"].get("schedulerName") == KAI]


def group_of(pod: Pod) -> str:
    """The PodGroup that the pod names; empty where it names none yet."""
    return str((pod["metadata"].get("annotations") or {}).get(GROUP, ""))


class PodGrouper:
    """Writes a PodGroup for each workload, and its name on the pods."""

    def __init__(self, kai: "Kai") -> None:
        self.cluster = kai.cluster

    def look(self) -> None:
        """Group pods that have no group."""
        for pod in mine(self.cluster):
            if not group_of(pod):
                self._group(pod)

    def _group(self, pod: Pod) -> None:
        api, metadata = self.cluster.plane.api, pod["metadata"]
        owners = metadata.get("ownerReferences") or [
            {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        ]
        name = f"pg-{owners[0]['name']}-{owners[0]['uid']}"
        labels = metadata.get("labels") or {}
        least = int(labels.get(LEAST, 1))
        spec = {"minMember": least, "queue": labels["kai.scheduler/queue"], "priorityClassName": "train"}
        body = {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}
        with suppress(ApiError):  # another pod of the gang came first
            api.create(POD_GROUPS, SPACE, {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", **body})
        api.patch(PODS, SPACE, metadata["name"], {"metadata": {"annotations": {GROUP: name}}})


class Scheduler:
    """Gangs first come, first served, each pod on the first node with room, by BindRequests; holds KAI's Lease."""

    def __init__(self, kai: "Kai") -> None:
        self.cluster, self.requests = kai.cluster, kai.requests
        self.lease = Lease(kai.plane.api, KAI, KAI, "kai-scheduler-0_theirs")
        self.room = {
            str(node["metadata"]["name"]): int(node["status"]["allocatable"].get(GPU, 0))
            for node in kai.plane.api.page(NODES, limit=ALL).items
        }

    def look(self) -> None:
        """One cycle."""
        api = self.cluster.plane.api
        self.lease.attempt()
        pods = mine(self.cluster)
        waiting = [pod for pod in pods if not pod["spec"].get("nodeName") and group_of(pod)]
        if not waiting:
            return
        waiting.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
        asked = {str(one["spec"]["podName"]): one for one in self.requests.all(BIND_REQUESTS)}
        free = Counter(self.room)
        for pod in pods:
            node = pod["spec"].get("nodeName") or asked.get(pod["metadata"]["name"], {}).get("spec", {}).get(
                "selectedNode"
            )
            if node and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                free[str(node)] -= gpus(pod)
        gangs: dict[str, list[Pod]] = defaultdict(list)
        for pod in waiting:
            if pod["metadata"]["name"] not in asked and "deletionTimestamp" not in pod["metadata"]:
                gangs[group_of(pod)].append(pod)
        held = Counter(group_of(pod) for pod in pods if holds(pod) or pod["metadata"]["name"] in asked)
        for gang, members in gangs.items():
            least = int(api.get(POD_GROUPS, SPACE, gang)["spec"]["minMember"])
            if held[gang] + len(members) >= least:
                self._place(members, free)

    def _place(self, pods: list[Pod], free: Counter[str]) -> None:
        places: list[tuple[Pod, str]] = []
        for pod in pods:
            node = next((name for name, left in free.items() if left >= gpus(pod)), None)
            if node is None:
                for taken, other in places:
                    free[other] += gpus(taken)
                return
            free[node] -= gpus(pod)
            places.append((pod, node))
        for pod, node in places:
            self._request(pod, node)

    def _request(self, pod: Pod, node: str) -> None:
        name = pod["metadata"]["name"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
        spec = {"podName": name, "selectedNode": node, "receivedResourceType": "Regular"}
        metadata = {"name": name, "ownerReferences": [owner], "labels": {"selected-node": node}}
        spec |= {"receivedGPU": {"count": gpus(pod), "portion": "1.00"}}
        body = {"apiVersion": BIND_REQUESTS.api_version, "kind": "BindRequest", "metadata": metadata, "spec": spec}
        self.cluster.plane.api.create(BIND_REQUESTS, SPACE, body)


class Binder:
    """Does what BindRequests say; writes KAI's annotation on the pod."""

    def __init__(self, kai: "Kai") -> None:
        self.cluster, self.requests = kai.cluster, kai.requests
        self.done: set[str] = set()

    def look(self) -> None:
        """Serve all requests that wait."""
        api = self.cluster.plane.api
        for request in self.requests.all(BIND_REQUESTS):
            uid = str(meta(request)["uid"])
            if request.get("status") or uid in self.done:
                continue
            self.done.add(uid)
            name, node = request["spec"]["podName"], request["spec"]["selectedNode"]
            phase = "Succeeded"
            try:
                api.patch(PODS, SPACE, name, {"metadata": {"annotations": {"received-resource-type": "Regular"}}})
                target = {"kind": "Node", "name": node}
                api.create(PODS, SPACE, {"metadata": {"name": name}, "target": target}, subresource="binding")
            except ApiError as error:
                phase = "Failed" if not error.is_missing else "Succeeded"
            with suppress(ApiError):
                api.patch(
                    BIND_REQUESTS,
                    SPACE,
                    request["metadata"]["name"],
                    {"status": {"phase": phase}},
                    subresource="status",
                )


class QueueController:
    """Writes what queues hold."""

    def __init__(self, kai: "Kai") -> None:
        self.cluster = kai.cluster
        self.written: dict[str, object] = {}

    def look(self) -> None:
        """Write the sums that changed."""
        held: Counter[str] = Counter()
        for pod in mine(self.cluster):
            if holds(pod):
                held[(pod["metadata"].get("labels") or {}).get("kai.scheduler/queue", "")] += gpus(pod)
        for queue in self.cluster.plane.api.page(QUEUES, limit=ALL).items:
            name = str(meta(queue)["name"])
            status = {"allocated": {GPU: str(held[name])}}
            if self.written.get(name) != status:
                self.cluster.plane.api.patch(QUEUES, "", name, {"status": status}, subresource="status")
                self.written[name] = status


class PodGroupController:
    """Writes what the pods of PodGroups hold."""

    def __init__(self, kai: "Kai") -> None:
        self.cluster = kai.cluster
        self.written: dict[str, int] = {}

    def look(self) -> None:
        """Write the sums that changed."""
        held: Counter[str] = Counter()
        for pod in mine(self.cluster):
            if holds(pod) and group_of(pod):
                held[group_of(pod)] += gpus(pod)
        for name, count in held.items():
            if self.written.get(name) != count:
                status = {"status": {"resourcesStatus": {"allocated": {GPU: str(count)}}}}
                self.cluster.plane.api.patch(POD_GROUPS, SPACE, name, status, subresource="status")
                self.written[name] = count


PARTS: Mapping[str, Callable[["Kai"], object]] = {
    "scheduler": Scheduler,
    "binder": Binder,
    "pod grouper": PodGrouper,
    "queue controller": QueueController,
    "pod-group controller": PodGroupController,
}


@dataclass(slots=True)
class Kai:
    """KAI's components of one cluster, each in a thread of its own.

    Attributes
    ----------
    makes_a_group_of_a_job
        One PodGroup for all pods of a Job with ``kai.scheduler/batch-min-member``, which KAI 0.12 does not know yet.
    """

    makes_a_group_of_a_job: ClassVar[bool] = True

    cluster: Cluster
    requests: Store = field(default_factory=Store)
    running: dict[str, tuple[threading.Event, threading.Thread]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Watch BindRequests."""
        reflector = Reflector(self.plane.api, BIND_REQUESTS, self.requests, self.over)
        threading.Thread(target=reflector.run, name="BindRequests", daemon=True).start()

    def start(self, *names: str) -> None:
        """Start these components."""
        with suppress(ApiError):  # from an earlier test
            self.plane.api.create(NAMESPACES, "", {"metadata": {"name": KAI}})
        for name in names:
            look: Callable[[], None] = PARTS[name](self).look  # type: ignore[attr-defined]
            over = threading.Event()
            thread = threading.Thread(target=self._run, args=(look, over), name=name, daemon=True)
            self.running[name] = over, thread
            thread.start()

    def _run(self, look: Callable[[], None], over: threading.Event) -> None:
        while not over.is_set():
            with suppress(ApiError):  # an object is gone, or changed: next time
                look()
            over.wait(LOOK_S)

    def stop(self, *names: str) -> None:
        """Scale these to 0, and wait until they are gone. The Lease stays behind, as after a kill."""
        for name in names:
            over, thread = self.running.pop(name)
            over.set()
            thread.join(30)

    def delete_lease(self) -> None:
        """What the guide has the administrator do once the scheduler is gone."""
        self.plane.api.delete(LEASES, KAI, KAI)

    @property
    def plane(self) -> Plane:
        """The control plane."""
        return self.cluster.plane

    def open_requests(self) -> list[Object]:
        """BindRequests that the binder has not answered."""
        found = self.plane.api.page(BIND_REQUESTS, namespace=SPACE, limit=ALL).items
        return [one for one in found if not one.get("status")]

    def end(self) -> None:
        """Stop all, and leave no Lease."""
        self.stop(*list(self.running))
        self.over.set()
        with suppress(ApiError):
            self.delete_lease()
