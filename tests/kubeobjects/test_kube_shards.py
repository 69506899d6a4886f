"""KAI's own configuration objects among the input."""

from typing import Any

import pytest

API = "kai.scheduler/v1"


def shard(name: str = "default", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": API, "kind": "SchedulingShard", "metadata": {"name": name}, "spec": spec}


def test_a_shard_states_placement_and_run_times(build: Any) -> None:
    minimum = {"preemptMinRuntime": "1m", "reclaimMinRuntime": "30s"}
    written = shard(placementStrategy={"gpu": "spread", "cpu": "binpack"}, minRuntime=minimum, kValue=0.5)
    policy = build.read(written).policy
    assert (policy.gpu_placement, policy.cpu_placement, policy.gpu_sharing_placement) == ("spread", "binpack", "spread")
    assert (policy.preempt_min_runtime_s, policy.reclaim_min_runtime_s, policy.k_value) == (60.0, 30.0, 0.5)
    assert policy.max_consolidation_gangs == 0  # spreading disables consolidation in KAI


def test_the_default_shard_counts_and_the_others_are_named(build: Any) -> None:
    found = build.read(shard("pool", partitionLabelValue="a100"), shard(kValue=0.25))
    assert found.policy.k_value == 0.25
    assert [node.name for node in found.nodes] == ["n"]
    assert any("SchedulingShard pool: is another scheduler's" in text for text in build.texts(found))


def test_a_lone_shard_of_a_pool_sees_that_pool(build: Any) -> None:
    labels = {"metadata": {"labels": {"kai.scheduler/node-pool": "a100"}}}
    found = build.read(shard("pool", partitionLabelValue="a100"), build.node("in", labels), build.node("out"))
    assert [node.name for node in found.nodes] == ["in"]


def test_fields_of_a_shard_that_are_not_honoured_are_listed(build: Any) -> None:
    found = build.read(shard(queueDepthPerAction={"reclaim": 5}, kValue=1))
    (text,) = [text for text in build.texts(found) if "not honoured" in text]
    assert text.endswith("spec.queueDepthPerAction.reclaim")


def test_the_config_names_scheduler_and_labels(build: Any) -> None:
    names = {"schedulerName": "mine", "queueLabelKey": "team", "nodePoolLabelKey": "pool"}
    config = {"apiVersion": API, "kind": "Config", "metadata": {"name": "kai-config"}, "spec": {"global": names}}
    pod = build.pod("p", {"spec": {"schedulerName": "mine"}}, labels={"team": "x"})
    assert build.one_gang(config, pod).queue == "x"


@pytest.mark.parametrize(
    "spec", [{"kValue": "much"}, {"minRuntime": {"preemptMinRuntime": "soon"}}, {"placementStrategy": 1}]
)
def test_a_broken_shard_changes_nothing(build: Any, spec: dict[str, Any]) -> None:
    found = build.read(shard(**spec))
    assert found.policy == build.read().policy
    assert any(text.startswith("SchedulingShard default: spec.") for text in build.texts(found, "set-aside"))
