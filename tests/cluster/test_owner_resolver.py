"""Owners of pods: who is watched, who is asked for, and who is waited for."""

import threading
from typing import Any

import pytest

from kai_solver.cluster import owner_resolver
from kai_solver.cluster.api import ApiError, Object, Page
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.owner_resolver import (
    COMES_WITHIN_S,
    KEPT_S,
    LOGGED_KINDS,
    LONGEST_AGAIN_S,
    PATIENCE_S,
    REFUSED_S,
    OwnerResolver,
    _is_turn,
)
from kai_solver.cluster.resources import JOBS, POD_GROUPS, PODS, Resource
from kai_solver.cluster.store import Store
from tests.conftest import Caught

MINE = Resource("example.org", "v1", "mines", "Mine")
WHOLE = Resource("example.org", "v1", "wholes", "Whole", namespaced=False)
TORCH = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
CLIQUES = Resource("grove.io", "v1alpha1", "podcliques", "PodClique")
GANGS = Resource("scheduler.grove.io", "v1alpha1", "podgangs", "PodGang")


class Asked(MemoryApi):
    """Notes what it is asked for; refuses on demand."""

    def __init__(self, *served: Resource) -> None:
        super().__init__((PODS, JOBS, *served))
        self.asked: list[str] = []
        self.error: ApiError | None = None

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        self._note(resource, namespace, name)
        return super().get(resource, namespace, name)

    def page(self, resource: Resource, *, namespace: str = "", name: str = "", **more: Any) -> Page:
        self._note(resource, namespace, name)
        return super().page(resource, namespace=namespace, name=name, **more)

    def _note(self, resource: Resource, namespace: str, name: str) -> None:
        self.asked.append(f"{resource.kind} {namespace}/{name}")
        if self.error is not None:
            raise self.error


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_resolver, "DOUBTED_S", 0.0)


class World:
    def __init__(self, *served: Resource, watched: tuple[Resource, ...] = (JOBS,)) -> None:
        self.api, self.store, self.now_s = Asked(*served), Store(), 100.0
        self.resolver = OwnerResolver(self.api, self.store, "kai-scheduler", watched, lambda: self.now_s)
        self.begun: list[Resource] = []
        self.resolver.watch = self.begun.append
        self.pods: list[Object] = []
        for kind in watched:
            self.store.replace(kind, ())

    def make(self, resource: Resource, name: str, by: Object | None = None) -> Object:
        references = {"ownerReferences": [reference(by)]} if by else {}
        return self.api.create(resource, "n", {"metadata": {"name": name, **references}})

    def pod(self, name: str, by: Object | None = None, scheduler: str = "kai-scheduler", **more: Any) -> Object:
        metadata = {"name": name, "namespace": "n", "uid": f"u-{name}", "annotations": more.pop("annotations", {})}
        metadata |= {"ownerReferences": [reference(by)]} if by else {}
        found: Object = {"metadata": metadata, "spec": {"schedulerName": scheduler, **more}}
        self.pods.append(found)
        self.store.replace(PODS, self.pods)
        return found

    def seen(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.resolver.overlay(tuple(self.pods), 0.0)]

    def owners(self) -> set[str]:
        return {value["metadata"]["name"] for value in self.resolver.objects()}


def reference(owner: Object) -> Object:
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    return named | {field: owner["metadata"][field] for field in ("name", "uid")}


def test_a_kind_that_cannot_be_listed_holds_up_its_own_pods_alone() -> None:
    world = World(TORCH, watched=(JOBS,))
    world.resolver = OwnerResolver(world.api, world.store, "kai-scheduler", (JOBS, TORCH), lambda: world.now_s)
    world.pod("worker", world.make(TORCH, "train"))
    world.pod("plain")
    assert not world.resolver.is_settled()
    world.now_s += PATIENCE_S
    assert not world.resolver.is_settled(), "all wait for a while"
    world.now_s += 1.0
    assert world.resolver.is_settled()
    assert world.seen() == ["plain"]


def test_a_plain_pod_is_seen_at_once_and_nothing_is_asked() -> None:
    world = World()
    world.pod("p")
    assert world.seen() == ["p"]
    assert world.resolver.is_settled()
    world.resolver.answer_all()
    assert world.api.asked == []


def test_an_owner_of_an_unknown_kind_is_asked_for_once_and_its_pods_wait_for_the_answer() -> None:
    world = World(MINE)
    mine = world.make(MINE, "m")
    for name in "ab":
        world.pod(name, mine)
    assert world.seen() == []
    assert not world.resolver.is_settled()
    world.resolver.answer_all()
    assert (world.seen(), world.owners(), world.api.asked) == (["a", "b"], {"m"}, ["Mine n/m"])
    assert world.resolver.is_settled()


def test_owners_of_unknown_kinds_keep_no_literals() -> None:
    world = World(MINE)
    containers = [{"name": "c", "args": ["secret"], "env": [{"name": "T", "value": "secret"}]}]
    value = {"metadata": {"name": "m"}, "spec": {"workers": [{"template": {"spec": {"containers": containers}}}]}}
    world.pod("p", world.api.create(MINE, "n", value))
    assert world.seen() == []
    world.resolver.answer_all()
    (found,) = world.resolver.objects()
    assert found["spec"] == {"workers": [{"template": {"spec": {"containers": [{"name": "c", "env": []}]}}}]}


def test_pods_with_a_node_are_seen_while_their_owners_are_asked_for() -> None:
    world = World(MINE)
    world.pod("runs", world.make(MINE, "m"), nodeName="node")
    assert world.seen() == ["runs"]
    world.resolver.answer_all()
    assert world.owners() == {"m"}


def test_owners_of_owners_are_asked_for_too_also_of_watched_ones() -> None:
    world = World(MINE, WHOLE)
    whole = world.api.create(WHOLE, "", {"metadata": {"name": "w"}})
    job = world.make(JOBS, "j", by=world.make(MINE, "m", by=whole))
    world.store.replace(JOBS, [job])
    world.pod("p", job)
    for _ in range(2):
        assert world.seen() == []
        world.resolver.answer_all()
    assert (world.seen(), world.owners()) == (["p"], {"j", "m", "w"})


@pytest.mark.parametrize("more", [{"scheduler": "another"}, {"annotations": {"pod-group-name": "pg"}}])
def test_for_pods_of_others_and_with_a_pod_group_nothing_is_asked(more: dict[str, Any]) -> None:
    world = World(MINE)
    world.pod("p", world.make(MINE, "m"), **more)
    assert world.seen() == ["p"]
    world.resolver.answer_all()
    assert world.api.asked == []


def test_the_owners_of_pods_that_name_a_pod_group_of_ours_are_asked_for() -> None:
    world = World(MINE)
    annotations = {"kai-solver/created": "2026-01-01T00:00:00Z"}
    world.pod("p", world.make(MINE, "m"), annotations={"pod-group-name": "pg"})
    assert world.seen() == ["p"], "it is not known yet whose the PodGroup is"
    world.store.replace(POD_GROUPS, [{"metadata": {"name": "pg", "namespace": "n", "annotations": annotations}}])
    assert world.seen() == []
    world.resolver.answer_all()
    assert (world.seen(), world.owners()) == (["p"], {"m"})


def test_a_missing_right_is_told_once_for_its_kind_and_asked_for_again_later(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World(MINE)
    world.api.error = ApiError(403, "Forbidden", "mines.example.org is forbidden")
    first, second = world.make(MINE, "first"), world.make(MINE, "second")
    world.pod("a", first)
    world.seen()
    world.resolver.answer_all()
    world.pod("b", second)
    assert world.seen() == ["a", "b"]
    world.resolver.answer_all()
    assert world.api.asked == ["Mine n/first"]
    world.now_s += REFUSED_S + 1
    world.api.error = None
    world.pod("c", world.make(MINE, "third"))
    assert world.seen() == ["a", "b"]
    world.resolver.answer_all()
    assert (world.seen(), world.owners()) == (["a", "b", "c"], {"third"})
    assert capsys.readouterr().out.count("cannot be read") == 1


def test_a_refusal_by_a_server_that_was_just_started_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod waits meanwhile: without its owner it would be no part of its gang."""
    monkeypatch.setattr(owner_resolver, "DOUBTED_S", 5.0)
    world = World(MINE)
    world.api.error = ApiError(403, "Forbidden", "mines.example.org is forbidden")
    world.pod("a", world.make(MINE, "first"))
    for _ in range(2):
        assert world.seen() == []
        world.resolver.answer_all()
        world.now_s += 2.0
    world.api.error = None
    assert world.seen() == []
    world.resolver.answer_all()
    assert (world.seen(), world.owners()) == (["a"], {"first"})


def test_a_refusal_that_lasts_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_resolver, "DOUBTED_S", 5.0)
    world = World(MINE)
    world.api.error = ApiError(403, "Forbidden", "mines.example.org is forbidden")
    world.pod("a", world.make(MINE, "first"))
    for _ in range(4):
        assert world.seen() == []
        world.resolver.answer_all()
        world.now_s += 2.0
    assert world.seen() == ["a"]


def test_an_owner_that_was_refused_is_read_when_it_may_be() -> None:
    world = World(MINE)
    world.api.error = ApiError(403, "Forbidden", "mines.example.org is forbidden")
    world.pod("a", world.make(MINE, "first"))
    world.seen()
    world.resolver.answer_all()
    assert (world.seen(), world.owners()) == (["a"], set())
    world.api.error = None
    world.now_s += KEPT_S + 1
    world.seen()
    world.resolver.answer_all()
    assert (world.seen(), world.owners()) == (["a"], {"first"})
    assert not world.resolver.notices


def test_pods_whose_owner_may_not_be_read_are_told_so_and_the_cure() -> None:
    world = World(MINE)
    world.api.error = ApiError(403, "Forbidden", "mines.example.org is forbidden")
    owner = world.make(MINE, "m")
    world.pod("waits", owner)
    world.pod("runs", owner, nodeName="node")
    world.pod("plain")
    world.seen()
    world.resolver.answer_all()
    world.seen()
    (notice,) = world.resolver.notices
    assert (notice.kind, notice.object) == ("warning", "Pod n/waits")
    assert "its owner Mine n/m cannot be read" in notice.text
    assert "rbac.owners" in notice.text
    world.api.error = None
    world.now_s += KEPT_S + 1
    world.pod("later", world.make(MINE, "another"))
    world.seen()
    world.resolver.answer_all()
    assert "later" in world.seen()
    assert "Pod n/later" not in [found.object for found in world.resolver.notices]


def test_pods_that_are_held_for_long_wake_nothing_every_moment() -> None:
    turns = [look for look in range(1, 200) if _is_turn(look)]
    assert turns == [1, 2, 3, 4, 5, 8, 16, 32, 60, 64, 120, 128, 180]


@pytest.mark.parametrize("gone", ["object", "kind", "another of its name"])
def test_an_owner_that_is_gone_holds_nothing_up(gone: str) -> None:
    world = World(*(() if gone == "kind" else (MINE,)))
    owner: Object = {"apiVersion": "example.org/v1", "kind": "Mine", "metadata": {"name": "m", "uid": "u"}}
    if gone == "another of its name":
        world.make(MINE, "m")
    world.pod("p", owner)
    world.seen()
    world.resolver.answer_all()
    assert (world.seen(), world.owners()) == (["p"], set())


def test_an_api_server_that_does_not_answer_is_asked_again() -> None:
    world = World(MINE)
    world.api.error = ApiError(0, "ConnectionReset")
    world.pod("p", world.make(MINE, "m"))
    world.seen()
    for _ in range(3):
        world.resolver.answer_all()
        assert world.seen() == []
    assert len(world.api.asked) == 1, "but not at once"
    for wait_s, times in ((0.5, 2), (0.9, 2), (0.1, 3)):
        world.now_s += wait_s
        world.seen()
        world.resolver.answer_all()
        assert len(world.api.asked) == times
    (notice,) = world.resolver.notices
    assert (notice.kind, notice.object) == ("set-aside", "Pod n/p")
    assert "waits for its owner Mine n/m" in notice.text
    world.api.error = None
    world.now_s += LONGEST_AGAIN_S
    world.seen()
    world.resolver.answer_all()
    assert world.seen() == ["p"]
    assert world.resolver.notices == ()


def test_a_kind_whose_api_hangs_holds_up_no_other() -> None:
    """One thread asks for all owners, and each question may take as long as its time limit."""
    world = World(MINE, TORCH)

    def hang(resource: Resource, _namespace: str, name: str) -> None:
        world.api.asked.append(name)
        if resource == MINE:
            world.now_s += 10.0
            raise ApiError(0, "ReadTimeout")

    world.api._note = hang  # type: ignore[assignment, method-assign]
    for index in range(100):
        world.pod(f"p{index}", world.make(MINE, f"m{index}"))
    world.pod("other", {"apiVersion": "example.org/v1", "kind": "Other", "metadata": {"name": "o", "uid": "u"}})
    begun_s = world.now_s
    while world.seen() != ["other"]:
        world.resolver.answer_all()
    assert world.now_s - begun_s <= 10.0
    assert world.api.asked == ["m0"]
    world.now_s += 10.0
    world.seen()
    world.resolver.answer_all()
    assert len(world.api.asked) == 2, "it rests as long as the question took"


def test_a_pod_waits_a_moment_for_a_watched_owner_that_is_not_seen_yet() -> None:
    world = World()
    job = world.make(JOBS, "j")
    world.pod("p", job)
    assert world.seen() == []
    world.store.replace(JOBS, [job])
    assert world.seen() == ["p"]
    world.pod("orphan", {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gone", "uid": "u"}})
    assert world.seen() == ["p"]
    world.now_s += COMES_WITHIN_S
    assert world.seen() == ["p"]
    world.resolver.answer_all()
    assert world.seen() == ["p", "orphan"], "the server says that nobody is there"


def test_an_owner_whose_watch_is_behind_is_not_taken_for_gone() -> None:
    """Its gang would be broken up: each pod for itself, with another queue."""
    world = World()
    job = world.make(JOBS, "j")
    world.pod("p", job)
    world.seen()
    world.now_s += COMES_WITHIN_S
    world.api.error = ApiError(503, "ServiceUnavailable")
    world.seen()
    world.resolver.answer_all()
    assert world.seen() == [], "nobody knows yet"
    world.api.error = None
    world.now_s += LONGEST_AGAIN_S
    world.seen()
    world.resolver.answer_all()
    assert (world.seen(), world.owners()) == (["p"], {"j"})
    world.store.replace(JOBS, [job])
    assert [value["metadata"]["name"] for value in world.resolver.objects()] == ["j"], "as the watch shows it, and once"
    assert world.api.asked == ["Job n/j"] * 2


def test_what_may_not_list_owners_of_a_kind_is_told_so() -> None:
    world = World()
    world.api.error = ApiError(403, "Forbidden", "jobs.batch is forbidden")
    world.pod("p", world.make(JOBS, "j"))
    world.seen()
    world.now_s += COMES_WITHIN_S
    world.seen()
    world.resolver.answer_all()
    assert world.seen() == ["p"]
    (notice,) = world.resolver.notices
    assert "rbac.owners" in notice.text


def test_a_kind_that_is_installed_later_is_watched_when_the_first_pod_comes() -> None:
    world = World(TORCH)
    job = world.make(TORCH, "t")
    world.pod("p", job)
    assert world.seen() == []
    world.resolver.answer_all()
    assert (world.begun, world.api.asked, world.seen()) == ([TORCH], [], [])
    assert TORCH in world.resolver.kinds
    world.store.replace(TORCH, [job])
    assert (world.seen(), world.owners()) == (["p"], {"t"})


def test_with_groves_kinds_its_pod_gangs_are_watched() -> None:
    world = World(CLIQUES, GANGS)
    world.pod("p", world.make(CLIQUES, "c"))
    world.seen()
    world.resolver.answer_all()
    assert world.begun == [CLIQUES, GANGS]


def test_pods_that_own_pods_are_known_by_themselves() -> None:
    world = World()
    leader = world.pod("leader")
    world.pod("worker", {**leader, "apiVersion": "v1", "kind": "Pod"})
    assert world.seen() == ["leader", "worker"]


@pytest.mark.parametrize("owners", [7, [7], [{}], [{"kind": "Mine"}]])
def test_what_cannot_be_read_is_left_to_the_cycle(owners: Any) -> None:
    world = World()
    world.pod("p")["metadata"]["ownerReferences"] = owners
    assert world.seen() == ["p"]


def test_an_unexpected_error_over_one_pod_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    def fails(_: Object) -> bool:
        raise RuntimeError("over this PodGroup")

    world = World()
    world.pod("bad", annotations={"pod-group-name": "pg"})
    world.pod("good")
    world.store.replace(POD_GROUPS, [{"metadata": {"name": "pg", "namespace": "n"}}])
    monkeypatch.setattr(owner_resolver, "is_own", fails)
    assert world.resolver.is_settled()
    assert world.seen() == ["bad", "good"]
    assert {fault.what for fault in faults} == {"Pod n/bad"}


def test_owners_without_pods_are_forgotten_in_time() -> None:
    world = World(MINE)
    world.pod("a", world.make(MINE, "stays"))
    gone = world.pod("b", world.make(MINE, "goes"))
    world.seen()
    world.resolver.answer_all()
    world.seen()
    world.pods.remove(gone)
    for _ in range(2):
        world.now_s += KEPT_S + 1
        assert world.seen() == ["a"]
    assert world.owners() == {"stays"}
    assert world.api.asked.count("Mine n/stays") == 1


def test_kinds_of_owners_without_pods_are_forgotten_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Anybody may name a new kind with each pod."""
    world = World()
    ghost = {"kind": "Foo", "metadata": {"name": "o", "uid": "o"}}
    world.pod("stays", ghost | {"apiVersion": "stays.example/v1"})
    for at in range(2 * LOGGED_KINDS):
        ghost["metadata"] = {"name": "o", "uid": f"o{at}"}
        world.pod(f"p{at}", ghost | {"apiVersion": f"g{at}.example/v1"})
    world.seen()
    world.resolver.answer_all()
    world.seen()
    assert capsys.readouterr().out.count("cannot be read") == LOGGED_KINDS
    del world.pods[1:]
    for _ in range(3):
        world.now_s += KEPT_S + 1
        world.seen()
        world.resolver.answer_all()
        world.seen()
        assert [notice.object for notice in world.resolver.notices] == ["Pod n/stays"]
    for kept in (world.resolver._whys, world.resolver._refused):
        assert kept.keys() == {("stays.example", "Foo")}
    assert "cannot be read" not in capsys.readouterr().out


def test_the_loop_is_woken_by_an_answer_and_while_pods_are_held() -> None:
    world, stop, woken = World(MINE), threading.Event(), threading.Semaphore(0)
    world.resolver.wake = woken.release
    thread = threading.Thread(target=lambda: world.resolver.run(stop))
    thread.start()
    try:
        world.pod("p", world.make(MINE, "m"))
        world.seen()
        assert woken.acquire(timeout=10)
        assert world.seen() == ["p"]
        world.pod("orphan", {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gone", "uid": "u"}})
        world.seen()
        assert woken.acquire(timeout=10)
    finally:
        stop.set()
        thread.join(10)
