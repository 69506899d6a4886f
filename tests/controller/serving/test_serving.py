"""Probes, metrics and downloads over HTTP."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
import urllib3
from structlog.testing import capture_logs

from kai_solver.controller.serving import Answer, Limits, Server, download, metrics, probe
from kai_solver.errors import InputError
from kai_solver.metrics import Metrics

PROBLEM = [""]


def broken(_: object) -> Answer:
    raise ZeroDivisionError


@pytest.fixture
def server() -> Iterator[Server]:
    PROBLEM[0] = ""
    found = Metrics()
    found.leader.set(1)
    routes = {
        "/healthz": probe(lambda: PROBLEM[0]),
        "/metrics": metrics(found.registry),
        "/get-snapshot": download("snapshot.zip", "application/zip", lambda: b"PK"),
        "/broken": broken,
        "/asked": lambda query: Answer(200, repr(sorted(query.items())).encode()),
    }
    server = Server("127.0.0.1:0", routes, {"/echo": lambda body: Answer(200, bytes(body)), "/broken": broken})
    yield server
    server.close()


def get(server: Server, path: str, method: str = "GET") -> urllib3.BaseHTTPResponse:
    return urllib3.request(method, f"http://127.0.0.1:{server.port}{path}", retries=False)


def test_a_probe_says_what_is_wrong(server: Server) -> None:
    assert (get(server, "/healthz").status, get(server, "/healthz?verbose").data) == (200, b"ok\n")
    PROBLEM[0] = "the loop has not moved for 70 s"
    assert get(server, "/healthz").status == 503
    assert b"70 s" in get(server, "/healthz").data


def test_metrics_are_scraped(server: Server) -> None:
    assert b"kai_solver_leader 1.0" in get(server, "/metrics").data


class Pieces:
    """Twenty pieces of 100 kB, counted."""

    def __init__(self) -> None:
        self.read, self.size, self.closed = 0, 20 * 100_000, threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(20):
            self.read += 1
            yield b"x" * 100_000

    def close(self) -> None:
        self.closed.set()


def test_what_follows_is_read_while_it_is_sent() -> None:
    made: list[Pieces] = []

    def route(_: object) -> Answer:
        made.append(Pieces())
        return Answer(200, b"first", name="f", rest=made[-1])

    server = Server("127.0.0.1:0", {"/file": route})
    try:
        assert get(server, "/file").data == b"first" + b"x" * 2_000_000
        head = get(server, "/file", "HEAD")
        assert (head.data, head.headers["Content-Length"]) == (b"", "2000005")
        with socket.create_connection(("127.0.0.1", server.port)) as gone:
            gone.sendall(b"GET /file HTTP/1.1\r\nHost: h\r\n\r\n")
            assert gone.recv(10)
        assert all(pieces.closed.wait(20) for pieces in made)
        assert [pieces.read for pieces in made[:2]] == [20, 0]
    finally:
        server.close()


def test_a_download_has_a_name(server: Server) -> None:
    answer = get(server, "/get-snapshot")
    assert answer.headers["Content-Type"] == "application/zip"
    assert "snapshot.zip" in answer.headers["Content-Disposition"]
    assert get(server, "/get-snapshot", "HEAD").data == b""


def test_an_address_has_parameters(server: Server) -> None:
    assert get(server, "/asked?pod=a%2Fb&pod=c&empty=").data == b"[('pod', 'c')]"
    assert get(server, "/asked").data == b"[]"


def test_a_wrong_path_says_what_there_is_and_a_fault_of_ours_ends_nothing(server: Server) -> None:
    assert b"/healthz" in get(server, "/nonsense").data
    assert get(server, "/broken").status == 500
    assert get(server, "/healthz").status == 200


def post(server: Server, path: str, body: bytes) -> urllib3.BaseHTTPResponse:
    return urllib3.request("POST", f"http://127.0.0.1:{server.port}{path}", body=body, retries=False)


def test_a_body_comes_whole(server: Server) -> None:
    body = bytes(range(256)) * 4000
    assert post(server, "/echo", body).data == body
    assert post(server, "/echo", b"").data == b""
    assert post(server, "/healthz", b"x").status == 405
    assert post(server, "/broken", b"x").status == 500


@pytest.mark.parametrize("text", [b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_what_hangs_up_early_is_worth_one_line_at_the_lowest_level(server: Server, text: bytes) -> None:
    at_once = struct.pack("ii", 1, 0)  # hanging up is a reset, as probes do that have waited long enough
    with capture_logs() as said:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            line.sendall(text)
        assert get(server, "/healthz").status == 200
    assert {entry["log_level"] for entry in said} <= {"debug"}
    assert not any("exc_info" in entry for entry in said)


def test_a_fault_of_ours_is_told_with_its_place(server: Server) -> None:
    with capture_logs() as said:
        get(server, "/broken")
    (fault,) = [entry for entry in said if entry["log_level"] == "error"]
    assert (fault["event"], fault["path"], fault["exc_info"]) == ("answering failed", "/broken", True)


def test_a_connection_that_ends_says_so(server: Server) -> None:
    assert get(server, "/nonsense").headers["Connection"] == "close"
    assert post(server, "/healthz", b"x").headers["Connection"] == "close"
    assert "Connection" not in get(server, "/healthz").headers


def test_a_connection_is_used_again(server: Server) -> None:
    with urllib3.HTTPConnectionPool("127.0.0.1", server.port, maxsize=1) as pool:
        for number in range(3):
            assert pool.request("POST", "/echo", body=str(number)).data == str(number).encode()
        assert pool.num_connections == 1


def talk(server: Server, text: bytes) -> bytes:
    """What comes back until the other side hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as line:
        line.sendall(text)
        parts = []
        while part := line.recv(65536):
            parts.append(part)
        return b"".join(parts)


@pytest.mark.parametrize(
    ("length", "status"),
    [
        (b"", b"411"),
        (b"Content-Length: x\r\n", b"400"),
        (b"Content-Length: -5\r\n", b"400"),
        (b"Content-Length: %d\r\n" % (Limits().body_bytes + 1), b"413"),
        (b"Content-Length: %d\r\n" % 10**30, b"400"),
    ],
)
def test_a_body_of_unknown_or_absurd_length_is_not_read(server: Server, length: bytes, status: bytes) -> None:
    found = talk(server, b"POST /echo HTTP/1.1\r\nHost: x\r\n" + length + b"\r\nGET /healthz HTTP/1.1\r\n\r\n")
    assert found.split()[1] == status
    assert found.count(b"HTTP/1.1") == 1, "the rest is no second request"


def test_the_beginning_of_a_body_that_is_too_large_may_be_answered() -> None:
    posts = {"/echo": lambda body: Answer(200, bytes(body)), "/other": lambda body: Answer(200, bytes(body))}
    heads = {"/echo": lambda head: Answer(200, b"%d %c" % (len(head), head[0]))}
    limits = Limits(body_bytes=1 << 20, waiting_bytes=2 << 20)
    server = Server("127.0.0.1:0", {}, posts, too_large=heads, limits=limits)
    try:
        with urllib3.HTTPConnectionPool("127.0.0.1", server.port, maxsize=1) as pool:
            for size in (20 << 20, (1 << 20) + 1):
                assert pool.request("POST", "/echo", body=b"x" * size).data == b"%d x" % limits.head_bytes
            assert pool.request("POST", "/echo", body=b"x" * (1 << 20)).data == b"x" * (1 << 20)
            assert pool.num_connections == 1, "the rest is read, and the connection is of use"
        assert server.listener.held == 0
        text = b"POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (2 << 20)
        assert talk(server, text).split()[1] == b"413"
    finally:
        server.close()


@pytest.mark.parametrize("address", ["nowhere", ":port", "127.0.0.1:99999", "256.0.0.1:8080"])
def test_an_address_that_cannot_be_is_told(address: str) -> None:
    with pytest.raises(InputError):
        Server(address, {})


def test_a_port_that_is_taken_is_told(server: Server) -> None:
    with pytest.raises(InputError, match="another port"):
        Server(f"127.0.0.1:{server.port}", {})
