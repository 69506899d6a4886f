"""PodGroups of our own making: whom they belong to, what is written of them, what follows their workload."""

from typing import Any

from kai_solver.kubeobjects import RawObjects, Recall, snapshot_from_objects
from kai_solver.kubeobjects.grouping import OwnGroup, followed

Object = dict[str, Any]


def pod(name: str, *owners: Object, **labels: str) -> Object:
    metadata = {"namespace": "n", "name": name, "uid": f"uid-{name}", "labels": labels, "ownerReferences": list(owners)}
    return {
        "metadata": {**metadata, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}]},
    }


def owned(kind: str, name: str, api_version: str = "apps/v1") -> Object:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def written(*pods: Object, other: tuple[Object, ...] = ()) -> dict[str, OwnGroup]:
    recall = Recall()
    snapshot_from_objects(RawObjects(pods=pods, other=other), now_s=0.0, recall=recall)
    return recall.own_groups


def owners_of(group: OwnGroup) -> list[tuple[str, str, str]]:
    return [(o["apiVersion"], o["kind"], o["name"]) for o in group.document["metadata"]["ownerReferences"]]


def test_a_pod_group_belongs_to_the_top_owner() -> None:
    cron: Object = {
        "apiVersion": "batch/v1",
        "kind": "JobSet",
        "metadata": {"namespace": "n", "name": "s", "uid": "uid-s"},
    }
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": "n", "name": "j", "uid": "uid-j", "ownerReferences": [owned("StatefulSet", "top")]},
    }
    (group,) = written(pod("p", owned("Job", "j", "batch/v1")), other=(cron, job)).values()
    assert owners_of(group) == [("apps/v1", "StatefulSet", "top")]
    assert not group.is_plain
    assert "name: top\n" in group.document["metadata"]["annotations"]["kai.scheduler/top-owner-metadata"]


def test_a_pod_group_has_the_labels_of_the_top_owner_and_the_user_of_the_pod() -> None:
    """As KAI's have: ``kubectl get podgroups -l kai.scheduler/queue=a``."""
    stated = {"kai.scheduler/queue": "a", "app": "x"}
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": "n", "name": "j", "uid": "uid-j", "labels": stated},
    }
    member = pod("p", owned("Job", "j", "batch/v1"), user="me", app="of-the-pod", colour="red")
    (group,) = written(member, other=(job,)).values()
    assert group.document["metadata"]["labels"] == {"kai.scheduler/queue": "a", "app": "x", "user": "me"}
    (alone,) = written(pod("a", **{"kai.scheduler/queue": "b"})).values()
    assert alone.document["metadata"]["labels"] == {"kai.scheduler/queue": "b"}


def with_annotations(value: Object, annotations: dict[str, str]) -> Object:
    return {**value, "metadata": {**value["metadata"], "annotations": annotations}}


def job_with(annotations: dict[str, str]) -> Object:
    metadata = {"namespace": "n", "name": "j", "uid": "uid-j"}
    return with_annotations({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}, annotations)


def annotations_of(group: OwnGroup) -> dict[str, str]:
    """Without those that every PodGroup of ours has."""
    found: dict[str, str] = dict(group.document["metadata"]["annotations"])
    assert found.pop("kai-solver/created")
    found.pop("kai.scheduler/top-owner-metadata", None)
    return found


def test_a_pod_group_has_the_annotations_of_the_top_owner_and_the_user_of_the_pod() -> None:
    stated = {"team": "red", "kai.scheduler/topology": "racks", "example.com/note": ""}
    member = with_annotations(pod("p", owned("Job", "j", "batch/v1")), {"user": "me", "team": "blue", "colour": "red"})
    (group,) = written(member, other=(job_with(stated),)).values()
    assert annotations_of(group) == {**stated, "user": "me"}
    (group,) = written(member, other=(job_with({"user": "the owner's"}),)).values()
    assert annotations_of(group) == {"user": "the owner's"}
    (alone,) = written(with_annotations(pod("a"), {"team": "blue", "pod-group-name": ""})).values()
    assert annotations_of(alone) == {"team": "blue"}


def test_what_schedulers_write_on_pod_groups_is_not_taken_over_from_workloads() -> None:
    """Else an annotation on a Job could make its gang look new for ever, or look set aside."""
    stated = dict.fromkeys(
        (
            "kai.scheduler/last-start-timestamp",
            "kai.scheduler/last-eviction-timestamp",
            "kai.scheduler/stale-podgroup-timestamp",
            "kubectl.kubernetes.io/last-applied-configuration",
            "kai-solver/set-aside",
            "kai-solver/created",
            "users.kai-solver/x",
        ),
        "2026-01-01T00:00:00Z",
    )
    (group,) = written(pod("p", owned("Job", "j", "batch/v1")), other=(job_with({**stated, "team": "red"}),)).values()
    assert annotations_of(group) == {"team": "red"}
    assert group.document["metadata"]["annotations"]["kai-solver/created"] == "2026-01-01T00:00:00Z"


def test_of_annotations_that_no_object_can_have_beside_ours_the_longest_are_left_out() -> None:
    stated = {"long": "x" * 150_000, "longest": "x" * 200_000, "short": "x"}
    (group,) = written(pod("p", owned("Job", "j", "batch/v1")), other=(job_with(stated),)).values()
    assert sorted(annotations_of(group)) == ["long", "short"]


def test_replicas_of_a_deployment_have_one_each_that_goes_with_its_pod() -> None:
    replica_set = owned("ReplicaSet", "d-abc")
    found = written(
        pod("d-1", replica_set, **{"pod-template-hash": "abc"}), pod("d-2", replica_set, **{"pod-template-hash": "abc"})
    )
    assert sorted(owners_of(group) for group in found.values()) == [[("v1", "Pod", "d-1")], [("v1", "Pod", "d-2")]]


def test_pods_without_owners_own_their_group_together() -> None:
    labels = {"kai.nvidia.com/job-id": "x", "kai.nvidia.com/job-size": "2"}
    (group,) = written(pod("a", **labels), pod("b", **labels)).values()
    assert owners_of(group) == [("v1", "Pod", "a"), ("v1", "Pod", "b")]
    assert not group.is_plain
    (alone,) = written(pod("a")).values()
    assert alone.is_plain


def test_what_cannot_be_used_as_it_stands_is_not_written() -> None:
    sizes = [{"kai.nvidia.com/job-id": "x", "kai.nvidia.com/job-size": size} for size in "23"]
    assert written(pod("a", **sizes[0]), pod("b", **sizes[1])) == {}


def test_a_group_that_was_written_is_as_old_as_its_gang() -> None:
    objects = RawObjects(pods=(pod("a"),))
    recall = Recall()
    (before,) = snapshot_from_objects(objects, now_s=0.0, recall=recall).gangs
    (group,) = recall.own_groups.values()
    metadata = {**group.document["metadata"], "uid": "new", "creationTimestamp": "2026-06-01T00:00:00Z"}
    stands = {**group.document, "metadata": metadata}
    named = pod("a")
    named["metadata"]["annotations"] = {"pod-group-name": metadata["name"]}
    for member in (pod("a"), named):
        (after,) = snapshot_from_objects(RawObjects(pods=(member,), pod_groups=(stands,)), now_s=0.0).gangs
        assert (after.key, after.created_s, after.queue) == (before.key, before.created_s, before.queue)
        assert len(after.pods) == 1


def test_only_what_follows_the_workload_is_changed() -> None:
    wanted = {"spec": {"minMember": 2, "queue": "q", "priorityClassName": "train"}}
    stands = {
        "spec": {
            "minMember": 1,
            "queue": "other",
            "preemptibility": "preemptible",
            "markUnschedulable": False,
            "topologyConstraint": {"topology": "t"},
        }
    }
    assert followed(stands, wanted) == {"minMember": 2, "priorityClassName": "train", "preemptibility": None}
    assert followed(wanted, wanted) == {}
    assert followed(stands, {"spec": {**stands["spec"], "topologyConstraint": {"topology": "u"}}}) == {
        "topologyConstraint": {"topology": "u"}
    }
