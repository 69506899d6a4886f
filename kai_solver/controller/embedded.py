"""A cluster in memory around the controller, so that one can watch it work without Kubernetes.

Kubelets start and end pods, a job controller creates evicted pods again, and work arrives at random. Only this
file pretends; the controller is the one of a cluster.
"""

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kai_solver.cluster.api import Api, ApiError, Object, WatchEvent, key_of, meta, version_of
from kai_solver.cluster.resources import JOBS, NODES, POD_GROUPS, PODS, PRIORITY_CLASSES, QUEUES, Resource

RUN_SECONDS = "kai-solver.dev/run-seconds"
"""Annotation of a pod: how long it runs; without it, for ever."""

LOOK_S = 0.2
GPUS_A_NODE = 8


class Kubelets:
    """All nodes' kubelets: bound pods run after ``start_s``, finish when they say so, and leave after ``stop_s``."""

    def __init__(self, api: Api, start_s: float = 0.5, stop_s: float = 0.5) -> None:
        self._api = api
        self._start_s = start_s
        self._stop_s = stop_s
        self._due: list[tuple[float, int, str, str, str]] = []
        self._known: set[tuple[str, str]] = set()
        self._counter = itertools.count()

    def run(self, stop: threading.Event) -> None:
        """Do what kubelets do until ``stop`` is set."""
        for event in _following(self._api, PODS, stop):
            if event is not None:
                self._see(event)
            while self._due and self._due[0][0] <= time.monotonic():
                _, _, act, key, uid = heapq.heappop(self._due)
                self._act(act, key, uid)

    def _see(self, event: WatchEvent) -> None:
        pod, key, uid = event.object, key_of(event.object), str(meta(event.object).get("uid"))
        if event.kind == "DELETED":
            self._known -= {(uid, act) for act in ("start", "finish", "remove")}
            return
        node, phase = pod["spec"].get("nodeName"), pod.get("status", {}).get("phase")
        runs_s = (meta(pod).get("annotations") or {}).get(RUN_SECONDS)
        if meta(pod).get("deletionTimestamp"):
            self._plan("remove", self._stop_s, key, uid)
        elif node and phase == "Pending":
            self._plan("start", self._start_s, key, uid)
        elif phase == "Running" and runs_s:
            self._plan("finish", float(runs_s), key, uid)

    def _plan(self, act: str, in_s: float, key: str, uid: str) -> None:
        if (uid, act) not in self._known:
            self._known.add((uid, act))
            heapq.heappush(self._due, (time.monotonic() + in_s, next(self._counter), act, key, uid))

    def _act(self, act: str, key: str, uid: str) -> None:
        namespace, _, name = key.partition("/")
        try:
            if meta(self._api.get(PODS, namespace, name)).get("uid") != uid:
                return
            if act == "remove":
                self._api.delete(PODS, namespace, name, uid=uid, grace_s=0)
            else:
                phase = "Running" if act == "start" else "Succeeded"
                self._api.patch(PODS, namespace, name, {"status": {"phase": phase}}, subresource="status")
        except ApiError as error:
            if not error.is_missing:
                raise


class JobController:
    """Makes the pods of Jobs, and new ones in place of those that were deleted before they finished."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._counter = itertools.count()

    def run(self, stop: threading.Event) -> None:
        """Look after all Jobs until ``stop`` is set."""
        while not stop.wait(LOOK_S):
            for job in self._api.page(JOBS, limit=100_000).items:
                self._complete(job)

    def _complete(self, job: Object) -> None:
        uid, namespace = meta(job)["uid"], str(meta(job)["namespace"])
        pods = [pod for pod in self._api.page(PODS, namespace=namespace, limit=100_000).items if _owner(pod) == uid]
        if pods and all(pod["status"].get("phase") == "Succeeded" for pod in pods):
            for pod in pods:
                self._api.delete(PODS, namespace, str(meta(pod)["name"]))
            self._api.delete(JOBS, namespace, str(meta(job)["name"]))
            self._collect(uid, namespace)
            return
        for _ in range(int(job["spec"]["parallelism"]) - len(pods)):
            self._api.create(PODS, namespace, self._pod(job))

    def _collect(self, uid: str, namespace: str) -> None:
        """What belonged to a Job goes with it, as Kubernetes' garbage collector has it."""
        for group in self._api.page(POD_GROUPS, namespace=namespace, limit=100_000).items:
            if _owner(group) == uid:
                self._api.delete(POD_GROUPS, namespace, str(meta(group)["name"]))

    def _pod(self, job: Object) -> dict[str, Any]:
        name = f"{meta(job)['name']}-{next(self._counter)}"
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta(job)["name"], "uid": meta(job)["uid"]}
        template = job["spec"]["template"]
        metadata = {**template["metadata"], "name": name, "ownerReferences": [owner | {"controller": True}]}
        return {"metadata": metadata, "spec": template["spec"]}


@dataclass(frozen=True, slots=True)
class Demo:
    """A small cluster with two teams and work that keeps coming; ``every_s``: mean seconds between two gangs."""

    nodes: int = 8
    seed: int = 1
    every_s: float = 1.25
    teams: tuple[tuple[str, int], ...] = (("research", 40), ("product", 16), ("students", 8))

    def build(self, api: Api) -> None:
        """Nodes, queues and priority classes."""
        for index in range(self.nodes):
            labels = {"kubernetes.io/hostname": f"node-{index}", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
            allocatable = {"cpu": "128", "memory": "1Ti", "nvidia.com/gpu": str(GPUS_A_NODE), "pods": "110"}
            metadata = {"name": f"node-{index}", "labels": labels}
            api.create(NODES, "", {"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}})
        for name, quota in (("all", -1), *self.teams):
            amounts = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
            free = amounts | {"quota": -1}
            spec: dict[str, Any] = {"resources": {"gpu": amounts, "cpu": free, "memory": free}}
            api.create(
                QUEUES,
                "",
                {"metadata": {"name": name}, "spec": spec | ({"parentQueue": "all"} if name != "all" else {})},
            )
        for name, value in (("train", 50), ("build", 100), ("inference", 125)):
            api.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})

    def arrive(self, api: Api, stop: threading.Event) -> None:
        """Submit gangs at random until ``stop`` is set."""
        draw = random.Random(self.seed)  # noqa: S311 - a demonstration
        for number in itertools.count():
            if stop.wait(draw.expovariate(1 / self.every_s)):
                return
            api.create(JOBS, "demo", self._job(number, draw))

    def _job(self, number: int, draw: random.Random) -> dict[str, Any]:
        queue = draw.choice([name for name, _ in self.teams])
        size, gpus = draw.choice((1, 1, 1, 2, 2, 4, 8)), draw.choice((1, 1, 2, 4, 8))
        limits = {"nvidia.com/gpu": str(gpus), "cpu": str(4 * gpus), "memory": f"{32 * gpus}Gi"}
        spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "resources": {"limits": limits}}]}
        annotations = {RUN_SECONDS: str(round(draw.uniform(5, 40), 1))}
        labels = {"kai.scheduler/queue": queue}
        template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
        whole = {"kai.scheduler/batch-min-member": str(size)}
        return {
            "metadata": {"name": f"{queue}-{number}", "labels": labels, "annotations": whole},
            "spec": {"parallelism": size, "template": template},
        }


def start(api: Api, stop: threading.Event, demo: Demo | None) -> list[threading.Thread]:
    """Start kubelets and the job controller, and ``demo``'s arrivals if any."""
    jobs: list[Callable[[], None]] = [lambda: Kubelets(api).run(stop), lambda: JobController(api).run(stop)]
    if demo is not None:
        demo.build(api)
        jobs.append(lambda: demo.arrive(api, stop))
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    return threads


def _following(api: Api, resource: Resource, stop: threading.Event) -> Iterator[WatchEvent | None]:
    """All objects there are, then their changes; None every ``LOOK_S`` seconds, for other work of the caller."""
    page = api.page(resource, limit=100_000)
    version = page.resource_version
    yield from (WatchEvent("ADDED", item) for item in page.items)
    while not stop.is_set():
        for event in api.watch(resource, version, LOOK_S):
            version = version_of(event.object)
            yield event
        yield None


def _owner(item: Object) -> str:
    owners = meta(item).get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))
