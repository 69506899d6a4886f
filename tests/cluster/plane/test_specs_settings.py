"""KAI's specs of cluster-wide settings: changed while our controller runs, on the objects of KAI's operator."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kai_solver.cluster.resources import EVENTS, PODS, SCHEDULING_SHARDS
from tests.cluster.plane.agents import GROUP
from tests.cluster.plane.cluster import Cluster, pod
from tests.cluster.plane.plane import Plane, wait_for
from tests.cluster.plane.specs import CPU_WORKER, LIMIT_S, WORKERS, Spec, spec_of, specs, stocked

VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def cluster(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with stocked(plane, tmp_path_factory.mktemp("settings")) as found:
        yield found


NUMBERS = itertools.count()


@pytest.fixture
def spec(cluster: Cluster) -> Iterator[Spec]:
    yield from spec_of(cluster, NUMBERS)


# -- placement strategy ------------------------------------------------------------------------------------------------


@specs("Placement strategy / Bin Packing / Schedule on same node")
def test_binpack_puts_pods_on_one_node(spec: Spec) -> None:
    queue = spec.queue()
    first = spec.nodes_of(spec.pod("a", queue))
    assert spec.nodes_of(spec.pod("b", queue)) == first


@specs("Placement strategy / Bin Packing / Schedule on same GPU")
def test_binpack_puts_halves_on_one_gpu(spec: Spec) -> None:
    queue = spec.queue()
    spec.wait_placed(first := spec.share("a", queue, "0.5"))
    spec.wait_placed(second := spec.share("b", queue, "0.5"))
    assert group_of(spec, first) == group_of(spec, second)


def group_of(spec: Spec, name: str) -> str:
    return str(spec.pod_of(name)["metadata"]["labels"][GROUP])


@specs("Placement strategy / Spreading / Schedule on different nodes")
def test_spread_puts_pods_on_different_nodes(spec: Spec) -> None:
    spec.shard(placementStrategy={"gpu": "spread", "cpu": "spread"})
    queue = spec.queue()
    first = spec.nodes_of(spec.pod("a", queue))
    assert spec.nodes_of(spec.pod("b", queue)) != first


@specs("Placement strategy / Spreading / Schedule on different nodes - fractions")
def test_spread_puts_halves_on_different_nodes(spec: Spec) -> None:
    spec.shard(placementStrategy={"gpu": "spread", "cpu": "spread"})
    queue = spec.queue()
    first = spec.nodes_of(spec.share("a", queue, "0.5"))
    assert spec.nodes_of(spec.share("b", queue, "0.5")) != first


@specs("Placement strategy / Spreading / Schedule on different gpus")
def test_spread_puts_halves_on_different_gpus_of_a_node(spec: Spec) -> None:
    spec.shard(placementStrategy={"gpu": "spread", "cpu": "spread"})
    queue, node = spec.queue(), {"kubernetes.io/hostname": WORKERS[0]}
    spec.wait_placed(first := spec.share("a", queue, "0.5", nodeSelector=node))
    spec.wait_placed(second := spec.share("b", queue, "0.5", nodeSelector=node))
    assert group_of(spec, first) != group_of(spec, second)


# -- restricted nodes --------------------------------------------------------------------------------------------------


@specs(
    "Restrict node scheduling / CPU worker node / Not scheduling GPU pod",
    "Restrict node scheduling / CPU worker node / Scheduling cpu pod",
    "Restrict node scheduling / GPU worker node / Not scheduling cpu pod",
    "Restrict node scheduling / GPU worker node / Scheduling GPU pod",
)
@pytest.mark.parametrize(
    ("role", "gpus", "is_placed"),
    [("cpu-worker", 1, False), ("cpu-worker", 0, True), ("gpu-worker", 0, False), ("gpu-worker", 1, True)],
)
def test_restricted_nodes_take_pods_of_their_kind(spec: Spec, role: str, gpus: int, is_placed: bool) -> None:
    spec.shard(args={"restrict-node-scheduling": "true"})
    terms = [{"matchExpressions": [{"key": f"node-role.kubernetes.io/{role}", "operator": "Exists"}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    name = spec.pod("p", spec.queue(), gpus, affinity=affinity)
    if is_placed:
        assert spec.nodes_of(name)[0] in ((CPU_WORKER,) if role == "cpu-worker" else WORKERS)
    else:
        assert spec.stays_pending(name)


# -- hierarchy ---------------------------------------------------------------------------------------------------------


@specs("Hierarchy level fairness / Hierarchy level fairness / reclaim after changing hierarchy level fairness type")
def test_the_hierarchy_of_fair_shares_changes_while_it_runs(spec: Spec) -> None:
    """Of two departments the first has one queue, the second three. With levels these have 20 and 12 of 32 GPUs.

    Without them each queue has eight. Evicted pods are made anew: queues that have nothing more to run get nothing,
    and that differs with what was placed before the last queue had its pods.
    """
    for name, weight in (("first", 5), ("second", 3)):
        spec.queue(name, 0, parent="", weight=weight)
    one = spec.queue("one", 0, "first")
    queues = [spec.queue(f"two-{index}", 0, "second") for index in range(3)]
    for number in range(16):
        spec.job(f"one-{number}", one, 1, gpus=2)
    spec.wait_count("one", 16)
    for index, queue in enumerate(queues):
        for number in range(6):
            spec.job(f"two-{index}-{number}", queue, 1, gpus=2)
    spec.wait_count("two", 6)
    spec.wait_count("one", 10)
    spec.shard(args={"full-hierarchy-fairness": "false"})
    spec.wait_count("two", 12)
    spec.wait_count("one", 4)


# -- device access -----------------------------------------------------------------------------------------------------


def choosing(name: str, queue: str, value: str) -> dict[str, Any]:
    found = pod(name, queue, 1)
    found["spec"]["containers"][0]["env"] = [{"name": VISIBLE, "value": value}]
    return found


@specs(
    "Device access admission validation / when device access validation is disabled (default) "
    "/ admits a pod overriding NVIDIA_VISIBLE_DEVICES=all"
)
def test_by_default_a_pod_may_name_devices(spec: Spec) -> None:
    assert spec.refusal(PODS, choosing(f"{spec.name}-p", spec.queue(), "all")) == ""


@specs(
    "Device access admission validation / when device access validation is enabled / admits allowed "
    "NVIDIA_VISIBLE_DEVICES values / none",
    "Device access admission validation / when device access validation is enabled / admits allowed "
    "NVIDIA_VISIBLE_DEVICES values / void",
    "Device access admission validation / when device access validation is enabled / rejects forbidden "
    "NVIDIA_VISIBLE_DEVICES values / all",
    "Device access admission validation / when device access validation is enabled / rejects forbidden "
    "NVIDIA_VISIBLE_DEVICES values / multiple indexes",
    "Device access admission validation / when device access validation is enabled / rejects forbidden "
    "NVIDIA_VISIBLE_DEVICES values / single index",
)
def test_device_access_is_validated_once_the_config_says_so(spec: Spec) -> None:
    queue = spec.queue()
    spec.config(admission={"blockNvidiaVisibleDevices": True})
    for number, value in enumerate(("none", "void")):
        assert spec.refusal(PODS, choosing(f"{spec.name}-{number}", queue, value)) == ""
    for value in ("all", "0,1", "0"):
        assert f"{VISIBLE} of container main is {value}" in spec.refusal(PODS, choosing(spec.name, queue, value))
    spec.config(admission={"blockNvidiaVisibleDevices": False})
    assert spec.refusal(PODS, choosing(spec.name, queue, "all")) == "", "a change is followed without a restart"


@specs(
    "Device access admission validation / when device access validation is enabled / injects "
    "NVIDIA_VISIBLE_DEVICES=void into non-GPU containers, exempting the GPU container"
)
def test_containers_without_a_gpu_see_none(spec: Spec) -> None:
    queue = spec.queue()
    spec.config(admission={"blockNvidiaVisibleDevices": True})
    beside = {"name": "beside", "image": "busybox"}
    body = pod(f"{spec.name}-p", queue, 1)
    body["spec"]["containers"].append(beside)
    body["spec"]["initContainers"] = [{"name": "first", "image": "busybox"}]
    assert spec.refusal(PODS, body) == ""
    found = spec.pod_of(f"{spec.name}-p")["spec"]
    void = [{"name": VISIBLE, "value": "void"}]
    assert [one.get("env") for one in found["containers"]] == [None, void]
    assert found["initContainers"][0]["env"] == void


# -- ours --------------------------------------------------------------------------------------------------------------


def test_a_broken_shard_is_told_so_and_the_one_before_stays(spec: Spec) -> None:
    spec.shard(placementStrategy={"gpu": "spread"})
    spec.api.patch(SCHEDULING_SHARDS, "", "default", {"spec": {"kValue": "much"}})

    def told() -> bool:
        found = spec.api.page(EVENTS, namespace="default", limit=50_000).items
        return any(one["reason"] == "SetAside" and "kValue" in one["message"] for one in found)

    queue = spec.queue()
    first = spec.nodes_of(spec.pod("a", queue))
    assert spec.nodes_of(spec.pod("b", queue)) != first, "it still spreads"
    wait_for("the shard is told", told, LIMIT_S)
