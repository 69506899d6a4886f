"""Why does this pod wait? Asked of a running controller, answered by its newest decision."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from kai_solver.cluster.api import Object, key_of, meta
from kai_solver.cluster.binding import GangBound
from kai_solver.cluster.resources import PODS
from kai_solver.cluster.store import Store
from kai_solver.controller.loop import Cycle, Evicted
from kai_solver.controller.serving import Answer
from kai_solver.errors import InputError
from kai_solver.explaining import Explainer, find_gang
from kai_solver.kubeobjects import KubeSettings
from kai_solver.kubeobjects.raw import parse_time_s

_SHOWN = 5
_SECOND_S = 1.0
"""Times of creation are in whole seconds."""


@dataclass(slots=True)
class Explaining:
    """A `Reporter` that keeps the newest cycle; explanations are made on request."""

    _cycle: Cycle | None = None
    _explainer: Explainer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def cycle(self, cycle: Cycle) -> None:
        """Keep it."""
        self._cycle = cycle
        self._explainer = None

    def bound(self, outcome: GangBound) -> None:
        """Nothing: bindings show in the next cycle."""

    def evicted(self, evicted: Evicted) -> None:
        """Nothing."""

    def answer(self, query: Mapping[str, str], store: Store, kube: KubeSettings) -> Answer:
        """The explanation of a gang as JSON: of a pod's, or of the one that `find_gang` finds.

        400 where nothing is named or several fit, 404 where there is none or it is not ours to place, 503 where nothing
        was decided about it yet.
        """
        name, cycle = query.get("pod", ""), self._cycle
        if not name:
            return _said(400, "name the pod: /explain?namespace=team-a&pod=train-0")
        if cycle is None:
            return _said(503, "nothing has been decided yet: the first cycle has not ended. Ask again in a moment")
        keys = _keys(store, query.get("namespace", ""), name)
        if len(keys) > 1:
            return _said(400, f"several pods are named {name}: {_list(keys)}")
        if not keys:
            return self._by_name(cycle, "/".join(filter(None, (query.get("namespace", ""), name))))
        gang = next((gang.key for gang in cycle.snapshot.gangs if any(pod.key == keys[0] for pod in gang.pods)), "")
        if not gang:
            return _not_decided(keys[0], store.get(PODS, keys[0]) or {}, cycle, kube)
        return Answer(200, orjson.dumps(self._explain(cycle, gang)), "application/json")

    def _by_name(self, cycle: Cycle, name: str) -> Answer:
        """No pod has this name: a gang or a workload, or the beginning of a name."""
        try:
            gang = find_gang(cycle.snapshot, name)
        except InputError as error:
            return _said(400 if error.problem.startswith("several") else 404, str(error))
        return Answer(200, orjson.dumps(self._explain(cycle, gang.key)), "application/json")

    def _explain(self, cycle: Cycle, gang: str) -> dict[str, object]:
        """One at a time: what is worked out for the first request about a cycle serves the next ones, too."""
        with self._lock:
            explainer = self._explainer
            if explainer is None or explainer.plan is not cycle.plan:
                explainer = self._explainer = Explainer(cycle.snapshot, cycle.plan)
            return explainer.explain(gang).document()


def _keys(store: Store, namespace: str, name: str) -> list[str]:
    """Pods of this name, in this namespace or in any."""
    if namespace:
        return [f"{namespace}/{name}"] if store.get(PODS, f"{namespace}/{name}") is not None else []
    return [key for key in map(key_of, store.all(PODS)) if key.rpartition("/")[2] == name]


def _not_decided(key: str, pod: Object, cycle: Cycle, kube: KubeSettings) -> Answer:
    """It is no pod of a gang that the newest decision was about."""
    scheduler, phase = str(pod.get("spec", {}).get("schedulerName", "")), str(pod.get("status", {}).get("phase", ""))
    if scheduler != kube.scheduler_name:
        return _said(404, f"pod {key} is of the scheduler {scheduler!r}, this one is {kube.scheduler_name!r}")
    if phase in ("Succeeded", "Failed"):
        return _said(404, f"pod {key} has ended: {phase}")
    notice = next((found for found in cycle.snapshot.notices if found.object == f"Pod {key}"), None)
    if notice is not None:
        return _said(404, f"pod {key} is in no gang: {notice.text}")
    made_s = parse_time_s(str(meta(pod).get("creationTimestamp", "")))
    if made_s is not None and made_s < cycle.snapshot.now_s - _SECOND_S:
        pool = f"the node pool {kube.node_pool!r}" if kube.node_pool else "the nodes without a node pool"
        return _said(404, f"pod {key} is not this scheduler's: it, its owner or its PodGroup is not of {pool}")
    return _said(503, f"pod {key} has not been decided yet: it came after cycle {cycle.number}. Ask again in a moment")


def _list(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return ", ".join(sorted(keys)[:_SHOWN]) + more


def _said(status: int, text: str) -> Answer:
    return Answer(status, f"{text}\n".encode())
