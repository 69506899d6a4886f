"""Queues that are deleted while pods of them run, as KAI is deployed: the pods run on, and it is told."""

from collections.abc import Iterator

import pytest

from kai_solver.cluster.resources import PODS, QUEUES
from kai_solver.controller.gauges import ClusterGauges
from kai_solver.metrics import Metrics
from tests.controller.reporting_world import World


class Cluster(World):
    """Two nodes; a gang and a plain pod of one queue run, another pod of it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = Metrics()
        self.gauges = ClusterGauges(self.metrics, lambda: self.engine.memo.problem)
        for name in ("a", "b"):
            self.node(name)
        for name in ("root", "q", "other"):
            self.queue(name)
        for name in ("q", "other"):
            self.api.patch(QUEUES, "", name, {"spec": {"parentQueue": "root"}})
        self.gang("gang", 1)
        self.pod("plain", gpus=4)
        self.pod("waits", gpus=8)
        self.rounds(2)
        for name in self.bound():
            self.run(name)
        self.rounds(1)
        assert self.bound() == {"gang-0", "plain"}

    def rounds(self, count: int) -> None:
        for _ in range(count):
            cycle = self.cycle()
            self.gauges.cycle(cycle)
            self.told()
            self.see()
            self.now += 60

    def bound(self) -> set[str]:
        items = self.api.page(PODS).items
        gone = {item["metadata"]["name"] for item in items if item["metadata"].get("deletionTimestamp")}
        return {item["metadata"]["name"] for item in items if item["spec"].get("nodeName")} - gone

    def delete_queues(self, *names: str) -> None:
        for name in names:
            self.api.delete(QUEUES, "", name)

    def without(self, queue: str = "q") -> float | None:
        return self.metrics.registry.get_sample_value("kai_solver_pods_without_queue", {"queue": queue})


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    with found.engine:
        yield found


@pytest.mark.parametrize("names", [("q",), ("root",), ("q", "root", "other"), ("root", "other", "q")])
def test_what_runs_runs_on_and_says_that_its_queue_is_gone(cluster: Cluster, names: tuple[str, ...]) -> None:
    assert cluster.without() is None
    cluster.delete_queues(*names)
    cluster.rounds(5)
    assert cluster.bound() == {"gang-0", "plain"}
    assert cluster.without() == 2
    for name in ("gang", "plain"):
        assert "Running pods stay" in cluster.events(name)["QueueMissing"]
    assert "QueueMissing" not in cluster.events("waits")
    assert "does not exist" in cluster.condition("waits")["message"]


def test_it_holds_its_room_and_nothing_takes_it(cluster: Cluster) -> None:
    cluster.delete_queues("q")
    cluster.api.patch(
        QUEUES, "", "other", {"spec": {"resources": {"gpu": {"quota": 16, "limit": -1, "overQuotaWeight": 1}}}}
    )
    cluster.pod("reclaims", gpus=8, queue="other")
    cluster.pod("fits", gpus=4, queue="other")
    cluster.rounds(5)
    assert cluster.bound() == {"gang-0", "plain", "fits"}


def test_it_counts_again_when_its_queue_comes_again(cluster: Cluster) -> None:
    cluster.delete_queues("q")
    cluster.rounds(2)
    cluster.queue("q")
    cluster.rounds(2)
    assert cluster.without() is None
    assert cluster.get(QUEUES, "q")["status"]["allocated"]["nvidia.com/gpu"] == "12"
    cluster.api.delete(PODS, "n", "gang-0", grace_s=0)
    cluster.rounds(2)
    assert "waits" in cluster.bound()


def test_a_queue_that_gets_children_is_told_alike(cluster: Cluster) -> None:
    cluster.queue("child")
    cluster.api.patch(QUEUES, "", "child", {"spec": {"parentQueue": "q"}})
    cluster.rounds(2)
    assert cluster.without() == 2
    assert "not a leaf queue" in cluster.events("gang")["QueueMissing"]
    assert cluster.bound() == {"gang-0", "plain"}
