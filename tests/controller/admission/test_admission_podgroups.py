"""Rules on PodGroups, each alone: KAI's words."""

from typing import Any

import pytest

from kai_solver.controller.admission.podgroups import pod_group_verdict
from kai_solver.controller.admission.verdict import Verdict
from kai_solver.kubeobjects.raw import Raw


def part(name: str, parent: str = "", **fields: Any) -> dict[str, Any]:
    return {"name": name, **({"parent": parent} if parent else {}), **fields}


def judged(cluster: Any, is_new: bool = True, **spec: Any) -> Verdict:
    return pod_group_verdict(Raw({"metadata": {"name": "g"}, "spec": spec}), cluster.lookup, is_new=is_new)


LEAF = part("a", minMember=1)


@pytest.mark.parametrize(
    "spec",
    [
        {"minMember": 4},
        {"minMember": 0},
        {},
        {"subGroups": [LEAF, part("b", minMember=2)]},
        {"minSubGroup": 1, "subGroups": [part("p", minSubGroup=1), part("b", "p", minMember=2)]},
    ],
)
def test_what_kai_keeps_is_kept(cluster: Any, spec: dict[str, Any]) -> None:
    assert judged(cluster, **spec) == Verdict()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"minMember": 4, "minSubGroup": 1}, "minMember and minSubGroup are mutually exclusive: set minMember (4) to"),
        (
            {"subGroups": [part("a", minMember=1, minSubGroup=1)]},
            'subgroup "a": minMember and minSubGroup are mutually exclusive',
        ),
        ({"subGroups": [LEAF, LEAF]}, "duplicate subgroup name a"),
        ({"subGroups": [part("b", "x", minMember=1)]}, "parent x of b was not found"),
        ({"subGroups": [part("a", "a", minMember=1)]}, "cycle detected in subgroups"),
        (
            {"subGroups": [part("a", "c", minMember=1), part("b", "a", minMember=1), part("c", "b", minMember=1)]},
            "cycle detected in subgroups",
        ),
        ({"subGroups": [part("a")]}, "subgroup a: minMember is required"),
        (
            {"subGroups": [part("a", minSubGroup=1)]},
            'subgroup "a": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)',
        ),
        (
            {"subGroups": [part("p", minMember=1), part("b", "p", minMember=2)]},
            'subgroup "p": minMember cannot be set on a mid-level SubGroup (has child SubGroups)',
        ),
    ],
)
def test_what_kai_refuses_is_refused_in_its_words(cluster: Any, spec: dict[str, Any], message: str) -> None:
    (refusal,) = judged(cluster, **spec).refusals
    assert refusal.startswith(message)


def test_a_minimum_on_a_parent_is_a_warning_on_what_is_there_already(cluster: Any) -> None:
    spec = {"subGroups": [part("p", minMember=1), part("b", "p", minMember=2)]}
    verdict = judged(cluster, is_new=False, **spec)
    assert verdict.refusals == ()
    assert "use minSubGroup instead" in verdict.warnings[0]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"minSubGroup": 3, "subGroups": [LEAF]}, "minSubGroup (3) exceeds the number of direct child SubGroups (1)"),
        (
            {"subGroups": [part("p", minSubGroup=2), part("b", "p", minMember=2)]},
            'subgroup "p": minSubGroup (2) exceeds the number of direct child SubGroups (1)',
        ),
    ],
)
def test_more_subgroups_than_there_are_is_a_warning(cluster: Any, spec: dict[str, Any], message: str) -> None:
    assert judged(cluster, **spec) == Verdict(warnings=(message,))


def test_a_level_without_a_topology_is_a_warning(cluster: Any) -> None:
    for spec in (
        {"topologyConstraint": {"requiredTopologyLevel": "rack"}},
        {"subGroups": [LEAF | {"topologyConstraint": {"requiredTopologyLevel": "rack"}}]},
    ):
        verdict = judged(cluster, **spec)
        assert verdict.refusals == ()
        assert "topology" in verdict.warnings[0]


def test_the_queue_must_exist(cluster: Any) -> None:
    assert judged(cluster, queue="research") == Verdict()
    assert judged(cluster, queue="reserch").refusals == ("Queue 'reserch' does not exist. Did you mean 'research'?",)


def test_the_queue_of_one_that_a_grouper_made_is_a_warning(cluster: Any) -> None:
    made = {"metadata": {"name": "g", "ownerReferences": [{"kind": "Job"}]}, "spec": {"queue": "reserch"}}
    text = "Queue 'reserch' does not exist. Did you mean 'research'?"
    assert pod_group_verdict(Raw(made), cluster.lookup, is_new=True) == Verdict(warnings=(text,))
