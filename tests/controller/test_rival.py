"""Whether KAI's own scheduler is at work on the same pods, by its Lease."""

from typing import Any

import pytest

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import LEASES, PODS
from kai_solver.controller.rival import Rival
from kai_solver.controller.settings import ControllerSettings
from kai_solver.errors import InputError


class Kai:
    """Its Lease, renewed whenever we sleep."""

    def __init__(self, name: str = "kai-scheduler", namespace: str = "kai-scheduler", holder: str = "theirs") -> None:
        self.api, self.namespace, self.name, self.moves = MemoryApi(), namespace, name, True
        self.slept = 0.0
        self.api.create(LEASES, namespace, {"metadata": {"name": name}, "spec": {"holderIdentity": holder}})

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        if self.moves:
            self.api.patch(LEASES, self.namespace, self.name, {"spec": {"renewTime": str(self.slept)}})

    def refuses(self, **settings: Any) -> str:
        """Why we do not start."""
        try:
            Rival(self.api, ControllerSettings(**settings)).refuse(self.sleep)
        except InputError as error:
            return str(error)
        return ""


def said(rival: Rival) -> str:
    return rival.problem


@pytest.mark.parametrize("namespace", ["kai-scheduler", "kai-solver", "gpu-operators"])
def test_it_is_found_wherever_it_is(namespace: str) -> None:
    kai = Kai(namespace=namespace, holder="scheduler-5f7_8c1d")
    kai.api.create(PODS, namespace, {"metadata": {"name": "scheduler-5f7"}, "spec": {"serviceAccountName": "kai"}})
    kai.api.accounts = {f"system:serviceaccount:{namespace}:kai": frozenset({"bindrequests"})}
    why = kai.refuses()
    assert f"{namespace}/kai-scheduler is renewed" in why
    assert "dry_run" in why


@pytest.mark.parametrize("holder", ["me", "some-pod_1", "no-pod_1", "_", "../other/pod_1", "a" * 300 + "_1"])
def test_no_user_stops_the_scheduler_by_a_lease(holder: str) -> None:
    kai = Kai(namespace="user", holder=holder)
    kai.api.create(PODS, "user", {"metadata": {"name": "some-pod"}, "spec": {"serviceAccountName": "default"}})
    kai.api.accounts = {"system:serviceaccount:kai-scheduler:kai": frozenset({"bindrequests"})}
    assert not kai.refuses()


def test_where_nobody_can_say_whose_a_lease_is_it_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    kai = Kai(namespace="gpu-operators", holder="scheduler_1")

    def fail(*_: object, **__: object) -> None:
        raise ApiError(403, "Forbidden")

    monkeypatch.setattr(kai.api, "get", fail)
    assert kai.refuses()


def test_that_of_another_scheduler_or_node_pool_is_none_of_ours() -> None:
    assert not Kai().refuses(scheduler_name="ours")
    assert not Kai().refuses(node_pool="a100")
    assert Kai("kai-scheduler-a100").refuses(node_pool="a100")


def test_our_own_lease_is_not_theirs() -> None:
    assert not Kai("kai", "ours").refuses(scheduler_name="kai", namespace="ours", leadership={"name": "kai"})


def test_a_lease_that_nothing_renews_is_a_dead_ones() -> None:
    kai = Kai()
    kai.moves = False
    assert not kai.refuses()
    assert kai.slept == 6.0


def test_one_that_was_let_go_or_never_was_costs_no_time() -> None:
    kai = Kai(holder="")
    assert not kai.refuses()
    assert not kai.refuses(scheduler_name="nobody")
    assert kai.slept == 0.0


def test_it_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    kai, told = Kai(holder=""), list[bool]()
    rival = Rival(kai.api, ControllerSettings(), told.append)
    rival.look()
    kai.api.patch(LEASES, kai.namespace, kai.name, {"spec": {"holderIdentity": "theirs"}})
    rival.look()
    assert not said(rival), "nobody knows yet whether it lives"
    kai.sleep(1.0)
    rival.look()
    assert "kai-scheduler/kai-scheduler is renewed" in said(rival)

    def fail(*_: object, **__: object) -> None:
        raise ApiError(403, "Forbidden")

    with monkeypatch.context() as patched:
        patched.setattr(kai.api, "page", fail)
        with pytest.raises(ApiError):
            rival.look()
    assert said(rival), "the last look holds"
    rival.look()
    assert not said(rival)
    assert told == [False, False, True, False]
