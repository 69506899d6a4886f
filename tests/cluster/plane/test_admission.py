"""Admission on a real API server: each rule with its words, what is filled in, and nobody refused while we are away."""

import base64
import copy
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import yaml

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.resources import (
    EVENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    QUEUES,
    SECRETS,
    TOPOLOGIES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from kai_solver.controller.admission.certificates import make_bundle
from tests.cluster.plane.cluster import ALL, SPACE, Cluster, Replica, pod
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import ROOT, Plane, free_ports, wait_for
from tests.cluster.plane.release import forbidden

NAME = "kai-solver-admission"
HOOKS: dict[str, Resource] = {
    "ValidatingWebhookConfiguration": VALIDATING_WEBHOOKS,
    "MutatingWebhookConfiguration": MUTATING_WEBHOOKS,
}
FILLED = "team"
"""A namespace that asks for its pods to be filled in."""

AMOUNTS = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
RESOURCES = {"resources": dict.fromkeys(("cpu", "gpu", "memory"), AMOUNTS)}
FRACTION = "gpu-fraction annotation value must be a positive number smaller than 1.0"
BOTH_KINDS = "cannot have both GPU fraction request and whole GPU resource request/limit"


def configurations() -> Iterator[tuple[Resource, dict[str, Any]]]:
    """The chart's, as they are rendered with its own values."""
    for found in yaml.safe_load_all((ROOT / "deploy" / "manifests" / "kai-solver.yaml").read_text()):
        if found and found["kind"] in HOOKS:
            yield HOOKS[found["kind"]], found


def called_by_url(configuration: dict[str, Any], port: int, authorities: bytes) -> dict[str, Any]:
    """The API server of these tests reaches no Services: it calls the process on this machine."""
    changed = copy.deepcopy(configuration)
    for hook in changed["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        url = f"https://localhost:{port}{path}"
        hook["clientConfig"] = {"url": url, "caBundle": base64.b64encode(authorities).decode()}
    return changed


@contextmanager
def configured(plane: Plane, made: list[tuple[Resource, dict[str, Any]]]) -> Iterator[None]:
    """Webhook configurations that are there meanwhile."""
    try:
        for resource, body in made:
            plane.api.create(resource, "", body)
        yield
    finally:
        for resource, body in made:
            plane.api.delete(resource, "", str(body["metadata"]["name"]))
        for secret in plane.api.page(SECRETS, namespace="kai-solver").items:
            plane.api.delete(SECRETS, "kai-solver", str(secret["metadata"]["name"]))


@contextmanager
def admitting(cluster: Cluster, **stated: Any) -> Iterator[Replica]:
    """A controller whose webhook the API server calls, with a given certificate."""
    (port,) = free_ports(1)
    bundle = make_bundle(("localhost",), 1, time.time())
    files = {"cert_file": cluster.folder / "tls.crt", "key_file": cluster.folder / "tls.key"}
    files["cert_file"].write_bytes(bundle.certificate)
    files["key_file"].write_bytes(bundle.key)
    given = {key: str(path) for key, path in files.items()}
    hooks = [(resource, called_by_url(body, port, bundle.authorities)) for resource, body in configurations()]
    with configured(cluster.plane, hooks):
        replica = cluster.controller(
            admission={"enabled": True, "bind_address": f"127.0.0.1:{port}", **given, **stated}
        )
        wait_for("the API server calls us", lambda: bool(refusal(cluster.plane, PODS, "", shared("0", name="probe"))))
        yield replica


def refusal(plane: Plane, resource: Resource, namespace: str, body: dict[str, Any]) -> str:
    """Why it was refused; empty where it was not, and then it is gone again."""
    space = namespace or (SPACE if resource.namespaced else "")
    try:
        made = plane.api.create(resource, space, body)
    except ApiError as error:
        return error.message
    plane.api.delete(resource, space, str(made["metadata"]["name"]), grace_s=0)
    return ""


def shared(fraction: str, *, name: str = "judged", gpus: int = 0, **annotations: str) -> dict[str, Any]:
    """A pod with a part of a GPU."""
    stated = {"gpu-fraction": fraction} | {key.replace("_", "-"): value for key, value in annotations.items()}
    return pod(name, "research", gpus, annotations={key: value for key, value in stated.items() if value})


def custom(resource: Resource, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


def ruled(annotations: dict[str, str]) -> dict[str, Any]:
    """A topology with rules for its domains."""
    body = custom(TOPOLOGIES, "judged", {"levels": [{"nodeLabel": "zone", "alias": "z"}, {"nodeLabel": "rack"}]})
    return body | {"metadata": {"name": "judged", "annotations": annotations}}


REFUSED: list[tuple[str, Resource, str, dict[str, Any], str]] = [
    ("no fraction", PODS, "", shared("1.2"), FRACTION),
    ("no number", PODS, "", shared("half"), FRACTION),
    ("fraction beside whole", PODS, "", shared("0.5", gpus=1), BOTH_KINDS),
    ("both", PODS, "", shared("0.5", gpu_memory="2000"), "cannot request both GPU and GPU memory"),
    ("memory", PODS, "", shared("", gpu_memory="2Gi"), "gpu-memory annotation value must be a positive integer"),
    ("devices alone", PODS, "", shared("", gpu_fraction_num_devices="2"), "cannot request multiple fractional devices"),
    ("devices", PODS, "", shared("0.5", gpu_fraction_num_devices="0"), "fraction count annotation value must be"),
    ("mps alone", PODS, "", shared("", mps="true"), "MPS is only supported with GPU fraction request"),
    ("no container", PODS, "", shared("0.5", gpu_fraction_container_name="x"), "container with name x not found"),
    ("our namespace", PODS, "kai-solver", pod("judged", "research"), "namespace kai-solver is the scheduler's own"),
    ("queue typo", PODS, "", pod("judged", "reserch"), "Queue 'reserch' does not exist. Did you mean 'research'?"),
    (
        "gang's queue",
        POD_GROUPS,
        "",
        custom(POD_GROUPS, "judged", {"queue": "reserch", "minMember": 1}),
        "Did you mean 'research'?",
    ),
    (
        "gang's tree",
        POD_GROUPS,
        "",
        custom(
            POD_GROUPS, "judged", {"queue": "research", "subGroups": [{"name": "a", "parent": "b", "minMember": 1}]}
        ),
        "parent",
    ),
    ("queue without resources", QUEUES, "", custom(QUEUES, "judged", {}), "resources must be specified"),
    (
        "parent's typo",
        QUEUES,
        "",
        custom(QUEUES, "judged", {"parentQueue": "al", **RESOURCES}),
        "the parent queue 'al' does not exist. Did you mean 'all'?",
    ),
    (
        "aliases",
        TOPOLOGIES,
        "",
        custom(
            TOPOLOGIES,
            "judged",
            {"levels": [{"nodeLabel": "zone", "alias": "z"}, {"nodeLabel": "rack", "alias": "z"}]},
        ),
        "alias",
    ),
    (
        "rule for domains",
        TOPOLOGIES,
        "",
        ruled({"kai-solver/one-tenant-at": "shelf"}),
        "kai-solver/one-tenant-at 'shelf' is not honoured: no level of it. Write one of z, rack",
    ),
]
ACCEPTED: list[tuple[str, Resource, dict[str, Any]]] = [
    ("a fraction", PODS, shared("0.5")),
    ("of several devices", PODS, shared("0.5", gpu_fraction_num_devices="2")),
    ("another scheduler's", PODS, pod("judged", "reserch", scheduler="default-scheduler")),
    ("a gang", POD_GROUPS, custom(POD_GROUPS, "judged", {"queue": "research", "minMember": 1})),
    ("a queue", QUEUES, custom(QUEUES, "judged", {"parentQueue": "all", **RESOURCES})),
    ("rules for domains", TOPOLOGIES, ruled({"kai-solver/one-tenant-at": "z", "kai-solver/spare-nodes": "rack=2"})),
    ("a key that nobody knows", TOPOLOGIES, ruled({"kai-solver/spare-node": "rack=2"})),
]


def test_each_rule_has_its_words_and_spares_what_it_does_not_mean(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.queues(research=8)
    with admitting(cluster) as replica:
        found = {what: refusal(cluster.plane, kind, space, body) for what, kind, space, body, _ in REFUSED}
        assert {what: words for what, _, _, _, words in REFUSED if words not in found[what]} == {}, found
        found = {what: refusal(cluster.plane, kind, "", body) for what, kind, body in ACCEPTED}
        assert set(found.values()) == {""}, found
        assert not forbidden(replica)
        replica.component.stop()


def test_queues_are_deleted_in_any_order_and_running_work_keeps_running(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1)
    cluster.queues(research=8)
    api = cluster.plane.api

    def reasons() -> set[str]:
        return {str(event["reason"]) for event in api.page(EVENTS, namespace=SPACE, limit=ALL).items}

    with admitting(cluster) as replica:
        cluster.pod("runs", "research")
        cluster.wait_bound(1, "runs")
        for name in ("all", "research"):  # the parent first, as `kubectl delete queues --all` may
            api.delete(QUEUES, "", name)
        cluster.pod("waits", "research")
        wait_for("an event says that the queue is missing", lambda: "QueueMissing" in reasons())
        assert cluster.stays_pending("waits")
        assert len(cluster.bound("runs")) == 1
        assert not forbidden(replica)
        replica.component.stop()


@contextmanager
def namespace(plane: Plane, name: str, **labels: str) -> Iterator[None]:
    """A namespace; in this control plane they stay when they are deleted, so its labels are taken away."""
    with suppress(ApiError):
        plane.api.create(NAMESPACES, "", {"metadata": {"name": name}})
    plane.api.patch(NAMESPACES, "", name, {"metadata": {"labels": labels}})
    try:
        yield
    finally:
        plane.api.patch(NAMESPACES, "", name, {"metadata": {"labels": dict.fromkeys(labels)}})


def test_pods_are_filled_in_where_their_namespace_asks_for_it(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1)
    cluster.queues(research=8)
    api = cluster.plane.api
    labels = {"kai-solver/inject": "enabled", "kai.scheduler/queue": "research"}
    plain = pod("filled", "", scheduler="default-scheduler", gpus=0, annotations={"gpu-fraction": "0.5"})
    del plain["metadata"]["labels"]
    with namespace(cluster.plane, FILLED, **labels), admitting(cluster):

        def made(space: str) -> Object:
            found = api.create(PODS, space, copy.deepcopy(plain))
            api.delete(PODS, space, "filled", grace_s=0)
            return found

        wait_for("its label is known", lambda: made(FILLED)["spec"]["schedulerName"] == "kai-scheduler")
        filled, left = made(FILLED), made(SPACE)
        assert filled["metadata"]["labels"]["kai.scheduler/queue"] == "research"
        named = filled["metadata"]["annotations"]["runai/shared-gpu-configmap"]
        main = filled["spec"]["containers"][0]
        assert {entry["name"] for entry in main["env"]} == {
            "NVIDIA_VISIBLE_DEVICES",
            "GPU_PORTION",
            "RUNAI_NUM_OF_GPUS",
        }
        assert main["envFrom"][0]["configMapRef"]["name"] == f"{named}-0-evar"
        assert left["spec"]["schedulerName"] == "default-scheduler"
        assert "env" not in left["spec"]["containers"][0]
        whole = pod("whole", "", scheduler="default-scheduler")
        del whole["metadata"]["labels"]
        api.create(PODS, FILLED, whole)
        cluster.wait_bound(1, "whole")


def test_while_we_are_away_nothing_is_refused(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.queues(research=8)
    with admitting(cluster) as replica:
        replica.component.kill()
        assert refusal(cluster.plane, PODS, "", shared("1.2")) == ""
        assert refusal(cluster.plane, PODS, "", pod("judged", "reserch")) == ""
        replica.start()
        wait_for("it judges again", lambda: FRACTION in refusal(cluster.plane, PODS, "", shared("1.2")))


def test_its_own_certificate_is_trusted_and_others_configurations_stay(make_cluster: Make) -> None:
    """Secret and caBundle with the rights of the chart; configurations of KAI's names are not touched."""
    cluster = make_cluster()
    api, (port,) = cluster.plane.api, free_ports(1)
    ours = list(configurations())
    kais = []
    for resource, body in ours:
        theirs = copy.deepcopy(body)
        theirs["metadata"] = {"name": f"{resource.plural[:10].lower()}-kai-admission"}
        kais.append((resource, theirs))
    with configured(cluster.plane, [*ours, *kais]):
        versions = {resource: one["metadata"]["resourceVersion"] for resource, one in stands(cluster.plane, kais)}
        replica = cluster.controller(admission={"enabled": True, "bind_address": f"127.0.0.1:{port}"})
        bundles = {
            hook["clientConfig"].get("caBundle", "")
            for _, found in stands(cluster.plane, ours)
            for hook in found["webhooks"]
        }
        assert len(bundles) == 1
        authorities = base64.b64decode(bundles.pop()).decode()
        context = ssl.create_default_context(cadata=authorities)
        host = "kai-solver-admission.kai-solver.svc"
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as line,
            context.wrap_socket(line, server_hostname=host) as secured,
        ):
            assert secured.getpeercert()
        assert api.get(SECRETS, "kai-solver", NAME)["type"] == "kubernetes.io/tls"
        assert {
            resource: one["metadata"]["resourceVersion"] for resource, one in stands(cluster.plane, kais)
        } == versions
        assert not forbidden(replica)
        key = base64.b64decode(api.get(SECRETS, "kai-solver", NAME)["data"]["tls.key"]).decode()
        assert not any(part in replica.component.log.read_text() for part in key.splitlines()[1:-1]), "a key in the log"


def stands(plane: Plane, made: list[tuple[Resource, dict[str, Any]]]) -> Iterator[tuple[Resource, Object]]:
    for resource, body in made:
        yield resource, plane.api.get(resource, "", str(body["metadata"]["name"]))
