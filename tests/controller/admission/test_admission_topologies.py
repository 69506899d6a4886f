"""Rules on topologies, each alone."""

from typing import Any

import pytest

from kai_solver.controller.admission.topologies import topology_verdict
from kai_solver.controller.admission.verdict import Verdict
from kai_solver.kubeobjects.raw import Raw


def topology(*levels: tuple[str, str]) -> Raw:
    return Raw(
        {
            "metadata": {"name": "t"},
            "spec": {"levels": [{"nodeLabel": label, "alias": alias} for label, alias in levels]},
        }
    )


GOOD = (("zone", "z"), ("rack", ""), ("kubernetes.io/hostname", "host"))
UNIQUE = "invalid topology aliases: aliases must be unique within the topology; duplicated: [z]"
CONFLICT = "invalid topology aliases: an alias must not equal a nodeLabel; conflicting: [rack]"


def test_a_good_one_is_kept() -> None:
    assert topology_verdict(topology(*GOOD)) == Verdict()
    assert topology_verdict(topology(*((f"l{i}", "") for i in range(16)))) == Verdict()


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ((), "has no levels"),
        (tuple((f"l{i}", "") for i in range(17)), "there are 17 levels"),
        ((("rack", ""), ("rack", "")), "twice"),
        ((("kubernetes.io/hostname", ""), ("rack", "")), "can only be the last level"),
        ((("zone", "z"), ("rack", "z")), UNIQUE),
        ((("zone", "rack"), ("rack", "")), CONFLICT),
    ],
)
def test_a_broken_one_is_refused(levels: Any, message: str) -> None:
    (refusal,) = topology_verdict(topology(*levels)).refusals
    assert message in refusal


def test_only_aliases_may_change() -> None:
    renamed = topology(("zone", "area"), *GOOD[1:])
    assert topology_verdict(renamed, topology(*GOOD)) == Verdict()
    for changed in (topology(*GOOD[1:]), topology(("area", "z"), *GOOD[1:])):
        (refusal,) = topology_verdict(changed, topology(*GOOD)).refusals
        assert refusal.startswith("nodeLabel structure is immutable; only aliases may be edited")
