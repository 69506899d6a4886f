"""Gangs that spoil cycles again and again are left out for a while; their owners see why, and can cure it."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import EVENTS, PODS
from kai_solver.controller import quarantine as module
from kai_solver.controller.quarantine import ERRORS, FIRST_S, LONGEST_S, SLOW_CYCLES, WELL_S, Quarantine
from kai_solver.controller.reporting import waiting
from kai_solver.domain import Gang, GpuRequest, Pod, PodStatus, Snapshot, flat_gang
from kai_solver.planstate import state
from kai_solver.units import ResourceSchema
from tests.conftest import Caught
from tests.controller.replicas import bound, cluster, pod, running, until


class Times:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def gang(name: str, **more: Any) -> Gang:
    made = Pod("n", f"{name}-0", (100, 1, 0, 1), GpuRequest(1), labels={"a": "b"})
    return replace(Gang("n", name, "q", flat_gang(1), (made,)), **more)


def seen(*gangs: Gang) -> Snapshot:
    return Snapshot(0.0, ResourceSchema(), (), (), gangs)


def a_quarantine() -> tuple[Quarantine, Times, list[int]]:
    times, told = Times(), list[int]()
    return Quarantine(times, times, told.append), times, told


def out(quarantine: Quarantine, *gangs: Gang) -> dict[str, str]:
    return {found.key: found.set_aside for found in quarantine.apply(seen(*gangs)).gangs if found.set_aside}


def test_a_gang_is_left_out_after_several_errors_and_longer_each_time() -> None:
    quarantine, times, told = a_quarantine()
    bad, good = gang("bad"), gang("good")
    for number in range(ERRORS):
        assert out(quarantine, bad, good) == {}, number
        quarantine.caught("deciding", "n/bad", KeyError("x"))
    pauses = []
    for _ in range(12):
        began_s = times.now_s
        while out(quarantine, bad, good):
            assert out(quarantine, bad, good).keys() == {"n/bad"}
            assert not quarantine.woke()
            times.now_s += FIRST_S
        assert quarantine.woke()
        assert not quarantine.woke()
        pauses.append(times.now_s - began_s)
        quarantine.caught("deciding", "n/bad", KeyError("x"))
    assert pauses == [min(FIRST_S * 2**i, LONGEST_S) for i in range(12)]
    assert set(told) == {0, 1}


def test_why_a_gang_is_left_out_and_until_when_stays_the_same_text() -> None:
    quarantine, times, _ = a_quarantine()
    for _ in range(ERRORS):
        quarantine.caught("deciding", "n/bad", KeyError("x"))
    text = out(quarantine, gang("bad"))["n/bad"]
    assert "until 1970-01-01T00:00:30Z, or until it changes" in text
    assert "KeyError: 'x'" in text
    times.now_s += 1
    assert out(quarantine, gang("bad"))["n/bad"] == text


@pytest.mark.parametrize(
    "changed",
    [
        gang("bad", priority=60),
        gang("bad", uid="another"),
        replace(gang("bad"), pods=(replace(gang("bad").pods[0], gpu=GpuRequest(2)),)),
        replace(gang("bad"), pods=(replace(gang("bad").pods[0], labels={}),)),
        replace(gang("bad"), pods=(*gang("bad").pods, gang("more").pods[0])),
    ],
)
def test_a_gang_that_changes_is_tried_again_at_once(changed: Gang) -> None:
    quarantine, _, _ = a_quarantine()
    for _ in range(ERRORS):
        quarantine.caught("deciding", "n/bad", KeyError("x"))
    assert out(quarantine, gang("bad"))
    runs = replace(gang("bad"), pods=(replace(gang("bad").pods[0], status=PodStatus.RUNNING, node="a"),))
    assert out(quarantine, runs), "how it stands is no change"
    assert not out(quarantine, changed)
    assert quarantine.woke()
    quarantine.caught("deciding", "n/bad", KeyError("x"))
    assert out(quarantine, changed), "it spoils the first cycle again"


def test_an_error_now_and_then_is_forgotten() -> None:
    quarantine, times, _ = a_quarantine()
    for _ in range(3 * ERRORS):
        quarantine.caught("deciding", "n/bad", KeyError("x"))
        assert not out(quarantine, gang("bad"))
        times.now_s += WELL_S + 1


def test_errors_of_other_kinds_count_against_no_gang() -> None:
    quarantine, _, _ = a_quarantine()
    for _ in range(10):
        quarantine.caught("reporting", "n/bad", KeyError("x"))
        quarantine.caught("deciding", "the cycle", KeyError("x"))
    assert not out(quarantine, gang("bad"))


def test_a_gang_that_takes_too_much_time_is_left_out_after_several_cycles() -> None:
    quarantine, _, _ = a_quarantine()
    for _ in range(SLOW_CYCLES):
        assert not out(quarantine, gang("slow"))
        quarantine.slow("n/slow", 1.25)
    assert "takes 1.2 s of each cycle" in out(quarantine, gang("slow"))["n/slow"]


def test_a_gang_that_fails_even_while_it_is_left_out_is_stripped() -> None:
    quarantine, _, _ = a_quarantine()
    for _ in range(ERRORS):
        quarantine.caught("deciding", "n/bad", KeyError("x"))
    assert quarantine.apply(seen(gang("bad"))).gangs[0].pods[0].labels
    quarantine.caught("deciding", "n/bad", KeyError("x"))
    (found,) = quarantine.apply(seen(gang("bad"))).gangs
    assert not found.pods[0].labels
    assert found.pods[0].gpu == gang("bad").pods[0].gpu


def failing(monkeypatch: pytest.MonkeyPatch, prefix: str) -> list[bool]:
    """Giving a place to a pod of that name raises, while the first element is True."""
    put, join, on = state.State.put, state.State.join, [True]

    def strange_put(self: state.State, number: int, *args: Any, **options: Any) -> Any:
        if on[0] and self.problem.pods[number].name.startswith(prefix):
            raise KeyError("nobody thought of this")
        return put(self, number, *args, **options)

    def strange_join(self: state.State, numbers: Any, *args: Any) -> Any:
        if on[0] and self.problem.pods[numbers[0]].name.startswith(prefix):
            raise KeyError("nobody thought of this")
        return join(self, numbers, *args)

    monkeypatch.setattr(state.State, "put", strange_put)
    monkeypatch.setattr(state.State, "join", strange_join)
    return on


def test_in_a_cluster_the_others_are_bound_and_the_owner_is_told(
    monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    monkeypatch.setattr(module, "FIRST_S", 2.0)
    monkeypatch.setattr(waiting, "OTHER_WORDS_S", 0.0)  # it may say the words of the first error first
    on = failing(monkeypatch, "bad")
    api: MemoryApi = cluster()
    pod(api, "bad")
    with running(api, idle=0.05) as replica:
        gauge = replica.metrics.registry.get_sample_value
        until(lambda: gauge("kai_solver_quarantined_gangs") == 1.0)
        pod(api, "good")
        until(lambda: bound(api) == {"good"})

        def said() -> str:
            (condition,) = api.get(PODS, "n", "bad")["status"].get("conditions") or [{}]
            return str(condition.get("message", ""))

        until(lambda: "left out of all decisions until" in said())
        assert "KeyError: 'nobody thought of this'" in said()
        until(lambda: any("nobody thought of this" in e["message"] for e in api.page(EVENTS).items))
        until(lambda: b"left out of all decisions" in replica.explain({"namespace": "n", "pod": "bad"}).body)
        on[0] = False
        until(lambda: bound(api) == {"good", "bad"})
    assert {fault.where for fault in faults} == {"deciding"}
