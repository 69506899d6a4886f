"""Rules on pods, each alone: KAI's words where it refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from kai_solver.cluster.resources import QUEUES
from kai_solver.controller.admission.device_access import device_access, hide_from_new_ephemeral
from kai_solver.controller.admission.filling import Wishes, filled
from kai_solver.controller.admission.pods import PodPolicy, pod_verdict
from kai_solver.controller.admission.verdict import Verdict
from kai_solver.domain import Policy
from kai_solver.kubeobjects import KubeSettings
from kai_solver.kubeobjects.raw import Raw

GPU = "nvidia.com/gpu"
QUEUE = "kai.scheduler/queue"
BOTH_KINDS = "cannot have both GPU fraction request and whole GPU resource request/limit"
FRACTION = "gpu-fraction annotation value must be a positive number smaller than 1.0"
MEMORY = "gpu-memory annotation value must be a positive integer greater than 0"
COUNT = "fraction count annotation value must be a positive integer greater than 0"
ALONE = "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"


def judged(cluster: Any, pod: Any, **policy: Any) -> Verdict:
    return pod_verdict(Raw(pod), PodPolicy(KubeSettings(), "kai-solver", **policy), cluster.lookup)


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"gpu-fraction": "0.5"},
        {"gpu-memory": "2000"},
        {"gpu-fraction": "0.3", "gpu-fraction-num-devices": "2"},
        {"gpu-memory": "1000", "gpu-fraction-num-devices": "2"},
        {"gpu-fraction": "0.5", "mps": "true"},
        {"mps": "false"},
        {"gpu-fraction": "0.5", "gpu-fraction-container-name": "main"},
    ],
)
def test_what_can_be_understood_is_admitted(
    cluster: Any, make_pod: Callable[..., Any], annotations: dict[str, str]
) -> None:
    assert judged(cluster, make_pod(annotations)).refusals == ()


def test_gpu_memory_in_bytes_is_warned_of_and_admitted(cluster: Any, make_pod: Callable[..., Any]) -> None:
    verdict = judged(cluster, make_pod({"gpu-memory": "8589934592"}))
    (warning,) = (text for text in verdict.warnings if "gpu-memory" in text)
    assert verdict.refusals == ()
    assert warning.endswith('no GPU has 8589934592 MiB. If these are bytes, write "8192"')


@pytest.mark.parametrize(
    ("annotations", "limits", "message"),
    [
        ({"mps": "true"}, {}, "MPS is only supported with GPU fraction request"),
        ({"mps": "true"}, {GPU: "1"}, "MPS is only supported with GPU fraction request"),
        ({"gpu-fraction": "0.5"}, {GPU: "1"}, BOTH_KINDS),
        ({"gpu-fraction": "0.5", "gpu-memory": "1"}, {}, "cannot request both GPU and GPU memory"),
        ({"gpu-memory": "1"}, {GPU: "1"}, "cannot request both GPU and GPU memory"),
        ({"gpu-memory": "-1"}, {}, MEMORY),
        ({"gpu-memory": "0"}, {}, MEMORY),
        ({"gpu-memory": "2Gi"}, {}, MEMORY),
        ({"gpu-fraction": "-1"}, {}, FRACTION),
        ({"gpu-fraction": "0"}, {}, FRACTION),
        ({"gpu-fraction": "1"}, {}, FRACTION),
        ({"gpu-fraction": "1.2"}, {}, FRACTION),
        ({"gpu-fraction": "half"}, {}, FRACTION),
        ({"gpu-fraction": "nan"}, {}, FRACTION),
        ({"gpu-fraction-num-devices": "1"}, {}, ALONE),
        ({"gpu-fraction-num-devices": "1.2", "gpu-fraction": "0.2"}, {}, COUNT),
        ({"gpu-fraction-num-devices": "0", "gpu-memory": "10"}, {}, COUNT),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-container-name": "other"},
            {},
            "container with name other not found for fraction request",
        ),
    ],
)
def test_what_kai_refuses_is_refused_in_its_words(
    cluster: Any,
    make_pod: Callable[..., Any],
    annotations: dict[str, str],
    limits: dict[str, str],
    message: str,
) -> None:
    (refusal,) = judged(cluster, make_pod(annotations, limits=limits)).refusals
    assert refusal.startswith(message)


def test_whole_gpus_of_any_container_stand_in_the_way_of_a_part(cluster: Any, make_pod: Callable[..., Any]) -> None:
    pod = make_pod({"gpu-fraction": "0.5"})
    pod["spec"]["initContainers"] = [{"name": "init", "resources": {"limits": {GPU: "1"}}}]
    assert judged(cluster, pod).refusals[0].startswith(BOTH_KINDS)


def test_parts_may_be_switched_off(cluster: Any, make_pod: Callable[..., Any]) -> None:
    (refusal,) = judged(cluster, make_pod({"gpu-fraction": "0.5"}), gpu_sharing=False).refusals
    assert refusal.startswith(
        "attempting to create a pod team/p with gpu sharing request, while GPU sharing is disabled"
    )
    assert judged(cluster, make_pod(limits={GPU: "1"}), gpu_sharing=False) == Verdict()


def test_pods_of_other_schedulers_are_not_judged(cluster: Any, make_pod: Callable[..., Any]) -> None:
    pod = make_pod({"gpu-fraction": "7"}, {QUEUE: "nowhere"}, namespace="kai-solver", schedulerName="default-scheduler")
    assert judged(cluster, pod) == Verdict()


def test_no_workloads_beside_the_scheduler(cluster: Any, make_pod: Callable[..., Any]) -> None:
    (refusal,) = judged(cluster, make_pod(namespace="kai-solver")).refusals
    assert refusal.startswith("namespace kai-solver is the scheduler's own")


def test_a_part_without_variables_is_warned_of(cluster: Any, make_pod: Callable[..., Any]) -> None:
    (warning,) = judged(cluster, make_pod({"gpu-fraction": "0.5"})).warnings
    assert "it has no NVIDIA_VISIBLE_DEVICES" in warning
    told = make_pod({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "p-abc-shared-gpu"})
    assert judged(cluster, told) == Verdict()
    own = make_pod({"gpu-fraction": "0.5"})
    own["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}]
    assert judged(cluster, own) == Verdict()


def test_a_queue_that_exists_is_fine(cluster: Any, make_pod: Callable[..., Any]) -> None:
    assert judged(cluster, make_pod(labels={QUEUE: "research"})) == Verdict()


def test_a_typo_is_refused_with_the_nearest_name(cluster: Any, make_pod: Callable[..., Any]) -> None:
    verdict = judged(cluster, make_pod(labels={QUEUE: "reserch"}))
    assert verdict.refusals == ("Queue 'reserch' does not exist. Did you mean 'research'?",)
    verdict = judged(cluster, make_pod(labels={QUEUE: "xyz"}))
    assert verdict.refusals == ("Queue 'xyz' does not exist. There are: research, root, training",)


def test_a_typo_may_be_a_warning_only(cluster: Any, make_pod: Callable[..., Any]) -> None:
    verdict = judged(cluster, make_pod(labels={QUEUE: "reserch"}), refuses_unknown_queues=False)
    assert verdict == Verdict(warnings=("Queue 'reserch' does not exist. Did you mean 'research'?",))


def test_a_queue_that_was_just_made_is_found(cluster: Any, make_pod: Callable[..., Any]) -> None:
    cluster.create(QUEUES, "", {"metadata": {"name": "new"}, "spec": {}})
    assert judged(cluster, make_pod(labels={QUEUE: "new"})) == Verdict()


def test_nothing_is_refused_while_the_server_does_not_answer(cluster: Any, make_pod: Callable[..., Any]) -> None:
    cluster.broken = True
    assert judged(cluster, make_pod(labels={QUEUE: "reserch"})) == Verdict()
    cluster.broken = False
    cluster.hang()
    assert judged(cluster, make_pod(labels={QUEUE: "reserch"})) == Verdict()


def test_nothing_is_refused_before_queues_are_known(cluster: Any, make_pod: Callable[..., Any]) -> None:
    cluster.store.replace(QUEUES, ())
    assert judged(cluster, make_pod(labels={QUEUE: "default-queue"})) == Verdict()


def test_the_podgroup_has_the_last_word_on_the_queue(cluster: Any, make_pod: Callable[..., Any]) -> None:
    assert judged(cluster, make_pod({"pod-group-name": "g"}, {QUEUE: "reserch"})) == Verdict()


def test_a_queue_with_children_is_warned_of(cluster: Any, make_pod: Callable[..., Any]) -> None:
    cluster.patch(QUEUES, "", "root", {"status": {"childQueues": ["research"]}}, subresource="status")
    cluster.listed()
    (warning,) = judged(cluster, make_pod(labels={QUEUE: "root"})).warnings
    assert "has child queues" in warning


# -- device access -----------------------------------------------------------------------------------------------------


def with_devices(pod: Any, value: str, container: int = 0) -> Any:
    pod["spec"]["containers"][container]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]
    return pod


@pytest.mark.parametrize("value", ["all", "0", "0,1", "GPU-1234", ""])
def test_a_pod_that_names_devices_is_refused_where_that_is_blocked(make_pod: Callable[..., Any], value: str) -> None:
    (text,) = device_access(Raw(with_devices(make_pod(), value))).refusals
    assert text.startswith("NVIDIA_VISIBLE_DEVICES of container main is")
    assert "none or void" in text


@pytest.mark.parametrize("value", ["none", "void"])
def test_values_that_name_no_device_are_admitted(make_pod: Callable[..., Any], value: str) -> None:
    assert device_access(Raw(with_devices(make_pod(), value))).refusals == ()


def test_the_binders_own_variable_is_admitted_and_one_like_it_is_not(make_pod: Callable[..., Any]) -> None:
    shared = {"gpu-fraction": "0.5"}
    pod = filled(make_pod(shared), Wishes("kai-scheduler", QUEUE), "token")
    assert device_access(Raw(pod)).refusals == ()
    variables = pod["spec"]["containers"][0]["env"]
    variables[0]["valueFrom"]["configMapKeyRef"]["name"] = "mine"
    assert len(device_access(Raw(pod)).refusals) == 1


def test_containers_without_a_gpu_are_told_so(make_pod: Callable[..., Any]) -> None:
    pod = make_pod()
    limits: tuple[dict[str, str], ...] = (
        {GPU: "1"},
        {"nvidia.com/mig-1g.5gb": "1"},
        {"nvidia.com/gpu.shared": "1"},
        {},
    )
    pod["spec"]["containers"] = [{"name": f"c{n}", "resources": {"limits": found}} for n, found in enumerate(limits)]
    pod["spec"]["containers"].append({"name": "claims", "resources": {"claims": [{"name": "gpu"}]}})
    pod["spec"]["containers"].append({"name": "says", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]})
    pod["spec"]["containers"].append({"name": "zero", "resources": {"limits": {GPU: "0"}}})
    pod["spec"]["initContainers"] = [{"name": "first", "envFrom": [{"configMapRef": {"name": "mine"}}]}]
    after = filled(pod, Wishes("kai-scheduler", QUEUE, adopts=False), "token", Policy())
    void = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    stated = {one["name"]: one.get("env") for kind in ("containers", "initContainers") for one in after["spec"][kind]}
    nothing = dict.fromkeys(("c0", "c1", "c2", "claims"))
    assert stated == {**nothing, "c3": void, "first": void, "zero": void, "says": pod["spec"]["containers"][-2]["env"]}
    assert filled(after, Wishes("kai-scheduler", QUEUE), "token", Policy()) == after


def test_the_container_with_a_part_of_a_gpu_keeps_its_variable(make_pod: Callable[..., Any]) -> None:
    pod = make_pod({"gpu-fraction": "0.5", "gpu-fraction-container-name": "second"})
    pod["spec"]["containers"].append({"name": "second"})
    after = filled(pod, Wishes("kai-scheduler", QUEUE, adopts=False), "token", Policy())
    first, second = after["spec"]["containers"]
    assert first["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert [one["name"] for one in second["env"]] == ["NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION"]
    assert all("valueFrom" in one for one in second["env"])
    assert device_access(Raw(after)).refusals == ()


def test_ephemeral_containers_name_no_devices(make_pod: Callable[..., Any]) -> None:
    debugs = {"name": "debug", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    (text,) = device_access(Raw(make_pod(ephemeralContainers=[debugs]))).refusals
    assert text.startswith("NVIDIA_VISIBLE_DEVICES of container debug is all")


def test_new_ephemeral_containers_are_told_that_they_have_no_gpu(make_pod: Callable[..., Any]) -> None:
    old, new, says = {"name": "old"}, {"name": "new"}, {"name": "says", "env": [{"name": "NVIDIA_VISIBLE_DEVICES"}]}
    before, pod = make_pod(ephemeralContainers=[old]), make_pod(ephemeralContainers=[old, new, says])
    void = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    after = hide_from_new_ephemeral(pod, before)
    assert after["spec"] == pod["spec"] | {"ephemeralContainers": [old, new | {"env": void}, says]}
    assert hide_from_new_ephemeral(before, before) == before
