"""Rules on queues, each alone."""

from typing import Any

import pytest

from kai_solver.cluster.resources import QUEUES
from kai_solver.controller.admission.queues import queue_verdict
from kai_solver.controller.admission.verdict import Verdict
from kai_solver.kubeobjects.raw import Raw


def queue(name: str, parent: str = "", quota: float = 0, **spec: Any) -> dict[str, Any]:
    amounts = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
    resources = dict.fromkeys(("cpu", "memory", "gpu"), amounts)
    return {"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources} | spec}


def judged(cluster: Any, value: Any, **options: bool) -> Verdict:
    return queue_verdict(Raw(value), cluster.lookup, **options)


def put(cluster: Any, *values: Any) -> None:
    for value in values:
        cluster.create(QUEUES, "", value)
    cluster.listed()


def test_resources_must_be_there(cluster: Any) -> None:
    (refusal,) = judged(cluster, {"metadata": {"name": "q"}, "spec": {}}).refusals
    assert refusal.startswith("resources must be specified")
    assert judged(cluster, queue("q")) == Verdict()


def test_a_parent_that_exists_is_fine_also_when_just_made(cluster: Any) -> None:
    assert judged(cluster, queue("q", "root")) == Verdict()
    cluster.create(QUEUES, "", queue("roots"))
    assert judged(cluster, queue("q", "roots")) == Verdict()


def test_a_typo_in_the_parent_is_refused(cluster: Any) -> None:
    verdict = judged(cluster, queue("q", "rooot"))
    assert verdict.refusals == ("the parent queue 'rooot' does not exist. Did you mean 'root'?",)
    assert judged(cluster, queue("q", "rooot"), refuses_unknown=False).refusals == ()


def test_a_parent_that_may_still_come_is_warned_of(cluster: Any) -> None:
    (warning,) = judged(cluster, queue("q", "departments")).warnings
    assert "'departments' does not exist" in warning


def test_a_parent_is_not_refused_while_the_server_does_not_answer(cluster: Any) -> None:
    cluster.broken = True
    assert judged(cluster, queue("q", "rooot")) == Verdict()


@pytest.mark.parametrize("parent", ["root", "research"])
def test_parents_in_a_loop_are_refused(cluster: Any, parent: str) -> None:
    (refusal,) = judged(cluster, queue("root", parent)).refusals
    assert "form a loop" in refusal


def test_what_could_not_be_used_is_warned_of(cluster: Any) -> None:
    (warning,) = judged(cluster, queue("q", quota=-5)).warnings
    assert "takes no part" in warning


def test_quotas_above_the_parents_are_warned_of_where_asked_for(cluster: Any) -> None:
    put(cluster, queue("p", quota=4), queue("a", "p", quota=3))
    assert judged(cluster, queue("b", "p", quota=2)) == Verdict()
    found = judged(cluster, queue("b", "p", quota=2), quota_warnings=True).warnings
    assert "total children GPU quota (5.00) exceeds parent queue p GPU quota (4.00)" in found
    assert "total children CPU quota (5) exceeds parent queue p CPU quota (4)" in found
    assert judged(cluster, queue("b", "p", quota=1), quota_warnings=True) == Verdict()
    alone = judged(cluster, queue("b", "p", quota=9), quota_warnings=True).warnings
    assert "child queue Memory quota (9) exceeds parent queue p Memory quota (4)" in alone


def test_a_parents_quota_below_its_childrens_is_warned_of(cluster: Any) -> None:
    put(cluster, queue("p", quota=4), queue("a", "p", quota=3))
    found = judged(cluster, queue("p", quota=2), quota_warnings=True).warnings
    assert "total children GPU quota (3.00) exceeds parent GPU quota (2.00)" in found
    assert judged(cluster, queue("p", quota=3), quota_warnings=True) == Verdict()


def test_unlimited_is_above_every_number_and_below_none(cluster: Any) -> None:
    put(cluster, queue("p", quota=4), queue("free", quota=-1))
    found = judged(cluster, queue("b", "p", quota=-1), quota_warnings=True).warnings
    assert "child queue GPU quota (unlimited) exceeds parent queue p GPU quota (4.00)" in found
    assert judged(cluster, queue("b", "free", quota=9), quota_warnings=True) == Verdict()
