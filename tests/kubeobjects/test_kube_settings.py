"""Settings: names of GPUs, what shares of them cost, flags of the scheduler, settings of our own."""

from typing import Any

import pytest

from kai_solver.domain import Action, GpuRequest, Node, Pod, Policy, Requirement
from kai_solver.kubeobjects import KubeSettings, objects_from_documents, objects_from_snapshot, snapshot_from_objects
from kai_solver.predicates import NOT_SHARED, NodePredicates

API = "kai.scheduler/v1"


def shard(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "default", "annotations": annotations or {}}
    return {"apiVersion": API, "kind": "SchedulingShard", "metadata": metadata, "spec": spec}


def node(build: Any, name: str, offers: dict[str, str], **labels: str) -> dict[str, Any]:
    found: dict[str, Any] = build.node(name, {"metadata": {"labels": labels}}, gpus=0)
    found["status"]["allocatable"] |= offers
    if "nvidia.com/gpu" not in offers:
        del found["status"]["allocatable"]["nvidia.com/gpu"]
    return found


def asking(build: Any, name: str = "p", **amounts: str) -> dict[str, Any]:
    limits = {key.replace("__", "/").replace("_", "."): value for key, value in amounts.items()}
    found: dict[str, Any] = build.pod(name, {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}})
    return found


def test_one_vendors_gpus_need_no_name_of_their_own(build: Any) -> None:
    found = build.read(asking(build, nvidia_com__gpu="2"), build.node())
    assert found.schema.names == ("cpu", "memory", "gpu", "pods")
    assert (found.nodes[0].gpus, found.gangs[0].pods[0].gpu) == (8, GpuRequest(2))


def test_gpus_of_two_vendors_are_told_apart_and_both_count(build: Any) -> None:
    nodes = [node(build, "green", {"nvidia.com/gpu": "4"}), node(build, "red", {"amd.com/gpu": "2"})]
    found = build.read(*nodes, asking(build, amd_com__gpu="2"))
    red = next(n for n in found.nodes if n.name == "red")
    assert red.gpus == 2
    assert found.schema.mapping(red.allocatable)["amd.com/gpu"] == 2
    pod = found.gangs[0].pods[0]
    assert pod.gpu == GpuRequest(2)
    assert found.schema.mapping(pod.request)["amd.com/gpu"] == 2
    again = snapshot_from_objects(objects_from_snapshot(found), now_s=found.now_s)
    assert [(n.name, n.gpus, n.allocatable) for n in again.nodes] == [
        (n.name, n.gpus, n.allocatable) for n in found.nodes
    ]
    assert (again.gangs[0].pods[0].gpu, again.gangs[0].pods[0].request) == (pod.gpu, pod.request)


def test_a_name_that_is_not_listed_is_a_plain_resource(build: Any) -> None:
    policy = Policy(gpu_resources=("nvidia.com/gpu",))
    found = build.read(
        node(build, "red", {"amd.com/gpu": "2"}), asking(build, amd_com__gpu="1"), settings=KubeSettings(policy=policy)
    )
    pod = found.gangs[0].pods[0]
    assert (found.nodes[0].gpus, pod.gpu.devices, pod.quota_gpu_milli) == (0, 0, 0)
    assert found.schema.mapping(pod.request)["amd.com/gpu"] == 1


SHARED = {"nvidia.com/gpu.shared": "8"}


def shared_pod(build: Any, *nodes: dict[str, Any], on: str = "") -> Pod:
    pod = build.pod("p", node=on, phase="Running") if on else build.pod("p")
    pod["spec"]["containers"] = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu.shared": "2"}}}]
    found: Pod = build.one_pod(*nodes, pod)
    return found


@pytest.mark.parametrize(("replicas", "milli"), [("4", 250), ("3", 333), ("1", 1000), ("0", 1000), ("many", 1000)])
def test_a_replica_of_a_time_sliced_gpu_is_paid_as_its_part(build: Any, replicas: str, milli: int) -> None:
    pod = shared_pod(build, node(build, "n", SHARED, **{"nvidia.com/gpu.replicas": replicas}))
    assert (pod.gpu.devices, pod.quota_gpu_milli) == (0, 2 * milli)


def test_a_waiting_replica_is_paid_as_on_the_dearest_node_a_running_one_as_where_it_is(build: Any) -> None:
    nodes = [node(build, f"by-{r}", SHARED, **{"nvidia.com/gpu.replicas": r}) for r in ("2", "10")]
    assert shared_pod(build, *nodes).quota_gpu_milli == 1000
    assert shared_pod(build, *nodes, on="by-10").quota_gpu_milli == 200


def test_shared_gpus_without_the_label_count_whole_and_say_so(build: Any) -> None:
    found = build.read(node(build, "n", SHARED))
    assert any("Node n: shares GPUs and has no label" in text for text in build.texts(found, "warning"))
    assert shared_pod(build, node(build, "n", SHARED)).quota_gpu_milli == 2000


def test_gpus_are_shared_only_where_the_resource_that_holds_them_is(build: Any) -> None:
    """Of pods that ask for whole GPUs, AMD's are as good."""
    amd, half = node(build, "amd", {"amd.com/gpu": "8"}), build.pod("half", annotations={"gpu-fraction": "0.5"})
    found = build.read(amd, node(build, "nvidia", {"nvidia.com/gpu": "8"}), node(build, "none", {}), half)
    ((pod,),) = (gang.pods for gang in found.gangs)
    assert NodePredicates(found.nodes).reasons(pod.constraints) == {NOT_SHARED: 1}
    assert build.one_pod(amd, asking(build, amd_com__gpu="1")).constraints.node_terms == ()
    only = KubeSettings(policy=Policy(gpu_resources=("amd.com/gpu",)))
    assert build.one_pod(amd, half, settings=only).constraints.node_terms == ()


def test_mig_mixed_offers_slices_only_and_single_whole_devices_only(build: Any) -> None:
    offers = {"nvidia.com/gpu": "7", "nvidia.com/mig-2g.10gb": "3"}
    strategy, enabled = "nvidia.com/mig.strategy", "node-role.kubernetes.io/mig-enabled"
    nodes = [node(build, name, offers, **{strategy: name, enabled: "true"}) for name in ("mixed", "single")]
    found = build.read(
        *nodes, build.pod("half", annotations={"gpu-fraction": "0.5"}), asking(build, nvidia_com__gpu="1")
    )
    mixed, single = sorted(found.nodes, key=lambda n: n.name)
    assert (mixed.gpus, found.schema.mapping(mixed.allocatable)["nvidia.com/mig-2g.10gb"]) == (0, 3)
    assert (single.gpus, "nvidia.com/mig-2g.10gb" in found.schema.mapping(single.allocatable)) == (7, False)
    terms = {gang.pods[0].name: gang.pods[0].constraints.node_terms for gang in found.gangs}
    ((elsewhere, not_divided),) = terms["half"]
    assert (elsewhere, not_divided[0].key) == ((Requirement(strategy, "NotIn", ("single",)),), enabled)
    assert terms["p"] == ()


def test_a_mig_slice_is_gpu_work_where_nodes_are_restricted(build: Any) -> None:
    settings = KubeSettings(policy=Policy(restrict_node_scheduling=True))
    pod = asking(build)
    pod["spec"]["containers"] = [{"name": "c", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}]
    terms = build.one_pod(pod, settings=settings).constraints.node_terms
    assert terms == (((Requirement("node-role.kubernetes.io/gpu-worker", "Exists"),),),)


def test_a_pod_with_claims_is_gpu_work_where_nodes_are_restricted(build: Any) -> None:
    settings = KubeSettings(policy=Policy(restrict_node_scheduling=True))
    pod = build.pod("p", {"spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "claim"}]}})
    terms = build.one_pod(pod, settings=settings).constraints.node_terms
    assert (((Requirement("node-role.kubernetes.io/gpu-worker", "Exists"),),),) == terms


def test_flags_of_the_scheduler_in_a_shard(build: Any) -> None:
    args = {
        "restrict-node-scheduling": "true",
        "full-hierarchy-fairness": "false",
        "allow-consolidating-reclaim": "False",
        "max-consolidation-preemptees": "16",
        "default-staleness-grace-period": "-1s",
        "stuck-in-releasing-threshold": "30s",
        "scheduler-name": "mine",
    }
    found = build.read(shard(args=args), build.pod("p", {"spec": {"schedulerName": "mine"}}))
    policy = found.policy
    assert (policy.restrict_node_scheduling, policy.full_hierarchy, policy.consolidating_reclaim) == (
        True,
        False,
        False,
    )
    assert (policy.max_consolidation_gangs, policy.staleness_grace_s, policy.stuck_in_releasing_s) == (16, -1.0, 30.0)
    assert len(found.gangs) == 1
    assert not any("not honoured" in text for text in build.texts(found))


def test_arguments_of_plugins_and_actions_in_a_shard(build: Any) -> None:
    plugins = {
        "proportion": {"arguments": {"kValue": "0.5", "relcaimerSaturationMultiplier": "1.5"}},
        "minruntime": {"arguments": {"defaultReclaimMinRuntime": "10m", "reclaimResolveMethod": "queue"}},
        "nodeplacement": {"arguments": {"cpu": "spread"}},
        "gpuspread": {"enabled": True},
    }
    actions = {"preempt": {"enabled": False}, "consolidation": {"enabled": False}, "reclaim": {"enabled": True}}
    settings = build.read(shard(plugins=plugins, actions=actions))
    policy = settings.policy
    assert (policy.k_value, policy.saturation_multiplier) == (0.5, 1.5)
    assert (policy.reclaim_min_runtime_s, policy.reclaim_resolve) == (600.0, "queue")
    assert (policy.gpu_placement, policy.cpu_placement, policy.gpu_sharing_placement) == ("binpack", "spread", "spread")
    assert policy.disabled_actions == {Action.CONSOLIDATION, Action.PREEMPT}
    assert [notice.text for notice in settings.notices] == ["disables consolidation, preempt, as in KAI"]


def test_settings_of_our_own_are_annotations(build: Any) -> None:
    own = {
        "kai-solver/non-preemptible-priority": "1001",
        "kai-solver/gpu-resources": "example.com/gpu, nvidia.com/gpu",
        "kai-solver/shared-gpu-resources": "",
    }
    policy = build.read(shard(own)).policy
    assert policy.non_preemptible_priority == 1001
    assert (policy.gpu_resources, policy.shared_gpu_resources) == (("example.com/gpu", "nvidia.com/gpu"), ())


@pytest.mark.parametrize(
    ("broken", "cure"),
    [
        (shard({"kai-solver/non-preemptible-priority": "high"}), "Write a whole number"),
        (shard({"kai-solver/gpu-resources": ","}), "Name at least one"),
        (shard(args={"restrict-node-scheduling": "perhaps"}), 'Write "true" or "false"'),
        (shard(args={"max-consolidation-preemptees": "all"}), "Write a number"),
        (shard(args={"stuck-in-releasing-threshold": "soon"}), "Write a duration"),
        (shard(plugins={"proportion": {"arguments": {"kValue": "inf"}}}), "Write a number"),
        (shard(plugins={"minruntime": {"arguments": {"reclaimResolveMethod": "luck"}}}), 'Write "lca" or "queue"'),
    ],
)
def test_a_setting_that_cannot_be_read_sets_the_shard_aside(build: Any, broken: dict[str, Any], cure: str) -> None:
    found = build.read(broken)
    assert found.policy == Policy()
    (text,) = build.texts(found, "set-aside")
    assert text.startswith("SchedulingShard default: ")
    assert cure in text


def test_the_unmarked_node_adds_no_gpus_where_nodes_are_restricted() -> None:
    from kai_solver.domain import counted_gpu_milli
    from kai_solver.units import ResourceSchema

    schema = ResourceSchema.with_extended(["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"])
    labels = {"nvidia.com/gpu.replicas": "4"}
    unmarked = Node("n", (0, 0, 2000, 110, 8, 3), 2, labels=labels)
    worker = Node("n", (0, 0, 2000, 110, 8, 3), 2, labels=labels | {"node-role.kubernetes.io/gpu-worker": ""})
    restricted = Policy(restrict_node_scheduling=True)
    assert counted_gpu_milli(unmarked, schema, Policy()) == 2000 + 8 * 250 + 3 * 1000
    assert counted_gpu_milli(unmarked, schema, restricted) == 0
    assert counted_gpu_milli(worker, schema, restricted) == 7000


def test_objects_of_one_kind_are_still_read_alone() -> None:
    raw = objects_from_documents([("f", shard({"kai-solver/non-preemptible-priority": "7"}))])
    assert snapshot_from_objects(raw, now_s=0.0).policy.non_preemptible_priority == 7
