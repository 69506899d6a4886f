"""Clusters with nodes that are to be drained, for the tests of maintenance."""

from dataclasses import replace
from typing import Any

from kai_solver.check import check_plan
from kai_solver.domain import Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model

MODELS = ("greedy-only", "deterministic")
HOUR_S = 3600.0
LEAD_S = 630.0
"""Pods move so long before a drain: the default of the policy, and Kubernetes' of the time to end."""


def a_cluster(
    *gangs: dict[str, Any], drains: tuple[Any, ...] = (HOUR_S,), gpus: int = 2, rack: int = 0, **more: Any
) -> Snapshot:
    """A node for each of ``drains``: in so many seconds it is drained; None: never. ``rack``: nodes of one rack."""
    labels = [{"labels": {"rack": f"r{i // rack}"}} if rack else {} for i in range(len(drains))]
    topologies = {"topologies": [{"name": "t", "levels": ["rack"]}]} if rack else {}
    snapshot = snapshot_from_native(
        {
            "format": "kai-solver/v1",
            "nodes": [{"name": f"n{i}", "gpus": gpus, **labels[i]} for i in range(len(drains))],
            "queues": [{"name": "q", "quota": 99}],
            "gangs": list(gangs),
        }
        | topologies
        | more
    )
    at_s = [None if drain is None else snapshot.now_s + drain for drain in drains]
    nodes = (replace(node, drain_at_s=s) for node, s in zip(snapshot.nodes, at_s, strict=True))
    return replace(snapshot, nodes=tuple(nodes))


def a_gang(name: str, run_time: str = "", *, at: str = "", pods: int = 1, gpus: int = 1, **more: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"gpus": gpus, "replicas": pods} | ({"running": {at: pods}} if at else {})
    return {"name": name, "queue": "q", "pods": [entry | ({"runTime": run_time} if run_time else {})]} | more


def plan_of(snapshot: Snapshot, model: str = "greedy-only") -> Plan:
    plan = cycle(snapshot, load_model(model))
    assert check_plan(snapshot, plan) == ()
    assert not any("checker" in note or "error" in note for note in plan.notes)
    return plan
