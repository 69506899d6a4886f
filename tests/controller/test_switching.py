"""Lines of the table in docs/switching-from-kai.md that no test on the control plane shows."""

from typing import Any

import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.binding import GangBound
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import (
    EVENTS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    POD_GROUPS,
    PODS,
    SCHEDULING_SHARDS,
    Resource,
)
from kai_solver.controller.loop import Cycle, Evicted
from kai_solver.controller.reporting import noticed
from tests.controller.replicas import bound, cluster, running, until

GPU = "nvidia.com/gpu"


def node(api: MemoryApi, name: str, amounts: dict[str, str], **labels: str) -> None:
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "100", **amounts}
    named = {"name": name, "labels": {key.replace("__", "/"): value for key, value in labels.items()}}
    api.create(NODES, "", {"metadata": named, "spec": {}, "status": {"allocatable": allocatable}})


def pod(
    api: MemoryApi,
    name: str,
    limits: dict[str, str] | None = None,
    group: str = "",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    status: Object | None = None,
    **spec: Any,
) -> None:
    container = {"name": "c", "resources": {"limits": {GPU: "1"} if limits is None else limits}}
    stated = {**(annotations or {}), **({"pod-group-name": group} if group else {})}
    metadata = {"name": name, "labels": {"kai.scheduler/queue": "q", **(labels or {})}, "annotations": stated}
    body = {"schedulerName": "kai-scheduler", "containers": [container], **spec}
    api.create(PODS, "n", {"metadata": metadata, "spec": body, **({"status": status} if status else {})})


def home(api: MemoryApi, name: str) -> str:
    return str(api.get(PODS, "n", name)["spec"]["nodeName"])


def why(api: MemoryApi, name: str) -> str:
    """What the condition of a pod that waits says."""
    conditions = api.get(PODS, "n", name).get("status", {}).get("conditions") or ()
    return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")


def events(api: MemoryApi, kind: Resource) -> str:
    return "\n".join(one["message"] for one in api.page(EVENTS).items if one["involvedObject"]["kind"] == kind.kind)


def test_a_stale_gang_is_evicted_when_its_grace_is_over() -> None:
    api = cluster()
    fields = {"queue": "q", "minMember": 2, "stalenessGracePeriod": "1s"}
    api.create(POD_GROUPS, "n", {"metadata": {"name": "g"}, "spec": fields})
    pod(api, "half", group="g", status={"phase": "Running"}, nodeName="a", terminationGracePeriodSeconds=0)
    with running(api, idle=3600.0):

        def leaves() -> bool:
            found = api.page(PODS).items
            return not found or bool(found[0]["metadata"].get("deletionTimestamp"))

        until(leaves)


def test_a_gated_pod_waits_until_its_gates_are_gone() -> None:
    api = cluster()
    pod(api, "gated", schedulingGates=[{"name": "example.org/gate"}])
    pod(api, "free")
    with running(api):
        until(lambda: bound(api) == {"free"})
        api.patch(PODS, "n", "gated", {"spec": {"schedulingGates": None}})
        until(lambda: bound(api) == {"free", "gated"})


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"queueDepthPerAction": {"reclaim": 5}}, "spec.queueDepthPerAction.reclaim"),
        ({"args": {"schedule-csi-storage": "true"}}, "spec.args.schedule-csi-storage"),
        ({"scenarioSearchBudgets": {"maxJobSearchDuration": "1m"}}, "spec.scenarioSearchBudgets.maxJobSearchDuration"),
        ({"usageDBConfig": {"clientType": "other"}}, "spec.usageDBConfig.clientType"),
    ],
)
def test_what_is_not_honoured_of_a_shard_is_an_event_of_it(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any], field: str
) -> None:
    monkeypatch.setattr(noticed, "STANDS_S", 0.0)
    api = cluster()
    api.create(SCHEDULING_SHARDS, "", {"metadata": {"name": "default"}, "spec": spec})
    pod(api, "p")
    with running(api):
        until(lambda: f"not honoured yet: {field}" in events(api, SCHEDULING_SHARDS))
        until(lambda: bound(api) == {"p"})


def test_semi_preemptible_work_goes_by_its_priority_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noticed, "STANDS_S", 0.0)
    api = cluster()
    fields = {"queue": "q", "minMember": 1, "preemptibility": "semi-preemptible"}
    api.create(POD_GROUPS, "n", {"metadata": {"name": "g"}, "spec": fields})
    pod(api, "p", group="g")
    with running(api):
        until(lambda: "semi-preemptible" in events(api, POD_GROUPS))
        until(lambda: bound(api) == {"p"})


def test_a_nominated_node_is_preferred() -> None:
    api = cluster()
    node(api, "b", {GPU: "8"})
    pod(api, "first", status={"phase": "Running"}, nodeName="a")
    pod(api, "second", status={"phase": "Pending", "nominatedNodeName": "b"})
    with running(api):
        until(lambda: bound(api) == {"first", "second"})
    assert home(api, "second") == "b", "without it both would be packed on one node"


def test_a_pod_lies_within_one_numa_zone_where_the_node_wants_it() -> None:
    api = cluster()
    amounts = [{"name": "cpu", "capacity": "8", "allocatable": "8", "available": "8"}]
    zones = [{"name": f"node-{number}", "type": "Node", "resources": amounts} for number in range(2)]
    attributes = [
        {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        {"name": "topologyManagerScope", "value": "pod"},
    ]
    body = {"metadata": {"name": "a"}, "zones": zones, "attributes": attributes}
    api.create(NODE_RESOURCE_TOPOLOGIES, "", body)
    pod(api, "fits", {"cpu": "8", "memory": "1Gi"})
    pod(api, "wide", {"cpu": "12", "memory": "1Gi"})
    with running(api):
        until(lambda: bound(api) == {"fits"})
        until(lambda: "NUMA" in why(api, "wide"))


@pytest.mark.parametrize(
    ("strategy", "offered", "asked", "number"),
    [
        ("mixed", {"nvidia.com/mig-1g.5gb": "2"}, {"nvidia.com/mig-1g.5gb": "1"}, 2),
        ("single", {GPU: "2"}, {GPU: "1"}, 2),
    ],
)
def test_slices_of_gpus_are_placed(strategy: str, offered: dict[str, str], asked: dict[str, str], number: int) -> None:
    api = cluster()
    node(api, "mig", offered, nvidia__com=strategy, **{"nvidia.com__mig.strategy": strategy})
    for index in range(number + 1):
        pod(api, f"p{index}", asked, nodeSelector={"nvidia.com/mig.strategy": strategy})
    with running(api):
        until(lambda: len(bound(api)) == number)
        (late,) = {f"p{index}" for index in range(number + 1)} - bound(api)
        until(lambda: why(api, late) != "")


def test_time_sliced_replicas_are_paid_as_parts_of_a_gpu() -> None:
    api = cluster()
    replicas = {"nvidia.com__gpu.replicas": "4", "nvidia.com__gpu.sharing-strategy": "time-slicing"}
    node(api, "sliced", {"nvidia.com/gpu.shared": "4"}, **replicas)
    pod(api, "p", {"nvidia.com/gpu.shared": "1"})
    with running(api) as replica:
        until(lambda: bound(api) == {"p"})
        read = replica.metrics.registry.get_sample_value
        labels = {"queue_name": "q", "queue_metadata_name": "q", "queue_display_name": ""}
        until(lambda: read("kai_queue_allocated_gpus", labels) == 0.25)
    assert home(api, "p") == "sliced"


class Notes:
    """Pods that plans place, by node."""

    def __init__(self) -> None:
        self.homes: dict[str, str] = {}

    def cycle(self, cycle: Cycle) -> None:
        self.homes |= {bind.pod: bind.node for bind in cycle.plan.binds}

    def bound(self, outcome: GangBound) -> None: ...

    def evicted(self, evicted: Evicted) -> None: ...


def test_mps_changes_no_decision() -> None:
    api, notes = cluster(), Notes()
    shared = {"gpu-fraction": "0.5"}
    pod(api, "plain", {}, annotations=shared)
    pod(api, "with", {}, annotations={**shared, "mps": "true"})
    with running(api, (notes,), dry_run=True):
        until(lambda: notes.homes == {"n/plain": "a", "n/with": "a"})
