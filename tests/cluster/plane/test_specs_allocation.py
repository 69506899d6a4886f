"""KAI's specs of where work goes while there is room: selectors, workloads, queues, topologies, subgroups, webhooks."""

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from kai_solver.cluster.resources import (
    CONFIG_MAPS,
    JOBS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    QUEUES,
    REPLICA_SETS,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
    TOPOLOGIES,
)
from tests.cluster.plane.agents import GROUP, Provisioner, working
from tests.cluster.plane.cluster import SPACE, Cluster, pod
from tests.cluster.plane.kinds import Maker, reference
from tests.cluster.plane.plane import ADMIN, Plane, wait_for
from tests.cluster.plane.specs import (
    CPU_WORKER,
    CRON_JOBS,
    DEPLOYMENTS,
    GPU,
    LIMIT_S,
    MEMORY_MIB,
    STATEFUL_SETS,
    WORKERS,
    Spec,
    reported_storage,
    spec_of,
    specs,
    stocked,
)

HOST = "kubernetes.io/hostname"


@pytest.fixture(scope="module")
def cluster(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with stocked(plane, tmp_path_factory.mktemp("allocation")) as found:
        yield found


NUMBERS = itertools.count()


@pytest.fixture
def spec(cluster: Cluster) -> Iterator[Spec]:
    yield from spec_of(cluster, NUMBERS)


# -- affinity, taints --------------------------------------------------------------------------------------------------


def on_nodes(*values: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": list(values)}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def near(kind: str, **labels: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": HOST}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@specs(
    "Affinity / Node Affinity / doesn't schedule pod to nodes without requested affinity",
    "Affinity / Node Affinity / schedules pod to node with correct affinity",
)
def test_node_affinity(spec: Spec) -> None:
    queue = spec.queue()
    assert spec.nodes_of(spec.pod("fits", queue, affinity=on_nodes(WORKERS[2]))) == [WORKERS[2]]
    assert spec.stays_pending(spec.pod("nowhere", queue, affinity=on_nodes("no-such-node")))


@specs("Affinity / Pod Affinity / Not scheduling if pod affinity condition is not met")
def test_a_pod_that_must_be_near_another_and_may_not_go_there(spec: Spec) -> None:
    """It waits: the other is not moved to where it may go."""
    queue, near_it = spec.queue(), near("podAffinity", app=spec.name)
    first = spec.pod("first", queue, labels={"app": spec.name}, affinity=near_it)
    (there,) = spec.nodes_of(first)
    terms = [{"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": [there]}]}]
    elsewhere = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert spec.stays_pending(spec.pod("second", queue, affinity=near_it | elsewhere))
    assert spec.stays(first)


@pytest.mark.parametrize("is_like_itself", [False, True])
def test_pod_affinity_to_pods_that_are_not_there(spec: Spec, is_like_itself: bool) -> None:
    """A pod that its own term matches may be the first of its kind, as in Kubernetes; any other waits."""
    labels = {"app": spec.name} if is_like_itself else {}
    name = spec.pod("p", spec.queue(), labels=labels, affinity=near("podAffinity", app=spec.name))
    if is_like_itself:
        spec.wait_placed(name)
    else:
        assert spec.stays_pending(name)


@specs("Affinity / Pod Affinity / schedules the new pod with matching labels pod affinity")
def test_pod_affinity_to_a_pod_that_runs(spec: Spec) -> None:
    queue = spec.queue()
    there = spec.nodes_of(spec.pod("first", queue, labels={"app": spec.name}, affinity=on_nodes(WORKERS[3])))
    assert spec.nodes_of(spec.pod("second", queue, affinity=near("podAffinity", app=spec.name))) == there


@specs("Affinity / Pod Affinity / schedules the new pod NOT with matching labels pod anti-affinity")
def test_pod_anti_affinity(spec: Spec) -> None:
    queue = spec.queue()
    there = spec.nodes_of(spec.pod("first", queue, labels={"app": spec.name}))
    assert spec.nodes_of(spec.pod("second", queue, affinity=near("podAntiAffinity", app=spec.name))) != there


@specs(
    "Taint and toleration scheduling / Not scheduling pod without toleration",
    "Taint and toleration scheduling / Scheduling pod with toleration",
)
def test_taints(spec: Spec) -> None:
    queue, taint = spec.queue(), {"key": "spec", "value": "x", "effect": "NoSchedule"}
    spec.api.patch(NODES, "", WORKERS[0], {"spec": {"taints": [taint]}})
    wait_for("the taint is seen", lambda: bool(seen_node(spec, WORKERS[0])["spec"].get("taints")), LIMIT_S)
    try:
        assert spec.stays_pending(spec.pod("refused", queue, affinity=on_nodes(WORKERS[0])))
        tolerations = [{"key": "spec", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]
        spec.wait_placed(spec.pod("borne", queue, affinity=on_nodes(WORKERS[0]), tolerations=tolerations))
    finally:
        spec.api.patch(NODES, "", WORKERS[0], {"spec": {"taints": None}})
        wait_for("it is gone", lambda: not seen_node(spec, WORKERS[0])["spec"].get("taints"), LIMIT_S)


def seen_node(spec: Spec, name: str) -> dict[str, Any]:
    (found,) = [one for one in spec.replica.objects()["nodes"] if one["metadata"]["name"] == name]
    return found


# -- what pods mount ---------------------------------------------------------------------------------------------------


@specs(
    "Config map scheduling / Not scheduling if configmap doesn't exist",
    "Config map scheduling / Schedule pod with config map",
)
def test_config_maps(spec: Spec) -> None:
    queue, name = spec.queue(), spec.name
    container = {"name": "main", "image": "busybox", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    waits = spec.pod("p", queue, 0, volumes=[{"name": "v", "configMap": {"name": name}}], containers=[container])
    assert spec.stays_pending(waits)
    spec.config_maps.append(name)
    spec.api.create(CONFIG_MAPS, SPACE, {"metadata": {"name": name}, "data": {"a": "b"}})
    spec.wait_placed(waits)


@specs("Scheduling of Pod with PVC / Schedule pod with PV and PVC")
def test_a_pod_with_a_bound_claim(spec: Spec) -> None:
    name, size = spec.name, {"storage": "1Gi"}
    base = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
    volume = base | {"capacity": size, "hostPath": {"path": "/x"}, "claimRef": {"namespace": SPACE, "name": name}}
    spec.api.create(PERSISTENT_VOLUMES, "", {"metadata": {"name": name}, "spec": volume})
    claim = base | {"resources": {"requests": size}, "volumeName": name}
    spec.api.create(PERSISTENT_VOLUME_CLAIMS, SPACE, {"metadata": {"name": name}, "spec": claim})
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    spec.wait_placed(spec.pod("p", spec.queue(), volumes=volumes))


DISK = "disk.example.org"


def claimed(spec: Spec, name: str, size: str, kind: str) -> str:
    """A pod with a claim of its own for a volume of this class; returns the pod's whole name."""
    body = {"accessModes": ["ReadWriteOnce"], "storageClassName": kind, "resources": {"requests": {"storage": size}}}
    spec.api.create(PERSISTENT_VOLUME_CLAIMS, SPACE, {"metadata": {"name": f"{spec.name}-{name}"}, "spec": body})
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": f"{spec.name}-{name}"}}
    return spec.pod(name, spec.name + "-q", volumes=[volume])


@specs("Scheduling of Pod with PVC / CSI storageclass / Don't schedule pod with pvc that exceeds volume capacity")
def test_a_volume_is_made_where_there_is_storage_for_it(spec: Spec) -> None:
    spec.queue()
    kind = {"provisioner": DISK, "volumeBindingMode": "WaitForFirstConsumer"}
    spec.api.create(STORAGE_CLASSES, "", {"metadata": {"name": spec.name}, **kind})
    reported_storage(spec.cluster.plane, DISK, SPACE, spec.name, worker_0="5Gi", worker_1="10Gi", worker_2="5Gi")
    with working(Provisioner(spec.cluster.plane).look):
        large, larger = claimed(spec, "large", "8Gi", spec.name), claimed(spec, "larger", "12Gi", spec.name)
        assert spec.nodes_of(large) == ["worker-1"]
        assert "enough free storage" in spec.told(larger)
        assert spec.stays_pending(larger)


@specs("Scheduling of Pod with PVC / CSI storageclass / Don't schedule pod with invalid storage class")
def test_a_claim_of_a_class_that_does_not_exist(spec: Spec) -> None:
    spec.queue()
    assert spec.stays_pending(claimed(spec, "p", "1Gi", "invalid"))


# -- resources ---------------------------------------------------------------------------------------------------------


@specs(
    "Schedule pod with resource request / CPU Resources / CPU Request",
    "Schedule pod with resource request / CPU Resources / Memory Request",
    "Schedule pod with resource request / GPU Resources / Whole GPU request",
    "Schedule pod with resource request / GPU Resources / Fraction GPU request",
    "Schedule pod with resource request / GPU Resources / GPU memory request - valid",
    "Schedule pod with resource request / No resource requests",
    "Resource Type Plugins / CPU only jobs / schedules CPU only jobs on CPU nodes",
)
def test_what_pods_ask_for_is_had(spec: Spec) -> None:
    queue = spec.queue()
    names = [
        spec.pod("cpu", queue, 0, amounts={"cpu": "2"}),
        spec.pod("memory", queue, 0, amounts={"memory": "4Gi"}),
        spec.pod("whole", queue, 1),
        spec.share("part", queue, "0.5"),
        spec.pod("mib", queue, 0, annotations={"gpu-memory": "500"}),
        spec.pod("nothing", queue, 0, containers=[{"name": "main", "image": "busybox"}]),
    ]
    found = dict(zip(("cpu", "memory", "whole", "part", "mib", "nothing"), spec.nodes_of(*names), strict=True))
    assert {found["cpu"], found["memory"]} == {CPU_WORKER}, "pods without GPUs leave the workers with GPUs free"
    assert {found["whole"], found["part"], found["mib"]} <= set(WORKERS)


@specs("Schedule pod with resource request / CPU Resources / Other Resource Request")
def test_other_resources(spec: Spec) -> None:
    offered = {"status": {"allocatable": {"example.org/thing": "1"}, "capacity": {"example.org/thing": "1"}}}
    spec.api.patch(NODES, "", WORKERS[1], offered, subresource="status")
    queue = spec.queue()
    try:
        assert spec.nodes_of(spec.pod("p", queue, 0, amounts={"example.org/thing": "1"})) == [WORKERS[1]]
        assert spec.stays_pending(spec.pod("late", queue, 0, amounts={"example.org/thing": "1"}))
    finally:
        gone = {"status": {"allocatable": {"example.org/thing": None}, "capacity": {"example.org/thing": None}}}
        spec.api.patch(NODES, "", WORKERS[1], gone, subresource="status")


@specs("Schedule pod with resource request / GPU Resources / Fraction GPU request - fill all the GPUs")
def test_parts_fill_all_gpus_of_a_node(spec: Spec) -> None:
    queue, node = spec.queue(), {HOST: WORKERS[0]}
    names = [spec.share(f"p-{index}", queue, "0.5", nodeSelector=node) for index in range(16)]
    spec.wait_placed(*names)
    held = [spec.pod_of(name)["metadata"]["labels"][GROUP] for name in names]
    assert sorted(held.count(group) for group in set(held)) == [2] * 8
    assert spec.stays_pending(spec.share("late", queue, "0.5", nodeSelector=node))


@specs("Schedule pod with resource request / GPU Resources / GPU memory request - too much memory for a single gpu")
def test_more_memory_than_a_gpu_has(spec: Spec) -> None:
    queue, bytes_of_80_gb = spec.queue(), 80 * 10**9
    pods = [
        spec.pod(f"p-{memory}", queue, 0, annotations={"gpu-memory": str(memory)})
        for memory in (MEMORY_MIB + 1000, bytes_of_80_gb)
    ]
    assert spec.stays_pending(*pods)


# -- kinds of workloads ------------------------------------------------------------------------------------------------


def template(queue: str, app: str, **more: Any) -> dict[str, Any]:
    found = pod("", queue, labels={"app": app}, **more)
    found["spec"]["restartPolicy"] = "Always"
    return found


@specs("K8S Native object integrations / Pod", "Namespace options / Namespace in Request")
def test_a_plain_pod(spec: Spec) -> None:
    queue = spec.queue()
    spec.wait_placed(spec.pod("p", queue))
    body = pod(f"{spec.name}-named", queue)
    body["metadata"]["namespace"] = SPACE
    spec.api.create(PODS, SPACE, body)
    spec.wait_placed(f"{spec.name}-named")


@specs("Namespace options / Binding Webhook / Fraction GPU request")
def test_a_share_in_a_namespace_without_a_label_knows_its_device(spec: Spec) -> None:
    name = spec.share("p", spec.queue(), "0.5")
    spec.wait_placed(name)
    found = spec.pod_of(name)
    prefix = found["metadata"]["annotations"]["runai/shared-gpu-configmap"]
    stated = {one["name"]: one["valueFrom"]["configMapKeyRef"]["name"] for one in found["spec"]["containers"][0]["env"]}
    assert stated == dict.fromkeys(("NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION"), f"{prefix}-0")
    assert spec.api.get(CONFIG_MAPS, SPACE, f"{prefix}-0")["data"]["NVIDIA_VISIBLE_DEVICES"] != ""


@specs("K8S Native object integrations / BatchJob")
def test_a_job(spec: Spec) -> None:
    spec.job("job", spec.queue(), 2)
    spec.wait_count("job", 2)


@specs("K8S Native object integrations / BatchJob with external PodGroup")
def test_a_job_whose_pods_name_a_pod_group(spec: Spec) -> None:
    queue, group = spec.queue(), f"{spec.name}-group"
    spec.api.create(POD_GROUPS, SPACE, {"metadata": {"name": group}, "spec": {"queue": queue, "minMember": 2}})
    annotations = {"pod-group-name": group, "kai.scheduler/skip-podgrouper": "true"}
    spec.job("job", queue, 2, annotations=annotations)
    spec.wait_count("job", 2)
    assert [one["metadata"]["name"] for one in spec.api.page(POD_GROUPS, namespace=SPACE).items] == [group]


@specs("K8S Native object integrations / CronJob")
def test_a_cron_job(spec: Spec) -> None:
    job = {"spec": {"template": pod("", spec.queue())}}
    body = {"schedule": "* * * * *", "jobTemplate": job}
    spec.api.create(CRON_JOBS, SPACE, {"metadata": {"name": f"{spec.name}-cron"}, "spec": body | {"suspend": True}})
    # The controller of CronJobs waits for the next minute; a Job that it owns is what it would make.
    owner = spec.api.get(CRON_JOBS, SPACE, f"{spec.name}-cron")
    reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": owner["metadata"]["name"], "controller": True}
    reference |= {"uid": owner["metadata"]["uid"]}
    metadata = {"name": f"{spec.name}-cron-1", "ownerReferences": [reference]}
    spec.api.create(JOBS, SPACE, {"metadata": metadata, **job})
    spec.wait_count("cron", 1)


@specs(
    "K8S Native object integrations / Deployment / Allocates deployment pods",
    "K8S Native object integrations / ReplicaSet",
    "K8S Native object integrations / StatefulSet",
)
@pytest.mark.parametrize("kind", [DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS], ids=lambda kind: str(kind.kind))
def test_replicated_pods(spec: Spec, kind: Any) -> None:
    name = f"{spec.name}-many"
    body = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template(spec.queue(), name)}
    more = {"serviceName": name} if kind == STATEFUL_SETS else {}
    spec.api.create(kind, SPACE, {"metadata": {"name": name}, "spec": body | more})
    spec.wait_count("many", 2)


@specs("K8S Native object integrations / Deployment / Doesn't leak config maps after scale down")
def test_config_maps_of_shares_go_with_their_pods(spec: Spec) -> None:
    name = f"{spec.name}-many"
    part = template(spec.queue(), name, annotations={"gpu-fraction": "0.5"}, gpus=0)
    body = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": part}
    spec.api.create(DEPLOYMENTS, SPACE, {"metadata": {"name": name}, "spec": body})
    spec.wait_count("many", 2)

    def maps() -> int:
        found = spec.api.page(CONFIG_MAPS, namespace=SPACE, limit=10_000).items
        return sum("shared-gpu" in one["metadata"]["name"] and name in one["metadata"]["name"] for one in found)

    wait_for("each has its two", lambda: maps() == 4, LIMIT_S)
    spec.api.patch(DEPLOYMENTS, SPACE, name, {"spec": {"replicas": 0}})
    wait_for("they are gone", lambda: maps() == 0, LIMIT_S)


@specs("K8S Native object integrations / Pods / considers pod Overhead from runtimeclass")
def test_overhead_counts(spec: Spec) -> None:
    queue, name = spec.queue(), spec.name
    fixed = {"podFixed": {"cpu": "127", "memory": "1Gi"}}
    spec.api.create(RUNTIME_CLASSES, "", {"metadata": {"name": name}, "handler": "x", "overhead": fixed})
    try:
        cpu = {"nodeSelector": {HOST: CPU_WORKER}, "runtimeClassName": name}
        wait_for("it is known", lambda: admitted(spec, "a", queue, cpu), LIMIT_S)
        spec.wait_placed(f"{name}-a")
        assert spec.stays_pending(spec.pod("b", queue, 0, **cpu))
    finally:
        spec.api.delete(RUNTIME_CLASSES, "", name)


def admitted(spec: Spec, name: str, queue: str, more: dict[str, Any]) -> bool:
    """Whether a pod is taken: the API server learns of a runtime class a moment after it was made."""
    return spec.refusal(PODS, pod(f"{spec.name}-{name}", queue, 0, **more)) == ""


@specs("Generic podgrouper integration / Non integrated third party -  submit")
def test_pods_of_a_kind_that_is_not_known(spec: Spec) -> None:
    maker = Maker(spec.cluster.plane, spec.name, least=1)
    maker.install("example.org", "Mine")
    owner = maker.thing("example.org/v1", "Mine", {})
    queue = spec.queue()
    for index in range(2):
        body = pod(f"{spec.name}-{index}", queue)
        body["metadata"]["ownerReferences"] = [reference(owner)]
        spec.api.create(PODS, SPACE, body)
    spec.wait_count("", 2)
    maker.remove()


# -- queues ------------------------------------------------------------------------------------------------------------


@specs(
    "N-Level Queue Hierarchy / Four level queue hierarchy / should allocate job at deepest level (project)",
    "N-Level Queue Hierarchy / Single level queue hierarchy / should allocate job in single level queue",
    "N-Level Queue Hierarchy / Three level queue hierarchy / should allocate job at deepest level (team)",
)
@pytest.mark.parametrize("levels", [1, 3, 4])
def test_queues_of_any_depth(spec: Spec, levels: int) -> None:
    parent = ""
    for level in range(levels):
        queue = spec.queue(f"level-{level}", 8, parent)
        parent = f"level-{level}"
    spec.wait_placed(spec.pod("p", queue))


@specs("Deserved quota tests / Equal deserving queues receive equal share.")
def test_equal_queues_get_equal_shares(spec: Spec) -> None:
    one, two = spec.queue("one", 16), spec.queue("two", 16)
    hold = spec.gang("hold", spec.queue("holder", 32), 4, gpus=8, priorityClassName="build", priority="build")
    spec.wait_placed(*hold)
    for name, queue in (("one", one), ("two", two)):
        spec.pods(name, 16, queue, 2)
    for name in hold:
        spec.api.delete(PODS, SPACE, name, grace_s=0)
    spec.wait_count("one", 8)
    spec.wait_count("two", 8)


@specs("Limit quota / Not schedule pod that exceeds GPU limit")
def test_a_limit_holds(spec: Spec) -> None:
    queue = spec.queue(gpus=1, limit=1)
    spec.wait_placed(spec.pod("fits", queue))
    assert spec.stays_pending(late := spec.pod("late", queue))
    assert "limit" in spec.told(late).lower()


@specs("Over quota / Not schedule non preemptible pod that exceeds GPU quota")
def test_work_that_cannot_be_preempted_keeps_to_the_quota(spec: Spec) -> None:
    queue = spec.queue(gpus=1)
    spec.wait_placed(spec.pod("fits", queue, priority="build"))
    assert spec.stays_pending(late := spec.pod("late", queue, priority="build"))
    assert "quota" in spec.told(late)


@specs(
    "Order jobs allocation queue / PriorityClass as a label",
    "Order jobs allocation queue / PriorityClass in pod.spec",
)
@pytest.mark.parametrize("as_label", [True, False])
def test_higher_priority_goes_first(spec: Spec, as_label: bool) -> None:
    queue = spec.queue(gpus=1, limit=1)
    holder = spec.pod("holder", queue, priority="build")
    spec.wait_placed(holder)

    def submit(name: str, priority: str) -> str:
        stated = {"labels": {"priorityClassName": priority}} if as_label else {"priority": priority}
        return spec.pod(name, queue, **stated)

    low, high = submit("low", "train"), submit("high", "build-preemptible")
    assert spec.stays_pending(low, high)
    spec.api.delete(PODS, SPACE, holder, grace_s=0)
    spec.wait_placed(high)
    assert spec.stays_pending(low)


# -- what PodGroups are told -------------------------------------------------------------------------------------------


@specs("Events / NotReady job")
def test_a_gang_that_lacks_pods_is_told_so(spec: Spec) -> None:
    spec.gang("g", spec.queue(), 1, 3)
    wait_for("it is told", lambda: "NotReady" in spec.events(f"{spec.name}-g"), LIMIT_S)


@specs(
    "PodGroup Conditions / Jobs Over Queue Limit / NonPreemptible Job / sets condition with reason on PodGroup",
    "PodGroup Conditions / Jobs Over Queue Limit / Preemptible Job / sets condition with reason on PodGroup",
    "PodGroup Conditions / Non preemptible Jobs over quota / sets condition with NonPreemptibleOverQuota reason "
    "on PodGroup",
)
@pytest.mark.parametrize(
    ("limit", "priority", "reason"),
    [(1, "build", "OverLimit"), (1, "train", "OverLimit"), (-1, "build", "NonPreemptibleOverQuota")],
)
def test_the_condition_of_a_pod_group_names_the_reason(spec: Spec, limit: int, priority: str, reason: str) -> None:
    queue = spec.queue(gpus=3 if limit == 1 else 1, limit=limit)
    spec.gang("g", queue, 1, gpus=2, priorityClassName=priority, priority=priority)

    def told() -> bool:
        condition = spec.condition_of_group(f"{spec.name}-g")
        return reason in [one.get("reason") for one in condition.get("reasons") or ()]

    wait_for(f"it is told {reason}", told, LIMIT_S)


# -- elastic gangs -----------------------------------------------------------------------------------------------------


@specs("Elastic allocation basic scenarios / Elastic full allocation")
def test_an_elastic_gang_gets_all_that_there_is_room_for(spec: Spec) -> None:
    spec.wait_placed(*spec.gang("g", spec.queue(), 4, 1))


@specs("Elastic allocation basic scenarios / Elastic partial allocation")
def test_an_elastic_gang_gets_a_part(spec: Spec) -> None:
    names = spec.gang("g", spec.queue(gpus=2, limit=2), 4, 1)
    spec.wait_count("g", 2)
    time.sleep(0.3)
    assert len(spec.placed("g")) == 2
    assert len(names) == 4


@specs("Elastic allocation basic scenarios / Balance 2 elastic jobs")
def test_two_elastic_gangs_are_balanced(spec: Spec) -> None:
    queue = spec.queue(gpus=4, limit=4)
    holder = spec.pod("holder", queue, 4, priority="build")
    spec.wait_placed(holder)
    for name in ("one", "two"):
        spec.gang(name, queue, 4, 1)
    spec.api.delete(PODS, SPACE, holder, grace_s=0)
    spec.wait_count("one", 2)
    spec.wait_count("two", 2)


@specs("Elastic allocation basic scenarios / All pods of an elastic job will be prioritized to job with lower priority")
def test_all_pods_of_the_more_important_elastic_gang_go_first(spec: Spec) -> None:
    queue = spec.queue(gpus=4, limit=4)
    holder = spec.pod("holder", queue, 4, priority="build")
    spec.wait_placed(holder)
    spec.gang("low", queue, 4, 1, priorityClassName="train")
    spec.gang("high", queue, 4, 1, priorityClassName="build-preemptible", priority="build-preemptible")
    spec.api.delete(PODS, SPACE, holder, grace_s=0)
    spec.wait_count("high", 4)
    assert spec.placed("low") == []


@specs(
    "Elastic allocation pods order tests / Check ordered pods with elastic partial allocation",
    "Elastic allocation pods order tests / Check ordered pods with elastic partial allocation "
    "- with pods missing label",
)
@pytest.mark.parametrize("missing", [False, True])
def test_pods_of_a_gang_go_by_their_task_priority(spec: Spec, missing: bool) -> None:
    queue, group = spec.queue(gpus=2, limit=2), f"{spec.name}-g"
    holder = spec.pod("holder", queue, 2, priority="build")
    spec.wait_placed(holder)
    spec.api.create(POD_GROUPS, SPACE, {"metadata": {"name": group}, "spec": {"queue": queue, "minMember": 1}})
    for index in range(4):
        labels = {} if missing and index < 2 else {"kai.scheduler/task-priority": str(index)}
        spec.pod(f"g-{index}", queue, annotations={"pod-group-name": group}, labels=labels)
    spec.api.delete(PODS, SPACE, holder, grace_s=0)
    spec.wait_count("g", 2)
    assert {one["metadata"]["name"] for one in spec.placed("g")} == {f"{spec.name}-g-2", f"{spec.name}-g-3"}


# -- subgroups ---------------------------------------------------------------------------------------------------------


def leaf(name: str, least: int = 1, parent: str = "") -> dict[str, Any]:
    return {"name": name, "minMember": least} | ({"parent": parent} if parent else {})


def inner(name: str, least: int | None = None, parent: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"name": name} | ({} if least is None else {"minSubGroup": least})
    return found | ({"parent": parent} if parent else {})


@specs("Allocation scenario with subgroups / Partial allocation")
def test_subgroups_beyond_their_minimum_are_placed_as_far_as_there_is_room(spec: Spec) -> None:
    queue = spec.queue(gpus=3, limit=3)
    spec.group("g", queue, {"a": 2, "b": 2}, subGroups=[leaf("a"), leaf("b")])
    spec.wait_count("g", 3)
    assert {len(spec.placed("g-a")), len(spec.placed("g-b"))} == {1, 2}


@specs(
    "Allocation scenario with subgroups / Don't schedule job if subgroup gang is not satisfied",
    "MinSubGroup backward compatibility / should not schedule when any SubGroup fails and minSubGroup is nil",
)
def test_all_subgroups_are_needed(spec: Spec) -> None:
    queue = spec.queue(gpus=3, limit=3)
    names = spec.group("g", queue, {"a": 2, "b": 2}, subGroups=[leaf("a", 2), leaf("b", 2)])
    assert spec.stays_pending(*names)


@specs("Allocation scenario with subgroups / Balance 2 jobs with subgroups")
def test_two_gangs_with_subgroups_are_balanced(spec: Spec) -> None:
    queue = spec.queue(gpus=6, limit=6)
    holder = spec.pod("holder", queue, 6, priority="build")
    spec.wait_placed(holder)
    for name in ("one", "two"):
        spec.group(name, queue, {"a": 2, "b": 2}, subGroups=[leaf("a"), leaf("b")])
    spec.api.delete(PODS, SPACE, holder, grace_s=0)
    spec.wait_count("one", 3)
    spec.wait_count("two", 3)


@specs("MinSubGroup backward compatibility / should handle existing PodGroups with only minMember (no SubGroups)")
def test_a_gang_without_subgroups(spec: Spec) -> None:
    spec.wait_placed(*spec.gang("g", spec.queue(), 3))


@specs("MinSubGroup backward compatibility / should require all SubGroups when minSubGroup is nil (existing behavior)")
def test_all_subgroups_start_together(spec: Spec) -> None:
    spec.wait_placed(*spec.group("g", spec.queue(), {"a": 2, "b": 1}, subGroups=[leaf("a", 2), leaf("b")]))


PARTS = {"a": 2, "b": 2, "c": 2}
LEAVES = [leaf("a", 2), leaf("b", 2), leaf("c", 2)]


@specs(
    "Single-level hierarchy with minSubGroup / should schedule when minSubGroup threshold is met",
    "Single-level hierarchy with minSubGroup / should schedule with only minSubGroup subgroups when resources are "
    "constrained",
    "Single-level hierarchy with minSubGroup / should not schedule when minSubGroup cannot be satisfied",
)
@pytest.mark.parametrize(("room", "placed"), [(6, 6), (4, 4), (3, 0)])
def test_some_subgroups_of_several_are_enough(spec: Spec, room: int, placed: int) -> None:
    names = spec.group("g", spec.queue(gpus=room, limit=room), PARTS, minSubGroup=2, subGroups=LEAVES)
    if placed:
        spec.wait_count("g", placed)
        time.sleep(0.3)
        assert len(spec.placed("g")) == placed
    else:
        assert spec.stays_pending(*names)


TREE = [inner("x", 1), inner("y", 1), *(leaf(f"{up}{n}", 2, up) for up in "xy" for n in (1, 2))]
TREE_PARTS = {"x1": 2, "x2": 2, "y1": 2, "y2": 2}


@specs(
    "Multi-level hierarchy with minSubGroup / should schedule 2-level hierarchy when all minSubGroup thresholds "
    "are met",
    "Multi-level hierarchy with minSubGroup / should schedule 2-level hierarchy with elastic mid-level subgroups",
    "Multi-level hierarchy with minSubGroup / should not schedule 2-level hierarchy when child minSubGroup cannot "
    "be met",
)
@pytest.mark.parametrize(("room", "placed"), [(8, 8), (4, 4), (3, 0)])
def test_two_levels_of_subgroups(spec: Spec, room: int, placed: int) -> None:
    names = spec.group("g", spec.queue(gpus=room, limit=room), TREE_PARTS, minSubGroup=2, subGroups=TREE)
    if placed:
        spec.wait_count("g", placed)
        assert {one["metadata"]["name"].removeprefix(f"{spec.name}-g-")[0] for one in spec.placed("g")} == {"x", "y"}
    else:
        assert spec.stays_pending(*names)


@specs(
    "Mid-level SubGroup with minSubGroup=0 (fully elastic subtree) / should schedule both subtrees when resources are "
    "ample",
    "Mid-level SubGroup with minSubGroup=0 (fully elastic subtree) / should schedule group-required and skip "
    "group-optional (minSubGroup=0) when resources are constrained",
)
@pytest.mark.parametrize("room", [4, 2])
def test_a_subtree_may_be_optional(spec: Spec, room: int) -> None:
    tree = [inner("need", 1), inner("may", 0), leaf("n1", 2, "need"), leaf("m1", 2, "may")]
    spec.group("g", spec.queue(gpus=room, limit=room), {"n1": 2, "m1": 2}, minSubGroup=2, subGroups=tree)
    spec.wait_count("g", room)
    assert len(spec.placed("g-n1")) == 2


# -- what the webhook refuses ------------------------------------------------------------------------------------------


@specs(
    "MinSubGroup validation / should accept minSubGroup = 0",
    "MinSubGroup validation / should accept valid minSubGroup configuration",
    "MinSubGroup validation / should reject PodGroup with both minMember and minSubGroup set",
    "MinSubGroup validation / should reject SubGroup with both minMember and minSubGroup",
    "MinSubGroup validation / should reject mid-level SubGroup using minMember instead of minSubGroup",
    "MinSubGroup validation / should reject minSubGroup on leaf SubGroup with no children",
)
@pytest.mark.parametrize(
    ("fields", "is_taken"),
    [
        ({"minSubGroup": 0, "subGroups": [leaf("a"), leaf("b")]}, True),
        ({"minSubGroup": 1, "subGroups": [leaf("a"), leaf("b")]}, True),
        ({"minMember": 1, "minSubGroup": 1, "subGroups": [leaf("a")]}, False),
        ({"minSubGroup": 1, "subGroups": [leaf("a") | {"minSubGroup": 1}]}, False),
        ({"minSubGroup": 1, "subGroups": [leaf("x"), leaf("a", 1, "x")]}, False),
        ({"minSubGroup": 1, "subGroups": [inner("a", 1)]}, False),
    ],
)
def test_pod_groups_are_validated(spec: Spec, fields: dict[str, Any], is_taken: bool) -> None:
    body = {"metadata": {"name": f"{spec.name}-g"}, "spec": {"queue": spec.queue(), **fields}}
    assert (spec.refusal(POD_GROUPS, body) == "") == is_taken


@specs("MinSubGroup validation / should reject minSubGroup exceeding child count")
def test_more_subgroups_than_there_are_is_a_warning_as_in_kai(spec: Spec) -> None:
    fields = {"queue": spec.queue(), "minSubGroup": 3, "subGroups": [leaf("a"), leaf("b")]}
    body = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": f"{spec.name}-g"}}
    plane = spec.cluster.plane
    with urllib3.PoolManager(ca_certs=str(plane.authority), retries=False) as pool:
        answer = pool.request(
            "POST",
            f"{plane.url}{POD_GROUPS.path(SPACE)}",
            body=json.dumps(body | {"spec": fields}),
            headers={"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"},
        )
    assert answer.status == 201
    assert "minSubGroup (3) exceeds the number of direct child SubGroups (2)" in answer.headers["Warning"]


# -- topology ----------------------------------------------------------------------------------------------------------

RACK = "spec/rack"


ZONE = "spec/zone"


@pytest.fixture
def racks(spec: Spec) -> Iterator[str]:
    """A topology of two racks with two workers each; its name."""
    for index, name in enumerate(WORKERS):
        spec.api.patch(NODES, "", name, {"metadata": {"labels": {RACK: f"rack-{index // 2}"}}})
    levels = [{"nodeLabel": RACK, "alias": "rack"}, {"nodeLabel": HOST}]
    body = {"apiVersion": TOPOLOGIES.api_version, "kind": "Topology", "metadata": {"name": spec.name}}
    spec.api.create(TOPOLOGIES, "", body | {"spec": {"levels": levels}})
    yield spec.name
    for name in WORKERS:
        spec.api.patch(NODES, "", name, {"metadata": {"labels": {RACK: None}}})


def rack_of(node: str) -> int:
    return WORKERS.index(node) // 2


@specs(
    "Topology / Topology - 4 nodes / required only - rack level",
    "Topology / Topology - 4 nodes / preferred only - rack level",
    "Topology / Topology - 4 nodes / required rack and preferred node - all pods in a rack",
    "Topology / Topology - 4 nodes / required rack and preferred node - all pods in a single node",
    "Topology / Topology - alias resolution / schedules a workload that references the rack level by alias",
)
@pytest.mark.parametrize(
    ("constraint", "size", "nodes"),
    [
        ({"requiredTopologyLevel": RACK}, 2, 2),
        ({"preferredTopologyLevel": RACK}, 2, 2),
        ({"requiredTopologyLevel": RACK, "preferredTopologyLevel": HOST}, 4, 2),
        ({"requiredTopologyLevel": RACK, "preferredTopologyLevel": HOST}, 2, 1),
        ({"requiredTopologyLevel": "rack"}, 2, 2),
    ],
    ids=["required", "preferred", "rack-of-nodes", "one-node", "alias"],
)
def test_topologies(spec: Spec, racks: str, constraint: dict[str, str], size: int, nodes: int) -> None:
    """A pod of five GPUs takes a node for itself; pods of four share one."""
    gpus = 5 if nodes == size else 4
    stated = {"topology": racks, **constraint}
    found = spec.nodes_of(*spec.gang("g", spec.queue(), size, gpus=gpus, topologyConstraint=stated))
    assert len({rack_of(node) for node in found}) == 1
    assert len(set(found)) == nodes


@pytest.fixture
def zones(spec: Spec) -> Iterator[str]:
    """A topology of two zones with two racks of two workers each, four of which are there for the test alone."""
    more = tuple(f"{spec.name}-worker-{index}" for index in range(len(WORKERS)))
    for name in more:
        spec.cluster.node(name)
    spec.cluster.wait_nodes(2 * len(WORKERS) + 1)
    for index, name in enumerate((*WORKERS, *more)):
        labels = {ZONE: f"zone-{index // 4}", RACK: f"rack-{index // 2}"}
        spec.api.patch(NODES, "", name, {"metadata": {"labels": labels}})
    body = {"apiVersion": TOPOLOGIES.api_version, "kind": "Topology", "metadata": {"name": spec.name}}
    levels = [{"nodeLabel": label} for label in (ZONE, RACK, HOST)]
    spec.api.create(TOPOLOGIES, "", body | {"spec": {"levels": levels}})
    yield spec.name
    spec.clear()
    for name in more:
        spec.api.delete(NODES, "", name)
    for name in WORKERS:
        spec.api.patch(NODES, "", name, {"metadata": {"labels": {ZONE: None, RACK: None}}})


@specs("Topology / Topology - 8 nodes / required zone and preferred rack - all pods in a zone, packed into 2 racks")
def test_a_gang_in_one_zone_and_in_as_few_racks_as_can_be(spec: Spec, zones: str) -> None:
    stated = {"topology": zones, "requiredTopologyLevel": ZONE, "preferredTopologyLevel": RACK}
    found = spec.nodes_of(*spec.gang("g", spec.queue(), 4, gpus=8, topologyConstraint=stated))
    labels = [spec.api.get(NODES, "", node)["metadata"]["labels"] for node in found]
    assert len({one[ZONE] for one in labels}) == 1
    assert len({one[RACK] for one in labels}) == 2


@specs(
    "Topology / Empty context to jump over ginkgo bug / should not create test suite while ensuring that the test "
    "suite is executed"
)
def test_a_topology_that_no_gang_names_changes_nothing(spec: Spec, racks: str) -> None:
    assert racks
    spec.wait_placed(*spec.gang("g", spec.queue(), 4, gpus=5))


def test_the_queues_of_a_spec_are_taken_away(spec: Spec) -> None:
    queue = spec.queue()
    spec.clear()
    assert queue not in {one["metadata"]["name"] for one in spec.api.page(QUEUES).items}
    assert GPU == "nvidia.com/gpu"
