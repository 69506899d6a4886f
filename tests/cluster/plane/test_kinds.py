"""A workload of every kind on a real API server: bound all or nothing, in the queue that its owner states.

All are made at once, each but for its last pod; who is bound then is noted, and the last pods are made.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.resources import POD_GROUPS, PODS
from tests.cluster.plane.checker import GANG
from tests.cluster.plane.cluster import ALL, CRDS, SPACE, Cluster, checker_of
from tests.cluster.plane.kai_itself import KaiItself
from tests.cluster.plane.kinds import LATE, QUEUE, THIRD_PARTY, Maker
from tests.cluster.plane.plane import Plane, wait_for
from tests.cluster.plane.workloads import ALONE, TOGETHER
from tests.kai.oracle import kais_programs

LIMIT_S = 60.0


@dataclass(slots=True)
class Kinds:
    """All workloads; ``early``: pods bound while each lacked its last one."""

    cluster: Cluster
    makers: dict[str, Maker] = field(default_factory=dict)
    early: dict[str, int] = field(default_factory=dict)


@pytest.fixture(scope="module")
def kinds(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kinds]:
    cluster = Cluster(plane, tmp_path_factory.mktemp("kinds"), checker_of(plane, lambda _: False, 30.0))
    found = Kinds(cluster)
    cluster.checker.start()
    try:
        for group, kind, _ in THIRD_PARTY:
            if (group, kind) != LATE:
                Maker(plane, "").install(group, kind)
        cluster.nodes(4, gpus=32)
        cluster.queues(**{QUEUE: 128})
        cluster.controller()
        _make(found)
        yield found
    finally:
        for maker in found.makers.values():
            maker.remove()
        cluster.end()
        _uninstall(plane)
    assert cluster.complaints() == [], "the checker objects"


def _make(kinds: Kinds) -> None:
    plane, rest = kinds.cluster.plane, []
    for name, workload in TOGETHER.items():
        kinds.makers[name] = maker = Maker(plane, f"kind-{name}")
        *first, last = workload(maker)
        rest.append(last)
        for step in first:
            step()
    for name, (workload, _) in ALONE.items():
        kinds.makers[name] = maker = Maker(plane, f"kind-{name}", least=1)
        for step in workload(maker):
            step()
    for name, (_, count) in ALONE.items():  # made last: who was made before them was decided about when they are bound
        wait_for(f"{name}: {count} pods are bound", lambda n=name, c=count: kinds.makers[n].bound() == c, LIMIT_S)  # type: ignore[misc]
    kinds.early = {name: kinds.makers[name].bound() for name in TOGETHER}
    wait_for("pods that wait name their PodGroup", lambda: not _unnamed(kinds), LIMIT_S)
    for step in rest:
        step()


def _unnamed(kinds: Kinds) -> list[str]:
    """Pods of gangs that do not name a PodGroup that is there, or not their subgroup where that has some."""
    api, found = kinds.cluster.plane.api, []
    groups = {one["metadata"]["name"]: one["spec"] for one in api.page(POD_GROUPS, namespace=SPACE, limit=ALL).items}
    gangs = {kinds.makers[name].name for name in TOGETHER}
    for one in api.page(PODS, namespace=SPACE, limit=ALL).items:
        labels = one["metadata"].get("labels") or {}
        group = groups.get((one["metadata"].get("annotations") or {}).get("pod-group-name", ""), {})
        parts = [part["name"] for part in group.get("subGroups") or ()]
        is_named = bool(group) and (not parts or labels.get("kai.scheduler/subgroup-name") in parts)
        if labels.get(GANG) in gangs and not is_named:
            found.append(one["metadata"]["name"])
    return found


def _uninstall(plane: Plane) -> None:
    for group, kind, _ in THIRD_PARTY:
        try:
            plane.api.delete(CRDS, "", f"{kind.lower()}s.{group}")
        except ApiError as error:
            if not error.is_missing:
                raise


@pytest.mark.parametrize("name", TOGETHER)
def test_a_gang_is_bound_when_it_is_whole_and_not_before(kinds: Kinds, name: str) -> None:
    assert kinds.early[name] == 0
    wait_for(f"{name} is bound", lambda: kinds.makers[name].bound() == 2, LIMIT_S)


def test_every_pod_of_a_gang_names_its_pod_group_and_subgroup_with_the_rights_of_the_chart(kinds: Kinds) -> None:
    for name in TOGETHER:
        wait_for(f"{name} is bound", lambda n=name: kinds.makers[n].bound() == 2, LIMIT_S)  # type: ignore[misc]
    wait_for("all name their PodGroup", lambda: not _unnamed(kinds), LIMIT_S)


@pytest.mark.parametrize("name", ALONE)
def test_pods_that_need_nothing_are_bound_one_by_one(kinds: Kinds, name: str) -> None:
    assert kinds.makers[name].bound() == ALONE[name][1]


NEWER = frozenset({"job", "labels", "trainjob"})
"""KAI 0.12 names their groups otherwise: it knows no minimum of a Job, no groups that labels name, and no TrainJobs."""

SUBGROUPED = frozenset({"jobset", "pytorchjob", "leaderworkerset", "raycluster", "rayjob", "rayservice"})
"""Of these KAI has subgroups since later."""

SETTLED_S = 15.0
KEYS = "minMember", "queue", "priorityClassName"


def test_kais_own_pod_grouper_leaves_these_groups_as_they_are(kinds: Kinds) -> None:
    """On the way back from us it finds each pod in the group that it would make."""
    for name in TOGETHER:
        wait_for(f"{name} is bound", lambda n=name: kinds.makers[n].bound() == 2, LIMIT_S)  # type: ignore[misc]
    wait_for("all name their PodGroup", lambda: not _unnamed(kinds), LIMIT_S)
    before = _grouped(kinds)
    kai = KaiItself(kinds.cluster, programs=kais_programs())
    try:
        kai.start("pod grouper")
        time.sleep(SETTLED_S)
        after = _grouped(kinds)
        assert kai.processes["pod grouper"].runs
    finally:
        kai.end()
    assert len(before) > 35
    assert any(after[pod][1] != one[1] for pod, one in before.items() if one[0] in NEWER), "it was at work"
    named = {pod: one[1] for pod, one in before.items() if one[0] not in NEWER}
    assert {pod: after[pod][1] for pod in named} == named
    whole = {pod: one for pod, one in before.items() if one[0] not in NEWER | SUBGROUPED | {"grove", "dynamo"}}
    assert {pod: after[pod] for pod in whole} == whole


def _grouped(kinds: Kinds) -> dict[str, tuple[str, str, object]]:
    """By pod: the workload, the name of its PodGroup, and its minimum, queue and priority."""
    api = kinds.cluster.plane.api
    specs = {one["metadata"]["name"]: one["spec"] for one in api.page(POD_GROUPS, namespace=SPACE, limit=ALL).items}
    found: dict[str, tuple[str, str, object]] = {}
    for one in api.page(PODS, namespace=SPACE, limit=ALL).items:
        labels, group = one["metadata"].get("labels") or {}, one["metadata"]["annotations"]["pod-group-name"]
        found[one["metadata"]["name"]] = (
            labels[GANG].removeprefix("kind-"),
            group,
            {key: specs[group].get(key) for key in KEYS},
        )
    return found
