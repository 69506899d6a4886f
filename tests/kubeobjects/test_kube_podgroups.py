"""PodGroups: trees, preemptibility, times, membership."""

from typing import Any

import pytest

from kai_solver.domain import PodSet, SubGroup, TopologyConstraint, flat_gang

GROUP = {"pod-group-name": "pg"}


def leaf(name: str, members: int | None = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, **({} if members is None else {"minMember": members}), **more}


def group(build: Any, *parts: Any, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = build.pod_group(
        spec={"queue": "q", **({"subGroups": list(parts)} if parts else {}), **spec}
    )
    return found


def test_a_group_without_subgroups_is_flat(build: Any) -> None:
    constraint = {"topology": "t", "requiredTopologyLevel": "rack", "preferredTopologyLevel": "host"}
    gang = build.one_gang(group(build, minMember=3, topologyConstraint=constraint))
    assert gang.root == flat_gang(3, TopologyConstraint("t", "rack", "host"))
    assert build.one_gang(group(build)).root == flat_gang(1)
    assert build.one_gang(group(build, minMember=0, topologyConstraint={})).root == flat_gang(0)


def standing(build: Any, minimum: int, **phases: int) -> int:
    """What a gang that states ``minimum`` needs with so many pods of each phase."""
    pods = [
        build.pod(f"{phase}-{i}", annotations=GROUP, phase=phase.capitalize(), node="" if phase == "pending" else "n")
        for phase, count in phases.items()
        for i in range(count)
    ]
    gang = build.one_gang(group(build, minMember=minimum), *pods)
    (podset,) = gang.root.podsets()
    return int(podset.min_member)


@pytest.mark.parametrize(
    ("minimum", "phases", "needed"),
    [
        (3, {"running": 2, "pending": 1}, 3),
        (3, {"succeeded": 1, "running": 1, "pending": 1}, 2),  # the successor of a pod that was lost
        (3, {"succeeded": 1, "running": 1}, 2),
        (3, {"failed": 1, "running": 1, "pending": 1}, 3),  # who failed has not done its part
        (4, {"succeeded": 4, "pending": 1}, 1),  # the last of 5 completions, 4 at a time (KAI issue 1347)
        (4, {"succeeded": 8, "running": 3, "pending": 1}, 4),  # more to do than the minimum: still all at once
        (3, {"succeeded": 3}, 0),
    ],
)
def test_pods_that_succeeded_count_where_pods_are_missing(
    build: Any, minimum: int, phases: dict[str, int], needed: int
) -> None:
    assert standing(build, minimum, **phases) == needed


def test_pods_that_succeeded_count_in_their_own_subgroup(build: Any) -> None:
    done = build.pod(
        "done", annotations=GROUP, phase="Succeeded", node="n", labels={"kai.scheduler/subgroup-name": "a"}
    )
    root = build.one_gang(group(build, leaf("top", None), leaf("a", 2, parent="top"), leaf("b", 2)), done).root
    assert root == SubGroup("", (SubGroup("top", (PodSet("a", 1),)), PodSet("b", 2)))


def test_a_tree_of_subgroups(build: Any) -> None:
    constraint = {"topology": "t", "requiredTopologyLevel": "rack"}
    parts = [
        leaf("decode", None, minSubGroup=1, topologyConstraint=constraint),
        leaf("d-0", 2, parent="Decode"),
        leaf("d-1", 2, parent="decode"),
        leaf("prefill", 1),
    ]
    root = build.one_gang(group(build, *parts, minSubGroup=2)).root
    inner = SubGroup("decode", (PodSet("d-0", 2), PodSet("d-1", 2)), 1, TopologyConstraint("t", "rack", ""))
    assert root == SubGroup("", (inner, PodSet("prefill", 1)), 2)


def test_a_minimum_of_a_subgroup_below_zero_is_zero(build: Any) -> None:
    root = build.one_gang(group(build, leaf("a", -1), leaf("b", 2))).root
    assert root == SubGroup("", (PodSet("a", 0), PodSet("b", 2)))


@pytest.mark.parametrize(
    ("parts", "spec", "problem"),
    [
        ([], {"minMember": 1, "minSubGroup": 1}, "minSubGroup"),
        ([leaf("a"), leaf("a")], {}, "duplicate subgroup name a"),
        ([leaf("a", parent="x")], {}, "parent x of a was not found"),
        ([leaf("a", parent="b"), leaf("b", parent="a"), leaf("c")], {}, "cycle detected in subgroups"),
        ([leaf("a", None)], {}, "subgroup a: minMember is required"),
        ([leaf("a", None, minSubGroup=1)], {}, "leaf"),
        ([leaf("a", 1, minSubGroup=1)], {}, "minSubGroup"),
        ([leaf("a", 1, topologyConstraint={"requiredTopologyLevel": "rack"})], {}, "topology"),
        (
            [leaf(str(i), None, parent=str(i - 1) if i else "") for i in range(99)] + [leaf("z", 1, parent="98")],
            {},
            "deep",
        ),
        ([], {"minMember": "two"}, "whole number"),
        ([], {"preemptionDelay": "soon"}, "duration"),
    ],
)
def test_a_broken_group_is_set_aside_and_its_running_pods_stay_load(
    build: Any, parts: list[Any], spec: dict[str, Any], problem: str
) -> None:
    pod = build.pod(annotations=GROUP, node="n", phase="Running", labels={"kai.scheduler/subgroup-name": "a"})
    found = build.read(group(build, *parts, **spec), pod)
    (gang,) = found.gangs
    assert problem in gang.set_aside
    assert gang.queue == "q"
    assert [p.podset for p in gang.pods] == ["default"]
    assert any(text.startswith("PodGroup ns/pg: ") for text in build.texts(found, "set-aside"))


def test_min_member_of_a_parent_is_a_warning(build: Any) -> None:
    found = build.read(group(build, leaf("a", 3), leaf("b", 1, parent="a")))
    assert not found.gangs[0].set_aside
    assert any('subgroup "a": minMember cannot be set' in text for text in build.texts(found, "warning"))


def test_pods_sit_in_the_leaf_that_they_name(build: Any) -> None:
    pod = build.pod(annotations=GROUP, labels={"kai.scheduler/subgroup-name": "b"})
    assert build.one_pod(group(build, leaf("a"), leaf("b")), pod).podset == "b"


def test_only_the_pod_that_names_an_unknown_subgroup_is_ignored(build: Any) -> None:
    lost = build.pod("lost", annotations=GROUP, labels={"kai.scheduler/subgroup-name": "x"}, node="n", phase="Running")
    found = build.read(group(build, minMember=1), lost, build.pod("fine", annotations=GROUP))
    assert [pod.name for pod in found.gangs[0].pods] == ["fine"]
    assert [pod.name for pod in found.foreign] == ["lost"]  # it still holds its place
    text = 'Pod ns/lost: Pod references subgroup "x", which does not exist in PodGroup ns/pg'
    assert text in build.texts(found, "set-aside")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"priorityClassName": "train"}, True),
        ({"priorityClassName": "build"}, False),
        ({"priorityClassName": "build", "preemptibility": "preemptible"}, True),
        ({"priorityClassName": "train", "preemptibility": "non-preemptible"}, False),
        ({"priorityClassName": "train", "preemptibility": "semi-preemptible"}, True),
    ],
)
def test_preemptibility_is_stated_or_follows_from_priority(build: Any, spec: dict[str, Any], expected: bool) -> None:
    assert build.one_gang(group(build, **spec)).preemptible is expected


def test_times_and_delays(build: Any) -> None:
    annotations = {
        "kai.scheduler/last-start-timestamp": "1970-01-01T00:00:10Z",
        "kai.scheduler/last-eviction-timestamp": "1970-01-01T01:00:20+01:00",
        "kai.scheduler/stale-podgroup-timestamp": "1970-01-01T00:00:30.5Z",
    }
    more = {"metadata": {"annotations": annotations, "creationTimestamp": "1970-01-01T00:00:05Z"}}
    spec = {"queue": "q", "minMember": 1, "preemptionDelay": "1m", "stalenessGracePeriod": "-1s"}
    gang = build.one_gang(build.pod_group(spec=spec, more=more))
    assert (gang.created_s, gang.last_start_s, gang.last_eviction_s, gang.stale_since_s) == (5.0, 10.0, 20.0, 30.5)
    assert (gang.preemption_delay_s, gang.staleness_grace_s) == (60.0, -1.0)
    bare = build.one_gang(build.pod_group())
    assert (bare.last_start_s, bare.stale_since_s, bare.staleness_grace_s, bare.preemption_delay_s) == (
        None,
        None,
        None,
        0,
    )


def test_queues_that_do_not_exist_are_left_to_the_engine(build: Any) -> None:
    gang = build.one_gang(group(build, queue="typo"))
    assert (gang.queue, gang.set_aside) == ("typo", "")


def test_a_pod_whose_group_does_not_exist_waits_and_says_so(build: Any) -> None:
    found = build.read(build.pod("w", annotations=GROUP), build.pod("r", annotations=GROUP, node="n", phase="Running"))
    assert found.gangs == ()
    assert [pod.name for pod in found.foreign] == ["r"]
    assert any("waits for PodGroup ns/pg" in text for text in build.texts(found))


def test_groups_of_one_name_in_two_namespaces_are_two(build: Any) -> None:
    other = build.pod_group(more={"metadata": {"namespace": "elsewhere"}})
    found = build.read(build.pod_group(), other, build.pod(annotations=GROUP))
    assert [(gang.key, len(gang.pods)) for gang in found.gangs] == [("ns/pg", 1), ("elsewhere/pg", 0)]


def test_a_pod_joins_the_group_of_its_owner_by_reference_or_annotation(build: Any) -> None:
    by_reference = build.pod_group("a", more={"metadata": {"ownerReferences": [{"kind": "Job", "uid": "u1"}]}})
    text = "name: j\nuid: u2\ngroup: batch\nversion: v1\nkind: Job\n"
    by_annotation = build.pod_group("b", more={"metadata": {"annotations": {"kai.scheduler/top-owner-metadata": text}}})
    found = build.read(
        by_reference,
        by_annotation,
        build.pod("p1", owner=build.owner("Job", uid="u1")),
        build.pod("p2", owner=build.owner("Job", uid="u2")),
    )
    assert [(gang.name, [pod.name for pod in gang.pods]) for gang in found.gangs] == [("a", ["p1"]), ("b", ["p2"])]


def test_where_an_owner_has_several_groups_the_pod_is_grouped_by_its_family(build: Any) -> None:
    reference = {"metadata": {"ownerReferences": [{"kind": "Deployment", "uid": "u"}]}}
    pod = build.pod("p", owner=build.owner("Deployment", "d", "apps/v1", "u"))
    found = build.read(build.pod_group("a", more=reference), build.pod_group("b", more=reference), pod)
    assert {gang.name: len(gang.pods) for gang in found.gangs} == {"a": 0, "b": 0, "pg-p-uid-p": 1}


def test_a_deployments_second_pod_does_not_join_the_group_of_its_first(build: Any) -> None:
    reference = {"metadata": {"ownerReferences": [{"kind": "Deployment", "uid": "u"}]}}
    owner = build.owner("Deployment", "d", "apps/v1", "u")
    pods = [build.pod("p", owner=owner, annotations=GROUP), build.pod("r", owner=owner)]
    found = build.read(build.pod_group("pg", more=reference), *pods)
    assert {gang.name: [pod.name for pod in gang.pods] for gang in found.gangs} == {"pg": ["p"], "pg-r-uid-r": ["r"]}


def test_a_pod_that_joins_sits_in_the_leaf_of_its_family(build: Any) -> None:
    reference = {"metadata": {"ownerReferences": [{"kind": "RayCluster", "uid": "u"}]}}
    group_ = group(build, leaf("headgroup"), leaf("g", 2)) | {}
    group_["metadata"] |= reference["metadata"]
    owner = build.owner("RayCluster", "ray", "ray.io/v1", "u")
    pods = [build.pod("h", owner=owner, labels={"ray.io/node-type": "head"})]
    pods += [build.pod(f"w{i}", owner=owner, labels={"ray.io/group": "g"}) for i in range(2)]
    gang = build.one_gang(group_, *pods)
    assert [pod.podset for pod in gang.pods] == ["headgroup", "g", "g"]
