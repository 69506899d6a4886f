"""Where a stay is drawn in its node's row, by examples that are worked out by hand."""

from collections.abc import Sequence

import polars as pl

from kai_solver.lab.reports.gantt import Bar, downtimes, lay_out


def stays(*rows: tuple[str, str, float, float, float | None]) -> pl.DataFrame:
    """Rows of node, devices, gpus, start and end."""
    return pl.DataFrame(rows, schema=["node", "devices", "gpus", "start_s", "end_s"], orient="row")


def bars(nodes: Sequence[str], *rows: tuple[str, str, float, float, float | None]) -> list[Bar]:
    return lay_out(stays(*rows), nodes)[1]


def test_neighbours_are_one_bar() -> None:
    assert bars(["n"], ("n", "0 1 2 5", 4.0, 0.0, 9.0)) == [Bar(0, 0, 3), Bar(0, 5, 6)]


def test_shares_of_a_gpu_stand_side_by_side_and_their_room_is_used_again() -> None:
    found = bars(["n"], ("n", "3", 0.5, 0.0, 10.0), ("n", "3", 0.25, 1.0, None), ("n", "3", 0.5, 10.0, 20.0))
    assert found == [Bar(0, 3.0, 3.5), Bar(1, 3.5, 3.75), Bar(2, 3.0, 3.5)]


def test_a_gpu_that_is_sliced_by_time_has_bars_above_each_other() -> None:
    found = bars(["n"], ("n", "0", 0.6, 0.0, 9.0), ("n", "0", 0.6, 1.0, 9.0))
    assert found == [Bar(0, 0.0, 0.6), Bar(1, 0.0, 0.6)]


def test_pods_without_a_gpu_have_a_lane_below() -> None:
    lanes, found = lay_out(
        stays(("n", "", 0.0, 0.0, 5.0), ("n", "0", 1.0, 0.0, 9.0), ("n", "", 0.0, 1.0, 9.0), ("n", "", 0.0, 5.0, 9.0)),
        ["n", "unused"],
    )
    assert lanes == [2, 1]
    assert found == [Bar(0, 1.0, 1.5), Bar(1, 0, 1), Bar(2, 1.5, 2.0), Bar(3, 1.0, 1.5)]


def test_gpus_without_known_devices_take_free_lanes() -> None:
    found = bars(["n"], ("n", "1", 1.0, 0.0, 5.0), ("n", "", 2.0, 1.0, 9.0), ("n", "", 1.0, 6.0, 9.0))
    assert found == [Bar(0, 1, 2), Bar(1, 0, 1), Bar(1, 2, 3), Bar(2, 1, 2)]


def test_times_in_which_a_node_was_down() -> None:
    table = pl.DataFrame(
        {
            "node": ["a", "b", "a", "a", "b"],
            "time_s": [0.0, 0.0, 5.0, 9.0, 20.0],
            "is_down": [False, False, True, False, True],
        }
    )
    assert downtimes(table, ["a", "b"], 30.0) == [(0, 5.0, 9.0), (1, 20.0, 30.0)]
