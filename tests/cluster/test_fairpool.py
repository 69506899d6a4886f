"""Threads of a pool are shared by namespace: none of them has all."""

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from kai_solver.cluster.fairpool import FairPool


class Bench:
    """Calls that wait until ``go``."""

    def __init__(self, size: int) -> None:
        self.pool = FairPool(size, "p", lambda namespace, *_: str(namespace))
        self.go, self.begun, self.changed = threading.Event(), list[str](), threading.Condition()

    def call(self, namespace: str) -> str:
        with self.changed:
            self.begun.append(namespace)
            self.changed.notify_all()
        assert self.go.wait(20)
        return namespace

    def await_begun(self, count: int) -> Counter[str]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= count, 10)
        return Counter(self.begun)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(64)
    yield bench
    bench.go.set()
    bench.pool.shutdown()


def test_no_namespace_holds_all_threads(bench: Bench) -> None:
    futures = [bench.pool.submit(bench.call, "many") for _ in range(200)]
    assert bench.await_begun(48) == {"many": 48}
    futures += [bench.pool.submit(bench.call, namespace) for namespace in ("b", "c", "d")]
    assert bench.await_begun(51) == {"many": 48, "b": 1, "c": 1, "d": 1}
    bench.go.set()
    assert Counter(future.result(20) for future in futures)["many"] == 200


def test_a_pool_of_one_thread_serves_all_in_turn() -> None:
    bench = Bench(1)
    futures = [bench.pool.submit(bench.call, namespace) for namespace in "aab"]
    bench.go.set()
    assert [future.result(20) for future in futures] == ["a", "a", "b"]
    bench.pool.shutdown()


def test_errors_are_those_of_the_call(bench: Bench) -> None:
    def fail(_: str) -> None:
        raise ZeroDivisionError

    assert isinstance(bench.pool.submit(fail, "a").exception(20), ZeroDivisionError)


def test_a_shutdown_cancels_what_has_not_begun_and_takes_nothing_new() -> None:
    bench = Bench(4)
    futures = [bench.pool.submit(bench.call, "a") for _ in range(10)]
    bench.await_begun(3)
    bench.pool.shutdown(wait=False, cancel_futures=True)
    assert [future.cancelled() for future in futures] == [False] * 3 + [True] * 7
    bench.go.set()
    assert [future.result(20) for future in futures[:3]] == ["a"] * 3
    with pytest.raises(RuntimeError):
        bench.pool.submit(bench.call, "a")
