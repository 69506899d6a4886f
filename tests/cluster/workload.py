"""Work that comes at random, for days and soaks: gangs with PodGroups, whose pods are made anew until all succeeded."""

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from kai_solver.cluster.api import Api, ApiError, Object, meta
from kai_solver.cluster.resources import POD_GROUPS, PODS, Resource
from tests.cluster.plane.checker import GANG, LEAST
from tests.cluster.plane.cluster import SPACE, pod

RUNS_FOR = "test/runs-for"
"""Annotation: how long a pod runs before it succeeds, as kwok reads it (``12.5s``)."""


@dataclass(slots=True)
class Gang:
    """One gang, and how many pods of it were made; ``has_ended``: it is being removed."""

    name: str
    queue: str
    size: int
    least: int
    gpus: int
    priority: str
    runs_s: float
    uid: str
    made: int = 0
    has_ended: bool = False


@dataclass(slots=True)
class Workload:
    """Gangs that are there; their maker does what a Job's controller does, without its back-off.

    Attributes
    ----------
    runs_s
        The shortest and the longest time that a pod runs.
    done
        How many gangs have ended.
    """

    api: Api
    draw: random.Random
    queues: tuple[str, ...]
    runs_s: tuple[float, float]
    gangs: dict[str, Gang] = field(default_factory=dict)
    asked: int = 0
    arrived: int = 0
    done: int = 0

    def arrive(self) -> None:
        """One more gang."""
        draw, name = self.draw, f"g{self.asked}"
        self.asked += 1  # a name whose answer got lost is not asked for again
        size = draw.choice((1, 1, 1, 2, 2, 4, 6))
        least = max(1, size // 2) if draw.random() < 0.3 else size
        queue, gpus = draw.choice(self.queues), draw.choice((1, 1, 2, 4))
        priority = "build" if draw.random() < 0.2 and size * gpus <= 4 else "train"
        body = {
            "apiVersion": POD_GROUPS.api_version,
            "kind": POD_GROUPS.kind,
            "metadata": {"name": name},
            "spec": {"minMember": least, "queue": queue, "priorityClassName": priority},
        }
        made = self.api.create(POD_GROUPS, SPACE, body)
        self.arrived += 1
        runs_s = round(draw.uniform(*self.runs_s), 1)
        uid = str(meta(made)["uid"])
        self.gangs[name] = Gang(name, queue, size, least, gpus, priority, runs_s, uid)

    def tend(self, pods: Iterable[Object]) -> None:
        """Make the pods that are missing, and remove gangs that are done; ``pods``: all that there are."""
        there: dict[str, list[Object]] = defaultdict(list)
        for found in pods:
            there[(meta(found).get("labels") or {}).get(GANG, "")].append(found)
        for name, gang in list(self.gangs.items()):
            self._tend(gang, there.get(name, []))

    def _tend(self, gang: Gang, pods: list[Object]) -> None:
        ended = sum(found["status"].get("phase") == "Succeeded" for found in pods)
        gang.has_ended |= ended >= gang.size  # what is removed in part, as the server went away, gets no new pods
        if gang.has_ended:
            self._remove(gang, pods)
            return
        alive = [found for found in pods if not meta(found).get("deletionTimestamp")]
        lost = [found for found in alive if found["status"].get("phase") == "Failed"]
        for found in lost:
            self._delete(PODS, str(meta(found)["name"]))
        working = len(alive) - len(lost) - ended
        if ended and working < gang.least and any(map(_waits, alive)):
            for found in alive:  # who is left needs others beside it, who are through: all start anew
                self._delete(PODS, str(meta(found)["name"]))
            return
        for _ in range(gang.size - ended - working):
            self._make(gang)

    def _make(self, gang: Gang) -> None:
        name = f"{gang.name}-{gang.made}"
        gang.made += 1
        made = pod(
            name,
            gang.queue,
            gang.gpus,
            labels={GANG: gang.name, LEAST: str(gang.least)},
            annotations={"pod-group-name": gang.name, RUNS_FOR: f"{gang.runs_s}s"},
            priority=gang.priority,
        )
        owner = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "name": gang.name, "uid": gang.uid}
        made["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        self.api.create(PODS, SPACE, made)

    def _remove(self, gang: Gang, pods: list[Object]) -> None:
        for found in pods:
            self._delete(PODS, str(meta(found)["name"]))
        self._delete(POD_GROUPS, gang.name)
        del self.gangs[gang.name]
        self.done += 1

    def _delete(self, kind: Resource, name: str) -> None:
        try:
            self.api.delete(kind, SPACE, name, grace_s=0)
        except ApiError as error:
            if not error.is_missing:
                raise


def _waits(pod: Object) -> bool:
    return not pod["spec"].get("nodeName")
