"""Leadership: one at a time, whatever the clocks and the server do."""

import threading
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.lease import Lease
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import LEASES, Resource
from tests.support.leases import holder_of


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Shaky(MemoryApi):
    """Answers nothing while ``broken``."""

    broken = False

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        if self.broken:
            raise ApiError(0, "Refused")
        return super().get(resource, namespace, name)


def candidate(api: MemoryApi, identity: str, clock: Clock, skew_s: float = 0.0) -> Lease:
    return Lease(api, "kai", "kai-solver", identity, monotonic=clock, wall=lambda: clock.now + skew_s)


def test_the_first_leads_and_the_second_waits() -> None:
    api, clock = MemoryApi(), Clock()
    first, second = candidate(api, "a", clock), candidate(api, "b", clock)
    assert first.attempt()
    assert not second.attempt()
    assert first.is_held
    assert not second.is_held
    assert holder_of(api, "kai", "kai-solver") == "a"


@pytest.mark.parametrize("skew_s", [0.0, -3600.0, 3600.0])
def test_a_dead_leader_is_followed_after_its_time_whatever_the_wall_clocks_say(skew_s: float) -> None:
    api, clock = MemoryApi(), Clock()
    first, second = candidate(api, "a", clock), candidate(api, "b", clock, skew_s)
    first.attempt()
    second.attempt()
    clock.now += 14.9
    assert not second.attempt()
    assert not first.is_held, "the fence closes before another may begin"
    clock.now += 0.2
    assert second.attempt()
    assert second.is_held
    assert api.get(LEASES, "kai", "kai-solver")["spec"]["leaseTransitions"] == 1


def test_a_leader_that_renews_stays() -> None:
    api, clock = MemoryApi(), Clock()
    first, second = candidate(api, "a", clock), candidate(api, "b", clock)
    for _ in range(20):
        assert first.attempt()
        assert not second.attempt()
        clock.now += 2.0
    assert first.is_held


def test_a_server_that_is_away_costs_the_leader_its_right_in_time() -> None:
    api, clock = Shaky(), Clock()
    first = candidate(api, "a", clock)
    first.attempt()
    api.broken = True
    clock.now += 9.0
    assert first.attempt(), "renewed less than ten seconds ago"
    clock.now += 1.5
    assert not first.attempt()
    assert not first.is_held


def test_a_paused_leader_finds_itself_deposed() -> None:
    api, clock = MemoryApi(), Clock()
    first, second = candidate(api, "a", clock), candidate(api, "b", clock)
    first.attempt()
    second.attempt()
    clock.now += 16.0
    assert second.attempt()
    assert not first.is_held
    assert not first.attempt()


def test_a_renewal_of_its_own_that_arrives_late_deposes_nothing() -> None:
    class Late(MemoryApi):
        """The answer to the last renewal got lost, and the server carries it out between a reading and a writing."""

        delayed = False

        def get(self, resource: Resource, namespace: str, name: str) -> Object:
            found = super().get(resource, namespace, name)
            if self.delayed:
                self.delayed = False
                self.patch(resource, namespace, name, {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})
            return found

    api, clock = Late(), Clock()
    first = candidate(api, "a", clock)
    first.attempt()
    clock.now += 2.0
    api.delayed = True
    assert first.attempt(), "it leads by its last renewal"
    clock.now += 9.0
    assert not first.is_held, "and no longer by this one"
    assert first.attempt()


def test_letting_go_lets_another_begin_at_once() -> None:
    api, clock = MemoryApi(), Clock()
    first, second = candidate(api, "a", clock), candidate(api, "b", clock)
    first.attempt()
    first.release()
    assert not first.is_held
    assert second.attempt()


def test_a_renewal_that_is_under_way_does_not_take_back_what_is_let_go() -> None:
    class Slow(MemoryApi):
        """Somebody lets go while this answer is on its way."""

        asked, answered = threading.Event(), threading.Event()

        def patch(self, resource: Resource, namespace: str, name: str, body: Any, **more: Any) -> Object:
            self.asked.set()
            self.answered.wait(10)
            return super().patch(resource, namespace, name, body, **more)

    api, clock = Slow(), Clock()
    first = candidate(api, "a", clock)
    first.attempt()
    renewal, release = threading.Thread(target=first.attempt), threading.Thread(target=first.release)
    renewal.start()
    assert api.asked.wait(10)
    release.start()
    while first.is_held:
        release.join(0.01)
    api.answered.set()
    for thread in (renewal, release):
        thread.join(10)
    assert not first.is_held
    assert holder_of(api, "kai", "kai-solver") == ""
    assert not first.attempt(), "who let go does not come back"


def test_of_two_that_grasp_at_once_one_gets_it() -> None:
    class Late(MemoryApi):
        """Another candidate writes between the reading and the writing of this one."""

        rival: Lease | None = None

        def get(self, resource: Resource, namespace: str, name: str) -> Object:
            found = super().get(resource, namespace, name)
            rival, self.rival = self.rival, None
            if rival is not None:
                assert rival.attempt()
            return found

    api, clock = Late(), Clock()
    candidate(api, "a", clock).attempt()
    second, third = candidate(api, "b", clock), candidate(api, "c", clock)
    second.attempt()
    third.attempt()
    clock.now += 16.0
    api.rival = third
    assert not second.attempt()
    assert third.is_held
    assert holder_of(api, "kai", "kai-solver") == "c"


def test_answers_are_waited_for_so_shortly_that_two_more_tries_are_left() -> None:
    class Measured(MemoryApi):
        limit_s = 0.0

        def within(self, limit_s: float) -> MemoryApi:
            self.limit_s = limit_s
            return self

    api = Measured()
    times = candidate(api, "a", Clock()).times
    assert api.limit_s > 0
    assert 2 * (times.retry_s + api.limit_s) < times.renew_s


def led_and_lost(api: MemoryApi, clock: Clock) -> tuple[Lease, list[str]]:
    """A candidate that leads, and what it is told from now on."""
    told: list[str] = []
    found = candidate(api, "a", clock)
    assert found.attempt()
    found.on_led = lambda: told.append("led")
    found.on_lost = lambda: told.append("lost")
    return found, told


def test_a_lead_that_ran_out_while_the_server_was_away_is_followed_by_a_new_one() -> None:
    api, clock = Shaky(), Clock()
    first, told = led_and_lost(api, clock)
    api.broken = True
    for _ in range(30):
        clock.now += 2.0
        first.attempt()
    assert told == ["lost"]
    assert not first.is_held
    api.broken = False
    assert first.attempt(), "its own Lease is not waited for"
    assert told == ["lost", "led"]
    assert api.get(LEASES, "kai", "kai-solver")["spec"]["leaseTransitions"] == 1, "a lead of its own"


def test_a_process_that_was_paused_begins_a_new_lead_and_does_not_go_on_with_the_old_one() -> None:
    api, clock = MemoryApi(), Clock()
    first, told = led_and_lost(api, clock)
    clock.now += 60.0
    assert first.attempt()
    assert told == ["lost", "led"]


def test_a_new_lead_waits_for_the_end_of_what_was_begun_in_the_old_one() -> None:
    api, clock = MemoryApi(), Clock()
    first, told = led_and_lost(api, clock)
    idle = [False]
    first.is_idle = lambda: idle[0]
    clock.now += 11.0
    for _ in range(3):
        assert not first.attempt()
        clock.now += 2.0
    idle[0] = True
    assert first.attempt()
    assert told == ["lost", "led"]


def test_the_fence_is_closed_until_the_new_lead_has_begun() -> None:
    api, clock = MemoryApi(), Clock()
    first = candidate(api, "a", clock)
    seen: list[bool] = []
    first.on_led = lambda: seen.append(first.is_held)
    assert first.attempt()
    assert seen == [False]
    clock.now += 2.0
    assert first.attempt()
    assert seen == [False], "a renewal is no new lead"


def test_a_leader_that_is_followed_by_another_ends_and_one_that_is_not_goes_on() -> None:
    api, clock = Shaky(), Clock()
    first, second = candidate(api, "a", clock), candidate(api, "b", clock)
    first.attempt()
    told: list[str] = []
    tries = [0]

    def wait(seconds: float) -> None:
        clock.now += seconds
        tries[0] += 1
        if tries[0] == 20:
            assert not told, "nobody is known to lead: it stays"
            api.broken = False
            second.attempt()
            clock.now += 16.0
            assert second.attempt()

    first._stop.wait = wait  # type: ignore[method-assign,assignment]
    api.broken = True
    first.run(lambda: told.append("followed"))
    assert told == ["followed"]
    assert tries[0] == 20


def test_a_candidate_that_followed_another_one_stays_when_it_loses_the_lease() -> None:
    """Whom it followed is long gone, and no reason to end."""
    api, clock = Shaky(), Clock()
    first, second = candidate(api, "a", clock), candidate(api, "b", clock)
    first.attempt()
    second.attempt()
    clock.now += 16.0
    assert second.attempt()
    told: list[str] = []

    def wait(seconds: float) -> None:
        clock.now += seconds
        if clock.now > 1100.0:
            api.broken = False
        if second.is_held and not api.broken:
            second.release()

    second._stop.wait = wait  # type: ignore[method-assign,assignment]
    api.broken = True
    second.run(lambda: told.append("followed"))
    assert told == []


def test_of_two_live_ones_of_one_name_the_later_one_leads() -> None:
    """It must not happen (see `Identity`); ``leaseTransitions`` tells them apart all the same."""
    api, clock = MemoryApi(), Clock()
    first, twin = candidate(api, "a", clock), candidate(api, "a", clock)
    assert first.attempt()
    assert twin.attempt()
    clock.now += 2.0
    assert not first.attempt()
    assert not first.is_held
    assert twin.attempt()


def test_of_two_of_one_name_that_grasp_at_once_one_gets_it() -> None:
    class Late(MemoryApi):
        twin: Lease | None = None

        def get(self, resource: Resource, namespace: str, name: str) -> Object:
            found = super().get(resource, namespace, name)
            twin, self.twin = self.twin, None
            if twin is not None:
                assert twin.attempt()
            return found

    api, clock = Late(), Clock()
    candidate(api, "a", clock).attempt()
    first, twin = candidate(api, "a", clock), candidate(api, "a", clock)
    api.twin = twin
    assert not first.attempt()
    assert twin.is_held
