"""Probes, metrics and downloads over HTTP."""

from collections.abc import Iterator

import pytest
import urllib3

from kai_solver.controller.server import Answer, Server, download, metrics, probe
from kai_solver.errors import InputError
from kai_solver.metrics import Metrics

PROBLEM = [""]


def broken() -> Answer:
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
    }
    server = Server("127.0.0.1:0", routes)
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


def test_a_download_has_a_name(server: Server) -> None:
    answer = get(server, "/get-snapshot")
    assert answer.headers["Content-Type"] == "application/zip"
    assert "snapshot.zip" in answer.headers["Content-Disposition"]
    assert get(server, "/get-snapshot", "HEAD").data == b""


def test_a_wrong_path_says_what_there_is_and_a_fault_of_ours_ends_nothing(server: Server) -> None:
    assert b"/healthz" in get(server, "/nonsense").data
    assert get(server, "/broken").status == 500
    assert get(server, "/healthz").status == 200


@pytest.mark.parametrize("address", ["nowhere", ":port", "127.0.0.1:99999", "256.0.0.1:8080"])
def test_an_address_that_cannot_be_is_told(address: str) -> None:
    with pytest.raises(InputError):
        Server(address, {})


def test_a_port_that_is_taken_is_told(server: Server) -> None:
    with pytest.raises(InputError, match="another port"):
        Server(f"127.0.0.1:{server.port}", {})
