"""NUMA zones in Kubernetes objects: NodeResourceTopology, where pods sit, what of them is aligned; and back."""

import json
from typing import Any

import pytest

from kai_solver.domain import NumaTopology, Pod, Snapshot, ZoneShare
from kai_solver.kubeobjects import RawObjects, load_kai_snapshot, snapshot_from_objects
from kai_solver.kubeobjects.export import objects_from_snapshot
from kai_solver.units import CPU, GPU

NOW_S = 1_700_000_000.0
OBSERVED, PREDICTED = "kai.scheduler/numa-placement-observed", "kai.scheduler/numa-placement-predicted"


def node(name: str = "n") -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return {"metadata": {"name": name}, "status": {"allocatable": amounts}}


def zones(name: str = "n", **more: Any) -> dict[str, Any]:
    def zone(number: int) -> dict[str, Any]:
        resources = [
            {"name": "cpu", "capacity": "32", "allocatable": "30", "available": "3"},
            {"name": "nvidia.com/gpu", "capacity": "4", "allocatable": "4", "available": "1"},
        ]
        return {"name": f"node-{number}", "type": "Node", "resources": resources}

    attributes = [
        {"name": "topologyManagerPolicy", "value": "restricted"},
        {"name": "topologyManagerScope", "value": "pod"},
    ]
    socket = {"name": "socket-0", "type": "Socket"}
    made = {"metadata": {"name": name}, "attributes": attributes, "zones": [zone(10), socket, zone(2)]}
    return made | more


def pod(**more: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": resources}]}
    made = {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec, "status": {"phase": "Pending"}}
    return made | more


def on_node(annotations: dict[str, str]) -> dict[str, Any]:
    made = pod(status={"phase": "Running"})
    return made | {
        "spec": made["spec"] | {"nodeName": "n"},
        "metadata": made["metadata"] | {"annotations": annotations},
    }


def read(*objects: Any, pods: tuple[Any, ...] = (), other: tuple[Any, ...] = (), **more: Any) -> Snapshot:
    raw = RawObjects(nodes=(node(),), node_resource_topologies=objects, pods=pods, other=other, **more)
    return snapshot_from_objects(raw, now_s=NOW_S)


def numa(snapshot: Snapshot) -> NumaTopology:
    found = snapshot.nodes[0].numa
    assert found is not None
    return found


def only_pod(snapshot: Snapshot) -> Pod:
    (found,) = (pod for gang in snapshot.gangs for pod in gang.pods)
    return found


def record(**zone_cpu: str) -> str:
    return json.dumps([{"zone": zone.replace("_", "-"), "amount": {"cpu": cpu}} for zone, cpu in zone_cpu.items()])


def test_zones_of_type_node_in_the_order_of_their_numbers() -> None:
    found = numa(read(zones()))
    assert (found.policy, found.scope) == ("restricted", "pod")
    assert [(zone.name, zone.allocatable[CPU], zone.allocatable[GPU]) for zone in found.zones] == [
        ("node-2", 30_000, 4000),
        ("node-10", 30_000, 4000),
    ]
    assert all(zone.available is None for zone in found.zones)


@pytest.mark.parametrize(
    ("legacy", "policy", "scope"),
    [
        ("SingleNUMANodePodLevel", "single-numa-node", "pod"),
        ("SingleNUMANodeContainerLevel", "single-numa-node", "container"),
        ("RestrictedPodLevel", "restricted", "pod"),
        ("BestEffort", "best-effort", "container"),
        ("Unheard", "none", "container"),
    ],
)
def test_the_older_field_names_policy_and_scope_at_once(legacy: str, policy: str, scope: str) -> None:
    found = numa(read(zones(attributes=[], topologyPolicies=[legacy])))
    assert (found.policy, found.scope) == (policy, scope)


def test_a_broken_object_is_set_aside() -> None:
    snapshot = read(
        zones(zones=[{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "allocatable": "x"}]}])
    )
    assert snapshot.nodes[0].numa is None
    (notice,) = (n for n in snapshot.notices if n.object == "NodeResourceTopology n")
    assert notice.kind == "set-aside"


def test_where_a_pod_sits_is_as_observed_else_as_bound_else_as_predicted() -> None:
    both = on_node({OBSERVED: record(node_2="2"), PREDICTED: record(node_10="2")})
    assert only_pod(read(zones(), pods=(both,))).zones == (ZoneShare("node-2", (("cpu", 2000),)),)
    predicted = on_node({PREDICTED: record(node_10="2")})
    assert only_pod(read(zones(), pods=(predicted,))).zones == (ZoneShare("node-10", (("cpu", 2000),)),)
    bound = {"podName": "p", "selectedNode": "n", "predictedNUMAZones": [{"zone": "node-2", "amount": {"cpu": "2"}}]}
    request = {"metadata": {"name": "p", "namespace": "ns"}, "spec": bound}
    assert only_pod(read(zones(), pods=(pod(),), bind_requests=(request,))).zones[0].zone == "node-2"


@pytest.mark.parametrize("text", ["{", "{}", '[{"zone": 1}]', '[{"zone": "node-2", "amount": {"cpu": "-1"}}]', "[[]]"])
def test_a_record_that_cannot_be_read_is_told_and_nothing_is_known(text: str) -> None:
    snapshot = read(zones(), pods=(on_node({OBSERVED: text}),))
    assert only_pod(snapshot).zones == ()
    assert any("its NUMA zones are not known" in n.text for n in snapshot.notices)


def test_quality_of_service_as_stated_else_as_limits_say() -> None:
    assert only_pod(read(zones(), pods=(pod(),))).guaranteed
    assert not only_pod(read(zones(), pods=(pod(status={"phase": "Pending", "qosClass": "Burstable"}),))).guaranteed
    loose = pod(spec={"schedulerName": "kai-scheduler", "containers": [{"resources": {"requests": {"cpu": "2"}}}]})
    assert not only_pod(read(zones(), pods=(loose,))).guaranteed


def test_containers_are_kept_where_there_are_several() -> None:
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
    spec = {
        "schedulerName": "kai-scheduler",
        "initContainers": [
            {"name": "a", "resources": resources},
            {"name": "b", "resources": resources, "restartPolicy": "Always"},
        ],
        "containers": [{"name": "c", "resources": resources}],
    }
    found = only_pod(read(zones(), pods=(pod(spec=spec),))).containers
    assert [container.role for container in found] == ["init", "sidecar", "app"]
    assert found[0].request[CPU] == 1000


def shard(**numa_plugin: Any) -> dict[str, Any]:
    spec = {"plugins": {"numa": numa_plugin}}
    return {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "s"}, "spec": spec}


def test_a_shard_switches_zones_off_leaves_resources_out_or_trusts_what_is_reported() -> None:
    assert read(zones(), other=(shard(enabled=False),)).nodes[0].numa is None
    assert numa(read(zones(), other=(shard(arguments={"ignoreList": "cpu"}),))).resources == (GPU,)
    trusting = numa(read(zones(), other=(shard(arguments={"reconstructAvailable": "false"}),)))
    assert [zone.available[CPU] for zone in trusting.zones if zone.available is not None] == [3000, 3000]


@pytest.mark.parametrize(("plugins", "heeded"), [(["numa", "proportion"], True), (["proportion"], False)])
def test_a_kai_snapshot_says_by_its_plugins_whether_zones_are_heeded(plugins: list[str], heeded: bool) -> None:
    document = {
        "config": {"actions": "allocate", "tiers": [{"plugins": [{"name": name} for name in plugins]}]},
        "schedulerParams": {"schedulerName": "kai-scheduler"},
        "rawObjects": {"nodes": [node()], "nodeResourceTopologies": [zones()]},
    }
    objects, settings, now_s = load_kai_snapshot(document)
    snapshot = snapshot_from_objects(objects, now_s=now_s, settings=settings)
    assert (snapshot.nodes[0].numa is not None) == heeded


def test_an_export_reads_back_the_same() -> None:
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
    two = pod(spec=pod()["spec"] | {"containers": [{"resources": resources}, {"resources": resources}]})
    two["metadata"] = {"name": "two", "namespace": "ns"}
    first = read(zones(), pods=(on_node({OBSERVED: record(node_2="2")}), two))
    again = snapshot_from_objects(objects_from_snapshot(first), now_s=NOW_S)

    def zones_and_pods(snapshot: Snapshot) -> tuple[Any, ...]:
        pods = sorted((p.key, p.guaranteed, p.zones, p.containers) for gang in snapshot.gangs for p in gang.pods)
        return numa(snapshot), pods

    assert zones_and_pods(again) == zones_and_pods(first)
