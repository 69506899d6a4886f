"""Pods that state the same are read once: what is found is what reading each by itself finds."""

import random
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.kubeobjects import KubeSettings, RawObjects, names, recall, snapshot_from_objects
from kai_solver.kubeobjects.twins import stated_by
from kai_solver.links import ROW_ANNOTATION

NOW_S = 1_800_000_000.0
VARIATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"metadata": {"labels": {"app": "a", "index": "1"}}},
    {"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": "3"}}},
    {"metadata": {"annotations": {names.GPU_FRACTION: "0.5"}}},
    {"metadata": {"annotations": {names.OWN_BLOCKED: '["no"]'}}},
    {"metadata": {"annotations": {ROW_ANNOTATION: "required"}}},
    {"metadata": {"annotations": {ROW_ANNOTATION: "nonsense"}}},
    {"metadata": {"annotations": {names.SHARED_GPU_MAP: "missing"}}},
    {"metadata": {"annotations": {"kai-solver/no-such": "x"}}},
    {"metadata": {"namespace": "other"}},
    {"metadata": {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "1", "controller": True}]}},
    {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    {"metadata": {"labels": {"runai-gpu-group": "g1"}}},
    {"spec": {"nodeName": "n0"}, "status": {"phase": "Running"}},
    {"spec": {"nodeName": "n1"}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}},
    {"spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded"}},
    {"spec": {"hostname": "job-7"}},
    {"spec": {"nodeSelector": {"zone": "a"}}},
    {"spec": {"tolerations": [{"operator": "Exists"}]}},
    {"spec": {"schedulingGates": [{"name": "wait"}]}},
    {"spec": {"volumes": [{"name": "kube-api-access-abcde", "projected": {"sources": []}}]}},
    {"spec": {"volumes": [{"name": "v", "configMap": {"name": "missing"}}]}},
    {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]}},
    {"spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "missing"}]}},
    {"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["index"]}]}}}},
    {"spec": {"containers": []}},
    {"spec": {"containers": "none"}},
)  # fmt: skip
CONTAINERS: tuple[dict[str, Any], ...] = (
    {},
    {"env": [{"name": "RANK", "value": "1"}]},
    {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "missing"}}}]},
    {"ports": [{"hostPort": 80}]},
    {"volumeMounts": [{"name": "v"}]},
    {"volumeMounts": [{"name": "kube-api-access-abcde"}]},
    {"resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "2"}}},
    {"resources": {"requests": {"cpu": "two"}}},
)


def merged(value: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    found = dict(value)
    for key, inner in more.items():
        found[key] = (
            merged(found[key], inner) if isinstance(inner, dict) and isinstance(found.get(key), dict) else inner
        )
    return found


def a_pod(name: str, draw: random.Random) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}
    pod = {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulerName": "kai-scheduler", "containers": [merged(container, draw.choice(CONTAINERS))]},
        "status": {"phase": "Pending"},
    }
    for variation in draw.sample(VARIATIONS, draw.choice((1, 1, 2))):
        pod = merged(pod, variation)
    return pod


def nodes() -> tuple[dict[str, Any], ...]:
    amounts = {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": "8", "pods": "110"}
    return tuple({"metadata": {"name": f"n{i}"}, "status": {"allocatable": amounts}} for i in range(2))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_twins_are_read_as_each_by_itself(monkeypatch: pytest.MonkeyPatch, seed: int, strict: bool) -> None:
    draw = random.Random(seed)
    objects = RawObjects(nodes=nodes(), pods=tuple(a_pod(f"p{i}", draw) for i in range(150)))
    settings = KubeSettings()
    settings = replace(settings, trust=replace(settings.trust, strict=strict))
    together = snapshot_from_objects(objects, now_s=NOW_S, settings=settings)
    monkeypatch.setattr(recall, "stated_by", lambda _: None)
    assert together == snapshot_from_objects(objects, now_s=NOW_S, settings=settings)


def test_what_tells_replicas_apart_makes_no_other_text() -> None:
    draw = random.Random(1)
    plain = merged(a_pod("a", draw), {"spec": {"nodeName": "n0"}})
    other = merged(plain, {"metadata": {"name": "b", "uid": "b", "labels": {"index": "2"}}, "spec": {"nodeName": "n1"}})
    assert stated_by(plain) == stated_by(other) is not None
    assert stated_by(plain) != stated_by(merged(plain, {"spec": {"nodeSelector": {"zone": "b"}}}))


@pytest.mark.parametrize("value", [None, 3, [], {}, {"metadata": None}, {"metadata": {}, "spec": {"containers": [3]}}])
def test_what_is_malformed_states_nothing(value: object) -> None:
    assert stated_by(value) is None
