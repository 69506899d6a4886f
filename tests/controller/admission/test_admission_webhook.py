"""The webhook as API servers call it: over TLS, with the authorities that it told them to trust."""

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import urllib3

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.resources import MUTATING_WEBHOOKS, RUNTIME_CLASSES, SECRETS, VALIDATING_WEBHOOKS
from kai_solver.controller.admission import webhook as room
from kai_solver.controller.admission.certificates import make_bundle
from kai_solver.controller.admission.keeping import SecretKeeper
from kai_solver.controller.admission.review import Asked
from kai_solver.controller.admission.webhook import Judge, Webhook
from kai_solver.controller.serving import Limits, Server
from kai_solver.controller.settings import ControllerSettings
from kai_solver.kubeobjects import KubeSettings
from kai_solver.metrics import Metrics

HOST = "kai-solver-admission.kai-solver.svc"
PODS = {"group": "", "version": "v1", "resource": "pods"}
QUEUES = {"group": "scheduling.run.ai", "version": "v2", "resource": "queues"}
PODGROUPS = {"group": "scheduling.run.ai", "version": "v2alpha2", "resource": "podgroups"}
TOPOLOGIES = {"group": "kai.scheduler", "version": "v1alpha1", "resource": "topologies"}


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "never came true"
        time.sleep(0.01)


@pytest.fixture
def configured(cluster: Any) -> Any:
    """The cluster with our webhook configurations, as the chart makes them."""
    service = {"namespace": "kai-solver", "name": "kai-solver-admission"}
    for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
        hooks = [{"name": "x.kai-solver.dev", "clientConfig": {"service": service}}]
        cluster.create(resource, "", {"metadata": {"name": "kai-solver-admission"}, "webhooks": hooks})
    return cluster


@contextmanager
def serving_for(cluster: Any, clock: Callable[[], float] = time.time, **admission: Any) -> Iterator[Webhook]:
    stated = {"enabled": True, "bind_address": "127.0.0.1:0"} | admission
    settings = ControllerSettings(admission=stated)  # type: ignore[arg-type]
    webhook = Webhook(cluster, cluster.store, settings, KubeSettings, Metrics(), clock)
    try:
        until(lambda: not webhook.not_ready())
        yield webhook
    finally:
        webhook.close()


def trusted(cluster: Any) -> str:
    hooks = cluster.get(VALIDATING_WEBHOOKS, "", "kai-solver-admission")["webhooks"]
    return base64.b64decode(hooks[0]["clientConfig"]["caBundle"]).decode()


def ask(webhook: Webhook, authorities: str, path: str, resource: dict[str, str], **request: Any) -> dict[str, Any]:
    """As an API server does: it connects to an address, and wants a certificate for the Service's name."""
    body = {"uid": "u1", "operation": "CREATE", "resource": resource, "namespace": "team"} | request
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}
    with urllib3.HTTPSConnectionPool(
        "127.0.0.1",
        webhook.server.port,
        ca_cert_data=authorities,
        assert_hostname=HOST,
        server_hostname=HOST,
        retries=False,
    ) as pool:
        answer = pool.request("POST", path, body=json.dumps(review), headers={"Host": HOST})
    assert answer.status == 200, answer.data
    found = answer.json()["response"]
    assert found["uid"] == "u1"
    assert isinstance(found, dict)
    return found


def test_a_pod_is_judged_over_tls(configured: Any, make_pod: Callable[..., Any]) -> None:
    with serving_for(configured) as webhook:
        ca = trusted(configured)
        assert ask(webhook, ca, "/validate", PODS, object=make_pod())["allowed"]
        refused = ask(webhook, ca, "/validate", PODS, object=make_pod({"gpu-fraction": "2"}))
        assert not refused["allowed"]
        assert refused["status"]["message"].startswith("gpu-fraction annotation value must be")
        count = webhook._metrics.registry.get_sample_value
        labels = {"kind": "Pod", "operation": "create"}
        assert count("kai_solver_admission_reviews_total", labels | {"outcome": "refused"}) == 1
        assert count("kai_solver_admission_reviews_total", labels | {"outcome": "admitted"}) == 1
        assert count("kai_solver_admission_seconds_count") == 2


def test_what_does_not_trust_us_is_not_answered(configured: Any, make_pod: Callable[..., Any]) -> None:
    stranger = make_bundle((HOST,), 1, time.time()).authorities.decode()
    with serving_for(configured) as webhook:
        with pytest.raises(urllib3.exceptions.SSLError):
            ask(webhook, stranger, "/validate", PODS, object=make_pod())
        assert ask(webhook, trusted(configured), "/validate", PODS, object=make_pod())["allowed"]


def test_what_is_too_large_is_refused_where_marks_are_guarded(configured: Any, make_pod: Callable[..., Any]) -> None:
    large = make_pod({"note": "x" * (9 << 20)})
    with serving_for(configured, guard=True) as webhook:
        found = ask(webhook, trusted(configured), "/validate", PODS, object=large)
        assert not found["allowed"]
        assert "this cannot be checked: the review has too many bytes" in found["status"]["message"]
        assert ask(webhook, trusted(configured), "/validate", PODS, object=make_pod())["allowed"]
    with serving_for(configured) as webhook, pytest.raises(AssertionError, match="too many bytes"):
        ask(webhook, trusted(configured), "/validate", PODS, object=large)


def test_every_kind_has_its_rules(configured: Any) -> None:
    queue = {"metadata": {"name": "q"}, "spec": {}}
    group = {"metadata": {"name": "g"}, "spec": {"minMember": 1, "minSubGroup": 1}}
    topology = {"metadata": {"name": "t"}, "spec": {"levels": []}}
    with serving_for(configured) as webhook:
        ca = trusted(configured)
        for resource, value in ((QUEUES, queue), (PODGROUPS, group), (TOPOLOGIES, topology)):
            assert not ask(webhook, ca, "/validate", resource, object=value)["allowed"]
        root = {"metadata": {"name": "root"}, "spec": {}}
        assert ask(webhook, ca, "/validate", QUEUES, operation="DELETE", oldObject=root)["allowed"]
        other = {"group": "apps", "version": "v1", "resource": "deployments"}
        assert ask(webhook, ca, "/validate", other, object=queue)["allowed"]
        for operation in ("DELETE", "CONNECT"):
            assert ask(webhook, ca, "/validate", PODS, operation=operation)["allowed"]


def test_what_is_there_already_may_be_changed_and_may_go(configured: Any, make_pod: Callable[..., Any]) -> None:
    broken = make_pod({"gpu-fraction": "2"})
    changed = make_pod({"gpu-fraction": "2", "note": "x"})
    worse = make_pod({"gpu-fraction": "2"}, namespace="kai-solver")
    going = make_pod({"gpu-fraction": "2"})
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with serving_for(configured) as webhook:
        ca = trusted(configured)

        def update(before: Any, after: Any) -> dict[str, Any]:
            return ask(webhook, ca, "/validate", PODS, operation="UPDATE", object=after, oldObject=before)

        found = update(broken, changed)
        assert found["allowed"]
        assert found["warnings"][0].startswith("gpu-fraction annotation value")
        assert not update(broken, worse)["allowed"]
        assert not update(make_pod(), broken)["allowed"]
        assert update(make_pod(), going)["allowed"]


def test_pods_of_labelled_namespaces_are_filled_in(configured: Any, make_pod: Callable[..., Any]) -> None:
    pod = make_pod({"gpu-fraction": "0.5"}, schedulerName="default-scheduler")
    with serving_for(configured) as webhook:
        ca = trusted(configured)
        found = ask(webhook, ca, "/mutate", PODS, object=pod)
        steps = {step["path"]: step for step in json.loads(base64.b64decode(found["patch"]))}
        assert steps["/spec/schedulerName"]["value"] == "kai-scheduler"
        assert steps["/metadata/labels/kai.scheduler~1queue"]["value"] == "training"
        assert "/spec/runtimeClassName" not in steps
        assert "runtime class 'nvidia'" in found["warnings"][0]
        elsewhere = ask(webhook, ca, "/mutate", PODS, object=make_pod(namespace="plain"), namespace="plain")
        assert "patch" not in elsewhere
        assert "patch" not in ask(webhook, ca, "/mutate", PODS, object=pod, operation="UPDATE")
        assert "patch" not in ask(webhook, ca, "/mutate", QUEUES, object=pod)


def test_our_pods_of_other_namespaces_get_the_variables_of_shared_gpus_alone(
    configured: Any, make_pod: Callable[..., Any]
) -> None:
    shared = {"gpu-fraction": "0.5"}
    with serving_for(configured) as webhook:
        ca = trusted(configured)
        pod = make_pod(shared, namespace="plain")
        found = ask(webhook, ca, "/mutate", PODS, object=pod, namespace="plain")
        steps = {step["path"]: step for step in json.loads(base64.b64decode(found["patch"]))}
        env = steps["/spec/containers/0/env"]["value"]
        assert [one["name"] for one in env] == ["NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION"]
        assert not any(path.startswith("/metadata/labels") for path in steps), "no queue is filled in there"
        other = make_pod(shared, namespace="plain", schedulerName="default-scheduler")
        assert "patch" not in ask(webhook, ca, "/mutate", PODS, object=other, namespace="plain")


def test_device_access_is_judged_and_filled_in_while_kais_config_blocks_it(
    cluster: Any, make_pod: Callable[..., Any]
) -> None:
    blocks = [False]
    judge = Judge(
        ControllerSettings(admission={"enabled": True}),  # type: ignore[arg-type]
        lambda: KubeSettings(block_visible_devices=blocks[0]),
        cluster.lookup,
    )
    plain, choosing = make_pod(namespace="plain"), make_pod(namespace="plain")
    choosing["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]

    def asked(pod: Any) -> Asked:
        return Asked("u", "pods", "CREATE", "plain", pod)

    assert judge.validate(asked(choosing)).verdict.refusals == ()
    assert judge.mutate(asked(plain)).patch == ()
    blocks[0] = True
    (why,) = judge.validate(asked(choosing)).verdict.refusals
    assert "pods may not choose their devices" in why
    (step,) = judge.mutate(asked(plain)).patch
    assert step["value"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    debugged = make_pod(namespace="plain", nodeName="x", ephemeralContainers=[{"name": "debug"}])
    debugs = Asked("u", "pods", "UPDATE", "plain", debugged, plain)
    (step,) = judge.mutate(debugs).patch
    assert step["path"] == "/spec/ephemeralContainers/0/env"
    debugged["spec"]["ephemeralContainers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    assert (judge.mutate(debugs).patch, len(judge.validate(debugs).verdict.refusals)) == ((), 1)
    debugged["spec"]["schedulerName"] = "default-scheduler"
    assert judge.mutate(debugs).patch == ()
    debugged["spec"]["ephemeralContainers"] = "x"
    debugged["spec"]["schedulerName"] = "kai-scheduler"
    assert (judge.mutate(debugs).patch, len(judge.mutate(debugs).verdict.warnings)) == ((), 1)
    foreign = choosing | {"spec": choosing["spec"] | {"schedulerName": "default-scheduler"}}
    assert judge.validate(asked(foreign)).verdict.refusals == (), "pods of other schedulers are not ours to judge"


def test_a_runtime_class_that_exists_is_filled_in(configured: Any, make_pod: Callable[..., Any]) -> None:
    configured.create(RUNTIME_CLASSES, "", {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    with serving_for(configured) as webhook:
        found = ask(webhook, trusted(configured), "/mutate", PODS, object=make_pod({"gpu-fraction": "0.5"}))
        steps = {step["path"]: step for step in json.loads(base64.b64decode(found["patch"]))}
        assert steps["/spec/runtimeClassName"]["value"] == "nvidia"
        assert "warnings" not in found


def test_filling_in_never_refuses(configured: Any, make_pod: Callable[..., Any]) -> None:
    pod = make_pod({"gpu-fraction": "0.5", "gpu-fraction-container-name": "nobody"})
    with serving_for(configured) as webhook:
        found = ask(webhook, trusted(configured), "/mutate", PODS, object=pod)
        assert found["allowed"]
        assert "patch" not in found
        assert "nobody" in found["warnings"][0]


def test_settings_have_their_effect(configured: Any, make_pod: Callable[..., Any]) -> None:
    typo = make_pod(labels={"kai.scheduler/queue": "reserch"})
    with serving_for(configured, queue_typo="warn", gpu_sharing=False, namespace_label="x/y") as webhook:
        ca = trusted(configured)
        assert "research" in ask(webhook, ca, "/validate", PODS, object=typo)["warnings"][0]
        assert not ask(webhook, ca, "/validate", PODS, object=make_pod({"gpu-fraction": "0.5"}))["allowed"]
        assert "patch" not in ask(webhook, ca, "/mutate", PODS, object=make_pod())


@pytest.mark.slow
def test_a_fault_of_ours_is_an_error_and_ends_nothing(
    configured: Any, make_pod: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_for(configured) as webhook:
        ca = trusted(configured)
        with monkeypatch.context() as patch:
            patch.setattr(room, "pod_verdict", lambda *_: 1 / 0)
            with pytest.raises(AssertionError, match="internal error"):
                ask(webhook, ca, "/validate", PODS, object=make_pod())
        assert ask(webhook, ca, "/validate", PODS, object=make_pod())["allowed"]
        labels = {"kind": "Pod", "operation": "create", "outcome": "error"}
        assert webhook._metrics.registry.get_sample_value("kai_solver_admission_reviews_total", labels) == 1


# -- who connects and does not behave ----------------------------------------------------------------------------------


def test_whatever_connects_and_says_nothing_keeps_nothing_waiting(
    configured: Any, make_pod: Callable[..., Any]
) -> None:
    with serving_for(configured) as webhook, socket.create_connection(("127.0.0.1", webhook.server.port)):
        assert ask(webhook, trusted(configured), "/validate", PODS, object=make_pod())["allowed"]


def test_silence_and_nonsense_are_hung_up_on(
    configured: Any, make_pod: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = partial(Server, limits=Limits(head_s=0.2))
    monkeypatch.setattr(room, "Server", limited)
    with serving_for(configured) as webhook:
        for greeting in (b"", b"GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", webhook.server.port), timeout=10) as line:
                line.sendall(greeting)
                with suppress(ConnectionError):
                    while line.recv(1000):
                        pass
        assert ask(webhook, trusted(configured), "/validate", PODS, object=make_pod())["allowed"]


# -- certificates ------------------------------------------------------------------------------------------------------


def test_a_renewed_certificate_is_trusted_before_it_is_served(configured: Any, make_pod: Callable[..., Any]) -> None:
    now = [time.time() - 60 * 86_400.0]
    with serving_for(configured, lambda: now[0], certificate_days=89) as webhook:
        first = trusted(configured)
        assert ask(webhook, first, "/validate", PODS, object=make_pod())["allowed"]
        now[0] = time.time()
        webhook.refresh()
        second = trusted(configured)
        assert second.endswith(first)
        assert ask(webhook, second, "/validate", PODS, object=make_pod())["allowed"]
        with pytest.raises(urllib3.exceptions.SSLError):
            ask(webhook, first, "/validate", PODS, object=make_pod())


def test_replicas_serve_the_same_certificate(configured: Any, make_pod: Callable[..., Any]) -> None:
    with serving_for(configured) as one, serving_for(configured) as other:
        for webhook in (one, other):
            assert ask(webhook, trusted(configured), "/validate", PODS, object=make_pod())["allowed"]
        assert one._served == other._served


def test_a_bundle_that_was_reset_is_put_right(configured: Any) -> None:
    with serving_for(configured) as webhook:
        right = trusted(configured)
        service = {"namespace": "kai-solver", "name": "kai-solver-admission"}
        hooks = [{"name": "x.kai-solver.dev", "clientConfig": {"service": service, "caBundle": ""}}]
        configured.patch(VALIDATING_WEBHOOKS, "", "kai-solver-admission", {"webhooks": hooks})
        webhook.refresh()
        assert trusted(configured) == right


def test_without_a_secret_it_is_not_ready_and_says_why(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "RETRY_S", 0.01)
    refusing = threading.Event()
    refusing.set()
    create = cluster.create

    def forbidden(resource: Any, *rest: Any, **more: Any) -> Any:
        if resource == SECRETS and refusing.is_set():
            raise ApiError(403, "Forbidden", "secrets is forbidden")
        return create(resource, *rest, **more)

    monkeypatch.setattr(cluster, "create", forbidden)
    settings = ControllerSettings(admission={"bind_address": "127.0.0.1:0"})  # type: ignore[arg-type]
    webhook = Webhook(cluster, cluster.store, settings, KubeSettings, Metrics())
    try:
        until(lambda: "secrets is forbidden" in webhook.not_ready())
        refusing.clear()
        until(lambda: not webhook.not_ready())
    finally:
        webhook.close()


def test_an_unexpected_error_is_said_and_the_certificate_is_looked_for_again(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, faults: list[Any]
) -> None:
    monkeypatch.setattr(room, "RETRY_S", 0.01)
    failing = threading.Event()
    failing.set()
    current = SecretKeeper.current

    def fails(keeper: Any) -> Any:
        if failing.is_set():
            raise RuntimeError("an unknown curve")
        return current(keeper)

    monkeypatch.setattr(SecretKeeper, "current", fails)
    settings = ControllerSettings(admission={"bind_address": "127.0.0.1:0"})  # type: ignore[arg-type]
    webhook = Webhook(cluster, cluster.store, settings, KubeSettings, Metrics())
    try:
        until(lambda: "RuntimeError: an unknown curve" in webhook.not_ready())
        failing.clear()
        until(lambda: not webhook.not_ready())
        assert {fault.what for fault in faults} == {"certificate of admission"}
    finally:
        webhook.close()


def test_a_given_certificate_is_served_and_read_again(
    configured: Any, make_pod: Callable[..., Any], tmp_path: Path
) -> None:
    crt, key, ca = (tmp_path / name for name in ("crt", "key", "ca"))

    def put() -> str:
        made = make_bundle((HOST,), 1, time.time())
        for path, content in ((crt, made.certificate), (key, made.key), (ca, made.authorities)):
            path.write_bytes(content)
        return made.authorities.decode()

    first = put()
    with serving_for(configured, cert_file=str(crt), key_file=str(key), ca_file=str(ca)) as webhook:
        assert trusted(configured) == first
        assert ask(webhook, first, "/validate", PODS, object=make_pod())["allowed"]
        second = put()
        webhook.refresh()
        assert ask(webhook, second, "/validate", PODS, object=make_pod())["allowed"]
        assert configured.page(SECRETS).items == [], "no certificate of our own is made"
