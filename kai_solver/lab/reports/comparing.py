"""Data behind the figures of studies: functions of costs by model and problem, tested against worked examples.

Whether one model is better than another is said by `kai_solver.lab.runs.verdicts`.

A problem is one instance with one seed. A cost is a number that is better when it is less, or None: the run failed, or
did not come to that.
"""

from collections.abc import Mapping, Sequence

Problem = tuple[str, int]
Costs = Mapping[str, Mapping[Problem, float | None]]

VIRTUAL_BEST = "virtual best"


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
