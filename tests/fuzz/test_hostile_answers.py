"""Whatever an API server answers: an object, or `ApiError`; and what a watch shows is kept, or set aside."""

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import Configuration

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.reflector import Reflector
from kai_solver.cluster.resources import PODS, QUEUES
from kai_solver.cluster.rest import RestApi
from kai_solver.cluster.store import Store
from tests.fuzz.amounts import SHOWN, some
from tests.fuzz.hostile import Object, made, recipes


class Server:
    """Answers every request with the same bytes, and hangs up."""

    def __init__(self) -> None:
        self.answer = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, suppress(OSError):
                    connection.settimeout(5)
                    asked = b""
                    while b"\r\n\r\n" not in asked:
                        asked += connection.recv(1 << 16) or b"\r\n\r\n"
                    connection.sendall(self.answer)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[RestApi]:
    settings = Configuration(host=f"http://127.0.0.1:{server.port}")
    settings.retries = False
    found = RestApi(settings, limit_s=5)
    yield found
    found.close()


def as_list(values: list[Any]) -> bytes:
    return json.dumps({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": values}).encode()


def as_watch(values: list[Any]) -> bytes:
    events = (
        {"type": ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", 7)[i % 6], "object": v}
        for i, v in enumerate(values)
    )
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def as_one(values: list[Any]) -> bytes:
    return json.dumps(values[0] if values else None).encode()


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


PAGES = (
    *(
        b"",
        b"<html>502 Bad Gateway</html>",
        b"null",
        b"[]",
        b"1",
        b'"x"',
        b"{}",
        b'{"items": 1}',
        b'{"metadata": 1, "items": {}}',
    ),
    *(
        b'{"metadata": {"continue": 5, "resourceVersion": []}, "items": [null, 1, [], {}]}',
        b"\xff\xfe\x00",
        b"{" * 2_000,
    ),
    *(
        b'{"groups": 1}',
        b'{"groups": [{"preferredVersion": 1}]}',
        b'{"resources": [{"name": 1}]}',
        b'{"resources": [1]}',
    ),
    *(b'{"groups": [{"preferredVersion": {"groupVersion": "a/b"}, "versions": 5}]}', b'{"resources": {"a": 1}}'),
    *(b'{"kind": "Status", "code": "x", "message": [], "reason": {}}', b'{"type": "ERROR", "object": {"code": 410}}\n'),
    *(b'{"type": "ADDED"}\n', b'{"type": [], "object": {}}\n', b"\n\n\n", b'{"a": "' + b"x" * 200_000),
    *(b'{"metadata": {"resourceVersion": "1"}, "items": [' + b'{"a":' * 3_000 + b"1" + b"}" * 3_000 + b"]}",),
    *(b'{"type": "ADDED", "object": {"metadata": {"name": "a"}, "x": ' + b"[" * 3_000 + b"]" * 3_000 + b"}}\n",),
)
STATUSES = (
    *(b"200 OK", b"200 OK", b"200 OK", b"201 Created", b"204 No Content", b"301 Moved", b"400 B", b"401 U", b"403 F"),
    *(b"404 N", b"409 C", b"410 G", b"429 T", b"500 I", b"503 S", b"999 X", b"abc", b"", b"20", b"100 Continue"),
)
HEADERS = (
    *(
        b"Content-Type: application/json",
        b"Content-Type: text/html",
        b"Content-Type: application/vnd.kubernetes.protobuf",
    ),
    *(b"Content-Encoding: gzip", b"Content-Encoding: br", b"Content-Encoding: deflate", b"Transfer-Encoding: chunked"),
    *(
        b"Content-Length: 5",
        b"Content-Length: 999999",
        b"Content-Length: -1",
        b"Content-Length: x",
        b"Retry-After: 9999999999",
    ),
    *(
        b"Retry-After: x",
        b"Retry-After: " + b"9" * 5_000,
        b"Location: /elsewhere",
        b"X: " + b"a" * 70_000,
        b"no colon",
        b":",
    ),
    *(b"\xff: \xff", b"Connection: keep-alive"),
)
SHAPES = (as_list, as_watch, as_one)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """A whole answer: honest as to its length only now and then."""
    values = [made(recipe) for recipe in draw(st.lists(recipes(2), max_size=3))]
    body = draw(
        st.sampled_from(PAGES) | st.sampled_from(SHAPES).map(lambda shape: shape(values)) | st.binary(max_size=50)
    )
    body = body[: draw(st.sampled_from((len(body), len(body), len(body), len(body) // 2, len(body) - 1)))]
    if draw(st.booleans()) and draw(st.booleans()):
        body = gzip.compress(body)
    headers = draw(st.lists(st.sampled_from(HEADERS), max_size=3))
    if draw(st.booleans()):
        headers.append(b"Content-Length: %d" % len(body))
    version = draw(st.sampled_from((b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9", b"SSH-2.0")))
    return version + b" " + b"\r\n".join((draw(st.sampled_from(STATUSES)), *headers)) + b"\r\n\r\n" + body


CALLS: dict[str, Callable[[RestApi], object]] = {
    "page": lambda api: api.page(PODS),
    "watch": lambda api: list(api.watch(PODS, "1", 1)),
    "get": lambda api: api.get(PODS, "n", "a"),
    "create": lambda api: api.create(PODS, "n", {"metadata": {"name": "a"}}),
    "patch": lambda api: api.patch(PODS, "n", "a", {"metadata": {}}),
    "delete": lambda api: api.delete(PODS, "n", "a"),
    "served": lambda api: api.served("scheduling.run.ai/v2"),
    "installed": lambda api: api.installed(),
}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("call", sorted(CALLS))
def test_nonsense_is_an_api_error(server: Server, api: RestApi, page: bytes, call: str) -> None:
    server.answer = ok(page)
    with suppress(ApiError):
        CALLS[call](api)


@pytest.mark.slow
@some(400)
@given(answer=answers(), call=st.sampled_from(sorted(CALLS)))
def test_an_answer_is_read_or_an_api_error(server: Server, api: RestApi, answer: bytes, call: str) -> None:
    server.answer = answer
    SHOWN["answers"] += 1
    with suppress(ApiError):
        CALLS[call](api)


class Given:
    """An API server of which only one page and one watch are asked for."""

    def __init__(self, api: RestApi, server: Server, page: bytes, watch: bytes, stop: threading.Event) -> None:
        self._api, self._server, self._stop = api, server, stop
        self._answers = {"page": page, "watch": watch}

    def page(self, *_: Any, **__: Any) -> Any:
        self._server.answer = self._answers["page"]
        try:
            return self._api.page(QUEUES)
        except ApiError:
            self._stop.set()
            raise

    def watch(self, *_: Any, **__: Any) -> Any:
        self._server.answer = self._answers["watch"]
        self._stop.set()
        return self._api.watch(QUEUES, "1", 1)


@pytest.mark.slow
@some(100)
@given(found=st.lists(recipes(3).map(made), max_size=5), watched=st.lists(recipes(3).map(made), max_size=5))
def test_a_reflector_keeps_what_it_is_shown(
    server: Server, api: RestApi, found: list[Object], watched: list[Object]
) -> None:
    """Its store afterwards has every object with a name, and it lives."""
    stop, store = threading.Event(), Store()
    shown = Given(api, server, ok(as_list(found)), ok(as_watch(watched)), stop)
    Reflector(shown, QUEUES, store, stop).run()  # type: ignore[arg-type]
    SHOWN["objects watched"] += len(found) + len(watched)
