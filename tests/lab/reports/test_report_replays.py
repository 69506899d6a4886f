"""What the figures of simulations show, by examples that are worked out by hand."""

import numpy as np
import polars as pl

from kai_solver.lab.reports.replays import largest_queues, shares, started_within, steps, thinned, totals, waits_by

CYCLES = pl.DataFrame(
    {
        "time_s": [0.0, 10.0, 30.0],
        "gpus_held": [0.0, 6.0, 8.0],
        "gpus_up": [8.0, 8.0, 0.0],
        "evictions": [0, 2, 3],
    }
)
JOBS = pl.DataFrame(
    {
        "queue": ["b", "a", "a", "a", "a"],
        "gpus": [0.5, 3.0, 4.0, 4.0, 16.0],
        "arrival_s": [0.0, 0.0, 5.0, 6.0, 200.0],
        "wait_s": [0.0, 10.0, 30.0, None, None],
    }
)


def test_a_value_holds_until_the_end() -> None:
    assert steps(CYCLES, "gpus_held", 50.0) == ([0.0, 10.0, 30.0, 50.0], [0.0, 6.0, 8.0, 8.0])


def test_nothing_is_added_after_the_end() -> None:
    assert steps(CYCLES, "gpus_held", 30.0)[0] == [0.0, 10.0, 30.0]


def test_a_share_of_no_gpus_is_zero() -> None:
    assert shares(CYCLES, "gpus_held", "gpus_up", 30.0)[1] == [0.0, 0.75, 0.0]


def test_evictions_add_up() -> None:
    assert totals(CYCLES, "evictions", 30.0)[1] == [0.0, 2.0, 5.0]


def test_an_empty_table_is_an_empty_line() -> None:
    assert steps(CYCLES.clear(), "gpus_held", 30.0) == ([], [])


def test_a_job_that_never_started_keeps_the_line_below_one() -> None:
    # Four jobs arrived by 100 s; one of them never started, and the fifth had not arrived.
    assert started_within(JOBS, 100.0) == ([0.0, 10.0, 30.0], [0.25, 0.5, 0.75])


def test_waits_by_size() -> None:
    assert waits_by(JOBS, "size", 100.0).rows() == [("1", 1, 0, 0.0, 0.0), ("3-4", 3, 1, 20.0, 29.0)]


def test_waits_by_queue_where_none_started() -> None:
    late = JOBS.with_columns(pl.lit(None, dtype=pl.Float64).alias("wait_s"))
    assert waits_by(late, "queue", 100.0).rows() == [("a", 3, 3, None, None), ("b", 1, 1, None, None)]


def test_thinning_keeps_ends_and_peaks() -> None:
    at = np.arange(100_000, dtype=np.float64)
    values = np.zeros_like(at)
    values[[7, 54_321]] = 5.0, -3.0
    times, kept = thinned(at, values, most=400)
    assert len(times) <= 401
    assert times == sorted(times)
    assert (times[0], times[-1]) == (0.0, 99_999.0)
    assert (kept[times.index(7.0)], kept[times.index(54_321.0)]) == (5.0, -3.0)


def test_a_short_line_is_not_thinned() -> None:
    at = np.array([0.0, 1.0, 2.0])
    assert thinned(at, at, most=3) == ([0.0, 1.0, 2.0], [0.0, 1.0, 2.0])


def test_the_queues_that_asked_for_most() -> None:
    queues = pl.DataFrame({"queue": ["a", "b", "c", "a"], "requested_gpus": [1.0, 5.0, 5.0, 9.0]})
    assert largest_queues([queues], 2) == ["a", "b"]
