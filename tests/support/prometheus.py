"""A server that answers the questions about past usage as Prometheus does, from samples in memory."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

LOOKBACK_S = 300.0
"""How long a sample holds at most."""

_QUESTION = re.compile(
    r"sum_over_time\(\((?:max by \(queue_name\) )?\((?P<metric>.+?)\)"
    r"(?: \* \(0\.5 \^ \(\((?P<now>\d+) - time\(\)\) / (?P<half>[\d.]+)\)\))?\)\[(?P<window>\d+)s:(?P<step>\d+)s\]\)"
)

Series = Mapping[str, list[tuple[float, float]]]
"""Samples (epoch seconds, value), oldest first, by the label ``queue_name``; "" of the cluster."""


@dataclass
class Prometheus:
    """Its samples by metric, and what it was asked.

    ``answer``: what it answers instead, with that status and ``encoding``; ``wait_s`` before every answer, ``pause_s``
    after each of its bytes.
    """

    samples: dict[str, Series] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    answer: tuple[int, bytes] | None = None
    encoding: str = ""
    wait_s: float = 0.0
    pause_s: float = 0.0
    url: str = ""

    def evaluate(self, question: str, now_s: float) -> list[dict[str, object]]:
        """The vector that a question gives at ``now_s``."""
        found = _QUESTION.fullmatch(question)
        assert found is not None, question
        step_s, window_s = int(found["step"]), int(found["window"])
        vector: list[dict[str, object]] = []
        for queue, series in self.samples.get(found["metric"], {}).items():
            total, has_some = 0.0, False
            at_s = (now_s - window_s) // step_s * step_s + step_s
            while at_s <= now_s:
                held = [value for time_s, value in series if at_s - LOOKBACK_S < time_s <= at_s]
                if held:
                    weight = 0.5 ** ((float(found["now"]) - at_s) / float(found["half"])) if found["half"] else 1.0
                    total, has_some = total + held[-1] * weight, True
                at_s += step_s
            if has_some:
                labels = {"queue_name": queue} if queue else {}
                vector.append({"metric": labels, "value": [now_s, repr(total)]})
        return vector


@contextmanager
def serving(prometheus: Prometheus) -> Iterator[Prometheus]:
    """Serve it on a free port of this machine, at ``prometheus.url``."""

    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            fields = parse_qs(body)
            prometheus.logins.append(self.headers.get("Authorization", ""))
            assert self.path == "/api/v1/query", self.path
            (question,), (now,) = fields["query"], fields["time"]
            prometheus.asked.append(question)
            if prometheus.answer is not None:
                status, content = prometheus.answer
            else:
                data = {"resultType": "vector", "result": prometheus.evaluate(question, float(now))}
                status, content = 200, json.dumps({"status": "success", "data": data}).encode()
            over.wait(prometheus.wait_s)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if prometheus.encoding:
                self.send_header("Content-Encoding", prometheus.encoding)
            self.end_headers()
            for part in (content,) if not prometheus.pause_s else (content[at : at + 1] for at in range(len(content))):
                self.wfile.write(part)
                over.wait(prometheus.pause_s)

        def handle(self) -> None:
            with suppress(ConnectionError):  # the client has given up
                super().handle()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    prometheus.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield prometheus
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
