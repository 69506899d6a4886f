"""The published plan format: keys as promised, and nothing lost on the way out and in."""

import math
from typing import Any

import orjson
import pytest

from kai_solver.domain import (
    Action,
    AtMost,
    Bind,
    Blocker,
    Device,
    Eviction,
    FitError,
    GpuLink,
    Move,
    Pending,
    Plan,
    Proof,
    Reason,
    Stage,
    ZoneShare,
)
from kai_solver.errors import InputError
from kai_solver.instances_io.planfile import plan_from_document, plan_schema, plan_to_document
from tests.support.schemas import violations

PLAN = Plan(
    binds=(
        Bind("ns/p", "ns/g", "n1", (Device(0, 1000, "GPU-1"), Device(1, 500)), link=GpuLink("NV2", 50)),
        Bind("ns/q", "ns/g", "n1", nominated=True, action=Action.RECLAIM),
        Bind("ns/r", "ns/g", "n1", zones=(ZoneShare("node-0", (("cpu", 2000),)), ZoneShare("node-1", ()))),
    ),
    moves=(
        Move("ns/m", "ns/h", "n1", "n2", (Device(3, 1000),), ("ns/g",), link=GpuLink()),
        Move("ns/z", "ns/h", "n1", "n1", zones=(ZoneShare("node-1", (("cpu", 2000), ("gpu", 1000))),)),
    ),
    evictions=(
        Eviction("ns/e", "ns/i", "n1", "reclaim", ("ns/g",), "made room\nfor ns/g"),
        Eviction("ns/s", "ns/j", "n2", "stale"),
    ),
    pending=(
        Pending(
            "ns/w",
            Reason.OVER_LIMIT,
            "too much",
            Proof("proven", "limit", (Blocker("queue-limit", "q", "8", "4", "r0", "gpu", 4000),), True),
        ),
        Pending(
            "ns/x",
            Reason.NOT_ENOUGH_RESOURCES,
            "full\n0/2 nodes are available",
            Proof("unasked"),
            (FitError("NotEnoughResources", ("full\n0/2 nodes",), ("full:\n2 nodes",)),),
        ),
        Pending("ns/y", Reason.NOT_ENOUGH_RESOURCES, "full", Proof("proven", "count", beside="plan")),
        Pending("ns/z", Reason.NOT_ENOUGH_RESOURCES, "full", Proof("unknown", "budget", at_most=AtMost(3, 1))),
    ),
    admitted=(("ns/g", Action.RECLAIM),),
    stages=(Stage("disruption", 3.5, 3.5, True), Stage("preference", 10.0, -math.inf, False)),
    source="cp-sat",
    timing_s={"decide": 0.25, "greedy": 0.01},
    model="default",
    model_hash="0123456789ab",
    seed=7,
    versions={"kai-solver": "0.1.0"},
    notes=("the budget ended",),
)


def document() -> dict[str, Any]:
    loaded: dict[str, Any] = orjson.loads(orjson.dumps(plan_to_document(PLAN)))
    return loaded


def test_a_plan_is_written_and_read_without_loss() -> None:
    assert plan_from_document(document()) == PLAN


def test_lines_of_a_message_stay_and_all_else_is_escaped() -> None:
    spoilt = document()
    spoilt["evictions"][0]["message"] = "made\x1b[31m\nroom\r"
    spoilt["evictions"][0]["node"] = "n1\nForged"
    eviction = plan_from_document(spoilt).evictions[0]
    assert (eviction.message, eviction.node) == ("made\\x1b[31m\nroom\\r", "n1\\nForged")


def test_an_empty_plan_is_written_and_read() -> None:
    assert plan_from_document(plan_to_document(Plan())) == Plan()


def test_keys_are_as_published() -> None:
    doc = document()
    assert doc["binds"][0]["devices"] == [{"index": 0, "milli": 1000, "uuid": "GPU-1"}, {"index": 1, "milli": 500}]
    assert doc["binds"][0]["link"] == {"kind": "NV2", "gb_s": 50}
    assert "link" not in doc["binds"][1]
    assert doc["binds"][1]["nominated"] is True
    assert {"pod", "gang", "from", "to", "devices", "for"} <= doc["moves"][0].keys()
    assert {"pod", "gang", "node", "reason", "for"} <= doc["evictions"][0].keys()
    assert doc["pending"][0]["proof"] == {
        "state": "proven",
        "method": "limit",
        "blocking": [
            {
                "kind": "queue-limit",
                "name": "q",
                "need": "8",
                "have": "4",
                "where": "r0",
                "resource": "gpu",
                "short": 4000,
            }
        ],
        "minimal": True,
    }
    assert {"stages", "source", "timing", "model", "seed", "versions"} <= doc.keys()
    assert doc["timing"]["decide"] == 0.25


def test_a_stage_without_a_bound_says_null() -> None:
    assert document()["stages"][1]["bound"] is None


@pytest.mark.slow
def test_what_is_written_follows_the_schema() -> None:
    assert violations(document(), plan_schema()) == []
    assert violations(document() | {"binds": [{"pod": "p"}]}, plan_schema())


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        ({"binds": [{"pod": "p", "gang": "g"}]}, "binds[0].node"),
        (
            {"binds": [{"pod": "p", "gang": "g", "node": "n", "devices": [{"index": -1, "milli": 1}]}]},
            "binds[0].devices[0].index",
        ),
        ({"evictions": [{"pod": "p", "gang": "g", "node": "n", "reason": "mood"}]}, "evictions[0].reason"),
        (
            {"pending": [{"gang": "g", "reason": "Because", "message": "", "proof": {"state": "proven"}}]},
            "pending[0].reason",
        ),
        ({"source": "oracle"}, "source"),
        ({"bindings": []}, "bindings"),
    ],
)
def test_a_slip_is_named_with_its_field(spoil: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_from_document(document() | spoil, "plan.json")
    assert (caught.value.file, caught.value.field) == ("plan.json", field)


@pytest.mark.parametrize("value", [None, [], 3, "plan"])
def test_what_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(InputError):
        plan_from_document(value)
