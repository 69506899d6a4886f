"""Reviews: what is asked is read whole, what is malformed is an error, what is answered can be read."""

import base64
import json
import time
from typing import Any

import pytest

from kai_solver.controller.admission.review import MOST_VALUES, Asked, Decision, answered
from kai_solver.controller.admission.verdict import Verdict, refuse, warn
from kai_solver.errors import InputError


def review(**request: Any) -> dict[str, Any]:
    base = {
        "uid": "u1",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "team",
        "name": "p",
        "object": {"metadata": {"labels": {"a": "b"}}, "spec": {}},
        "oldObject": None,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": base | request}


def response(decision: Decision, **request: Any) -> dict[str, Any]:
    answer = answered(json.dumps(review(**request)).encode(), lambda _: decision)
    assert answer.status == 200
    found = json.loads(answer.body)
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert isinstance(found["response"], dict)
    return found["response"]


@pytest.mark.parametrize("values", ['{"a":1}', "[]", "0", '""'])
@pytest.mark.parametrize("must_read", [True, False])
def test_more_values_than_any_object_has_are_not_read(values: str, must_read: bool) -> None:
    many = json.dumps(review(object={"spec": {"x": "@"}})).replace('"@"', f"[{','.join([values] * MOST_VALUES)}]")
    answer = answered(many.encode(), lambda _: Decision(), lambda: must_read)
    assert b"more than 400000 values" in answer.body
    if not must_read:
        assert answer.status == 413
        return
    assert answer.status == 200
    found = json.loads(answer.body)["response"]
    assert (found["uid"], found["allowed"], found["status"]["code"]) == ("u1", False, 403)


@pytest.mark.parametrize("text", [",", "{", "[", '\\",', '",\\\\', "\\\\,"])
def test_commas_and_brackets_in_strings_are_no_values(text: str) -> None:
    large = review(object={"spec": {"x": text * (MOST_VALUES + 1), "y": '"'}, "z": "\\"}, oldObject={"a": "b"})
    answer = answered(json.dumps(large).encode(), lambda _: Decision(refuse("no")))
    assert json.loads(answer.body)["response"]["allowed"] is False


@pytest.mark.parametrize("text", [b'"', b'{"', b'{"' + b'",\\"' * 10, b'["\\",', b"\\", b'",' * 3])
def test_what_is_no_json_costs_no_more_than_what_is(text: bytes) -> None:
    body, began_s = (text * (8 << 20))[: 8 << 20], time.process_time()
    assert answered(body, lambda _: Decision()).status in (400, 413)
    assert time.process_time() - began_s < 5


@pytest.mark.parametrize(
    "end", [b'{"a":', b'{"request":{"object":{"request":{"uid":"u1"', b'{"a":{"request":{"uid":"u1"']
)
def test_only_the_requests_own_uid_is_answered(end: bytes) -> None:
    assert answered(end + b"[" * (MOST_VALUES + 1), lambda _: Decision(), lambda: True).status == 413


def test_what_is_asked_has_its_name_and_namespace() -> None:
    seen: list[Asked] = []
    body = json.dumps(review(resource={"group": "scheduling.run.ai", "resource": "queues"})).encode()

    def see(asked: Asked) -> Decision:
        seen.append(asked)
        return Decision()

    answered(body, see)
    assert seen == [
        Asked(
            uid="u1",
            resource="queues.scheduling.run.ai",
            operation="CREATE",
            namespace="team",
            after={"metadata": {"labels": {"a": "b"}, "namespace": "team", "name": "p"}, "spec": {}},
        )
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps(review() | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        json.dumps(review() | {"kind": "Pod"}).encode(),
        json.dumps(review() | {"request": None}).encode(),
        json.dumps(review() | {"request": 7}).encode(),
        json.dumps(review(uid="")).encode(),
        json.dumps(review(operation=5)).encode(),
        json.dumps(review(resource="pods")).encode(),
        json.dumps(review(object=[1])).encode(),
        json.dumps(review(object={"metadata": "x"})).encode(),
    ],
)
def test_what_is_no_review_is_an_error(body: bytes) -> None:
    def never(_: Asked) -> Decision:
        raise AssertionError

    answer = answered(body, never)
    assert answer.status == 400
    assert b"AdmissionReview" in answer.body


def test_a_refusal_says_why() -> None:
    found = response(Decision(refuse("no") + refuse("never")))
    assert found == {
        "uid": "u1",
        "allowed": False,
        "status": {"code": 403, "reason": "Forbidden", "message": "no\nnever"},
    }


def test_a_patch_comes_with_consent_only() -> None:
    patch = ({"op": "add", "path": "/spec/schedulerName", "value": "kai-scheduler"},)
    found = response(Decision(patch=patch))
    assert (found["allowed"], found["patchType"]) == (True, "JSONPatch")
    assert json.loads(base64.b64decode(found["patch"])) == list(patch)
    assert "patch" not in response(Decision(refuse("no"), patch))


def test_warnings_are_lines_that_fit_into_headers() -> None:
    verdict = Verdict(warnings=("two\nlines", "x" * 1000, *("same",) * 3, *(f"w{i}" for i in range(40))))
    found = response(Decision(verdict))
    assert found["allowed"]
    assert found["warnings"][0] == "two lines"
    assert len(found["warnings"][1]) == 256
    assert found["warnings"].count("same") == 1
    assert len(found["warnings"]) == 15


def test_what_was_wrong_before_is_no_reason_to_refuse_a_change() -> None:
    after = refuse("old sin") + refuse("new sin") + warn("careful")
    assert after.excusing(refuse("old sin")) == Verdict(("new sin",), ("careful", "old sin"))
    assert after.excusing(Verdict()) == after


def test_kais_words_come_first_and_the_cure_after_them() -> None:
    error = InputError("too much", field="spec.x", cure="Ask for less")
    assert refuse(error).refusals == ("too much. Ask for less",)


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [
        (Decision(), "admitted"),
        (Decision(warn("w")), "warned"),
        (Decision(warn("w"), ({"op": "add"},)), "patched"),
        (Decision(refuse("r") + warn("w")), "refused"),
    ],
)
def test_outcomes(decision: Decision, outcome: str) -> None:
    assert decision.outcome == outcome
