"""Two snapshots of a running KAI load to what is known of them, and survive an export."""

import io
import json
import zipfile
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kai_solver.domain import Action, PodStatus, Policy, Snapshot
from kai_solver.errors import InputError
from kai_solver.kubeobjects import (
    KubeSettings,
    RawObjects,
    export_kai_snapshot,
    load_kai_snapshot,
    objects_from_snapshot,
    snapshot_from_objects,
)
from kai_solver.kubeobjects.kaisnapshot import newest_time_s

FOLDER = Path(__file__).parents[2] / "instances" / "kai-snapshots"
BEFORE, DURING = "before-reclaim.zip", "during-reclaim.zip"


def unzipped(content: bytes) -> Any:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == ["snapshot.json"]
        return json.loads(archive.read("snapshot.json"))


def loaded(name: str) -> tuple[RawObjects, KubeSettings, float]:
    return load_kai_snapshot(unzipped((FOLDER / name).read_bytes()))


def snapshot(name: str) -> Snapshot:
    objects, settings, now_s = loaded(name)
    return snapshot_from_objects(objects, now_s=now_s, settings=settings)


def statuses(found: Snapshot) -> Counter[PodStatus]:
    return Counter(pod.status for gang in found.gangs for pod in gang.pods)


def test_before_reclaim_has_the_pods_that_its_readme_counts() -> None:
    found = snapshot(BEFORE)
    assert statuses(found) == {PodStatus.RUNNING: 80, PodStatus.BINDING: 12, PodStatus.PENDING: 29}
    assert (len(found.gangs), len(found.nodes), len(found.queues)) == (60, 14, 10)
    assert sum(node.gpus for node in found.nodes) == 96


@pytest.mark.slow
def test_during_reclaim_has_the_pods_that_its_readme_counts() -> None:
    found = snapshot(DURING)
    expected = {PodStatus.RUNNING: 54, PodStatus.RELEASING: 14, PodStatus.BINDING: 12, PodStatus.PENDING: 25}
    assert statuses(found) == expected
    assert sum(not gang.pods for gang in found.gangs) == 3


def test_pods_without_a_group_join_the_group_of_their_owner() -> None:
    sizes = {gang.name.split("-", 1)[1].rsplit("-", 5)[0]: len(gang.pods) for gang in snapshot(BEFORE).gangs}
    assert sizes["elastic"] == 8
    assert sizes["no-quota-build"] == 4


def test_live_bind_requests_give_pods_their_node_and_shared_device() -> None:
    pods = [pod for gang in snapshot(BEFORE).gangs for pod in gang.pods if pod.name.startswith("embed-")]
    assert len(pods) == 12
    assert {pod.node for pod in pods} == {"gpu-05", "gpu-06"}
    assert all(len(pod.gpu_groups) == 1 and pod.gpu.milli == 500 for pod in pods)
    shared = Counter((pod.node, pod.gpu_groups[0]) for pod in pods)
    assert set(shared.values()) == {2}


def test_reservation_pods_are_no_load() -> None:
    assert snapshot(BEFORE).foreign == ()


def test_gangs_that_wait_on_purpose_are_kept_with_what_keeps_them() -> None:
    gangs = {gang.name.split("-", 1)[1].rsplit("-", 5)[0]: gang for gang in snapshot(BEFORE).gangs}
    llama = gangs["llama-4x8"]
    assert llama.root.topology is not None
    assert (llama.root.topology.topology, llama.root.topology.required) == ("racks", "example.com/rack")
    assert next(llama.root.podsets()).min_member == 4
    assert not gangs["no-quota-build"].preemptible
    assert gangs["typo-queue"].queue == "analitics"
    assert not gangs["typo-queue"].set_aside
    assert not gangs["parent-queue"].set_aside


def test_queues_and_devices_have_our_units() -> None:
    found = snapshot(BEFORE)
    queues = {queue.name: queue for queue in found.queues}
    assert queues["inference"].quota == (-1, -1, 11_000)
    assert queues["inference"].limit == (-1, -1, 20_000)
    assert queues["inference"].weight == (1.0, 1.0, 30.0)
    assert queues["infra-ci"].priority == 120
    gpu_node = next(node for node in found.nodes if node.name == "gpu-00")
    assert gpu_node.gpu_memory_mib == 81_500
    assert gpu_node.allocatable == (96_000, 2**40, 8_000, 110)


def test_the_stated_consolidation_limit_holds_and_is_said() -> None:
    found = snapshot(BEFORE)
    assert found.policy.max_consolidation_gangs == 16
    assert any("maxNumberConsolidationPreemptees" in notice.object for notice in found.notices)


@pytest.mark.parametrize("name", [BEFORE, DURING])
def test_export_of_the_raw_objects_loses_nothing(name: str) -> None:
    objects, settings, now_s = loaded(name)
    assert load_kai_snapshot(unzipped(export_kai_snapshot(objects, settings))) == (objects, settings, now_s)


@pytest.mark.parametrize("name", [BEFORE, DURING])
def test_a_snapshot_written_as_objects_reads_as_the_same_snapshot(name: str) -> None:
    found = snapshot(name)
    settings = KubeSettings(policy=found.policy, notices=found.notices)
    objects, read_settings, now_s = load_kai_snapshot(
        unzipped(export_kai_snapshot(objects_from_snapshot(found, settings), settings))
    )
    assert snapshot_from_objects(objects, now_s=now_s, settings=read_settings) == found


def test_every_policy_survives_the_export() -> None:
    policy = Policy("spread", "binpack", "spread", 0, False, 7.5, 1.25, 0.5, 100, 60.0, 0.5, "queue", False)
    policy = replace(policy, restrict_node_scheduling=True, stuck_in_releasing_s=30.0, non_preemptible_priority=1001)
    policy = replace(policy, gpu_resources=("a.com/gpu",), shared_gpu_resources=("a.com/gpu.part", "b.com/part"))
    policy = replace(policy, disabled_actions=frozenset({Action.PREEMPT, Action.STALE}))
    settings = KubeSettings("other", "team", "pool", "a100", policy=policy)
    _, read, _ = load_kai_snapshot(unzipped(export_kai_snapshot(RawObjects(), settings)))
    assert read.policy == policy
    assert (read.scheduler_name, read.queue_label_key, read.node_pool_key, read.node_pool) == (
        "other",
        "team",
        "pool",
        "a100",
    )


def test_an_unstated_consolidation_limit_is_ours() -> None:
    _, settings, _ = load_kai_snapshot({"schedulerParams": {"schedulerName": "x"}, "rawObjects": {}})
    assert settings.policy.max_consolidation_gangs == -1
    assert any("-1" in notice.text for notice in settings.notices)


def test_actions_that_a_snapshot_leaves_out_are_disabled() -> None:
    document = {"config": {"actions": "allocate, reclaim"}, "schedulerParams": {"schedulerName": "x"}, "rawObjects": {}}
    _, settings, _ = load_kai_snapshot(document)
    assert settings.policy.disabled_actions == {Action.CONSOLIDATION, Action.PREEMPT, Action.STALE}
    told = [notice.text for notice in settings.notices if notice.object == "config.actions"]
    assert told == ["the snapshot leaves out consolidation, preempt, stalegangeviction: disabled here, too"]


def test_with_all_actions_disabled_an_export_leaves_out_all() -> None:
    policy = replace(Policy(), disabled_actions=frozenset(Action))
    _, read, _ = load_kai_snapshot(unzipped(export_kai_snapshot(RawObjects(), KubeSettings(policy=policy))))
    assert read.policy.disabled_actions == set(Action)


def test_an_export_has_no_password_of_a_prometheus() -> None:
    shard = {"kind": "SchedulingShard", "spec": {"usageDBConfig": {"connectionString": "https://me:se@cret@h:1/p"}}}
    config = {"kind": "Config", "spec": {"prometheus": {"externalPrometheusUrl": "http://me:secret@h"}, "x": 1}}
    other = unzipped(export_kai_snapshot(RawObjects(other=(shard, config, {"kind": "Job"}))))["rawObjects"]["other"]
    assert other[0]["spec"] == {"usageDBConfig": {"connectionString": "https://h:1/p"}}
    assert other[1:] == [
        {"kind": "Config", "spec": {"prometheus": {"externalPrometheusUrl": "http://h"}, "x": 1}},
        {"kind": "Job"},
    ]


@pytest.mark.parametrize("document", [None, [], {}, {"rawObjects": []}, {"rawObjects": {"pods": 3}}, "text"])
def test_what_is_no_snapshot_is_refused_with_the_field(document: object) -> None:
    with pytest.raises(InputError) as caught:
        load_kai_snapshot(document)
    assert "rawObjects" in str(caught.value) or "object" in str(caught.value)


def test_unknown_members_are_named() -> None:
    objects, _, _ = load_kai_snapshot({"rawObjects": {"limitRanges": [{}]}})
    assert [notice.object for notice in objects.notices] == ["rawObjects.limitRanges"]


def test_dates_that_yaml_has_read_are_times_again() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    objects = RawObjects(nodes=({"metadata": {"name": "n", "creationTimestamp": moment}},))
    assert newest_time_s(objects) == moment.timestamp()
    read, _, now_s = load_kai_snapshot(unzipped(export_kai_snapshot(objects)))
    assert read.nodes[0]["metadata"]["creationTimestamp"] == "2026-01-31T12:00:00Z"
    assert now_s == moment.timestamp()


def test_the_end_of_a_grace_period_is_not_the_present() -> None:
    metadata = {"creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:05:00Z"}
    assert newest_time_s(RawObjects(pods=({"metadata": metadata},))) == datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def test_settings_that_nothing_looks_at_are_named() -> None:
    config = {
        "queueDepthPerAction": {"reclaim": 10},
        "usageDBConfig": {"clientType": "x"},
    }
    parameters = {"schedulerName": "x", "scheduleCSIStorage": True}
    _, settings, _ = load_kai_snapshot({"config": config, "schedulerParams": parameters, "rawObjects": {}})
    told = {notice.object: notice.text for notice in settings.notices}
    assert {"config.queueDepthPerAction", "config.usageDBConfig", "schedulerParams.scheduleCSIStorage"} <= set(told)


@pytest.mark.parametrize(("most", "told"), [(16, ["schedulerParams.maxNumberConsolidationPreemptees"]), (-1, [])])
def test_kais_own_settings_need_no_word(most: int, told: list[str]) -> None:
    actions = "allocate, consolidation, reclaim, preempt, stalegangeviction"
    parameters = {"schedulerName": "x", "maxNumberConsolidationPreemptees": most}
    document = {"config": {"actions": actions}, "schedulerParams": parameters, "rawObjects": {}}
    _, settings, _ = load_kai_snapshot(document)
    assert [notice.object for notice in settings.notices] == told
