"""Nodes, queues, priority classes."""

from typing import Any

import pytest

from kai_solver.domain import Taint
from kai_solver.fairness import QueueTree
from kai_solver.kubeobjects.nodes import gpu_memory_mib
from kai_solver.predicates import NodePredicates
from kai_solver.problem import build_problem
from kai_solver.units.shares import WHOLE


@pytest.mark.parametrize(
    ("label", "expected"),
    [("81559", 81_500), ("85899345920", 81_900), ("99", 0), ("", 0), ("80GB", 0), ("9" * 30, 0), ("1048576", 0)],
)
def test_gpu_memory_is_floored_to_hundreds_and_read_as_bytes_when_huge(label: str, expected: int) -> None:
    assert gpu_memory_mib(label) == expected


ENABLED = "node-role.kubernetes.io/mig-enabled"


@pytest.mark.parametrize(
    ("strategy", "enabled", "offered", "gpus", "slices"),
    [
        ("mixed", None, 7, 0, 7),
        ("single", None, 7, 8, 0),
        ("none", None, 7, 8, 7),
        ("mixed", None, None, 8, 0),
        ("mixed", None, 0, 8, 0),
        ("mixed", "true", None, 0, 0),
        ("mixed", "false", 7, 8, 0),
    ],
    ids=["mixed", "single", "none", "not divided", "divided before", "a label says so", "a label denies it"],
)
def test_mig_strategy_decides_what_a_node_offers(
    build: Any, strategy: str, enabled: str | None, offered: int | None, gpus: int, slices: int
) -> None:
    labels = {"nvidia.com/mig.strategy": strategy} | ({ENABLED: enabled} if enabled else {})
    allocatable = {} if offered is None else {"nvidia.com/mig-1g.5gb": str(offered)}
    node = build.node("n", {"metadata": {"labels": labels}, "status": {"allocatable": allocatable}})
    found = build.read(node)
    assert found.nodes[0].gpus == gpus
    assert found.nodes[0].allocatable[2] == gpus * 1000
    assert found.schema.mapping(found.nodes[0].allocatable).get("nvidia.com/mig-1g.5gb", 0) == slices


@pytest.mark.parametrize(("enabled", "is_kept_away"), [(None, False), ("false", False), ("true", True)])
def test_shares_keep_away_from_nodes_of_one_strategy_where_mig_is_enabled(
    build: Any, enabled: str | None, is_kept_away: bool
) -> None:
    """The strategy is set once for a cluster, also for nodes with undivided GPUs."""
    labels = {"nvidia.com/mig.strategy": "single"} | ({ENABLED: enabled} if enabled else {})
    found = build.read(
        build.node("n", {"metadata": {"labels": labels}}), build.pod("half", annotations={"gpu-fraction": "0.5"})
    )
    ((pod,),) = (gang.pods for gang in found.gangs)
    assert bool(NodePredicates(found.nodes).reasons(pod.constraints)) == is_kept_away


@pytest.mark.parametrize(
    ("offered", "present", "gpus"), [(7, 8, 8), (8, 8, 8), (8, 7, 8), (0, 8, 0)], ids=["failed", "all", "stale", "none"]
)
def test_a_failed_gpu_is_there_and_cannot_be_had(build: Any, offered: int, present: int, gpus: int) -> None:
    status = {"allocatable": {"nvidia.com/gpu": str(offered)}, "capacity": {"nvidia.com/gpu": str(present)}}
    (node,) = build.read(build.node("n", {"status": status})).nodes
    assert (node.gpus, node.allocatable[2]) == (gpus, offered * 1000)


def test_slices_of_mixed_mode_are_no_whole_gpus_even_where_the_node_has_such(build: Any) -> None:
    status = {"allocatable": {"nvidia.com/gpu": "1"}, "capacity": {"nvidia.com/gpu": "8"}}
    labels = {"labels": {"nvidia.com/mig.strategy": "mixed", ENABLED: "true"}}
    assert build.read(build.node("n", {"metadata": labels, "status": status})).nodes[0].gpus == 0


def test_a_node_with_a_failed_gpu_still_tells_its_links_and_which_pod_has_which(build: Any) -> None:
    annotations = {"kai-solver/gpu-topology": "dgx1-v100-8"}
    status = {"allocatable": {"nvidia.com/gpu": "7"}, "capacity": {"nvidia.com/gpu": "8"}}
    node = build.node("n", {"metadata": {"annotations": annotations}, "status": status})
    pod = build.pod("p", gpus=2, node="n", phase="Running", annotations={"kai-solver/devices": "6,7"})
    found = build.read(node, pod)
    assert found.nodes[0].gpu_topology == "dgx1-v100-8"
    assert [notice.text for notice in found.notices if "topology" in notice.text or "devices" in notice.text] == []
    assert build_problem(found).device_free[0].tolist() == [WHOLE] * 5 + [0] * 3


@pytest.mark.parametrize(
    "more",
    [
        {"spec": {"unschedulable": True}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
    ],
)
def test_cordoned_and_unready_nodes_take_nothing_new(build: Any, more: dict[str, Any]) -> None:
    assert not build.read(build.node("n", more)).nodes[0].schedulable


def test_a_node_without_conditions_is_ready(build: Any) -> None:
    assert build.read(build.node("n", {"status": {"conditions": []}})).nodes[0].schedulable


def test_labels_and_taints_are_kept(build: Any) -> None:
    more = {"metadata": {"labels": {"a": "b"}}, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}
    node = build.read(build.node("n", more)).nodes[0]
    assert node.labels["a"] == "b"
    assert node.taints == (Taint("k", "", "NoExecute"),)


def test_the_schema_has_requested_resources_and_devices_that_nodes_offer(build: Any) -> None:
    node = build.node("n", {"status": {"allocatable": {"rdma/hca": "1", "hugepages-2Mi": "0", "unused/x": "0"}}})
    spec = {"containers": [{"name": "c", "resources": {"requests": {"fpga.com/x": "1", "ephemeral-storage": "1Gi"}}}]}
    found = build.read(node, build.pod("p", {"spec": spec}))
    assert found.schema.names == ("cpu", "memory", "gpu", "pods", "fpga.com/x", "rdma/hca")


def test_ephemeral_storage_counts_where_nodes_say_how_much_they_have(build: Any) -> None:
    node = build.node("n", {"status": {"allocatable": {"ephemeral-storage": "10Gi"}}})
    spec = {"containers": [{"name": "c", "resources": {"requests": {"ephemeral-storage": "1Gi"}}}]}
    assert "ephemeral-storage" in build.read(node, build.pod("p", {"spec": spec})).schema.names


def test_a_queue_in_its_own_units(build: Any) -> None:
    more = {
        "metadata": {"uid": "u", "creationTimestamp": "1970-01-01T00:01:00Z"},
        "spec": {
            "displayName": "Team",
            "priority": 7,
            "reclaimMinRuntime": "90s",
            "resources": {
                "cpu": {"quota": 500, "limit": -1, "overQuotaWeight": 2},
                "memory": {"quota": 1.5, "limit": 0},
                "gpu": {"quota": 24.5},
            },
        },
    }
    queue = build.read(build.queue("q", more=more) | {"spec": more["spec"]}).queues[0]
    assert queue.quota == (500, 1_500_000, 24_500)
    assert queue.limit == (-1, 0, 0)  # unset: nothing allowed
    assert queue.weight == (2.0, 0.0, 0.0)
    assert (queue.title, queue.priority, queue.uid, queue.created_s) == ("Team", 7, "u", 60.0)
    assert (queue.reclaim_min_runtime_s, queue.preempt_min_runtime_s) == (90.0, None)


def test_orphans_go_with_all_below_them_and_loops_are_broken(build: Any) -> None:
    found = build.read(
        build.queue("root"),
        build.queue("leaf", "root"),
        build.queue("orphan", "nobody"),
        build.queue("child", "orphan"),
        build.queue("x", "y"),
        build.queue("y", "x"),
    )
    tree = QueueTree.from_queues(found.queues, found.policy)
    assert tree.names == ("root", "leaf")
    assert 'the parent queue "nobody" of "orphan" does not exist' in tree.dropped["child"]
    texts = build.texts(found, "set-aside")
    assert any("Queue orphan: the parent queue 'nobody' does not exist" in text for text in texts)
    assert sum("loop" in text for text in texts) == 2
    assert any(text.startswith("Queue child") for text in texts)


@pytest.mark.parametrize(
    "resources",
    [
        {"gpu": {"quota": -2}},
        {"gpu": {"quota": "4"}},
        {"gpu": {"overQuotaWeight": -1}},
        {"gpu": {"limit": 1e300}},
    ],
)
def test_impossible_queues_are_set_aside_by_field(build: Any, resources: Any) -> None:
    broken = build.queue("bad") | {"spec": {"resources": resources}}
    found = build.read(broken, build.queue("good"))
    assert [queue.name for queue in found.queues] == ["good"]
    assert any("Queue bad: spec.resources" in text for text in build.texts(found, "set-aside"))


@pytest.mark.parametrize("spec", [{}, {"resources": None}])
def test_a_queue_without_resources_allows_nothing_and_says_so(build: Any, spec: Any) -> None:
    found = build.read(build.queue("bare") | {"spec": spec})
    assert (found.queues[0].quota, found.queues[0].limit, found.queues[0].weight) == ((0,) * 3, (0,) * 3, (0.0,) * 3)
    assert any(text.startswith("Queue bare: spec.resources: resources must") for text in build.texts(found, "warning"))


def priority_class(name: str, value: Any, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    } | more


def gang_of_class(build: Any, name: str) -> dict[str, Any]:
    group: dict[str, Any] = build.pod_group(spec={"queue": "q", "minMember": 1, "priorityClassName": name})
    return group


def test_priority_is_the_class_value_else_the_global_default_else_fifty(build: Any) -> None:
    high, default = priority_class("high", 900), priority_class("d", 33, globalDefault=True)
    assert build.one_gang(gang_of_class(build, "high"), high).priority == 900
    assert build.one_gang(gang_of_class(build, "typo"), high).priority == 50
    assert build.one_gang(gang_of_class(build, "typo"), high, default).priority == 33


def test_without_any_class_those_that_kai_ships_hold(build: Any) -> None:
    assert build.one_gang(gang_of_class(build, "inference")).priority == 125
    assert build.one_gang(gang_of_class(build, "inference"), priority_class("x", 1)).priority == 50


def test_a_class_that_never_preempts(build: Any) -> None:
    meek = priority_class("meek", 900, preemptionPolicy="Never")
    assert build.one_gang(gang_of_class(build, "meek"), meek).never_preempts


def test_without_any_queue_work_finds_the_default_queue_that_kai_installs(build: Any) -> None:
    found = build.read(build.pod())
    leaf = next(queue for queue in found.queues if queue.name == "default-queue")
    assert (leaf.parent, leaf.quota, leaf.limit) == ("default-parent-queue", (0, 0, 0), (-1, -1, -1))
    assert any(text.startswith("Queue default-queue: ") for text in build.texts(found, "warning"))


def test_a_cluster_with_queues_gets_no_more_than_it_has(build: Any) -> None:
    assert [queue.name for queue in build.read(build.pod(), build.queue("q")).queues] == ["q"]
    assert build.read(build.pod(labels={"kai.scheduler/queue": "typo"})).queues == ()
