"""Whether a figure differs between two models, judged by the pairs of runs that share instance and seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kai_solver.errors.extras import check_package

PairedVerdict = Literal["less", "more", "no difference", "too few pairs"]

LEVEL = 0.05
"""A difference that chance makes less often than this counts."""
FEWEST = 6
"""Pairs that differ, below which the test cannot find anything: with five the smallest p-value is 0.0625."""
_RESAMPLES = 9_999


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A figure of a model against that of another one, run by run.

    Attributes
    ----------
    pairs
        How many there are.
    less, more
        In how many of them the model's figure is less, and more.
    median
        Of the differences, the model's figure minus the other's; None without pairs.
    low, high
        95% interval of the median, by bootstrap; None with fewer than `FEWEST` pairs.
    p
        Of Wilcoxon's signed-rank test, two-sided, pairs without a difference left out; None where it cannot be done.
    verdict
        "less" or "more" where ``p`` is below `LEVEL`, else "no difference"; or "too few pairs".
    """

    pairs: int
    less: int
    more: int
    median: float | None
    low: float | None
    high: float | None
    p: float | None
    verdict: PairedVerdict


def check_scipy() -> None:
    """Refuse to go on without scipy.

    Raises
    ------
    InputError
        It is not installed.
    """
    check_package("scipy", "tests of differences need")


def paired_difference(figures: Sequence[float], others: Sequence[float], *, tests: int = 1) -> PairedDifference:
    """Test the difference of two figures, pair by pair.

    Parameters
    ----------
    figures, others
        Of the model and of the other one, in the same order of pairs.
    tests
        How many such tests are made of one question: ``p`` is multiplied by this (Bonferroni).

    Raises
    ------
    InputError
        scipy is not installed.
    """
    found = np.asarray(figures, dtype=float) - np.asarray(others, dtype=float)
    less, more = int((found < 0).sum()), int((found > 0).sum())
    if len(found) < FEWEST:
        return PairedDifference(
            len(found), less, more, float(np.median(found)) if len(found) else None, None, None, None, "too few pairs"
        )
    low, high = _interval(found)
    p = min(1.0, tests * _wilcoxon_p(found)) if less + more else 1.0
    verdict: PairedVerdict = "no difference"
    if less + more and less + more < FEWEST:
        verdict = "too few pairs"
    elif p < LEVEL:
        verdict = "less" if _signed_ranks(found) < 0 else "more"
    return PairedDifference(len(found), less, more, float(np.median(found)), low, high, p, verdict)


def _wilcoxon_p(found: np.ndarray) -> float:
    check_scipy()
    from scipy.stats import wilcoxon  # an extra, and slow to import

    return float(wilcoxon(found, zero_method="wilcox").pvalue)


def _signed_ranks(found: np.ndarray) -> float:
    """The test's statistic with its sign: which way the larger differences go."""
    from scipy.stats import rankdata

    differ = found[found != 0]
    return float((np.sign(differ) * rankdata(np.abs(differ))).sum())


def _interval(found: np.ndarray) -> tuple[float, float]:
    """Percentiles of the median of resampled differences; the same differences give the same interval."""
    drawn = np.random.default_rng(1).choice(found, (_RESAMPLES, len(found)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)
