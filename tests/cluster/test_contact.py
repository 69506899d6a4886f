"""Silence of the API server: it begins with the first request without an answer, and any answer ends it."""

import pytest

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.contact import DEAD_S, SILENT_S, Contact
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import NODES
from kai_solver.cluster.timing import TimedApi


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("status", [0, 408, 500, 503])
def test_silence_begins_when_the_first_unanswered_request_was_sent(status: int) -> None:
    clock = Clock()
    contact = Contact(clock)
    began_s = contact.now()
    clock.now += SILENT_S + 2
    contact.ended(began_s, ApiError(status, "TimedOut"))
    assert contact.silent_s == SILENT_S + 2
    assert "has not answered for 12 s" in contact.problem
    assert "TimedOut" in contact.problem
    contact.answered()
    assert contact.silent_s == 0
    assert not contact.problem


@pytest.mark.parametrize("status", [404, 409, 422, 429])
def test_a_refusal_is_an_answer(status: int) -> None:
    clock = Clock()
    contact = Contact(clock)
    contact.ended(contact.now(), ApiError(0, "Refused"))
    clock.now += 100
    contact.ended(contact.now(), ApiError(status, "No"))
    assert contact.silent_s == 0


@pytest.mark.parametrize(("seconds", "told"), [(0.5, []), (DEAD_S, ["back"]), (100.0, ["back"])])
def test_what_was_silent_for_long_may_have_forgotten_connections(seconds: float, told: list[str]) -> None:
    clock, heard = Clock(), list[str]()
    contact = Contact(clock)
    contact.on_return = lambda: heard.append("back")
    began_s = contact.now()
    clock.now += seconds
    contact.ended(began_s, ApiError(0, "TimedOut"))
    for _ in range(2):
        contact.answered()
    assert heard == told


def test_of_many_requests_one_that_hangs_is_no_silence() -> None:
    clock = Clock()
    contact = Contact(clock)
    began_s = contact.now()
    clock.now += 29
    contact.ended(contact.now(), None)
    clock.now += 1
    contact.ended(began_s, ApiError(0, "TimedOut"))
    assert contact.silent_s == 1, "others were answered a second ago"


def test_all_requests_and_watches_are_heard_of() -> None:
    memory, contact = MemoryApi(), Contact()
    api = TimedApi(memory, lambda _verb, _seconds: None, contact=contact)
    memory.create(NODES, "", {"metadata": {"name": "a"}})

    def silent() -> None:
        contact.ended(contact.now() - 1, ApiError(0, "Refused"))
        assert contact.silent_s > 0

    for ask in (lambda: api.page(NODES), lambda: api.get(NODES, "", "a"), api.installed, lambda: api.served("v1")):
        silent()
        ask()
        assert contact.silent_s == 0
    silent()
    next(iter(api.watch(NODES, "0", 1.0)))
    assert contact.silent_s == 0
    watch = iter(api.watch(NODES, memory.page(NODES).resource_version, 5.0))
    memory.close()
    assert list(watch) == []
