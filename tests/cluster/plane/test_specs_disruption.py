"""KAI's specs of what running work gives way: consolidation, preempt and reclaim."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import NODES, POD_GROUPS, PODS, REPLICA_SETS
from tests.cluster.plane.agents import GROUP
from tests.cluster.plane.cluster import SPACE, Cluster, ensure_gone, pod
from tests.cluster.plane.plane import Plane, wait_for
from tests.cluster.plane.specs import LIMIT_S, WORKERS, Spec, spec_of, specs, stocked

HOST = "kubernetes.io/hostname"


@pytest.fixture(scope="module")
def cluster(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with stocked(plane, tmp_path_factory.mktemp("disruption")) as found:
        yield found


NUMBERS = itertools.count()


@pytest.fixture
def spec(cluster: Cluster) -> Iterator[Spec]:
    yield from spec_of(cluster, NUMBERS)


# -- preempt -----------------------------------------------------------------------------------------------------------

TRAIN, HIGH_TRAIN, BUILD, INFERENCE = "train", "build-preemptible", "build", "inference"
"""Two priorities of work that can be preempted, and two of work that cannot."""


@specs(
    "Priority Preemption / High non preemptible PREEMPTING low preemptible",
    "Priority Preemption / High preemptible PREEMPTING low preemptible",
    "Priority Preemption / High non preemptible should not preempt low non preemptible",
    "Priority Preemption / Low non preemptible should not preempt high non preemptible",
    "Priority Preemption / Low preemptible should not preempt high non preemptible",
    "Priority Preemption / Low preemptible should not preempt high preemptible",
    "Priority Preemption / Same priority non preemptible should not preempt Same priority non preemptible",
    "Priority Preemption / Same priority preemptible should not preempt Same priority preemptible",
)
@pytest.mark.parametrize(
    ("runs", "comes", "is_preempted"),
    [
        (TRAIN, BUILD, True),
        (TRAIN, HIGH_TRAIN, True),
        (BUILD, INFERENCE, False),
        (INFERENCE, BUILD, False),
        (BUILD, TRAIN, False),
        (HIGH_TRAIN, TRAIN, False),
        (BUILD, BUILD, False),
        (TRAIN, TRAIN, False),
    ],
)
def test_higher_priority_preempts_what_can_be_preempted(spec: Spec, runs: str, comes: str, is_preempted: bool) -> None:
    queue = spec.queue(gpus=2, limit=2)
    spec.wait_placed(running := spec.pod("runs", queue, 2, priority=runs))
    preempts_or_waits(spec, running, spec.pod("comes", queue, 2, priority=comes), is_preempted)


def preempts_or_waits(spec: Spec, running: str, coming: str, is_preempted: bool) -> None:
    if is_preempted:
        spec.wait_left(running)
        spec.wait_placed(coming)
    else:
        assert spec.stays_pending(coming)
        assert spec.stays(running, for_s=0)


@specs(
    "Priority Preemption / Preemptability-Priority Separation / High priority preemptible Pod should be preemptible",
    "Priority Preemption / Preemptability-Priority Separation / Low priority non-preemptible Pod should not be "
    "preemptible",
)
@pytest.mark.parametrize(
    ("runs", "kind", "is_preempted"), [(BUILD, "preemptible", True), (TRAIN, "non-preemptible", False)]
)
def test_preemptibility_may_be_stated_apart_from_priority(spec: Spec, runs: str, kind: str, is_preempted: bool) -> None:
    queue = spec.queue(gpus=2, limit=2)
    labels = {"kai.scheduler/preemptibility": kind}
    spec.wait_placed(running := spec.pod("runs", queue, 2, priority=runs, labels=labels))
    preempts_or_waits(spec, running, spec.pod("comes", queue, 2, priority=INFERENCE), is_preempted)


@specs("Preemption Delay / delayed preemptor does not preempt within its window, preempts after")
def test_a_delayed_preemptor_waits_first(spec: Spec) -> None:
    queue = spec.queue(gpus=2, limit=2)
    spec.wait_placed(running := spec.pod("runs", queue, 2))
    coming = spec.pod("comes", queue, 2, priority=HIGH_TRAIN, annotations={"kai.scheduler/preemption-delay": "4s"})
    assert spec.stays(running, for_s=2.0)
    spec.wait_left(running)
    spec.wait_placed(coming)


@specs(
    "Preemption with Max Pods Limit / Simple case: preempt on node at max pods",
    "Preemption with Max Pods Limit / node at maxPods-1, fraction pod cannot allocate",
)
def test_the_number_of_pods_of_a_node_counts(spec: Spec) -> None:
    queue, here = spec.queue(), {HOST: WORKERS[0]}
    limited(spec, "1")
    try:
        running = spec.pod("runs", queue, 1, nodeSelector=here)
        spec.wait_placed(running)
        spec.wait_placed(spec.pod("comes", queue, 1, nodeSelector=here, priority=HIGH_TRAIN))
        spec.wait_left(running)
        limited(spec, "2")
        share = spec.share("share", queue, nodeSelector=here)
        assert spec.stays_pending(share), "its reservation pod needs a place, too"
    finally:
        limited(spec, "110")


def limited(spec: Spec, pods: str) -> None:
    """So many pods fit the first worker, as our controller knows."""
    amounts = {"allocatable": {"pods": pods}, "capacity": {"pods": pods}}
    spec.api.patch(NODES, "", WORKERS[0], {"status": amounts}, subresource="status")

    def seen() -> bool:
        nodes = {one["metadata"]["name"]: one for one in spec.replica.objects()["nodes"]}
        return bool(nodes[WORKERS[0]]["status"]["allocatable"]["pods"] == pods)

    wait_for("it is seen", seen, LIMIT_S)


HIGH: dict[str, Any] = {"priorityClassName": HIGH_TRAIN, "priority": HIGH_TRAIN}


@specs("Priority Preemption with Elastic Jobs / High priority elastic job preempts entire elastic job")
def test_an_elastic_gang_preempts_a_whole_one(spec: Spec) -> None:
    queue = spec.queue(gpus=4, limit=4)
    spec.wait_placed(*spec.gang("low", queue, 4, 2))
    spec.gang("high", queue, 4, 4, **HIGH)
    spec.wait_count("high", 4)
    spec.wait_count("low", 0)


@specs("Priority Preemption with Elastic Jobs / High priority elastic job preempts from low priority elastic jobs")
def test_an_elastic_gang_preempts_surplus_of_others(spec: Spec) -> None:
    queue = spec.queue(gpus=4, limit=4)
    for name in ("low-one", "low-two"):
        spec.wait_placed(*spec.gang(name, queue, 2, 1))
    spec.gang("high", queue, 2, 2, **HIGH)
    spec.wait_count("high", 2)
    spec.wait_count("low", 2)


@specs(
    "Priority pod order preemption with Elastic Jobs / High priority elastic job preempts from low priority elastic "
    "jobs - pod order"
)
def test_the_last_pods_of_a_gang_leave_first(spec: Spec) -> None:
    queue, group = spec.queue(gpus=3, limit=3), f"{spec.name}-low"

    spec.api.create(POD_GROUPS, SPACE, {"metadata": {"name": group}, "spec": {"queue": queue, "minMember": 1}})
    names = [
        spec.pod(
            f"low-{index}",
            queue,
            annotations={"pod-group-name": group},
            labels={"kai.scheduler/task-priority": str(index)},
        )
        for index in range(3)
    ]
    spec.wait_placed(*names)
    spec.wait_placed(spec.pod("high", queue, 2, priority=HIGH_TRAIN))
    spec.wait_left(*names[:2])
    assert spec.stays(names[2], for_s=0)


@specs("preempt Distributed Jobs / Over more than one nodes - gpu extended resources / should preempt jobs")
def test_a_gang_preempts_another_on_several_nodes(spec: Spec) -> None:
    queue = spec.queue(gpus=32)
    low = spec.gang("low", queue, 4, gpus=8)
    spec.wait_placed(*low)
    spec.wait_placed(*spec.gang("high", queue, 4, gpus=8, **HIGH))
    spec.wait_left(*low)


@specs("Preempt with MinSubGroup / should preempt elastic subgroups above minSubGroup threshold")
def test_subgroups_beyond_the_minimum_are_preempted(spec: Spec) -> None:
    queue = spec.queue(gpus=4, limit=4)
    leaves = [{"name": name, "minMember": 2} for name in "ab"]
    spec.wait_placed(*spec.group("low", queue, {"a": 2, "b": 2}, minSubGroup=1, subGroups=leaves))
    spec.wait_placed(spec.pod("high", queue, 2, priority=HIGH_TRAIN))
    spec.wait_count("low", 2)
    assert len({one["metadata"]["labels"]["kai.scheduler/subgroup-name"] for one in spec.placed("low")}) == 1


# -- reclaim -----------------------------------------------------------------------------------------------------------


def parts(spec: Spec, name: str, queue: str, *gpus: float) -> list[str]:
    """A pod for each amount of GPUs; 0.5 is half of one."""
    return [
        spec.share(f"{name}-{index}", queue, str(amount))
        if amount < 1
        else spec.pod(f"{name}-{index}", queue, int(amount))
        for index, amount in enumerate(gpus)
    ]


@specs(
    "Reclaim / Quota/Fair-share based reclaim / Under quota and Over fair share -> Under quota and Under quota - "
    "Should reclaim",
    "Reclaim / Quota/Fair-share based reclaim / Under quota and Over fair share -> Over fair share and Over quota - "
    "Should not reclaim",
    "Reclaim / Quota/Fair-share based reclaim / Under quota and Over fair share -> Over quota and Over quota - "
    "Should reclaim",
    "Reclaim / Quota/Fair-share based reclaim / Over quota and Over fair share -> Over quota and Over quota - "
    "Should reclaim",
    "Reclaim / Quota/Fair-share based reclaim / Under Quota and Over Quota -> Over Quota and Over Quota - "
    "Should reclaim",
    "Reclaim / Quota/Fair-share based reclaim / Under Quota and Over Quota -> Under Quota and Over Quota - "
    "Should reclaim",
)
@pytest.mark.parametrize(
    ("quota", "runs", "has", "asks", "is_reclaimed"),
    [
        (2, (1, 2), (1,), 0.5, True),
        (1, (2, 1, 0.5), (0.5,), 2, False),
        (1, (2, 1, 1), (), 2, True),
        (0.5, (2, 1), (1,), 1, True),
        (0.5, (1, 1, 1), (0.5,), 1, True),
        (2, (2, 1, 1), (), 2, True),
    ],
)
def test_reclaim_by_quota_and_fair_share(
    spec: Spec, quota: float, runs: tuple[float, ...], has: tuple[float, ...], asks: float, is_reclaimed: bool
) -> None:
    """Four GPUs and two queues: the first holds ``runs``, the second ``has`` and asks for more."""
    spec.queue("all", 4, parent="", limit=4)
    one, two = spec.queue("one", quota), spec.queue("two", quota)
    spec.wait_placed(*parts(spec, "runs", one, *runs))
    spec.wait_placed(*parts(spec, "has", two, *has))
    (coming,) = parts(spec, "comes", two, asks)
    if is_reclaimed:
        spec.wait_placed(coming)
    else:
        assert spec.stays_pending(coming)
        assert len(spec.placed("runs")) == len(runs)


@specs("Reclaim / Quota/Fair-share based reclaim / Simple priority reclaim")
def test_a_queue_of_higher_priority_reclaims_the_surplus(spec: Spec) -> None:
    spec.queue("all", 1, parent="", limit=1)
    low, high = spec.queue("low", 0, priority=100), spec.queue("high", 0, priority=101)
    spec.wait_placed(running := spec.pod("runs", low))
    spec.wait_placed(spec.pod("comes", high))
    spec.wait_left(running)


@specs("Reclaim / Quota/Fair-share based reclaim / Simple priority reclaim - but has min runtime")
def test_work_is_not_reclaimed_before_its_minimum_run_time(spec: Spec) -> None:
    spec.queue("all", 1, parent="", limit=1)
    low = spec.queue("low", 0, priority=100, reclaimMinRuntime="5s")
    high = spec.queue("high", 0, priority=101)
    spec.wait_placed(running := spec.pod("runs", low))
    coming = spec.pod("comes", high)
    assert spec.stays(running, for_s=2.0)
    spec.wait_left(running)
    spec.wait_placed(coming)


@specs(
    "Reclaim / Quota/Fair-share based reclaim / Reclaim based on priority, maintain over-quota weight proportion",
)
def test_the_surplus_is_shared_by_weight_after_reclaim(spec: Spec) -> None:
    """Eight GPUs: a queue of higher priority takes two, and those of weights 1 and 2 share the other six."""
    spec.queue("all", 8, parent="", limit=8)
    light, heavy = spec.queue("light", 0, weight=1), spec.queue("heavy", 0, weight=2)
    high = spec.queue("high", 0, priority=101)
    spec.pods("light", 8, light)
    spec.wait_count("light", 8)
    spec.pods("heavy", 8, heavy)
    spec.wait_count("heavy", 5)
    spec.pods("high", 2, high)
    spec.wait_count("high", 2)
    spec.wait_count("heavy", 4)
    spec.wait_count("light", 2)


@specs("Reclaim Distributed Jobs / Over more than one nodes / should reclaim jobs")
def test_a_gang_reclaims_several_nodes(spec: Spec) -> None:
    one, two = spec.queue("one", 0), spec.queue("two", 32)
    low = spec.gang("low", one, 4, gpus=8)
    spec.wait_placed(*low)
    spec.wait_placed(*spec.gang("high", two, 4, gpus=8))
    spec.wait_left(*low)


@specs(
    "Reclaim with Elastic Jobs / Reclaim elastic job for a distributed job",
    "Reclaim with Elastic Jobs / Reclaim elastic job partially for a distributed job",
    "Reclaim with Elastic Jobs / Reclaim entire elastic job",
    "Reclaim with Elastic Jobs / Reclaim tasks from elastic jobs",
)
@pytest.mark.parametrize(("least", "asks", "left"), [(4, 4, 0), (1, 2, 2), (3, 2, 0), (1, 3, 1)])
def test_elastic_gangs_give_way_to_a_gang(spec: Spec, least: int, asks: int, left: int) -> None:
    """Four GPUs: surplus leaves pod by pod, a gang that would fall below its minimum as a whole."""
    spec.queue("all", 4, parent="", limit=4)
    one, two = spec.queue("one", 0), spec.queue("two", 4)
    spec.wait_placed(*spec.gang("low", one, 4, least))
    spec.wait_placed(*spec.gang("high", two, asks))
    wait_for("others have left", lambda: len(spec.placed("low")) == left, LIMIT_S)


@specs("Reclaim with Elastic Jobs / Reclaim elastic job with min runtime protecting")
def test_a_protected_elastic_gang_loses_its_surplus_alone(spec: Spec) -> None:
    spec.queue("all", 4, parent="", limit=4)
    one, two = spec.queue("one", 0, reclaimMinRuntime="1h"), spec.queue("two", 4)
    spec.wait_placed(*spec.gang("low", one, 4, 2))
    spec.wait_placed(*spec.gang("high", two, 2))
    assert spec.stays_pending(*spec.gang("more", two, 2))
    assert len(spec.placed("low")) == 2


@specs("Reclaim with MinSubGroup / should reclaim resources from elastic subgroups for fair share")
def test_subgroups_beyond_the_minimum_are_reclaimed(spec: Spec) -> None:
    spec.queue("all", 4, parent="", limit=4)
    one, two = spec.queue("one", 2), spec.queue("two", 2)
    leaves = [{"name": name, "minMember": 2} for name in "ab"]
    spec.wait_placed(*spec.group("low", one, {"a": 2, "b": 2}, minSubGroup=1, subGroups=leaves))
    spec.wait_placed(*spec.gang("high", two, 2))
    spec.wait_count("low", 2)


# -- consolidation -----------------------------------------------------------------------------------------------------


def keep(spec: Spec, name: str, queue: str, gpus: int, **more: Any) -> None:
    """A pod that is made again whenever it leaves, at once."""
    whole = f"{spec.name}-{name}"
    template = pod("", queue, gpus, labels={"app": whole}, **more)
    template["spec"]["restartPolicy"] = "Always"
    body = {"replicas": 1, "selector": {"matchLabels": {"app": whole}}, "template": template}
    spec.api.create(REPLICA_SETS, SPACE, {"metadata": {"name": whole}, "spec": body})


def drop(spec: Spec, kept: Object) -> None:
    """Such a pod, for good."""
    spec.api.delete(REPLICA_SETS, SPACE, kept["metadata"]["labels"]["app"])
    ensure_gone(spec.cluster.plane, PODS, SPACE, kept["metadata"]["name"], grace_s=0)


@specs("Consolidation / Node level consolidation")
def test_pods_are_moved_together_to_free_a_node(spec: Spec) -> None:
    queue = spec.queue()
    for index in range(8):
        keep(spec, f"half-{index}", queue, 4)
    spec.wait_count("half", 8)
    by_node = {one["spec"]["nodeName"]: one for one in spec.placed("half")}
    for node in list(by_node)[:2]:
        drop(spec, by_node[node])
    spec.wait_count("half", 6)
    spec.wait_placed(spec.pod("whole", queue, 8))
    spec.wait_count("half", 6)


@specs("Consolidation / GPU device level consolidation")
def test_shares_are_moved_together_to_free_a_gpu(spec: Spec) -> None:
    queue, here = spec.queue(), {HOST: WORKERS[0]}
    spec.wait_placed(spec.pod("hold", queue, 6, nodeSelector=here, priority="build"))
    for index in range(4):
        keep(spec, f"half-{index}", queue, 0, annotations={"gpu-fraction": "0.5"}, nodeSelector=here)
        spec.wait_count("half", index + 1)
    by_gpu = {one["metadata"]["labels"][GROUP]: one for one in spec.placed("half")}
    assert len(by_gpu) == 2
    for one in by_gpu.values():
        drop(spec, one)
    spec.wait_count("half", 2)
    assert len({one["metadata"]["labels"][GROUP] for one in spec.placed("half")}) == 2
    spec.wait_placed(spec.pod("whole", queue, 1, nodeSelector=here))
    spec.wait_count("half", 2)
    assert len({one["metadata"]["labels"][GROUP] for one in spec.placed("half")}) == 1
