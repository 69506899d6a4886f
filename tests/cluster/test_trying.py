"""Requests that are tried again leave nothing behind for the garbage collector, which hardly ever looks."""

import gc
from collections.abc import Callable, Iterator

import pytest

from kai_solver.cluster.api import ApiError, FenceError
from kai_solver.cluster.trying import trying

TIMES = 50


@pytest.fixture
def collected_by_hand() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def fine() -> Callable[[], int]:
    return lambda: 1


def refused() -> Callable[[], int]:
    def act() -> int:
        raise ApiError(403, "Forbidden", "no")

    return act


def fine_at_the_second_try() -> Callable[[], int]:
    answers = iter((503, 0))

    def act() -> int:
        if status := next(answers):
            raise ApiError(status, "Unavailable", "later")
        return 1

    return act


@pytest.mark.usefixtures("collected_by_hand")
@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("make", [fine, refused, fine_at_the_second_try])
def test_no_cycle_of_references_is_left(make: Callable[[], Callable[[], int]], leads: bool) -> None:
    outcomes: list[object] = []
    for _ in range(TIMES):
        try:
            outcomes.append(trying(make(), lambda: leads, lambda _: None))
        except (ApiError, FenceError) as error:
            outcomes.append(type(error).__name__)
    assert len(set(outcomes)) == 1
    assert gc.collect() < TIMES
