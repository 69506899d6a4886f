"""Claims are bound to volumes that the pod's node can reach, before the pod is bound."""

import itertools
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, FenceError, Object
from kai_solver.cluster.binding import BindError, LateError, Placement
from kai_solver.cluster.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES, Resource
from kai_solver.cluster.volumes import UNDO_S, Volumes
from tests.cluster.preparing_world import World

SELECTED = "volume.kubernetes.io/selected-node"


class Bench(World):
    def __init__(self, provisioner: str = "csi.example.org") -> None:
        super().__init__()
        self.volumes = Volumes(self.api, self.store, self.patience(120))
        kind = {"metadata": {"name": "fast"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        self.api.create(STORAGE_CLASSES, "", kind)
        self.node("a", zone="1")
        self.node("b", zone="2")
        self.claim("data")

    def claim(self, name: str) -> None:
        spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}
        body = {"metadata": {"name": name}, "spec": spec | {"resources": {"requests": {"storage": "10Gi"}}}}
        self.api.create(PERSISTENT_VOLUME_CLAIMS, "n", body)
        self.see()

    def volume(self, name: str, size: str = "10Gi", zone: str = "") -> None:
        spec: dict[str, Any] = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}
        if zone:
            term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        body = {"metadata": {"name": name}, "spec": spec | {"capacity": {"storage": size}}}
        self.api.create(PERSISTENT_VOLUMES, "", body)
        self.see()

    def user(self, name: str = "p", node: str = "a") -> Placement:
        return self.pod(name, node, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])

    def provision(self, zone: str = "1") -> None:
        """What a provisioner does, and the controller of volumes."""
        if self.selected() and not self.api.page(PERSISTENT_VOLUMES).items:
            self.volume("made", zone=zone)
            self.finish("made")

    def finish(self, volume: str, name: str = "data") -> None:
        self.api.patch(PERSISTENT_VOLUME_CLAIMS, "n", name, {"spec": {"volumeName": volume}})
        self.api.patch(PERSISTENT_VOLUME_CLAIMS, "n", name, {"status": {"phase": "Bound"}}, subresource="status")

    def pods(self) -> list[Object]:
        return self.api.page(PODS).items

    def selected(self) -> str:
        annotations = self.api.get(PERSISTENT_VOLUME_CLAIMS, "n", "data")["metadata"].get("annotations") or {}
        return str(annotations.get(SELECTED, ""))

    def holders(self) -> dict[str, str]:
        found = self.api.page(PERSISTENT_VOLUMES).items
        return {v["metadata"]["name"]: v["spec"].get("claimRef", {}).get("name", "") for v in found}


def test_a_provisioner_is_told_the_node_and_waited_for() -> None:
    bench = Bench()
    placement = bench.user()
    bench.while_waiting = lambda now_s: bench.provision() if now_s > 5 else None
    assert bench.volumes.concerns(placement)
    bench.volumes.prepare(placement)
    assert bench.selected() == "a"
    assert 5 < bench.now_s < 6
    assert not bench.volumes.concerns(placement), "nothing is left to do"
    bench.volumes.undo(placement)
    assert bench.selected() == "a", "what is bound stays"


def test_a_pod_without_claims_or_with_bound_ones_is_no_concern() -> None:
    bench = Bench()
    bench.finish("old")
    bench.see()
    assert not bench.volumes.concerns(bench.user())
    assert not bench.volumes.concerns(bench.pod("q", "a"))


def test_too_long_is_too_long_and_is_taken_back() -> None:
    bench = Bench()
    placement = bench.user()
    with pytest.raises(BindError, match="not bound within 120 s"):
        bench.volumes.prepare(placement)
    assert bench.now_s == pytest.approx(120, abs=1)
    bench.volumes.undo(placement)
    assert bench.selected() == ""


def test_while_the_watch_is_silent_the_server_is_asked_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    placement, get, asked = bench.user(), bench.api.get, list[float]()

    def count(resource: Resource, namespace: str, name: str) -> Object:
        asked.append(bench.now_s)
        return get(resource, namespace, name)

    monkeypatch.setattr(bench.api, "get", count)
    bench.sees_from_s = 1000
    with pytest.raises(LateError):
        bench.volumes.prepare(placement)
    assert len(asked) < 25, "it was 10 times a second"
    assert max(later - earlier for earlier, later in itertools.pairwise(asked)) < 11


def test_what_could_not_be_taken_back_is_forgotten_with_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    placement = bench.user()
    with pytest.raises(LateError):
        bench.volumes.prepare(placement)

    def away(*_: Any) -> Object:
        raise ApiError(0, "reset")

    with monkeypatch.context() as patched:
        patched.setattr(bench.api, "get", away)
        with pytest.raises(ApiError):
            bench.volumes.undo(placement)
    bench.now_s += UNDO_S + 1
    bench.volumes.assume(placement)
    assert placement.uid in bench.volumes._asked, "the pod is there, and may have to give it back"
    bench.api.delete(PODS, "n", "p")
    bench.see()
    bench.volumes.assume(bench.user("q"))
    assert not bench.volumes._asked


def test_a_provisioner_that_gives_up_ends_the_waiting() -> None:
    bench = Bench()
    placement = bench.user()

    def give_up(now_s: float) -> None:
        if now_s > 3:
            bench.api.patch(PERSISTENT_VOLUME_CLAIMS, "n", "data", {"metadata": {"annotations": {SELECTED: None}}})

    bench.while_waiting = give_up
    with pytest.raises(BindError, match="no volume could be made"):
        bench.volumes.prepare(placement)
    assert bench.now_s < 5


def test_a_provisioner_that_gives_up_before_a_look_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    placement = bench.user()
    patch = bench.api.patch

    def refuse(resource: Resource, namespace: str, name: str, body: Object, **options: Any) -> Object:
        written = patch(resource, namespace, name, body, **options)
        if resource is PERSISTENT_VOLUME_CLAIMS and body["metadata"]["annotations"].get(SELECTED):
            patch(resource, namespace, name, {"metadata": {"annotations": {SELECTED: None}}})
        return written

    monkeypatch.setattr(bench.api, "patch", refuse)
    with pytest.raises(BindError, match="no volume could be made"):
        bench.volumes.prepare(placement)
    assert bench.now_s < 1


def test_a_store_that_lags_is_no_refusal() -> None:
    bench = Bench()
    placement = bench.user()
    bench.sees_from_s = 4
    bench.while_waiting = lambda now_s: bench.provision() if now_s > 5 else None
    bench.volumes.prepare(placement)
    assert bench.selected() == "a"


def test_what_was_asked_for_a_pod_that_is_gone_is_taken_back() -> None:
    """Its successor of the same name, and claim, may find its place elsewhere."""
    bench = Bench()
    placement = bench.user()
    bench.while_waiting = lambda now_s: bench.api.delete(PODS, "n", "p") if bench.pods() else None
    with pytest.raises(BindError, match="the pod is gone"):
        bench.volumes.prepare(placement)
    assert bench.volumes.concerns(placement)
    bench.volumes.undo(placement)
    assert bench.selected() == ""
    assert not bench.volumes.concerns(placement)
    bench.while_waiting = lambda _: bench.provision("2")
    bench.volumes.prepare(bench.user("p", "b"))


def test_what_others_asked_for_meanwhile_is_not_taken_back() -> None:
    bench = Bench()
    placement = bench.user()
    other = {"metadata": {"annotations": {SELECTED: "b"}}}
    bench.while_waiting = lambda _: bench.api.patch(PERSISTENT_VOLUME_CLAIMS, "n", "data", other)
    with pytest.raises(BindError):
        bench.volumes.prepare(placement)
    bench.volumes.undo(placement)
    assert bench.selected() == "b"


@pytest.mark.parametrize("provisioner", ["csi.example.org", "kubernetes.io/no-provisioner"])
def test_a_volume_that_was_bound_unseen_stays(provisioner: str) -> None:
    bench = Bench(provisioner)
    bench.volume("one", zone="1")
    placement = bench.user()
    bench.sees_from_s = 1000

    def bind(now_s: float) -> None:
        bench.finish("one")

    bench.while_waiting = bind
    with pytest.raises(BindError):
        bench.volumes.prepare(placement)
    bench.volumes.undo(placement)
    assert bench.holders() == {"one": "data"}


def test_what_cannot_be_taken_back_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    placement = bench.user()
    with pytest.raises(BindError):
        bench.volumes.prepare(placement)

    def refuse(*_: Any, **__: Any) -> Object:
        raise ApiError(503, "away")

    with monkeypatch.context() as patched:
        patched.setattr(bench.api, "patch", refuse)
        with pytest.raises(ApiError):
            bench.volumes.undo(placement)
    assert bench.selected() == "a"
    bench.volumes.undo(placement)
    assert bench.selected() == ""


def test_a_free_volume_is_kept_the_smallest_that_the_node_reaches() -> None:
    bench = Bench("kubernetes.io/no-provisioner")
    for name, size, zone in (("far", "10Gi", "2"), ("small", "1Gi", "1"), ("large", "1Ti", "1"), ("fits", "20Gi", "1")):
        bench.volume(name, size, zone)
    placement = bench.user()
    bench.while_waiting = lambda now_s: bench.finish("fits") if bench.holders()["fits"] else None
    bench.volumes.prepare(placement)
    assert bench.holders() == {"far": "", "small": "", "large": "", "fits": "data"}
    assert bench.selected() == ""


def test_without_a_volume_and_a_provisioner_it_cannot_be() -> None:
    bench = Bench("kubernetes.io/no-provisioner")
    bench.volume("far", zone="2")
    with pytest.raises(BindError, match="no volume of class 'fast' is free"):
        bench.volumes.prepare(bench.user())
    assert bench.now_s == 0


def test_a_volume_that_nothing_bound_is_let_go() -> None:
    bench = Bench("kubernetes.io/no-provisioner")
    bench.volume("one", zone="1")
    placement = bench.user()
    with pytest.raises(BindError):
        bench.volumes.prepare(placement)
    assert bench.holders() == {"one": "data"}
    bench.volumes.undo(placement)
    assert bench.holders() == {"one": ""}


def test_a_volume_that_another_took_first_is_left_to_it() -> None:
    bench = Bench("kubernetes.io/no-provisioner")
    bench.volume("one", zone="1")
    bench.volume("two", zone="1")
    placement = bench.user()
    bench.api.patch(PERSISTENT_VOLUMES, "", "one", {"spec": {"claimRef": {"name": "other", "namespace": "m"}}})
    bench.while_waiting = lambda _: bench.finish("two")
    bench.volumes.prepare(placement)
    assert bench.holders() == {"one": "other", "two": "data"}


def test_two_pods_of_one_claim_cannot_be_on_two_nodes() -> None:
    bench = Bench()
    first, second = bench.user("p", "a"), bench.user("q", "b")
    bench.while_waiting = lambda _: bench.provision()
    bench.volumes.prepare(first)
    bench.api.patch(PERSISTENT_VOLUME_CLAIMS, "n", "data", {"status": {"phase": "Pending"}}, subresource="status")
    bench.see()
    with pytest.raises(BindError, match="is being made for node 'a'"):
        bench.volumes.prepare(second)


def test_a_volume_out_of_reach_is_no_volume() -> None:
    bench = Bench()
    placement = bench.user()
    bench.while_waiting = lambda _: bench.provision(zone="2")
    with pytest.raises(BindError, match="cannot be reached from node 'a'"):
        bench.volumes.prepare(placement)


def test_a_pod_that_goes_meanwhile_ends_the_waiting() -> None:
    bench = Bench()
    placement = bench.user()

    def leave(_: float) -> None:
        if any(True for _ in bench.api.page(PODS).items):
            bench.api.delete(PODS, "n", "p")

    bench.while_waiting = leave
    with pytest.raises(BindError, match="the pod is gone"):
        bench.volumes.prepare(placement)


def test_a_replica_that_stops_leading_waits_no_longer() -> None:
    bench = Bench()
    placement = bench.user()
    bench.while_waiting = lambda _: setattr(bench, "leads", False)
    with pytest.raises(FenceError):
        bench.volumes.prepare(placement)


def test_a_claim_of_an_ephemeral_volume_is_waited_for() -> None:
    bench = Bench()
    placement = bench.pod("e", "a", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}])
    assert bench.volumes.concerns(placement)

    def make(now_s: float) -> None:
        if now_s > 1 and not any(c["metadata"]["name"] == "e-scratch" for c in claims()):
            bench.claim("e-scratch")
            bench.volume("scratch", zone="1")
        elif now_s > 2:
            bench.finish("scratch", "e-scratch")

    def claims() -> list[dict[str, Any]]:
        return bench.api.page(PERSISTENT_VOLUME_CLAIMS).items

    bench.while_waiting = make
    bench.volumes.prepare(placement)
    assert not bench.volumes.concerns(placement)


def test_an_answer_that_fails_passes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    placement = bench.user()

    def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(503, "ServiceUnavailable")

    with monkeypatch.context() as patched:
        patched.setattr(bench.api, "patch", refuse)
        with pytest.raises(ApiError):
            bench.volumes.prepare(placement)
    bench.while_waiting = lambda _: bench.provision()
    bench.volumes.prepare(placement)
    assert bench.selected() == "a", "the next try goes on where the first one stopped"
