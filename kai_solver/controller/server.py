"""What the controller answers over HTTP: probes, metrics, a snapshot of what it sees; over TLS admission reviews."""

import socket
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TypeVar
from urllib.parse import parse_qsl

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kai_solver.errors import InputError, KaiSolverError

_LOG = structlog.get_logger(__name__)

LONGEST_BODY = 8 << 20
"""Bytes; an admission review has an object before and after its change, and neither can be over 1.5 MiB."""

PATIENCE_S = 15.0
"""Seconds for a handshake, for a request's head, and for its body as a whole."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes
    content: str = "text/plain; charset=utf-8"
    name: str = ""
    """File name for whoever saves it."""


Found = TypeVar("Found")
Route = Callable[[Mapping[str, str]], Answer]
"""Given the parameters of the address, the last of each name."""

PostRoute = Callable[[bytes], Answer]


def probe(problem: Callable[[], str]) -> Route:
    """``ok``, or 503 with what ``problem`` says is wrong."""

    def answer(_: Mapping[str, str]) -> Answer:
        text = problem()
        return Answer(503, f"{text}\n".encode()) if text else Answer(200, b"ok\n")

    return answer


def metrics(registry: CollectorRegistry) -> Route:
    """All metrics, as Prometheus reads them."""
    return lambda _: Answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)


def download(name: str, content: str, body: Callable[[], bytes]) -> Route:
    """A file."""
    return lambda _: Answer(200, body(), content, name)


class Server:
    """Serves routes in threads of its own.

    Parameters
    ----------
    address
        ``host:port``; without a host on all addresses, with port 0 on any that is free.
    routes, posts
        What is answered to GET and to POST, by path.
    tls
        Serve HTTPS; a certificate that is loaded into it later holds for connections from then on.

    Raises
    ------
    InputError
        The address is malformed or taken.
    """

    def __init__(
        self,
        address: str,
        routes: Mapping[str, Route],
        posts: Mapping[str, PostRoute] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise InputError(f"{address!r} is no address", cure="Write host:port, or :port for all addresses")
        handler = type("Handler", (_Handler,), {"routes": dict(routes), "posts": dict(posts or {})})
        try:
            self._server = _HttpServer((host.strip("[]"), int(port)), handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot serve on {address}: {error}", cure="Choose another port") from error
        if tls is not None:
            # Handshakes are the handlers': whoever connects and says nothing must not keep all others waiting.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the library's signature
        """Clients come and go: a failed handshake or a broken connection is worth a line at the lowest level only."""
        error = sys.exception()
        if isinstance(error, OSError):
            _LOG.debug("a connection ended early", client=str(client_address), error=f"{type(error).__name__}: {error}")
        else:
            _LOG.error("a connection failed", client=str(client_address), exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    routes: Mapping[str, Route]
    posts: Mapping[str, PostRoute]
    connection: socket.socket
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_S
    # Head and body in one piece, sent at once: in two the second waits 40 ms for the first to be acknowledged.
    wbufsize = -1
    disable_nagle_algorithm = True

    def setup(self) -> None:
        """Shake hands first where the connection is a TLS one."""
        super().setup()
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()

    def do_GET(self) -> None:
        """Answer one request; a failure of ours is a 500, and never ends the server."""
        route = self._found(self.routes)
        if route is not None:
            query = dict(parse_qsl(self.path.partition("?")[2]))
            self._answer(lambda: route(query))

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def do_POST(self) -> None:
        """Answer one request with a body, which must say how long it is."""
        route = self._found(self.posts)
        if route is not None:
            body = self._body()
            if body is not None:
                self._answer(lambda: route(body))

    def _found(self, routes: Mapping[str, Found]) -> Found | None:
        """What answers on this path; None after saying what there is."""
        route = routes.get(self.path.partition("?")[0].rstrip("/") or "/")
        if route is None:
            self.close_connection = True  # a body would be taken for the next request
            self._send(Answer(404, f"there is: {' '.join(sorted(routes))}\n".encode()))
        return route

    def _body(self) -> bytes | None:
        """The body; None after saying what is wrong with it.

        Raises
        ------
        TimeoutError
            It does not come in time; the connection ends then.
        """
        length = self.headers.get("Content-Length", "")
        problem = Answer(411, b"Content-Length is missing\n") if not length.isdecimal() else None
        if problem is None and (len(length) > 12 or int(length) > LONGEST_BODY):
            problem = Answer(413, f"more than {LONGEST_BODY} bytes\n".encode())
        if problem is not None:
            self.close_connection = True
            self._send(problem)
            return None
        parts, missing, ends_s = [], int(length), time.monotonic() + PATIENCE_S
        while missing:
            part = self.rfile.read1(min(missing, 1 << 16))
            if not part or time.monotonic() > ends_s:
                raise TimeoutError("the body did not come in time")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _answer(self, route: Callable[[], Answer]) -> None:
        try:
            answer = route()
        except KaiSolverError as error:
            answer = Answer(500, f"{error}\n".encode())
        except Exception:
            _LOG.exception("answering failed", path=self.path)
            answer = Answer(500, b"internal error\n")
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content)
        self.send_header("Content-Length", str(len(answer.body)))
        if answer.name:
            self.send_header("Content-Disposition", f'attachment; filename="{answer.name}"')
        if self.close_connection:
            self.send_header("Connection", "close")  # or the client would send its next request into nothing
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Probes come every few seconds: they are worth a line at the lowest level only."""
        _LOG.debug("http", client=self.client_address[0], said=format % args)

    def log_error(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Nothing: wrong requests are answered, and a connection that nobody uses any more is no error."""
