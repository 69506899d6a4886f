"""The chart on a real API server: its rights suffice, nothing of others is overwritten, who goes leaves no trace."""

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import yaml
from kubernetes import config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError
from typer.testing import CliRunner, Result

from kai_solver.cli.app import app
from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.lease import Lease
from kai_solver.cluster.resources import (
    EVENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from kai_solver.controller.admission.certificates import make_bundle
from kai_solver.controller.admission.keeping import trust
from tests.cluster.plane.agents import working
from tests.cluster.plane.cluster import ALL, CRDS, SPACE, STAYS_S, Cluster, pod
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import Component, Plane, wait_for
from tests.cluster.plane.release import CHART, Release, forbidden, helm_or_skip, released
from tests.support import manifests

TAKEN_OVER_S = 40.0


def why(found: Object) -> str:
    """What a pod is told about its place."""
    conditions = found.get("status", {}).get("conditions") or ()
    return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")


def reasons(cluster: Cluster) -> set[str]:
    """Of the events about what the test made."""
    return {str(event["reason"]) for event in cluster.plane.api.page(EVENTS, namespace=SPACE, limit=ALL).items}


def test_the_rights_of_the_chart_suffice(make_cluster: Make) -> None:
    """Plain pods, gangs, reclaim, statuses, events, PodGroups; and who is in the scheduler's namespace is told so."""
    cluster = make_cluster(may_leave=lambda found: str(found["metadata"]["name"]).startswith("borrows"))
    cluster.nodes(2, gpus=4)
    cluster.queues(borrower=0, lender=8)
    api = cluster.plane.api
    with released(cluster.plane, "rights") as release:
        replica = release.replica(cluster)
        replica.start()
        api.create(PODS, "rights", pod("misplaced", "lender"))
        cluster.job("borrows", "borrower", 8, least=1)
        cluster.wait_bound(8, "borrows")
        cluster.job("gang", "lender", 4)
        cluster.wait_bound(4, "gang")
        cluster.pod("too-big", "lender", 5)
        wait_for("it is told why it waits", lambda: "GPU" in why(api.get(PODS, SPACE, "too-big")))

        def explained(token: str) -> Result:
            file = cluster.folder / "token"
            file.write_text(token)
            words = ["--server", f"http://{replica.answers_at}", "--token-file", str(file)]
            return CliRunner().invoke(app, ["explain", f"{SPACE}/too-big", *words])

        assert "does not know this token" in explained("made up").stderr
        assert "may not get /explain" in explained(release.token()).stderr
        asked = explained(release.reader("alice"))
        assert asked.exit_code == 0, asked.output
        assert "pending in queue lender" in asked.output
        wait_for("so is who is misplaced", lambda: "scheduler's own" in why(api.get(PODS, "rights", "misplaced")))
        wait_for(
            "the queue's status is written",
            lambda: "allocated" in api.get(QUEUES, "", "lender").get("status", {}),
        )
        wait_for("PodGroups are written", lambda: bool(api.page(POD_GROUPS, namespace=SPACE).items))
        wait_for("events are written, late", lambda: {"Scheduled", "Evict", "Unschedulable"} <= reasons(cluster))
        assert not api.get(PODS, "rights", "misplaced")["spec"].get("nodeName")
        assert replica.component.stop() == 0
        assert forbidden(replica) == []
        assert release.token() not in replica.component.log.read_text()


# -- who goes ----------------------------------------------------------------------------------------------------------


@contextmanager
def work_that_keeps_coming(cluster: Cluster, limit: int) -> Iterator[None]:
    """Ten pods a second, ``limit`` at the most."""
    names = (f"load-{index}" for index in range(limit))

    def create() -> None:
        for name in itertools.islice(names, 1):
            cluster.pod(name, "research")

    with working(create, 0.1):
        yield


def default_scheduler_as_kai(cluster: Cluster) -> Component:
    """kube-scheduler under the name that the pods have."""
    stated = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.plane.kubeconfig), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "kai-scheduler"}],
    }
    file = cluster.folder / "kube-scheduler.yaml"
    file.write_text(yaml.safe_dump(stated))
    program = cluster.plane.scheduler.command[0]
    return Component("kube-scheduler", [program, f"--config={file}", "--secure-port=0"], cluster.folder)


@contextmanager
def takes_over(cluster: Cluster, who: str) -> Iterator[None]:
    if who == "kube-scheduler":
        component = default_scheduler_as_kai(cluster)
        component.start()
        try:
            yield
        finally:
            component.kill()
    else:
        with released(cluster.plane, "second") as release:
            release.replica(cluster).start()
            yield


@pytest.mark.parametrize("who", ["kube-scheduler", "another release"])
def test_what_runs_stays_and_what_waits_is_free_for_what_comes_next(make_cluster: Make, who: str) -> None:
    cluster = make_cluster()
    cluster.nodes(8)
    cluster.queues(research=64)
    with released(cluster.plane, "first") as release:
        release.replica(cluster).start()
        with work_that_keeps_coming(cluster, 50):
            cluster.wait_bound(5, "load")
            release.uninstall()
            gone_s = time.monotonic()
        cluster.pods(10, "research", "late")
        runs = {found["metadata"]["uid"] for found in cluster.bound()}
        wanted = len(cluster.plane.api.page(PODS, namespace=SPACE).items)
        assert cluster.bound("late") == []
    with takes_over(cluster, who):
        cluster.wait_bound(wanted, limit_s=TAKEN_OVER_S - (time.monotonic() - gone_s))
        assert len(runs) >= 5
        assert runs <= {found["metadata"]["uid"] for found in cluster.bound()}
        assert not cluster.checker.evicted


# -- what is there already ---------------------------------------------------------------------------------------------


def owner(plane: Plane, kind: Resource, name: str) -> str:
    found = plane.api.get(kind, "", name)["metadata"].get("annotations", {})
    return f"{found.get('meta.helm.sh/release-namespace')}/{found.get('meta.helm.sh/release-name')}"


def version(plane: Plane, kind: Resource, name: str) -> str:
    return str(plane.api.get(kind, "", name)["metadata"]["resourceVersion"])


def test_releases_come_and_go_and_leave_what_work_belongs_to(plane: Plane) -> None:
    """One makes a queue and a class; another of the same name, elsewhere, leaves them alone; both go, they stay."""
    helm = helm_or_skip()
    first, second = Release(plane, helm, "first"), Release(plane, helm, "second")
    values: dict[str, Any] = {
        "queues": {"create": True, "queues": [{"name": "made-by-helm", "spec": {"resources": {}}}]},
        "priorityClasses": {
            "create": True,
            "classes": [{"name": "made-by-helm", "value": 50, "description": "a class"}],
        },
        "settings.dry_run": True,
    }
    crds = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in plane.api.page(CRDS).items}
    train = version(plane, PRIORITY_CLASSES, "train")
    try:
        for release in (first, second):
            release.install(**values)
        second.install("upgrade", **values, replicas=2)
        made = [owner(plane, QUEUES, "made-by-helm"), owner(plane, PRIORITY_CLASSES, "made-by-helm")]
        assert made == ["first/one", "first/one"]
        for release in (first, second):
            release.uninstall()
        assert owner(plane, QUEUES, "made-by-helm") == "first/one"
        assert {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in plane.api.page(CRDS).items
        } == crds
        assert version(plane, PRIORITY_CLASSES, "train") == train
    finally:
        for kind in (QUEUES, PRIORITY_CLASSES):
            plane.api.delete(kind, "", "made-by-helm")


@contextmanager
def kai_at_work(plane: Plane) -> Iterator[None]:
    """KAI's own scheduler renews its Lease."""
    with suppress(ApiError):  # from an earlier test
        plane.api.create(NAMESPACES, "", {"metadata": {"name": "kai-scheduler"}})
    lease = Lease(plane.api, "kai-scheduler", "kai-scheduler", "kai's own")
    lease.attempt()
    try:
        with working(lease.attempt, 0.5):
            yield
    finally:
        lease.release()


def test_beside_kai_it_waits_but_may_look_on(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1)
    cluster.queues(research=8)
    with released(cluster.plane, "first") as release:
        with kai_at_work(cluster.plane):
            replica = release.replica(cluster)
            replica.component.start()
            wait_for("it waits", lambda: "kai-scheduler/kai-scheduler is renewed" in replica.said_by("/readyz"))
            onlooker = cluster.controller(dry_run=True)
            cluster.pod("waits", "research")
            wait_for("it would bind the pod", lambda: any(line.get("binds") == 1 for line in onlooker.said()))
            assert cluster.stays_unbound("waits", STAYS_S)
            onlooker.component.stop()
        cluster.wait_bound(1, "waits")
        assert replica.component.runs


# -- GitOps ------------------------------------------------------------------------------------------------------------


@contextmanager
def dynamic(plane: Plane) -> Iterator[Any]:
    """The client library's own dynamic client."""
    with config.new_client_from_config(str(plane.kubeconfig)) as http:  # type: ignore[no-untyped-call]
        yield DynamicClient(http)  # type: ignore[no-untyped-call]


def is_there(plane: Plane, body: Object) -> bool:
    with dynamic(plane) as server:
        kind = server.resources.get(api_version=body["apiVersion"], kind=body["kind"])
        try:
            server.get(kind, name=body["metadata"]["name"], namespace=body["metadata"].get("namespace"))
        except NotFoundError:
            return False
    return True


def applied(plane: Plane, objects: list[Object]) -> dict[str, str]:
    """Apply as Argo CD and Flux do, by server-side apply and without force; versions by kind and name.

    That of a Deployment, which has a status, is its generation; that of others their resource version.
    """
    found = {}
    with dynamic(plane) as server:
        for body in objects:
            kind = server.resources.get(api_version=body["apiVersion"], kind=body["kind"])
            made = server.server_side_apply(
                kind, body=body, namespace=body["metadata"].get("namespace"), field_manager="argocd-controller"
            )
            found[f"{body['kind']}/{body['metadata']['name']}"] = str(
                made.metadata.generation if body["kind"] == "Deployment" else made.metadata.resourceVersion
            )
    return found


def test_what_the_chart_renders_can_be_applied_again_and_changes_nothing(plane: Plane) -> None:
    """Server-side, by Argo CD or Flux: no conflict with the CRDs that exist, nor with what the controller writes."""
    release = Release(plane, helm_or_skip(), "gitops")  # names of its own: other tests use those of the manifests
    stated = {
        "image.repository": "registry.example/kai-solver",
        "queues": {"create": True, "queues": [{"name": "gitops", "spec": {"resources": {}}}]},
        "priorityClasses": {"create": True, "classes": [{"name": "gitops", "value": 5, "description": "a class"}]},
    }
    words = ["--kube-version", manifests.KUBERNETES, "--include-crds", "--no-hooks"]
    words += [word for key, value in stated.items() for word in ("--set-json", f"{key}={json.dumps(value)}")]
    text = release.run("template", "gitops", str(CHART), *words)
    objects = [found for found in yaml.safe_load_all(text) if found]
    assert {"Queue", "PriorityClass", "CustomResourceDefinition", "Deployment"} <= {one["kind"] for one in objects}
    authority = make_bundle(["kai-solver-admission"], 1, time.time()).authorities
    with suppress(ApiError):
        plane.api.create(NAMESPACES, "", {"metadata": {"name": "gitops"}})
    # What the manifests made belongs to another manager, but for CRDs, which have no labels.
    there = [one for one in objects if is_there(plane, one)]
    objects = [one for one in objects if one not in there or one["kind"] == "CustomResourceDefinition"]
    try:
        first = applied(plane, objects)
        name = next(one["metadata"]["name"] for one in objects if one["kind"] == VALIDATING_WEBHOOKS.kind)
        assert trust(plane.api, name, "gitops", "gitops-kai-solver-admission", authority) == []
        for kind in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
            assert all(hook["clientConfig"]["caBundle"] for hook in plane.api.get(kind, "", name)["webhooks"])
            first[f"{kind.kind}/{name}"] = version(plane, kind, name)
        again = applied(plane, objects)
        assert again == first
    finally:
        with dynamic(plane) as server:
            for body in objects:
                if body not in there and body["kind"] != "Namespace":
                    kind = server.resources.get(api_version=body["apiVersion"], kind=body["kind"])
                    with suppress(NotFoundError):
                        server.delete(kind, name=body["metadata"]["name"], namespace=body["metadata"].get("namespace"))
