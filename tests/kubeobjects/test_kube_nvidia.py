"""Objects of ``kai.nvidia.com/v1``, and all YAML of the articles that describe them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kai_solver.domain import Snapshot
from kai_solver.kubeobjects import objects_from_documents, snapshot_from_objects

API = "kai.nvidia.com/v1"


def nvidia(kind: str, spec: Any, name: str = "x", **metadata: str) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def article(data: Path, *names: str) -> Snapshot:
    files = [path for name in names for path in sorted((data / "seeds").glob(name))]
    assert files
    documents = [(path.name, document) for path in files for document in yaml.safe_load_all(path.read_text())]
    return snapshot_from_objects(objects_from_documents(documents), now_s=0.0)


HIERARCHY = [
    {
        "name": "research",
        "weight": 40,
        "children": [{"name": "llm", "weight": 60}, {"name": "vision", "weight": 40}],
    },
    {
        "name": "data-science",
        "weight": 35,
        "children": [{"name": "analytics", "weight": 70}, {"name": "inference", "weight": 30}],
    },
    {"name": "infrastructure", "weight": 25},
]


def test_weights_divide_the_clusters_gpus_down_the_tree(build: Any) -> None:
    nodes = [build.node(f"n{index}", gpus=10) for index in range(10)]
    found = build.read(nvidia("ResourceQuota", {"hierarchy": HIERARCHY}), *nodes)
    queues = {queue.name: queue for queue in found.queues}
    assert {name: queue.quota[2] / 1000 for name, queue in queues.items()} == {
        "research": 40,
        "llm": 24,
        "vision": 16,
        "data-science": 35,
        "analytics": 24.5,
        "inference": 10.5,
        "infrastructure": 25,
    }
    assert {name: queue.weight[2] for name, queue in queues.items()}["analytics"] == 70
    assert queues["llm"].parent == "research"
    assert {queue.quota[:2] for queue in found.queues} == {(-1, -1)}
    assert {queue.limit for queue in found.queues} == {(-1, -1, -1)}


def test_without_nodes_the_configuration_says_how_many_gpus_there_are(build: Any, data: Path) -> None:
    found = article(data, "003-03*", "003-11*")
    assert {queue.name: queue.quota[2] for queue in found.queues}["research"] == 40_000


def test_nodes_win_over_the_stated_total_and_that_is_said(build: Any) -> None:
    config = nvidia("KAISchedulerConfig", {"clusterResources": {"totalGpus": 100}})
    found = build.read(config, nvidia("ResourceQuota", {"hierarchy": HIERARCHY}), build.node(gpus=20))
    assert {queue.name: queue.quota[2] for queue in found.queues}["research"] == 8_000
    assert any("totalGpus is 100, but the nodes have 20" in text for text in build.texts(found))


def test_guaranteed_is_the_quota_and_burst_the_way_to_the_limit(data: Path) -> None:
    found = article(data, "003-08*")
    queues = {queue.name: queue for queue in found.queues}
    assert queues["research-llm"].quota == (-1, 960 * 2**30, 24_000)
    assert queues["research-llm"].limit == (-1, 1440 * 2**30, 36_000)
    assert queues["data-science-analytics"].limit[2] == 39_000


@pytest.mark.parametrize(("allowed", "preemptible"), [(False, False), (True, True)])
def test_a_namespace_with_a_quota_is_the_queue_of_its_pods(build: Any, allowed: bool, preemptible: bool) -> None:
    quota = nvidia("Quota", {"namespace": "ns", "guaranteedQuota": {"gpus": 4}, "preemptionAllowed": allowed})
    gang = build.one_gang(quota, build.pod())
    assert (gang.queue, gang.preemptible) == ("ns", preemptible)


def test_a_quota_refines_the_queue_that_a_hierarchy_made_whatever_the_order(build: Any) -> None:
    quota = nvidia("Quota", {"namespace": "llm", "guaranteedQuota": {"gpus": 3}})
    found = build.read(quota, nvidia("ResourceQuota", {"hierarchy": HIERARCHY}))
    llm = next(queue for queue in found.queues if queue.name == "llm")
    assert (llm.parent, llm.quota[2], llm.limit[2], llm.weight[2]) == ("research", 3_000, 3_000, 60.0)


def test_two_quotas_of_one_namespace_are_named(build: Any) -> None:
    specs = [nvidia("Quota", {"namespace": "a", "guaranteedQuota": {"gpus": n}}, f"q{n}") for n in (1, 2)]
    found = build.read(*specs)
    assert [queue.quota[2] for queue in found.queues] == [2_000]
    assert any("q2: replaces Quota q1" in text for text in build.texts(found))


@pytest.mark.parametrize(("stated", "expected"), [("bin-pack", "binpack"), ("spread", "spread")])
def test_one_strategy_becomes_policy(build: Any, stated: str, expected: str) -> None:
    assert build.read(nvidia("SchedulingPolicy", {"strategyName": stated})).policy.gpu_placement == expected


def test_strategies_that_differ_change_nothing_and_are_named(data: Path) -> None:
    found = article(data, "003-04*", "003-05*")
    assert found.policy.gpu_placement == "binpack"
    assert any("inference-spread: spread" in notice.text for notice in found.notices)


def test_every_field_that_is_not_honoured_is_listed_by_path(build: Any, data: Path) -> None:
    texts = " ".join(build.texts(article(data, "003-0[3-9]*", "003-1*"), "warning"))
    for path in (
        "spec.scheduling.fairShareConfig.updateIntervalSeconds",
        "spec.scheduling.fairShareConfig.timeWeightedFairness",
        "spec.placementStrategy.gpuDensityTarget",
        "spec.placementStrategy.maxGPUsPerNode",
        "spec.gracePeriodsSeconds",
        "spec.preemptionOrder[2].maxPreemptionsPerCycle",
        "spec.checkpointHooksEnabled",
        "spec.guaranteedQuota.maxPodsPerDay",
        "spec.guaranteedQuota.expirationSeconds",
        "spec.burstQuota.conditionRequired",
        "spec.recordMetricsIntervalSeconds",
        "spec.metricsEndpoint",
        "spec.selectionCriteria[3].weight",
        "spec.maxJobsPerDrainCycle",
        "spec.minimumResourcesPerJob.gpus",
        "spec.clusterResources.totalMemory",
        "spec.queueDrainingPolicy",
    ):
        assert path in texts
    for path in ("spec.guaranteedQuota.gpus", "spec.hierarchy[0].weight", "algorithmName", "enableGangScheduling"):
        assert path not in texts


def test_a_value_that_is_not_honoured_is_listed_though_its_field_is(build: Any) -> None:
    found = build.read(nvidia("KAISchedulerConfig", {"enableGangScheduling": False, "enableFairShare": True}))
    (text,) = [text for text in build.texts(found) if "KAISchedulerConfig" in text]
    assert "enableGangScheduling" in text
    assert "enableFairShare" not in text


def test_an_unknown_kind_is_listed_whole(build: Any) -> None:
    found = build.read(nvidia("Surprise", {"a": {"b": [1, 2]}, "c": None}))
    assert any("spec.a.b[0], spec.a.b[1], spec.c" in text for text in build.texts(found))


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("ResourceQuota", {"hierarchy": [{"name": "a", "weight": -1}]}, "hierarchy[0].weight"),
        ("ResourceQuota", {"hierarchy": [{"weight": 1}]}, "hierarchy[0].name"),
        ("ResourceQuota", {"hierarchy": {"a": 1}}, "hierarchy"),
        ("Quota", {"guaranteedQuota": {"gpus": 1}}, "spec.namespace"),
        ("Quota", {"namespace": "a", "guaranteedQuota": {"gpus": -4}}, "gpus"),
        ("Quota", {"namespace": "a", "guaranteedQuota": {"memory": "lots"}}, "memory"),
    ],
)
def test_a_broken_object_is_set_aside_by_field(build: Any, kind: str, spec: Any, field: str) -> None:
    found = build.read(nvidia(kind, spec))
    assert found.queues == ()
    assert any(text.startswith(f"{kind} x: ") and field in text for text in build.texts(found, "set-aside"))


def test_the_articles_gang_of_four_waits_for_all_its_pods(data: Path) -> None:
    (gang,) = article(data, "003-02*").gangs
    assert (gang.name, len(gang.pods)) == ("training-job-20250227-001", 4)
    assert next(gang.root.podsets()).min_member == 4
    assert article(data, "003-01*").gangs[0].name != gang.name


def test_the_articles_training_job_becomes_a_gang_in_the_queue_of_its_namespace(data: Path) -> None:
    found = article(data, "003-06*", "003-11*", "003-12*")
    (gang,) = found.gangs
    assert (gang.key, gang.queue, len(gang.pods)) == ("research-llm/llama-finetuning-v2", "research-llm", 4)
    assert gang.priority == 100
    assert not gang.set_aside  # master and workers share a job id; duplicate indices are accepted
    assert "training-checkpoints-pvc" in gang.pods[0].constraints.blocked[0]


def test_yaml_that_lost_its_indentation_is_named_and_its_repair_loads(data: Path) -> None:
    broken = article(data, *(f"002-0{number}*[a-z].yaml" for number in (1, 2, 3)))
    named = {notice.object for notice in broken.notices if notice.kind == "set-aside"}
    assert named == {"002-01-queue.yaml", "002-02-child-queue.yaml", "002-03-gpu-pod.yaml"}
    repaired = article(data, "002-*.repaired.yaml")
    assert [(queue.name, queue.parent) for queue in repaired.queues] == [
        ("research-team", ""),
        ("ml-team", "research-team"),
    ]
    assert [(gang.queue, gang.pods[0].gpu.devices) for gang in repaired.gangs] == [("default-queue", 1)]


def test_every_document_of_the_articles_is_used_or_named(data: Path) -> None:
    for path in sorted((data / "seeds").glob("*.yaml")):
        found = article(data, path.name)
        used = found.gangs or found.queues
        assert used or found.notices or path.name.startswith("003-06"), path.name
