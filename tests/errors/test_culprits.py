"""Things to blame are found by leaving some out, in few attempts."""

from collections.abc import Callable
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.errors.barrier import barrier, caught, in_words, listen, listening, trace_of, unlisten
from kai_solver.errors.culprits import MOST_CULPRITS, MOST_FAILURES, without_culprits, without_many
from tests.conftest import Caught

ERROR = ValueError("spoilt")


class Attempts:
    """Fails while a spoiler is in; counts."""

    def __init__(self, count: int, fails: Callable[[set[int]], bool]) -> None:
        self.count, self.fails, self.tries, self.last = count, fails, 0, set[int]()

    def __call__(self, left_out: frozenset[int]) -> set[int]:
        self.tries += 1
        self.last = there = set(range(self.count)) - left_out
        if self.fails(there):
            raise ERROR
        return there


@pytest.mark.slow
@given(st.integers(1, 300), st.data())
def test_all_spoilers_are_found_and_nothing_else_is_left_out(count: int, data: st.DataObject) -> None:
    spoilers = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=MOST_CULPRITS))
    attempts = Attempts(count, lambda there: bool(there & spoilers))
    found, blamed = without_culprits(count, attempts, ERROR)
    assert set(blamed) == spoilers
    assert found == set(range(count)) - spoilers
    assert attempts.tries <= 1 + len(spoilers) * (log2(count) + 4)


@given(st.integers(2, 100), st.data())
def test_of_two_that_fail_together_one_is_left_out(count: int, data: st.DataObject) -> None:
    pair = data.draw(st.sets(st.integers(0, count - 1), min_size=2, max_size=2))
    _, blamed = without_culprits(count, Attempts(count, lambda there: there >= pair), ERROR)
    assert set(blamed) == {max(pair)}


def test_what_fails_only_beside_another_culprit_is_not_left_out() -> None:
    attempts = Attempts(6, lambda there: 4 in there and (2 in there or 5 in there))
    found, blamed = without_culprits(6, attempts, ERROR)
    assert set(blamed) == {4}
    assert found == {0, 1, 2, 3, 5}


def test_what_does_not_come_again_is_no_things_fault() -> None:
    assert without_culprits(5, Attempts(5, lambda _: False), ERROR) == ({0, 1, 2, 3, 4}, {})


def test_what_fails_without_any_of_them_is_raised() -> None:
    with pytest.raises(ValueError, match="spoilt"):
        without_culprits(5, Attempts(5, lambda _: True), ERROR)


def test_more_spoilers_than_are_looked_for_are_raised() -> None:
    with pytest.raises(ValueError, match="spoilt"):
        without_culprits(50, Attempts(50, lambda there: bool(there & set(range(MOST_CULPRITS + 1)))), ERROR)


def said_first(attempts: Attempts, spoilers: set[int]) -> Callable[[Exception], int | None]:
    """Names the first spoiler of the attempt that failed last."""
    return lambda _: min(attempts.last & spoilers, default=None)


@pytest.mark.parametrize("is_named", [True, False])
@given(count=st.integers(10, 300), data=st.data())
def test_many_spoilers_are_found_by_halves(count: int, data: st.DataObject, *, is_named: bool) -> None:
    most = 10 if is_named else 2
    spoilers = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=most))
    attempts = Attempts(count, lambda there: bool(there & spoilers))
    named = said_first(attempts, spoilers) if is_named else lambda _: None
    found = without_many(range(count), attempts, named, may_try=lambda: True)
    assert (set(found.blamed), found.unknown) == (spoilers, frozenset())
    assert found.result == set(range(count)) - spoilers


def test_sixty_spoilers_of_one_kind_cost_no_other_item_and_few_attempts() -> None:
    spoilers = set(range(0, 120, 2))
    attempts = Attempts(1000, lambda there: bool(there & spoilers))
    kinds = ["bad" if item in spoilers else "good" for item in range(1000)]
    found = without_many(kinds, attempts, said_first(attempts, spoilers), may_try=lambda: True)
    assert found.result == set(range(1000)) - spoilers
    assert spoilers == set(found.blamed) | found.unknown
    assert attempts.tries <= MOST_FAILURES + 3


def test_the_search_for_many_ends_and_keeps_some() -> None:
    spoilers = set(range(3, 1000, 20))
    attempts = Attempts(1000, lambda there: bool(there & spoilers))
    found = without_many(range(1000), attempts, lambda _: None, may_try=lambda: True)
    assert found.result
    assert not found.result & spoilers
    assert attempts.tries <= 2 * MOST_FAILURES + 2


def test_an_item_that_was_named_in_error_is_kept() -> None:
    attempts = Attempts(40, lambda there: 30 in there)
    found = without_many(range(40), attempts, lambda _: min(attempts.last), may_try=lambda: True)
    assert found.result == set(range(40)) - {30}
    assert set(found.blamed) == {30}


def test_without_time_or_where_no_item_is_the_cause_nothing_is_searched() -> None:
    attempts = Attempts(40, lambda there: 30 in there)
    found = without_many(range(40), attempts, lambda _: None, may_try=lambda: False)
    assert (found.result, found.blamed, len(found.unknown), attempts.tries) == (set(), {}, 40, 1)
    with pytest.raises(ValueError, match="spoilt"):
        without_many(range(40), Attempts(40, lambda _: True), lambda _: None, may_try=lambda: True)


@given(st.integers(2, 100), st.integers(0, 5), st.data())
def test_without_time_all_that_are_left_of_the_search_are_blamed(count: int, tries: int, data: st.DataObject) -> None:
    spoiler = data.draw(st.integers(0, count - 1))
    left = iter([True] * tries)
    attempts = Attempts(count, lambda there: spoiler in there)
    found, blamed = without_culprits(count, attempts, ERROR, may_try=lambda: next(left, False))
    assert spoiler in blamed
    assert found.isdisjoint(blamed)
    assert len(blamed) <= max(1, -(-count // 2**tries))


def test_a_barrier_stops_and_tells(faults: list[Caught]) -> None:
    error = KeyError("x")

    def fail() -> None:
        raise error

    with barrier("reading", "Pod n/p"):
        fail()
    assert [(fault.where, fault.what, fault.error) for fault in faults] == [("reading", "Pod n/p", error)]


def test_listeners_hear_while_they_listen(faults: list[Caught]) -> None:
    heard: list[str] = []
    with listening(lambda where, what, error: heard.append(what)):
        caught("reading", "a", ERROR)
    caught("reading", "b", ERROR)

    class Ears:
        def hear(self, where: str, what: str, error: Exception) -> None:
            heard.append(what)

    ears = Ears()
    listen(ears.hear)
    caught("reading", "c", ERROR)
    unlisten(ears.hear)
    caught("reading", "d", ERROR)
    assert heard == ["a", "c"]


@given(st.text())
def test_an_error_in_words_is_one_short_printable_line(text: str) -> None:
    line = in_words(ValueError(text))
    assert line.isprintable()
    assert len(line) <= 200
    assert line.startswith("ValueError")


def test_the_trace_of_a_deep_recursion_is_short() -> None:
    def deep() -> None:
        deep()

    with pytest.raises(RecursionError) as found:
        deep()
    assert len(trace_of(found.value)) < 20_000
