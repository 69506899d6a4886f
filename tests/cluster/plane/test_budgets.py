"""Disruption budgets in the way of reclaim, preempt and consolidation: others go, and who waits is told the budget."""

from collections.abc import Callable
from typing import Any

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import DISRUPTION_BUDGETS, PODS
from tests.cluster.plane.checker import GANG
from tests.cluster.plane.cluster import SPACE, Cluster
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import wait_for


def keep(cluster: Cluster, gang: str, least: int) -> None:
    """A budget for the pods of ``gang``, once the disruption controller has counted them."""
    spec = {"minAvailable": least, "selector": {"matchLabels": {GANG: gang}}}
    cluster.plane.api.create(DISRUPTION_BUDGETS, SPACE, {"metadata": {"name": gang}, "spec": spec})

    def is_counted() -> bool:
        status = cluster.plane.api.get(DISRUPTION_BUDGETS, SPACE, gang).get("status", {})
        healthy: int = status.get("currentHealthy", 0)
        return healthy >= least

    wait_for(f"the budget of {gang} is counted", is_counted)


def uids(cluster: Cluster, prefix: str) -> set[str]:
    return {str(pod["metadata"]["uid"]) for pod in cluster.bound(prefix)}


def gone(cluster: Cluster, pods: set[str], prefix: str) -> None:
    """Wait until none of these ``pods`` is there any more."""
    wait_for(f"those {prefix}* are gone", lambda: not uids(cluster, prefix) & pods)


def named(*prefixes: str) -> Callable[[Object], bool]:
    return lambda pod: str(pod["metadata"]["name"]).startswith(prefixes)


def said(cluster: Cluster, name: str) -> str:
    """What the pod's condition says of why it waits."""
    conditions: list[dict[str, Any]] = cluster.plane.api.get(PODS, SPACE, name)["status"].get("conditions") or []
    return next((str(one.get("message")) for one in conditions if one["type"] == "PodScheduled"), "")


def test_reclaim_takes_others_and_the_last_one_that_waits_is_told_the_budget(make_cluster: Make) -> None:
    cluster = make_cluster(may_leave=named("other"))
    cluster.nodes(1, gpus=4)
    cluster.queues(borrower=0, lender=4)
    cluster.controller()
    cluster.job("other", "borrower", 2)
    cluster.wait_bound(2, "other")
    cluster.job("kept", "borrower", 2)
    cluster.wait_bound(2, "kept")
    keep(cluster, "kept", 2)
    kept, other = uids(cluster, "kept"), uids(cluster, "other")
    cluster.pod("first", "lender", 2)
    cluster.wait_bound(1, "first")
    assert uids(cluster, "kept") == kept
    gone(cluster, other, "other")
    cluster.pod("second", "lender", 2)
    wait_for("it is told the budget", lambda: f"{SPACE}/kept" in said(cluster, "second"))
    assert "Disruption budgets hold pods that could make room" in said(cluster, "second")
    assert uids(cluster, "kept") == kept


def test_preempt_takes_the_older_where_a_budget_holds_the_younger(make_cluster: Make) -> None:
    cluster = make_cluster(may_leave=named("other"))
    cluster.nodes(1, gpus=4)
    cluster.queues(research=4)
    cluster.controller()
    for name in ("other", "kept"):
        cluster.job(name, "research", 2)
        cluster.wait_bound(2, name)
    keep(cluster, "kept", 2)
    kept, other = uids(cluster, "kept"), uids(cluster, "other")
    cluster.pod("high", "research", 2, priority="build")
    cluster.wait_bound(1, "high")
    assert uids(cluster, "kept") == kept
    gone(cluster, other, "other")


def test_consolidation_moves_what_no_budget_holds(make_cluster: Make) -> None:
    cluster = make_cluster(may_leave=named("filler", "loose"))
    cluster.nodes(2, gpus=2)
    cluster.queues(research=4)
    cluster.controller()
    cluster.job("kept", "research", 1)
    cluster.wait_bound(1, "kept")
    cluster.pod("filler", "research")
    cluster.wait_bound(1, "filler")
    cluster.job("loose", "research", 1)
    cluster.wait_bound(1, "loose")
    cluster.plane.api.delete(PODS, SPACE, "filler", grace_s=0)
    keep(cluster, "kept", 1)
    kept, loose = uids(cluster, "kept"), uids(cluster, "loose")
    cluster.pod("large", "research", 2)
    cluster.wait_bound(1, "large")
    cluster.wait_bound(1, "loose")
    assert uids(cluster, "kept") == kept
    gone(cluster, loose, "loose")


def test_of_an_elastic_gang_as_many_leave_as_its_budget_lets_go(make_cluster: Make) -> None:
    cluster = make_cluster(may_leave=named("elastic"))
    cluster.nodes(1, gpus=4)
    cluster.queues(borrower=0, lender=4)
    cluster.controller()
    cluster.job("elastic", "borrower", 4, least=1)
    cluster.wait_bound(4, "elastic")
    keep(cluster, "elastic", 3)
    before = uids(cluster, "elastic")
    cluster.pod("first", "lender")
    cluster.wait_bound(1, "first")
    wait_for("one of them is gone", lambda: len(uids(cluster, "elastic") & before) == 3)
    cluster.pod("second", "lender")
    assert cluster.stays_pending("second")
    assert len(uids(cluster, "elastic") & before) == 3
