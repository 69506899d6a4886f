"""What the controller answers over HTTP: is it alive, is it ready, its metrics, and a snapshot of what it sees."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kai_solver.errors import InputError, KaiSolverError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes
    content: str = "text/plain; charset=utf-8"
    name: str = ""
    """File name for whoever saves it."""


Route = Callable[[], Answer]


def probe(problem: Callable[[], str]) -> Route:
    """``ok``, or 503 with what ``problem`` says is wrong."""

    def answer() -> Answer:
        text = problem()
        return Answer(503, f"{text}\n".encode()) if text else Answer(200, b"ok\n")

    return answer


def metrics(registry: CollectorRegistry) -> Route:
    """All metrics, as Prometheus reads them."""
    return lambda: Answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)


def download(name: str, content: str, body: Callable[[], bytes]) -> Route:
    """A file."""
    return lambda: Answer(200, body(), content, name)


class Server:
    """Serves routes in threads of its own.

    Parameters
    ----------
    address
        ``host:port``; without a host on all addresses, with port 0 on any that is free.

    Raises
    ------
    InputError
        The address is malformed or taken.
    """

    def __init__(self, address: str, routes: Mapping[str, Route]) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise InputError(f"{address!r} is no address", cure="Write host:port, or :port for all addresses")
        handler = type("Handler", (_Handler,), {"routes": dict(routes)})
        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot serve on {address}: {error}", cure="Choose another port") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="http", daemon=True)
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


class _Handler(BaseHTTPRequestHandler):
    routes: Mapping[str, Route]
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        """Answer one request; a failure of ours is a 500, and never ends the server."""
        route = self.routes.get(self.path.partition("?")[0].rstrip("/") or "/")
        if route is None:
            self._send(Answer(404, f"there is: {' '.join(sorted(self.routes))}\n".encode()))
            return
        try:
            answer = route()
        except KaiSolverError as error:
            answer = Answer(500, f"{error}\n".encode())
        except Exception:
            _LOG.exception("answering %s failed", self.path)
            answer = Answer(500, b"internal error\n")
        self._send(answer)

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content)
        self.send_header("Content-Length", str(len(answer.body)))
        if answer.name:
            self.send_header("Content-Disposition", f'attachment; filename="{answer.name}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Probes come every few seconds: they are worth a line at the lowest level only."""
        _LOG.debug(format, *args)
