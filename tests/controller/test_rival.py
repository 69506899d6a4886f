"""Whether KAI's own scheduler is at work on the same pods, by its Lease."""

from typing import Any

import pytest

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import LEASES, PODS
from kai_solver.controller.rival import Rival
from kai_solver.controller.settings import ControllerSettings


class Kai:
    """Its Lease, which it renews every 5 s of a clock that the test moves."""

    def __init__(self, name: str = "kai-scheduler", namespace: str = "kai-scheduler", holder: str = "theirs") -> None:
        self.api, self.namespace, self.name, self.moves = MemoryApi(), namespace, name, True
        self.now_s = 0.0
        self.api.create(LEASES, namespace, {"metadata": {"name": name}, "spec": {"holderIdentity": holder}})

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1
            if self.moves and not self.now_s % 5:
                self.say(renewTime=str(self.now_s))

    def say(self, **spec: str) -> None:
        self.api.patch(LEASES, self.namespace, self.name, {"spec": spec})

    def rival(self, told: list[bool] | None = None, **settings: Any) -> Rival:
        report = (lambda _: None) if told is None else told.append
        return Rival(self.api, ControllerSettings(**settings), report, lambda: self.now_s)

    def stops(self, **settings: Any) -> str:
        """Why nothing is decided, once that is sure."""
        rival = self.rival(**settings)
        for _ in range(8):
            rival.look()
            self.wait(1)
        return rival.problem


@pytest.mark.parametrize("namespace", ["kai-scheduler", "kai-solver", "gpu-operators"])
def test_it_is_found_wherever_it_is(namespace: str) -> None:
    kai = Kai(namespace=namespace, holder="scheduler-5f7_8c1d")
    kai.api.create(PODS, namespace, {"metadata": {"name": "scheduler-5f7"}, "spec": {"serviceAccountName": "kai"}})
    kai.api.accounts = {f"system:serviceaccount:{namespace}:kai": frozenset({"bindrequests"})}
    assert f"{namespace}/kai-scheduler is renewed" in kai.stops()


@pytest.mark.parametrize("holder", ["me", "some-pod_1", "no-pod_1", "_", "../other/pod_1", "a" * 300 + "_1"])
def test_no_user_stops_the_scheduler_by_a_lease(holder: str) -> None:
    kai = Kai(namespace="user", holder=holder)
    kai.api.create(PODS, "user", {"metadata": {"name": "some-pod"}, "spec": {"serviceAccountName": "default"}})
    kai.api.accounts = {"system:serviceaccount:kai-scheduler:kai": frozenset({"bindrequests"})}
    assert not kai.stops()


def test_where_nobody_can_say_whose_a_lease_is_it_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    kai = Kai(namespace="gpu-operators", holder="scheduler_1")

    def fail(*_: object, **__: object) -> None:
        raise ApiError(403, "Forbidden")

    monkeypatch.setattr(kai.api, "get", fail)
    assert kai.stops()


def test_that_of_another_scheduler_or_node_pool_is_none_of_ours() -> None:
    assert not Kai().stops(scheduler_name="ours")
    assert not Kai().stops(node_pool="a100")
    assert Kai("kai-scheduler-a100").stops(node_pool="a100")


def test_our_own_lease_is_not_theirs() -> None:
    assert not Kai("kai", "ours").stops(scheduler_name="kai", namespace="ours", leadership={"name": "kai"})


def test_a_lease_that_nothing_renews_stops_us_for_as_long_as_a_renewal_may_take() -> None:
    kai = Kai()
    kai.moves = False
    rival = kai.rival()
    rival.look()
    assert "may be running" in rival.problem
    kai.wait(5)
    rival.look()
    assert "may be running" in rival.problem
    kai.wait(1)
    rival.look()
    assert not rival.problem


def test_one_that_was_let_go_or_never_was_costs_no_time() -> None:
    kai = Kai(holder="")
    for name in ("kai-scheduler", "nobody"):
        rival = kai.rival(scheduler_name=name)
        rival.look()
        assert not rival.problem


@pytest.mark.parametrize("ends", ["let go", "deleted"])
def test_it_comes_and_goes_and_is_believed_at_once(ends: str) -> None:
    kai, told = Kai(holder=""), list[bool]()
    rival = kai.rival(told)
    rival.look()
    kai.say(holderIdentity="theirs")
    rival.look()
    assert "kai-scheduler/kai-scheduler is renewed" in rival.problem, "the holder of a Lease that was acquired is alive"
    kai.wait(12)
    rival.look()
    assert rival.problem
    if ends == "deleted":
        kai.api.delete(LEASES, kai.namespace, kai.name)
    else:
        kai.say(holderIdentity="")
    rival.look()
    assert not rival.problem
    assert told == [False, True, True, False]


def test_one_that_dies_is_gone_after_the_time_of_a_renewal() -> None:
    kai = Kai()
    rival = kai.rival()
    rival.look()
    kai.wait(5)
    rival.look()
    assert "is renewed" in rival.problem
    kai.moves = False
    kai.wait(5)
    rival.look()
    assert "is renewed" in rival.problem
    kai.wait(1)
    rival.look()
    assert not rival.problem


def test_while_nothing_can_be_seen_the_last_look_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    kai = Kai()
    rival = kai.rival()
    rival.look()
    kai.wait(5)
    rival.look()

    def fail(*_: object, **__: object) -> None:
        raise ApiError(403, "Forbidden")

    monkeypatch.setattr(kai.api, "page", fail)
    kai.wait(60)
    with pytest.raises(ApiError):
        rival.look()
    assert "is renewed" in rival.problem
