"""Evictions: budgets hold, rates are limited, the fence is asked."""

import pytest

from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.evicting import Departure, Evictor, Rates
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import DISRUPTION_BUDGETS, PODS


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def departure(
    name: str, gang: str = "n/g", queue: str = "q", helps: tuple[str, ...] = ("n/h",), uid: str = ""
) -> Departure:
    return Departure("n", name, uid, gang, queue, "reclaim", helps=helps)


def running(api: MemoryApi, name: str) -> str:
    made = api.create(PODS, "n", {"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"nodeName": "n1"}})
    return str(made["metadata"]["uid"])


def test_a_pod_leaves_and_counts_as_leaving() -> None:
    api, assumed = MemoryApi(), Assumed()
    uid = running(api, "p")
    assert not Evictor(api, assumed, lambda: True).evict(departure("p", uid=uid)).refused
    assert "deletionTimestamp" in api.get(PODS, "n", "p")["metadata"]
    assert len(assumed) == 1


def test_a_budget_refuses_and_the_pod_is_left_alone_ever_longer() -> None:
    api, clock = MemoryApi(), Clock()
    uid = running(api, "p")
    budget = {
        "metadata": {"name": "b"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 0},
    }
    api.create(DISRUPTION_BUDGETS, "n", budget)
    evictor = Evictor(api, Assumed(), lambda: True, clock=clock)
    waits = []
    for _ in range(10):
        outcome = evictor.evict(departure("p", uid=uid))
        assert outcome.by_budget
        began = clock.now
        while "n/p" in evictor.protected(clock.now):
            clock.now += 1
        waits.append(clock.now - began)
    assert waits[:4] == [5, 10, 20, 40]
    assert waits[-1] == 300
    assert len(evictor.assumed) == 0


def test_another_pod_of_that_name_is_not_evicted() -> None:
    api = MemoryApi()
    running(api, "p")
    assert (
        Evictor(api, Assumed(), lambda: True).evict(departure("p", uid="the one before")).refused == "the pod is gone"
    )
    assert "deletionTimestamp" not in api.get(PODS, "n", "p")["metadata"]


def test_who_does_not_lead_evicts_nobody() -> None:
    api = MemoryApi()
    uid = running(api, "p")
    assert "leads" in Evictor(api, Assumed(), lambda: False).evict(departure("p", uid=uid)).refused
    assert "deletionTimestamp" not in api.get(PODS, "n", "p")["metadata"]


@pytest.mark.parametrize(
    ("rates", "going"),
    [
        (Rates(), "abcdef"),
        (Rates(per_cycle=4), "abcd"),
        (Rates(per_cycle=3), "abe"),
        (Rates(per_cycle=1), "ab"),
        (Rates(per_queue=2), "abef"),
        (Rates(per_cycle=3, per_queue=2), "abe"),
    ],
)
def test_rates_are_kept_by_whole_groups(rates: Rates, going: str) -> None:
    """Two pods of one gang for one other, two of a second gang of the same queue, one each of two other queues."""
    wanted = [
        departure("a"),
        departure("b"),
        departure("c", gang="n/g2"),
        departure("d", gang="n/g2"),
        departure("e", gang="n/g3", queue="r"),
        departure("f", gang="n/g4", queue="s"),
    ]
    may, must_wait = Evictor(MemoryApi(), Assumed(), lambda: True, rates).within_rates(wanted)
    assert "".join(sorted(d.name for d in may)) == going
    assert len(may) + len(must_wait) == len(wanted)
