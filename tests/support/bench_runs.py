"""Runs as `bench` measures them, made up by what tests are about."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kai_solver.domain import Stage
from kai_solver.lab.bench import Run
from kai_solver.lab.bench.measure import CALIBRATION, LINKED, PARTLY, PENDING_GPUS, PLACED, PLAIN, UNKNOWN_GPUS
from kai_solver.lab.runs import InstanceFile, Outcome, StageResult, task_of
from kai_solver.lab.runs.running import blank
from kai_solver.modelfiles import load_model

_COLUMNS = {"decide_s": "solve_s", "memory_mib": "peak_mib", "evicted": "evicted_pods", "moved": "moved_pods"}
_COLUMNS |= {"proven": "pending_proven", "source": "plan_source"}
_MEASURES = {"placed": PLACED, "partly": PARTLY, "calibration_s": CALIBRATION}
_MEASURES |= {"pending_gpus": PENDING_GPUS, "unknown_gpus": UNKNOWN_GPUS}


def a_run(**said: Any) -> Run:
    """A run of 0.2 s and 50 MiB: 3 gangs placed, a pod evicted, 2 gangs pending and one of them proven."""
    task = task_of("bench", InstanceFile("small", Path("small.yaml")), load_model("default"), 1, 2.0)
    made = {"decide_s": 0.2, "memory_mib": 50.0, "placed": 3, "evicted": 1, "pending": 2, "proven": 1}
    return changed(Run(Outcome(blank(task, "ok"))), **(made | {"source": "greedy", "nodes": 10} | said))


def changed(run: Run, **said: Any) -> Run:
    """The run with other columns, measures, stages (as plans have them), improvements or pairs of cycles."""
    record, improvements, measures = run.record, run.improvements, dict(run.record.measures)
    for name, value in said.items():
        if name == "improvements":
            improvements = tuple(value)
        elif name == "stages":
            record = replace(record, stages=results(value))
        elif name == "pairs":
            measures |= {f"{PLAIN}{at}": plain for at, (plain, _) in enumerate(value)}
            measures |= {f"{LINKED}{at}": linked for at, (_, linked) in enumerate(value)}
        elif name in _MEASURES:
            measures[_MEASURES[name]] = value
        else:
            columns: dict[str, Any] = {_COLUMNS.get(name, name): value}
            record = replace(record, **columns)
    # Runs that differ are runs of their own.
    record = replace(record, measures=measures)
    record = replace(record, run=f"{record.instance}.{record.model}.{record.seed}.{record.budget_s:g}.{record.draw}")
    return replace(run, outcome=replace(run.outcome, record=record, improvements=improvements))


def results(stages: Sequence[Stage]) -> tuple[StageResult, ...]:
    """Stages of a plan as a row has them."""
    return tuple(StageResult(one.name, one.value, one.bound, one.gap, one.optimal) for one in stages)
