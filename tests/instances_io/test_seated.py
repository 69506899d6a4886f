"""What is written as a KAI snapshot has what a running KAI's has: keys, plugins, groups of shared devices, uids."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from kai_solver.domain import Pod, PodStatus, Snapshot
from kai_solver.instances_io import load_instance
from kai_solver.instances_io.seated import kai_archive, seated
from kai_solver.kubeobjects import (
    KubeSettings,
    load_kai_snapshot,
    snapshot_from_objects,
)
from tests.support.builders import a_cluster, a_gang, a_node, a_pod

REAL = Path(__file__).parents[2] / "instances" / "kai-snapshots" / "before-reclaim.zip"
CLAIMS = Path(__file__).parents[2] / "instances" / "features" / "claims-each-gets-a-device-that-matches.yaml"
ZONES = Path(__file__).parents[2] / "instances" / "features" / "numa-one-zone-takes-it.yaml"


def document(archive: bytes) -> dict[str, Any]:
    found = json.loads(zipfile.ZipFile(io.BytesIO(archive)).read("snapshot.json"))
    assert isinstance(found, dict)
    return found


def written(snapshot: Snapshot) -> dict[str, Any]:
    return document(kai_archive(snapshot))


def test_it_has_the_keys_parameters_and_plugins_of_a_real_one() -> None:
    real = document(REAL.read_bytes())
    ours = written(load_instance(REAL).snapshot)
    assert real.keys() <= ours.keys()
    for part in ("config", "schedulerParams", "rawObjects"):
        assert real[part].keys() <= ours[part].keys()
    plugins = [[plugin["name"] for plugin in found["config"]["tiers"][0]["plugins"]] for found in (real, ours)]
    assert plugins[1] == plugins[0]
    for name in ("useSchedulingSignatures", "numOfStatusRecordingWorkers", "schedulePeriod"):
        assert ours["schedulerParams"][name] == real["schedulerParams"][name]
    assert ours["config"]["scenarioSearchBudgets"] == real["config"]["scenarioSearchBudgets"]


def test_it_says_that_the_cluster_serves_claims() -> None:
    """KAI's tool asks the version and the group first, and decides without claims where it finds none."""
    real, ours = document(REAL.read_bytes())["discovery"], written(load_instance(REAL).snapshot)["discovery"]
    for name in ("major", "minor"):
        assert ours["serverVersion"][name] == real["serverVersion"][name]
    served = [
        {
            group["groupVersion"]: {kind["name"]: kind["kind"] for kind in group["resources"]}
            for group in found["resources"]
            if group["groupVersion"].startswith("resource.k8s.io/")
        }
        for found in (real, ours)
    ]
    assert served[1].keys() == served[0].keys()
    for group, kinds in served[1].items():
        assert kinds.items() <= served[0][group].items()


def test_pools_of_devices_are_complete() -> None:
    """As the API server asks: a scheduler leaves a pool alone that may lack slices."""
    found = written(load_instance(CLAIMS).snapshot)["rawObjects"]["resourceSlices"]
    pools = [(slice_["spec"]["driver"], slice_["spec"]["pool"]["name"]) for slice_ in found]
    assert pools
    for slice_, pool in zip(found, pools, strict=True):
        assert slice_["spec"]["pool"]["resourceSliceCount"] == pools.count(pool)


def test_zones_alone_turn_their_plugin_on() -> None:
    found = written(load_instance(ZONES).snapshot)
    assert found["rawObjects"]["nodeResourceTopologies"]
    assert "numa" in {plugin["name"] for plugin in found["config"]["tiers"][0]["plugins"]}


def shared(name: str, milli: int, on: str = "n0", **more: Any) -> Pod:
    return a_pod(name, on=on, milli=milli, **more)


def a_shared_node() -> Snapshot:
    """Two devices: a whole one is taken, three pods share the other, and a pod waits."""
    parts = [shared("a", 500), shared("b", 300), shared("c", 200, status=PodStatus.BINDING), a_pod("whole", on="n0")]
    gangs = [a_gang(part.name, part) for part in parts]
    return a_cluster([a_node("n0", 2), a_node("n1", 2)], [*gangs, a_gang("late", shared("late", 500, on=""))])


def test_pods_on_one_device_have_its_group_and_a_reservation_pod_holds_it() -> None:
    found = written(a_shared_node())["rawObjects"]
    pods = {pod["metadata"]["name"]: pod for pod in found["pods"]}
    groups = {name: pod["metadata"]["labels"].get("runai-gpu-group") for name, pod in pods.items()}
    group = groups["a"]
    assert group
    assert (groups["b"], groups["c"], groups["whole"], groups["late"]) == (group, None, None, None)
    (request,) = found["bindRequests"]
    assert request["spec"]["selectedGPUGroups"] == [group], "a pod that is being bound has no label yet"
    assert request["spec"]["receivedResourceType"] == "Fraction"
    received = {
        name: pod["metadata"].get("annotations", {}).get("received-resource-type") for name, pod in pods.items()
    }
    assert (received["a"], received["whole"], received["late"]) == ("Fraction", "Regular", None)
    (reserved,) = (pod for pod in pods.values() if pod["metadata"]["namespace"] == "kai-resource-reservation")
    assert (reserved["metadata"]["labels"]["runai-gpu-group"], reserved["spec"]["nodeName"]) == (group, "n0")


def test_every_pod_and_gang_has_a_uid_and_the_same_one_each_time() -> None:
    nameless = a_shared_node()
    pods = [
        replace(gang, uid="", pods=tuple(replace(p, order=(0, 0.0, "")) for p in gang.pods)) for gang in nameless.gangs
    ]
    first, second = (written(replace(nameless, gangs=tuple(pods)))["rawObjects"] for _ in range(2))
    assert first == second
    uids = [item["metadata"]["uid"] for kind in ("pods", "podGroups") for item in first[kind]]
    assert all(uids)
    assert len(set(uids)) == len(uids)


def test_read_again_it_is_the_same_cluster() -> None:
    before = seated(a_shared_node())
    settings = KubeSettings(policy=before.policy)
    objects, read, _ = load_kai_snapshot(written(before))
    found = snapshot_from_objects(objects, now_s=before.now_s, settings=read)
    pods = [
        {pod.key: (pod.node, pod.status, pod.gpu, pod.gpu_groups) for gang in one.gangs for pod in gang.pods}
        for one in (before, found)
    ]
    assert pods[0] == pods[1]
    assert not found.foreign, "reservation pods are no load of others"
    assert read.policy == settings.policy
