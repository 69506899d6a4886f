"""Promised places are kept, and released when nobody comes."""

from typing import Any

from kai_solver.cluster.promises import COMES_WITHIN_S, STAND_IN, Promises


def pod(
    name: str, uid: str = "", node: str = "", maker: str = "", created: str = "2026-01-01T00:00:00Z"
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": "n", "name": name, "uid": uid or name, "creationTimestamp": created}
    if maker:
        metadata["ownerReferences"] = [{"kind": "Job", "name": maker, "uid": maker, "controller": True}]
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    return {"metadata": metadata, "spec": spec | ({"nodeName": node} if node else {}), "status": {"phase": "Pending"}}


def nominated(pods: tuple[dict[str, Any], ...]) -> dict[str, str]:
    found = {p["metadata"]["name"]: p["status"].get("nominatedNodeName", "") for p in pods}
    return {name: node for name, node in found.items() if node}


def stand_ins(pods: tuple[dict[str, Any], ...]) -> list[str]:
    return [p["spec"]["nodeName"] for p in pods if p["spec"].get("schedulerName") == STAND_IN]


def test_a_waiting_pod_keeps_its_node_until_a_plan_says_otherwise() -> None:
    promises = Promises()
    promises.nominate({"n/a": ("a", "n1")})
    assert nominated(promises.overlay((pod("a"), pod("b")), 0.0)) == {"a": "n1"}
    assert nominated(promises.overlay((pod("a", uid="another"),), 0.0)) == {}
    promises.nominate({})
    assert nominated(promises.overlay((pod("a"),), 0.0)) == {}


def test_the_successor_of_a_moved_pod_finds_its_place() -> None:
    promises, old = Promises(), pod("old", node="n1", maker="job")
    promises.move(old, "n2")
    assert nominated(promises.overlay((old,), 0.0)) == {"old": "n2"}, "it leaves, and will come back there"
    assert stand_ins(promises.overlay((), 5.0)) == ["n2"], "gone and not back: the place is held"
    new, stranger = pod("new", maker="job"), pod("stranger", maker="another job")
    seen = promises.overlay((stranger, new), 6.0)
    assert nominated(seen) == {"new": "n2"}
    assert not stand_ins(seen)
    promises.overlay((pod("new", node="n2", maker="job"),), 7.0)
    assert len(promises) == 0


def test_a_pod_of_the_same_name_is_its_own_successor() -> None:
    promises, old = Promises(), pod("web-0", uid="old", node="n1", maker="set")
    promises.move(old, "n2")
    assert nominated(promises.overlay((pod("web-0", uid="new", maker="set"),), 1.0)) == {"web-0": "n2"}


def test_two_moved_pods_of_one_maker_get_a_place_each() -> None:
    promises = Promises()
    for name, target in (("a", "n3"), ("b", "n4")):
        promises.move(pod(name, node="n1", maker="job"), target)
    promises.overlay((), 0.0)
    first = pod("x", maker="job", created="2026-01-01T00:00:02Z")
    assert nominated(promises.overlay((first,), 1.0)) == {"x": "n3"}
    second = pod("y", maker="job", created="2026-01-01T00:00:01Z")
    assert nominated(promises.overlay((first, second), 2.0)) == {"x": "n3", "y": "n4"}


def test_what_does_not_come_loses_the_place() -> None:
    promises = Promises()
    promises.move(pod("a", node="n1", maker="job"), "n2")
    assert stand_ins(promises.overlay((), 0.0)) == ["n2"]
    assert stand_ins(promises.overlay((), COMES_WITHIN_S)) == ["n2"]
    assert stand_ins(promises.overlay((), COMES_WITHIN_S + 1)) == []
    assert promises.broken == 1


def test_a_successor_that_is_deleted_leaves_the_place_to_the_next() -> None:
    promises = Promises()
    promises.move(pod("a", node="n1", maker="job"), "n2")
    promises.overlay((pod("b", maker="job"),), 0.0)
    assert stand_ins(promises.overlay((), 1.0)) == ["n2"]
    assert nominated(promises.overlay((pod("c", maker="job"),), 2.0)) == {"c": "n2"}
