"""Checks callers by asking the API server, as the metrics ports of Kubernetes components do."""

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from kai_solver.cluster.api import Api, ApiError
from kai_solver.cluster.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from kai_solver.controller.serving.answers import Answer
from kai_solver.kubeobjects.raw import Raw

_LOG = structlog.get_logger(__name__)

KEPT_S = 10.0
"""An answer of the API server is kept for this time: a right that is removed ends no later."""

ANSWER_S = 5.0
"""The API server may take this time."""

_MOST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class _Kept:
    refusal: Answer | None
    until_s: float


class Callers:
    """A guard: a caller sends a bearer token whose user may ``get`` the path, a non-resource URL of Kubernetes' RBAC.

    It fails closed: if the API server does not answer, no caller is admitted. Tokens are kept only as hashes.
    """

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api.within(ANSWER_S)
        self._clock = clock
        self._kept: dict[tuple[bytes, str], _Kept] = {}
        self._lock = threading.Lock()

    def __call__(self, path: str, authorization: str) -> Answer | None:
        """401 without a valid token, 403 without the right, 503 without an answer of the API server; else None."""
        kind, _, token = authorization.partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token:
            return _said(
                401, f"{path} requires a token: send the header Authorization: Bearer $(kubectl create token ...)"
            )
        key = (hashlib.sha256(token.encode()).digest(), path)
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and self._clock() < kept.until_s:
            return kept.refusal
        try:
            refusal = self._refusal(path, token)
        except ApiError as error:
            _LOG.warning("cannot ask the API server which callers are allowed", path=path, error=str(error))
            return _said(503, "the API server does not say who you are, or what you may do. Ask again in a moment")
        with self._lock:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = _Kept(refusal, self._clock() + KEPT_S)
        return refusal

    def _refusal(self, path: str, token: str) -> Answer | None:
        found = Raw(self._api.create(TOKEN_REVIEWS, "", {"spec": {"token": token}})).get("status")
        name = found.text("user.username")
        if not found.flag("authenticated") or not name:
            return _said(401, "the API server does not know this token")
        user = {key: value.value for key, value in found.fields("user") if value.value}
        asked = {key: user[key] for key in ("uid", "groups", "extra") if key in user}
        spec = asked | {"user": name, "nonResourceAttributes": {"path": path, "verb": "get"}}
        if Raw(self._api.create(SUBJECT_ACCESS_REVIEWS, "", {"spec": spec})).flag("status.allowed"):
            return None
        return _said(
            403, f"{name} may not get {path}: ask an administrator to bind a ClusterRole for it; the chart has one"
        )


def _said(status: int, text: str) -> Answer:
    return Answer(status, f"{text}\n".encode())
