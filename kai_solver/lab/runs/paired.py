"""Whether a figure differs between two models, judged by the pairs of runs that share instance and seed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
        Of Wilcoxon's signed-rank test, two-sided, pairs without a difference left out; None where it cannot be done. In
        what `corrected` returns: with Holm's correction.
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


def paired_difference(figures: Sequence[float], others: Sequence[float]) -> PairedDifference:
    """Test the difference of two figures, pair by pair. Of several such tests, see `corrected`.

    Parameters
    ----------
    figures, others
        Of the model and of the other one, in the same order of pairs.

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
    p = _wilcoxon_p(found) if less + more else 1.0
    verdict: PairedVerdict = "no difference"
    if less + more and less + more < FEWEST:
        verdict = "too few pairs"
    elif p < LEVEL:
        verdict = "less" if _signed_ranks(found) < 0 else "more"
    return PairedDifference(len(found), less, more, float(np.median(found)), low, high, p, verdict)


def corrected(found: Sequence[PairedDifference]) -> list[PairedDifference]:
    """Differences of which all verdicts are shown together, in the order given, each corrected for their number.

    By Holm: where no figure differs, chance gives any "less" or "more" at all in at most `LEVEL` of the studies. Tests
    in which too few pairs differ are not counted, since they could not find anything alone (Tarone, 1990).
    """
    counted = iter(corrected_by_holm([one.p for one in found if one.p is not None and is_counted(one)]))
    return [_with(one, next(counted)) if is_counted(one) else one for one in found]


def is_counted(one: PairedDifference) -> bool:
    """Whether this test could find a difference alone, so that `corrected` counts it."""
    return one.p is not None and one.less + one.more >= FEWEST


def _with(one: PairedDifference, p: float) -> PairedDifference:
    return replace(one, p=p, verdict=one.verdict if p < LEVEL else "no difference")


def corrected_by_holm(ps: Sequence[float]) -> list[float]:
    """The p-values of several tests, corrected for their number by Holm, in the order given.

    scipy has the corrections of Benjamini, Hochberg and Yekutieli alone, which allow a share of false verdicts.
    """
    found = [0.0] * len(ps)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        least = max(least, min(1.0, ps[place] * (len(ps) - rank)))
        found[place] = least
    return found


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
