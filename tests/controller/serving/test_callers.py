"""Who may ask for what names pods."""

from collections.abc import Mapping
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from kai_solver.controller.serving import callers
from kai_solver.controller.serving.callers import KEPT_S, Callers


class Server(MemoryApi):
    """Counts what it is asked, and can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Resource] = []
        self.away: Resource | None = None
        self.answer: Object | None = None

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        self.asked.append(resource)
        if resource == self.away:
            raise ApiError(0, "TimedOut", "no answer")
        return self.answer or super().create(resource, namespace, body, subresource=subresource)


class World:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.api = Server()
        self.api.accounts |= {"operator": frozenset({"/explain"}), "stranger": frozenset()}
        self.callers = Callers(self.api, lambda: self.now_s)

    def status(self, authorization: str, path: str = "/explain") -> int:
        refusal = self.callers(path, authorization)
        return refusal.status if refusal is not None else 200


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("shown", ["", "operator", "Basic operator", "Bearer", "Bearer  ", "Bearer nobody"])
def test_who_shows_no_token_of_the_cluster_is_not_known(world: World, shown: str) -> None:
    assert world.status(shown) == 401


def test_rbac_says_who_may_get_which_path(world: World) -> None:
    assert world.status("Bearer operator") == world.status("bearer operator") == 200
    assert world.status("Bearer operator", "/get-snapshot") == 403
    assert world.status("Bearer stranger") == 403


def test_an_answer_is_kept_for_a_while_and_no_longer(world: World) -> None:
    assert [world.status("Bearer operator") for _ in range(3)] == [200] * 3
    assert world.api.asked == [TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS]
    world.api.accounts["operator"] = frozenset()
    world.now_s = KEPT_S - 1
    assert world.status("Bearer operator") == 200
    world.now_s = KEPT_S
    assert world.status("Bearer operator") == 403
    world.api.accounts["operator"] = frozenset({"/explain"})
    world.now_s = 2 * KEPT_S
    assert world.status("Bearer operator") == 200


@pytest.mark.parametrize("away", [TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS])
def test_it_fails_closed_and_asks_again(world: World, away: Resource) -> None:
    world.api.away = away
    assert world.status("Bearer operator") == 503
    world.api.away = None
    assert world.status("Bearer operator") == 200


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "allowed": True, "user": {"username": "operator"}},
        {"authenticated": True, "allowed": True, "user": {"username": ""}},
        {"authenticated": True, "allowed": False, "user": {"username": "operator"}},
    ],
)
def test_only_yes_is_yes(world: World, status: Object) -> None:
    world.api.answer = {"status": status}
    assert world.status("Bearer operator") in (401, 403)


def test_what_is_kept_is_limited_and_holds_no_token(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "_MOST_KEPT", 5)
    for number in range(20):
        world.status(f"Bearer token-{number}")
        assert len(world.callers._kept) <= 5
    assert "token-19" not in repr(world.callers._kept)
