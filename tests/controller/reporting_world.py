"""A scheduler and a status reporter over a cluster in memory, driven by hand: each request is noted."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from kai_solver.cluster import resources
from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.binding import Binder
from kai_solver.cluster.evicting import Evictor
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.promises import Promises
from kai_solver.cluster.resources import EVENTS, NODES, POD_GROUPS, PODS, QUEUES, Resource
from kai_solver.cluster.store import Store
from kai_solver.cluster.view import FIELDS, View
from kai_solver.controller.loop import Cycle, Scheduler
from kai_solver.controller.reporting.setup import make_status_reporter
from kai_solver.controller.settings import ControllerSettings
from kai_solver.engine import Engine
from kai_solver.modelfiles import load_model
from tests.support.engines import PATIENT_S

OWNERS = (resources.JOBS,)


class NotingApi(MemoryApi):
    """Notes writes as ``verb plural[/subresource] name``."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.refuse: Callable[[str], ApiError | None] = lambda _: None

    def _note(self, verb: str, resource: Resource, name: str, subresource: str) -> None:
        text = f"{verb} {resource.plural}{'/' if subresource else ''}{subresource} {name}"
        self.notes.append(text)
        error = self.refuse(text)
        if error is not None:
            raise error

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        metadata = body["metadata"]
        self._note("create", resource, metadata.get("name", ""), subresource)
        return super().create(resource, namespace, body, subresource=subresource)

    def patch(self, resource: Resource, namespace: str, name: str, body: object, **options: Any) -> Object:
        self._note("patch", resource, name, options.get("subresource", ""))
        return super().patch(resource, namespace, name, body, **options)


class World:
    def __init__(self, **settings: Any) -> None:
        self.api, self.store, self.now = NotingApi(), Store(), 1_000_000.0
        self.leads = True
        assumed, promises = Assumed(), Promises()
        self.engine = Engine(load_model("greedy-only"))
        self.view = View(self.store, assumed, lambda: self.store.all(resources.JOBS), overlays=(promises.overlay,))
        writes, gangs = ThreadPoolExecutor(4), ThreadPoolExecutor(4)
        stated = ControllerSettings(status_rate=10_000, **settings)
        self.scheduler: Scheduler
        self.status_reporter = make_status_reporter(
            self.api,
            self.store,
            stated,
            lambda: self.leads,
            lambda: bool(self.scheduler.binder.open),
            lambda: self.engine.memo.problem,
            lambda: self.view.own_groups,
            lambda: self.now,
        )
        self.status_reporter.writer.monotonic = lambda: self.now
        self.scheduler = Scheduler(
            store=self.store,
            view=self.view,
            decide=partial(self.engine.cycle, budget_s=PATIENT_S),
            binder=Binder(
                self.api, assumed, writes, lambda: self.leads, self.status_reporter.bound, clock=lambda: self.now
            ),
            evictor=Evictor(self.api, assumed, lambda: self.leads, clock=lambda: self.now),
            promises=promises,
            reporter=self.status_reporter,
            fence=lambda: self.leads,
            gangs=gangs,
            evictions=writes,
            has_group=self.status_reporter.has_group,
            clock=lambda: self.now,
        )

    def see(self) -> None:
        for resource in (*FIELDS, *OWNERS):
            self.store.replace(resource, self.api.page(resource, limit=100_000).items)

    def cycle(self) -> Cycle:
        """See, decide, act; wait until all is bound."""
        self.see()
        cycle = self.scheduler.step()
        end_s = time.monotonic() + 20
        while (self.scheduler.binder.open or self.scheduler.evictor.at_work) and time.monotonic() < end_s:
            time.sleep(0.001)
        return cycle

    def told(self) -> list[str]:
        """Writes of the status reporter, and forget all noted so far."""
        self.api.notes.clear()
        self.status_reporter.drain(20.0)
        return list(self.api.notes)

    def round(self) -> list[str]:
        """One cycle and what is told of it; time goes on by a second."""
        self.cycle()
        found = self.told()
        self.see()
        self.now += 1
        return found

    def node(self, name: str, gpus: int = 8) -> None:
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": "100"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
        self.api.create(NODES, "", {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": allocatable}})

    def queue(self, name: str, quota: int = -1) -> None:
        amounts = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
        body = {"metadata": {"name": name}, "spec": {"resources": dict.fromkeys(("cpu", "memory", "gpu"), amounts)}}
        self.api.create(QUEUES, "", body)

    def pod(self, name: str, gpus: int = 8, queue: str = "q", group: str = "", owner: Object | None = None) -> None:
        container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        metadata: dict[str, Any] = {"name": name, "labels": {"kai.scheduler/queue": queue}}
        if group:
            metadata["annotations"] = {"pod-group-name": group}
        if owner is not None:
            reference = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
            metadata["ownerReferences"] = [reference | {n: owner["metadata"][n] for n in ("name", "uid")}]
        self.api.create(
            PODS, "n", {"metadata": metadata, "spec": {"schedulerName": "kai-scheduler", "containers": [container]}}
        )

    def gang(self, name: str, size: int, queue: str = "q", **spec: Any) -> None:
        stated = {"minMember": size, "queue": queue, **spec}
        self.api.create(POD_GROUPS, "n", {"metadata": {"name": name}, "spec": stated})
        for index in range(size):
            self.pod(f"{name}-{index}", queue=queue, group=name)

    def job(self, name: str, size: int = 1, minimum: int = 1) -> Object:
        annotations = {"kai.scheduler/batch-min-member": str(minimum)}
        body = {"apiVersion": "batch/v1", "metadata": {"name": name, "annotations": annotations}}
        made = self.api.create(resources.JOBS, "n", body)
        for index in range(size):
            self.pod(f"{name}-{index}", owner=made)
        return made

    def run(self, name: str) -> None:
        self.api.patch(PODS, "n", name, {"status": {"phase": "Running"}}, subresource="status")

    def get(self, resource: Resource, name: str) -> Object:
        return self.api.get(resource, "n" if resource.namespaced else "", name)

    def condition(self, pod: str, kind: str = "PodScheduled") -> dict[str, Any]:
        found = self.get(PODS, pod).get("status", {}).get("conditions", [])
        return next((condition for condition in found if condition["type"] == kind), {})

    def events(self, name: str) -> dict[str, str]:
        """Messages by reason of the events about an object."""
        items = self.api.page(EVENTS, limit=100_000).items
        return {item["reason"]: item["message"] for item in items if item["involvedObject"]["name"] == name}
