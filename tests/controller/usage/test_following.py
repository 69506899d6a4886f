"""Past usage is asked for regularly, follows its configuration, and the last answer counts until the next."""

from typing import Any

from kai_solver.controller.usage import PastUsage
from kai_solver.fairness import UsageParams
from kai_solver.kubeobjects.names import OWN_USAGE
from kai_solver.kubeobjects.usagedb import ALLOCATED, CAPACITY, UsageStore
from kai_solver.metrics import Metrics
from tests.support.prometheus import Prometheus, serving

NOW_S = 1_700_000_123.0


class World:
    """A store of one hour, one queue below another, and a clock that is set."""

    def __init__(self, url: str) -> None:
        self.now_s = 100.0
        self.store: UsageStore | None = UsageStore(url, params=UsageParams(size_s=3600.0), stated_in="Some thing")
        self.metrics = Metrics()
        self.past = PastUsage(lambda: self.store, self.metrics, lambda: NOW_S, lambda: self.now_s)
        self.queues: tuple[dict[str, Any], ...] = (
            {"metadata": {"name": "team"}, "spec": {}},
            {"metadata": {"name": "a", "annotations": {"x": "y"}}, "spec": {"parentQueue": "team"}},
            {"metadata": {"name": "b"}, "spec": {"parentQueue": "team"}},
        )

    def usage(self) -> dict[str, str]:
        found = ((queue["metadata"]["name"], queue["metadata"].get("annotations")) for queue in self.seen())
        return {name: noted[OWN_USAGE] for name, noted in found if noted and OWN_USAGE in noted}

    def seen(self) -> tuple[dict[str, Any], ...]:
        return self.past.overlay(self.queues)

    def is_settled(self) -> bool:
        return self.past.is_settled

    def told(self) -> list[str]:
        assert {notice.object for notice in self.past.notices()} <= {"Some thing"}
        return [notice.text for notice in self.past.notices()]


def half_of_the_gpus() -> Prometheus:
    every_minute = [NOW_S - 60.0 * n for n in range(60, -1, -1)]
    held, whole = [(at_s, 4.0) for at_s in every_minute], [(at_s, 8.0) for at_s in every_minute]
    return Prometheus({ALLOCATED[2]: {"a": held}, CAPACITY[2]: {"": whole}})


def test_queues_are_read_with_what_they_used() -> None:
    with serving(half_of_the_gpus()) as prometheus:
        world = World(prometheus.url)
        assert not world.is_settled()
        assert world.seen() is world.queues
        world.past.look()
        assert world.is_settled()
        assert world.usage() == {"a": "0.0,0.0,0.5", "team": "0.0,0.0,0.5"}, "a parent has what its children have"
        first = world.seen()
        assert all(one is other for one, other in zip(first, world.seen(), strict=True)), "unchanged: not read again"
        assert first[1]["metadata"]["annotations"]["x"] == "y"
        assert "annotations" not in world.queues[0]["metadata"], "what the watch showed stays as it is"
        assert world.told() == []


def test_it_is_asked_again_after_the_interval_and_the_last_answer_counts_meanwhile() -> None:
    with serving(half_of_the_gpus()) as prometheus:
        world = World(prometheus.url)
        world.past.look()
        world.now_s += 59.0
        world.past.look()
        assert len(prometheus.asked) == 6, "three questions about queues, three about the cluster"
        prometheus.answer = (503, b"away")
        world.now_s += 2.0
        world.past.look()
        assert len(prometheus.asked) == 7
        assert world.usage()["a"] == "0.0,0.0,0.5"
        assert world.told() == [], "it is not old yet"
        world.now_s += 300.0
        world.past.look()
        (text,) = world.told()
        assert "older than 300 s, and counts all the same" in text
        assert "answers with status 503" in text
        prometheus.answer = None
        world.now_s += 60.0
        world.past.look()
        assert world.told() == []


def test_decisions_wait_for_the_first_answer_but_not_for_ever() -> None:
    world = World("http://127.0.0.1:9")
    world.past.look()
    assert not world.is_settled()
    world.now_s += 60.0
    assert world.is_settled()
    (text,) = world.told()
    assert "fair shares are without it: http://127.0.0.1:9 does not answer" in text
    assert world.usage() == {}


def test_another_store_is_followed_and_none_leaves_nothing() -> None:
    with serving(half_of_the_gpus()) as first, serving(Prometheus()) as second:
        world = World(first.url)
        world.past.look()
        world.store = UsageStore(second.url, params=UsageParams(size_s=3600.0))
        assert not world.is_settled()
        world.past.look()
        assert world.is_settled()
        assert world.usage() == {}
        world.store = None
        assert world.is_settled()
        world.past.look()
        assert world.seen() is world.queues
        assert world.past.notices() == ()


def test_without_the_capacity_of_what_was_used_the_last_answer_counts() -> None:
    with serving(half_of_the_gpus()) as prometheus:
        world = World(prometheus.url)
        whole = prometheus.samples.pop(CAPACITY[2])
        world.past.look()
        assert not world.is_settled()
        assert world.usage() == {}
        (text,) = world.told()
        assert (
            f"there is no past usage yet, so fair shares are without it: queues used GPUs, but of {CAPACITY[2]}" in text
        )
        prometheus.samples[CAPACITY[2]] = whole
        world.now_s += 60.0
        world.past.look()
        del prometheus.samples[CAPACITY[2]]
        world.now_s += 60.0
        world.past.look()
        assert world.usage()["a"] == "0.0,0.0,0.5"


def test_metrics_without_any_queue_are_told() -> None:
    with serving(Prometheus()) as prometheus:
        world = World(prometheus.url)
        world.past.look()
    assert world.is_settled()
    assert world.told() == [f"Prometheus has no {', '.join(ALLOCATED)} of any queue: past usage counts as none"]


def test_decisions_do_not_wait_for_a_question_to_an_earlier_store() -> None:
    with serving(half_of_the_gpus()) as prometheus:
        world = World(prometheus.url)
        world.past.look()
        world.store = UsageStore("http://another", params=UsageParams(size_s=3600.0))
        assert not world.is_settled()
        assert world.seen() is world.queues, "what the earlier one said does not count"
        world.now_s += 60.0
        assert world.is_settled()


def test_a_replica_that_did_not_lead_has_waited_already() -> None:
    world = World("http://127.0.0.1:9")
    world.past.look()
    world.now_s += 60.0
    world.past.look()
    assert world.is_settled()
