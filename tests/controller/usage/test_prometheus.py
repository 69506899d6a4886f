"""What Prometheus answers is what the samples say, and an answer of another kind is an error that says why."""

import base64
import gzip
import json
import random
import socket

import numpy as np
import pytest

from kai_solver.controller.usage import UsageError, ask, questions
from kai_solver.fairness import UsageHistory, UsageParams, past_usage, usage_shares
from kai_solver.kubeobjects.usagedb import ALLOCATED, CAPACITY, UsageStore
from tests.support.prometheus import LOOKBACK_S, Prometheus, Series, serving

NOW_S = 1_700_000_123.0
QUEUES = ("a", "b", "team")
UNITS = (1000.0, 1.0, 1000.0)
"""Of CPU and GPUs there are thousandths in a history."""


def drawn(dice: random.Random) -> UsageHistory:
    ages = sorted({float(dice.randrange(0, 9000)) for _ in range(dice.randrange(1, 30))}, reverse=True)
    held = np.array([[[dice.randrange(0, 9) for _ in range(3)] for _ in QUEUES] for _ in ages], dtype=float)
    whole = np.array([[dice.randrange(1, 30) for _ in range(3)] for _ in ages], dtype=float)
    return UsageHistory(NOW_S - np.array(ages), QUEUES, held * UNITS, whole * UNITS)


def stored(history: UsageHistory) -> Prometheus:
    samples: dict[str, Series] = {}
    for resource, (metric, capacity) in enumerate(zip(ALLOCATED, CAPACITY, strict=True)):
        unit = UNITS[resource]
        times = history.time_s.tolist()
        of_cluster = (history.capacity[:, resource] / unit).tolist()
        samples[metric] = {
            queue: list(zip(times, (history.allocated[:, number, resource] / unit).tolist(), strict=True))
            for number, queue in enumerate(history.queues)
        }
        samples[capacity] = {"": list(zip(times, of_cluster, strict=True))}
    return Prometheus(samples)


@pytest.mark.parametrize("seed", range(12))
def test_the_answer_is_what_the_samples_say(seed: int) -> None:
    dice = random.Random(seed)
    params = UsageParams(
        dice.choice(["sliding", "tumbling"]),
        size_s=dice.choice([600.0, 3600.0, 7200.0]),
        start_s=float(dice.randrange(10_000)),
        half_life_s=dice.choice([None, 600.0, 100_000.0]),
        resolution_s=dice.choice([15.0, 60.0]),
        lookback_s=LOOKBACK_S,
    )
    history = drawn(dice)
    with serving(stored(history)) as prometheus:
        usage = ask(UsageStore(prometheus.url, params=params), NOW_S)
    parent = {"a": "team", "b": "team", "team": ""}
    found = usage_shares(usage.queues, usage.used, usage.capacity, parent)
    wanted = past_usage(history, params, parent, NOW_S)
    for queue in QUEUES:
        assert found.get(queue, (0.0, 0.0, 0.0)) == pytest.approx(wanted[queue], rel=1e-6), queue


def test_questions_are_of_the_window_and_the_half_life() -> None:
    store = UsageStore("http://h", params=UsageParams(half_life_s=600.0))
    (_, _, gpus), (_, _, capacity) = questions(store, NOW_S)
    weight = "(0.5 ^ ((1700000123 - time()) / 600.000))"
    assert gpus == f"sum_over_time((max by (queue_name) (kai_queue_allocated_gpus) * {weight})[604800s:60s])"
    nodes = 'sum(kube_node_status_capacity{resource="nvidia_com_gpu"})'
    assert capacity == f"sum_over_time((({nodes}) * {weight})[604800s:60s])"


def test_user_and_password_are_sent_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Prometheus(answer=(200, b"nonsense"))) as prometheus:
        monkeypatch.setenv("STORE", prometheus.url.replace("http://", "http://someone:s%40cret@"))
        with pytest.raises(UsageError) as caught:
            ask(UsageStore(url_variable="STORE"), NOW_S)
    assert prometheus.logins == ["Basic c29tZW9uZTpzQGNyZXQ="]
    assert "cret" not in str(caught.value)
    assert "not as Prometheus does" in str(caught.value)


def test_a_password_may_have_any_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Prometheus(answer=(200, b"nonsense"))) as prometheus:
        monkeypatch.setenv("STORE", prometheus.url.replace("http://", "http://:p%C3%A4%E2%82%AC@"))
        with pytest.raises(UsageError, match="not as Prometheus does"):
            ask(UsageStore(url_variable="STORE"), NOW_S)
    assert prometheus.logins == [f"Basic {base64.b64encode(':pä€'.encode()).decode()}"]


REFUSED = json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error"}).encode()
MATRIX = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}}).encode()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((400, REFUSED), "refuses sum_over_time"),
        ((200, MATRIX), "not as Prometheus does"),
        ((502, b"<html>bad gateway</html>"), "answers with status 502"),
        ((200, b"\xff\x00"), "not as Prometheus does"),
        ((200, b"[" * 100_000), "not as Prometheus does"),
        ((200, b'{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}}'), "not as"),
    ],
)
def test_an_answer_that_is_none_says_why(answer: tuple[int, bytes], why: str) -> None:
    with serving(Prometheus(answer=answer)) as prometheus, pytest.raises(UsageError, match=why):
        ask(UsageStore(prometheus.url), NOW_S)


def test_a_server_that_is_silent_or_absent_is_given_up_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(UsageError, match=rf"http://127.0.0.1:{port} does not answer"):
            ask(UsageStore(f"http://127.0.0.1:{port}", timeout_s=0.2), NOW_S)
    with pytest.raises(UsageError, match="does not answer"):
        ask(UsageStore(f"http://127.0.0.1:{port}", timeout_s=1.0), NOW_S)


def test_an_answer_that_comes_in_drops_is_given_up_on() -> None:
    slow = Prometheus(answer=(200, b" " * 100), pause_s=0.1)
    with serving(slow), pytest.raises(UsageError, match=r"takes more than 0\.5 s to answer"):
        ask(UsageStore(slow.url, timeout_s=0.5), NOW_S)
    assert len(slow.asked) == 1


def test_the_timeout_is_for_all_questions() -> None:
    history = drawn(random.Random(1))
    with serving(stored(history)) as prometheus:
        prometheus.wait_s = 0.3
        with pytest.raises(UsageError):
            ask(UsageStore(prometheus.url, timeout_s=1.0), NOW_S)
    assert len(prometheus.asked) < 6


@pytest.mark.parametrize(("value", "why"), [("", "is not set"), ("ftp://h", "no address of a Prometheus")])
def test_an_address_of_the_environment_that_is_none(monkeypatch: pytest.MonkeyPatch, value: str, why: str) -> None:
    monkeypatch.setenv("STORE", value)
    with pytest.raises(UsageError, match=why):
        ask(UsageStore(url_variable="STORE"), NOW_S)


def test_what_is_no_amount_counts_as_nothing() -> None:
    texts = ("NaN", "+Inf", "-1", "1.7e308", "1.7e308")
    result = [{"metric": {"queue_name": "a"}, "value": [0, text]} for text in texts]
    result += [{"metric": {"queue_name": "a"}, "value": [0, "3"]}, {"metric": {}, "value": [0, "7"]}]
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
    with serving(Prometheus(answer=(200, body))) as prometheus:
        usage = ask(UsageStore(prometheus.url), NOW_S)
    assert usage.queues == ("a",)
    assert usage.used.tolist() == [[3.0, 3.0, 3.0]]


@pytest.mark.parametrize("capacity", [0.0, 1e-300])
def test_usage_without_capacity_is_no_share(capacity: float) -> None:
    history = UsageHistory(np.array([NOW_S - 60.0]), ("a",), np.full((1, 1, 3), 4.0), np.full((1, 3), capacity))
    with serving(stored(history)) as prometheus, pytest.raises(UsageError, match="queues used CPU, but of sum"):
        ask(UsageStore(prometheus.url), NOW_S)


def test_compressed_answers_are_read() -> None:
    result = [{"metric": {"queue_name": f"queue-{n}"}, "value": [0, "3"]} for n in range(2_000)]
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
    with serving(Prometheus(answer=(200, gzip.compress(body)), encoding="gzip")) as prometheus:
        assert len(ask(UsageStore(prometheus.url), NOW_S).queues) == 2_000
