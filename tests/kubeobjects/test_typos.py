"""Names in manifests that are almost those that are read."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kai_solver.instances_io import load_instance
from kai_solver.kubeobjects.typos import KEYS, is_one_slip

TYPOS = sys.modules[is_one_slip.__module__]

QUEUE = {
    "apiVersion": "scheduling.run.ai/v2",
    "kind": "Queue",
    "metadata": {"name": "team"},
    "spec": {"resources": {"gpu": {"quota": 1, "limit": -1, "overQuotaWeight": 1}}},
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "2", "pods": "110"}},
}


def pod(metadata: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "a", "resources": {"limits": limits or {}}}
    spec = {"schedulerName": "kai-scheduler", "containers": [container]} | spec
    labels = {"kai.scheduler/queue": "team"}
    return {"metadata": {"name": "p", "labels": labels} | (metadata or {}), "spec": spec}


def warnings(tmp_path: Path, *documents: dict[str, Any]) -> list[str]:
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all([QUEUE, NODE, *documents]))
    notices = load_instance(file).snapshot.notices
    return [f"{notice.object}: {notice.text}" for notice in notices if "Did you mean" in notice.text]


POD = {"apiVersion": "v1", "kind": "Pod"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}

SLIP_OF_A_FIELD = (
    "Queue b: spec.resources.gpu.overQuotaWeigth is no field of a Queue and is not read. Did you mean overQuotaWeight?"
)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            POD | pod({"annotations": {"gpu-fracton": "0.5"}}),
            "Pod p: annotation 'gpu-fracton' is not read. Did you mean gpu-fraction?",
        ),
        (
            JOB | {"spec": {"template": pod({"labels": {"kai.scheduler/queu": "team"}})}},
            "Job j: label 'kai.scheduler/queu' is not read. Did you mean kai.scheduler/queue?",
        ),
        (
            POD | pod(limits={"nvidia.com/gpus": 1}),
            "Pod p: resource 'nvidia.com/gpus' in limits is not known. Did you mean nvidia.com/gpu?",
        ),
        (
            POD | pod(schedulerName="kai-schedluer"),
            "Pod p: schedulerName 'kai-schedluer' is not that of this scheduler. Did you mean kai-scheduler?",
        ),
        (
            QUEUE | {"metadata": {"name": "b"}, "spec": {"resources": {"gpu": {"overQuotaWeigth": 2}}}},
            SLIP_OF_A_FIELD,
        ),
    ],
)
def test_a_slip_is_named_with_what_was_meant(tmp_path: Path, document: dict[str, Any], words: str) -> None:
    assert words in warnings(tmp_path, document)


def test_what_is_right_or_means_something_else_is_not_named(tmp_path: Path) -> None:
    labels = {"kai.scheduler/queue": "team", "app": "x", "users": "y", "projects": "z", "example.com/gpu-fractions": ""}
    own = pod({"labels": labels, "annotations": {"gpu-memory": "100"}}, {"nvidia.com/gpu": 1, "memory": "1Gi"})
    other = pod({"name": "q"}, schedulerName="default-scheduler")
    assert warnings(tmp_path, POD | own, POD | other) == []


def test_of_very_many_names_in_one_place_some_are_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def like(name: str, _: object) -> str:
        asked.append(name)
        return ""

    monkeypatch.setattr(TYPOS, "nearest", like)
    monkeypatch.setattr(TYPOS, "is_one_slip", like)
    many = {f"priorities{number}": "x" for number in range(5_000)}
    warnings(tmp_path, QUEUE | {"metadata": {"name": "b", "annotations": many}, "spec": many})
    assert len(many.keys() & set(asked)) == 200


def test_equal_slips_are_named_once(tmp_path: Path) -> None:
    pods = [POD | pod({"name": f"p{i}", "annotations": {"gpu-fracton": "1"}}) for i in range(3)]
    assert warnings(tmp_path, *pods) == [
        "Pod p0: annotation 'gpu-fracton' is not read. Did you mean gpu-fraction? The same in 2 other objects"
    ]


@pytest.mark.parametrize("odd", [None, 7, "x", [], {"spec": []}, {"metadata": 3, "spec": {"containers": 4}}])
def test_odd_objects_are_no_error(tmp_path: Path, odd: object) -> None:
    documents = [kind | {"spec": odd, "metadata": {"name": "o", "labels": odd}} for kind in (QUEUE, POD, JOB)]
    assert warnings(tmp_path, *documents) == []


@pytest.mark.parametrize(
    ("written", "is_slip"),
    [
        ("gpu-fracton", True),
        ("gpu-fractionn", True),
        ("pu-fraction", True),
        ("gpu-fractoin", True),
        ("gpu-fractoon", True),
        ("gpu-fraction", False),
        ("gpu-fractXXn", False),
        ("gpu-fracti", False),
        ("", False),
    ],
)
def test_one_slip_is_told_from_two(written: str, is_slip: bool) -> None:
    assert is_one_slip(written, "gpu-fraction") is is_slip


def test_no_known_key_is_a_slip_of_another() -> None:
    assert not [(one, other) for one in KEYS for other in KEYS if is_one_slip(one, other)]
