"""Data behind the figures of simulations: functions of the tables, each tested against a worked example."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kai_solver.lab.simulate.summary import size_class, size_classes

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
MOST_POINTS = 3000
"""Of one line: more than a screen is wide, and a page of ten runs stays small."""


def steps(frame: "pl.DataFrame", column: str, end_s: float) -> tuple[list[float], list[float]]:
    """Times and values of a column; each value holds until the next time, the last until ``end_s``."""
    at, values = frame["time_s"].to_numpy(), frame[column].cast(float).to_numpy()
    if len(at) and at[-1] < end_s:
        at, values = np.append(at, end_s), np.append(values, values[-1])
    return thinned(at, values)


def shares(frame: "pl.DataFrame", part: str, whole: str, end_s: float) -> tuple[list[float], list[float]]:
    """As `steps`, of one column divided by another; 0 where the other is 0."""
    import polars as pl

    ratio = pl.when(pl.col(whole) > 0).then(pl.col(part) / pl.col(whole)).otherwise(0.0)
    return steps(frame.select("time_s", ratio.alias("share")), "share", end_s)


def totals(frame: "pl.DataFrame", column: str, end_s: float) -> tuple[list[float], list[float]]:
    """As `steps`, of the sum of a column so far."""
    import polars as pl

    return steps(frame.select("time_s", pl.col(column).cum_sum().alias("total")), "total", end_s)


def thinned(at: Floats, values: Floats, most: int = MOST_POINTS) -> tuple[list[float], list[float]]:
    """The line with at most ``most`` points and a few: of each stretch its first, least, largest and last one.

    No peak is lost, and a line that is short enough stays as it is.
    """
    if len(at) <= most:
        return at.tolist(), values.tolist()
    bounds = np.linspace(0, len(at), most // 4 + 1).astype(int)
    kept: set[int] = set()
    for start, end in pairwise(bounds.tolist()):
        if start < end:
            stretch = values[start:end]
            kept |= {start, end - 1, start + int(stretch.argmin()), start + int(stretch.argmax())}
    index = sorted(kept)
    return at[index].tolist(), values[index].tolist()


def started_within(jobs: "pl.DataFrame", end_s: float) -> tuple[list[float], list[float]]:
    """Seconds t, and the share of the jobs that arrived which had started t after they arrived.

    A job that has not started counts as one that never does, so the line ends below 1 where there are some.
    """
    arrived = jobs.filter(jobs["arrival_s"] <= end_s)
    waits = np.sort(arrived["wait_s"].drop_nulls().to_numpy())
    if not len(arrived):
        return [], []
    at, counts = np.unique(waits, return_counts=True)
    return thinned(at, np.cumsum(counts) / len(arrived))


def waits_by(jobs: "pl.DataFrame", by: str, end_s: float) -> "pl.DataFrame":
    """Waits of jobs that arrived by ``size`` (class of GPUs) or by ``queue``.

    Returns
    -------
    DataFrame
        Rows in order of size, or of name: group, jobs, never (not started at the end), median_s, p95_s (of those that
        started; null where none did).
    """
    import polars as pl

    arrived = jobs.filter(pl.col("arrival_s") <= end_s)
    if by == "size":
        groups = [size_class(gpus) for gpus in arrived["gpus"]]
        order = {name: place for place, name in enumerate(size_classes())}
    else:
        groups = arrived["queue"].to_list()
        order = {name: place for place, name in enumerate(sorted(set(groups)))}
    table = arrived.select("wait_s").with_columns(pl.Series("group", groups, dtype=pl.String))
    table = table.group_by("group").agg(
        pl.len().alias("jobs"),
        pl.col("wait_s").null_count().alias("never"),
        pl.col("wait_s").median().alias("median_s"),
        pl.col("wait_s").quantile(0.95, "linear").alias("p95_s"),
    )
    places = table["group"].replace_strict(order, return_dtype=pl.Int64)
    return table.with_columns(places.alias("place")).sort("place").drop("place")


def largest_queues(queues: Sequence["pl.DataFrame"], most: int) -> list[str]:
    """Names of the queues that asked for most GPUs at any time, at most so many; then by name."""
    import polars as pl

    if not queues:
        return []
    peaks = pl.concat(queues).group_by("queue").agg(pl.col("requested_gpus").max())
    ordered = sorted(peaks.iter_rows(), key=lambda row: (-row[1], row[0]))
    return [name for name, _ in ordered[:most]]
