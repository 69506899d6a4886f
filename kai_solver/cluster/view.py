"""The cluster as a cycle sees it: what is known, with what was done and is not seen yet laid over it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from kai_solver.claims import lower
from kai_solver.cluster import resources
from kai_solver.cluster.api import Object
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.bindrequests import unfinished
from kai_solver.cluster.resources import Resource
from kai_solver.cluster.store import Store
from kai_solver.domain import Notice, Snapshot
from kai_solver.errors.barrier import caught
from kai_solver.errors.culprits import without_culprits
from kai_solver.kubeobjects import KubeSettings, RawObjects, Recall, snapshot_from_objects
from kai_solver.kubeobjects.grouping import OwnGroup
from kai_solver.kubeobjects.notices import joined, object_name, reason_text
from kai_solver.kubeobjects.raw import Raw

FIELDS: Mapping[Resource, str] = {
    resources.PODS: "pods",
    resources.NODES: "nodes",
    resources.QUEUES: "queues",
    resources.POD_GROUPS: "pod_groups",
    resources.BIND_REQUESTS: "bind_requests",
    resources.PRIORITY_CLASSES: "priority_classes",
    resources.CONFIG_MAPS: "config_maps",
    resources.PERSISTENT_VOLUMES: "persistent_volumes",
    resources.PERSISTENT_VOLUME_CLAIMS: "persistent_volume_claims",
    resources.CSI_STORAGE_CAPACITIES: "csi_storage_capacities",
    resources.STORAGE_CLASSES: "storage_classes",
    resources.CSI_DRIVERS: "csi_drivers",
    resources.RESOURCE_CLAIMS: "resource_claims",
    resources.RESOURCE_SLICES: "resource_slices",
    resources.DEVICE_CLASSES: "device_classes",
    resources.TOPOLOGIES: "topologies",
    resources.NODE_RESOURCE_TOPOLOGIES: "node_resource_topologies",
    resources.NAMESPACES: "namespaces",
    resources.DISRUPTION_BUDGETS: "disruption_budgets",
}
"""Kinds that a snapshot is made of, and the field of `RawObjects` for each."""

POLICY = (resources.SCHEDULING_SHARDS, resources.KAI_CONFIGS)
"""KAI's objects that say how the cluster is scheduled."""

WATCHED = (*FIELDS, *POLICY)
"""Kinds that no decision is made without."""

Overlay = Callable[[tuple[Object, ...], float], tuple[Object, ...]]
"""Changes the pods that a cycle sees; given epoch seconds."""

Change = Callable[[tuple[Object, ...]], tuple[Object, ...]]


def _laid_over(overlay: Overlay, now_s: float, objects: tuple[Object, ...]) -> tuple[Object, ...]:
    return overlay(objects, now_s)


class View:
    """Makes snapshots of a store; for one thread.

    Parameters
    ----------
    owners
        Gives the owners of pods.
    settings
        Gives them as of now; None: as the objects in the cluster say.
    overlays
        Laid over the pods after ``assumed``, in turn: promised places, for example.
    claims
        Laid over the resource claims: devices that are being given away.
    refused
        Pods whose eviction was refused lately, given epoch seconds.
    notices
        What could not be used of what there is beside the objects that are read here.
    budgets
        Gives those of some PodDisruptionBudgets that hold evictions now.
    queues
        Laid over the Queues: their past usage.
    """

    def __init__(
        self,
        store: Store,
        assumed: Assumed,
        owners: Callable[[], tuple[Object, ...]] = tuple,
        settings: Callable[[], KubeSettings | None] = lambda: None,
        overlays: tuple[Overlay, ...] = (),
        claims: Overlay | None = None,
        refused: Callable[[float], frozenset[str]] | None = None,
        notices: Callable[[], tuple[Notice, ...]] = tuple,
        budgets: Callable[[Iterable[Object]], tuple[Object, ...]] = tuple,
        queues: Change = tuple,
    ) -> None:
        self._store = store
        self._owners = owners
        self._settings = settings
        self._overlays: tuple[Overlay, ...] = (assumed.overlay, *overlays)
        self._claims = claims
        self._refused = refused
        self._notices = notices
        self._budgets = budgets
        self._queues = queues
        self._recall = Recall()
        self._spoilt: list[Notice] = []

    def report_alive(self, alive: Callable[[], None]) -> None:
        """Call ``alive`` repeatedly while a snapshot takes long because objects that spoil it are searched for."""
        self._recall.spoilers.alive = alive

    def objects(self, now_s: float) -> RawObjects:
        """The raw objects of this moment."""
        self._spoilt = []
        found = RawObjects(
            **{field: self._store.all(resource) for resource, field in FIELDS.items()},  # type: ignore[arg-type]
            other=(*self._owners(), *(value for kind in POLICY for value in self._store.all(kind))),
        )
        budgets: tuple[Object, ...] = found.disruption_budgets  # type: ignore[assignment]
        found = replace(found, disruption_budgets=self._without_spoilers("PodDisruptionBudget", budgets, self._budgets))
        queues: tuple[Object, ...] = found.queues  # type: ignore[assignment]
        found = replace(found, queues=self._without_spoilers("Queue", queues, self._queues))
        pods: tuple[Object, ...] = found.pods  # type: ignore[assignment]
        for overlay in self._overlays:
            pods = self._without_spoilers("Pod", pods, partial(_laid_over, overlay, now_s))
        if self._claims is None:
            return replace(found, pods=pods)
        claims: tuple[Object, ...] = found.resource_claims  # type: ignore[assignment]
        claims = self._without_spoilers("ResourceClaim", claims, partial(_laid_over, self._claims, now_s))
        return replace(found, pods=pods, resource_claims=claims)

    def _without_spoilers(self, kind: str, objects: tuple[Object, ...], change: Change) -> tuple[Object, ...]:
        """The objects changed. Those that make it fail stay as they are; pods among them that have no node wait."""
        try:
            return change(objects)
        except Exception as error:

            def attempt(left_out: frozenset[int]) -> tuple[Object, ...]:
                return change(tuple(value for number, value in enumerate(objects) if number not in left_out))

            found, blamed = without_culprits(len(objects), attempt, error)
            if not blamed:
                caught("reading", f"all objects of kind {kind}", error)
            kept = []
            for number, cause in blamed.items():
                value = objects[number]
                name = object_name(kind, Raw(value))
                self._spoilt.append(Notice("set-aside", name, reason_text(name, cause)))
                spec = value.get("spec")
                if kind != "Pod" or (isinstance(spec, dict) and spec.get("nodeName")):
                    kept.append(value)
            return (*found, *kept)

    @property
    def own_groups(self) -> Mapping[str, OwnGroup]:
        """PodGroups that our groupers found in the newest snapshot, written by now or not."""
        return self._recall.own_groups

    def snapshot(self, now_s: float) -> Snapshot:
        """The cluster in plain terms, claims as amounts; what did not change since the last one is not read again."""
        found = self.objects(now_s)
        requests: tuple[Object, ...] = found.bind_requests  # type: ignore[assignment]
        change = partial(unfinished, store=self._store)
        found = replace(found, bind_requests=self._without_spoilers("BindRequest", requests, change))
        read = lower(snapshot_from_objects(found, now_s=now_s, settings=self._settings(), recall=self._recall))
        refused = self._refused(now_s) if self._refused is not None else frozenset[str]()
        more = (*self._notices(), *self._spoilt)
        if more:
            read = replace(read, notices=tuple(joined((*read.notices, *more))))
        return replace(read, refused=refused) if refused else read
