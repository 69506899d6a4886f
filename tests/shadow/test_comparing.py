"""Same, better, worse, on histories that are made up line by line."""

from typing import Any

import pytest

from kai_solver.shadow.comparing import Comparison, GangRow, compare
from kai_solver.shadow.lines import Begin, Bound, Decision, Gone, Leaver, Left, Line, Look, Marked, Mover, Place, Wait

T0 = 1_700_000_000.0


def places(gang: str, at: float, *, promised: bool = False, **more: Any) -> Decision:
    """A plan gives the gang its place."""
    binds = (Place(pod=f"{gang}-0", node="a", promised=promised),)
    return decision(gang, at, "promise" if promised else "bind", binds=binds, **more)


def leaves_pending(gang: str, at: float, **more: Any) -> Decision:
    return decision(gang, at, "pending", pending=Wait(reason="OverLimit", message="no", proof="proven"), **more)


def evicts(gang: str, at: float, *helps: str, pods: int = 1, **more: Any) -> Decision:
    found = tuple(Leaver(pod=f"{gang}-{i}", node="a", reason="reclaim", helps=helps) for i in range(pods))
    return decision(gang, at, "evict", evictions=found, runs=True, **more)


def decision(gang: str, at: float, word: Any, **more: Any) -> Decision:
    stated: dict[str, Any] = {"cycle": int(at), "queue": "q", "priority": 50, "created": T0, "gpus": 2.0} | more
    return Decision(at=T0 + at, gang=gang, decision=word, **stated)


def look(began: float) -> Look:
    return Look(at=T0 + began + 0.1, began=T0 + began, cycle=int(began))


def binds(gang: str, at: float, since: float | None = None) -> Bound:
    bound = T0 + (at if since is None else since)
    return Bound(at=T0 + at, since=bound, gang=gang, queue="q", pod=f"{gang}-0", node="a", created=T0, gpus=2.0)


def left(gang: str, at: float, how: Any, pod: int = 0) -> Left:
    pod_name = f"{gang}-{pod}"
    return Left(at=T0 + at, after=T0 + at - 1, how=how, gang=gang, queue="q", pod=pod_name, node="a")


def marked(gang: str, at: float) -> Marked:
    return Marked(at=T0 + at, since=T0 + at, gang=gang)


def compared(*lines: Line) -> Comparison:
    return compare([Begin(at=T0), *lines])


def row(*lines: Line, gang: str = "g") -> GangRow:
    return next(found for found in compared(*lines).rows if found.gang == gang)


END = look(100)
"""The recording lasts until then."""


# -- whether it got its places -----------------------------------------------------------------------------------------


def test_a_gang_that_only_this_side_places_is_better() -> None:
    found = row(places("g", 3), look(2), END)
    assert found.verdict == "better"
    assert found.why == "would have had its places after 3.0 s; was pending to the end"


def test_a_gang_that_only_the_other_side_places_is_worse_with_the_reason() -> None:
    found = row(leaves_pending("g", 3), look(2), look(9), binds("g", 10), END)
    assert found.verdict == "worse"
    assert found.why == "was bound after 10.0 s; would be pending (OverLimit)"


def test_a_gang_that_waits_with_both_is_the_same() -> None:
    found = row(leaves_pending("g", 3), look(2), END)
    assert (found.verdict, found.why) == ("same", "waits with both (OverLimit)")


def test_a_gang_that_is_deleted_while_only_this_side_would_have_placed_it_is_better() -> None:
    found = row(places("g", 3), look(2), Gone(at=T0 + 60, gang="g"), END)
    assert found.verdict == "better"
    assert found.why.endswith("was pending until it was deleted")


@pytest.mark.parametrize("end", [END, Gone(at=T0 + 101, gang="g")])
def test_a_place_that_comes_up_just_before_the_end_says_nothing(end: Line) -> None:
    assert row(places("g", 100), look(99), end).verdict == "unclear"


def test_room_that_no_cycle_had_seen_says_nothing() -> None:
    lines = leaves_pending("g", 3), look(2), left("other", 9, "ended"), binds("g", 9.5)
    assert row(*lines, END).verdict == "unclear"
    assert row(*lines[:3], look(9.2), *lines[3:], END).verdict == "worse"


def test_a_gang_that_is_bound_before_the_first_look_says_nothing() -> None:
    assert row(look(1), binds("g", 1.5), END).verdict == "unclear"


def test_an_interruption_ends_what_is_known() -> None:
    found = compared(places("g", 3), look(3), Begin(at=T0 + 50), END)
    assert [one.verdict for one in found.rows] == ["unclear"]
    assert found.interruptions == 1


# -- when --------------------------------------------------------------------------------------------------------------


def test_a_gang_that_both_place_is_compared_by_time() -> None:
    found = compared(places("g", 3), look(2), binds("g", 33), END)
    assert [(one.verdict, one.why) for one in found.rows] == [("better", "would start 30.0 s earlier")]
    assert found.saved == [(30.0, 2.0)]


def test_small_differences_are_the_same() -> None:
    found = row(places("g", 3), look(2), binds("g", 4.9), END)
    assert (found.verdict, found.why) == ("same", "both place it")


def test_the_time_is_that_of_the_condition_not_that_of_the_look() -> None:
    assert row(places("g", 3), look(2), binds("g", 30, since=4), END).verdict == "same"


def test_places_that_others_must_leave_first_have_no_time() -> None:
    found = row(places("g", 3, promised=True), evicts("v", 3, "g"), look(2), binds("g", 60), END)
    assert found.verdict == "same"
    assert "times are not compared" in found.why


def test_the_first_plan_counts_and_the_first_bound_pod() -> None:
    lines = places("g", 3), look(3), leaves_pending("g", 5), look(5), binds("g", 20), binds("g", 90), END
    assert compared(*lines).saved == [(17.0, 2.0)]


def test_surplus_pods_of_a_gang_that_runs_are_not_compared() -> None:
    assert compared(places("g", 3, runs=True), leaves_pending("g", 5, runs=True), END).rows == ()


def test_a_gang_that_waits_twice_is_one_row() -> None:
    again = places("g", 40, created=T0 + 39), look(40), binds("g", 50)
    found = row(places("g", 3), look(2), binds("g", 13), *again, END)
    assert [wait.saved_s for wait in found.waits] == [10.0, 10.0]
    assert found.why == "20.0 s earlier in all, in 2 waits"


# -- evictions ---------------------------------------------------------------------------------------------------------


def test_evictions_spared_decide_before_time() -> None:
    lines = places("g", 3), look(2), binds("g", 33), marked("g", 60), left("g", 60, "deleted"), END
    found = compared(*lines)
    assert [(one.verdict, one.why) for one in found.rows] == [
        ("better", "1 of its pods were evicted, 0 would have been")
    ]
    assert (found.evicted_there, found.evicted_here) == (1, 0)


def test_only_deletions_with_an_eviction_count() -> None:
    deleted = left("g", 10, "deleted"), left("h", 10, "disrupted"), left("i", 10, "ended"), left("j", 10, "deleted")
    found = compared(*deleted, marked("j", 35), marked("g", 90), END)
    assert {one.gang: one.evicted_there for one in found.rows} == {"h": 1, "j": 1}


def test_victims_of_the_first_plan_count_and_only_those() -> None:
    """The plan of cycle 3 would have been carried out: what cycle 7 chooses in its stead is not evicted as well."""
    first = places("g", 3, promised=True), evicts("v", 3, "g", pods=2), look(3)
    later = places("g", 7, promised=True), evicts("w", 7, "g", pods=3), look(7)
    found = compared(*first, *later, END)
    assert {one.gang: one.evicted_here for one in found.rows} == {"g": 0, "v": 2}
    assert {one.gang: one.verdict for one in found.rows} == {"g": "better", "v": "worse"}


def test_stale_pods_count_once_and_moved_ones_as_evicted() -> None:
    mover = Mover(pod="m-0", source="a", target="b", helps=("g",))
    lines = evicts("s", 3), look(3), evicts("s", 5), look(5), places("g", 6), decision("m", 6, "move", moves=(mover,))
    assert {one.gang: one.evicted_here for one in compared(*lines, END).rows} == {"g": 0, "m": 1, "s": 1}


def test_nothing_recorded_is_nothing_compared() -> None:
    found = compare([])
    assert (found.rows, found.cycles, found.saved) == ((), 0, [])
