"""Who could not be bound is tried again later, and later still."""

from kai_solver.cluster.resting import Resting


class Bench:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.resting = Resting(lambda: self.now_s)

    def rest_s(self, gang: str = "g", waited_s: float = 0.0) -> float:
        """How long it rests now; time passes."""
        self.resting.failed(gang, waited_s)
        begun_s = self.now_s
        while gang in self.resting.now():
            self.now_s += 0.5
        return self.now_s - begun_s


def test_each_rest_is_twice_as_long_up_to_a_limit() -> None:
    bench = Bench()
    assert [bench.rest_s() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert bench.rest_s("other") == 1


def test_what_waited_in_vain_rests_as_long_as_it_waited_and_then_longer() -> None:
    bench = Bench()
    rests = []
    for _ in range(5):
        rests.append(bench.rest_s(waited_s=120.0))
        bench.now_s += 120.0
    assert rests == [120, 240, 480, 960, 960]
    bench.now_s += 2 * 960
    assert bench.rest_s() == 1


def test_what_was_bound_or_was_quiet_for_long_begins_anew() -> None:
    bench = Bench()
    bench.rest_s()
    bench.resting.succeeded("g")
    assert bench.rest_s() == 1
    bench.rest_s()
    bench.now_s += 100
    assert bench.rest_s() == 1


def test_the_end_of_a_rest_is_told_once() -> None:
    bench = Bench()
    assert not bench.resting.woke()
    bench.resting.failed("g")
    assert not bench.resting.woke()
    bench.now_s += 1
    assert bench.resting.woke()
    assert not bench.resting.woke()
    bench.resting.failed("g")
    bench.resting.succeeded("g")
    assert not bench.resting.woke()
