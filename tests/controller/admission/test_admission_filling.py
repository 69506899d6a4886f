"""What is filled into pods: only what they leave open, and once."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.controller.admission.filling import Wishes, filled, json_patch, map_names
from kai_solver.errors import InputError

WISHES = Wishes("kai-scheduler", "kai.scheduler/queue", "training", "nvidia")
SHARED = {"gpu-fraction": "0.5"}


def applied(value: Any, patch: Any) -> Any:
    """RFC 6902, as far as it is used here."""
    value = copy.deepcopy(value)
    for step in patch:
        if not step["path"]:
            value = copy.deepcopy(step["value"])
            continue
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        here = value
        for part in way:
            here = here[int(part)] if isinstance(here, list) else here[part]
        if step["op"] == "remove":
            del here[last]
        elif isinstance(here, list):
            here.append(step["value"]) if last == "-" else here.__setitem__(int(last), step["value"])
        else:
            assert (last in here) == (step["op"] == "replace")
            here[last] = step["value"]
    return value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("a/~", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(JSON, JSON)
def test_a_patch_makes_the_one_of_the_other(before: Any, after: Any) -> None:
    assert applied(before, json_patch(before, after)) == after


def test_nothing_to_do_is_no_patch() -> None:
    assert list(json_patch({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]})) == []


def test_scheduler_and_queue(make_pod: Callable[..., Any]) -> None:
    pod = make_pod(schedulerName="default-scheduler")
    after = filled(pod, WISHES, "t")
    assert after["spec"]["schedulerName"] == "kai-scheduler"
    assert after["metadata"]["labels"] == {"kai.scheduler/queue": "training"}
    assert "runtimeClassName" not in after["spec"]
    assert filled(after, WISHES, "t") == after
    assert pod["spec"]["schedulerName"] == "default-scheduler", "the original stays as it was"


@pytest.mark.parametrize("labels", [{"kai.scheduler/queue": "research"}, {"project": "research"}])
def test_a_queue_that_is_named_stays(make_pod: Callable[..., Any], labels: dict[str, str]) -> None:
    assert filled(make_pod(labels=labels), WISHES, "t")["metadata"]["labels"] == labels


@pytest.mark.parametrize(
    "changes",
    [
        {"schedulerName": "another"},
        {"nodeName": "n1"},
        {"namespace": "kai-resource-reservation"},
        {"namespace": "kai-scale-adjust"},
    ],
)
def test_what_is_not_ours_to_place_is_left_alone(make_pod: Callable[..., Any], changes: dict[str, str]) -> None:
    pod = make_pod(SHARED, **changes)
    assert filled(pod, WISHES, "t") is pod


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_pods_that_belong_to_a_node_are_left_alone(make_pod: Callable[..., Any], kind: str) -> None:
    pod = make_pod()
    pod["metadata"]["ownerReferences"] = [{"kind": kind, "name": "x"}]
    assert filled(pod, WISHES, "t") is pod


def test_a_part_of_a_gpu_gets_its_variables_as_kais_binder_fills_them(make_pod: Callable[..., Any]) -> None:
    after = filled(make_pod(SHARED), WISHES, "token")
    prefix = after["metadata"]["annotations"]["runai/shared-gpu-configmap"]
    assert re.fullmatch(r"p-[0-9a-f]{7}-shared-gpu", prefix)
    container = after["spec"]["containers"][0]
    devices, more = f"{prefix}-0", f"{prefix}-0-evar"
    assert container["env"] == [
        {"name": name, "valueFrom": {"configMapKeyRef": {"name": devices, "key": name}}}
        for name in ("NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION")
    ]
    assert container["envFrom"] == [{"configMapRef": {"name": more, "optional": False}}]
    assert after["spec"]["volumes"] == [{"name": f"{devices}-vol", "configMap": {"name": devices}}]
    assert after["spec"]["runtimeClassName"] == "nvidia"
    assert filled(after, WISHES, "another") == after, "a second look changes nothing"
    assert filled(make_pod(SHARED), WISHES, "another") != after, "two pods do not share ConfigMaps"


def test_what_the_container_has_stays_in_its_place(make_pod: Callable[..., Any]) -> None:
    pod = make_pod(SHARED, runtimeClassName="own", volumes=[{"name": "data", "emptyDir": {}}])
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "MINE", "value": "1"}]
    pod["spec"]["containers"][0] |= {"env": env, "envFrom": [{"secretRef": {"name": "s"}}]}
    after = filled(pod, WISHES, "t")
    container = after["spec"]["containers"][0]
    assert [found["name"] for found in container["env"]][:2] == ["NVIDIA_VISIBLE_DEVICES", "MINE"]
    assert "value" not in container["env"][0]
    assert container["envFrom"][0] == {"secretRef": {"name": "s"}}
    assert after["spec"]["volumes"][0] == {"name": "data", "emptyDir": {}}
    assert after["spec"]["runtimeClassName"] == "own"
    assert applied(pod, json_patch(pod, after)) == after


def test_what_the_server_fills_in_is_no_reason_to_do_it_again(make_pod: Callable[..., Any]) -> None:
    after = filled(make_pod(SHARED), WISHES, "t")
    after["spec"]["volumes"][0]["configMap"]["defaultMode"] = 420
    assert filled(after, WISHES, "t") == after


def test_the_container_that_is_named_gets_it(make_pod: Callable[..., Any]) -> None:
    pod = make_pod(SHARED | {"gpu-fraction-container-name": "warm-up"})
    pod["spec"]["initContainers"] = [{"name": "first"}, {"name": "warm-up"}]
    after = filled(pod, WISHES, "t")
    prefix = after["metadata"]["annotations"]["runai/shared-gpu-configmap"]
    assert map_names(prefix, "initContainers", 1) == (f"{prefix}-i1", f"{prefix}-i1-evar")
    assert after["spec"]["initContainers"][1]["envFrom"][0]["configMapRef"]["name"] == f"{prefix}-i1-evar"
    assert "env" not in after["spec"]["containers"][0]
    pod["metadata"]["annotations"]["gpu-fraction-container-name"] = "nobody"
    with pytest.raises(InputError, match="nobody"):
        filled(pod, WISHES, "t")


def test_names_are_as_long_as_kubernetes_allows(make_pod: Callable[..., Any]) -> None:
    pod = make_pod(SHARED)
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "a.very." + "long" * 20}]
    spec = filled(pod, WISHES, "t")["spec"]
    volume = spec["volumes"][0]["name"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", volume)
    assert len(volume) <= 63
    assert len(spec["containers"][0]["envFrom"][0]["configMapRef"]["name"]) <= 63
    unnamed = make_pod(SHARED)
    del unnamed["metadata"]["name"]
    unnamed["metadata"]["generateName"] = "run-"
    prefix = filled(unnamed, WISHES, "t")["metadata"]["annotations"]["runai/shared-gpu-configmap"]
    assert prefix.startswith("run-")
    assert "--" not in prefix


@pytest.mark.parametrize(
    ("metadata", "begins"),
    [
        ({"name": "a" * 32 + ".b"}, "a" * 32 + "-"),
        ({"name": "a.b"}, "a-b-"),
        ({"generateName": "train-v1."}, "train-v1-"),
        ({"ownerReferences": [{"kind": "X", "name": "My_Owner:1"}]}, "my-owner-1-"),
        ({"ownerReferences": [{"kind": "X", "name": "_:\u00e9"}]}, "pod-"),
        ({}, "pod-"),
    ],
)
def test_names_are_valid_whatever_the_owner_and_the_pod_are_called(
    make_pod: Callable[..., Any], metadata: dict[str, Any], begins: str
) -> None:
    pod = make_pod(SHARED)
    del pod["metadata"]["name"]
    pod["metadata"] |= metadata
    after = filled(pod, WISHES, "t")
    prefix = after["metadata"]["annotations"]["runai/shared-gpu-configmap"]
    assert re.fullmatch(f"{begins}[0-9a-f]{{7}}-shared-gpu", prefix)
    for name in map_names(prefix, "initContainers", 0):
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
        assert len(name) <= 63


def test_nothing_is_wished_for_nothing(make_pod: Callable[..., Any]) -> None:
    after = filled(make_pod(SHARED), Wishes("kai-scheduler", "kai.scheduler/queue"), "t")
    assert after["metadata"]["labels"] == {}
    assert "runtimeClassName" not in after["spec"]
