"""Which pods gangs wait for."""

from kai_solver.cluster.evicting import Departure
from kai_solver.controller.awaited import Awaited


def leaving(name: str, *helps: str) -> Departure:
    return Departure("n", name, f"uid-{name}", "n/victims", "q", "reclaim", helps=helps)


def waiting(*departures: Departure) -> Awaited:
    awaited = Awaited()
    awaited.add(departures)
    return awaited


def test_a_gang_waits_until_the_last_pod_has_left() -> None:
    awaited = waiting(leaving("a", "n/g"), leaving("b", "n/g"), leaving("c", "n/g"))
    assert [awaited.gone(f"uid-{name}") for name in "abc"] == [True, True, False]
    assert not awaited


def test_a_pod_that_is_the_last_for_one_of_its_gangs_is_not_too_early() -> None:
    awaited = waiting(leaving("a", "n/g", "n/h"), leaving("b", "n/g"))
    assert not awaited.gone("uid-a"), "n/h waits for no other"
    assert not awaited.gone("uid-b")


def test_other_pods_are_news_whenever_they_leave() -> None:
    awaited = waiting(leaving("stale"), leaving("a", "n/g"), leaving("b", "n/g"))
    assert len(awaited) == 2
    assert not awaited.gone("uid-stale")
    assert not awaited.gone("uid-of-another")
    assert awaited.gone("uid-a")
    assert not awaited.gone("uid-a"), "it has left once"


def test_a_pod_that_is_evicted_again_counts_once() -> None:
    awaited = waiting(leaving("a", "n/g"))
    awaited.add([leaving("a", "n/g"), leaving("b", "n/g")])
    assert awaited.gone("uid-b")
    assert not awaited.gone("uid-a")


def test_pods_that_no_watch_told_of_are_forgotten() -> None:
    awaited = waiting(leaving("a", "n/g"), leaving("b", "n/g"))
    awaited.keep(lambda key, uid: (key, uid) == ("n/b", "uid-b"))
    assert not awaited.gone("uid-b")
    assert not awaited
    awaited.add([leaving("c", "n/g")])
    awaited.clear()
    assert not awaited
    assert not awaited.gone("uid-c")
