"""Whatever objects a cluster shows: reading never raises, honest gangs are planned, and admission always answers."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.claims import lower
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import KAI_CONFIGS, QUEUES, SCHEDULING_SHARDS
from kai_solver.cluster.store import Store, is_as_expected, is_worth_a_cycle
from kai_solver.cluster.trim import trimmed
from kai_solver.controller.admission.lookup import Lookup
from kai_solver.controller.admission.review import API_VERSION, answered
from kai_solver.controller.admission.webhook import Judge
from kai_solver.controller.policy import ClusterPolicy
from kai_solver.controller.settings import ControllerSettings
from kai_solver.controller.wiring import kube_settings
from kai_solver.engine import Engine
from kai_solver.kubeobjects import (
    KubeSettings,
    Recall,
    export_kai_snapshot,
    objects_from_documents,
    snapshot_from_objects,
)
from kai_solver.modelfiles import load_model
from tests.fuzz.amounts import SHOWN, some
from tests.fuzz.hostile import Object, Recipe, Spoil, apart, made, many_recipes, recipes, seeds, spoiled, spoilt
from tests.fuzz.world import HONEST, honest_gang, honest_house, made_again, resource_of

NOW_S = 1_790_000_000.0
BUDGET_S = 60.0


def crowd_of(found: list[Recipe]) -> list[Object]:
    SHOWN["objects read"] += len(found)
    return apart([made(recipe) for recipe in found], random.Random(len(found)))


@pytest.mark.slow
@some(300)
@given(many_recipes(), st.booleans())
def test_reading_never_raises(found: list[Recipe], stated: bool) -> None:
    raw = objects_from_documents([("a.yaml", value) for value in crowd_of(found)])
    settings = KubeSettings(numa=True) if stated else None
    lower(snapshot_from_objects(raw, now_s=NOW_S, settings=settings))
    export_kai_snapshot(raw, KubeSettings())


@pytest.mark.slow
@some(300)
@given(st.lists(spoiled(), max_size=4), st.lists(spoiled(), max_size=4))
def test_a_policy_is_found_whatever_kais_objects_say(of_shard: list[Spoil], of_config: list[Spoil]) -> None:
    store, settings = Store(), ControllerSettings()
    policy = ClusterPolicy(store, kube_settings(settings), settings)
    for kind, spoils in ((SCHEDULING_SHARDS, of_shard), (KAI_CONFIGS, of_config)):
        (seed,) = [value for value in seeds() if value.get("kind") == kind.kind]
        store.replace(kind, [spoilt(seed, spoils)])
    assert policy().node_pool == ""
    assert policy().scheduler_name == settings.scheduler_name


@pytest.mark.slow
@some(100)
@given(many_recipes(6), many_recipes(6))
def test_reading_again_gives_what_reading_anew_gives(before: list[Recipe], after: list[Recipe]) -> None:
    recall = Recall()
    for found in (before, [*before, *after], after):
        raw = objects_from_documents([("a.yaml", value) for value in crowd_of(found)])
        again = snapshot_from_objects(raw, now_s=NOW_S, settings=KubeSettings(), recall=recall)
        assert again == snapshot_from_objects(raw, now_s=NOW_S, settings=KubeSettings())


@pytest.fixture(scope="module")
def greedy() -> Iterator[Engine]:
    with Engine(load_model("greedy-only")) as engine:
        yield engine


@pytest.mark.slow
@some(60)
@given(found=many_recipes(30))
def test_honest_gangs_are_planned_beside_hostile_objects(greedy: Engine, found: list[Recipe]) -> None:
    values = [*honest_house(), *honest_gang("gang"), *crowd_of(found)]
    raw = objects_from_documents([("a.yaml", value) for value in values])
    snapshot = lower(snapshot_from_objects(raw, now_s=NOW_S, settings=KubeSettings()))
    plan = greedy.cycle(snapshot, budget_s=BUDGET_S)
    bound = {bind.pod: bind.node for bind in plan.binds if bind.gang == f"{HONEST}/gang"}
    assert bound == {f"{HONEST}/gang-0": HONEST, f"{HONEST}/gang-1": HONEST}


def test_a_pod_with_more_gpus_than_memory_holds_costs_nothing(greedy: Engine) -> None:
    """Who may create pods may set nodeName, and any number."""
    big = honest_gang("big")[1]
    del big["metadata"]["labels"], big["metadata"]["annotations"]
    big["spec"] |= {
        "nodeName": "other",
        "containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "1e15"}}}],
    }
    other = made_again(honest_house()[0]) | {"metadata": {"name": "other"}}
    values = [*honest_house(), other, big, *honest_gang("gang")]
    raw = objects_from_documents([("a.yaml", value) for value in values])
    plan = greedy.cycle(snapshot_from_objects(raw, now_s=NOW_S, settings=KubeSettings()), budget_s=BUDGET_S)
    assert [bind.node for bind in plan.binds if bind.gang == f"{HONEST}/gang"] == [HONEST, HONEST]


@pytest.mark.slow
@some(200)
@given(recipes(), st.lists(spoiled(), max_size=2))
def test_what_changed_is_told_of_any_two_objects(recipe: Recipe, more: list[Any]) -> None:
    before, after = made(recipe), made(recipe._replace(spoils=(*recipe.spoils, *more)))
    resource = resource_of(before)
    before, after = trimmed(resource, before), trimmed(resource, after)
    assert is_worth_a_cycle(resource, before, made_again(before)) in (True, False)
    assert is_worth_a_cycle(resource, before, after) in (True, False)
    assert is_as_expected(before, after) in (True, False)
    SHOWN["changes"] += 1


# -- admission ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    api, store = MemoryApi(), Store()
    for value in honest_house():
        store.replace(resource_of(value), [value])
    api.create(QUEUES, "", {"metadata": {"name": HONEST}})
    lookup = Lookup(api, store)
    yield Judge(ControllerSettings(), KubeSettings, lookup)
    lookup.close()


def review(after: Object | None, before: Object | None, operation: str) -> bytes:
    value = after or before or {}
    resource = resource_of(value)
    request = {
        "uid": "u",
        "operation": operation,
        "namespace": "hostile",
        "name": "a",
        "resource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
        "object": after,
        "oldObject": before,
        "userInfo": {"username": "anyone", "groups": []},
    }
    return json.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request}).encode()


@pytest.mark.slow
@some(300)
@given(judge_of=st.data(), recipe=recipes(), operation=st.sampled_from(("CREATE", "UPDATE", "DELETE")))
def test_admission_answers_every_review(judge: Judge, judge_of: st.DataObject, recipe: Recipe, operation: str) -> None:
    value = made(recipe)
    old = made(judge_of.draw(recipes()))
    before = None if operation == "CREATE" else old if resource_of(old) == resource_of(value) else made_again(value)
    body = review(None if operation == "DELETE" else value, before, operation)
    for decide in (judge.validate, judge.mutate):
        answer = answered(body, decide)
        assert answer.status in (200, 400)
        if answer.status == 200:
            assert json.loads(answer.body)["response"]["uid"] == "u"
    SHOWN["reviews"] += 1


@pytest.mark.slow
@some(100)
@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text(), st.lists, max_leaves=5).map(json.dumps).map(str.encode)
)
def test_admission_refuses_what_is_no_review(body: bytes) -> None:
    assert answered(body, lambda _: pytest.fail("there is nothing to decide")).status == 400
