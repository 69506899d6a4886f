"""An object that an unexpected error makes unreadable is set aside with a reason; what it holds stays held."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.domain import Snapshot
from kai_solver.kubeobjects import RawObjects, Recall, assemble, names, snapshot_from_objects
from kai_solver.kubeobjects.grouping import registry
from kai_solver.kubeobjects.objects import KINDS
from kai_solver.kubeobjects.pods import PodReader, RawPod
from kai_solver.kubeobjects.raw import Raw
from kai_solver.units import GPU, MILLI
from tests.conftest import Caught

FIELDS = [kind.field for kind in KINDS]


def waiting(found: Snapshot) -> list[str]:
    return [pod.name for gang in found.gangs for pod in gang.pods if not gang.set_aside]


@pytest.mark.parametrize("depth", [100_000, 50_000])
@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_an_annotation_that_is_too_deep_costs_its_own_pod(build: Any, opening: str, depth: int) -> None:
    deep = build.pod("deep", {"metadata": {"annotations": {names.OWN_BLOCKED: opening * depth}}})
    found = build.read(deep, build.pod("good"))
    assert waiting(found) == ["good"]
    (text,) = build.texts(found, "set-aside")
    assert text.startswith("Pod ns/deep: ")
    assert names.OWN_BLOCKED in text


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception, name: str = "bad") -> None:
    """Reading a pod of that name in full raises."""
    read = PodReader.read

    def strange(self: PodReader, raw: Raw, twin: RawPod | None = None) -> RawPod:
        if raw.text("metadata.name") == name and raw.get("spec.containers").items()[0].get("image"):
            raise error
        return read(self, raw, twin)

    monkeypatch.setattr(PodReader, "read", strange)


IMAGE = {"spec": {"containers": [{"image": "i", "resources": {"requests": {"nvidia.com/gpu": "3"}}}]}}


@pytest.mark.parametrize("error", [RecursionError("too deep"), MemoryError(), KeyError("x"), ZeroDivisionError()])
def test_an_unexpected_error_costs_its_own_pod_and_is_told(
    build: Any, monkeypatch: pytest.MonkeyPatch, faults: list[Caught], error: Exception
) -> None:
    failing(monkeypatch, error)
    found = build.read(build.node("n", gpus=8), build.pod("bad", IMAGE), build.pod("good"))
    assert waiting(found) == ["good"]
    (text,) = build.texts(found, "set-aside")
    assert text.startswith(f"Pod ns/bad: an unexpected error stopped its reading ({type(error).__name__}")
    assert [(fault.where, fault.what, fault.error) for fault in faults] == [("reading", "Pod ns/bad", error)]


def test_what_an_unreadable_pod_holds_is_of_no_other_pod(
    build: Any, monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    failing(monkeypatch, KeyError("x"))
    bad = build.pod("bad", IMAGE | {"status": {"phase": "Running"}}, node="n")
    bad["spec"]["nodeName"] = "n"
    found = build.read(build.node("n", gpus=8), bad, build.pod("good"))
    assert [(pod.name, pod.node, pod.gpu.devices) for pod in found.foreign] == [("bad", "n", 3)]


def test_a_running_pod_with_an_annotation_that_cannot_be_read_holds_its_share(build: Any) -> None:
    annotations = {names.OWN_BLOCKED: "[" * 10, names.GPU_FRACTION: "0.5"}
    bad = build.pod("bad", {"metadata": {"annotations": annotations}, "status": {"phase": "Running"}})
    bad["spec"]["nodeName"] = "n"
    found = build.read(build.node("n", gpus=8), bad)
    assert [(pod.node, pod.gpu.devices, pod.gpu.milli) for pod in found.foreign] == [("n", 1, MILLI // 2)]
    ended = build.pod("bad", {"metadata": {"annotations": annotations}, "status": {"phase": "Succeeded"}})
    assert build.read(build.node("n", gpus=8), ended).foreign == ()


def test_a_family_that_fails_costs_the_pods_that_it_groups(
    build: Any, monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    plain = registry.by_priority(registry.BUILT_IN)[-1]
    group = type(plain).group

    def strange(self: Any, members: Any) -> Any:
        if members[0].pod.name == "bad":
            raise IndexError("nobody thought of this")
        return group(self, members)

    monkeypatch.setattr(type(plain), "group", strange)
    found = build.read(build.pod("bad"), build.pod("good"))
    assert waiting(found) == ["good"]
    assert any(text.startswith("Pod ns/bad: an unexpected error") for text in build.texts(found, "set-aside"))


Fails = Callable[[RawObjects], bool]


def spoiled(monkeypatch: pytest.MonkeyPatch, fails: Fails) -> list[int]:
    """The whole reading raises where ``fails`` says so; how many readings there were."""
    read, count = assemble._read, [0]

    def strange(objects: RawObjects, *rest: Any) -> Snapshot:
        count[0] += 1
        if fails(objects):
            raise TypeError("together they are too much")
        return read(objects, *rest)

    monkeypatch.setattr(assemble, "_read", strange)
    return count


def has(objects: RawObjects, *found: str) -> bool:
    there = {value["metadata"]["name"] for field in FIELDS for value in getattr(objects, field)}
    return there.issuperset(found)


def objects_of(build: Any, names_: list[str]) -> RawObjects:
    pods = tuple(build.pod(name, {"status": {"phase": "Pending"}}) for name in names_)
    return RawObjects(pods=pods, nodes=(build.node("n", gpus=8), build.node("m", gpus=8)))


@pytest.mark.parametrize(
    ("fails", "left_out"),
    [
        (lambda o: has(o, "p3"), {"Pod ns/p3"}),
        (lambda o: has(o, "p3") or has(o, "p7"), {"Pod ns/p3", "Pod ns/p7"}),
        (lambda o: has(o, "n", "p5"), {"Pod ns/p5"}),
        (lambda o: has(o, "n"), {"Node n"}),
        (lambda o: has(o, "p1", "p8"), {"Pod ns/p8"}),
    ],
)
def test_objects_that_spoil_the_whole_reading_are_found_and_left_out(
    build: Any, monkeypatch: pytest.MonkeyPatch, faults: list[Caught], fails: Fails, left_out: set[str]
) -> None:
    objects = objects_of(build, [f"p{i}" for i in range(10)])
    count, recall = spoiled(monkeypatch, fails), Recall()
    found = snapshot_from_objects(objects, now_s=0.0, recall=recall)
    notices = [n for n in found.notices if "together they are too much" in n.text]
    assert {notice.object for notice in notices} == left_out
    assert {fault.what for fault in faults} == left_out
    assert len(waiting(found)) + len([name for name in left_out if name.startswith("Pod")]) == 10
    count[0] = 0
    again = snapshot_from_objects(objects, now_s=1.0, recall=recall)
    assert count[0] == 1, "they are known"
    assert (again.gangs, set(again.notices)) == (found.gangs, set(found.notices))
    snapshot_from_objects(objects, now_s=31.0, recall=recall)
    assert count[0] > 2, "they are tried again after a while"


def test_an_object_that_changed_is_read_again_at_once(
    build: Any, monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    objects, recall = objects_of(build, ["good", "bad"]), Recall()
    spoiled(monkeypatch, lambda o: any(p["metadata"]["uid"] == "uid-bad" for p in o.pods))
    assert waiting(snapshot_from_objects(objects, now_s=0.0, recall=recall)) == ["good"]
    cured = build.pod("bad", {"metadata": {"uid": "another"}})
    assert sorted(
        waiting(snapshot_from_objects(replace(objects, pods=(objects.pods[0], cured)), now_s=1.0, recall=recall))
    ) == [
        "bad",
        "good",
    ]


def test_what_no_object_is_to_blame_for_is_raised(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled(monkeypatch, lambda _: True)
    with pytest.raises(TypeError, match="together"):
        snapshot_from_objects(objects_of(build, ["a", "b"]), now_s=0.0)


def test_a_node_that_cannot_be_finished_costs_itself(
    build: Any, monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    finish = assemble._Finish.node

    def strange(self: Any, node: Any, *rest: Any) -> Any:
        if node.name == "bad":
            raise OverflowError("too large")
        return finish(self, node, *rest)

    monkeypatch.setattr(assemble._Finish, "node", strange)
    found = build.read(build.node("bad", gpus=4), build.node("good", gpus=4))
    assert [node.name for node in found.nodes] == ["good"]
    assert found.nodes[0].allocatable[GPU] == 4 * MILLI


def test_a_gang_that_cannot_be_put_together_holds_what_it_holds_and_waits(
    build: Any, monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    gang_of = assemble._Finish._gang

    def strange(self: Any, gang: Any, *rest: Any, **more: Any) -> Any:
        if gang.key == "ns/bad":
            raise OverflowError("too large")
        return gang_of(self, gang, *rest, **more)

    monkeypatch.setattr(assemble._Finish, "_gang", strange)
    named = {"metadata": {"annotations": {names.POD_GROUP: "bad"}}}
    running = build.pod("runs", named | {"status": {"phase": "Running"}}, gpus=2)
    running["spec"]["nodeName"] = "n"
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "bad", "namespace": "ns"},
        "spec": {"minMember": 1},
    }
    found = build.read(build.node("n", gpus=4), group, running, build.pod("waits", named), build.pod("good"))
    bad = next(gang for gang in found.gangs if gang.key == "ns/bad")
    assert bad.set_aside.startswith("an unexpected error")
    assert {pod.name for pod in bad.pods} == {"runs", "waits"}
    assert waiting(found) == ["good"]
