"""Annotations of ours, each alone: what would not be used is warned of, a rule that would protect nobody is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from kai_solver.controller.admission.podgroups import pod_group_verdict
from kai_solver.controller.admission.pods import PodPolicy, pod_verdict
from kai_solver.controller.admission.queues import queue_verdict
from kai_solver.controller.admission.topologies import topology_verdict
from kai_solver.controller.admission.verdict import FINE, Verdict
from kai_solver.kubeobjects import KubeSettings
from kai_solver.kubeobjects.raw import Raw
from tests.controller.admission.conftest import make_queue

STRATEGY = "kai-solver/node-strategy 'pack' is not honoured. Write binpack or spread"
COUNT = "kai-solver/min-nodes '0' is not honoured. Write a whole number from 1 to 1000000"
SPARES = "kai-solver/may-use-spares 'yes' is not honoured. Write true or false"
ROW = "annotation kai-solver/gpu-row: 'tight' is ignored: it is none of "
NO_ROW = "annotation kai-solver/gpu-row is ignored: only whole GPUs of a device plugin can be in a row"
UNKNOWN = "kai-solver/gpu-rows is not known, and says nothing. Did you mean 'kai-solver/gpu-row'?"
STRANGE = "kai-solver/zzz is not known, and says nothing. Correct or remove it"
ELSEWHERE = "kai-solver/spare-nodes says nothing on a {kind}. Write it on a Topology"
RANK = "kai-solver/rank is a label of pods, and says nothing as an annotation"


def of_pod(cluster: Any, pod: Any) -> Verdict:
    return pod_verdict(Raw(pod), PodPolicy(KubeSettings(), "kai-solver"), cluster.lookup)


def of_group(cluster: Any, annotations: dict[str, str]) -> Verdict:
    group = {"metadata": {"name": "g", "annotations": annotations}, "spec": {"minMember": 1}}
    return pod_group_verdict(Raw(group), cluster.lookup, is_new=True)


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"kai-solver/node-strategy": "spread", "kai-solver/max-pods-per-node": "1", "kai-solver/workload": "chat"},
        {"kai-solver/may-use-spares": "true"},
        {"kai-solver/gpu-row": "aligned-required"},
        {"kai-solver.example.org/mine": "x", "example.org/kai-solver/x": "x"},
    ],
)
def test_what_the_scheduler_uses_and_what_is_not_ours_is_fine(
    cluster: Any, make_pod: Callable[..., Any], annotations: dict[str, str]
) -> None:
    assert of_pod(cluster, make_pod(annotations, limits={"nvidia.com/gpu": "2"})) == FINE
    assert of_group(cluster, annotations) == FINE


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({"kai-solver/node-strategy": "pack"}, STRATEGY),
        ({"kai-solver/min-nodes": "0"}, COUNT),
        ({"kai-solver/may-use-spares": "yes"}, SPARES),
        ({"kai-solver/gpu-rows": "x"}, UNKNOWN),
        ({"kai-solver/zzz": "x"}, STRANGE),
        ({"kai-solver/rank": "1"}, RANK),
        ({"kai-solver/spare-nodes": "rack=1"}, ELSEWHERE),
        ({"kai-solver/devices-": "0"}, "kai-solver/devices- is not known, and says nothing. "),
    ],
)
def test_what_it_would_not_use_is_warned_of_on_pods_and_pod_groups(
    cluster: Any, make_pod: Callable[..., Any], annotations: dict[str, str], text: str
) -> None:
    for kind, verdict in (
        ("Pod", of_pod(cluster, make_pod(annotations))),
        ("PodGroup", of_group(cluster, annotations)),
    ):
        (warning,) = verdict.warnings
        assert warning.startswith(text.format(kind=kind))
        assert verdict.refusals == ()


@pytest.mark.parametrize(
    ("row", "limits", "text"),
    [
        ("tight", {"nvidia.com/gpu": "2"}, ROW),
        ("aligned-required", {"nvidia.com/mig-1g.5gb": "1"}, NO_ROW),
        ("aligned-required", {}, NO_ROW),
    ],
)
def test_a_row_that_cannot_be_is_warned_of(
    cluster: Any, make_pod: Callable[..., Any], row: str, limits: dict[str, str], text: str
) -> None:
    verdict = of_pod(cluster, make_pod({"kai-solver/gpu-row": row}, limits=limits))
    (warning,) = verdict.warnings
    assert warning.startswith(text)
    assert verdict.refusals == ()


def test_pods_of_other_schedulers_are_not_judged(cluster: Any, make_pod: Callable[..., Any]) -> None:
    assert of_pod(cluster, make_pod({"kai-solver/gpu-rows": "x"}, schedulerName="default-scheduler")) == FINE


def test_a_queue_is_warned_of_what_it_does_not_heed(cluster: Any) -> None:
    queue = make_queue("mine", "root")
    queue["metadata"] = queue["metadata"] | {
        "annotations": {"kai-solver/gpu-row": "x", "kai-solver/max-gpu-per-node": "1"}
    }
    assert queue_verdict(Raw(queue), cluster.lookup).warnings == (
        "kai-solver/gpu-row says nothing on a Queue. Write it on a Pod, or in the template of one",
        "kai-solver/max-gpu-per-node is not known, and says nothing. Did you mean 'kai-solver/max-gpus-per-node'?",
    )


def topology(spec: dict[str, Any] | None = None, **annotations: str) -> Raw:
    stated = {f"kai-solver/{key.replace('_', '-')}": value for key, value in annotations.items()}
    levels = [{"nodeLabel": "block"}, {"nodeLabel": "rack", "alias": "r"}]
    return Raw({"metadata": {"name": "t", "annotations": stated}, "spec": {"levels": levels, **(spec or {})}})


@pytest.mark.parametrize(
    "stated",
    [
        topology(one_tenant_at="r", tenant="label:example.com/team", spare_nodes="rack=2"),
        topology({"oneTenant": {"level": "r"}, "spares": {"level": "rack", "nodes": 2}}),
        topology({"spares": {"level": "rack", "nodes": 2}}, spare_nodes="r=2"),
    ],
)
def test_rules_for_domains_that_can_be_are_fine(stated: Raw) -> None:
    assert topology_verdict(stated) == FINE


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        (
            topology(one_tenant_at="shelf"),
            "kai-solver/one-tenant-at 'shelf' is not honoured: no level of it. Write one of",
        ),
        (
            topology(one_tenant_at="r", tenant="team"),
            "kai-solver/tenant 'team' is not honoured. Write queue, namespace",
        ),
        (
            topology(spare_nodes="rack"),
            "kai-solver/spare-nodes 'rack' is not honoured. Write a level and how many nodes",
        ),
        (
            topology(spare_nodes="rack=99999999"),
            "kai-solver/spare-nodes 'rack=99999999' is not honoured. Write a level",
        ),
        (
            topology(spare_nodes="shelf=1"),
            "kai-solver/spare-nodes 'shelf' is not honoured: no level of it. Write one of",
        ),
        (topology({"oneTenant": {"level": "shelf"}}), "spec.oneTenant.level 'shelf' is not honoured: no level of it"),
        (topology({"spares": {"nodes": 1}}), "spec.spares.level: is missing"),
        (topology({"spares": {"level": "r", "nodes": 0}}), "spec.spares.nodes: keeps no node. Write 1 or more"),
    ],
)
def test_a_rule_that_would_protect_nothing_is_refused(stated: Raw, text: str) -> None:
    (refusal,) = topology_verdict(stated).refusals
    assert refusal.startswith(text)


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        (
            topology(tenant="queue"),
            "kai-solver/tenant says nothing without kai-solver/one-tenant-at. Write there the level",
        ),
        (
            topology({"spares": {"level": "r"}}, spare_nodes="r=2"),
            "spec.spares and the annotation kai-solver/spare-nodes",
        ),
        (topology(one_tenant="r"), "kai-solver/one-tenant is not known, and says nothing. Did you mean"),
        (
            topology(min_nodes="2"),
            "kai-solver/min-nodes says nothing on a Topology. Write it on a Pod, or in the template",
        ),
    ],
)
def test_what_says_nothing_on_a_topology_is_warned_of(stated: Raw, text: str) -> None:
    verdict = topology_verdict(stated)
    assert [warning.startswith(text) for warning in verdict.warnings] == [True]
    assert verdict.refusals == ()
