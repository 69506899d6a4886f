"""Annotations of ours that say nothing where they stand: told once for a kind, with the nearest name or their place."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver.kubeobjects import Recall, names, objects_from_documents, ownkeys, snapshot_from_objects
from kai_solver.kubeobjects.ownkeys import HEEDED, WRITTEN, stray_text, strays
from kai_solver.links import ROW_ANNOTATION, TOPOLOGY_ANNOTATION

TYPO = "kai-solver/gpu-rows"
TOLD = f"{TYPO} is not known, and says nothing. Did you mean '{ROW_ANNOTATION}'?"


def annotated(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {f"kai-solver/{key.replace('_', '-')}": v for key, v in annotations.items()}}}


def named(api_version: str, kind: str, **annotations: str) -> dict[str, Any]:
    metadata = {"name": "x", "namespace": "ns", **annotated(**annotations)["metadata"]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def test_every_annotation_of_ours_has_its_place() -> None:
    written = {value for name, value in vars(names).items() if name.startswith("OWN_")}
    assert written | {ROW_ANNOTATION, TOPOLOGY_ANNOTATION} <= HEEDED.keys() | WRITTEN.keys()
    assert not HEEDED.keys() & WRITTEN.keys()


@pytest.mark.parametrize(("key", "kinds"), {**HEEDED, **WRITTEN}.items())
def test_it_is_no_stray_in_its_place_alone(key: str, kinds: tuple[str, ...]) -> None:
    for kind in ("Pod", "PodGroup", "Queue", "Topology", "Node", "SchedulingShard"):
        assert strays({key: ""}, kind) == (() if kind in kinds else (stray_text(key, kind),))
    assert strays({key: ""}, "Job") == (() if "workload" in kinds else (stray_text(key, "Job"),))


@pytest.mark.parametrize(
    ("kind", "name"), [("pod", "Pod ns/x"), ("node", "Node x"), ("pod_group", "PodGroup ns/x"), ("queue", "Queue x")]
)
def test_a_misspelt_one_is_told_with_the_nearest_name(build: Any, kind: str, name: str) -> None:
    found = build.read(getattr(build, kind)("x", more=annotated(gpu_rows="x")))
    assert [text for text in build.texts(found, "warning") if TYPO in text] == [f"{name}: {TOLD}"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            named("batch/v1", "Job", gpu_row="x"),
            "Job ns/x: kai-solver/gpu-row says nothing on a Job. Write it on a Pod, or",
        ),
        (
            named("batch/v1", "Job", spare_nodes="r=1"),
            "Job ns/x: kai-solver/spare-nodes says nothing on a Job. Write it on a T",
        ),
        (
            named("kai.scheduler/v1", "SchedulingShard", gpu_resource="a"),
            "SchedulingShard ns/x: kai-solver/gpu-resource is not",
        ),
    ],
)
def test_owners_and_settings_are_looked_at_too(build: Any, value: dict[str, Any], text: str) -> None:
    found = build.read(value)
    assert any(told.startswith(text) for told in build.texts(found, "warning")), list(build.texts(found))


def test_what_is_heeded_or_not_ours_is_not_told(build: Any) -> None:
    found = build.read(
        build.pod("a", annotations={ROW_ANNOTATION: "aligned-preferred", "example.org/gpu-rows": "x"}),
        named("batch/v1", "Job", may_use_spares="true", node_strategy="spread"),
    )
    assert not [text for text in build.texts(found) if "says nothing" in text]


def test_many_of_a_kind_are_one_warning_which_memory_does_not_change(build: Any) -> None:
    pods = [build.pod(f"p{i}", annotations={TYPO: "x"}) for i in range(50)]
    objects, recall = objects_from_documents([("", build.node("n")), *(("", pod) for pod in pods)]), Recall()
    readings = [snapshot_from_objects(objects, now_s=0.0, recall=recall).notices for _ in range(3)]
    assert readings == [snapshot_from_objects(objects, now_s=0.0).notices] * 3
    (told,) = [notice for notice in readings[0] if TYPO in notice.text]
    assert (told.object, told.text) == ("Pod ns/p0", f"{TOLD}. Others of its kind have it, too")
    corrected = replace(objects, pods=tuple(build.pod(f"p{i}") for i in range(50)))
    assert not [n for n in snapshot_from_objects(corrected, now_s=0.0, recall=recall).notices if TYPO in n.text]


def test_annotations_that_cannot_be_read_are_told_where_they_are_read(build: Any) -> None:
    broken = build.node("n")
    broken["metadata"]["annotations"] = ["kai-solver/zzz"]
    job = named("batch/v1", "Job")
    job["metadata"]["annotations"] = {1: "x", "kai-solver/zzz": 5}
    found = build.read(broken, job)
    assert any(text.startswith("Node n: ") for text in build.texts(found, "set-aside"))
    assert any("kai-solver/zzz is not known" in text for text in build.texts(found, "warning"))


def test_of_very_many_on_one_object_a_few_are_told_and_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def nearest(name: str, _: object) -> str:
        asked.append(name)
        return ""

    monkeypatch.setattr(ownkeys, "nearest", nearest)
    told = strays({f"kai-solver/gpu-rows-{number}": "" for number in range(10_000)}, "Pod")
    assert len(asked) == 5
    assert [*told][:1] == ["kai-solver/gpu-rows-0 is not known, and says nothing. Correct or remove it"]
    assert told[5:] == ("The same is true of 9,995 more annotations",)


@pytest.mark.parametrize("kind", ["job", "pod", "node", "pod_group"])
def test_what_did_not_change_is_not_looked_up_again(build: Any, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    value = (
        named("batch/v1", "Job", gpu_rows="x") if kind == "job" else getattr(build, kind)("x", more=annotated(a="x"))
    )
    objects, recall = objects_from_documents([("", value)]), Recall()
    first = snapshot_from_objects(objects, now_s=0.0, recall=recall).notices
    assert any("says nothing" in notice.text for notice in first)
    monkeypatch.setattr(ownkeys, "nearest", None)
    assert snapshot_from_objects(objects, now_s=0.0, recall=recall).notices == first


def test_of_objects_without_number_the_first_are_told(build: Any) -> None:
    found = build.read(*(build.pod(f"p{number}", annotations={f"{TYPO}-{number}": "x"}) for number in range(150)))
    assert len([text for text in build.texts(found) if "says nothing" in text]) == 100
