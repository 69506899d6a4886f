"""Clients that are slow, large or many: what they may use is limited, and others are served meanwhile."""

import asyncio
import ctypes
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import urllib3
import uvicorn
from structlog.testing import capture_logs

from kai_solver.controller.admission.certificates import Bundle, make_bundle
from kai_solver.controller.process import give_memory_back, open_more_files
from kai_solver.controller.serving import Answer, Limits, Server
from kai_solver.controller.serving.limits import FEW_FILES
from kai_solver.controller.serving.listener import Connection, Listener, Stage
from tests.controller.replicas import until

KIB, MIB = 1 << 10, 1 << 20
HOUR_S = 3600.0
HALF_A_HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\n"


def head(size: int) -> bytes:
    return HALF_A_HEAD + b"Content-Length: %d\r\n\r\n" % size


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return make_bundle(("localhost",), 1, time.time())


class Served:
    """A server with a handler that takes its time when told to, and all connections made to it."""

    def __init__(self, limits: Limits, bundle: Bundle | None, folder: Path) -> None:
        self.go, self.at_work, self.most_at_work = threading.Event(), 0, 0
        self.go.set()
        self.dropped: Counter[str] = Counter()
        self._lock = threading.Lock()
        tls = None
        self._trusted: ssl.SSLContext | None = None
        if bundle is not None:
            (folder / "crt").write_bytes(bundle.certificate)
            (folder / "key").write_bytes(bundle.key)
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(folder / "crt", folder / "key")
            self._trusted = ssl.create_default_context(cadata=bundle.authorities.decode())
        routes = {"/large": lambda _: Answer(200, bytes(16 * MIB)), "/slow": lambda _: self._slow()}
        posts = {"/echo": lambda body: Answer(200, b"%d" % len(body)), "/slow": lambda _: self._slow()}
        self.server = Server("127.0.0.1:0", routes, posts, tls=tls, limits=limits, note_drop=self._note)
        self.lines = ExitStack()
        self._ahead_s = 0.0

    def later(self, seconds: float) -> None:
        """Let time pass for its deadlines, so that none is missed because a machine is slow."""
        self._ahead_s += seconds
        self.listener.clock = lambda: time.monotonic() + self._ahead_s

    def all_are(self, *stages: Stage) -> bool:
        """Whether its connections wait for these, in any order."""
        return Counter(found.stage for found in self.listener.connections) == Counter(stages)

    @property
    def listener(self) -> Listener:
        return self.server.listener

    def _note(self, reason: str) -> None:
        self.dropped[reason] += 1

    def _slow(self) -> Answer:
        with self._lock:
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
        self.go.wait(20)
        with self._lock:
            self.at_work -= 1
        return Answer(200, b"done")

    def line(self, text: bytes = b"", *, shakes_hands: bool = True) -> socket.socket:
        """A connection on which this was sent."""
        made = socket.create_connection(("127.0.0.1", self.server.port), timeout=20)
        if self._trusted is not None and shakes_hands:
            made = self._trusted.wrap_socket(made, server_hostname="localhost")
        self.lines.enter_context(made)
        made.sendall(text)
        return made

    def post(self, size: int = 1000, path: str = "/echo") -> bytes:
        """The answer to an honest request."""
        scheme = "https" if self._trusted is not None else "http"
        with urllib3.PoolManager(ssl_context=self._trusted) as pool:
            url = f"{scheme}://localhost:{self.server.port}{path}"
            return pool.request("POST", url, body=bytes(size), retries=False, timeout=20).data


Serve = Callable[..., Served]


@pytest.fixture(params=["plain", "tls"])
def serve(request: pytest.FixtureRequest, bundle: Bundle, tmp_path: Path) -> Iterator[Serve]:
    with ExitStack() as stack, capture_logs():

        def make(limits: Limits | None = None) -> Served:
            made = Served(limits or Limits(), bundle if request.param == "tls" else None, tmp_path)
            stack.callback(made.server.close)
            stack.callback(made.go.set)
            stack.enter_context(made.lines)
            return made

        yield make


def ended(line: socket.socket) -> bool:
    """Whether the other side hangs up; what it says before that is read."""
    with suppress(ConnectionError, ssl.SSLError):
        while line.recv(65536):
            pass
    return True


def drip(served: Served, line: socket.socket) -> None:
    """Send one more byte after half an hour, and let another half hour pass."""
    held = served.listener.held
    served.later(HOUR_S / 2 + 1)
    line.sendall(b"y")
    until(lambda: served.listener.held == held + 1)
    served.later(HOUR_S / 2 + 1)


def test_a_head_has_a_deadline_that_drops_of_it_do_not_move(serve: Serve) -> None:
    served = serve(Limits(head_s=HOUR_S))
    lines = [served.line(HALF_A_HEAD + b"X: "), served.line(), served.line(shakes_hands=False)]
    until(lambda: served.all_are(*[Stage.HEAD] * 3) and served.listener.held == len(HALF_A_HEAD) + 3)
    drip(served, lines[0])
    assert all(map(ended, lines))
    assert served.dropped == {"head": 3}
    assert served.post() == b"1000"


def test_a_body_has_a_deadline_that_drops_of_it_do_not_move(serve: Serve) -> None:
    served = serve(Limits(body_s=HOUR_S))
    lines = [served.line(head(1000) + b"x"), served.line(head(10))]
    until(lambda: served.all_are(Stage.BODY, Stage.BODY))
    drip(served, lines[0])
    assert all(map(ended, lines))
    assert served.dropped == {"body": 2}
    assert served.post() == b"1000"


def test_a_large_body_comes_at_once_or_not_at_all(serve: Serve) -> None:
    served = serve(Limits(large_bytes=64 * KIB, large_s=2.0))
    for _ in range(2):
        served.line(head(128 * KIB) + b"x")
    assert served.post() == b"1000", "small ones are read meanwhile"
    until(lambda: served.dropped["body"] == 2)
    assert served.post(200 * KIB) == b"%d" % (200 * KIB)


def test_large_bodies_that_wait_for_their_turn_are_not_read(serve: Serve) -> None:
    served = serve(Limits(large_bytes=64 * KIB, large_s=3600.0, body_s=3600.0))
    served.line(head(128 * KIB) + b"x")
    until(lambda: served.listener.held > 0)
    for _ in range(10):
        with suppress(OSError):
            line = served.line(head(MIB))
            line.setblocking(False)
            line.send(bytes(MIB))
    assert served.post() == b"1000"
    assert served.listener.held < 10 * 300 * KIB, "what comes with a head, and no more"


def test_an_answer_that_is_not_read_has_a_deadline(serve: Serve) -> None:
    served = serve(Limits(answer_s=HOUR_S))
    line = served.line()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    until(lambda: served.all_are(Stage.ANSWER))
    served.later(HOUR_S + 1)
    until(lambda: bool(served.dropped))
    assert served.dropped == {"answer": 1}


def test_a_further_request_on_a_connection_has_deadlines_too(serve: Serve) -> None:
    served = serve(Limits(head_s=HOUR_S))
    line = served.line(head(5) + b"hello")
    assert line.recv(65536).startswith(b"HTTP/1.1 200")
    until(lambda: served.all_are(Stage.IDLE))
    line.sendall(b"P")
    until(lambda: served.all_are(Stage.HEAD))
    drip(served, line)
    assert ended(line)
    assert served.dropped == {"head": 1}


def test_connections_are_limited_and_the_oldest_idle_ones_go_first(serve: Serve) -> None:
    served = serve(Limits(connections=10, grace_s=0.0))
    most = 0
    oldest = served.line(HALF_A_HEAD, shakes_hands=True)
    until(lambda: served.all_are(Stage.HEAD))  # connections that are accepted together have no order
    for _ in range(29):
        served.line(HALF_A_HEAD, shakes_hands=True)
    for _ in range(20):
        assert served.post() == b"1000"
        most = max(most, len(served.listener.connections))
    assert most <= 10
    assert served.dropped["full"] >= 20
    assert ended(oldest)


def test_a_new_connection_waits_while_all_others_are_new(serve: Serve) -> None:
    served = serve(Limits(connections=2, grace_s=3600.0, head_s=3600.0))
    first = served.line(HALF_A_HEAD)
    served.line(HALF_A_HEAD)
    until(lambda: len(served.listener.connections) == 2)
    waiting = threading.Thread(target=served.post)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    first.close()
    waiting.join(20)
    assert not waiting.is_alive()
    assert not served.dropped


def test_bytes_are_limited_and_large_bodies_go_first(serve: Serve) -> None:
    served, most = serve(Limits(waiting_bytes=MIB, large_bytes=MIB)), 0
    for _ in range(30):
        line = served.line(head(300 * KIB))
        with suppress(OSError):
            line.sendall(bytes(200 * KIB))
        assert served.post() == b"1000"
        most = max(most, served.listener.held)
    assert most <= MIB
    assert served.dropped.keys() == {"bytes"}
    served.lines.close()
    until(lambda: not served.listener.held)
    assert served.post(600 * KIB) == b"%d" % (600 * KIB)


class Wire(asyncio.Transport):
    """Of a connection that nothing is sent to."""

    def abort(self) -> None:
        """Nothing: it never was open."""


@pytest.mark.parametrize(
    ("sizes", "dropped"),
    [
        ([(60, 0.0), (80, 10.0)], {0}),  # what came just now may be larger than what is held for long
        ([(60, 9.9), (80, 10.0)], {0}),
        ([(20, 10.0), (90, 10.0)], {1}),
        ([(1, 0.0), (99, 9.0), (5, 10.0)], {1}),
        ([(99, 9.0), (150, 10.0)], {0, 1}),
    ],
)
def test_bytes_and_seconds_decide_what_goes(sizes: list[tuple[int, float]], dropped: set[int]) -> None:
    now = [0.0]
    config = uvicorn.Config(_answers_nothing, log_config=None, ws="none")
    config.load()

    async def held() -> tuple[set[int], int]:  # a connection that is made outside a loop opens one, and leaves it open
        listener = Listener(uvicorn.Server(config), Limits(waiting_bytes=100), clock=lambda: now[0])
        made = []
        for size, now[0] in sizes:
            connection = Connection(listener)
            connection.transport = Wire()
            listener.connections.add(connection)
            made.append(connection)
            listener.hold(connection, size)
        return {number for number, connection in enumerate(made) if connection.is_dropped}, listener.held

    left = sum(size for number, (size, _) in enumerate(sizes) if number not in dropped)
    assert asyncio.run(held()) == (dropped, left)


async def _answers_nothing(scope: object, receive: object, send: object) -> None:
    """An application."""


def test_what_is_held_is_given_back(serve: Serve) -> None:
    served = serve()
    for size in (0, 1000, 300 * KIB, MIB):
        assert served.post(size) == b"%d" % size
        served.line(head(size + 10) + bytes(size))
        served.line(head(size)[:-1])
    until(lambda: served.listener.held > MIB)
    served.lines.close()
    until(lambda: not served.listener.connections)
    assert served.listener.held == 0


def test_a_head_is_limited(serve: Serve) -> None:
    served = serve(Limits(head_bytes=4 * KIB))
    line = served.line(HALF_A_HEAD)
    with suppress(OSError):
        line.sendall(b"X: " + b"y" * 64 * KIB)
    assert ended(line)
    assert served.post() == b"1000"


def test_handlers_are_limited_and_what_waits_for_one_is_not_dropped(serve: Serve) -> None:
    served = serve(Limits(threads=2, connections=20, grace_s=0.0))
    served.go.clear()
    answers: list[bytes] = []
    threads = [threading.Thread(target=lambda: answers.append(served.post(path="/slow"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    until(lambda: served.all_are(*[Stage.WORK] * 2, *[Stage.QUEUE] * 4))
    line = served.line(HALF_A_HEAD)
    until(lambda: served.all_are(Stage.HEAD, *[Stage.WORK] * 2, *[Stage.QUEUE] * 4))
    served.later(HOUR_S)
    assert ended(line), "deadlines go on meanwhile"
    served.go.set()
    for thread in threads:
        thread.join(20)
    assert answers == [b"done"] * 6
    assert served.most_at_work == 2


def test_what_leaves_while_its_request_is_handled_leaves_nothing(serve: Serve) -> None:
    served = serve()
    served.go.clear()
    line = served.line(HALF_A_HEAD.replace(b"echo", b"slow") + b"Content-Length: 5\r\n\r\nhello")
    until(lambda: served.at_work == 1)
    line.close()
    until(lambda: not served.listener.connections)
    served.go.set()
    until(lambda: served.at_work == 0)
    assert served.post() == b"1000"
    until(lambda: served.listener.held == 0)


def test_one_listener_that_is_full_keeps_no_other_waiting(serve: Serve) -> None:
    busy, other = serve(Limits(connections=8, threads=1)), serve()
    busy.go.clear()
    slow = [threading.Thread(target=busy.post, kwargs={"path": "/slow"}) for _ in range(8)]
    for thread in slow:
        thread.start()
    until(lambda: len(busy.listener.connections) == 8)
    assert other.post() == b"1000"
    busy.go.set()
    for thread in slow:
        thread.join(20)


def test_a_server_closes_whatever_its_clients_do(serve: Serve) -> None:
    served = serve()
    served.go.clear()
    served.line(HALF_A_HEAD)
    served.line(shakes_hands=False)
    served.line(head(100) + b"x")
    served.line(HALF_A_HEAD.replace(b"echo", b"slow") + b"Content-Length: 0\r\n\r\n")
    until(lambda: len(served.listener.connections) == 4)
    served.server.close()
    assert not served.listener.connections


def test_connections_are_no_more_than_there_are_files() -> None:
    limits = Limits(connections=10**9).affordable()
    assert 8 <= limits.connections < 10**9
    assert Limits(connections=9).affordable().connections == 9


def test_as_many_files_are_opened_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    now = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: now.append(wanted))
    assert Limits().affordable().connections == 1024 // FEW_FILES
    open_more_files()
    assert now[-1] == (4096, 4096)
    now[0] = (1024, resource.RLIM_INFINITY)
    open_more_files()
    assert now[-1] == (65_536, resource.RLIM_INFINITY)
    now[:] = [(70_000, 80_000)]
    open_more_files()
    assert len(now) == 1, "never lowered"


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        """Without mallopt."""

    loaded: list[Other] = []

    def load(_: object) -> Other:
        loaded.append(Other())
        return loaded[-1]

    monkeypatch.setattr(ctypes, "CDLL", load)
    give_memory_back()
    assert len(loaded) == 1
