"""Admission reviews (``admission.k8s.io/v1``): read, decided, answered."""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import orjson

from kai_solver.cluster.api import Object
from kai_solver.controller.admission.verdict import FINE, Verdict, refuse
from kai_solver.controller.serving import Answer
from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import Raw

API_VERSION = "admission.k8s.io/v1"
MOST_VALUES = 400_000
"""In objects and lists: read, a small object costs 30 times its text, so that 8 MiB would be 240 of
memory. A pod with 1,000 containers has 10,000."""

_VALUE = re.compile(rb'[,{\[](?:[^",{\[]++|"[^"]*+"?+)*+')
"""A character that begins a value, up to the next one outside strings; strings have no escaped quotes any more."""

_UID = re.compile(rb'\s*\{[^{}]{0,200}"request"\s*:\s*\{\s*"uid"\s*:\s*"([\w.-]{1,100})"')
"""Where API servers write it: first in the request, before what users can write."""

_LONGEST_WARNING = 256
"""Characters; the API server cuts off what is longer, and shows 4,096 at most."""

_MOST_WARNINGS = 15


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked: may this be done to that object?

    ``resource`` is ``plural.group``; ``after`` is empty where the object is deleted, ``before`` where it is new.
    ``user`` and ``groups``: the author of the request, as the API server knows it.
    """

    uid: str
    resource: str
    operation: str
    namespace: str
    after: Object = field(default_factory=dict)
    before: Object = field(default_factory=dict)
    user: str = ""
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, and operations of a JSON patch where something is filled in."""

    verdict: Verdict = FINE
    patch: tuple[dict[str, Any], ...] = ()

    @property
    def outcome(self) -> str:
        """In one word."""
        if self.verdict.refusals:
            return "refused"
        return "patched" if self.patch else "warned" if self.verdict.warnings else "admitted"


class TooLargeError(InputError):
    """A review has more than is read."""


def answered(
    body: bytes | bytearray, decide: Callable[[Asked], Decision], must_read: Callable[[], bool] = lambda: False
) -> Answer:
    """The answer to a review; 400 where it is none, and as `unread` says where it is too large."""
    try:
        asked = read_review(body)
    except TooLargeError as error:
        return unread(body, error.problem, must_read)
    except InputError as error:
        return Answer(400, f"this is not an AdmissionReview of {API_VERSION}: {error}\n".encode())
    return Answer(200, orjson.dumps(_response(asked, decide(asked))), "application/json")


def unread(head: bytes | bytearray, problem: str, must_read: Callable[[], bool]) -> Answer:
    """The answer to a review that is too large, by its beginning: a refusal where ``must_read``.

    Upon any other answer than 200 the API server goes on without us. So a user could write what rules forbid, beside
    what is too much to be read.
    """
    found = _UID.match(head)
    if found is None or not must_read():
        return Answer(413, f"{problem}\n".encode())
    refusal = refuse(InputError(f"this cannot be checked: {problem}", cure="Write less into the object"))
    asked = Asked(found[1].decode(), "", "", "")
    return Answer(200, orjson.dumps(_response(asked, Decision(refusal))), "application/json")


def read_review(body: bytes | bytearray) -> Asked:
    """What a review asks.

    Raises
    ------
    TooLargeError
        It has more values than any object needs.
    InputError
        It is not one of the version that we know, or lacks something.
    """
    if _has_too_many_values(body):
        raise TooLargeError(f"the review has more than {MOST_VALUES} values")
    try:
        raw = Raw(orjson.loads(body))
    except orjson.JSONDecodeError as error:
        raise InputError(f"it is not JSON: {error}") from error
    if (raw.text("apiVersion"), raw.text("kind")) != (API_VERSION, "AdmissionReview"):
        raise InputError(f"is {raw.text('apiVersion')!r}", field="apiVersion", cure=f"Write {API_VERSION}")
    request = raw.get("request")
    namespace, group = request.text("namespace"), request.text("resource.group")
    plural = request.required("resource.resource")
    return Asked(
        uid=request.required("uid"),
        resource=f"{plural}.{group}" if group else plural,
        operation=request.required("operation"),
        namespace=namespace,
        after=_object(request.get("object"), request),
        before=_object(request.get("oldObject"), request),
        user=request.text("userInfo.username"),
        groups=frozenset(group.text() for group in request.items("userInfo.groups")),
    )


def _has_too_many_values(body: bytes | bytearray) -> bool:
    """Whether there are more values than `MOST_VALUES`, as an upper bound; what is in strings does not count."""
    if sum(map(body.count, (b",", b"{", b"["))) <= MOST_VALUES:
        return False
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return next(islice(_VALUE.finditer(unescaped), MOST_VALUES, None), None) is not None


def _object(raw: Raw, request: Raw) -> Object:
    """An object with the namespace and name of the request, which new ones may lack."""
    fields = dict(raw.fields())
    if not fields:
        return {}
    metadata = {key: value.value for key, value in raw.fields("metadata")}
    for key in ("namespace", "name"):
        stated = request.text(key)
        if stated and not metadata.get(key):
            metadata[key] = stated
    return {key: value.value for key, value in fields.items()} | {"metadata": metadata}


def _response(asked: Asked, decision: Decision) -> dict[str, Any]:
    verdict = decision.verdict
    response: dict[str, Any] = {"uid": asked.uid, "allowed": not verdict.refusals}
    if verdict.refusals:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": "\n".join(verdict.refusals)}
    elif decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(list(decision.patch))).decode()
    warnings = [_one_line(text) for text in dict.fromkeys(verdict.warnings)]
    if warnings:
        response["warnings"] = warnings[:_MOST_WARNINGS]
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def _one_line(text: str) -> str:
    """Warnings become HTTP headers: one line each, without control characters."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= _LONGEST_WARNING else f"{line[: _LONGEST_WARNING - 3]}..."
