"""Stands between a scheduler and the API server, and misbehaves on request.

Plain HTTP towards the scheduler, TLS towards the server, so that it can read what is asked and answer in its place.
"""

import http.client
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DROPPED = ("Connection", "Transfer-Encoding", "Content-Length", "Host", "Accept-Encoding")


@dataclass(frozen=True, slots=True)
class Fault:
    """What to do to a request: answer ``status`` in the server's place, wait, or hang up without a word.

    ``after``: the request reaches the server first, and only its answer is lost.
    """

    status: int = 0
    wait_s: float = 0.0
    hang_up: bool = False
    after: bool = False
    message: str = "injected"


Rule = Callable[[str, str], Fault | None]
"""Method and path with its query -> what goes wrong with it."""


def _fine(_method: str, _path: str) -> None:
    return None


class Proxy:
    """Between one scheduler and the API server.

    Attributes
    ----------
    rule
        What goes wrong; asked for every request.
    frozen
        While set, nothing passes in either direction, and nobody is told: a half-open connection.
    faults
        How many requests went wrong, by kind.
    """

    def __init__(self, target: str, authority: Path) -> None:
        parts = urlsplit(target)
        self.host, self.port = str(parts.hostname), parts.port
        self.context = ssl.create_default_context(cafile=str(authority))
        self.rule: Rule = _fine
        self.frozen = threading.Event()
        self.faults: Counter[str] = Counter()
        self.watches: set[socket.socket] = set()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def drop_watches(self) -> int:
        """Reset all watches that are open now; how many there were."""
        found = list(self.watches)
        for one in found:
            _shut(one)
        return len(found)

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.rule = _fine
        self.frozen.clear()

    def close(self) -> None:
        """End."""
        self.heal()
        self.drop_watches()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    proxy: Proxy

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._hold()
        fault = self.proxy.rule(self.command, self.path)
        if fault is not None:
            self.proxy.faults[str(fault.status or ("hang up" if fault.hang_up else "wait"))] += 1
            time.sleep(fault.wait_s)
            if fault.after:
                self._ask(body).close()
            if fault.hang_up:
                self.close_connection = True
                return
            if fault.status:
                self._refuse(fault)
                return
        self._forward(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass  # noqa: N815

    def _hold(self) -> None:
        while self.proxy.frozen.is_set():
            time.sleep(0.05)

    def _refuse(self, fault: Fault) -> None:
        body = b'{"kind":"Status","reason":"Injected","code":%d,"message":"%s"}' % (
            fault.status,
            fault.message.encode(),
        )
        self.send_response(fault.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _ask(self, body: bytes) -> "_Upstream":
        upstream = _Upstream(self.proxy)
        headers = {name: value for name, value in self.headers.items() if name not in DROPPED}
        try:
            upstream.connection.request(self.command, self.path, body or None, headers)
            upstream.answer = upstream.connection.getresponse()
        except BaseException:
            upstream.close()
            raise
        return upstream

    def _forward(self, body: bytes) -> None:
        try:
            upstream = self._ask(body)
        except OSError:
            self.close_connection = True
            return
        try:
            self._copy(upstream.answer)
        except (OSError, http.client.HTTPException):
            self.close_connection = True
        finally:
            upstream.close()

    def _copy(self, answer: http.client.HTTPResponse) -> None:
        streams = answer.getheader("Content-Length") is None
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name not in DROPPED:
                self.send_header(name, value)
        if not streams:
            data = answer.read()
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self._hold()
            self.wfile.write(data)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.proxy.watches.add(self.connection)
        try:
            while data := answer.read1(1 << 16):
                self._hold()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        finally:
            self.proxy.watches.discard(self.connection)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: tests print what matters."""


class _Upstream:
    answer: http.client.HTTPResponse

    def __init__(self, proxy: Proxy) -> None:
        self.connection = http.client.HTTPSConnection(proxy.host, proxy.port, timeout=90, context=proxy.context)

    def close(self) -> None:
        self.connection.close()


def _shut(found: socket.socket) -> None:
    try:
        found.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it ended by itself
