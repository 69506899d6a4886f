"""One number for a run: how far its plan is from a known one over the budget, or at its end.

The gap of a stage is ``(value - known) / max(|value|, |known|)``: 0 where both are the same, at most 1, below 0 where
the run is better. A plan has no stage of a stratum that it does not touch; its value there is 0. The gap of a plan is
the mean over its stages; each weighs half as much as the one before.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from kai_solver.lab.runs.record import Improvement, RunRecord
from kai_solver.lab.runs.stage_order import stage_order

Objective = Literal["primal-integral", "final-gap"]
NO_PLAN = 1.0
"""Gap while there is no plan, and of a run that failed."""


def score(
    record: RunRecord,
    improvements: Sequence[Improvement],
    known: Mapping[str, float],
    objective: Objective = "primal-integral",
) -> float:
    """How far a run is from the ``known`` values of the stages.

    Returns
    -------
    float
        ``final-gap``: of its plan. ``primal-integral``: the mean of the gap over the budget, `NO_PLAN` before its first
        plan; after it has decided, the gap stays as it is. A stage that has not been heard of yet counts as what is
        first heard of it. `NO_PLAN` where the run failed.
    """
    if record.status != "ok":
        return NO_PLAN
    final = {stage.name: stage.value for stage in record.stages if stage.value is not None}
    names = stage_order(known, final)
    weights = _weights(len(names))
    if objective == "final-gap":
        return _gap(final, known, names, weights)
    begins_s = min(record.solve_s if record.first_plan_s is None else record.first_plan_s, record.budget_s)
    heard = [one for one in improvements if one.value is not None and one.stage in final]
    now = {name: value for name, value in final.items() if name not in {one.stage for one in heard}}
    for one in reversed(heard):
        now[one.stage] = one.value or 0.0  # what is first heard of a stage
    total, last_s = NO_PLAN * begins_s, begins_s
    for one in sorted(heard, key=lambda one: one.at_s):
        at_s = min(max(one.at_s, begins_s), record.budget_s)
        total += (at_s - last_s) * _gap(now, known, names, weights)
        last_s = at_s
        now[one.stage] = one.value or 0.0
    total += (record.budget_s - last_s) * _gap(now, known, names, weights)
    return total / record.budget_s


def best_values(records: Iterable[RunRecord]) -> dict[str, float]:
    """Values of the stages of the best plan among runs of one instance, stage by stage; empty where all failed."""
    plans = [
        {stage.name: stage.value for stage in record.stages if stage.value is not None}
        for record in records
        if record.status == "ok"
    ]
    names = stage_order(*plans)
    return min(plans, key=lambda plan: [plan.get(name, 0.0) for name in names], default={})


def with_integrals(
    records: Sequence[RunRecord], improvements: Mapping[str, Sequence[Improvement]]
) -> tuple[RunRecord, ...]:
    """The rows with their primal integrals, each against the best plan of all runs of the same instance.

    ``improvements``: by run. Replays have none, nor have runs of an instance for which no run found a plan.
    """
    planned: dict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    for record in records:
        if record.status == "ok" and record.first_plan_s is not None:
            planned[record.instance, record.source].append(record)
    known = {of: best_values(some) for of, some in planned.items()}

    def integral(record: RunRecord) -> float | None:
        is_planned = record.status != "ok" or record.first_plan_s is not None
        best = known.get((record.instance, record.source))
        if best is None or not is_planned or record.budget_s <= 0:
            return None
        return score(record, improvements.get(record.run, ()), best)

    return tuple(replace(record, primal_integral=integral(record)) for record in records)


def _weights(stages: int) -> list[float]:
    halves = [0.5**position for position in range(stages)]
    return [half / sum(halves) for half in halves]


def _gap(
    values: Mapping[str, float], known: Mapping[str, float], names: Sequence[str], weights: Sequence[float]
) -> float:
    total = 0.0
    for name, weight in zip(names, weights, strict=True):
        value, best = values.get(name, 0.0), known.get(name, 0.0)
        most = max(abs(value), abs(best))
        total += weight * (value - best) / most if most else 0.0
    return total
