"""KAI's specs of GPUs that pods have by claim, stated or for an extended resource that a DeviceClass backs."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import DEVICE_CLASSES, POD_GROUPS, PODS, QUEUES, RESOURCE_CLAIMS
from tests.cluster.plane.cluster import CLAIM_TEMPLATES, SPACE, Cluster, pod
from tests.cluster.plane.plane import Plane, wait_for
from tests.cluster.plane.specs import DRA_WORKERS, DRIVER, GPU, GPUS, LIMIT_S, WORKERS, Spec, spec_of, specs, stocked

HOST = "kubernetes.io/hostname"
HIGH = "build-preemptible"


@pytest.fixture(scope="module")
def cluster(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with stocked(plane, tmp_path_factory.mktemp("devices"), claims=True) as found:
        yield found


NUMBERS = itertools.count()


@pytest.fixture
def spec(cluster: Cluster) -> Iterator[Spec]:
    yield from spec_of(cluster, NUMBERS)


def asking(count: int, device_class: str = DRIVER) -> Object:
    exactly = {"deviceClassName": device_class, "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


def by_claim(spec: Spec, name: str, queue: str, count: int = 1, device_class: str = DRIVER, **more: Any) -> str:
    """A pod with a claim of its own, made from a template."""
    template = f"{spec.name}-{name}"
    body = {"metadata": {"name": template}, "spec": {"spec": asking(count, device_class)}}
    spec.api.create(CLAIM_TEMPLATES, SPACE, body)
    return spec.pod(name, queue, 0, resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": template}], **more)


# -- claims ------------------------------------------------------------------------------------------------------------


@specs("Schedule pod with dynamic resource request / Dynamic Resources / Allocate simple request")
def test_a_claim_is_allocated(spec: Spec) -> None:
    assert spec.nodes_of(by_claim(spec, "p", spec.queue()))[0] in DRA_WORKERS


@specs(
    "Schedule pod with dynamic resource request / Dynamic Resources / Fails to allocate request with wrong device class"
)
def test_a_claim_of_a_class_that_is_not_there(spec: Spec) -> None:
    assert spec.stays_pending(by_claim(spec, "p", spec.queue(), device_class="no-such-class"))


@specs("Schedule pod with dynamic resource request / Dynamic Resources / Fills a node")
def test_claims_fill_a_node(spec: Spec) -> None:
    queue, here = spec.queue(), {HOST: DRA_WORKERS[0]}
    spec.wait_placed(*(by_claim(spec, f"p-{index}", queue, nodeSelector=here) for index in range(GPUS)))
    assert spec.stays_pending(by_claim(spec, "late", queue, nodeSelector=here))


@specs(
    "Schedule pod with dynamic resource request / DRA GPU Queue Bookkeeping / Should track DRA GPU resources in queue "
    "status"
)
def test_the_queue_tells_gpus_by_their_class(spec: Spec) -> None:
    queue = spec.queue()
    for name, count in (("one", 1), ("two", 2)):
        labels = {"kai.scheduler/queue": queue}
        body = {"metadata": {"name": f"{spec.name}-{name}", "labels": labels}, "spec": asking(count)}
        spec.api.create(RESOURCE_CLAIMS, SPACE, body)
    claims = [{"name": name, "resourceClaimName": f"{spec.name}-{name}"} for name in ("one", "two")]
    spec.wait_placed(*(spec.pod(f"p-{one['name']}", queue, 0, resourceClaims=[one]) for one in claims))

    def told() -> bool:
        status = spec.api.get(QUEUES, "", queue).get("status", {})
        return all(status.get(part, {}).get(DRIVER) == "3" for part in ("allocated", "requested"))

    wait_for("the queue tells three", told, LIMIT_S)
    assert spec.api.get(QUEUES, "", queue)["status"]["allocated"][GPU] == "0"
    groups = spec.api.page(POD_GROUPS, namespace=SPACE).items
    words = {
        name for one in groups for part in one.get("status", {}).get("resourcesStatus", {}).values() for name in part
    }
    assert not {name for name in words if " " in name}, "no name of ours"


@specs("Priority Preemption / Dynamic Resources / Preempts a pod based on DRA contention - dra template claims")
def test_a_claim_is_preempted(spec: Spec) -> None:
    queue, here = spec.queue(), {HOST: DRA_WORKERS[0]}
    running = by_claim(spec, "runs", queue, GPUS, nodeSelector=here)
    spec.wait_placed(running)
    spec.wait_placed(by_claim(spec, "comes", queue, GPUS, nodeSelector=here, priority=HIGH))
    spec.wait_left(running)


@specs("preempt Distributed Jobs / Over more than one nodes - DRA claims / should preempt jobs")
def test_a_gang_with_claims_preempts_another(spec: Spec) -> None:
    queue = spec.queue()
    low = claimed_gang(spec, "low", queue, 2, GPUS)
    spec.wait_placed(*low)
    spec.wait_placed(*claimed_gang(spec, "high", queue, 2, GPUS, priority=HIGH))
    spec.wait_left(*low)


def claimed_gang(
    spec: Spec, name: str, queue: str, size: int, count: int, least: int = 0, priority: str = "train"
) -> list[str]:
    """A PodGroup of pods with a claim for ``count`` GPUs each."""
    group = f"{spec.name}-{name}"
    fields = {"queue": queue, "minMember": least or size, "priorityClassName": priority}
    spec.api.create(POD_GROUPS, SPACE, {"metadata": {"name": group}, "spec": fields})
    named = {"pod-group-name": group}
    return [
        by_claim(spec, f"{name}-{index}", queue, count, annotations=named, priority=priority) for index in range(size)
    ]


@specs("Reclaim DRA / Reclaim based on priority, maintain over-quota weight proportion")
def test_claims_are_reclaimed_by_priority_and_weight(spec: Spec) -> None:
    spec.queue("all", 8, parent="", limit=8)
    light, heavy = spec.queue("light", 0, weight=1), spec.queue("heavy", 0, weight=2)
    high = spec.queue("high", 0, priority=101)
    spec.wait_placed(*(by_claim(spec, f"light-{index}", light) for index in range(8)))
    for index in range(8):
        by_claim(spec, f"heavy-{index}", heavy)
    spec.wait_count("heavy", 5)
    for index in range(2):
        by_claim(spec, f"high-{index}", high)
    spec.wait_count("high", 2)
    spec.wait_count("heavy", 4)
    spec.wait_count("light", 2)


@specs("Reclaim DRA / Reclaim tasks from elastic jobs (DRA)")
def test_surplus_with_claims_is_reclaimed(spec: Spec) -> None:
    spec.queue("all", 4, parent="", limit=4)
    one, two = spec.queue("one", 0), spec.queue("two", 4)
    spec.wait_placed(*claimed_gang(spec, "low", one, 4, 1, least=1))
    spec.wait_placed(*claimed_gang(spec, "high", two, 2, 1))
    spec.wait_count("low", 2)


@specs("Reclaim DRA / Under quota and Over fair share -> Over fair share and Over quota - Should not reclaim (DRA)")
def test_claims_beyond_the_fair_share_are_not_had_by_reclaim(spec: Spec) -> None:
    spec.queue("all", 4, parent="", limit=4)
    one, two = spec.queue("one", 1), spec.queue("two", 1)
    spec.wait_placed(by_claim(spec, "one-0", one, 2), by_claim(spec, "one-1", one))
    spec.wait_placed(by_claim(spec, "two-0", two))
    assert spec.stays_pending(by_claim(spec, "two-1", two, 2))


# -- extended resources ------------------------------------------------------------------------------------------------


@pytest.fixture
def backed(spec: Spec) -> Iterator[Spec]:
    """``nvidia.com/gpu`` is also had by claims of the class."""
    spec.api.patch(DEVICE_CLASSES, "", DRIVER, {"spec": {"extendedResourceName": GPU}})
    wait_for("it is seen", lambda: GPU in stated(spec), LIMIT_S)
    yield spec
    spec.clear()
    spec.api.patch(DEVICE_CLASSES, "", DRIVER, {"spec": {"extendedResourceName": None}})
    wait_for("it is gone", lambda: GPU not in stated(spec), LIMIT_S)


def stated(spec: Spec) -> set[str]:
    return {str(one["spec"].get("extendedResourceName")) for one in spec.replica.objects()["deviceClasses"]}


@specs(
    "Schedule pod with DRA-backed extended resource (KEP-5004) / schedules a pod using classic extended resource "
    "syntax without spec.resourceClaims"
)
def test_an_extended_resource_is_had_by_a_claim_of_ours(backed: Spec) -> None:
    name = backed.pod("p", backed.queue(), 1, nodeSelector={HOST: DRA_WORKERS[0]})
    backed.wait_placed(name)
    assert backed.pod_of(name)["status"]["extendedResourceClaimStatus"]["resourceClaimName"]


@specs(
    "Schedule pod with DRA-backed extended resource (KEP-5004) / fills a DRA node with extended resource pods and "
    "blocks the next"
)
def test_extended_resources_fill_a_node(backed: Spec) -> None:
    queue, here = backed.queue(), {HOST: DRA_WORKERS[0]}
    backed.wait_placed(*backed.pods("p", GPUS, queue, nodeSelector=here))
    assert backed.stays_pending(backed.pod("late", queue, nodeSelector=here))


@specs(
    "Schedule pod with DRA-backed extended resource (KEP-5004) / schedules a gang job (minMember=2) using extended "
    "resource syntax across DRA nodes"
)
def test_a_gang_with_extended_resources(backed: Spec) -> None:
    labels = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": list(DRA_WORKERS)}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": labels}}}
    group, queue = f"{backed.name}-g", backed.queue()
    backed.api.create(POD_GROUPS, SPACE, {"metadata": {"name": group}, "spec": {"queue": queue, "minMember": 2}})
    annotations = {"pod-group-name": group}
    names = [backed.pod(f"g-{n}", queue, GPUS, annotations=annotations, affinity=affinity) for n in range(2)]
    assert sorted(backed.nodes_of(*names)) == sorted(DRA_WORKERS)


@specs(
    "Schedule pod with DRA-backed extended resource (KEP-5004) / schedules a pod on a device-plugin node when the "
    "resource is also DRA-backed on other nodes"
)
def test_a_device_plugin_serves_the_resource_as_well(backed: Spec) -> None:
    name = backed.pod("p", backed.queue(), 1, nodeSelector={HOST: WORKERS[0]})
    backed.wait_placed(name)
    assert "extendedResourceClaimStatus" not in backed.pod_of(name)["status"]


@specs(
    "Schedule pod with DRA-backed extended resource (KEP-5004) / aggregates init-container GPU requests correctly "
    "(max, not sum)"
)
@pytest.mark.parametrize(("before", "after"), [(GPUS, GPUS), (GPUS, 1), (2, GPUS)])
def test_init_containers_share_the_devices_of_later_ones(backed: Spec, before: int, after: int) -> None:
    body = pod(f"{backed.name}-p", backed.queue(), after, nodeSelector={HOST: DRA_WORKERS[0]})
    first = {"name": "first", "image": "busybox", "resources": {"limits": {GPU: str(before)}}}
    body["spec"]["initContainers"] = [first]
    backed.api.create(PODS, SPACE, body)
    backed.wait_placed(f"{backed.name}-p")
    (claim,) = backed.api.page(RESOURCE_CLAIMS, namespace=SPACE).items
    assert len(claim["status"]["allocation"]["devices"]["results"]) == max(before, after)


@specs(
    "Priority Preemption / Dynamic Resources - Extended Resources / preempts an extended-resource pod using classic "
    "nvidia.com/gpu syntax"
)
def test_an_extended_resource_is_preempted(backed: Spec) -> None:
    queue, here = backed.queue(), {HOST: DRA_WORKERS[0]}
    running = backed.pod("runs", queue, GPUS, nodeSelector=here)
    backed.wait_placed(running)
    backed.wait_placed(backed.pod("comes", queue, GPUS, nodeSelector=here, priority=HIGH))
    backed.wait_left(running)
