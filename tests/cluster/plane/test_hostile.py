"""Hostile objects that a real API server takes: the controller lives, and binds honest gangs beside them.

``KAI_SOLVER_FUZZ=20`` shows twenty times as many, drawn anew.
"""

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import urllib3

from kai_solver.cluster.api import ApiError, Object, meta
from kai_solver.cluster.resources import NAMESPACES, Resource
from tests.cluster.plane.cluster import CRDS, SPACE, Cluster, clear_work, ensure_gone
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.kinds import crd, served
from tests.cluster.plane.plane import ADMIN, Plane, wait_for
from tests.fuzz.amounts import SHOWN, TIMES
from tests.fuzz.hostile import apart, made, random_recipe
from tests.fuzz.world import made_again, resource_of

pytestmark = pytest.mark.slow
CROWD, ROUNDS = 500, 2 * TIMES
SPACES = ("hostile", "kai-resource-reservation")
Shown = tuple[Resource, str, str]


def harmless(value: Object) -> Object:
    """Without what keeps the test from clearing up, and what would rightly take the honest team's nodes."""
    found: Object = made_again(value)
    metadata = found.get("metadata")
    if isinstance(metadata, dict):
        for name in ("finalizers", "resourceVersion", "uid", "managedFields"):
            metadata.pop(name, None)
        if metadata.get("namespace") not in SPACES and "namespace" in metadata:
            metadata["namespace"] = SPACES[0]
        owners = metadata.get("ownerReferences")
        for owner in owners if isinstance(owners, list) else ():
            if isinstance(owner, dict) and owner.get("uid") in ("", None):
                owner["uid"] = "no-such-uid"  # without one nothing is taken
    if found["kind"] == "Node":
        found["status"] = {}
    _keep_away(found)
    return found


def _keep_away(part: Any) -> None:
    """Pods, and templates of them, want nodes of the hostile pool; their containers have an image."""
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _keep_away(inner)
    if isinstance(part, dict) and "containers" in part:
        part["nodeSelector"] = {"pool": "hostile"}
        part.pop("nodeName", None)
        for container in part["containers"] if isinstance(part["containers"], list) else ():
            if isinstance(container, dict):
                container.setdefault("image", "none")  # else nearly no pod would be taken


def show(cluster: Cluster, value: Object) -> Shown | None:
    """Create it; None where the API server refuses it."""
    resource = resource_of(value)
    namespace = str(meta(value).get("namespace", SPACES[0])) if resource.namespaced else ""
    try:
        made = cluster.plane.api.create(resource, namespace, value)
    except (ApiError, TypeError, ValueError):  # refused, or no JSON at all
        return None
    return resource, namespace, str(meta(made).get("name"))


@contextmanager
def shown(cluster: Cluster, values: list[Object]) -> Iterator[Counter[str]]:
    """The objects as far as the API server takes them, gone afterwards; how many of each kind."""
    with ThreadPoolExecutor(8) as pool:
        last = sorted(values, key=lambda value: value["kind"] == "Pod")  # what pods refer to is there before them
        found = [one for one in pool.map(lambda value: show(cluster, value), last) if one is not None]
        try:
            yield Counter(resource.kind for resource, _, _ in found)
        finally:
            list(pool.map(lambda one: ensure_gone(cluster.plane, *one, grace_s=0), found))


@pytest.fixture
def spaces(make_cluster: Make) -> Cluster:
    cluster = make_cluster(may_leave=lambda pod: pod["metadata"]["namespace"] in SPACES)
    for name in SPACES:
        try:
            cluster.plane.api.create(NAMESPACES, "", {"metadata": {"name": name}})
        except ApiError as error:
            if not error.is_conflict:
                raise
    return cluster


@pytest.mark.timeout(300 + 60 * ROUNDS, func_only=True)
def test_the_controller_outlives_what_the_api_server_takes(spaces: Cluster) -> None:
    spaces.nodes(2, gpus=4)
    spaces.queues(honest=8)
    replica = spaces.controller()
    process = replica.component.process
    seed = 0 if TIMES == 1 else random.SystemRandom().randrange(1 << 30)
    taken: Counter[str] = Counter()
    for number in range(ROUNDS):
        chance = random.Random(seed + number)
        values = [harmless(value) for value in apart([made(random_recipe(chance)) for _ in range(CROWD)], chance)]
        with shown(spaces, values) as kinds:
            taken += kinds
            spaces.job(f"gang-{number}", "honest", 4)
            spaces.wait_bound(4, f"gang-{number}", limit_s=120)
        assert replica.component.process is process, f"seed {seed + number}: the controller ended"
        assert replica.component.runs, f"seed {seed + number}: {replica.component.log.read_text()[-3000:]}"
        clear_work(spaces.plane)
    print(f"seed {seed}: {taken.total()} of {ROUNDS * CROWD} objects taken: {dict(taken)}")
    SHOWN["objects taken by an API server"] += taken.total()
    assert taken["Pod"] > 20 * ROUNDS
    assert taken.total() > 100 * ROUNDS


def test_an_object_that_is_too_deep_does_not_hide_the_others(plane: Plane) -> None:
    """A user can make one: fields of third-party kinds hold anything."""
    kind = served("example.org", "v1", "Deep")
    plane.api.create(CRDS, "", crd("example.org", "Deep", ("v1",)))
    wait_for("the kind is served", lambda: kind in plane.api.served("example.org/v1"))
    deep = '{"a":' * 3_000 + "1" + "}" * 3_000
    for name, spec in (("deep", deep), ("plain", "{}")):
        body = f'{{"apiVersion": "example.org/v1", "kind": "Deep", "metadata": {{"name": "{name}"}}, "spec": {spec}}}'
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        with urllib3.PoolManager(ca_certs=str(plane.authority)) as pool:
            answer = pool.request("POST", f"{plane.url}{kind.path(SPACE)}", body=body, headers=headers)
        assert answer.status == 201, answer.data
    found = plane.api.page(kind).items
    assert [meta(one)["name"] for one in found] == ["deep", "plain"]
    watched = plane.api.watch(kind, "0", 1)
    assert {meta(next(watched).object)["name"] for _ in found} == {"deep", "plain"}
