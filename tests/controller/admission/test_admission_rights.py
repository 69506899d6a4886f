"""Who may write what, by the user that the API server states."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from kai_solver.cluster.api import Object
from kai_solver.controller.admission.review import Asked, read_review
from kai_solver.controller.admission.rights import ANNOTATIONS, Rights
from kai_solver.controller.admission.webhook import Judge
from kai_solver.controller.settings import ControllerSettings
from kai_solver.controller.wiring import kube_settings
from kai_solver.kubeobjects import KubeSettings, objects_from_documents, snapshot_from_objects

QUEUE = "kai.scheduler/queue"
RULES: dict[str, Any] = {
    "queues": [
        {"queues": ["research-*"], "namespaces": ["research", "lab-*"]},
        {"queues": ["research-*", "sales"], "groups": ["leads"], "users": ["root"]},
    ],
    "spares": [{"namespaces": ["operations"]}],
}


def rights(*, guard: bool = False, **rules: Any) -> Rights:
    settings = ControllerSettings.model_validate({"access": rules})
    kube = KubeSettings(access=settings.access.access(), queue_label_key=QUEUE)
    return Rights(kube, guard, frozenset({"system:serviceaccounts:kai-solver"}))


def pod(queue: str = "", **annotations: str) -> Object:
    return {"metadata": {"name": "p", "labels": {QUEUE: queue} if queue else {}, "annotations": annotations}}


def asked(after: Object, *groups: str, namespace: str = "n", user: str = "jo", before: Object | None = None) -> Asked:
    return Asked("u", "pods", "UPDATE" if before else "CREATE", namespace, after, before or {}, user, frozenset(groups))


@pytest.mark.parametrize("namespace", ["n", "research"])
def test_without_rules_everybody_may_use_everything(namespace: str) -> None:
    wanted = pod("research-a", **{"kai-solver/may-use-spares": "true", "kai-solver/gpus": "0"})
    assert rights().verdict(asked(wanted, namespace=namespace), "Pod").refusals == ()


@pytest.mark.parametrize(
    ("queue", "namespace", "user", "group", "may"),
    [
        ("research-a", "research", "jo", "", True),
        ("research-a", "lab-1", "jo", "", True),
        ("research-a", "n", "jo", "leads", True),
        ("research-a", "n", "root", "", True),
        ("research-a", "n", "jo", "", False),
        ("research-a", "research-2", "jo", "", False),
        ("sales", "research", "jo", "", False),
        ("open", "n", "jo", "", True),
        ("", "n", "jo", "", True),
    ],
)
def test_queues_are_used_by_those_whom_a_rule_names(
    queue: str, namespace: str, user: str, group: str, may: bool
) -> None:
    found = rights(**RULES)
    groups = [group] if group else []
    assert bool(found.verdict(asked(pod(queue), *groups, namespace=namespace, user=user), "Pod").refusals) != may
    group_of_pods = {"metadata": {"name": "g"}, "spec": {"queue": queue}}
    verdict = found.verdict(asked(group_of_pods, *groups, namespace=namespace, user=user), "PodGroup")
    assert bool(verdict.refusals) != may


def test_a_change_is_judged_by_what_it_changes() -> None:
    found, theirs = rights(**RULES), pod("research-a")
    assert found.verdict(asked(pod("research-a", note="x"), before=theirs), "Pod").refusals == ()
    (refusal,) = found.verdict(asked(pod("research-b"), before=theirs), "Pod").refusals
    assert "neither namespace n nor jo may use queue research-b" in refusal


POOL = "kai.scheduler/node-pool"


@pytest.mark.parametrize(
    ("labels", "annotations", "queue"),
    [
        ({"project": "research"}, {}, "research"),
        ({}, {"project": "research"}, "research"),
        ({"project": "research", POOL: "a"}, {}, "research-a"),
        ({"project": "research"}, {POOL: "a"}, "research-a"),
        ({QUEUE: "open", "project": "research", POOL: "a"}, {}, "open"),
        ({QUEUE: "research-b", "project": "open"}, {}, "research-b"),
    ],
)
def test_the_queue_that_is_judged_is_the_one_in_which_the_pod_runs(
    labels: dict[str, str], annotations: dict[str, str], queue: str
) -> None:
    metadata = {"namespace": "n", "name": "p", "labels": labels, "annotations": annotations}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}]}
    value: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    objects = objects_from_documents([("a.yaml", value)])
    pool = labels.get(POOL) or annotations.get(POOL, "")
    (gang,) = snapshot_from_objects(objects, now_s=1.0, settings=KubeSettings(node_pool=pool)).gangs
    assert gang.queue == queue
    found = rights(queues=[{"queues": [queue], "users": ["root"]}])
    (refusal,) = found.verdict(asked(value), "Pod").refusals
    assert f"may use queue {queue}." in refusal
    assert found.verdict(asked(value, user="root"), "Pod").refusals == ()


def test_spares_are_used_by_those_whom_a_rule_names() -> None:
    wanted = pod(**{"kai-solver/may-use-spares": "true"})
    by_label = {"metadata": {"name": "p", "labels": {"kai-solver/may-use-spares": "true"}}}
    for pod_that_asks in (wanted, by_label):
        assert rights(**RULES).verdict(asked(pod_that_asks), "Pod").refusals
        assert rights(**RULES).verdict(asked(pod_that_asks, namespace="operations"), "Pod").refusals == ()


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind in ANNOTATIONS for key in sorted(ANNOTATIONS[kind])])
def test_marks_of_schedulers_are_guarded(kind: str, key: str) -> None:
    found = rights(guard=True)
    forged, plain = pod(**{key: "x"}), pod()
    for before, after in ((None, forged), (plain, forged), (forged, plain), (forged, pod(**{key: "y"}))):
        (refusal,) = found.verdict(asked(after, before=before), kind).refusals
        assert key in refusal
        assert found.verdict(asked(after, "system:serviceaccounts:kai-solver", before=before), kind).refusals == ()
    assert found.verdict(asked(pod("q", **{key: "x"}), before=forged), kind).refusals == ()
    assert rights().verdict(asked(forged), kind).refusals == ()


@pytest.mark.parametrize("key", ["runai-gpu-group", "runai-gpu-group/some"])
def test_the_names_of_devices_are_guarded(key: str) -> None:
    forged: Object = {"metadata": {"name": "p", "labels": {key: "g"}}}
    (refusal,) = rights(guard=True).verdict(asked(forged), "Pod").refusals
    assert key in refusal


def review(user: str, group: str, labels: dict[str, str]) -> bytes:
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}]}
    return orjson.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "operation": "CREATE",
                "namespace": "n",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "userInfo": {"username": user, "groups": ["system:authenticated", group]},
                "object": {"metadata": {"name": "p", "labels": labels}, "spec": spec},
            },
        }
    )


@pytest.mark.parametrize(
    ("group", "is_allowed"),
    [("leads", True), ("devs", False), ("system:serviceaccounts:kai-solver", True), ("system:nodes", True)],
)
def test_the_webhook_asks_for_the_author(cluster: Any, group: str, is_allowed: bool) -> None:
    stated = {"access": RULES, "admission": {"enabled": True, "queue_typo": "warn"}}
    settings = ControllerSettings.model_validate(stated)
    judge = Judge(settings, lambda: kube_settings(settings), cluster.lookup)
    found = read_review(review("jo", group, {QUEUE: "sales"}))
    assert (found.user, group in found.groups) == ("jo", True)
    assert bool(judge.validate(found).verdict.refusals) != is_allowed


@pytest.mark.parametrize("changed", [{"spec": {"queue": "sales"}}, {"marks": {"kai-solver/created": "x"}}, {}])
def test_what_is_being_deleted_keeps_its_queue_and_its_marks(cluster: Any, changed: dict[str, Any]) -> None:
    settings = ControllerSettings.model_validate({"access": RULES, "admission": {"enabled": True, "guard": True}})
    judge = Judge(settings, lambda: kube_settings(settings), cluster.lookup)

    def group_of_pods(spec: Object, marks: dict[str, str], finalizers: list[str]) -> Object:
        going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers, "annotations": marks}
        return {"metadata": {"namespace": "n", "name": "g"} | going, "spec": {"minMember": -1} | spec}

    after = group_of_pods(changed.get("spec", {"queue": "open"}), changed.get("marks", {}), [])
    before = group_of_pods({"queue": "open"}, {}, ["x/y"])
    change = Asked("u", "podgroups.scheduling.run.ai", "UPDATE", "n", after, before, "jo")
    assert bool(judge.validate(change).verdict.refusals) == bool(changed)


@pytest.mark.parametrize(
    ("stated", "must"),
    [
        ({}, False),
        ({"access": {"queues": [{"queues": ["sales"], "users": ["root"]}]}}, True),
        ({"access": {"spares": [{"namespaces": ["operations"]}]}}, True),
        ({"admission": {"guard": True}}, True),
    ],
)
def test_where_rules_are_stated_nothing_is_admitted_unread(cluster: Any, stated: dict[str, Any], must: bool) -> None:
    settings = ControllerSettings.model_validate(stated)
    judge = Judge(settings, lambda: kube_settings(settings), cluster.lookup)
    assert judge.must_read() == must
    blocks = replace(kube_settings(settings), block_visible_devices=True)
    assert Judge(settings, lambda: blocks, cluster.lookup).must_read()


def test_the_exporters_zones_are_believed_where_admission_guards_them() -> None:
    for guard in (False, True):
        settings = ControllerSettings.model_validate({"admission": {"enabled": True, "guard": guard}})
        zones = kube_settings(settings).trust.signed({"kai.scheduler/numa-placement-observed": "x"}, OBSERVED, "uid")
        assert zones == ("x" if guard else "")


OBSERVED = "kai.scheduler/numa-placement-observed"
