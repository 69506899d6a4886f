"""Numbered faults of those who are to leave: one that nobody may evict, one that never comes back."""

from typing import Any

import pytest

from kai_solver.cluster import promises
from kai_solver.cluster.resources import CONFIG_MAPS, DISRUPTION_BUDGETS, JOBS, PODS
from tests.cluster.plane.checker import GANG
from tests.cluster.plane.cluster import SPACE, Cluster, ensure_gone, pod
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.inside import inside
from tests.cluster.plane.plane import wait_for
from tests.cluster.plane.proxy import Fault

LONG_S = 150.0


def waits_because(cluster: Cluster, name: str) -> dict[str, Any]:
    """The condition of a pod that has no place."""
    for found in cluster.names(name)[:1]:
        status = cluster.plane.api.get(PODS, SPACE, found).get("status", {})
        return next((one for one in status.get("conditions") or () if one["type"] == "PodScheduled"), {})
    return {}


def kept(cluster: Cluster) -> None:
    """Two pods that another queue has a right to, one GPU free beside them."""
    cluster.nodes(1, gpus=3)
    cluster.queues(borrower=0, lender=3)
    cluster.job("kept", "borrower", 2, least=1)
    for index in range(2):
        wait_for("its pods are there", lambda: len(cluster.names("kept")) == 2)
        cluster.bind(cluster.names("kept")[index], "node-0")
    cluster.wait_bound(2, "kept")


def budget(cluster: Cluster) -> None:
    """Nobody of them may go."""
    spec = {"minAvailable": 2, "selector": {"matchLabels": {GANG: "kept"}}}
    cluster.plane.api.create(DISRUPTION_BUDGETS, SPACE, {"metadata": {"name": "kept"}, "spec": spec})
    wait_for(
        "the budget is counted",
        lambda: "disruptionsAllowed" in cluster.plane.api.get(DISRUPTION_BUDGETS, SPACE, "kept").get("status", {}),
    )


def refused(method: str, path: str) -> Fault | None:
    """What a budget that nobody foresaw says; or a webhook."""
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    return Fault(429, message=text) if path.endswith("/eviction") else None


@pytest.mark.parametrize("foreseen", [True, False], ids=["18-by-a-budget", "18b-by-the-server-alone"])
def test_an_eviction_refused_for_ever(make_cluster: Make, foreseen: bool) -> None:
    """Who waits for it holds nothing for ever: others go on, and it is told why it waits."""
    cluster = make_cluster()
    kept(cluster)
    if foreseen:
        budget(cluster)
    cluster.controller(proxied=True)
    cluster.proxies[-1].rule = (lambda method, path: None) if foreseen else refused
    cluster.job("preemptor", "lender", 2)
    wait_for("it hears why it waits", lambda: waits_because(cluster, "preemptor").get("status") == "False")
    if not foreseen:
        wait_for("the server refused", lambda: cluster.proxies[-1].faults["429"] > 0)
    cluster.pod("other", "lender")
    cluster.wait_bound(1, "other", limit_s=LONG_S)
    assert len(cluster.bound("kept")) == 2
    assert waits_because(cluster, "preemptor")["message"]
    cluster.node("node-1", 2)
    cluster.wait_bound(2, "preemptor", limit_s=LONG_S)


def owned(cluster: Cluster, name: str) -> None:
    """A pod of 4 GPUs with a controller that does not replace it."""
    owner = cluster.plane.api.create(CONFIG_MAPS, SPACE, {"metadata": {"name": name}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"]}
    made = pod(name, "research", gpus=4)
    made["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    cluster.plane.api.create(PODS, SPACE, made)


def test_20_a_moved_pod_never_comes_back(make_cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept for it goes to others, and not before its time (15 s here, not a minute)."""
    monkeypatch.setattr(promises, "COMES_WITHIN_S", 15.0)
    cluster = make_cluster(may_leave=lambda found: found["metadata"]["name"].startswith("moved"))
    cluster.nodes(2)
    cluster.queues(research=16)
    for index in range(2):
        owned(cluster, f"moved-{index}")
        cluster.bind(f"moved-{index}", f"node-{index}")
    cluster.wait_bound(2)
    with inside(cluster):
        cluster.job("whole", "research", 1, gpus=8)
        cluster.wait_bound(1, "whole", limit_s=LONG_S)
        assert len(cluster.names("moved")) == 1, "nobody makes the other one anew"
        cluster.pod("next", "research", gpus=4)
        assert cluster.stays_pending("next")
        cluster.wait_bound(1, "next", limit_s=LONG_S)


def test_the_place_of_a_moved_pod_is_free_once_its_owner_is_gone(make_cluster: Make) -> None:
    """Its successor ran there for a moment only, perhaps between two cycles; what comes then has the place at once."""
    cluster = make_cluster(may_leave=lambda found: found["metadata"]["name"].startswith("half"))
    cluster.nodes(2)
    cluster.queues(research=16)
    for index in range(2):
        cluster.job(f"half-{index}", "research", 1, gpus=4)
        wait_for("its pod is there", lambda index=index: len(cluster.names(f"half-{index}")) == 1)  # type: ignore[misc]
        cluster.bind(cluster.names(f"half-{index}")[0], f"node-{index}")
    cluster.wait_bound(2, "half")
    with inside(cluster):
        cluster.job("whole", "research", 1, gpus=8)
        cluster.wait_bound(1, "whole", limit_s=LONG_S)
        cluster.wait_bound(2, "half")
        for index in range(2):
            cluster.plane.api.delete(JOBS, SPACE, f"half-{index}")
        for name in cluster.names("half"):
            ensure_gone(cluster.plane, PODS, SPACE, name, grace_s=0)
        cluster.pod("next", "research", gpus=8)
        cluster.wait_bound(1, "next", limit_s=promises.COMES_WITHIN_S / 2)


def test_a_pod_without_a_controller_is_not_moved(make_cluster: Make) -> None:
    """It would be lost. The gang that needs the room waits, and is bound once there is other room."""
    cluster = make_cluster()
    cluster.nodes(2)
    cluster.queues(research=16)
    for index in range(2):
        cluster.pod(f"bare-{index}", "research", gpus=4)
        cluster.bind(f"bare-{index}", f"node-{index}")
    cluster.wait_bound(2)
    with inside(cluster):
        cluster.pod("whole", "research", gpus=8)
        assert cluster.stays_pending("whole")
        assert len(cluster.bound("bare")) == 2
        cluster.node("node-2", 8)
        cluster.wait_bound(1, "whole", limit_s=LONG_S)
    assert len(cluster.bound("bare")) == 2
