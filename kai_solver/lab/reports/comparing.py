"""Data behind the figures of studies: functions of costs by model and problem, tested against worked examples.

A problem is one instance with one seed. A cost is a number that is better when it is less, or None: the run failed, or
did not come to that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

Problem = tuple[str, int]
Costs = Mapping[str, Mapping[Problem, float | None]]

VIRTUAL_BEST = "virtual best"
LEVEL = 0.05
"""Of the tests: a smaller p, after Holm's correction, is called a difference."""
FEWEST = 6
"""Pairs that differ; with fewer no two-sided signed-rank test comes below the level."""


def in_common(costs: Costs) -> list[Problem]:
    """Problems that every model was asked, sorted."""
    sets = [set(mine) for mine in costs.values()]
    return sorted(set.intersection(*sets)) if sets else []


def performance_profile(costs: Costs, floor: float) -> dict[str, tuple[list[float], list[float]]]:
    """For each model ratios r, and the share of the problems on which its cost is at most r times the best model's.

    Dolan and Moré, 2002. Costs below ``floor`` count as that, since a ratio of tiny costs says nothing. A problem which
    no model solved counts for none.
    """
    problems = in_common(costs)
    ratios: dict[str, list[float]] = {model: [] for model in costs}
    for problem in problems:
        solved = {model: max(floor, cost) for model, mine in costs.items() if (cost := mine[problem]) is not None}
        best = min(solved.values(), default=floor)
        for model, cost in solved.items():
            ratios[model].append(cost / best)
    return {model: _cumulated(mine, len(problems)) for model, mine in ratios.items()}


def cumulative(costs: Costs) -> dict[str, tuple[list[float], list[float]]]:
    """For each model costs c, and the share of the common problems whose cost is at most c."""
    problems = in_common(costs)
    return {
        model: _cumulated([cost for problem in problems if (cost := mine[problem]) is not None], len(problems))
        for model, mine in costs.items()
    }


def _cumulated(values: Sequence[float], of: int) -> tuple[list[float], list[float]]:
    ordered = sorted(values)
    last = {value: place for place, value in enumerate(ordered, 1)}
    return list(last), [count / of for count in last.values()]


def cactus(costs: Costs) -> dict[str, tuple[list[float], list[float]]]:
    """For each model, and for the virtual best of them: 1, 2, ... problems solved, and within which cost each."""
    problems = in_common(costs)
    best: dict[Problem, float | None] = {
        problem: min((cost for mine in costs.values() if (cost := mine[problem]) is not None), default=None)
        for problem in problems
    }
    everything = dict(costs) | ({VIRTUAL_BEST: best} if len(costs) > 1 else {})
    lines = {}
    for model, mine in everything.items():
        solved = sorted(cost for problem in problems if (cost := mine[problem]) is not None)
        lines[model] = ([float(count) for count in range(1, len(solved) + 1)], solved)
    return lines


def paired(costs: Costs, first: str, second: str) -> list[tuple[Problem, float, float]]:
    """Problems on which both models have a cost, with the two."""
    common = sorted(set(costs[first]) & set(costs[second]))
    return [
        (problem, one, two)
        for problem in common
        if (one := costs[first][problem]) is not None and (two := costs[second][problem]) is not None
    ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Two models on the instances that both solved, seeds averaged.

    Attributes
    ----------
    first_mean, second_mean
        Over instances.
    first_wins, second_wins
        Instances on which it costs less.
    p
        Of the two-sided signed-rank test (Wilcoxon), corrected by Holm for the number of verdicts; None: too few
        instances differ.
    """

    first: str
    second: str
    instances: int
    first_mean: float
    second_mean: float
    first_wins: int
    second_wins: int
    p: float | None

    @property
    def better(self) -> str | None:
        """The model that costs less, where the test can tell; else None."""
        if self.p is None or self.p >= LEVEL:
            return None
        return self.first if self.first_mean < self.second_mean else self.second


def compare_with_first(costs: Costs) -> list[Verdict]:
    """The first model compared with each other one; seeds of one instance are no independent samples, so are averaged.

    Pairs that have no instance in common are left out.
    """
    first, *others = costs
    found = [verdict for other in others if (verdict := _compare(costs, first, other)) is not None]
    tested = [place for place, v in enumerate(found) if v.p is not None]
    corrected = dict(zip(tested, corrected_by_holm([v.p for v in found if v.p is not None]), strict=True))
    return [
        Verdict(
            v.first, v.second, v.instances, v.first_mean, v.second_mean, v.first_wins, v.second_wins, corrected.get(at)
        )
        for at, v in enumerate(found)
    ]


def corrected_by_holm(ps: Sequence[float]) -> list[float]:
    """The p-values of several tests, corrected for their number by Holm, in the order given."""
    corrected = [0.0] * len(ps)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        least = max(least, min(1.0, ps[place] * (len(ps) - rank)))
        corrected[place] = least
    return corrected


def _compare(costs: Costs, first: str, second: str) -> Verdict | None:
    by_instance: dict[str, list[tuple[float, float]]] = {}
    for (instance, _), one, two in paired(costs, first, second):
        by_instance.setdefault(instance, []).append((one, two))
    if not by_instance:
        return None
    ones = [fmean(one for one, _ in pairs) for pairs in by_instance.values()]
    twos = [fmean(two for _, two in pairs) for pairs in by_instance.values()]
    differences = [round(one - two, 12) for one, two in zip(ones, twos, strict=True)]
    differing = [difference for difference in differences if difference]
    p = None
    if len(differing) >= FEWEST:
        from scipy.stats import wilcoxon

        p = float(wilcoxon(differing).pvalue)
    wins = sum(difference < 0 for difference in differing)
    return Verdict(first, second, len(ones), fmean(ones), fmean(twos), wins, len(differing) - wins, p)
