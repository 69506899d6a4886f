"""The test of differences agrees with a worked example, and can say that there is none."""

import pytest

from kai_solver.lab.runs import paired_difference
from kai_solver.lab.runs.paired import corrected

# Heights of cross- and self-fertilised maize, eighths of an inch less the pot's mean: Darwin's pairs, as scipy's
# documentation of wilcoxon has them; their p-value there is 0.041.
DARWIN = (6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75)


def test_a_worked_example() -> None:
    found = paired_difference([float(one) for one in DARWIN], [0.0] * len(DARWIN))
    assert found.p == pytest.approx(0.041259765625)
    assert (found.pairs, found.less, found.more, found.median, found.verdict) == (15, 2, 13, 24.0, "more")
    assert found.low is not None
    assert found.high is not None
    assert found.low < 24 < found.high


def test_the_same_pairs_the_other_way_round() -> None:
    found = paired_difference([0.0] * len(DARWIN), [float(one) for one in DARWIN])
    assert (found.less, found.more, found.median, found.verdict) == (13, 2, -24.0, "less")


def test_tests_that_are_shown_together_are_corrected_together() -> None:
    """Three tests of p 2/256, 0.04126 and 1: Holm multiplies them by 3, 2 and 1."""
    clear = paired_difference([0.0] * 8, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    darwin = paired_difference([float(one) for one in DARWIN], [0.0] * len(DARWIN))
    none = paired_difference([1.0, -1.0] * 4, [0.0] * 8)
    found = corrected([darwin, none, clear])
    assert [one.p for one in found] == pytest.approx([2 * 0.041259765625, 1.0, 3 * 2 / 256])
    assert [one.verdict for one in found] == ["no difference", "no difference", "less"]
    assert darwin.verdict == "more", "alone it was a difference"


def test_what_no_test_could_find_is_not_counted() -> None:
    darwin = paired_difference([float(one) for one in DARWIN], [0.0] * len(DARWIN))
    equal = paired_difference([3.0] * 10, [3.0] * 10)
    few = paired_difference([0.0] * 20 + [1.0] * 5, [0.0] * 25)
    short = paired_difference([1.0] * 5, [2.0] * 5)
    assert corrected([equal, darwin, few, short]) == [equal, darwin, few, short]


def test_equal_figures_have_no_difference() -> None:
    found = paired_difference([3.0] * 10, [3.0] * 10)
    assert (found.p, found.low, found.high, found.verdict) == (1.0, 0.0, 0.0, "no difference")


def test_few_pairs_say_nothing() -> None:
    assert paired_difference([1.0] * 5, [2.0] * 5).verdict == "too few pairs"
    assert paired_difference([], []).median is None
    mostly_equal = paired_difference([0.0] * 20 + [1.0] * 3, [0.0] * 23)
    assert (mostly_equal.verdict, mostly_equal.more) == ("too few pairs", 3)
