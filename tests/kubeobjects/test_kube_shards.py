"""KAI's own configuration objects among the input."""

from typing import Any

import pytest

API = "kai.scheduler/v1"


def shard(name: str = "default", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": API, "kind": "SchedulingShard", "metadata": {"name": name}, "spec": spec}


def test_a_shard_states_placement_and_run_times(build: Any) -> None:
    minimum = {"preemptMinRuntime": "1m", "reclaimMinRuntime": "30s"}
    written = shard(placementStrategy={"gpu": "spread", "cpu": "binpack"}, minRuntime=minimum, kValue=0.5)
    found = build.read(written)
    policy = found.policy
    assert (policy.gpu_placement, policy.cpu_placement, policy.gpu_sharing_placement) == ("spread", "binpack", "spread")
    assert (policy.preempt_min_runtime_s, policy.reclaim_min_runtime_s, policy.k_value) == (60.0, 30.0, 0.5)
    assert policy.max_consolidation_gangs == -1
    assert any("KAI would then move nothing" in text for text in build.texts(found))


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


def test_an_empty_shard_says_nothing_and_gets_no_warning(build: Any) -> None:
    assert build.texts(build.read(shard(), shard("pool", partitionLabelValue="x")))[1:] == []
    assert build.texts(build.read(shard(args={}))) == []


def test_pods_of_another_pool_are_not_ours_without_a_pod_group_either(build: Any) -> None:
    pool = {"kai.scheduler/node-pool": "a100"}
    mine, other = build.pod("mine"), build.pod("other", labels=pool)
    assert [gang.pods[0].name for gang in build.read(mine, other).gangs] == ["mine"]
    node = build.node("n", {"metadata": {"labels": pool}})
    found = build.read(shard("a100", partitionLabelValue="a100"), node, mine, other)
    assert [gang.pods[0].name for gang in found.gangs] == ["other"]


BACKED_OFF = "Node-Pool '{}': found unschedulable there, and spec.schedulingBackoff has it tried once"


def backing_off(build: Any, backoff: int | None, *conditions: tuple[str, str], **labels: str) -> Any:
    spec = {"queue": "q", "minMember": 1} | ({} if backoff is None else {"schedulingBackoff": backoff})
    written = [{"type": "UnschedulableOnNodePool", "nodePool": pool, "transitionID": n} for n, pool in conditions]
    more = {"metadata": {"labels": labels}, "status": {"schedulingConditions": written}}
    return build.one_gang(build.pod_group(spec=spec, more=more), build.queue())


@pytest.mark.parametrize(
    ("backoff", "conditions", "pool"),
    [
        (None, [("1", "default")], None),
        (-1, [("1", "default")], None),
        (1, [], None),
        (1, [("1", "default")], "default"),
        (1, [("1", "default"), ("2", "a100")], None),
        (1, [("10", "default"), ("9", "a100")], "default"),
    ],
)
def test_a_group_that_backs_off_is_tried_once_in_a_pool(
    build: Any, backoff: int | None, conditions: list[tuple[str, str]], pool: str | None
) -> None:
    gang = backing_off(build, backoff, *conditions)
    assert gang.set_aside == (BACKED_OFF.format(pool) if pool else "")
