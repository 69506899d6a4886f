"""The controller on an API server in memory that shows hostile objects; an honest team's gangs must be bound."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kai_solver.cluster.api import ApiError, Object, Page, PatchKind, WatchEvent, key_of
from kai_solver.cluster.memory import BUILT_IN, MemoryApi
from kai_solver.cluster.resources import (
    BIND_REQUESTS,
    CONFIG_MAPS,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    RESOURCE_CLAIMS,
    Resource,
)
from kai_solver.controller.app import Controller
from kai_solver.controller.settings import ControllerSettings
from tests.fuzz.hostile import Recipe, apart, made, random_recipe, seeds

HONEST = "honest"
LIMIT_S = 300.0
"""A bound on what hangs; a machine that is busy with other tests takes its time."""

SETTINGS: dict[str, Any] = {
    "period": 0.01,
    "settle": 0.01,
    "idle": 0.5,
    "log_level": "error",
    "metrics_bind_address": "",
    "health_bind_address": "",
    "answers_bind_address": "",
    "leadership": {"enabled": False},
}
Group = tuple[str, str]


def kinds() -> Mapping[Group, Resource]:
    """Where the seeds' kinds are kept, by API group and kind."""
    found: dict[Group, Resource] = {(known.group, known.kind): known for known in BUILT_IN}
    for seed in seeds():
        group, _, version = str(seed["apiVersion"]).rpartition("/")
        kind = str(seed["kind"])
        found.setdefault((group, kind), Resource(group, version, f"{kind.lower()}s", kind))
    return found


def resource_of(value: Mapping[str, Any]) -> Resource:
    """Where an object is kept."""
    return kinds()[str(value["apiVersion"]).rpartition("/")[0], str(value["kind"])]


def honest_house() -> list[Object]:
    """The honest team's node of 8 GPUs, and its queue, which is entitled to them."""
    allocatable = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "100"}
    node = {"metadata": {"name": HONEST, "labels": {"team": HONEST}}, "status": {"allocatable": allocatable}}
    amounts = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = dict.fromkeys(("cpu", "memory"), amounts) | {"gpu": {**amounts, "quota": 8}}
    queue = {"metadata": {"name": HONEST}, "spec": {"resources": resources}}
    return [
        {"apiVersion": NODES.api_version, "kind": "Node", **node},
        {"apiVersion": QUEUES.api_version, "kind": "Queue", **queue},
    ]


def honest_gang(name: str) -> list[Object]:
    """A PodGroup and its two pods, which fill the honest node and no other."""
    spec = {"queue": HONEST, "minMember": 2, "preemptibility": "non-preemptible"}
    group = {"metadata": {"namespace": HONEST, "name": name}, "spec": spec}
    found: list[Object] = [{"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", **group}]
    for index in range(2):
        metadata = {
            "namespace": HONEST,
            "name": f"{name}-{index}",
            "annotations": {"pod-group-name": name},
            "labels": {"kai.scheduler/queue": HONEST},
        }
        containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]
        asked = {"schedulerName": "kai-scheduler", "nodeSelector": {"team": HONEST}, "containers": containers}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": asked})
    return found


class HostileApi(MemoryApi):
    """An API server that shows whatever it is told to, without a look at it.

    Attributes
    ----------
    mischief
        How often a write fails or is answered by nonsense; the honest team's objects excepted.
    """

    def __init__(self, chance: random.Random) -> None:
        super().__init__(tuple(dict.fromkeys((*BUILT_IN, *kinds().values()))))
        self._chance = chance
        self.mischief = 0.0

    def show(self, resource: Resource, key: str, value: Object) -> None:
        """List ``value`` under ``key`` from now on, and send it to watches."""
        with self._lock:
            self._version += 1
            if isinstance(value.get("metadata"), dict) and self._chance.random() < 0.9:
                value["metadata"]["resourceVersion"] = str(self._version)
            is_known = key in self._objects[resource]
            self._objects[resource][key] = value
            self._tell("MODIFIED" if is_known else "ADDED", resource, value)

    def hide(self, resource: Resource, key: str) -> None:
        """Stop listing what is there under ``key``."""
        with self._lock:
            self._version += 1
            value = self._objects[resource].pop(key, None)
            if value is not None:
                self._tell("DELETED", resource, value)

    def collect(self) -> None:
        """Forget what the controller made for pods that are gone, as a garbage collector does."""
        for resource in (POD_GROUPS, RESOURCE_CLAIMS, CONFIG_MAPS, BIND_REQUESTS):
            for key in list(self._objects[resource]):
                self.hide(resource, key)

    def _tell(self, kind: Any, resource: Resource, value: Object) -> None:
        self._history.append((self._version, resource, WatchEvent(kind, made_again(value))))
        self._news[resource].notify_all()

    def page(self, resource: Resource, **options: Any) -> Page:
        """A page, now and then with items that are no objects."""
        found = super().page(resource, **options)
        if self.mischief and self._chance.random() < self.mischief:
            found.items.extend([None, 1, "x", [], {}])  # type: ignore[list-item]
        return found

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        return self._badly(namespace, lambda: super(HostileApi, self).get(resource, namespace, name))

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        return self._badly(
            namespace, lambda: super(HostileApi, self).create(resource, namespace, body, subresource=subresource)
        )

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
        return self._badly(
            namespace,
            lambda: super(HostileApi, self).patch(resource, namespace, name, body, kind=kind, subresource=subresource),
        )

    def _badly(self, namespace: str, act: Callable[[], Object]) -> Object:
        """The answer, an error, or nonsense. What the object itself makes impossible is refused, as by a server."""
        if namespace != HONEST and self._chance.random() < self.mischief:
            if self._chance.random() < 0.7:
                raise ApiError(self._chance.choice((0, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503)), "Mischief")
            answers: tuple[Object, ...] = ({}, {"metadata": None}, {"kind": "Status"}, {"metadata": {"name": 1}})
            return self._chance.choice(answers)
        try:
            return act()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ApiError(422, "Invalid", str(error)) from error


def made_again(value: Any) -> Any:
    """A copy; `copy.deepcopy` takes four times as long."""
    if isinstance(value, dict):
        return {key: made_again(part) for key, part in value.items()}
    return [made_again(part) for part in value] if isinstance(value, list) else value


class World:
    """A controller at work; `meet` shows it hostile objects and wants an honest gang bound beside them."""

    def __init__(self, seed: int = 0, mischief: float = 0.0, model: str = "greedy-only") -> None:
        self.chance = random.Random(seed)
        self.api = HostileApi(self.chance)
        self.shown = 0
        self._round = 0
        self._failed: list[BaseException] = []
        self._went_well: bool | None = None
        for value in honest_house():
            self.api.create(resource_of(value), "", value)
        self.api.mischief = mischief
        self.controller = Controller(self.api, ControllerSettings(model=model, **SETTINGS))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._went_well = self.controller.run()
        except BaseException as error:  # whatever ends it is what is looked for
            self._failed.append(error)

    def meet(self, values: list[Object], limit_s: float = LIMIT_S) -> None:
        """Show the objects, bind an honest gang beside them, and hide them again.

        Raises
        ------
        AssertionError
            The controller ended, or the gang was not bound within the limit.
        """
        self._round += 1
        self.shown += len(values)
        kept = [(resource_of(value), f"{self._round}/{index}") for index, value in enumerate(values)]
        for (resource, key), value in zip(kept, values, strict=True):
            self.api.show(resource, key, value)
        gang = honest_gang(f"gang-{self._round}")
        for value in gang:
            self.api.create(resource_of(value), HONEST, value)
        names = [str(value["metadata"]["name"]) for value in gang if value["kind"] == "Pod"]
        try:
            self._until(lambda: self._bound(names), limit_s)
        finally:
            for name in names:
                self.api.delete(PODS, HONEST, name, grace_s=0)
            for resource, key in kept:
                self.api.hide(resource, key)
            self.api.collect()

    def _bound(self, names: list[str]) -> bool:
        return all(self.api.get(PODS, HONEST, name)["spec"].get("nodeName") == HONEST for name in names)

    def _until(self, is_so: Callable[[], bool], limit_s: float) -> None:
        ends_s = time.monotonic() + limit_s
        while not is_so():
            self.check()
            assert time.monotonic() < ends_s, f"the honest gang was not bound within {limit_s:.0f} s"
            time.sleep(0.002)
        self.check()

    def check(self) -> None:
        """Raise what ended the controller, where something did."""
        if self._failed:
            raise AssertionError("the controller ended") from self._failed[0]
        assert self._went_well is not False, "the controller ended by itself"
        assert not self.controller.lost, "a part of the controller failed"

    def close(self) -> None:
        """Ask the controller to end; it must."""
        self.controller.stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the controller does not end"


@contextmanager
def world(seed: int = 0, mischief: float = 0.0, model: str = "greedy-only") -> Iterator[World]:
    """A controller at work, ended afterwards."""
    found = World(seed, mischief, model)
    try:
        yield found
    finally:
        found.close()


def crowd(chance: random.Random, count: int) -> list[Recipe]:
    """Recipes of so many objects."""
    return [random_recipe(chance) for _ in range(count)]


def smallest(recipes: list[Recipe], fails: Callable[[list[Recipe]], bool]) -> list[Recipe]:
    """The fewest recipes found that still fail (delta debugging by halves, quarters, eighths)."""
    size = max(1, len(recipes) // 2)
    while True:
        without = [recipes[:start] + recipes[start + size :] for start in range(0, len(recipes), size)]
        kept = next((rest for rest in without if rest and fails(rest)), None)
        if kept is not None:
            recipes = kept
        elif size == 1:
            return recipes
        else:
            size = max(1, size // 2)
        size = min(size, max(1, len(recipes) // 2))


def built(recipes: list[Recipe], seed: int) -> list[Object]:
    """The objects of the recipes, as `meet` takes them."""
    return apart([made(recipe) for recipe in recipes], random.Random(seed))


def named(values: list[Object]) -> str:
    """Which objects, in a few words."""
    return ", ".join(f"{value.get('kind')} {key_of(value)[:60]!r}" for value in values[:5])
