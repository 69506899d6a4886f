"""Cluster-wide policy: settings of ours before KAI's objects, which are followed; a broken object changes nothing."""

import io
import json
import time
import zipfile
from typing import Any

import pytest

from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import (
    CONFIG_MAPS,
    EVENTS,
    KAI_CONFIGS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    SCHEDULING_SHARDS,
    Resource,
)
from kai_solver.cluster.store import Store
from kai_solver.cluster.view import View
from kai_solver.controller.app import Controller
from kai_solver.controller.policy import ClusterPolicy
from kai_solver.controller.reporting import noticed
from kai_solver.controller.settings import ControllerSettings
from kai_solver.controller.wiring import kube_settings
from kai_solver.domain import Notice, Policy
from kai_solver.kubeobjects import KubeSettings
from kai_solver.kubeobjects.usagedb import ALLOCATED, CAPACITY, UsageStore
from tests.controller.replicas import bound, cluster, pod, running, until
from tests.support.prometheus import Prometheus, Series, serving


class Book:
    """A store with KAI's objects, and the policy that follows them."""

    def __init__(self, **settings: Any) -> None:
        self.store = Store()
        stated = ControllerSettings(**settings)
        self.policy = ClusterPolicy(self.store, kube_settings(stated), stated)

    def put(self, kind: Resource, name: str, spec: Any, namespace: str = "", **more: Any) -> None:
        """In place of the one of that name."""
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec, **more}
        others = [one for one in self.store.all(kind) if one["metadata"]["name"] != name]
        self.store.replace(kind, [*others, body])

    def shard(self, name: str = "default", **spec: Any) -> KubeSettings:
        self.put(SCHEDULING_SHARDS, name, spec)
        return self.policy()

    def texts(self) -> list[str]:
        return [f"{found.object}: {found.text}" for found in self.policy().notices]


def test_without_any_object_kais_defaults_hold_without_a_word() -> None:
    book = Book()
    assert book.policy().policy == Policy()
    assert book.texts() == []


def test_a_shard_states_the_policy_and_is_followed() -> None:
    book = Book()
    args = {"restrict-node-scheduling": "true", "full-hierarchy-fairness": "false", "max-consolidation-preemptees": "3"}
    args["default-staleness-grace-period"] = "-1s"
    minimum = {"preemptMinRuntime": "1m", "reclaimMinRuntime": "30s"}
    arguments = {"proportion": {"arguments": {"relcaimerSaturationMultiplier": "1.5"}}}
    found = book.shard(
        args=args, placementStrategy={"gpu": "spread"}, minRuntime=minimum, kValue=0.5, plugins=arguments
    ).policy
    assert (found.restrict_node_scheduling, found.full_hierarchy, found.max_consolidation_gangs) == (True, False, 3)
    assert (found.gpu_placement, found.gpu_sharing_placement, found.cpu_placement) == ("spread", "spread", "binpack")
    assert (found.staleness_grace_s, found.preempt_min_runtime_s, found.reclaim_min_runtime_s) == (-1.0, 60.0, 30.0)
    assert (found.k_value, found.saturation_multiplier) == (0.5, 1.5)
    assert book.shard().policy == Policy(), "a change is followed"


def test_settings_are_the_same_without_the_objects() -> None:
    book = Book(
        policy={
            "gpu_placement": "spread",
            "restrict_node_scheduling": True,
            "full_hierarchy": False,
            "staleness_grace": "-1s",
            "reclaim_min_runtime": "30s",
            "max_consolidation_gangs": 0,
            "numa": False,
            "numa_ignored": ["memory"],
        }
    )
    found = book.policy()
    stated = found.policy
    assert (stated.gpu_placement, stated.gpu_sharing_placement, stated.cpu_placement) == ("spread", "spread", "binpack")
    assert (stated.restrict_node_scheduling, stated.full_hierarchy, stated.staleness_grace_s) == (True, False, -1.0)
    assert (stated.reclaim_min_runtime_s, stated.max_consolidation_gangs) == (30.0, 0)
    assert (found.numa, found.numa_ignored) == (False, frozenset({"memory"}))
    assert book.texts() == []


def test_every_field_of_the_policy_has_a_setting() -> None:
    stated = set(ControllerSettings().policy.model_dump())
    policy = {name.removesuffix("_s") for name in Policy.__dataclass_fields__}
    assert stated == policy | {"numa", "numa_ignored", "numa_reconstruct"}


def test_a_setting_counts_before_a_shard_and_the_conflict_is_said() -> None:
    book = Book(policy={"gpu_placement": "binpack", "k_value": 2.0})
    found = book.shard(placementStrategy={"gpu": "spread", "cpu": "spread"}, kValue=2.0).policy
    assert (found.gpu_placement, found.gpu_sharing_placement) == ("binpack", "binpack")
    assert found.cpu_placement == "spread", "what the settings leave open is the shard's word"
    (text,) = book.texts()
    assert "settings.policy.gpu_placement binpack counts, not spread" in text
    assert "gpu_sharing_placement" not in text, "it follows the other"
    assert "k_value" not in text, "both say the same"


def test_a_shard_that_says_nothing_of_it_is_no_conflict() -> None:
    book = Book(policy={"gpu_placement": "spread", "full_hierarchy": False, "reclaim_min_runtime": 5})
    assert book.shard().policy.gpu_placement == "spread"
    assert not any("counts" in text for text in book.texts())


@pytest.mark.parametrize(
    "spec",
    [
        {"kValue": "much"},
        {"args": {"full-hierarchy-fairness": "perhaps"}},
        {"minRuntime": {"preemptMinRuntime": "soon"}},
        {"placementStrategy": 1},
        "nonsense",
        {"args": ["a"]},
    ],
)
def test_a_broken_shard_leaves_what_it_said_before(spec: Any) -> None:
    book = Book()
    good = book.shard(placementStrategy={"gpu": "spread"}, kValue=0.5).policy
    book.put(SCHEDULING_SHARDS, "default", spec)
    assert book.policy().policy == good
    assert [found.kind for found in book.policy().notices if "spec" in found.text] == ["set-aside"]
    assert any("what it said before stays in force" in text for text in book.texts())
    assert book.shard(kValue=0.25).policy.k_value == 0.25
    assert not any("stays in force" in text for text in book.texts())


def test_a_shard_that_goes_takes_its_word_along() -> None:
    book = Book()
    book.shard(kValue=0.5)
    book.store.replace(SCHEDULING_SHARDS, ())
    assert book.policy().policy == Policy()


def test_a_shard_that_was_never_readable_leaves_the_defaults() -> None:
    book = Book()
    assert book.shard(kValue="much").policy == Policy()
    assert any("KAI's defaults and our settings count" in text for text in book.texts())


def test_each_replica_follows_the_shard_of_its_node_pool() -> None:
    book = Book(node_pool="a100")
    book.shard(kValue=0.5)
    book.shard("another", partitionLabelValue="b", kValue=0.125)
    assert book.policy().policy == Policy()
    assert book.texts() == [], "the shards of other pools are other schedulers'"
    assert book.shard("mine", partitionLabelValue="a100", kValue=0.25).policy.k_value == 0.25
    assert book.policy().node_pool == "a100"


def test_of_two_shards_of_a_pool_the_first_by_name_counts() -> None:
    book = Book()
    book.shard("b", kValue=0.5)
    assert book.shard("a", kValue=0.25).policy.k_value == 0.25
    assert book.texts() == ["SchedulingShard b: is of the same nodes as SchedulingShard a, which counts"]


def test_the_shard_of_another_scheduler_does_not_count() -> None:
    book = Book(scheduler_name="second")
    book.put(KAI_CONFIGS, "kai-config", {"global": {"schedulerName": "kai-scheduler"}})
    assert book.shard(kValue=0.5).policy == Policy()
    assert any("is of scheduler kai-scheduler. This one is second" in text for text in book.texts())
    assert book.shard(kValue=0.5, args={"scheduler-name": "second"}).policy.k_value == 0.5


def test_names_of_the_config_that_differ_are_said_and_not_followed() -> None:
    book = Book()
    book.put(KAI_CONFIGS, "kai-config", {"global": {"queueLabelKey": "team", "nodePoolLabelKey": "pool"}})
    found = book.policy()
    assert (found.queue_label_key, found.node_pool_key) == ("kai.scheduler/queue", "kai.scheduler/node-pool")
    assert any("queueLabelKey team; settings.queue_label_key kai.scheduler/queue counts" in t for t in book.texts())


def test_device_access_is_the_configs_word_unless_a_setting_says() -> None:
    blocking = {"admission": {"blockNvidiaVisibleDevices": True}}
    book, stated = Book(), Book(admission={"block_nvidia_visible_devices": False})
    for one in (book, stated):
        one.put(KAI_CONFIGS, "kai-config", blocking)
    assert book.policy().block_visible_devices
    assert not stated.policy().block_visible_devices
    assert any("settings.admission.block_nvidia_visible_devices False counts" in text for text in stated.texts())


def test_default_priorities_are_those_of_the_config_map_that_the_config_names() -> None:
    book = Book()
    args = {"defaultPrioritiesConfigMapName": "kinds", "defaultPrioritiesConfigMapNamespace": "kai-scheduler"}
    book.put(KAI_CONFIGS, "kai-config", {"podGrouper": {"args": args}})
    assert book.policy().kind_defaults == ()
    data = {"types": '[{"typeName": "Job", "group": "batch", "priorityName": "build"}]', "else": "x" * 1000}
    book.put(CONFIG_MAPS, "kinds", None, "kai-scheduler", data=data)
    (found,) = book.policy().kind_defaults
    assert (found.kind, found.priority_class) == ("Job", "build")
    (kept,) = book.store.all(CONFIG_MAPS)
    assert list(kept["data"]) == ["types"], "the rest is not worth its memory"


# -- in the loop -------------------------------------------------------------------------------------------------------


def two_nodes() -> MemoryApi:
    api = cluster()
    allocatable = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "100"}
    api.create(NODES, "", {"metadata": {"name": "b"}, "spec": {}, "status": {"allocatable": allocatable}})
    return api


def nodes_of(api: MemoryApi, *names: str) -> set[str]:
    return {api.get(PODS, "n", name)["spec"]["nodeName"] for name in names}


def shard_of(api: MemoryApi, **spec: Any) -> None:
    api.create(SCHEDULING_SHARDS, "", {"metadata": {"name": "default"}, "spec": spec})


def seen_by(replica: Controller) -> tuple[str, int]:
    """Placement and number of pods in what a replica answers for `/get-snapshot`."""
    with zipfile.ZipFile(io.BytesIO(replica.snapshot())) as archive:
        document = json.loads(archive.read("snapshot.json"))
    (placement,) = [one for one in document["config"]["tiers"][0]["plugins"] if one["name"] == "nodeplacement"]
    return placement["arguments"]["gpu"], len(document["rawObjects"]["pods"])


def test_a_shard_that_spreads_is_followed_without_a_restart() -> None:
    api = two_nodes()
    with running(api) as replica:
        for name in ("p0", "p1"):
            pod(api, name)
        until(lambda: bound(api) == {"p0", "p1"})
        assert len(nodes_of(api, "p0", "p1")) == 1, "packed, as KAI does by default"
        for name in ("p0", "p1"):
            api.delete(PODS, "n", name, grace_s=0)
        shard_of(api, placementStrategy={"gpu": "spread"})
        until(lambda: seen_by(replica) == ("spread", 0))
        for name in ("q0", "q1"):
            pod(api, name)
        until(lambda: bound(api) == {"q0", "q1"})
        assert len(nodes_of(api, "q0", "q1")) == 2
        api.patch(SCHEDULING_SHARDS, "", "default", {"spec": {"placementStrategy": {"gpu": "binpack"}}})
        until(lambda: seen_by(replica) == ("binpack", 2))


def test_an_action_that_the_shard_disables_does_not_run() -> None:
    api = cluster()
    api.create(PRIORITY_CLASSES, "", {"metadata": {"name": "urgent"}, "value": 75})
    shard_of(api, actions={"preempt": {"enabled": False}})
    with running(api):
        pod(api, "low", gpus=8)
        until(lambda: bound(api) == {"low"})
        pod(api, "high", gpus=8, labels={"priorityClassName": "urgent"})
        until(lambda: bool(api.get(PODS, "n", "high").get("status", {}).get("conditions")))
        assert "deletionTimestamp" not in api.get(PODS, "n", "low")["metadata"]
        api.patch(SCHEDULING_SHARDS, "", "default", {"spec": {"actions": {"preempt": {"enabled": True}}}})
        until(lambda: "deletionTimestamp" in api.get(PODS, "n", "low")["metadata"])


def test_past_usage_of_the_prometheus_of_the_shard_decides_between_queues() -> None:
    api = MemoryApi()
    for name in ("heavy", "light"):
        amounts = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
        resources = dict.fromkeys(("cpu", "memory", "gpu"), amounts)
        api.create(QUEUES, "", {"metadata": {"name": name}, "spec": {"resources": resources}})
        for number in range(8):
            pod(api, f"{name}-{number}", labels={"kai.scheduler/queue": name})
    allocatable = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "100"}
    used = {ALLOCATED[2]: {"heavy": 7.2, "light": 0.8}, CAPACITY[2]: {"": 8.0}}
    samples: dict[str, Series] = {
        metric: {queue: [(time.time() - 200.0, held)] for queue, held in of.items()} for metric, of in used.items()
    }
    with serving(Prometheus(samples)) as prometheus:
        shard_of(api, kValue=1, usageDBConfig={"clientType": "prometheus", "connectionString": prometheus.url})
        with running(api):
            until(lambda: len(prometheus.asked) == 6)
            api.create(NODES, "", {"metadata": {"name": "a"}, "spec": {}, "status": {"allocatable": allocatable}})
            until(lambda: len(bound(api)) == 8)
    of_light = {name for name in bound(api) if name.startswith("light")}
    assert len(of_light) == 7, "weights alone would give 4; (1/2 + 1/2 - 0.1) of (0.9 + 0.1) are 7.2 GPUs"


def test_a_store_of_the_settings_counts_before_that_of_the_shard() -> None:
    book = Book(past_usage={"url": "http://ours:9090", "window_size": "48h", "half_life": "1h"})
    stated = {"clientType": "prometheus", "connectionString": "http://user:secret@theirs:9090"}
    found = book.shard(usageDBConfig=stated).past_usage
    assert found is not None
    assert (found.url, found.params.size_s, found.params.half_life_s) == ("http://ours:9090", 172_800.0, 3600.0)
    (text,) = book.texts()
    assert "settings.past_usage http://ours:9090 counts, not http://theirs:9090" in text
    assert "secret" not in text
    assert Book().shard(usageDBConfig=stated).past_usage == UsageStore("http://user:secret@theirs:9090")


def test_a_password_has_no_place_in_the_settings() -> None:
    with pytest.raises(ValueError, match=r"url has a user or a password\. Name an environment variable: url_variable"):
        Book(past_usage={"url": "https://me:secret@store"})


def test_all_that_is_to_be_said_of_a_shard_is_one_notice() -> None:
    book = Book()
    book.shard(actions={"preempt": {"enabled": False}})
    more = Notice("warning", "SchedulingShard default", "past usage is old")
    view = View(book.store, Assumed(), settings=book.policy, notices=lambda: (more,))
    assert [notice.text for notice in view.snapshot(0.0).notices] == ["disables preempt, as in KAI. past usage is old"]


def test_a_new_policy_is_worth_a_cycle() -> None:
    api = cluster()
    shard_of(api, args={"restrict-node-scheduling": "true"})
    with running(api, idle=3600.0) as replica:
        pod(api, "p")
        until(lambda: replica.metrics.registry.get_sample_value("kai_queue_depth_total") == 1.0)
        assert bound(api) == set(), "no node is a worker for GPUs"
        api.patch(SCHEDULING_SHARDS, "", "default", {"spec": {"args": {"restrict-node-scheduling": "false"}}})
        until(lambda: bound(api) == {"p"})


def test_a_conflict_is_an_event_of_the_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noticed, "STANDS_S", 0.0)
    api = cluster()
    shard_of(api, placementStrategy={"gpu": "spread"})
    with running(api, policy={"gpu_placement": "binpack"}):
        pod(api, "p")

        def told() -> bool:
            found = (event for event in api.page(EVENTS).items if "gpu_placement binpack counts" in event["message"])
            return any(event["involvedObject"]["kind"] == "SchedulingShard" for event in found)

        until(told)
