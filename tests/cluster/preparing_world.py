"""A cluster in memory whose store keeps up, and time that passes while somebody waits."""

from collections.abc import Callable
from typing import Any

from kai_solver.cluster.api import Object
from kai_solver.cluster.binding import Placement
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.patience import Patience
from kai_solver.cluster.resources import NODES, PODS
from kai_solver.cluster.store import Store
from kai_solver.cluster.view import FIELDS


class World:
    """``while_waiting``: what others do in the meantime, called with the seconds that passed.

    ``sees_from_s``: until then the store sees nothing of what happens while somebody waits.
    """

    def __init__(self, api: MemoryApi | None = None) -> None:
        self.api, self.store = api or MemoryApi(), Store()
        self.now_s = 0.0
        self.sees_from_s = 0.0
        self.leads = True
        self.while_waiting: Callable[[float], Any] = lambda _: None

    def patience(self, limit_s: float) -> Patience:
        return Patience(limit_s, lambda: self.leads, self.sleep, lambda: self.now_s)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.while_waiting(self.now_s)
        if self.now_s >= self.sees_from_s:
            self.see()

    def see(self) -> None:
        """Have the store as the API server is."""
        for kind in FIELDS:
            self.store.replace(kind, self.api.page(kind, limit=10_000).items)

    def node(self, name: str, **labels: str) -> None:
        self.api.create(NODES, "", {"metadata": {"name": name, "labels": labels}, "spec": {}})

    def pod(self, name: str, node: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> Placement:
        """A pod that waits, and its placement on ``node``."""
        body: Object = {"metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}
        made = self.api.create(PODS, "n", body)
        self.see()
        return Placement("n", name, made["metadata"]["uid"], node)

    def bind(self, placement: Placement) -> None:
        target = {"metadata": {"name": placement.name}, "target": {"name": placement.node}}
        self.api.create(PODS, placement.namespace, target, subresource="binding")
        self.see()
