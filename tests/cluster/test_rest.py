"""Raw JSON over HTTP against a server that misbehaves."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import urllib3
from kubernetes.client import Configuration

from kai_solver.cluster import rest
from kai_solver.cluster.api import ApiError
from kai_solver.cluster.resources import NODES, POD_GROUPS, PODS, Resource
from kai_solver.cluster.rest import RestApi, connect
from kai_solver.errors import InputError
from tests.support.garbage import left_to_the_collector

Answer = tuple[int, dict[str, str], bytes]


class Handler(BaseHTTPRequestHandler):
    """Answers by ``answers`` (method and path without query), and remembers what was asked."""

    protocol_version = "HTTP/1.1"
    answers: dict[str, Answer]
    asked: list[tuple[str, str, dict[str, str], bytes]]
    silence: threading.Event | None = None

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked.append((self.command, self.path, dict(self.headers), body))
        status, headers, data = self.answers.get(f"{self.command} {self.path.partition('?')[0]}", (404, {}, b"nothing"))
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()
        if self.silence is not None:
            self.silence.wait(20)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: tests print what matters."""


@contextmanager
def serving(answers: dict[str, Any], silence: threading.Event | None = None) -> Iterator[tuple[RestApi, type[Handler]]]:
    """A client of a server with these answers: an object, or (status, headers, bytes)."""
    given = {key: a if isinstance(a, tuple) else (200, {}, json.dumps(a).encode()) for key, a in answers.items()}
    handler = type("H", (Handler,), {"answers": given, "asked": [], "silence": silence})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    settings = Configuration(host=f"http://127.0.0.1:{server.server_port}")
    settings.api_key["authorization"] = "Bearer secret"
    settings.retries = False
    api = RestApi(settings)
    try:
        yield api, handler
    finally:
        if silence is not None:
            silence.set()
        api.close()
        server.shutdown()
        server.server_close()


@contextmanager
def hanging_up() -> Iterator[RestApi]:
    """A client of a server that accepts connections and closes them without a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    connection = server.accept()[0]
                    connection.recv(1 << 16)
                    connection.close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        api = RestApi(Configuration(host=f"http://127.0.0.1:{server.getsockname()[1]}"))
        yield api
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_a_page_names_the_kind_of_its_items_and_where_to_go_on() -> None:
    listed = {"metadata": {"resourceVersion": "7", "continue": "abc"}, "items": [{"metadata": {"name": "a"}}, "odd"]}
    with serving({"GET /api/v1/pods": listed}) as (api, handler):
        page = api.page(PODS, limit=1, continue_="x y")
    assert page.items[0] == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    assert (page.resource_version, page.continue_) == ("7", "abc")
    assert handler.asked[0][1] == "/api/v1/pods?limit=1&continue=x+y"
    assert handler.asked[0][2]["Authorization"] == "Bearer secret"


def test_a_page_of_one_name() -> None:
    with serving({"GET /api/v1/pods": {"metadata": {}, "items": []}}) as (api, handler):
        api.page(PODS, name="a")
    assert handler.asked[0][1] == "/api/v1/pods?limit=500&fieldSelector=metadata.name%3Da"


def test_names_are_quoted_in_paths() -> None:
    assert PODS.path("a/b", "c?d", "status") == "/api/v1/namespaces/a%2Fb/pods/c%3Fd/status"
    assert NODES.path("ignored", "n") == "/api/v1/nodes/n"


@pytest.mark.parametrize(
    ("status", "body", "reason", "passing"),
    [
        (409, b'{"kind":"Status","reason":"Conflict","message":"changed"}', "Conflict", False),
        (410, b'{"reason":"Expired"}', "Expired", False),
        (429, b"slow down", "429", True),
        (500, b"<html>", "500", True),
        (503, b"", "503", True),
        (403, b'["odd"]', "403", False),
    ],
)
def test_a_refusal_is_told_apart(status: int, body: bytes, reason: str, passing: bool) -> None:
    answers = {"GET /api/v1/nodes/n": (status, {"Retry-After": "3"}, body)}
    with serving(answers) as (api, _), pytest.raises(ApiError) as caught:
        api.get(NODES, "", "n")
    assert (caught.value.status, caught.value.reason, caught.value.is_passing) == (status, reason, passing)
    assert caught.value.retry_after_s == 3.0


@pytest.mark.parametrize("body", [b"not json", b'{"items": 7, "metadata": {}}', b"[]"])
def test_an_answer_that_is_no_list_is_no_answer(body: bytes) -> None:
    with serving({"GET /api/v1/nodes": (200, {}, body)}) as (api, _), pytest.raises(ApiError) as caught:
        api.page(NODES)
    assert caught.value.status == 0


def lines(*events: object) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def test_a_watch_gives_events_and_bookmarks() -> None:
    node = {"metadata": {"name": "a", "resourceVersion": "8"}}
    data = lines({"type": "ADDED", "object": node}, {"type": "BOOKMARK", "object": {"metadata": {}}})
    with serving({"GET /api/v1/nodes": (200, {}, data)}) as (api, handler):
        events = list(api.watch(NODES, "7", 30.0))
    assert [event.kind for event in events] == ["ADDED", "BOOKMARK"]
    assert events[0].object == node
    assert "allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=30" in handler.asked[0][1]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (lines({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}), 410),
        (lines({"type": "ERROR", "object": "odd"}), 0),
        (b"{half a line\n", 0),
        (lines(["no", "event"]), 0),
    ],
)
def test_an_error_in_a_watch_ends_it_with_its_reason(data: bytes, status: int) -> None:
    with serving({"GET /api/v1/nodes": (200, {}, data)}) as (api, _), pytest.raises(ApiError) as caught:
        list(api.watch(NODES, "7", 30.0))
    assert caught.value.status == status


def test_a_silent_watch_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "WATCH_SILENCE_S", 0.2)
    data = lines({"type": "ADDED", "object": {"metadata": {"name": "a"}}})
    answers = {"GET /api/v1/nodes": (200, {"Content-Length": "10000"}, data)}
    with serving(answers, threading.Event()) as (api, _):
        assert len(list(api.watch(NODES, "7", 30.0))) <= 1, "it ends, and not as an error: nothing may have happened"


def test_an_answer_is_waited_for_no_longer_than_one_likes() -> None:
    silence = threading.Event()
    path = "/api/v1/nodes/a"
    with serving({f"GET {path}": (200, {"Content-Length": "5"}, b"{")}, silence) as (api, _):
        with pytest.raises(ApiError) as caught:
            api.within(0.2).get(NODES, "", "a")
        silence.set()
    assert caught.value.is_passing


class Waiting(threading.Thread):
    """Asks for something in another thread, and notes what became of it."""

    def __init__(self, ask: Any) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._ask()
        except ApiError as error:
            self.error = error


@pytest.mark.parametrize("what", ["a request", "a watch"])
@pytest.mark.parametrize("end", [RestApi.hang_up, RestApi.close])
def test_what_waits_for_an_answer_is_cut_off(what: str, end: Any) -> None:
    asked, silence = threading.Event(), threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        connection, _ = listener.accept()
        connection.recv(1 << 16)
        if what == "a watch":
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        asked.set()
        silence.wait(20)
        connection.close()

    threading.Thread(target=accept, daemon=True).start()
    settings = Configuration(host=f"http://127.0.0.1:{listener.getsockname()[1]}")
    settings.retries = False
    api = RestApi(settings)
    ask = (lambda: api.get(PODS, "n", "p")) if what == "a request" else (lambda: list(api.watch(PODS, "1", 60)))
    waiting = Waiting(ask)
    waiting.start()
    assert asked.wait(10)
    waiting.join(0.2)
    assert waiting.is_alive(), "the server accepts and never answers"
    end(api)
    waiting.join(10)
    silence.set()
    listener.close()
    assert isinstance(waiting.error, ApiError)
    assert waiting.error.is_passing


def test_a_client_that_was_cut_off_may_ask_again_and_one_that_closed_may_not() -> None:
    with serving({"GET /api/v1/nodes/a": {"metadata": {"name": "a"}}}) as (api, _):
        other = api.within(5.0)
        for one in (api, other):
            one.get(NODES, "", "a")
            one.hang_up()
            assert one.get(NODES, "", "a") == {"metadata": {"name": "a"}}
        api.close()
        for one in (api, other):
            with pytest.raises(ApiError, match="sends no more requests"):
                one.get(NODES, "", "a")


def test_nothing_listening_is_no_answer() -> None:
    with serving({}) as (api, _):
        pass
    with pytest.raises(ApiError) as caught:
        api.get(NODES, "", "n")
    assert caught.value.status == 0
    assert caught.value.is_passing


@pytest.mark.parametrize("act", ["get", "watch"])
def test_a_request_without_an_answer_leaves_nothing_to_the_collector(act: str) -> None:
    """Neither if nothing listens, nor if the server hangs up: an answer without a status is none."""
    requests = {"get": lambda api: api.get(NODES, "", "n"), "watch": lambda api: next(api.watch(NODES, "1", 60.0))}
    with serving({}) as (away, _):
        pass
    with hanging_up() as silent:
        for api in (away, silent):
            with pytest.raises(ApiError):
                requests[act](api)  # what is made once, and kept, is made here
            with left_to_the_collector() as found, pytest.raises(ApiError):
                requests[act](api)
            assert [type(one) for one in found if isinstance(one, BaseException | FrameType | socket.socket)] == []


def test_a_new_object_says_its_kind() -> None:
    path = POD_GROUPS.path("n", "")
    with serving({f"POST {path}": {}, "POST /api/v1/namespaces/n/pods": {}}) as (api, handler):
        api.create(POD_GROUPS, "n", {"metadata": {"name": "g"}})
        api.create(PODS, "n", {"metadata": {"name": "p"}, "apiVersion": "v1", "kind": "Pod"})
    group, pod = (json.loads(body) for _, _, _, body in handler.asked)
    assert (group["apiVersion"], group["kind"]) == ("scheduling.run.ai/v2alpha2", "PodGroup")
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")


def test_writes_say_what_they_are() -> None:
    answers: dict[str, Any] = {
        "POST /api/v1/namespaces/n/pods/p/binding": {},
        "PATCH /api/v1/namespaces/n/pods/p/status": {},
        "DELETE /api/v1/namespaces/n/pods/p": {},
    }
    with serving(answers) as (api, handler):
        api.create(PODS, "n", {"metadata": {"name": "p"}, "target": {"name": "n1"}}, subresource="binding")
        api.patch(PODS, "n", "p", {"status": {}}, kind="strategic", subresource="status")
        api.delete(PODS, "n", "p", uid="u", grace_s=5)
    assert handler.asked[1][2]["Content-Type"] == "application/strategic-merge-patch+json"
    assert json.loads(handler.asked[2][3])["preconditions"] == {"uid": "u"}
    assert json.loads(handler.asked[2][3])["gracePeriodSeconds"] == 5


def test_a_request_leaves_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head and body together, also the second time on a connection, and after one that failed."""
    sent: list[bytes] = []
    original = urllib3.connection.HTTPConnection.send

    def send(self: Any, data: Any) -> None:
        sent.append(bytes(data))
        original(self, data)

    monkeypatch.setattr(urllib3.connection.HTTPConnection, "send", send)
    with serving({"POST /api/v1/namespaces/n/pods": {}}) as (api, handler):
        for _ in range(2):
            api.create(PODS, "n", {"metadata": {"name": "é" * 100}})
        with pytest.raises(ApiError):
            api.get(PODS, "n", "none")
        api.create(PODS, "n", {"metadata": {"name": "x"}})
    assert len(sent) == len(handler.asked) == 4
    assert all(b"\r\n\r\n{" in data for data in (*sent[:2], sent[3]))
    assert [json.loads(body)["metadata"]["name"] for *_, body in handler.asked if body] == ["é" * 100] * 2 + ["x"]


def test_what_is_installed_is_read_from_the_server() -> None:
    answers: dict[str, Any] = {
        "GET /apis": {"groups": [{"preferredVersion": {"groupVersion": v}} for v in ("batch/v1", "gone.example/v1")]},
        "GET /api/v1": {
            "groupVersion": "v1",
            "resources": [
                {"name": "pods", "kind": "Pod", "namespaced": True},
                {"name": "pods/status", "kind": "Pod", "namespaced": True},
            ],
        },
        "GET /apis/batch/v1": {
            "groupVersion": "batch/v1",
            "resources": [{"name": "jobs", "kind": "Job", "namespaced": True}],
        },
    }
    with serving(answers) as (api, _):
        assert api.installed() == {PODS, Resource("batch", "v1", "jobs", "Job")}


def test_a_kind_is_found_in_another_version_than_its_group_prefers() -> None:
    def served(version: str, *kinds: tuple[str, str]) -> dict[str, Any]:
        named = [{"name": plural, "kind": kind, "namespaced": True} for plural, kind in kinds]
        return {"groupVersion": f"example.org/{version}", "resources": named}

    versions = [{"groupVersion": f"example.org/{version}"} for version in ("v1beta1", "v2")]
    answers: dict[str, Any] = {
        "GET /apis": {"groups": [{"preferredVersion": versions[1], "versions": versions}]},
        "GET /api/v1": {"groupVersion": "v1", "resources": []},
        "GET /apis/example.org/v2": served("v2", ("both", "Both")),
        "GET /apis/example.org/v1beta1": served("v1beta1", ("both", "Both"), ("olds", "Old")),
    }
    with serving(answers) as (api, _):
        found = api.installed()
    assert found == {Resource("example.org", "v2", "both", "Both"), Resource("example.org", "v1beta1", "olds", "Old")}


def test_kinds_of_one_version_are_read_alone() -> None:
    kinds = [{"name": "mines", "kind": "Mine", "namespaced": True}, {"name": "mines/status", "kind": "Mine"}]
    with serving({"GET /apis/example.org/v1": {"resources": kinds}}) as (api, _):
        assert api.served("example.org/v1") == {Resource("example.org", "v1", "mines", "Mine")}
        assert api.served("example.org/v2") == set()
        assert api.served("v1") == set()


def test_no_configuration_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="none: cannot be read: no such file"):
        connect(str(tmp_path / "none"))
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="--kubeconfig"):
        connect(str(tmp_path / "empty"))
    broken = tmp_path / "broken"
    broken.write_text("[]")
    with pytest.raises(InputError, match="is not a kubeconfig file"):
        connect(str(broken))
