"""Placement in annotations of queues, PodGroups, pods and Deployments."""

from typing import Any

import pytest

from kai_solver.domain import NO_PLACEMENT, Placement
from kai_solver.kubeobjects import names


def annotated(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {f"kai-solver/{k.replace('_', '-')}": v for k, v in annotations.items()}}}


def test_all_of_it_is_read_from_queues_and_pod_groups(build: Any) -> None:
    stated = annotated(
        node_strategy="spread", gpu_strategy="binpack", max_gpus_per_node="4", max_pods_per_node="1", min_nodes="10"
    )
    found = build.read(build.queue("q", more=stated), build.pod_group("g", more=stated))
    expected = Placement("spread", "binpack", 4, 1, 10)
    assert [queue.placement for queue in found.queues if queue.name == "q"] == [expected]
    assert [gang.placement for gang in found.gangs] == [expected]
    assert not [text for text in build.texts(found) if "honoured" in text]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("node_strategy", "wide"),
        ("gpu_strategy", ""),
        ("max_gpus_per_node", "0"),
        ("min_nodes", "ten"),
        ("min_nodes", "²"),
    ],
)
def test_a_value_that_cannot_be_is_told_and_not_used(build: Any, name: str, value: str) -> None:
    found = build.read(build.queue("q", more=annotated(**{name: value, "max_pods_per_node": "2"})))
    (queue,) = (queue for queue in found.queues if queue.name == "q")
    assert queue.placement == Placement(max_pods_per_node=2)
    assert any(text.startswith("Queue q: kai-solver/") and "is not honoured" in text for text in build.texts(found))


def test_pods_speak_where_their_pod_group_does_not(build: Any) -> None:
    pods = [build.pod(f"p{i}", annotations={names.POD_GROUP: "g", names.OWN_MIN_NODES: "2"}) for i in range(2)]
    found = build.read(build.pod_group("g", more=annotated(max_pods_per_node="3")), *pods)
    assert [gang.placement for gang in found.gangs] == [Placement(max_pods_per_node=3, min_nodes=2)]


def test_pods_that_disagree_are_told(build: Any) -> None:
    pods = [build.pod(f"p{i}", annotations={names.POD_GROUP: "g", names.OWN_MIN_NODES: f"{i + 2}"}) for i in range(2)]
    found = build.read(build.pod_group("g"), *pods)
    assert [gang.placement.min_nodes for gang in found.gangs] == [2]
    assert any("different placements" in text for text in build.texts(found))


def test_replicas_of_a_deployment_are_one_workload(build: Any) -> None:
    owner = build.owner("ReplicaSet", "chat-5d9f", api="apps/v1", uid="rs")
    pods = [build.pod(f"chat-5d9f-{i}", owner=owner, labels={"pod-template-hash": "5d9f"}) for i in range(2)]
    found = build.read(*pods)
    assert [gang.workload for gang in found.gangs] == ["chat", "chat"]
    assert len({gang.key for gang in found.gangs}) == 2
    assert len({gang.family for gang in found.gangs}) == 1
    assert {gang.placement for gang in found.gangs} == {NO_PLACEMENT}


def test_kai_s_own_pod_groups_of_a_deployment_are_one_workload(build: Any) -> None:
    top = "group: apps\nkind: Deployment\nname: chat\nuid: d"
    groups = [build.pod_group(f"g{i}", more={"metadata": {"annotations": {names.TOP_OWNER: top}}}) for i in range(2)]
    assert [gang.workload for gang in build.read(*groups).gangs] == ["chat", "chat"]


def test_pod_groups_and_pods_say_that_they_may_use_spares(build: Any) -> None:
    said = {names.POD_GROUP: "by-pod", names.OWN_MAY_USE_SPARES: "true"}
    found = build.read(
        build.pod_group("by-group", more=annotated(may_use_spares="true")),
        build.pod_group("by-pod"),
        build.pod_group("not", more=annotated(may_use_spares="false")),
        build.pod("p0", annotations=said),
        build.pod("p1", annotations={names.OWN_MAY_USE_SPARES: "true"}),
    )
    uses = {gang.name: gang.may_use_spares for gang in found.gangs}
    assert {name: uses.pop(name) for name in ("by-group", "by-pod", "not")} == {
        "by-group": True,
        "by-pod": True,
        "not": False,
    }
    assert list(uses.values()) == [True]
    assert not [text for text in build.texts(found) if "honoured" in text]


def test_a_word_on_spares_that_cannot_be_is_told(build: Any) -> None:
    found = build.read(build.pod_group("g", more=annotated(may_use_spares="yes")))
    assert [gang.may_use_spares for gang in found.gangs] == [False]
    text = "kai-solver/may-use-spares 'yes' is not honoured. Write true or false"
    assert any(text in told and "PodGroup" in told for told in build.texts(found, "warning"))
