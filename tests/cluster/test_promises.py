"""Promised places are kept, and released when no pod comes."""

from collections.abc import Callable
from typing import Any

import pytest

from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.owner_resolver import OwnerResolver
from kai_solver.cluster.promises import COMES_WITHIN_S, STAND_IN, Promises
from kai_solver.cluster.resources import JOBS, PODS, REPLICA_SETS, Resource
from kai_solver.cluster.store import Store


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


def test_a_clock_that_is_set_back_holds_no_place_for_longer() -> None:
    promises, now_s = Promises(), 1e9
    promises.move(pod("old", node="n1", maker="job"), "n2")
    assert stand_ins(promises.overlay((), now_s)) == ["n2"]
    now_s -= 3600.0
    assert stand_ins(promises.overlay((), now_s)) == ["n2"]
    assert promises.end_s == now_s + COMES_WITHIN_S
    assert stand_ins(promises.overlay((), now_s + COMES_WITHIN_S + 1)) == []


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


def test_a_promise_is_kept_even_if_its_pod_ends_before_the_next_cycle() -> None:
    promises, store = Promises(), Store()
    store.listen(promises)
    promises.move(pod("a", node="n1", maker="job"), "n2")
    successor = pod("b", maker="job")
    assert nominated(promises.overlay((successor,), 0.0)) == {"b": "n2"}
    store.replace(PODS, [pod("b", node="n2", maker="job")])
    store.replace(PODS, [])
    assert promises.overlay((), 1.0) == ()
    assert promises.broken == 0


def test_the_loop_looks_when_a_place_is_given_up() -> None:
    promises = Promises()
    promises.move(pod("a", node="n1", maker="job"), "n2")
    assert promises.end_s == float("inf"), "it has not left"
    promises.overlay((), 5.0)
    assert promises.end_s == 5.0 + COMES_WITHIN_S
    promises.overlay((pod("b", maker="job"),), 6.0)
    assert promises.end_s == float("inf"), "it came"


OWNERS = {REPLICA_SETS: "replicas", JOBS: "parallelism"}
Owned = tuple[Promises, Callable[[int], Resource]]


@pytest.fixture(params=OWNERS, ids=lambda kind: kind.kind)
def owned(request: pytest.FixtureRequest) -> Owned:
    """Promises that look at a store, and what gives the owner there a size, or takes it away."""
    kind: Resource = request.param
    store = Store()

    def resize(size: int) -> Resource:
        metadata = {"namespace": "n", "name": "maker", "uid": "maker"}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        store.replace(kind, [body | {"spec": {OWNERS[kind]: size}}] if size >= 0 else [])
        return kind

    resolver = OwnerResolver(MemoryApi(), store, "kai-scheduler", (kind,))
    return Promises(resolver.may_create), resize


def of(kind: Resource, name: str, node: str = "", **status: Any) -> dict[str, Any]:
    found = pod(name, node=node, maker="maker")
    found["metadata"]["ownerReferences"][0] |= {"apiVersion": kind.api_version, "kind": kind.kind}
    found["status"] |= status
    return found


def test_no_place_is_kept_when_the_owner_is_gone(owned: Owned) -> None:
    promises, resize = owned
    kind = resize(1)
    promises.move(of(kind, "a", "n1"), "n2")
    assert stand_ins(promises.overlay((), 0.0)) == ["n2"]
    resize(-1)
    assert promises.overlay((), 1.0) == ()
    assert (len(promises), promises.broken) == (0, 0), "it was not wanted any more, which is no broken promise"


def test_no_place_is_kept_when_the_owner_has_all_its_pods(owned: Owned) -> None:
    """They were created while the old one still left, and found another place."""
    promises, resize = owned
    kind = resize(2)
    old, other = of(kind, "a", "n1"), of(kind, "b", "n3")
    promises.move(old, "n2")
    leaving = {**old, "metadata": old["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:09Z"}}
    assert nominated(promises.overlay((leaving, other), 0.0)) == {"a": "n2"}
    assert nominated(promises.overlay((leaving, other, of(kind, "c", "n4")), 1.0)) == {}
    assert len(promises) == 0


def test_the_place_is_for_the_replacement_even_while_the_old_pod_leaves(owned: Owned) -> None:
    promises, resize = owned
    kind = resize(1)
    old = of(kind, "a", "n1")
    promises.move(old, "n2")
    leaving = {**old, "metadata": old["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:09Z"}}
    assert nominated(promises.overlay((leaving, of(kind, "b")), 1.0)) == {"b": "n2"}


def test_a_smaller_owner_wants_no_place(owned: Owned) -> None:
    promises, resize = owned
    kind = resize(2)
    promises.move(of(kind, "a", "n1"), "n2")
    other = of(kind, "b", "n3")
    assert stand_ins(promises.overlay((other,), 0.0)) == ["n2"]
    resize(1)
    assert stand_ins(promises.overlay((other,), 1.0)) == []


def test_a_job_that_ends_or_rests_wants_no_place() -> None:
    for spec, pods in (({"suspend": True}, 0), ({"completions": 3}, 3)):
        store = Store()
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"namespace": "n", "name": "maker", "uid": "maker"},
        }
        store.replace(JOBS, [body | {"spec": {"parallelism": 2}}])
        promises = Promises(OwnerResolver(MemoryApi(), store, "kai-scheduler", (JOBS,)).may_create)
        promises.move(of(JOBS, "a", "n1"), "n2")
        assert stand_ins(promises.overlay((), 0.0)) == ["n2"]
        store.replace(JOBS, [body | {"spec": {"parallelism": 2, **spec}}])
        done = tuple(of(JOBS, f"done-{n}", "n3", phase="Succeeded") for n in range(pods))
        assert stand_ins(promises.overlay(done, 1.0)) == []
