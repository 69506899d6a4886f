"""Writes that wait: newest first wins, order, pauses, failures, the fence."""

import pytest

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.writer import TOLD_AGAIN_S, Order, Wish, Writer


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class World:
    def __init__(self, rate: float = 10.0) -> None:
        self.clock, self.leads, self.is_busy = Clock(), True, False
        self.faults: list[Exception] = []
        self.writer = Writer(lambda: self.leads, lambda: self.is_busy, rate, monotonic=self.clock)
        self.done: list[str] = []

    def wish(
        self, name: str, text: str = "", order: Order = Order.SOON, every_s: float = 0.0, written: bool = True
    ) -> None:
        def act() -> bool:
            if self.faults:
                raise self.faults.pop()
            self.done.append(text or name)
            return written

        self.writer.wish(Wish((name,), act, order, every_s))

    def step(self) -> float | None:
        """One step, and its pause."""
        pause_s = self.writer.step()
        self.clock.now += pause_s or 0.0
        return pause_s

    def all(self) -> list[str]:
        while self.step() is not None:
            pass
        return self.done


def test_a_newer_wish_takes_the_place_of_an_older_one() -> None:
    world = World()
    world.wish("a", "old")
    world.wish("b")
    world.wish("a", "new")
    assert world.all() == ["new", "b"]


def test_what_is_urgent_goes_first_also_when_it_becomes_urgent() -> None:
    world = World()
    world.wish("event", order=Order.LAST)
    world.wish("status")
    world.wish("b", order=Order.LATER)
    world.wish("victim", order=Order.NOW)
    world.wish("event", order=Order.NOW)
    assert world.all() == ["victim", "event", "status", "b"]


def test_pauses_are_longer_while_gangs_are_bound() -> None:
    world = World(rate=10.0)
    world.wish("a")
    world.wish("b")
    assert world.step() == pytest.approx(0.1)
    world.is_busy = True
    assert world.step() == pytest.approx(2.0)
    assert world.step() is None


def test_what_turns_out_to_be_needless_costs_no_pause() -> None:
    world = World()
    world.wish("a", written=False)
    assert world.writer.step() == 0.0
    assert world.writer.counts.written == 0


def test_the_same_thing_is_not_written_more_often_than_wanted() -> None:
    world = World()
    world.wish("a", "1", every_s=5.0)
    world.wish("b", every_s=5.0)
    assert world.all() == ["1", "b"]
    world.wish("a", "2", every_s=5.0)
    world.wish("a", "3", every_s=5.0)
    assert world.all() == ["1", "b"]
    world.clock.now += 5.0
    assert world.all() == ["1", "b", "3"]


def test_a_wish_taken_back_is_not_written() -> None:
    world = World()
    world.wish("a")
    world.writer.cancel(("a",))
    assert world.all() == []


def test_failures_that_pass_are_tried_again_ever_later_and_yield_to_newer_wishes() -> None:
    world = World()
    world.faults = [ApiError(503, "Unavailable")] * 3
    world.wish("a", "old")
    pauses = [world.step() for _ in range(2)]
    assert pauses == pytest.approx([0.4, 0.8])
    world.wish("a", "new")
    assert world.step() == pytest.approx(1.6)
    assert world.all() == ["new"]


def refused_for_ever(world: World, *key: str, order: Order = Order.SOON) -> None:
    """A wish that is answered with 500 each time, as where the webhook for its object is away."""

    def act() -> bool:
        world.done.append("refused")
        raise ApiError(500, "InternalError", "failed calling webhook")

    world.writer.wish(Wish(key, act, order))


def test_an_object_that_always_fails_does_not_hold_up_the_others() -> None:
    world = World()
    refused_for_ever(world, "group", "bad")
    world.wish("event", order=Order.LAST)
    world.wish("status")
    ends_s = world.clock.now + 3600.0
    while world.clock.now < ends_s:
        world.clock.now += world.writer.step() or 0.5
    assert world.done[:3] == ["refused", "status", "event"]
    assert 100 < world.done.count("refused") < 150, "it is tried again, twice a minute"


def test_what_failed_comes_after_what_has_not_been_tried() -> None:
    world = World()
    refused_for_ever(world, "group", "bad")
    world.step()
    for name in "abcdefgh":
        world.wish(name, order=Order.LAST)
    world.clock.now += 10.0
    for _ in range(9):
        world.step()
    assert world.done == ["refused", *"abcdefgh", "refused"]


def test_a_kind_that_fails_does_not_hold_up_the_others() -> None:
    world = World()
    for number in range(1000):
        refused_for_ever(world, "group", str(number))
    world.wish("event", order=Order.LAST)
    pauses = [world.step() for _ in range(4)]
    assert world.done == ["refused"] * 3 + ["event"]
    assert pauses[:3] == pytest.approx([0.1, 0.1, 2.0]), "it is tried seldom"
    for _ in range(1000):
        world.step()
    world.wish("another", order=Order.LAST)
    world.step()
    assert world.done[-1] == "another"


def test_wishes_taken_back_leave_nothing_behind() -> None:
    world = World()
    world.leads = False
    for _ in range(100):
        world.wish("a")
        world.writer.cancel(("a",))
    assert len(world.writer._ready) == 1
    world.leads = True
    assert world.all() == []
    assert not world.writer._queued
    world.wish("a")
    assert world.all() == ["a"]


def test_the_server_is_left_alone_for_as_long_as_it_asks() -> None:
    world = World()
    world.faults = [ApiError(429, "TooManyRequests", retry_after_s=7.0)]
    world.wish("a")
    assert world.step() == 7.0
    assert world.all() == ["a"]


def test_what_is_refused_for_good_is_dropped_and_told_once() -> None:
    world = World()
    told: list[tuple[str, ...]] = []
    world.writer.complain = lambda key, _: told.append(key)
    world.faults = [ApiError(403, "Forbidden")] * 2
    world.wish("a")
    world.writer.step()
    world.wish("a")
    assert world.all() == []
    assert told == [("a",)]
    assert world.writer.counts.refused == 2


def run_for(world: World, seconds: float) -> None:
    ends_s = world.clock.now + seconds
    while world.clock.now < ends_s:
        world.clock.now += world.writer.step() or 0.5


def test_what_fails_again_and_again_is_told_once_an_hour_and_not_at_first() -> None:
    world, told = World(), list[tuple[str, ...]]()
    world.writer.complain = lambda key, _: told.append(key)
    refused_for_ever(world, "podgroups", "n/bad", "spec")
    run_for(world, 30.0)
    assert told == [], "a webhook that restarts is away for as long"
    run_for(world, 60.0)
    assert told == [("podgroups", "n/bad", "spec")]
    run_for(world, TOLD_AGAIN_S - 90.0)
    assert len(told) == 1
    run_for(world, 180.0)
    assert len(told) == 2
    assert world.writer.counts.failed == world.done.count("refused") > 100


def test_each_object_and_reason_is_told_and_only_a_few_with_the_same_reason() -> None:
    world, told = World(), list[tuple[str, ...]]()
    world.writer.complain = lambda key, error: told.append((error.reason, *key))

    def refused(reason: str, *key: str) -> None:
        def act() -> bool:
            raise ApiError(403, reason)

        world.writer.wish(Wish(key, act))
        world.all()

    refused("Forbidden", "podgroups", "n/a", "spec")
    refused("Forbidden", "podgroups", "n/a", "sums")
    refused("Invalid", "podgroups", "n/a", "spec")
    refused("Forbidden", "podgroups", "n/b", "spec")
    assert told == [
        ("Forbidden", "podgroups", "n/a", "spec"),
        ("Invalid", "podgroups", "n/a", "spec"),
        ("Forbidden", "podgroups", "n/b", "spec"),
    ]
    for number in range(1000):
        refused("Forbidden", "podgroups", f"n/{number}", "spec")
    assert len(told) < 15
    assert world.writer.counts.refused == 1004


def test_of_a_server_that_is_away_no_object_is_told() -> None:
    world, told = World(), list[tuple[str, ...]]()
    world.writer.complain = lambda key, _: told.append(key)

    def away() -> bool:
        raise ApiError(0, "ConnectionRefused")

    world.writer.wish(Wish(("podgroups", "n/a", "spec"), away))
    run_for(world, 600.0)
    assert told == []


@pytest.mark.usefixtures("faults")
def test_a_fault_of_our_own_spares_the_other_wishes() -> None:
    world = World()
    told: list[str] = []
    world.writer.complain = lambda _, error: told.append(error.reason)
    world.faults = [AttributeError("'str' object has no attribute 'get'")]
    world.wish("a")
    world.wish("b")
    assert world.all() == ["b"]
    assert told == ["AttributeError"]


def test_a_newer_wish_waits_until_the_older_one_is_written() -> None:
    world = World()

    def slow() -> bool:
        world.wish("a", "new")
        world.wish("b")
        for _ in range(2):  # other threads
            world.writer.step()
        world.done.append("old")
        return True

    world.writer.wish(Wish(("a",), slow))
    assert world.all() == ["b", "old", "new"]


def test_threads_that_fail_together_rest_once() -> None:
    world = World()

    def failing() -> bool:
        world.writer.step()  # another thread, which fails meanwhile
        raise ApiError(503, "Unavailable")

    world.faults = [ApiError(503, "Unavailable")]
    world.writer.wish(Wish(("a",), failing))
    world.wish("b")
    assert world.writer.step() == pytest.approx(0.4)
    assert world.writer.step() == pytest.approx(0.4), "nothing is tried meanwhile"


def test_nothing_is_written_without_leadership() -> None:
    world = World()
    world.leads = False
    world.wish("a")
    assert world.writer.step() == 0.5
    world.writer.drain(10.0)
    assert world.done == []
    world.leads = True
    assert world.all() == ["a"]


def test_where_too_many_wait_the_last_are_dropped() -> None:
    world = World()
    world.writer.most = 2
    for name in "abc":
        world.wish(name, order=Order.LAST)
    world.wish("d")
    assert world.all() == ["d", "a", "b"]
    assert world.writer.counts.dropped == 1


def test_draining_writes_all_that_is_due_and_ends_with_a_failing_server() -> None:
    world = World()
    for name in "abc":
        world.wish(name)
    world.writer.drain(1.0)
    assert world.done == ["a", "b", "c"]
    world.faults = [ApiError(0, "Refused")] * 100
    world.wish("d")
    world.writer.drain(1e9)
    assert world.done == ["a", "b", "c"]


def test_draining_goes_on_after_an_object_that_fails() -> None:
    world = World()
    refused_for_ever(world, "group", "bad")
    world.wish("a")
    world.writer.drain(1.0)
    assert world.done == ["refused", "a"]
